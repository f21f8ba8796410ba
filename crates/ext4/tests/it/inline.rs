//! Content in the inode: files, directories and symbolic links, beside the kernel and e2fsck, in
//! every size around the thresholds, and cut on the way to a block.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::*;
use base::{Errno, Ino, Rng};
use cache::IomapKind;
use device::{MemoryDevice, RecordDevice};
use ext4::format::InodeFlags;
use rt::Cx;
use testkit::crash::{self, CrashConfig};
use testkit::judge::{self, LoopMount};
use testkit::manifest;
use vfs::{FallocMode, FileSystem, FileType, NewNode, RenameFlags, SeekWhence, SetAttr};

const CELL: Cell = Cell::new("ext4", 4096).features("inline_data");
const CELLS: [Cell; 4] = [
    CELL,
    Cell::new("ext4", 1024).features("inline_data,^metadata_csum,^64bit").mke2fs(),
    Cell::new("ext4", 1024).features("inline_data,^dir_index,quota").journal(2048),
    Cell::new("ext4", 2048).features("inline_data,^has_journal,^extent"),
];

fn is_inline(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino) -> bool {
    fs.getattr(cx, ino).expect("attributes").flags & InodeFlags::INLINE_DATA.bits() != 0
}

fn read(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; 20_000];
    let count = fs.read(cx, ino, 0, &mut bytes).expect("readable");
    bytes.truncate(count);
    bytes
}

fn set_size(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(cx, ino, &set).expect("a new size");
}

fn close(cx: &mut Cx, fs: Arc<ext4::Ext4>, device: &Arc<MemoryDevice>, what: &str) {
    fs.unmount(cx).expect("unmount");
    checked(cx, device, what);
    judge(device, what);
}

/// e2fsck of the host and the newest one have nothing to say.
fn judge(device: &MemoryDevice, what: &str) {
    let file = testkit::image::write_device(device);
    judge::e2fsck(file.path()).unwrap_or_else(|message| panic!("{what}: {message}"));
}

/// Goal: files of all sizes around the thresholds hold what was written, piece by piece, and lie in
/// the inode as long as they fit.
#[test]
fn files_of_all_sizes_hold_what_was_written() {
    for cell in CELLS {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let mut wanted = Vec::new();
            for size in (1..200).step_by(7).chain([59, 60, 61, 126, 128, 129, 5000]) {
                let file = create(cx, &*fs, fs.root(), &format!("f{size}"));
                let mut bytes = vec![0; size];
                pattern(size as u64, 0, &mut bytes);
                for (index, piece) in bytes.chunks(1 + size / 3).enumerate() {
                    let offset = index * (1 + size / 3);
                    let count = fs.write(cx, file, offset as u64, piece).expect("room");
                    assert_eq!(count, piece.len());
                }
                assert_eq!(is_inline(cx, &*fs, file), size <= 128, "{cell:?}: {size}");
                let attr = fs.getattr(cx, file).expect("attributes");
                assert!(attr.blocks > 0, "a file with content has a sector at least");
                wanted.push((file, bytes));
            }
            for (file, bytes) in &wanted {
                assert_eq!(&read(cx, &*fs, *file), bytes);
            }
            close(cx, fs, &device, "files written");
            let (fs, _) = mount(cx, device.clone());
            for (file, bytes) in &wanted {
                assert_eq!(&read(cx, &*fs, *file), bytes, "{cell:?}: after a remount");
            }
            close(cx, fs, &device, "files read");
        });
    }
}

