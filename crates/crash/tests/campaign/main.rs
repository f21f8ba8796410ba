//! The campaign: short sequences of calls with every way of syncing, and long random ones by many
//! tasks, on ext4 and XFS with every feature that decides how they lie on the disk; every state is
//! recovered, checked, and compared with what was promised. No workload comes twice, and the states
//! of one are distinct. 5,000 by default, and 10,000 more of XFS with parent pointers; what
//! [`setting`] reads is for more. `cargo xtask campaign` runs it in pieces, and publishes the
//! figures that each prints.

use std::collections::BTreeSet;
use std::io::Write;

use crash::explore::State;
use crash::host::HostImage;
use crash::{Crash, Judge, Kind, Limits, Log, Outcome, Rules};
use rt::{Cx, SpinLock};
use vfs::FileSystem;

mod formats;
mod kernel;
mod workload;

use formats::{all_formats, format, formats, with_parents};
use workload::{PAIRS, SINGLES, workload};

/// Of the states of a long workload one in so many is visited: none takes the whole campaign.
const LONG: u64 = 4;
/// A prime that divides no number of sequences, and makes neighbours differ in all parts.
const STEP: u64 = 1237;
/// In a long campaign the outside checkers look at states of one workload in so many, ...
const ASKED_ROUNDS: u64 = 128;
/// ... and there at one in so many.
const ASKED: u64 = 11;

/// What a long campaign says in the environment: `IOPATH_CRASH_STATES`, how many; `_SEED`, which;
/// `_ROUND` and `_ROUNDS`, where it begins, and after how many workloads it ends; `_ORDER`, `short`
/// where all short sequences come first; `_ONLY`, `parents` where they are of [`with_parents`]
/// alone; `_KEYS`, a file to which a hash of each state's content is
/// appended; `_KERNEL`, how many states the kernel recovers beside us, as root.
fn setting(name: &str) -> Option<String> {
    std::env::var(format!("IOPATH_CRASH_{name}")).ok()
}

fn number(name: &str, default: u64) -> u64 {
    setting(name).map_or(default, |text| text.parse().expect("a number"))
}

/// One workload of the campaign.
struct Round {
    round: u64,
    seed: u64,
    kind: Kind,
    number: u64,
    format: u64,
    short: bool,
}

impl Round {
    /// Each call alone with each way of syncing comes first, of seed 1 on the default kind.
    /// Then two short sequences and a long one alternate while there are short ones: each of them
    /// comes once on each kind of file system.
    fn new(round: u64, seed: u64) -> Round {
        let kind = [Kind::Ext4, Kind::Xfs][(round % 2) as usize];
        let formats = formats(kind);
        // Of six later rounds the first four are short.
        let later = round.saturating_sub(2 * SINGLES);
        let (six, of) = (later / 6, later % 6 / 2);
        let index = if later == 0 { round / 2 } else { SINGLES + 2 * six + of };
        let short = of < 2;
        let (singles, pairs) = (SINGLES * formats, PAIRS * formats);
        let (number, format) = match index.checked_sub(singles) {
            None if short => (index % SINGLES, (index / SINGLES + seed - 1) % formats),
            Some(pair) if short && pair < pairs => {
                // A step through all pairs on all kinds that meets each of them once.
                let at = (pair + seed) * STEP % pairs;
                (SINGLES + at / formats, at % formats)
            }
            _ => (SINGLES + PAIRS + seed * 1_000_003 + round, (six + of) % formats),
        };
        let short = number < SINGLES + PAIRS;
        Round { round, seed, kind, number, format, short }
    }

    /// All short sequences come first, each on every one of these kinds in turn; long ones follow.
    fn short_first(round: u64, seed: u64, kinds: &[(Kind, u64)]) -> Round {
        let turn = round / kinds.len() as u64;
        Round::on(round, seed, kinds, Some(turn).filter(|&turn| turn < SINGLES + PAIRS))
    }

    /// A sample of all workloads of these kinds: two short sequences and a long one alternate.
    fn sampled(round: u64, seed: u64, kinds: &[(Kind, u64)]) -> Round {
        let turn = round / kinds.len() as u64;
        Round::on(round, seed, kinds, (turn % 3 < 2).then_some(turn - turn.div_ceil(3)))
    }

