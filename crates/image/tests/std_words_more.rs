//! More of the facade beside `std::fs`: names, links, times, holes, shared handles, and images on
//! devices of the caller's own.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use image::{DirBuilder, Errno, Format, Fs, Image, OpenOptions, RenameFlags};

/// Runs `work` on a new image of each format; the check finds nothing afterwards.
fn on_each(work: impl Fn(&Fs)) {
    for format in [Format::Ext, Format::Xfs] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let fs = Image::create(&path, 400 << 20).format(format).make().unwrap().fs().unwrap();
        work(&fs);
        let report = fs.unmount().unwrap().check().unwrap();
        assert!(report.clean, "{:?}", report.findings);
        match format {
            Format::Ext => testkit::judge::e2fsck(&path).unwrap(),
            Format::Xfs => testkit::judge::xfs_repair(&path).unwrap(),
        }
    }
}

/// The same links in both worlds lead to the same paths, and to the same errors.
#[test]
fn canonical_paths_are_those_of_std() {
    on_each(|ours| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let theirs = |path: &str| root.join(path.trim_start_matches('/'));
        ours.create_dir_all("/a/b/c").unwrap();
        fs::create_dir_all(theirs("a/b/c")).unwrap();
        ours.write("/a/f", "").unwrap();
        fs::write(theirs("a/f"), "").unwrap();
        let links = [("b/c", "a/down"), ("../..", "a/b/up"), ("loop", "loop"), ("no", "broken")];
        for (target, link) in links {
            ours.symlink(target, link).unwrap();
            std::os::unix::fs::symlink(target, theirs(link)).unwrap();
        }
        for path in [
            "/",
            "a/./down",
            "a/down/..",
            "a/b/up/b/../f",
            "a/f/x",
            "a/f/..",
            "loop",
            "broken",
            "no",
        ] {
            let expected = theirs(path).canonicalize();
            let expected = expected.map(|at| Path::new("/").join(at.strip_prefix(&root).unwrap()));
            let found = ours.canonicalize(path);
            // Above the root of the image is the root; above that of the host's tree is not.
            if path != "a/b/up/b/../f" {
                let errno = expected.as_ref().map_err(|e| e.raw_os_error().unwrap());
                assert_eq!(found.as_ref().map_err(|e| e.errno().0), errno, "{path}");
            }
        }
        ours.symlink("/a/../a/b", "/abs").unwrap();
        assert_eq!(ours.canonicalize("abs/../f").unwrap(), PathBuf::from("/a/f"));
        assert_eq!(ours.canonicalize("../../a").unwrap(), PathBuf::from("/a"));
    });
}

