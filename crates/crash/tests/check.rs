//! Programs that keep their promises pass, and programs with the classic mistakes are found, on
//! ext4 and on XFS.

use crash::{Crash, Disk, Format, Fs, Kind, Limits, Result};

/// Replaces a file the way that is known to be right: temp, fsync, rename, fsync of the directory.
fn save(fs: &mut Fs, content: &[u8], sync_file: bool, sync_dir: bool) -> Result<()> {
    fs.write("/new", content)?;
    if sync_file {
        fs.fsync("/new")?;
    }
    fs.rename("/new", "/file")?;
    if sync_dir {
        fs.fsync("/")?;
    }
    Ok(())
}

fn small() -> Limits {
    Limits { all_subsets: 3, samples: 4, singles: 12 }
}

#[test]
fn a_careful_program_passes() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let outcome = Crash::on(kind).limits(small()).check(
            |fs| {
                for round in 1..=3u8 {
                    save(fs, &[round; 6000], true, true)?;
                    fs.mark(&format!("saved {round}"));
                }
                Ok(())
            },
            newest,
        );
        println!("{kind}: {outcome:?}");
        assert!(outcome.complete && outcome.judged > 20, "{outcome:?}");
    }
}

/// What one of these programs left, where it said that it had saved.
fn newest(fs: &mut Fs) -> Result<()> {
    let saved = fs.marks().len() as u8;
    if saved == 0 {
        return Ok(());
    }
    let content = fs.read("/file")?;
    match content.len() == 6000 && content[0] >= saved && content[5999] == content[0] {
        true => Ok(()),
        false => Err(format!("save {saved} is lost: {} bytes", content.len()).into()),
    }
}

fn saves(fs: &mut Fs, sync_file: bool, sync_dir: bool) -> Result<()> {
    for round in 1..=2u8 {
        save(fs, &[round; 6000], sync_file, sync_dir)?;
        fs.mark(&format!("saved {round}"));
    }
    Ok(())
}

/// A program that does not fsync the directory has saved nothing when it says so: the power fails
/// before any commit, and no write need be lost.
#[test]
fn a_missing_fsync_of_the_directory_is_found() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let test = Crash::on(kind).limits(small());
        let (log, outcome) = test.find(|fs| saves(fs, true, false), newest);
        let finding = outcome.findings.first().expect("it is found");
        let story = crash::story::story(&log, kind, finding).unwrap();
        println!("{kind}: {story}");
        assert!(story.message.contains("/file: ENOENT"), "{story}");
        assert!(story.before.iter().any(|(_, note)| note == "mark \"saved 1\""), "{story}");
    }
}

/// An fsync of a directory commits on ext4 all that is pending, as in Linux, though the directory
/// has not changed; on XFS it does not.
#[test]
fn an_fsync_of_another_directory_keeps_names_on_ext4() {
    for (kind, kept) in [(Kind::Ext4, true), (Kind::Xfs, false)] {
        let test = Crash::on(kind).limits(small());
        let (_, outcome) = test.find(
            |fs| {
                fs.mkdir("/other")?;
                save(fs, &[0; 6000], true, true)?;
                fs.sync()?;
                save(fs, &[1; 6000], true, false)?;
                fs.fsync("/other")?;
                fs.mark("saved");
                Ok(())
            },
            |fs| match fs.held("saved") && fs.read("/file")? != [1; 6000] {
                true => Err("the new file is not there".into()),
                false => Ok(()),
            },
        );
        assert_eq!(outcome.findings.is_empty(), kept, "{kind}: {outcome:?}");
    }
}

/// A program that renames without fsync may show an empty file, though it syncs the directory.
#[test]
fn a_missing_fsync_of_the_file_is_found() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let test = Crash::on(kind).limits(small());
        let (log, outcome) = test.find(|fs| saves(fs, false, true), newest);
        let finding = outcome.findings.first();
        println!("{kind}: {outcome:?}");
        let story = crash::story::story(&log, kind, finding.expect("it is found")).unwrap();
        println!("{kind}: {story}");
        assert!(story.message.contains("is lost"), "{story}");
    }
}

/// A rename over a file without an fsync of the new one leaves an empty file on XFS, and on ext4
/// with `noauto_da_alloc`; by default ext4 has a file that reads as zeros; with `dioread_lock` the
/// old content or the new.
#[test]
fn a_rename_without_fsync_depends_on_the_mount() {
    let locked = ext4::MountOptions::default();
    let without = ext4::MountOptions { auto_da_alloc: false, ..locked.clone() };
    let ext4 = Crash::on(Kind::Ext4);
    for (test, wanted) in [
        (ext4.clone().ext4(without), Some(&b""[..])),
        (ext4.clone().ext4(locked), None),
        (ext4, Some(&[0; 6000])),
        (Crash::on(Kind::Xfs), Some(b"")),
    ] {
        let (_, outcome) = test.limits(small()).find(
            |fs| {
                save(fs, &[1; 6000], true, true)?;
                fs.mark("saved");
                save(fs, &[2; 6000], false, true)
            },
            |fs| {
                let content = if fs.held("saved") { fs.read("/file")? } else { vec![1; 6000] };
                match content == [1; 6000] || content == [2; 6000] {
                    true => Ok(()),
                    false => Err(format!("{content:?}").into()),
                }
            },
        );
        let found = wanted.map(|content| format!("{content:?}"));
        let messages: Vec<&str> = outcome.findings.iter().map(|f| f.message.as_str()).collect();
        assert_eq!(messages, found.iter().collect::<Vec<_>>());
    }
}