    /// On the next of these kinds the short sequence of this number, or a long one.
    fn on(round: u64, seed: u64, kinds: &[(Kind, u64)], short: Option<u64>) -> Round {
        let (kind, format) = kinds[(round % kinds.len() as u64) as usize];
        let all = SINGLES + PAIRS;
        let long = all + seed * 1_000_003 + round;
        let number = short.map_or(long, |short| (short * STEP + seed) % all);
        Round { round, seed, kind, number, format, short: short.is_some() }
    }

    /// Its name, and a test of it that visits the states of the campaign.
    fn test(&self) -> (String, Crash) {
        let rules = if self.kind == Kind::Xfs { Rules::Xfs } else { Rules::Ext4 };
        let limits = Limits { all_subsets: 4, samples: 8, singles: 24 };
        let (name, format) = format(self.kind, self.format);
        let mut test = Crash::on(self.kind).format(format).limits(limits).oracle(rules);
        // Some writes overtake others, as on disks with many queues.
        test = test.seed(self.seed + self.number).late(0.5).ext4(ext4::MountOptions::default());
        test.commits = false;
        test.exploration.shard = if self.short { (0, 1) } else { (self.number % LONG, LONG) };
        (name, test)
    }

    fn record(&self, test: &Crash) -> Log {
        test.record(|fs| workload(fs, self.number))
    }

    /// # Panics
    /// With the story of what was found.
    fn run(&self, before: u64, keys: &Keys) -> Outcome {
        let (name, mut test) = self.test();
        if setting("STATES").is_some() && self.round % ASKED_ROUNDS < 4 {
            test.exploration.outside = ASKED;
        }
        let log = self.record(&test);
        let outcome = crash::explore(&log, &test.exploration, keys, &mut |_| {}).unwrap();
        let ours = |finding: &&crash::Finding| finding.verdict != crash::Verdict::Unsynced;
        if let Some(finding) = outcome.findings.iter().find(ours) {
            let story = crash::story::story(&log, self.kind, finding).unwrap();
            let before = before + finding.index;
            let Round { round, seed, .. } = self;
            panic!("{name}, round {round}, seed {seed}: about {before} states before\n{story}");
        }
        outcome
    }
}

/// Asks today's e2fsck and xfs_repair: those of the host may not know all features.
fn ask_the_newest(kind: Kind, image: &HostImage) -> std::result::Result<(), String> {
    if kind == Kind::Xfs {
        return testkit::newest::xfs_repair(image.path());
    }
    let output = testkit::newest::run("e2fsck", &[&"-fn", &image.path()]);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("e2fsck: {}", String::from_utf8_lossy(&output.stdout))),
    }
}

/// Keeps a hash of the content of each state.
struct Keys(SpinLock<Vec<u8>>);

impl Judge for Keys {
    fn judge(
        &self,
        _: &mut Cx,
        _: &std::sync::Arc<dyn FileSystem>,
        _: &State,
    ) -> std::result::Result<(), crash::Refusal> {
        Ok(())
    }

    fn ask(&self, kind: Kind, image: &HostImage) -> std::result::Result<(), crash::Refusal> {
        Ok(ask_the_newest(kind, image)?)
    }

    fn visited(&self, content: u128) {
        self.0.lock_irq().extend_from_slice(&(content as u64).to_le_bytes());
    }
}

/// What was done on one kind of file system.
#[derive(Clone, Default)]
struct Figures {
    states: u64,
    recovered: u64,
    asked: u64,
    workloads: u64,
    short: u64,
}

impl Figures {
    fn add(&mut self, round: &Round, outcome: &Outcome) {
        self.states += outcome.judged;
        self.recovered += outcome.recovered;
        self.asked += outcome.asked;
        self.workloads += 1;
        self.short += u64::from(round.short);
    }

    fn json(&self, name: &str) -> serde_json::Value {
        let Figures { states, recovered, asked, workloads, short } = *self;
        serde_json::json!({ "name": name, "states": states, "recovered": recovered,
            "asked": asked, "workloads": workloads, "short": short })
    }
}

/// Goal: the oracle knows no order of calls that ran at the same time. Method: a workload in which
/// a name is made again before the rename that took it away has returned.
#[test]
fn a_name_is_made_while_it_is_renamed() {
    let keys = Keys(SpinLock::named("contents of states", Vec::new()));
    let without_extents = 10;
    let round = Round { format: without_extents, ..Round::new(26_390, 7) };
    let outcome = round.run(0, &keys);
    assert!(outcome.judged > 30, "{} states", outcome.judged);
}

