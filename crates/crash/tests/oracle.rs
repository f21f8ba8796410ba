//! The built-in oracles: silent where ext4 and XFS keep what they promise, whatever many tasks do;
//! and loud where a disk lies, where a file system leaves something out, and where a program relies
//! on what it did not sync.

use base::Rng;
use crash::{Crash, Disk, Fs, Kind, Limits, Outcome, Result, Rules, Verdict};

fn small() -> Limits {
    Limits { all_subsets: 2, samples: 3, singles: 6 }
}

fn rules_of(kind: Kind) -> Rules {
    match kind {
        Kind::Ext4 => Rules::Ext4,
        _ => Rules::Xfs,
    }
}

/// One random call; errors (a name that is gone, or taken) are part of the game.
fn call(fs: &mut Fs, rng: &mut Rng, own: &str) -> Result<()> {
    let name = |rng: &mut Rng| match rng.below(4) {
        0 => format!("/shared/{}", rng.below(3)),
        _ => format!("/{own}/{}", rng.below(4)),
    };
    let (one, other) = (name(rng), name(rng));
    let content = vec![1 + rng.below(250) as u8; rng.below(9000) as usize];
    match rng.below(14) {
        0..3 => fs.write(&one, &content),
        3 => fs.append(&one, &content),
        4 => fs.write_at(&one, rng.below(6000), &content),
        5 => fs.rename(&one, &other),
        6 => fs.link(&one, &other),
        7 => fs.remove(&one),
        8 => fs.truncate(&one, rng.below(8000)),
        9 => fs.mkdir(&format!("/{own}/d{}", rng.below(2))),
        10 => fs.fdatasync(&one),
        11 => fs.fsync(&format!("/{own}")),
        12 if rng.below(4) == 0 => fs.sync(),
        _ => fs.fsync(&one),
    }
}

fn tasks(fs: &mut Fs, seed: u64, calls: usize) -> Result<()> {
    fs.mkdir("/shared")?;
    let work = |number: u64| {
        move |fs: &mut Fs| {
            let mut rng = Rng::new(seed, number);
            let own = number.to_string();
            fs.mkdir(&format!("/{own}"))?;
            for _ in 0..calls {
                let _may_fail = call(fs, &mut rng, &own);
                if rng.below(8) == 0 {
                    fs.sleep_ms(rng.below(7000));
                }
            }
            Ok(())
        }
    };
    let tasks: Vec<_> = (0..3).map(|number| fs.spawn("caller", work(number))).collect();
    tasks.into_iter().try_for_each(|task| task.join(fs))
}

/// A rename over a file writes out what waits for blocks, and not what was written over blocks that
/// are on the disk: ext4 promises no more, and the program lacks an fsync. The oracle called that a
/// broken promise.
#[test]
fn a_rename_of_a_file_that_was_overwritten_promises_nothing() {
    let test = Crash::on(Kind::Ext4).limits(small()).oracle(Rules::Ext4);
    let (_, outcome) = test.find(
        |fs| {
            fs.write("/f", &[1; 9000])?;
            fs.sync()?;
            fs.write("/u", &[3; 9000])?;
            fs.fsync("/u")?;
            fs.write_at("/u", 0, &[4; 9000])?;
            fs.rename("/u", "/f")?;
            fs.fsync("/")
        },
        |_| Ok(()),
    );
    let verdicts: Vec<Verdict> = outcome.findings.iter().map(|finding| finding.verdict).collect();
    let unsynced = |verdict: &Verdict| *verdict == Verdict::Unsynced;
    assert!(!verdicts.is_empty() && verdicts.iter().all(unsynced), "{outcome:?}");
}

/// A file is moved away and comes back over another one: a state may show it where it was first,
/// when nothing had been promised. The oracle took that for the rename, and missed its content.
#[test]
fn a_file_that_comes_back_to_its_name_may_not_have_left_it() {
    let test = Crash::on(Kind::Ext4).limits(small()).oracle(Rules::Ext4);
    let (_, outcome) = test.find(
        |fs| {
            fs.write("/a", &[1; 9000])?;
            fs.fsync("/")?;
            fs.rename("/a", "/b")?;
            fs.write("/a", &[2; 9000])?;
            fs.rename("/b", "/a")
        },
        |_| Ok(()),
    );
    assert!(outcome.judged > 4 && outcome.findings.is_empty(), "{outcome:?}");
}

/// By its own rules and by those of POSIX, neither file system breaks a promise: many tasks, names
/// that are moved, replaced, linked and removed, and every way of syncing. `IOPATH_SEEDS` for more.
#[test]
fn nothing_that_was_promised_is_lost() {
    let seeds: u64 = std::env::var("IOPATH_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        for (kind, locked) in [(Kind::Ext4, true), (Kind::Ext4, false), (Kind::Xfs, false)] {
            for rules in [rules_of(kind), Rules::Posix] {
                let mut test = Crash::on(kind).limits(small()).seed(seed).oracle(rules);
                if locked {
                    test = test.ext4(dioread_lock());
                }
                let (log, outcome) = test.find(|fs| tasks(fs, seed, 24), |_| Ok(()));
                let judged = outcome.judged;
                println!("{kind}, {rules}, seed {seed}: {} entries, {judged} states", log.len());
                assert!(judged > 20, "{outcome:?}");
                // Tasks that rename over a file without a sync are not the file system's fault.
                let unsynced =
                    |finding: &&crash::Finding| finding.verdict == crash::Verdict::Unsynced;
                let wrong = outcome.findings.iter().find(|finding| !unsynced(finding));
                assert_eq!(wrong, None, "{kind}, {rules}, seed {seed}, {locked}");
            }
        }
    }
}

