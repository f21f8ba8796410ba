//! A device that fails: errors are told once to those who asked for durability, an aborted journal
//! leaves a read-only file system, nothing panics or hangs, and what is on the medium can be
//! recovered and holds what was promised before.

use crate::support::chaos::{self, Chaos};
use crate::support::*;
use base::{Errno, Rng};
use block::{Cause, Op};
use device::{Fault, FaultDevice, MemoryDevice, Rule};
use ext4::Rule as Finds;
use ext4::format::RawSuper;
use ext4::format::super_block::{STATE_ERROR, SUPER_OFFSET, SUPER_SIZE};
use rt::{Cx, World, WorldConfig};
use std::sync::Arc;
use testkit::judge;
use vfs::{FileSystem, FileType, NewNode, SetAttr};

fn failing(cx: &mut Cx, cell: Cell) -> (Arc<MemoryDevice>, Arc<FaultDevice>) {
    let memory = cell.fresh(cx, 64 << 20);
    let device = Arc::new(FaultDevice::new(cx.runtime(), memory.clone()));
    (memory, device)
}

/// Recovers the medium by another mount and has it checked.
fn recovered(cx: &mut Cx, memory: &Arc<MemoryDevice>, what: &str) -> Arc<ext4::Ext4> {
    let (fs, _) = mount(cx, memory.clone());
    fs.sync(cx).unwrap_or_else(|errno| panic!("{what}: {errno}"));
    fs
}

/// Goal: an error while data are written is told by the next fsync, once, and later data get
/// through. Method: every write outside of the journal fails while one file is written out.
#[test]
fn a_write_error_of_data_is_told_once() {
    rt::testing::both(|cx| {
        let (memory, device) = failing(cx, Cell::new("ext4", 4096));
        let (fs, _) = mount(cx, device.clone());
        let file = create(cx, &*fs, fs.root(), "file");
        let mut data = vec![0; 300_000];
        pattern(1, 0, &mut data);
        fs.write(cx, file, 0, &data).expect("write");
        fs.fsync(cx, file, false).expect("fsync");
        let places = fs.fiemap(cx, file, 0, 300_000).expect("fiemap");
        let sectors = places[0].physical() / 512..(places[0].physical() + places[0].len) / 512;
        device.add(Rule::on(Op::Write, sectors, Fault::Fail(Cause::Io)));
        fs.write(cx, file, 0, &data).expect("write");
        assert_eq!(fs.fsync(cx, file, false), Err(Errno::EIO), "the first fsync tells");
        assert!(device.hits() > 0);
        device.clear();
        assert_eq!(fs.fsync(cx, file, false), Ok(()), "the second has nothing to tell");
        fs.write(cx, file, 0, &data).expect("write");
        assert_eq!(fs.fsync(cx, file, false), Ok(()));
        // Whoever syncs everything is told by himself, once.
        assert_eq!(fs.sync(cx), Err(Errno::EIO));
        fs.unmount(cx).expect("unmount");
        checked(cx, &memory, "after an error of data");
    });
}

/// The superblock tells of the error, to us and to the tools: also after the journal was replayed.
fn assert_noted(memory: &MemoryDevice) {
    let mut bytes = [0; SUPER_SIZE];
    memory.read_at(SUPER_OFFSET, &mut bytes);
    let raw = RawSuper::read(&bytes).expect("it has the size");
    assert_eq!((raw.s_state.get() & STATE_ERROR, raw.s_error_count.get()), (STATE_ERROR, 1));
    let noted = raw.first_error().expect("the first error");
    assert_eq!(raw.last_error().as_ref(), Some(&noted));
    assert!(noted.time > 0 && noted.place.starts_with(b"the journal was aborted"));
    let file = testkit::image::write_device(memory);
    let told = judge::run_ok("dumpe2fs", &[&"-h", &file.path()]);
    assert!(told.contains("FS Error count:           1"), "{told}");
    assert!(told.contains("First error function:     the journal was aborted"), "{told}");
}

