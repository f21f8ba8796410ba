//! The facade beside `std::fs`: the same calls on an image and on a directory of the host give the
//! same answers, and the outside judges find the image clean.

use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use image::{Errno, FileType, Format, Fs, Image, OpenOptions};

const FORMATS: [Format; 2] = [Format::Ext, Format::Xfs];

fn judge(format: Format, image: &Path) {
    match format {
        Format::Ext => testkit::judge::e2fsck(image).unwrap(),
        Format::Xfs => testkit::judge::xfs_repair(image).unwrap(),
    }
}

/// Makes an image, runs `work` on it, and has it judged.
fn with_image(format: Format, work: impl FnOnce(&Fs)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let fs = Image::create(&path, 400 << 20).format(format).make().unwrap().fs().unwrap();
    work(&fs);
    let report = fs.unmount().unwrap().check().unwrap();
    assert!(report.clean, "{:?}", report.findings);
    judge(format, &path);
}

/// Calls that are made on both sides, each with the kind of its error.
#[test]
fn errors_have_the_kinds_of_std() {
    for format in FORMATS {
        with_image(format, |ours| {
            let folder = tempfile::tempdir().unwrap();
            let theirs = |path: &str| folder.path().join(path);
            ours.create_dir("/d").unwrap();
            fs::create_dir(theirs("d")).unwrap();
            ours.write("/d/f", "x").unwrap();
            fs::write(theirs("d/f"), "x").unwrap();
            let kind =
                |result: image::Result<()>| result.err().map(|e| std::io::Error::from(e).kind());
            let std = |result: std::io::Result<()>| result.err().map(|e| e.kind());
            let same = [
                (kind(ours.read("/no").map(drop)), std(fs::read(theirs("no")).map(drop))),
                (kind(ours.read("/d").map(drop)), std(fs::read(theirs("d")).map(drop))),
                (kind(ours.read("/d/f/x").map(drop)), std(fs::read(theirs("d/f/x")).map(drop))),
                (kind(ours.create_dir("/d")), std(fs::create_dir(theirs("d")))),
                (kind(ours.create_dir("/a/b")), std(fs::create_dir(theirs("a/b")))),
                (kind(ours.remove_dir("/d")), std(fs::remove_dir(theirs("d")))),
                (kind(ours.remove_dir("/d/f")), std(fs::remove_dir(theirs("d/f")))),
                (kind(ours.rename("/d", "/d/e")), std(fs::rename(theirs("d"), theirs("d/e")))),
                (kind(ours.rename("/d/f", "/d")), std(fs::rename(theirs("d/f"), theirs("d")))),
                (
                    kind(ours.read_link("/d/f").map(drop)),
                    std(fs::read_link(theirs("d/f")).map(drop)),
                ),
                (kind(ours.read_dir("/d/f").map(drop)), std(fs::read_dir(theirs("d/f")).map(drop))),
                (kind(ours.create_dir_all("/d/f/g")), std(fs::create_dir_all(theirs("d/f/g")))),
                (kind(ours.create_dir_all("/d")), std(fs::create_dir_all(theirs("d")))),
                (kind(ours.hard_link("/no", "/x")), std(fs::hard_link(theirs("no"), theirs("x")))),
            ];
            for (at, (ours, theirs)) in same.into_iter().enumerate() {
                assert_eq!(ours, theirs, "{format:?}, call {at}");
            }
            let error = ours.open("/d/none").unwrap_err();
            assert_eq!(error.errno(), Errno::ENOENT);
            assert!(error.place().ends_with("disk.img:/d/none"), "{error}");
        });
    }
}

