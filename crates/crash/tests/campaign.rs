//! The campaign: short sequences of calls with every way of syncing, and long random ones by many
//! tasks, on ext4 and XFS with every feature that decides how they lie on the disk; every state is
//! recovered, checked, and compared with what was promised. No workload comes twice, and the states
//! of one are distinct. 5,000 by default; `IOPATH_CRASH_STATES` for more, `IOPATH_CRASH_SEED`
//! for others, and `IOPATH_CRASH_ROUND` to begin later. The last line has the figures.

use base::Rng;
use crash::{Crash, Format, Fs, Kind, Limits, Outcome, Result, Rules};

/// Of the states of a long workload one in so many is visited: none takes the whole campaign.
const LONG: u64 = 4;

/// A prime that divides no number of sequences, and makes neighbours differ in all parts.
const STEP: u64 = 1237;
/// States between two lines of a long campaign.
const PROGRESS: u64 = 20_000;

/// Kinds of ext4: the type, bytes of a block, what `-O` takes, and blocks of the journal.
const EXT4: [(ext4::FsType, u32, &str, u64); 11] = [
    (ext4::FsType::Ext4, 1024, "", 0),
    (ext4::FsType::Ext4, 4096, "", 1024),
    (ext4::FsType::Ext3, 1024, "", 0),
    (ext4::FsType::Ext4, 1024, "^metadata_csum,^64bit", 1024),
    (ext4::FsType::Ext4, 1024, "inline_data", 0),
    (ext4::FsType::Ext4, 2048, "quota,project,orphan_file", 1024),
    (ext4::FsType::Ext4, 1024, "ea_inode,large_dir,^flex_bg", 0),
    (ext4::FsType::Ext4, 1024, "meta_bg,^resize_inode", 1024),
    (ext4::FsType::Ext4, 4096, "sparse_super2,^resize_inode,inline_data", 0),
    (ext4::FsType::Ext4, 1024, "mmp,metadata_csum_seed", 0),
    (ext4::FsType::Ext4, 1024, "^extent,^huge_file", 1024),
];

/// Kinds of XFS: a name, and what it changes.
type XfsKind = (&'static str, fn(&mut xfs::MkfsOptions));

const XFS: [XfsKind; 6] = [
    ("default", |_| {}),
    ("rmapbt", |options| options.rmapbt = true),
    ("as mkfs.xfs 7.2", |options| {
        (options.rmapbt, options.nrext64) = (true, true);
        (options.exchange, options.parent, options.newest) = (true, true, true);
    }),
    ("as of 2014", |options| {
        (options.finobt, options.reflink, options.sparse) = (false, false, false);
        (options.bigtime, options.inobtcount) = (false, false);
    }),
    ("blocks of 1 KiB, directories of 8", |options| {
        (options.block_size, options.dir_block_size) = (1024, Some(8192));
    }),
    ("inodes of 1 KiB", |options| (options.inode_size, options.nrext64) = (1024, true)),
];

/// A kind of file system by its number, and its name.
fn format(kind: Kind, number: u64) -> (String, Format) {
    let uuid = Some([7; 16]);
    if kind == Kind::Xfs {
        let (name, change) = XFS[(number % XFS.len() as u64) as usize];
        let mut options = xfs::MkfsOptions { uuid, ..Default::default() };
        change(&mut options);
        return (format!("xfs, {name}"), Format::Xfs(options));
    }
    let (fstype, block, features, journal) = EXT4[(number % EXT4.len() as u64) as usize];
    let options = ext4::MkfsOptions {
        fstype,
        uuid,
        block_size: Some(block),
        features: features.into(),
        hash_seed: Some([9; 16]),
        journal_size: (journal > 0).then_some(journal * u64::from(block)),
        ..Default::default()
    };
    (format!("{fstype:?}, blocks of {block}, {features:?}"), Format::Ext4(options))
}

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

/// One workload of the campaign.
struct Round {
    round: u64,
    kind: Kind,
    number: u64,
    format: u64,
    short: bool,
}

impl Round {
    /// Short sequences and long ones alternate while there are short ones: each of them comes once
    /// on each kind of file system.
    fn new(round: u64, seed: u64) -> Round {
        let kind = [Kind::Ext4, Kind::Xfs][(round % 2) as usize];
        let formats = [EXT4.len(), XFS.len()][(round % 2) as usize] as u64;
        let pairs = ((CALLS.len() + 1) * CALLS.len() * SYNCS.len()) as u64;
        let (index, all) = (round / 4, pairs * formats);
        // A step through all sequences on all kinds that meets each of them once.
        let at = (index + seed - 1) * STEP % all;
        match (round / 2).is_multiple_of(2) && index < all {
            true => Round { round, kind, number: at / formats, format: at % formats, short: true },
            false => {
                let number = pairs + seed * 1_000_003 + round;
                Round { round, kind, number, format: index % formats, short: false }
            }
        }
    }

    /// # Panics
    /// With the story of what was found.
    fn run(&self, seed: u64, before: u64, most: u64) -> Outcome {
        let Round { round, kind, number, .. } = *self;
        let rules = if kind == Kind::Xfs { Rules::Xfs } else { Rules::Ext4 };
        let limits = Limits { all_subsets: 4, samples: 8, singles: 24 };
        let (name, format) = format(kind, self.format);
        let mut test = Crash::on(kind).format(format).limits(limits).oracle(rules);
        test = test.seed(seed + number);
        test.exploration.states_max = most;
        test.exploration.shard = if self.short { (0, 1) } else { (number % LONG, LONG) };
        let (log, outcome) = test.find(|fs| workload(fs, number), |_| Ok(()));
        let ours = |finding: &&crash::Finding| finding.verdict != crash::Verdict::Unsynced;
        if let Some(finding) = outcome.findings.iter().find(ours) {
            let story = crash::story::story(&log, kind, finding).unwrap();
            let before = before + finding.index;
            panic!("{name}, round {round}, seed {seed}: about {before} states before\n{story}");
        }
        outcome
    }
}

#[test]
fn nothing_that_was_promised_is_lost() {
    let wanted = setting("IOPATH_CRASH_STATES", 5000);
    let seed = setting("IOPATH_CRASH_SEED", 1);
    let (mut judged, mut recovered, mut short) = (0, 0, 0);
    let mut rounds = setting("IOPATH_CRASH_ROUND", 0);
    let mut of_kind = [0, 0];
    while judged < wanted {
        let round = Round::new(rounds, seed);
        let outcome = round.run(seed, judged, wanted - judged);
        if judged / PROGRESS != (judged + outcome.judged) / PROGRESS {
            println!("{} of {wanted} states, {rounds} workloads", judged + outcome.judged);
        }
        judged += outcome.judged;
        recovered += outcome.recovered;
        of_kind[(rounds % 2) as usize] += outcome.judged;
        short += u64::from(round.short);
        rounds += 1;
    }
    println!(
        "{judged} states, {} of ext4, {} of xfs, {recovered} recovered for them; \
         {rounds} workloads, \
         {short} of them short sequences",
        of_kind[0], of_kind[1]
    );
    assert!(of_kind.iter().all(|states| *states > wanted / 5), "{of_kind:?}");
}