/// Goal: when the journal cannot be written the file system becomes read-only: changes answer
/// `EROFS` (or the error), reads go on, and the medium is recovered to what was promised.
#[test]
fn an_aborted_journal_makes_the_mount_read_only() {
    for cell in [Cell::new("ext4", 4096), Cell::new("ext3", 1024)] {
        rt::testing::both(|cx| {
            let (memory, device) = failing(cx, cell);
            let (fs, _) = mount(cx, device.clone());
            let kept = create(cx, &*fs, fs.root(), "kept");
            let mut data = vec![0; 50_000];
            pattern(7, 0, &mut data);
            fs.write(cx, kept, 0, &data).expect("write");
            fs.fsync(cx, kept, false).expect("fsync");
            let lost = create(cx, &*fs, fs.root(), "lost");
            device.add(Rule::on(Op::Write, 0..u64::MAX, Fault::Fail(Cause::Io)));
            assert!(fs.fsync(cx, lost, false).is_err(), "the commit fails");
            device.clear();
            let node = NewNode::new(FileType::Regular, 0o644);
            for _ in 0..3 {
                let made = fs.create(cx, fs.root(), b"more", &node).map(|_| ());
                assert!(matches!(made, Err(Errno::EROFS | Errno::EIO)), "{made:?}");
                let set = SetAttr { size: Some(1), ..SetAttr::default() };
                let set = fs.setattr(cx, kept, &set).map(|_| ());
                assert!(matches!(set, Err(Errno::EROFS | Errno::EIO)), "{set:?}");
                assert!(fs.sync(cx).is_err(), "a sync does not succeed either");
            }
            let mut read = vec![0; data.len()];
            assert_eq!(fs.read(cx, kept, 0, &mut read), Ok(data.len()), "reads go on");
            assert!(read == data);
            let _ = fs.unmount(cx);
            assert_noted(&memory);
            let fs = recovered(cx, &memory, "after the abort");
            assert_noted(&memory);
            let ino = fs.lookup(cx, fs.root(), b"kept").expect("what was promised").ino;
            read.fill(0);
            assert_eq!(fs.read(cx, ino, 0, &mut read), Ok(data.len()));
            assert!(read == data, "the promised content");
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: errors at any place, of any kind, at any time: no panic, no hang, and the medium is
/// replayable. Method: tasks do anything while a random rule meets requests.
#[test]
fn errors_at_random_places_break_nothing() {
    let cells = [
        Cell::new("ext4", 4096).journal(1024),
        Cell::new("ext3", 1024).journal(1024),
        Cell::new("ext4", 1024).features("^has_journal"),
        Cell::new("ext2", 1024),
    ];
    let mut met = 0;
    for seed in seeds(40) {
        let cell = cells[(seed % 4) as usize];
        let what = format!("{cell:?}, IOPATH_SEED={seed}");
        let _watchdog = Watchdog::new(what.clone(), 100);
        let memory = World::new(WorldConfig::exploring(seed)).run("faults", |cx| {
            let (memory, device) = failing(cx, cell);
            let (fs, _) = mount_cached(cx, device.clone(), 2 << 20);
            let top = mkdir(cx, &*fs, fs.root(), "top");
            fs.sync(cx).expect("sync");
            let mut rng = Rng::new(seed, 400);
            let op = *rng.pick(&[Some(Op::Write), Some(Op::Read), Some(Op::Flush), None]);
            let count = *rng.pick(&[1, 3, u64::MAX]);
            let skip = rng.below(60);
            let fault = match rng.below(5) {
                0 => Fault::PowerCut,
                _ => Fault::Fail(Cause::Io),
            };
            device.add(Rule { op, skip, count, ..Rule::always(fault) });
            let plan =
                Chaos { tasks: 4, steps: 120, size_max: 200_000, small: false, faults: true };
            let shared: Arc<dyn FileSystem> = fs.clone();
            chaos::run(cx, &shared, top, seed, plan);
            let _ = fs.sync(cx);
            let _ = fs.unmount(cx);
            met += u32::from(device.hits() > 0);
            memory
        });
        rt::testing::real(|cx| {
            let (fs, _) = mount(cx, memory.clone());
            let tree = crate::support::oracle::tree(cx, &*fs);
            fs.unmount(cx).expect("unmount");
            if cell.kind != "ext2" && cell.features.is_empty() {
                tree.unwrap_or_else(|message| panic!("{what}: {message}"));
                let queue = queue(cx, memory.clone());
                let report = ext4::check(cx, &queue, &Default::default()).expect("check runs");
                // That there was an error stays noted; nothing else may be wrong.
                let wrong = report.findings.iter().find(|f| f.rule != Finds::SuperErrorState);
                assert!(wrong.is_none(), "{what}: {wrong:?}");
            }
        });
    }
    println!("{met} runs met their fault");
    assert!(met > 0);
}
