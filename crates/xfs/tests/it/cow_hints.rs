//! Copy on write in units: files that share blocks stay in few pieces when they are overwritten
//! here and there, and what was taken ahead is given back.

use std::os::unix::fs::FileExt;
use std::path::Path;

use base::Rng;
use rt::Cx;
use testkit::judge;
use vfs::FileSystem;
use xfs::Xfs;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 512;
const OVERWRITTEN: usize = 1200;
/// Directories of an image, and the hint of each: Linux's default, and those that were asked for.
const HINTS: [(&str, Option<u64>); 4] =
    [("default", None), ("one", Some(1)), ("eight", Some(8)), ("many", Some(256))];

/// An image in which each of the directories has a file of known bytes, made by the kernel.
fn image(dir: &Path) -> std::path::PathBuf {
    let image = dir.join("image");
    crate::support::mkfs_xfs(&image, 300, "-m reflink=1");
    let mount = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    for (name, blocks) in HINTS {
        let path = mount.path().join(name);
        std::fs::create_dir(&path).expect("mkdir");
        if let Some(blocks) = blocks {
            let hint = format!("cowextsize {}", blocks * BLOCK);
            let args: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"-c", &hint, &path];
            assert!(judge::run("xfs_io", &args).status.success(), "{hint}");
        }
        std::fs::write(path.join("first"), vec![1; (BLOCKS * BLOCK) as usize]).expect("written");
    }
    drop(mount);
    image
}

/// Blocks that are overwritten, in their order.
fn places() -> Vec<u64> {
    let mut rng = Rng::new(21, 0);
    (0..OVERWRITTEN).map(|_| rng.below(BLOCKS)).collect()
}

fn extents(path: &Path) -> usize {
    let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-r", &"-c", &"fiemap", &path];
    let output = judge::run("xfs_io", &args);
    assert!(output.status.success(), "{}", crate::support::text(&output));
    crate::support::text(&output).lines().skip(1).filter(|line| !line.contains("hole")).count()
}

/// Blocks that nobody has.
fn free(cx: &mut Cx, fs: &Xfs) -> u64 {
    fs.sync(cx).expect("sync");
    fs.statfs(cx).expect("statfs").blocks_free
}

/// Goal: a file that shares its blocks and is overwritten at random is in few pieces, as under the
/// kernel, the fewer the longer its hint; what was taken ahead is given back when it is closed.
/// Method: the same overwrites by the kernel and by us, the kernel counts the extents.
#[test]
fn what_is_overwritten_at_random_lies_together() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = image(dir.path());
    let mount = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    for (name, _) in HINTS {
        let [from, to] = ["first", "kernel"].map(|file| mount.path().join(name).join(file));
        let args: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"--reflink=always", &from, &to];
        assert!(judge::run("cp", &args).status.success(), "{name}");
        let file = std::fs::File::options().write(true).open(&to).expect("open");
        for (number, block) in places().into_iter().enumerate() {
            file.write_all_at(&[number as u8; BLOCK as usize], block * BLOCK).expect("write");
            if number % 40 == 0 {
                file.sync_all().expect("fsync");
            }
        }
        file.sync_all().expect("fsync");
    }
    drop(mount);
    let device = crate::support::load(&image);
    let left = crate::support::in_world(move |cx| {
        let (fs, _) = crate::world::mount(cx, device.clone(), 16 << 20);
        for (name, _) in HINTS {
            let parent = fs.lookup(cx, fs.root(), name.as_bytes()).expect("a directory").ino;
            let first = fs.lookup(cx, parent, b"first").expect("a file").ino;
            let ours = crate::world::file(cx, &fs, parent, "ours");
            fs.clone_range(cx, (first, 0), (ours, 0), 0).expect("cloned");
            fs.open(cx, ours).expect("open");
            let before = free(cx, &fs);
            for (number, block) in places().into_iter().enumerate() {
                let data = [number as u8; BLOCK as usize];
                let written = match number % 3 {
                    0 => fs.write_direct(cx, ours, block * BLOCK, &data),
                    _ => fs.write(cx, ours, block * BLOCK, &data),
                };
                assert_eq!(written, Ok(data.len()));
                if number % 40 == 0 {
                    fs.fsync(cx, ours, false).expect("fsync");
                }
            }
            fs.fsync(cx, ours, false).expect("fsync");
            fs.release(cx, ours).expect("closed");
            let taken = before - free(cx, &fs);
            let mut once = places();
            once.sort_unstable();
            once.dedup();
            // The blocks, and a few of the trees.
            assert!((0..12).contains(&(taken - once.len() as u64)), "{name}: {taken} blocks");
        }
        fs.unmount(cx).expect("unmount");
        device
    });
    std::fs::write(&image, left.snapshot()).expect("the image is written");
    crate::support::xfs_repair(&image).unwrap_or_else(|text| panic!("{text}"));
    let mount = judge::LoopMount::new(&image, "xfs", "ro").expect("mounted");
    let counts = HINTS.map(|(name, _)| {
        let [ours, kernels] = ["ours", "kernel"].map(|file| mount.path().join(name).join(file));
        let read = |path: &Path| std::fs::read(path).expect("read");
        assert!(read(&ours) == read(&kernels), "{name}: other bytes");
        let [ours, kernels] = [extents(&ours), extents(&kernels)];
        println!("{name}: {ours} extents, the kernel's file {kernels}");
        (ours, kernels)
    });
    for (ours, kernels) in counts {
        assert!(ours <= kernels + kernels / 4, "{counts:?}");
    }
    let [default, one, eight, many] = counts.map(|count| count.0);
    assert!(many < default && default < eight && eight < one, "{counts:?}");
}

