//! Image files: both engines carry the same requests out; nobody else may have the file open.

use base::{Page, Rng, Sector};
use block::{Bio, BioFlags, Cause, IoGroup, Op, Plug, Queue, QueueConfig, Segment};
use device::{Engine, OpenError, OpenOptions};
use rt::{Cx, Runtime};
use std::path::Path;
use std::sync::Arc;

const SIZE: usize = 8 << 20;

fn options(engine: Engine, direct: bool) -> OpenOptions {
    OpenOptions { write: true, direct, engine }
}

fn queue(cx: &Cx, path: &Path, options: OpenOptions) -> Arc<Queue> {
    let device = device::open(path, options).expect("the image opens");
    Queue::new(cx.runtime(), device, QueueConfig::default()).expect("a queue for an image")
}

/// A folder whose file system has direct I/O (tmpfs has it since Linux 6.6).
fn image(size: usize) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    drop(device::create(&path, size as u64).expect("the image is made"));
    (folder, path)
}

/// Goal: every engine stores what it is told. Method: random writes of one to many pages, also
/// plugged, with FUA and flushes, beside a byte array; then everything is read back through
/// another engine, and the file itself is compared.
#[test]
fn both_engines_round_trip() {
    let engines = [(Engine::Psync, false), (Engine::Uring, false), (Engine::Uring, true)];
    for (engine, direct) in engines {
        let (_folder, path) = image(SIZE);
        let mut model = vec![0u8; SIZE];
        Runtime::real(2).enter("test", |cx| {
            let queue = queue(cx, &path, options(engine, direct));
            write_randomly(cx, &queue, &mut model);
        });
        assert!(std::fs::read(&path).unwrap() == model, "{engine:?} direct={direct}");
        Runtime::real(2).enter("test", |cx| {
            let queue = queue(cx, &path, options(engine, direct));
            for at in (0..SIZE).step_by(1 << 18) {
                let page = queue.read(cx, Sector::from_bytes(at as u64), 1 << 18).unwrap();
                assert!(page[..] == model[at..at + (1 << 18)], "{engine:?} at {at}");
            }
        });
    }
}

fn write_randomly(cx: &mut Cx, queue: &Arc<Queue>, model: &mut [u8]) {
    let mut rng = Rng::new(1, 1);
    let unit = 4096;
    for round in 0..60 {
        let group = IoGroup::new();
        let mut plug = Plug::new();
        // Disjoint runs: two writes of one place that are in flight together have no order.
        for run in 0..8 {
            let area = SIZE / 8;
            let start = run * area + rng.below(64) as usize * unit;
            let pages: Vec<Page> = (0..rng.range(1..40))
                .map(|_| {
                    let mut page = Page::zeroed(unit);
                    rng.fill(page.make_mut());
                    page
                })
                .collect();
            for (index, page) in pages.iter().enumerate() {
                model[start + index * unit..][..unit].copy_from_slice(page);
            }
            let flags = if rng.chance(0.2) { BioFlags::FUA } else { BioFlags::empty() };
            let sector = Sector::from_bytes(start as u64);
            queue.submit_plugged(cx, &mut plug, Bio::write(sector, pages, flags, group.end()));
        }
        plug.finish(cx);
        group.wait(cx).unwrap();
        if round % 10 == 0 {
            queue.flush(cx).unwrap();
            let zeroed = rng.below(100) as usize * unit;
            queue.write_zeroes(cx, Sector::from_bytes(zeroed as u64), 64).unwrap();
            model[zeroed..zeroed + 64 * 512].fill(0);
        }
    }
}