/// One seed gives one exploration, and shards of it are its parts.
#[test]
fn shards_are_parts_of_one_exploration() {
    let test = Crash::on(Kind::Ext4).limits(small());
    let log = test.record(|fs| saves(fs, true, false));
    let judge = Nothing;
    let run = |shard, from| {
        let before = crash::Outcome { next: from, ..Default::default() };
        let how = crash::Exploration { shard, before, ..test.exploration.clone() };
        crash::explore(&log, &how, &judge, &mut |_| {}).unwrap()
    };
    let whole = run((0, 1), 0);
    let parts: u64 = (0..3).map(|index| run((index, 3), 0).judged).sum();
    assert_eq!(whole.judged, parts);
    assert!(run((0, 1), whole.planned / 2).judged < whole.judged);
    assert_eq!(run((0, 1), whole.planned).judged, 0);
}

/// Leaving out states that are the same to recovery leaves out nothing: the same states are
/// wrong in the same way, of a program with a bug and of one without.
#[test]
fn folding_changes_no_outcome() {
    let mut fewer = 0;
    for (kind, disk) in
        [(Kind::Ext4, Disk::Lying), (Kind::Xfs, Disk::VolatileCache), (Kind::Ext4, Disk::Protected)]
    {
        let mut test = Crash::on(kind).limits(small()).disk(disk);
        let log = test.record(|fs| saves(fs, false, true));
        let judge = crash::check::judge(newest);
        let mut run = |fold| {
            test.exploration.fold = fold;
            crash::explore(&log, &test.exploration, &judge, &mut |_| {}).unwrap()
        };
        let (folded, all) = (run(true), run(false));
        assert_eq!(all.judged, all.recovered);
        fewer += all.recovered - folded.recovered;
        assert_eq!(crash::Outcome { recovered: all.recovered, ..folded }, all);
    }
    assert!(fewer > 0);
}

struct Nothing;

impl crash::Judge for Nothing {
    fn judge(
        &self,
        _: &mut rt::Cx,
        _: &std::sync::Arc<dyn vfs::FileSystem>,
        _: &crash::explore::State,
    ) -> std::result::Result<(), crash::Refusal> {
        Ok(())
    }
}

/// A disk that keeps the order of writes, or loses none, forgives what one with a cache does not.
#[test]
fn disks_differ() {
    let states = |disk| {
        let test = Crash::on(Kind::Ext4).limits(small()).disk(disk);
        test.check(|fs| saves(fs, true, true), newest).judged
    };
    let all =
        [Disk::VolatileCache, Disk::Atomic(16384), Disk::Barrier, Disk::Protected].map(states);
    println!("{all:?}, smr {}", states(Disk::Smr(1 << 20)));
    assert!(all[1..].iter().all(|states| *states <= all[0]), "{all:?}");
}

/// Asks for an image, and panics.
struct Panics;

impl crash::Judge for Panics {
    fn judge(
        &self,
        _: &mut rt::Cx,
        _: &std::sync::Arc<dyn vfs::FileSystem>,
        state: &crash::explore::State,
    ) -> std::result::Result<(), crash::Refusal> {
        assert!(state.index != 0, "of the judge");
        Ok(())
    }

    fn ask(&self, _: Kind, _: &crash::host::HostImage) -> std::result::Result<(), crash::Refusal> {
        panic!("of recovery")
    }
}

/// A panic that is not the judge's was reported as the judge's refusal; and a host that fails as a
/// wrong state.
#[test]
fn panics_and_failures_of_the_host_are_told_apart() {
    let test = Crash::on(Kind::Ext4).limits(small());
    let log = test.record(|fs| save(fs, &[1; 6000], true, true));
    let how = crash::Exploration { outside: 1, states_max: 2, ..test.exploration.clone() };
    let outcome = crash::explore(&log, &how, &Panics, &mut |_| {}).unwrap();
    let found: Vec<_> = outcome.findings.iter().map(|f| (f.verdict, &*f.message)).collect();
    let ours = (crash::Verdict::Damaged, "a panic of iopath's recovery: of recovery");
    assert_eq!(found, [(crash::Verdict::Refused, "of the judge"), ours]);
    struct Full;
    impl crash::Judge for Full {
        fn judge(
            &self,
            _: &mut rt::Cx,
            _: &std::sync::Arc<dyn vfs::FileSystem>,
            _: &crash::explore::State,
        ) -> std::result::Result<(), crash::Refusal> {
            Err(crash::Refusal::host("/dev/shm", "no room"))
        }
    }
    let error = crash::explore(&log, &how, &Full, &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "/dev/shm: no room");
}