/// Goal: the oracle knows that a file which one task has written was made before, although the
/// call that made it, of another task, returned later.
#[test]
fn a_file_is_written_before_the_call_that_made_it_returns() {
    let keys = Keys(SpinLock::named("contents of states", Vec::new()));
    let as_of_2014 = 3;
    let round = Round::on(53_336, 7, &[(Kind::Xfs, as_of_2014)], None);
    let outcome = round.run(0, &keys);
    assert!(outcome.judged > 5, "{} states", outcome.judged);
}

/// Visits states of the workloads from `begin` on, and prints what was done on each kind. Returns
/// how many states those were of each kind.
fn visit(kinds: &[(Kind, u64)], wanted: u64, workload: impl Fn(u64) -> Round) -> Vec<u64> {
    let (begin, rounds, mut judged) = (number("ROUND", 0), number("ROUNDS", u64::MAX), 0);
    let mut next = begin;
    let mut done = vec![Figures::default(); kinds.len()];
    let keys = Keys(SpinLock::named("contents of states", Vec::new()));
    while judged < wanted && next - begin < rounds {
        let round = workload(next);
        let outcome = round.run(judged, &keys);
        judged += outcome.judged;
        next += 1;
        let at = kinds.iter().position(|&kind| kind == (round.kind, round.format));
        done[at.expect("one of the kinds")].add(&round, &outcome);
    }
    if let Some(path) = setting("KEYS") {
        let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
        file.write_all(&keys.0.lock_irq()).unwrap();
    }
    let named = kinds.iter().zip(&done);
    let figures: Vec<_> =
        named.map(|(&(kind, number), figures)| figures.json(&format(kind, number).0)).collect();
    let line = serde_json::json!({ "seed": number("SEED", 1), "round": begin, "next": next,
        "states": judged, "sequences": SINGLES + PAIRS, "kinds": figures });
    println!("campaign {line}");
    done.iter().map(|figures| figures.states).collect()
}

#[test]
fn nothing_that_was_promised_is_lost() {
    let (wanted, seed) = (number("STATES", 5000), number("SEED", 1));
    let parents = setting("ONLY").as_deref() == Some("parents");
    let kinds = if parents { with_parents() } else { all_formats() };
    let short_first = setting("ORDER").as_deref() == Some("short");
    let states = visit(&kinds, wanted, |next| match (short_first, parents) {
        (true, _) => Round::short_first(next, seed, &kinds),
        (false, true) => Round::sampled(next, seed, &kinds),
        (false, false) => Round::new(next, seed),
    });
    let all: u64 = states.iter().sum();
    for of in [Kind::Ext4, Kind::Xfs].into_iter().filter(|_| !parents) {
        let own = kinds.iter().zip(&states).filter(|(kind, _)| kind.0 == of);
        let states: u64 = own.map(|(_, states)| states).sum();
        assert!(states > all / 8, "{of}: {states}");
    }
}

/// Goal: names that change under parent pointers, with quota, without case and beside metadata
/// directories, survive every cut. Method: 10,000 states of a sample of all workloads.
#[test]
fn names_change_under_parent_pointers_and_quota() {
    let kinds = with_parents();
    let states = visit(&kinds, 10_000, |next| Round::sampled(next, 21, &kinds));
    let all: u64 = states.iter().sum();
    assert!(states.iter().all(|&states| states > all / 8), "{states:?}");
}

/// Goal: the order of the long campaign leaves no short sequence out, and takes none twice, on any
/// kind of file system.
#[test]
fn every_short_sequence_comes_once_on_each_kind() {
    for kinds in [all_formats(), with_parents()] {
        let all = (SINGLES + PAIRS) * kinds.len() as u64;
        let rounds: BTreeSet<(String, u64, u64)> = (0..all)
            .map(|round| Round::short_first(round, 7, &kinds))
            .inspect(|round| assert!(round.short && round.number < SINGLES + PAIRS))
            .map(|round| (round.kind.to_string(), round.format, round.number))
            .collect();
        assert_eq!(rounds.len() as u64, all);
        assert!(!Round::short_first(all, 7, &kinds).short);
    }
}