/// Flags of rename, modes of directories, owners and times of links, copies.
#[test]
fn names_owners_times_and_copies() {
    on_each(|ours| {
        let folder = tempfile::tempdir().unwrap();
        ours.write("/a", "A").unwrap();
        ours.write("/b", "B").unwrap();
        let refused = ours.rename_with("/a", "/b", RenameFlags::NOREPLACE).unwrap_err();
        assert_eq!(refused.errno(), Errno::EEXIST);
        ours.rename_with("/a", "/b", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(ours.read("/a").unwrap(), b"B");
        DirBuilder::new().mode(0o1700).recursive(true).create(ours, "/d/e").unwrap();
        fs::DirBuilder::new().mode(0o1700).create(folder.path().join("d")).unwrap();
        let theirs = fs::metadata(folder.path().join("d")).unwrap().permissions().mode();
        assert_eq!(u32::from(ours.metadata("/d/e").unwrap().mode()), theirs & 0o7777);
        ours.symlink("a", "/s").unwrap();
        ours.chown("/s", Some(7), None).unwrap();
        ours.chown("/s", None, Some(8)).unwrap();
        ours.lchown("/s", Some(9), Some(10)).unwrap();
        let (file, link) = (ours.metadata("/a").unwrap(), ours.symlink_metadata("/s").unwrap());
        assert_eq!((file.uid(), file.gid(), link.uid(), link.gid()), (7, 8, 9, 10));
        let time = |seconds| UNIX_EPOCH + Duration::new(seconds, 5);
        ours.set_times("/s", time(1), time(2)).unwrap();
        ours.set_times_nofollow("/s", time(3), time(4)).unwrap();
        let modified = |path: &str| ours.symlink_metadata(path).unwrap().modified();
        assert_eq!((modified("/a"), modified("/s")), (time(2), time(4)));
        ours.set_mode("/a", 0o4711).unwrap();
        ours.write("/c", vec![7; 3 << 20]).unwrap();
        ours.rename("/c", "/a").unwrap();
        ours.set_mode("/a", 0o4711).unwrap();
        assert_eq!(ours.copy("/a", "/copy").unwrap(), 3 << 20);
        let copy = ours.metadata("/copy").unwrap();
        assert_eq!((copy.mode(), copy.uid()), (0o4711, 0));
        assert!(ours.read("/copy").unwrap() == vec![7; 3 << 20]);
        ours.hard_link("/a", "/same").unwrap();
        assert_eq!(ours.copy("/a", "/same").unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(ours.metadata("/same").unwrap().len(), 3 << 20);
    });
}

/// `&File` reads and writes at one position; holes are found, and space is reserved.
#[test]
fn shared_handles_holes_and_reserved_space() {
    on_each(|ours| {
        let open = OpenOptions::new().read(true).write(true).create(true);
        let file = open.open(ours, "/f").unwrap();
        (&file).write_all(b"shared").unwrap();
        (&file).seek(SeekFrom::Start(2)).unwrap();
        let mut word = [0; 4];
        (&file).read_exact(&mut word).unwrap();
        assert_eq!((&word, (&file).stream_position().unwrap()), (b"ared", 6));
        file.write_all_at(b"far", 1 << 20).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.seek_data(1 << 19).unwrap(), 1 << 20);
        assert_eq!(file.seek_hole(1 << 20).unwrap(), (1 << 20) + 3);
        assert!((1..=4096).contains(&file.seek_hole(0).unwrap().max(1)));
        assert_eq!(file.seek_data(2 << 20).unwrap_err().errno(), Errno::ENXIO);
        let before = file.metadata().unwrap().blocks();
        file.allocate(0..2 << 20).unwrap();
        file.sync_all().unwrap();
        let after = file.metadata().unwrap();
        assert_eq!(after.len(), 2 << 20);
        assert!(before < 4096 && after.blocks() >= 4096, "{before} {}", after.blocks());
        assert_eq!(file.allocate(0..0).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(after.blksize(), ours.space().unwrap().block_size);
    });
}

/// An image on a device of the caller's own: memory here.
#[test]
fn an_image_lives_on_any_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    drop(Image::create(&path, 64 << 20).label("memory").make().unwrap());
    let device = Arc::new(device::MemoryDevice::from_image(&fs::read(&path).unwrap()));
    let image = Image::options().write(true).open_device("memory", device.clone()).unwrap();
    assert_eq!(image.format().unwrap().name(), "ext");
    let mounted = image.fs().unwrap();
    mounted.write("/f", "content").unwrap();
    let missing = mounted.read("/no").unwrap_err();
    assert_eq!((missing.place(), missing.reason()), ("memory:/no", None));
    let space = mounted.space().unwrap();
    assert!(space.block_size == 1024 && space.name_max == 255 && space.id != 0, "{space:?}");
    mounted.unmount().unwrap();
    fs::write(&path, device.snapshot()).unwrap();
    testkit::judge::e2fsck(&path).unwrap();
    let mount = testkit::judge::LoopMount::new(&path, "ext4", "ro").unwrap();
    assert_eq!(fs::read(mount.path().join("f")).unwrap(), b"content");
    assert_eq!(fs::metadata(mount.path().join("f")).unwrap().size(), 7);
    drop(mount);
    let none = Image::options().partition(2).open_device("memory", device).unwrap_err();
    assert_eq!(none.errno(), Errno::ENXIO);
    assert!(none.reason().is_some_and(|words| !words.is_empty()), "{none}");
}
