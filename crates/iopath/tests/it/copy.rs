//! Copies between reference file systems and archives in memory: no root, no image, virtual time.

use std::io::Cursor;
use std::sync::Arc;

use base::{Rng, Timespec};
use iopath::copy::image_sink::ImageSink;
use iopath::copy::image_source::ImageSource;
use iopath::copy::tar_sink::TarSink;
use iopath::copy::tar_source::TarSource;
use iopath::copy::{self, Batch, Event, Keep, Problems, Sink};
use iopath::out::Out;
use iopath::session::Session;
use iopath::target::Target;
use iopath::{base, rt, vfs};
use rt::{Cx, World, WorldConfig};
use testkit::manifest;
use testkit::memfs::MemFs;
use vfs::acl::{self, Acl, Entry, NO_ID, Tag};
use vfs::{FileSystem, FileType, NewNode, SetAttr, XattrFlags};

const ALL: Keep = Keep::ALL;

/// A tree with every type of node and everything that `-a` keeps.
fn tree(cx: &mut Cx) -> Arc<MemFs> {
    let fs = Arc::new(MemFs::new());
    let root = fs.root();
    let times = Some((Timespec { sec: -5, nsec: 7 }, Timespec { sec: 3_000_000_000, nsec: 1 }));
    let node = |kind, mode| NewNode { times, ..NewNode::new(kind, mode).owner(7, 3_000_000) };
    let dir = fs.create(cx, root, b"dir", &node(FileType::Directory, 0o2775)).unwrap().ino;
    let file = fs.create(cx, dir, b"file", &node(FileType::Regular, 0o4755)).unwrap().ino;
    let long = "name".repeat(60);
    fs.link(cx, file, root, long.as_bytes()).unwrap();
    fs.write(cx, file, 0, &vec![7; 700_000]).unwrap();
    let holes = fs.create(cx, dir, b"holes\xff\\", &node(FileType::Regular, 0o600)).unwrap().ino;
    fs.write(cx, holes, 100_000, b"data").unwrap();
    let set = SetAttr { size: Some(2_000_000), ..SetAttr::default() };
    fs.setattr(cx, holes, &set).unwrap();
    let rdev = vfs::makedev(259, 70_000);
    let device = NewNode { rdev, ..node(FileType::BlockDevice, 0o660) };
    fs.create(cx, dir, b"device", &device).unwrap();
    fs.create(cx, dir, b"fifo", &node(FileType::Fifo, 0o640)).unwrap();
    let target = "target/".repeat(40);
    let link = NewNode { times, ..NewNode::symlink(target.as_bytes()) };
    fs.create(cx, dir, b"link", &link).unwrap();
    fs.setxattr(cx, file, b"user.lines", b"1\n2\n\0\xff", XattrFlags::empty()).unwrap();
    let entry = |tag, perm, id| Entry { tag, perm, id };
    let list = Acl::new(vec![
        entry(Tag::UserObj, 7, NO_ID),
        entry(Tag::User, 5, 10),
        entry(Tag::GroupObj, 5, NO_ID),
        entry(Tag::Mask, 7, NO_ID),
        entry(Tag::Other, 5, NO_ID),
    ]);
    let value = list.unwrap().emit();
    for name in [acl::ACCESS, acl::DEFAULT] {
        fs.setxattr(cx, dir, name, &value, XattrFlags::empty()).unwrap();
    }
    for (ino, time) in [(file, 1), (holes, 2), (dir, 3)] {
        let mtime = Some(Timespec { sec: time, nsec: 999_999_999 });
        fs.setattr(cx, ino, &SetAttr { mtime, ..SetAttr::default() }).unwrap();
    }
    fs
}

fn source(cx: &mut Cx, fs: &Arc<MemFs>) -> Box<ImageSource> {
    let root = fs.getattr(cx, fs.root()).unwrap();
    let target = Target { path: "memory".into(), partition: None, layer: Default::default() };
    let session = Session::on(target, fs.clone());
    Box::new(ImageSource::new(&session, b"/", root, Vec::new(), ALL))
}