/// A file that is written, sought, appended to and cut in both worlds has the same bytes in both.
#[test]
fn files_read_write_and_seek() {
    fn steps<F: Read + Write + Seek>(file: &mut F) -> Vec<u8> {
        file.write_all(&[7; 10_000]).unwrap();
        file.seek(SeekFrom::Current(-5_000)).unwrap();
        file.write_all(b"middle").unwrap();
        file.seek(SeekFrom::End(5_000)).unwrap();
        file.write_all(b"behind a hole").unwrap();
        assert_eq!(
            file.seek(SeekFrom::Current(-1 << 40)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        file.seek(SeekFrom::Start(1)).unwrap();
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        content
    }
    for format in FORMATS {
        with_image(format, |fs| {
            let open = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600);
            let mut ours = open.open(fs, "/f").unwrap();
            let mut theirs = tempfile::tempfile().unwrap();
            assert!(steps(&mut ours) == steps(&mut theirs));
            ours.sync_all().unwrap();
            ours.set_len(100).unwrap();
            assert_eq!(ours.metadata().unwrap().len(), 100);
            let again = open.open(fs, "/f").unwrap_err();
            assert_eq!(again.errno(), Errno::EEXIST);
            let mut end = OpenOptions::new().append(true).open(fs, "/f").unwrap();
            end.write_all(b"end").unwrap();
            assert_eq!(end.metadata().unwrap().len(), 103);
            assert_eq!(end.read(&mut [0]).unwrap_err().raw_os_error(), None);
            assert_eq!(fs.metadata("/f").unwrap().mode(), 0o600);
        });
    }
}

/// Goal: all switches together mean what they mean to std. Method: all 64, each given by
/// value, on a file that exists and on one that does not.
#[test]
fn the_switches_of_opening_mean_what_they_mean_to_std() {
    let folder = tempfile::tempdir().unwrap();
    with_image(FORMATS[0], |ours| {
        for bits in 0..128 {
            let on = |bit: u32| bits & 1 << bit != 0;
            let (path, theirs) = (Path::new("/f"), folder.path().join("f"));
            if on(6) {
                ours.write(path, "content").unwrap();
                fs::write(&theirs, "content").unwrap();
            }
            let open = OpenOptions::new().read(on(0)).write(on(1)).append(on(2)).create(on(3));
            let got = open.truncate(on(4)).create_new(on(5)).open(ours, path);
            let mut open = fs::OpenOptions::new();
            open.read(on(0)).write(on(1)).append(on(2)).create(on(3)).truncate(on(4));
            let wanted = open.create_new(on(5)).open(&theirs);
            let got = got.map_err(|error| std::io::Error::from(error).kind());
            let wanted = wanted.map_err(|error| error.kind());
            let used = |mut file: Box<dyn ReadWrite>| {
                (file.write(b"more").is_ok(), file.read(&mut [0; 2]).is_ok())
            };
            let got = got.map(|file| used(Box::new(file)));
            assert_eq!(got, wanted.map(|file| used(Box::new(file))), "{bits:#b}");
            assert_eq!(ours.read(path).ok(), fs::read(&theirs).ok(), "{bits:#b}");
            if fs::remove_file(&theirs).is_ok() {
                ours.remove_file(path).unwrap();
            }
        }
    });
}

/// A file of ours or of the host.
trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// What is set is found again, also after a remount and by the kernel's own mount.
#[test]
fn attributes_links_and_xattrs_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let fs = Image::create(&path, 64 << 20).label("words").make().unwrap().fs().unwrap();
    fs.write("/f", "content").unwrap();
    fs.lchown("/f", Some(1000), Some(100_000)).unwrap();
    fs.set_mode("/f", 0o4751).unwrap();
    let early = UNIX_EPOCH - Duration::new(77, 5);
    let late = UNIX_EPOCH + Duration::new(1 << 33, 999_999_999);
    fs.set_times("/f", early, late).unwrap();
    fs.set_xattr("/f", "user.x", b"value").unwrap();
    fs.set_xattr("/f", "user.gone", b"").unwrap();
    fs.remove_xattr("/f", "user.gone").unwrap();
    fs.hard_link("/f", "/g").unwrap();
    fs.symlink("../../../f", "/s").unwrap();
    fs.make_node("/pipe", FileType::Fifo, 0o644, 0).unwrap();
    drop(fs);
    let fs = Image::open(&path).unwrap().fs().unwrap();
    let found = fs.metadata("/s").unwrap();
    assert_eq!((found.mode(), found.uid(), found.gid()), (0o4751, 1000, 100_000));
    assert_eq!((found.accessed(), found.modified(), found.nlink()), (early, late, 2));
    assert_eq!(found.ino(), fs.metadata("g").unwrap().ino());
    assert_eq!(fs.xattr("/g", "user.x").unwrap(), b"value");
    assert_eq!(fs.xattrs("/g").unwrap(), [b"user.x"]);
    assert_eq!(fs.read_link("/s").unwrap(), Path::new("../../../f"));
    assert_eq!(fs.read_to_string("/s").unwrap(), "content");
    assert_eq!(fs.symlink_metadata("/pipe").unwrap().file_type(), FileType::Fifo);
    assert_eq!(fs.write("/f", "x").unwrap_err().errno(), Errno::EROFS);
    drop(fs);
    judge(Format::Ext, &path);
    let mount = testkit::judge::LoopMount::new(&path, "ext4", "ro").unwrap();
    let theirs = fs::metadata(mount.path().join("f")).unwrap();
    assert_eq!(theirs.permissions().mode() & 0o7777, 0o4751);
    assert_eq!(
        (theirs.uid(), theirs.nlink(), theirs.atime(), theirs.mtime()),
        (1000, 2, -78, 1 << 33)
    );
}