type Act = fn(&mut Cx, &dyn FileSystem, Ino);
/// What is done to a file of 100 bytes, whether it is in the inode then, bytes at some places, and
/// its size.
type Case = (&'static str, Act, bool, &'static [(usize, u8)], usize);
const ACTS: &[Case] = &[
    ("shorter", |cx, fs, f| set_size(cx, fs, f, 20), true, &[], 20),
    ("empty", |cx, fs, f| set_size(cx, fs, f, 0), true, &[], 0),
    ("longer", |cx, fs, f| set_size(cx, fs, f, 120), true, &[], 120),
    ("too long", |cx, fs, f| set_size(cx, fs, f, 9000), false, &[], 9000),
    (
        "appended",
        |cx, fs, f| assert_eq!(fs.append(cx, f, &[9; 100]).expect("room"), (100, 100)),
        false,
        &[(100, 9), (199, 9)],
        200,
    ),
    (
        "far behind",
        |cx, fs, f| assert_eq!(fs.write(cx, f, 9000, &[9]).expect("room"), 1),
        false,
        &[(9000, 9)],
        9001,
    ),
    (
        "preallocated",
        |cx, fs, f| {
            fs.fallocate(cx, f, FallocMode::Allocate { keep_size: false }, 0, 5000).expect("room")
        },
        false,
        &[],
        5000,
    ),
    (
        "punched",
        |cx, fs, f| fs.fallocate(cx, f, FallocMode::PunchHole, 10, 20).expect("punched"),
        false,
        &[(10, 0), (29, 0), (30, 5)],
        100,
    ),
    (
        "direct",
        |cx, fs, f| assert_eq!(fs.write_direct(cx, f, 4096, &[7; 4096]).expect("room"), 4096),
        false,
        &[(4096, 7), (8191, 7)],
        8192,
    ),
];

/// Goal: no operation loses content, and those that need blocks take them for good.
#[test]
fn content_leaves_for_a_block_and_stays_there() {
    for &(name, act, inline, bytes, size) in ACTS {
        rt::testing::world(|cx| {
            let device = CELL.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let file = create(cx, &*fs, fs.root(), "file");
            fs.write(cx, file, 0, &[5; 100]).expect("room");
            act(cx, &*fs, file);
            assert_eq!(is_inline(cx, &*fs, file), inline, "{name}");
            let mut wanted = vec![5; 100.min(size)];
            wanted.resize(size, 0);
            for &(at, byte) in bytes {
                wanted[at] = byte;
            }
            let check = |cx: &mut Cx, fs: &dyn FileSystem| {
                let found = read(cx, fs, file);
                assert_eq!(found.len(), size, "{name}");
                let head = if name == "punched" { 10 } else { 100.min(size) };
                assert_eq!(found[..head], wanted[..head], "{name}");
                for &(at, byte) in bytes {
                    assert_eq!(found[at], byte, "{name} at {at}");
                }
            };
            check(cx, &*fs);
            close(cx, fs, &device, name);
            let (fs, _) = mount(cx, device.clone());
            check(cx, &*fs);
            set_size(cx, &*fs, file, 0);
            fs.write(cx, file, 0, &[5; 10]).expect("room");
            assert_eq!(is_inline(cx, &*fs, file), inline, "{name}: it does not come back");
            assert_eq!(read(cx, &*fs, file), [5; 10], "{name}");
            close(cx, fs, &device, name);
        });
    }
}

/// Goal: seeks, reports and direct reads know content in the inode.
#[test]
fn content_in_the_inode_is_data() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 24 << 20);
        let (fs, _) = mount(cx, device.clone());
        let file = create(cx, &*fs, fs.root(), "file");
        fs.write(cx, file, 50, &[5; 50]).expect("room");
        assert_eq!(fs.seek(cx, file, 3, SeekWhence::Data), Ok(3));
        assert_eq!(fs.seek(cx, file, 3, SeekWhence::Hole), Ok(100));
        let parts = fs.fiemap(cx, file, 0, 1 << 20).expect("a report");
        assert_eq!(parts.iter().map(|part| part.kind).collect::<Vec<_>>(), [IomapKind::Inline]);
        let mut buf = vec![1; 4096];
        assert_eq!(fs.read_direct(cx, file, 0, &mut buf), Ok(100));
        assert_eq!((&buf[..50], &buf[50..100]), (&[0; 50][..], &[5; 50][..]));
        close(cx, fs, &device, "seeks");
    });
}