fn archive(cx: &mut Cx, fs: &Arc<MemFs>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let source = source(cx, fs);
    let mut progress = Out::new(false, true).progress("copying");
    copy::run(cx, source, &mut TarSink::new(&mut bytes, ALL), &mut progress).unwrap();
    bytes
}

/// Unpacks an archive into a fresh file system; the answer is the error, if any.
fn unpack(cx: &mut Cx, bytes: Vec<u8>) -> (Arc<MemFs>, anyhow::Result<()>) {
    let fs = Arc::new(MemFs::new());
    let source = Box::new(TarSource::new(Cursor::new(bytes), Vec::new(), ALL));
    let mut sink = ImageSink::new(fs.clone(), fs.root(), "/".into(), ALL);
    let mut progress = Out::new(false, true).progress("copying");
    let result = copy::run(cx, source, &mut sink, &mut progress);
    let result = result.and_then(|problems| match problems.messages().0 {
        [] => Ok(()),
        [first, ..] => Err(anyhow::anyhow!("{first}")),
    });
    (fs, result)
}

fn in_world(test: impl FnOnce(&mut Cx)) {
    World::new(WorldConfig::default()).run("test", |cx| test(cx));
}

/// A tree copied from file system to file system is the same tree, holes included.
#[test]
fn a_copy_keeps_everything() {
    in_world(|cx| {
        let (one, two) = (tree(cx), Arc::new(MemFs::new()));
        let source = source(cx, &one);
        let mut sink = ImageSink::new(two.clone(), two.root(), "/".into(), ALL);
        let mut progress = Out::new(false, true).progress("copying");
        copy::run(cx, source, &mut sink, &mut progress).unwrap();
        let left = manifest::of_fs(cx, &*one).unwrap();
        let right = manifest::of_fs(cx, &*two).unwrap();
        assert_eq!(manifest::diff(&left, &right), "");
        assert_eq!(left.len(), 8);
        let space = |cx: &mut Cx, fs: &MemFs| {
            let dir = fs.lookup(cx, fs.root(), b"dir").unwrap().ino;
            fs.lookup(cx, dir, b"holes\xff\\").unwrap().blocks
        };
        assert_eq!(space(cx, &one), space(cx, &two));
    });
}

/// The same through an archive.
#[test]
fn an_archive_keeps_everything() {
    in_world(|cx| {
        let fs = tree(cx);
        let bytes = archive(cx, &fs);
        assert_eq!(bytes.len() % 512, 0);
        assert!(bytes.len() < 800_000, "2 MB of holes are {} bytes", bytes.len());
        let (back, result) = unpack(cx, bytes);
        result.unwrap();
        let left = manifest::of_fs(cx, &*fs).unwrap();
        let right = manifest::of_fs(cx, &*back).unwrap();
        assert_eq!(manifest::diff(&left, &right), "");
    });
}

/// One name that cannot be copied does not keep the others from it, on either side.
#[test]
fn a_copy_goes_on_behind_an_error() {
    in_world(|cx| {
        let (one, two) = (tree(cx), Arc::new(MemFs::new()));
        let (from, to) = (one.root(), two.root());
        let node = |kind| NewNode::new(kind, 0o755);
        // A directory in the way of a file, and a file in the way of a directory.
        two.create(cx, to, b"a", &node(FileType::Directory)).unwrap();
        one.create(cx, from, b"a", &node(FileType::Regular)).unwrap();
        let below = one.create(cx, from, b"b", &node(FileType::Directory)).unwrap().ino;
        one.create(cx, below, b"lost", &node(FileType::Regular)).unwrap();
        one.create(cx, from, b"c", &node(FileType::Regular)).unwrap();
        let dir = two.create(cx, to, b"b", &node(FileType::Regular)).unwrap();
        let source = source(cx, &one);
        let mut sink = Refusing(ImageSink::new(two.clone(), to, "/".into(), ALL));
        let mut progress = Out::new(false, true).progress("copying");
        let problems = copy::run(cx, source, &mut sink, &mut progress).unwrap();
        let messages = problems.messages().0.join("\n");
        assert_eq!(problems.count(), 2, "{messages}");
        assert!(
            messages.contains("/a: cannot overwrite a directory")
                && messages.contains("/b: refused"),
            "{messages}"
        );
        assert_eq!(two.lookup(cx, to, b"b").unwrap().ino, dir.ino, "it was left alone");
        assert!(two.lookup(cx, to, b"c").is_ok() && two.lookup(cx, to, b"dir").is_ok());
    });
}