/// Goal: hints are set and read back as by the kernel's ioctl, refused as the kernel refuses them,
/// and handed down. Method: each change by us and, on a copy, by xfs_io under the kernel.
#[test]
fn hints_are_set_as_by_the_kernel() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    crate::support::mkfs_xfs(&image, 300, "-m reflink=1 -d agcount=4");
    let mount = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    std::fs::create_dir(mount.path().join("dir")).expect("mkdir");
    std::fs::write(mount.path().join("full"), [1; 9000]).expect("written");
    std::fs::write(mount.path().join("empty"), []).expect("written");
    drop(mount);
    // Groups of 75 MiB: no more than half of one.
    let bytes = [0, 4096, 6000, 65_536, 39_321_600, 39_325_696];
    let mut changes = Vec::new();
    for name in ["dir", "empty", "full"] {
        let of = |kind| bytes.into_iter().map(move |bytes| (name, kind, bytes));
        changes.extend(of("extsize").chain(of("cowextsize")));
    }
    let device = crate::support::load(&image);
    let asked = changes.clone();
    let (left, ours) = crate::support::in_world(move |cx| {
        let (fs, _) = crate::world::mount(cx, device.clone(), 16 << 20);
        let mut ours = Vec::new();
        for (name, kind, bytes) in asked {
            let ino = fs.lookup(cx, fs.root(), name.as_bytes()).expect("there").ino;
            let mut hints = fs.extent_hints(cx, ino).expect("hints");
            match kind {
                "extsize" => hints.extent = bytes,
                _ => hints.cow = bytes,
            }
            ours.push(fs.set_extent_hints(cx, ino, hints).is_ok());
            if ours.last() == Some(&true) {
                assert_eq!(fs.extent_hints(cx, ino), Ok(hints), "{name} {kind} {bytes}");
            }
        }
        fs.unmount(cx).expect("unmount");
        (device, ours)
    });
    let mount = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    let hint = |mount: &judge::LoopMount, name: &str| {
        let path = mount.path().join(name);
        let words: [&dyn AsRef<std::ffi::OsStr>; 8] =
            [&"-r", &"-c", &"lsattr", &"-c", &"extsize", &"-c", &"cowextsize", &path];
        let text = crate::support::text(&judge::run("xfs_io", &words));
        text.replace(&*mount.path().to_string_lossy(), "").replace('X', "-")
    };
    for ((name, kind, bytes), ours) in changes.iter().zip(ours) {
        let (path, change) = (mount.path().join(name), format!("{kind} {bytes}"));
        let output = judge::run("xfs_io", &[&"-c", &change, &path]);
        // It says what went wrong, and ends well.
        let theirs = output.stderr.is_empty() && output.status.success();
        assert_eq!(ours, theirs, "{name}: {change}: {}", crate::support::text(&output));
    }
    let theirs = ["dir", "empty", "full"].map(|name| hint(&mount, name));
    drop(mount);
    std::fs::write(&image, left.snapshot()).expect("the image is written");
    crate::support::xfs_repair(&image).unwrap_or_else(|text| panic!("{text}"));
    let mount = judge::LoopMount::new(&image, "xfs", "ro").expect("mounted");
    assert_eq!(["dir", "empty", "full"].map(|name| hint(&mount, name)), theirs);
}