/// Ext4 as before Linux 5.6: a commit waits for the data of new blocks.
fn dioread_lock() -> ext4::MountOptions {
    ext4::MountOptions::default()
}

fn story_of(
    kind: Kind,
    rules: Rules,
    disk: Disk,
    work: impl FnOnce(&mut Fs) -> Result<()>,
) -> (Outcome, Option<crash::story::Story>) {
    let test = Crash::on(kind).limits(small()).disk(disk).oracle(rules);
    let (log, outcome) = test.find(work, |_| Ok(()));
    let story = outcome.findings.first().map(|finding| {
        let story = crash::story::story(&log, kind, finding).unwrap();
        println!("{kind}: {story}");
        story
    });
    (outcome, story)
}

/// A disk whose flush is a lie breaks the promise of the fsync that relied on it, and the story
/// names the call.
#[test]
fn a_flush_that_lies_breaks_a_promise_by_name() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let work = |fs: &mut Fs| {
            fs.write("/file", &[7; 6000])?;
            fs.fsync("/file")?;
            fs.fsync("/")
        };
        let (_, story) = story_of(kind, rules_of(kind), Disk::VolatileCache, work);
        assert_eq!(story, None, "{kind}");
        let (outcome, _) = story_of(kind, rules_of(kind), Disk::Lying, work);
        let broken = outcome.findings.iter().filter(|f| f.verdict == crash::Verdict::Broken);
        let said: Vec<&str> = broken.map(|finding| finding.message.as_str()).collect();
        println!("{kind}: {said:?}");
        assert!(said.iter().any(|text| text.contains("is kept by fsync(/file)")), "{said:?}");
    }
}

/// Temp and rename without an fsync needs no check to be found: on XFS and on ext4 the content is
/// gone. With `dioread_lock` ext4 keeps it (`auto_da_alloc`). POSIX promises nothing.
#[test]
fn a_rename_without_fsync_is_found_without_a_check() {
    let work = |fs: &mut Fs| {
        fs.write("/file", &[1; 6000])?;
        fs.fsync("/file")?;
        fs.fsync("/")?;
        fs.write("/new", &[2; 6000])?;
        fs.rename("/new", "/file")?;
        fs.fsync("/")
    };
    let test = Crash::on(Kind::Ext4).limits(small()).oracle(Rules::Ext4).ext4(dioread_lock());
    assert_eq!(test.find(work, |_| Ok(())).1.findings, []);
    for (kind, rules) in [(Kind::Xfs, Rules::Xfs), (Kind::Ext4, Rules::Ext4)] {
        let (_, story) = story_of(kind, rules, Disk::VolatileCache, work);
        let story = story.expect("it does not keep it");
        assert_eq!(story.verdict, crash::Verdict::Unsynced);
        assert!(story.message.contains("rename(/new, /file)"), "{story}");
        assert!(story.message.contains("an fsync of it before the rename is missing"), "{story}");
    }
}

/// A check that fails is explained: the call that left nothing, and the one that is missing.
#[test]
fn a_story_names_the_call_that_is_missing() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let test = Crash::on(kind).limits(small());
        let (log, outcome) = test.find(
            |fs| {
                fs.write("/new", &[1; 6000])?;
                fs.fsync("/new")?;
                fs.rename("/new", "/file")?;
                fs.mark("saved");
                Ok(())
            },
            |fs| match fs.held("saved") {
                true => fs.read("/file").map(drop),
                false => Ok(()),
            },
        );
        let finding = outcome.findings.first().expect("nothing syncs the directory");
        let story = crash::story::story(&log, kind, finding).unwrap();
        let missing = &story.missing;
        let wanted = "is not there: no fsync(/) followed it";
        let rename = missing.iter().find(|text| text.starts_with("rename(/new, /file)"));
        assert!(rename.is_some_and(|text| text.ends_with(wanted)), "{kind}: {story}");
        let calls = story.before.iter().map(|(_, text)| text.as_str());
        assert!(calls.clone().any(|text| text.starts_with("fsync(/new)")), "{story}");
    }
}

/// The number of an inode that is gone is used again: a state may have the old file at the name of
/// the new one, which has another size. It was taken for the new one.
#[test]
fn an_inode_number_that_is_used_again_may_be_the_old_file() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let work = |fs: &mut Fs| {
            fs.write("/file", &[1; 9000])?;
            fs.fsync("/file")?;
            fs.fsync("/")?;
            fs.remove("/file")?;
            fs.write("/file", &[2; 3000])?;
            fs.mark("again");
            Ok(())
        };
        let (outcome, story) = story_of(kind, rules_of(kind), Disk::VolatileCache, work);
        assert_eq!(story, None, "{kind}: {outcome:?}");
    }
}

/// A log without calls cannot be asked what they promised.
#[test]
fn a_log_without_calls_is_refused_by_name() {
    let test = Crash::on(Kind::Ext4);
    let log = test.record(|_| Ok(()));
    let error = crash::Oracle::new(&log, Kind::Ext4, Rules::Posix).unwrap_err();
    assert!(error.to_string().contains("no calls"), "{error}");
    assert_eq!(
        "btrfs".parse::<Rules>().unwrap_err(),
        "btrfs: not an oracle; known: posix, ext4, xfs"
    );
}