/// Says of a tree what it looks like, so that there are many kinds of findings.
fn looks(fs: &mut Fs) -> Result<()> {
    let read = fs.read("/file").map_or(0, |content| content.first().copied().unwrap_or(0));
    let new = fs.read("/new").map_or(0, |content| content.len() / 1000);
    let word = |number: usize| char::from(b'a' + (number % 26) as u8);
    let marks = word(fs.marks().len());
    Err(format!("{marks}{}{}", word(read.into()), word(new)).into())
}

/// Shards that were joined, and runs that went on after a kill, had other kinds of findings than
/// one run: each had its own limit, and what was shrunk no longer looked as it did.
#[test]
fn shards_and_runs_that_go_on_find_the_same_kinds() {
    let test = Crash::on(Kind::Ext4).limits(small()).disk(Disk::Lying);
    let log = test.record(|fs| {
        for round in 1..=6u8 {
            save(fs, &[round; 6000], round % 2 == 0, round == 3)?;
            fs.mark(&format!("saved {round}"));
        }
        Ok(())
    });
    let judge = crash::check::judge(looks);
    let most = 4;
    let run = |shard, before: &crash::Outcome, states_max| {
        let how = crash::Exploration {
            shard,
            before: before.clone(),
            states_max,
            findings_max: most,
            ..test.exploration.clone()
        };
        // What a kill leaves: the last report before the end.
        let mut reports = Vec::new();
        let end = crash::explore(&log, &how, &judge, &mut |outcome| reports.push(outcome.clone()));
        (reports, end.unwrap())
    };
    let none = crash::Outcome::default();
    let (reports, whole) = run((0, 1), &none, u64::MAX);
    assert!(reports.len() > 1, "it reports before its end: {}", whole.judged);
    assert!(whole.findings.len() > 1 && whole.further > 0, "{whole:?}");
    let same = |other: crash::Outcome| {
        let counts = crash::Outcome { recovered: whole.recovered, ..other };
        assert_eq!(counts, whole);
    };
    same(run((0, 1), &reports[0], u64::MAX).1);
    let (_, half) = run((0, 1), &none, whole.judged / 2);
    assert!(!half.complete);
    same(run((0, 1), &half, u64::MAX).1);
    let shards = (0..3).map(|shard| run((shard, 3), &none, u64::MAX).1);
    let mut joined = shards.reduce(crash::Outcome::join).unwrap();
    joined.show(most);
    let first_kinds = |outcome: &crash::Outcome| outcome.kinds[..most].to_vec();
    assert_eq!(first_kinds(&joined), first_kinds(&whole));
    assert_eq!((&joined.findings, joined.further), (&whole.findings, whole.further));
    assert_eq!((joined.judged, joined.wrong), (whole.judged, whole.wrong));
}

/// On disks that keep an order, findings had all their losses: fewer are found, and they are ones
/// that the disk allows.
#[test]
fn findings_of_disks_that_keep_an_order_are_shrunk() {
    let write = |fs: &mut Fs, content: u8| {
        ["/a", "/b", "/c"].into_iter().try_for_each(|path| fs.write_at(path, 0, &[content; 4096]))
    };
    for disk in [Disk::Barrier, Disk::Smr(1 << 20)] {
        // Without a journal nothing flushes what is written in time.
        let fstype = ext4::FsType::Ext2;
        let format = Format::Ext4(ext4::MkfsOptions { fstype, ..Default::default() });
        let test = Crash::on(Kind::Ext4).format(format).limits(small()).disk(disk);
        let (log, outcome) = test.find(
            |fs| {
                ["/a", "/b", "/c"].into_iter().try_for_each(|path| fs.write(path, &[1; 65536]))?;
                fs.sync()?;
                write(fs, 2)?;
                fs.sleep_ms(60_000);
                fs.mark("done");
                Ok(())
            },
            |fs| match (fs.read("/a"), fs.read("/c")) {
                (Ok(a), Ok(c)) if fs.held("done") && a.first() > c.first() => {
                    Err("c is older than a".into())
                }
                _ => Ok(()),
            },
        );
        // The first that is found has only the write of a.
        let fewer = |finding: &crash::Finding| {
            assert!(disk.allows(&log, &finding.cut), "{disk}: {finding:?}");
            finding.cut.drop.len() + 1 < disk.at_stake(&log, finding.cut.upto).len()
        };
        assert!(outcome.findings.iter().any(fewer), "{disk}: {:?}", outcome.findings);
    }
}