/// Goal: attributes and content share the inode, whichever comes first, and neither is lost.
#[test]
fn attributes_and_content_share_the_inode() {
    for cell in CELLS {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let mut rng = Rng::new(3, 9);
            for number in 0..60 {
                let file = create(cx, &*fs, fs.root(), &format!("f{number}"));
                let (mut content, mut value) = (Vec::new(), None);
                for _ in 0..12 {
                    match rng.below(3) {
                        0 => {
                            let size = rng.below(140) as usize;
                            content = vec![1 + rng.below(200) as u8; size];
                            set_size(cx, &*fs, file, 0);
                            fs.write(cx, file, 0, &content).expect("room");
                        }
                        1 => {
                            let new = vec![1 + rng.below(200) as u8; rng.below(90) as usize];
                            fs.setxattr(cx, file, b"user.a", &new, Default::default())
                                .expect("room");
                            value = Some(new);
                        }
                        _ => {
                            let removed = fs.removexattr(cx, file, b"user.a");
                            assert_eq!(removed.is_ok(), value.take().is_some());
                        }
                    }
                    assert_eq!(read(cx, &*fs, file), content);
                    assert_eq!(fs.getxattr(cx, file, b"user.a").ok(), value);
                    let names = fs.listxattr(cx, file).expect("names");
                    assert!(names.iter().all(|name| name == b"user.a"), "the content is hidden");
                }
            }
            close(cx, fs, &device, "attributes and content");
        });
    }
}

/// All names of a directory, a few at a time.
fn list(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, at_once: usize) -> BTreeSet<Vec<u8>> {
    let (mut names, mut cookie) = (BTreeSet::new(), 0);
    loop {
        let (mut count, from) = (0, cookie);
        let mut emit = |entry: vfs::DirEntry| {
            assert!(names.insert(entry.name.to_vec()), "a name is listed twice");
            cookie = entry.cookie;
            count += 1;
            count < at_once
        };
        fs.readdir(cx, dir, from, &mut emit).expect("listed");
        if count < at_once {
            return names;
        }
    }
}

/// Goal: names in the inode are found, listed, moved and removed, and all of them move to a block
/// when one finds no room.
#[test]
fn directories_grow_out_of_the_inode() {
    for cell in CELLS {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let root = fs.root();
            for number in 0..40u64 {
                let mut rng = Rng::new(number, 8);
                let dir = mkdir(cx, &*fs, root, &format!("d{number}"));
                assert!(is_inline(cx, &*fs, dir), "{cell:?}: a new directory");
                assert_eq!(fs.rmdir(cx, root, b"nothing"), Err(Errno::ENOENT));
                let mut names = BTreeSet::from([b".".to_vec(), b"..".to_vec()]);
                let long = 1 + rng.below(60);
                for step in 0..30 {
                    let name = format!("{:0>1$}", rng.below(20), long as usize).into_bytes();
                    let known = names.contains(&name);
                    match rng.below(4) {
                        0 => {
                            let gone = fs.unlink(cx, dir, &name);
                            assert_eq!(gone.is_ok(), names.remove(&name), "step {step}");
                        }
                        1 => {
                            let to = format!("to{step}").into_bytes();
                            let none = RenameFlags::empty();
                            let moved = fs.rename(cx, dir, &name, dir, &to, none);
                            assert_eq!(moved.is_ok(), known);
                            if names.remove(&name) {
                                names.insert(to);
                            }
                        }
                        _ => {
                            let node = NewNode::new(FileType::Regular, 0o600);
                            let made = fs.create(cx, dir, &name, &node);
                            assert_eq!(made.is_ok(), names.insert(name), "step {step}");
                        }
                    }
                    assert_eq!(list(cx, &*fs, dir, 1 + step % 3), names, "{cell:?}, step {step}");
                }
                let up = fs.lookup(cx, dir, b"..").expect("above").ino;
                assert_eq!(up, root);
                if number % 3 == 0 {
                    let other = fs.lookup(cx, root, b"d1").map_or(root, |attr| attr.ino);
                    let to = format!("moved{number}");
                    fs.rename(
                        cx,
                        root,
                        format!("d{number}").as_bytes(),
                        other,
                        to.as_bytes(),
                        RenameFlags::empty(),
                    )
                    .expect("moved");
                    assert_eq!(fs.lookup(cx, dir, b"..").expect("above").ino, other);
                }
            }
            close(cx, fs, &device, &format!("{cell:?}: directories"));
        });
    }
}