/// A sink that makes no directory `b`.
struct Refusing(ImageSink);

impl Sink for Refusing {
    fn event(&mut self, cx: &mut Cx, batch: &Batch, at: usize) -> anyhow::Result<()> {
        match &batch.events[at] {
            Event::Node { path, .. } if batch.at(path) == b"b" => anyhow::bail!("/b: refused"),
            _ => self.0.event(cx, batch, at),
        }
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }

    fn is_over(&self, error: &anyhow::Error) -> bool {
        self.0.is_over(error)
    }

    fn finish(&mut self, cx: &mut Cx, problems: &mut Problems) -> anyhow::Result<()> {
        self.0.finish(cx, problems)
    }
}

/// Archives with changed bytes, cut short, or with hostile names: an error or a tree, never a
/// panic.
#[test]
fn damaged_archives_are_refused_or_read() {
    in_world(|cx| {
        let fs = tree(cx);
        let good = archive(cx, &fs);
        let headers: Vec<usize> = (0..good.len() / 512)
            .map(|block| block * 512)
            .filter(|&at| &good[at + 257..at + 262] == b"ustar")
            .collect();
        assert!(headers.len() > 10);
        let (mut rng, mut refused) = (Rng::new(1, 1), 0);
        for _ in 0..400 {
            let mut bad = good.clone();
            let at = headers[rng.below(headers.len() as u64) as usize];
            for _ in 0..1 + rng.below(3) {
                bad[at + rng.below(1024) as usize % (good.len() - at)] = rng.next_u32() as u8;
            }
            // Half of the headers get a checksum that fits, so that the fields are looked at.
            if rng.chance(0.5) {
                let sum = |(i, b): (usize, &u8)| {
                    if (148..156).contains(&i) { 32 } else { u64::from(*b) }
                };
                let sum: u64 = bad[at..at + 512].iter().enumerate().map(sum).sum();
                bad[at + 148..at + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
            if rng.chance(0.2) {
                bad.truncate(rng.below(bad.len() as u64) as usize);
            }
            refused += u32::from(unpack(cx, bad).1.is_err());
        }
        assert!((50..400).contains(&refused), "{refused} of 400 refused");
    });
}

/// `..` in an archive leads nowhere.
#[test]
fn names_do_not_lead_out_of_an_archive() {
    in_world(|cx| {
        let fs = Arc::new(MemFs::new());
        fs.create(cx, fs.root(), b"aa", &NewNode::new(FileType::Regular, 0o644)).unwrap();
        let mut bytes = archive(cx, &fs);
        let at = bytes.windows(3).position(|window| window == b"aa\0").unwrap();
        // The sum of the bytes changes by 2 * ('a' - '.').
        bytes[at..at + 2].copy_from_slice(b"..");
        let text = String::from_utf8(bytes[at + 148..at + 154].to_vec()).unwrap();
        let sum = u32::from_str_radix(&text, 8).unwrap() - 2 * u32::from(b'a' - b'.');
        bytes[at + 148..at + 154].copy_from_slice(format!("{sum:06o}").as_bytes());
        let error = unpack(cx, bytes).1.unwrap_err().to_string();
        assert!(error.contains("leads out"), "{error}");
    });
}
