//! The campaign: short sequences of calls with every way of syncing, and long random ones by many
//! tasks, on ext4 and XFS; every state is recovered, checked, and compared with what was promised.
//! States are distinct within a workload. 5,000 by default; `IOPATH_CRASH_STATES` for
//! more, and `IOPATH_CRASH_SEED` for others. The last line has the figures.

use base::Rng;
use crash::{Crash, Fs, Kind, Limits, Result, Rules};

/// States of one round at the most: no workload takes the whole campaign.
const ROUND: u64 = 1500;

/// What a short sequence is made of.
const CALLS: [&str; 9] =
    ["creat", "overwrite", "append", "truncate", "rename", "replace", "link", "unlink", "mkdir"];
/// How it is synced.
const SYNCS: [&str; 4] = ["fsync", "fdatasync", "fsync of the directory", "sync"];

fn one(fs: &mut Fs, call: &str, round: u8) -> Result<()> {
    let content = vec![round; 2000 + 3000 * usize::from(round % 4)];
    match call {
        "creat" => fs.write(&format!("/d/new{round}"), &content),
        "overwrite" => fs.write_at("/d/a", 1000, &content),
        "append" => fs.append("/d/a", &content),
        "truncate" => fs.truncate("/d/a", 1500 * u64::from(round % 3)),
        "rename" => fs.rename("/d/a", "/d/moved").and_then(|()| fs.rename("/d/moved", "/d/a")),
        "replace" => {
            fs.write("/d/temp", &content)?;
            fs.rename("/d/temp", "/d/b")
        }
        "link" => fs.link("/d/a", &format!("/e/link{round}")),
        "unlink" => {
            fs.write("/e/gone", &content)?;
            fs.remove("/e/gone")
        }
        _ => fs.mkdir(&format!("/e/dir{round}")),
    }
}

fn sync(fs: &mut Fs, how: &str) -> Result<()> {
    match how {
        "fsync" => fs.fsync("/d/a"),
        "fdatasync" => fs.fdatasync("/d/a"),
        "fsync of the directory" => fs.fsync("/d"),
        _ => fs.sync(),
    }
}

/// A workload by its number: all sequences of one and of two calls with each way of syncing behind
/// each of them come first, then random ones by several tasks.
fn workload(fs: &mut Fs, number: u64) -> Result<()> {
    let (calls, syncs) = (CALLS.len() as u64, SYNCS.len() as u64);
    let pairs = (calls + 1) * calls * syncs;
    fs.mkdir("/d")?;
    fs.mkdir("/e")?;
    if number >= pairs {
        return many(fs, number);
    }
    fs.write("/d/a", &[200; 5000])?;
    fs.write("/d/b", &[201; 5000])?;
    fs.sync()?;
    let (first, rest) = (number % (calls + 1), number / (calls + 1));
    let (second, how) = (rest % calls, SYNCS[(rest / calls) as usize]);
    if let Some(call) = CALLS.get(first as usize) {
        one(fs, call, 1)?;
        sync(fs, how)?;
    }
    one(fs, CALLS[second as usize], 2)?;
    sync(fs, how)
}

fn many(fs: &mut Fs, seed: u64) -> Result<()> {
    let task = |number: u64| {
        move |fs: &mut Fs| {
            let mut rng = Rng::new(seed, number);
            let own = format!("/t{number}");
            fs.mkdir(&own)?;
            for round in 0..20 {
                let name = |rng: &mut Rng| match rng.below(4) {
                    0 => format!("/d/{}", rng.below(4)),
                    _ => format!("{own}/{}", rng.below(5)),
                };
                let (from, to) = (name(&mut rng), name(&mut rng));
                let content = vec![round + 1; rng.below(30_000) as usize];
                let _the_name_may_be_gone = match rng.below(12) {
                    0..3 => fs.write(&from, &content),
                    3 => fs.append(&from, &content),
                    4 => fs.write_at(&from, rng.below(20_000), &content),
                    5 => fs.rename(&from, &to),
                    6 => fs.link(&from, &to),
                    7 => fs.remove(&from),
                    8 => fs.truncate(&from, rng.below(20_000)),
                    9 => fs.fdatasync(&from),
                    10 => fs.fsync(&own),
                    _ => fs.fsync(&from),
                };
                if rng.below(6) == 0 {
                    fs.sleep_ms(rng.below(9000));
                }
            }
            Ok(())
        }
    };
    let tasks: Vec<_> = (0..4).map(|number| fs.spawn("caller", task(number))).collect();
    tasks.into_iter().try_for_each(|task| task.join(fs))
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_that_was_promised_is_lost() {
    let wanted = setting("IOPATH_CRASH_STATES", 5000);
    let seed = setting("IOPATH_CRASH_SEED", 1);
    let pairs = ((CALLS.len() + 1) * CALLS.len() * SYNCS.len()) as u64;
    let (mut judged, mut round) = (0, 0);
    let mut of_kind = [0, 0];
    while judged < wanted {
        // Short sequences spread over the campaign, and every other workload is a long one.
        let number = match round / 2 % 2 {
            0 => (round / 4 * 7 + seed) % pairs,
            _ => pairs + seed * 1_000_003 + round / 4,
        };
        let (kind, rules) =
            [(Kind::Ext4, Rules::Ext4), (Kind::Xfs, Rules::Xfs)][round as usize % 2];
        let limits = Limits { all_subsets: 4, samples: 8, singles: 24 };
        let mut test = Crash::on(kind).limits(limits).seed(seed + round).oracle(rules);
        test.exploration.states_max = ROUND.min(wanted - judged);
        let (log, outcome) = test.find(|fs| workload(fs, number), |_| Ok(()));
        let ours = |finding: &&crash::Finding| finding.verdict != crash::Verdict::Unsynced;
        if let Some(finding) = outcome.findings.iter().find(ours) {
            let story = crash::story::story(&log, kind, finding).unwrap();
            let before = judged + finding.index;
            panic!("{kind}, workload {number}, seed {seed}: about {before} states before\n{story}");
        }
        judged += outcome.judged;
        of_kind[round as usize % 2] += outcome.judged;
        round += 1;
    }
    println!("{judged} states, {} of ext4, {} of xfs, {round} workloads", of_kind[0], of_kind[1]);
    assert!(of_kind.iter().all(|states| *states > wanted / 5), "{of_kind:?}");
}