/// Goal: a listing that was begun in the inode goes on in the block, without a name twice or left
/// out.
#[test]
fn a_listing_goes_on_where_the_names_have_moved() {
    for cell in CELLS {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let dir = mkdir(cx, &*fs, fs.root(), "dir");
            for number in 0..6 {
                create(cx, &*fs, dir, &format!("name-{number}"));
            }
            let (mut seen, mut cookie) = (BTreeSet::new(), 0);
            fs.readdir(cx, dir, 0, &mut |entry| {
                seen.insert(entry.name.to_vec());
                cookie = entry.cookie;
                seen.len() < 5
            })
            .expect("listed");
            create(cx, &*fs, dir, &"long".repeat(30));
            assert!(!is_inline(cx, &*fs, dir), "it has left");
            fs.readdir(cx, dir, cookie, &mut |entry| {
                assert!(seen.insert(entry.name.to_vec()), "{cell:?}: listed twice");
                true
            })
            .expect("listed");
            for number in 0..6 {
                assert!(seen.contains(format!("name-{number}").as_bytes()), "{cell:?}: {number}");
            }
            close(cx, fs, &device, "a listing");
        });
    }
}

#[test]
fn targets_of_links_lie_in_the_inode_where_they_fit() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 24 << 20);
        let (fs, _) = mount(cx, device.clone());
        let mut links = Vec::new();
        for len in [1, 59, 60, 61, 100, 128, 129, 1000] {
            let target = vec![b'a' + (len % 20) as u8; len];
            let node = NewNode { target: Some(&target), ..NewNode::new(FileType::Symlink, 0o777) };
            let name = format!("l{len}");
            let ino = fs.create(cx, fs.root(), name.as_bytes(), &node).expect("made").ino;
            assert_eq!(is_inline(cx, &*fs, ino), (60..=128).contains(&len), "{len}");
            assert_eq!(fs.readlink(cx, ino).expect("a target"), target);
            links.push((name, target));
        }
        close(cx, fs, &device, "links");
        let file = testkit::image::write_device(&device);
        let mount = LoopMount::new(file.path(), "ext4", "ro").expect("the kernel mounts it");
        for (name, target) in links {
            let found = std::fs::read_link(mount.path().join(&name)).expect("a link");
            assert_eq!(found.as_os_str().as_encoded_bytes(), target, "{name}");
        }
    });
}

/// Goal: on a device without a free block a small file still finds its place, and what needs a
/// block is refused with nothing lost.
#[test]
fn a_full_device_takes_small_files() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 12 << 20);
        let (fs, _) = mount(cx, device.clone());
        let dir = mkdir(cx, &*fs, fs.root(), "dir");
        let small = create(cx, &*fs, fs.root(), "small");
        fs.write(cx, small, 0, &[1; 100]).expect("room");
        let big = create(cx, &*fs, fs.root(), "big");
        let (mut at, mut before) = (0, 1);
        // What was reserved for the map of the file comes back with the sync.
        while at != before {
            before = at;
            while let Ok(count) = fs.write(cx, big, at, &[3; 4096]) {
                at += count as u64;
            }
            fs.sync(cx).expect("sync");
        }
        let other = create(cx, &*fs, fs.root(), "other");
        assert_eq!(fs.write(cx, other, 0, &[2; 128]), Ok(128));
        assert_eq!(fs.write(cx, small, 100, &[1; 100]), Err(Errno::ENOSPC));
        assert_eq!(read(cx, &*fs, small), [1; 100]);
        let node = NewNode::new(FileType::Regular, 0o600);
        assert!(fs.create(cx, dir, b"short", &node).is_ok());
        assert_eq!(fs.create(cx, dir, &[b'n'; 150], &node).map(drop), Err(Errno::ENOSPC));
        assert!(is_inline(cx, &*fs, small) && is_inline(cx, &*fs, dir));
        assert_eq!(list(cx, &*fs, dir, 9).len(), 3);
        close(cx, fs, &device, "a full device");
    });
}