#[test]
fn many_tasks_use_one_ring() {
    let (_folder, path) = image(SIZE);
    Runtime::real(2).enter("test", |cx| {
        let queue = queue(cx, &path, options(Engine::Uring, false));
        let tasks: Vec<_> = (0..8u64)
            .map(|task| {
                let queue = queue.clone();
                cx.spawn("writer", move |cx| {
                    for round in 0..200 {
                        let sector = Sector(task * 512 + round % 64 * 8);
                        let page = Page::from_slice(&[(task + round) as u8; 4096]);
                        queue.write(cx, sector, page.clone(), BioFlags::empty()).unwrap();
                        assert!(queue.read(cx, sector, 4096).unwrap()[..] == page[..]);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join(cx));
        assert_eq!(queue.stats().errors, 0);
    });
}

#[test]
fn a_discard_gives_the_space_back_and_a_short_file_is_an_error() {
    let (_folder, path) = image(SIZE);
    Runtime::real(1).enter("test", |cx| {
        let queue = queue(cx, &path, OpenOptions::read_write());
        let blocks =
            |path: &Path| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap());
        queue.write(cx, Sector(0), Page::from_slice(&[1; 1 << 20]), BioFlags::empty()).unwrap();
        let before = blocks(&path);
        queue.discard(cx, Sector(0), 2048).unwrap();
        assert!(blocks(&path) < before, "{before} blocks before and after");
        // The host truncates the file behind our back: the lost part fails, the rest is read.
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8192).unwrap();
        let pages = (0..4).map(|_| Segment::whole(Page::zeroed(4096))).collect();
        let error =
            queue.execute(cx, Op::Read, Sector(0), pages, BioFlags::empty()).result.unwrap_err();
        assert_eq!((error.sector, error.count, error.cause), (Sector(16), 16, Cause::Io));
    });
}

#[test]
fn a_second_opener_is_refused_and_told_by_whom() {
    let (_folder, path) = image(1 << 20);
    let held = device::open(&path, OpenOptions::read_write()).unwrap();
    for options in [OpenOptions::read_write(), OpenOptions::read_only()] {
        let error = device::open(&path, options).err().expect("a locked image is refused");
        let own = format!("pid {}", std::process::id());
        assert!(matches!(&error, OpenError::Locked { by, .. } if by.contains(&own)), "{error}");
    }
    assert!(matches!(device::create(&path, 512), Err(OpenError::Locked { .. })));
    drop(held);
    let _reader = device::open(&path, OpenOptions::read_only()).unwrap();
    let _another = device::open(&path, OpenOptions::read_only()).expect("readers share");
    assert!(device::open(&path, OpenOptions::read_write()).is_err());
}

#[test]
fn a_read_only_device_takes_no_writes() {
    let (_folder, path) = image(1 << 20);
    Runtime::real(1).enter("test", |cx| {
        let queue = queue(cx, &path, OpenOptions::read_only());
        let page = Page::zeroed(512);
        let error = queue.write(cx, Sector(0), page, BioFlags::empty()).unwrap_err();
        assert_eq!(error.cause, Cause::ReadOnly);
    });
}

#[test]
fn what_is_no_storage_is_refused_by_its_kind() {
    let refused = |path: &str| device::open(Path::new(path), OpenOptions::read_only()).err();
    let text = |path: &str| refused(path).map(|error| error.to_string()).unwrap_or_default();
    assert!(text("/tmp").contains("a directory"), "{}", text("/tmp"));
    assert!(text("/dev/null").contains("a character device"), "{}", text("/dev/null"));
    assert!(text("/nowhere/disk.img").contains("No such file"), "{}", text("/nowhere/disk.img"));
}

/// Runs a host program that this test cannot do without.
fn host(program: &str, args: &[&str]) -> String {
    let output = std::process::Command::new(program).args(args).output().unwrap_or_else(|error| {
        panic!("this test needs `{program}` ({error}); install it: apt-get install mount")
    });
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "`{program} {}` as root failed: {errors}", args.join(" "));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Goal: an image that the kernel has through a loop device is refused, and so is the loop device
/// while we have it. Needs root.
#[test]
fn the_backing_of_a_loop_device_is_refused() {
    let (_folder, path) = image(1 << 20);
    let name = path.to_str().unwrap();
    let attached = host("losetup", &["--find", "--show", name]);
    let outcome = std::panic::catch_unwind(|| {
        for options in [OpenOptions::read_write(), OpenOptions::read_only()] {
            let error = device::open(&path, options).err().expect("refused").to_string();
            assert!(error.contains(&attached), "{error}");
        }
        block_device_round_trip(Path::new(&attached));
    });
    host("losetup", &["--detach", &attached]);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    device::open(&path, OpenOptions::read_write()).expect("free again");
}

fn block_device_round_trip(path: &Path) {
    let device = device::open(path, OpenOptions::read_write()).expect("a loop device opens");
    assert_eq!((device.info().sectors, device.info().logical_block), (2048, 512));
    let error = device::open(path, OpenOptions::read_only()).err().expect("claimed by us");
    let own = format!("pid {}", std::process::id());
    assert!(error.to_string().contains(&own), "{error}");
    Runtime::real(1).enter("test", |cx| {
        let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).unwrap();
        let page = Page::from_slice(&[9; 8192]);
        queue.write(cx, Sector(8), page.clone(), BioFlags::FUA).unwrap();
        queue.flush(cx).unwrap();
        assert!(queue.read(cx, Sector(8), 8192).unwrap()[..] == page[..]);
        queue.write_zeroes(cx, Sector(8), 8).unwrap();
        queue.discard(cx, Sector(16), 8).unwrap();
        let back = queue.read(cx, Sector(8), 4096).unwrap();
        assert!(back.iter().all(|&byte| byte == 0));
    });
}

/// Goal: an image that somebody lengthens is used to its new end once it was looked at again.
/// Method: both engines; a block behind the old end, refused before and written after.
#[test]
fn an_image_becomes_longer() {
    for engine in [Engine::Psync, Engine::Auto] {
        let (_folder, path) = image(1 << 20);
        let options = OpenOptions { engine, ..OpenOptions::read_write() };
        let device = device::open(&path, options).expect("it opens");
        Runtime::real(1).enter("test", |cx| {
            let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).unwrap();
            let page = Page::from_slice(&[7; 4096]);
            let behind = Sector::from_bytes(1 << 20);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            assert_eq!(queue.grow(0), 1 << 20);
            file.set_len(2 << 20).unwrap();
            let refused = queue.write(cx, behind, page.clone(), BioFlags::empty());
            assert_eq!(refused.expect_err("not looked at").cause, block::Cause::OutOfRange);
            assert_eq!(queue.grow(0), 2 << 20);
            queue.write(cx, behind, page.clone(), BioFlags::empty()).unwrap();
            assert!(queue.read(cx, behind, 4096).unwrap()[..] == page[..]);
        });
    }
}