/// A directory of more names than a batch is listed whole, a tree is walked and removed, and the
/// space comes back.
#[test]
fn trees_are_listed_walked_and_removed() {
    for format in FORMATS {
        with_image(format, |fs| {
            fs.create_dir_all("/t/a/b/c").unwrap();
            let before = fs.space().unwrap();
            let mut made: Vec<PathBuf> = Vec::new();
            for number in 0..3_000 {
                let path = PathBuf::from(format!("/t/a/b/file {number}"));
                fs.write(&path, "x").unwrap();
                made.push(path);
            }
            let list = |entry: image::Result<image::DirEntry>| entry.unwrap().path();
            let mut listed: Vec<PathBuf> = fs.read_dir("/t/a/b").unwrap().map(list).collect();
            listed.retain(|path| path != Path::new("/t/a/b/c"));
            listed.sort();
            made.sort();
            assert_eq!(listed, made);
            assert_eq!(fs.walk("/t").unwrap().count(), 3_003);
            fs.symlink("/t", "/t/a/up").unwrap();
            fs.remove_dir_all("/t/a/b").unwrap();
            assert_eq!(fs.walk("/t").unwrap().count(), 2);
            assert!(fs.exists("/t/a/up/a") && !fs.exists("/t/a/b"));
            fs.sync().unwrap();
            let after = fs.space().unwrap();
            assert_eq!(
                before.inodes - before.inodes_free - 2 + 1,
                after.inodes - after.inodes_free
            );
        });
    }
}

/// Opening refuses what is no image, what is open already, and what exists, by name.
#[test]
fn opening_refuses_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let none = Image::open(&path).unwrap_err();
    assert_eq!(none.errno(), Errno::ENOENT);
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let wrong = Image::open(&path).unwrap().fs().unwrap_err();
    assert!(wrong.to_string().ends_with("neither ext2, ext3, ext4 nor XFS"), "{wrong}");
    let exists = Image::create(&path, 64 << 20).make().unwrap_err();
    assert_eq!(exists.errno(), Errno::EEXIST);
    let image = Image::create(&path, 64 << 20).overwrite(true).make().unwrap();
    let locked = Image::open(&path).unwrap_err();
    assert_eq!(locked.errno(), Errno::EBUSY);
    let fs = image.fs().unwrap();
    let clone = fs.clone();
    assert_eq!(fs.unmount().unwrap_err().errno(), Errno::EBUSY);
    clone.unmount().unwrap();
    let small = folder.path().join("small.img");
    let refused = Image::create(&small, 1 << 20).format(Format::Xfs).make().unwrap_err();
    assert_eq!(refused.errno(), Errno::EINVAL);
    assert!(!small.exists());
    let part = Image::options().partition(3).open(&path).unwrap_err();
    assert_eq!(part.errno(), Errno::ENXIO);
}

/// Many threads on one file system: what each wrote is there.
#[test]
#[expect(clippy::disallowed_methods, reason = "the facade is for threads of the host")]
fn threads_share_one_file_system() {
    for format in FORMATS {
        with_image(format, |fs| {
            let work = |thread: u8| {
                let fs = fs.clone();
                move || {
                    fs.create_dir(format!("/{thread}")).unwrap();
                    for file in 0..50_usize {
                        let content = vec![thread; file * 1000];
                        fs.write(format!("/{thread}/{file}"), content).unwrap();
                    }
                }
            };
            let threads: Vec<_> = (0..8).map(|thread| std::thread::spawn(work(thread))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            for thread in 0..8_u8 {
                for file in 0..50_usize {
                    let content = fs.read(format!("/{thread}/{file}")).unwrap();
                    assert!(content == vec![thread; file * 1000]);
                }
            }
        });
    }
}