/// What a file was after each step, and whether a sync promised it.
const STEPS: &[(u64, usize, bool)] = &[
    (0, 40, true),
    (40, 60, false),
    (0, 100, true),
    (100, 28, false),
    (128, 1, true),
    (129, 3000, false),
    (3000, 6000, true),
];

/// Goal: whatever a power cut leaves, the file is one that it was, none before the last sync: on
/// the way to a block the content is in the inode or in the block.
#[test]
fn a_cut_on_the_way_to_a_block_loses_nothing() {
    for (seed, features) in [(1, "inline_data"), (2, "inline_data,^metadata_csum")] {
        let cell = Cell::new("ext4", 1024).features(features).journal(1024);
        rt::testing::real(|cx| {
            let device = cell.fresh(cx, 16 << 20);
            let (fs, _) = mount(cx, device.clone());
            let dir = mkdir(cx, &*fs, fs.root(), "dir");
            let file = create(cx, &*fs, dir, "file");
            fs.unmount(cx).expect("unmount");
            let base = device.fork();
            let record = Arc::new(RecordDevice::new(device.clone()));
            let (fs, _) = mount(cx, record.clone());
            let mut states = vec![Vec::new()];
            for (number, &(offset, len, sync)) in (1..).zip(STEPS) {
                let mut state: Vec<u8> = states.last().expect("one").clone();
                let (from, to) = (offset as usize, offset as usize + len);
                state.resize(state.len().max(to), 0);
                pattern(number, offset, &mut state[from..to]);
                let piece = state[from..to].to_vec();
                fs.write(cx, file, offset, &piece).expect("room");
                create(cx, &*fs, dir, &format!("{number:0>20}"));
                states.push(state);
                if sync {
                    fs.fsync(cx, file, number % 2 == 0).expect("durable");
                    record.mark(number);
                }
            }
            fs.sync(cx).expect("sync");
            record.mark(STEPS.len() as u64);
            fs.shutdown_hard();
            let config = CrashConfig { random: 60, ..CrashConfig::new(seed) };
            crash::explore(&config, &base, &record.log(), |image, case| {
                let (fs, _) = mount(cx, image.clone());
                let found = read(cx, &*fs, file);
                fs.unmount(cx).map_err(|errno| errno.to_string())?;
                let least = case.promised.last().copied().unwrap_or(0) as usize;
                // Delayed data of one write may have got its place in part.
                let whole = states[least..].contains(&found);
                let part = states[least..].iter().any(|state| state.starts_with(&found));
                if !(whole || part && found.len() >= states[least].len()) {
                    let len = found.len();
                    return Err(format!("{len} bytes are no state after operation {least}"));
                }
                cell.check(cx, &image)?;
                judge::e2fsck_device(&image)
            });
        });
    }
}

const SCRIPT: &str = r#"set -e
    mkdir -p a/b/c tiny; for n in $(seq 1 150); do head -c $n /dev/zero | tr '\0' x > a/s$n; done
    for n in 1 2 3 4 5; do touch tiny/n$n; done
    mkdir full; for n in $(seq 30); do touch full/$n; done
    ln -s $(head -c 60 /dev/zero | tr '\0' t) l60; ln -s short l5
    for n in 20 70 110; do setfattr -n user.a -v $(head -c 60 /dev/zero | tr '\0' v) a/s$n; done
    truncate -s 30 a/s100; truncate -s 0 a/s90; truncate -s 100 a/s50; echo more >> a/s125
    mv a/s1 a/b/c/; mv tiny/n1 a/; rm tiny/n2; ln a/s7 tiny/hard; chmod 751 tiny; mkdir tiny/d
"#;

/// Goal: what the kernel (and mke2fs -d) wrote is read and changed by us, and read by the kernel.
#[test]
fn what_the_kernel_wrote_is_read_and_changed() {
    for (args, options) in [
        (&["-b", "4096"][..], "rw"),
        (&["-b", "1024", "-I", "512", "-O", "^metadata_csum"], "rw,acl,user_xattr"),
    ] {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let source = tempfile::tempdir().expect("a directory");
        shell(source.path(), SCRIPT);
        let from = source.path().to_str().expect("utf-8");
        let made = [&["-t", "ext4", "-O", "inline_data", "-d", from], args].concat();
        judge::mke2fs(file.path(), 32 << 20, &made);
        let mount = LoopMount::new(file.path(), "ext4", options).expect("the kernel mounts it");
        std::fs::create_dir(mount.path().join("kernel")).expect("a directory");
        shell(&mount.path().join("kernel"), SCRIPT);
        drop(mount);
        let theirs = judge::kernel_manifest(file.path(), "ext4");
        let device = Arc::new(testkit::image::load(file.path()));
        rt::testing::world(|cx| {
            checked(cx, &device, "the kernel's image");
            let (fs, _) = crate::support::mount(cx, device.clone());
            let read = manifest::of_fs(cx, &*fs).expect("the kernel's tree");
            assert_eq!(manifest::diff(&theirs, &read), "", "{args:?}: read");
            for top in ["kernel", ""] {
                change(cx, &*fs, top);
            }
            let ours = manifest::of_fs(cx, &*fs).expect("our tree");
            close(cx, fs, &device, "changed");
            let again = testkit::image::write_device(&device);
            let again = judge::kernel_manifest(again.path(), "ext4");
            assert_eq!(manifest::diff(&ours, &again), "", "{args:?}: changed");
        });
    }
}

/// Changes files and directories of all sizes.
fn change(cx: &mut Cx, fs: &dyn FileSystem, top: &str) {
    let find = |cx: &mut Cx, path: &str| {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.fold(fs.root(), |dir, name| fs.lookup(cx, dir, name.as_bytes()).expect(path).ino)
    };
    let (a, tiny) = (find(cx, &format!("{top}/a")), find(cx, &format!("{top}/tiny")));
    for number in 2..150u64 {
        let Ok(attr) = fs.lookup(cx, a, format!("s{number}").as_bytes()) else { continue };
        match number % 4 {
            0 => fs.unlink(cx, a, format!("s{number}").as_bytes()).expect("removed"),
            1 => drop(fs.append(cx, attr.ino, b"appended").expect("room")),
            2 => set_size(cx, fs, attr.ino, number / 2),
            _ => drop(fs.setxattr(cx, attr.ino, b"user.ours", b"1", Default::default())),
        }
    }
    for number in 0..20 {
        let name = format!("ours-{number}");
        create(cx, fs, tiny, &name);
    }
    let bottom = find(cx, &format!("{top}/a/b/c"));
    let none = RenameFlags::empty();
    fs.rename(cx, tiny, b"d", bottom, b"d", none).expect("a directory moves");
    let node = NewNode { target: Some(&[b'q'; 90]), ..NewNode::new(FileType::Symlink, 0o777) };
    fs.create(cx, bottom, b"link", &node).expect("a link");
}

fn shell(dir: &std::path::Path, script: &str) {
    judge::run_ok("sh", &[&"-c", &format!("cd {}; {script}", dir.display())]);
}
