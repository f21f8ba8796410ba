//! Flags of inodes: kept, handed down, refused where there are none. Ranges that cannot be taken
//! out of a file or put in (those that can: `fsx`).

use std::os::unix::fs::FileExt;

use crate::world::Cell;
use base::Errno;
use testkit::format::{Format, assert_sound};
use testkit::judge;
use vfs::{FallocMode, FileSystem, FileType, NewNode, SetAttr};

const CELL: Cell = Cell(&[('m', "rmapbt=1"), ('n', "parent=1")]);

/// `FS_*_FL` as chattr(1) has them.
const IMMUTABLE: u32 = 0x10;
const NODUMP: u32 = 0x40;
const NOATIME: u32 = 0x80;
const PROJINHERIT: u32 = 0x2000_0000;

/// Goal: flags are kept over a remount and handed down where the kernel does it; what is immutable
/// takes no other change.
#[test]
fn flags_are_set_and_kept() {
    rt::testing::real(|cx| {
        let device = CELL.fresh(cx, 64 << 20);
        let fs = CELL.mount(cx, device.clone(), 4 << 20);
        let (root, dir) = (fs.root(), crate::world::mkdir(cx, &fs, fs.root(), "dir"));
        let file = crate::world::file(cx, &fs, root, "file");
        let set = fs.set_flags(cx, file, IMMUTABLE | NODUMP).expect("set");
        assert_eq!(set.flags, IMMUTABLE | NODUMP);
        let set = fs.set_flags(cx, dir, PROJINHERIT | NOATIME).expect("set");
        assert_eq!(set.flags, PROJINHERIT | NOATIME);
        for flags in [PROJINHERIT, 1] {
            assert_eq!(fs.set_flags(cx, file, flags).err(), Some(Errno::EOPNOTSUPP));
        }
        let below = crate::world::file(cx, &fs, dir, "below");
        fs.unmount(cx).expect("unmount");
        let fs = CELL.mount(cx, device.clone(), 4 << 20);
        let flags = [file, dir, below].map(|ino| fs.getattr(cx, ino).expect("getattr").flags);
        assert_eq!(flags, [IMMUTABLE | NODUMP, PROJINHERIT | NOATIME, NOATIME]);
        let attr = fs.getattr(cx, file).expect("getattr");
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let denied = vfs::permission::may_set(cx.cred(), &attr, &set);
        assert_eq!(denied.err(), Some(Errno::EPERM), "nothing of it changes");
        fs.unmount(cx).expect("unmount");
        assert_sound(CELL, &device, "flags");
    });
}

/// What the kernel's tools say of a file: its flags and hints, and where its extents begin and end.
fn described(path: &std::path::Path) -> String {
    let words = ["-r", "-c", "lsattr", "-c", "extsize", "-c", "cowextsize", "-c", "fiemap -v"];
    let words = if path.is_dir() { &words[..7] } else { &words[..] };
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = Vec::new();
    args.extend(words.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>));
    args.push(&path);
    let output = judge::run("xfs_io", &args);
    assert!(output.status.success(), "{}", crate::support::text(&output));
    // Whether there is room for attributes is no flag.
    let text = crate::support::text(&output);
    let text = text.replace(&path.display().to_string(), "").replace('X', "-");
    // Of an extent its place in the file, its length and its flags.
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let known = words.len() != 5 || words[0] == "EXT:";
        if known { line.to_owned() } else { [words[1], words[3], words[4]].join(" ") }
    };
    text.lines().map(line).collect::<Vec<_>>().join("; ")
}

/// Goal: what new files and directories take over from their directory is what the kernel gives
/// them, a file that asks for long extents gets them in the same places of the file, and no
/// symbolic link is made where the directory bars it. Method: directories with each flag by
/// xfs_io; the kernel and we make the same in them.
#[test]
fn new_inodes_take_over_what_the_kernel_gives_them() {
    const KINDS: [&str; 9] = [
        "chattr +s",
        "chattr +A",
        "chattr +d",
        "chattr +f",
        "chattr +S",
        "chattr +x",
        "chattr +n",
        "extsize 32k",
        "cowextsize 64k",
    ];
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    crate::support::mkfs_xfs(&image, 300, "-m reflink=1");
    // The second one ends with a unit: what lies behind the end is not compared.
    let writes = [(45_000, 9000), (85_000, 98_304 - 85_000)];
    let mount = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    for (index, kind) in KINDS.iter().enumerate() {
        let path = mount.path().join(format!("d{index}"));
        std::fs::create_dir(&path).expect("mkdir");
        let args: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"-c", kind, &path];
        assert!(judge::run("xfs_io", &args).status.success(), "{kind}");
        let file = std::fs::File::create(path.join("kernel")).expect("create");
        for (at, len) in writes {
            file.write_all_at(&vec![1; len], at).expect("write");
        }
        file.sync_all().expect("fsync");
        std::fs::create_dir(path.join("kernel-dir")).expect("mkdir");
    }
    drop(mount);
    let device = crate::support::load(&image);
    let left = crate::support::in_world(move |cx| {
        let (fs, _) = crate::world::mount(cx, device.clone(), 4 << 20);
        for (index, kind) in KINDS.iter().enumerate() {
            let name = format!("d{index}");
            let parent = fs.lookup(cx, fs.root(), name.as_bytes()).expect("a directory").ino;
            let file = crate::world::file(cx, &fs, parent, "ours");
            for (at, len) in writes {
                fs.write(cx, file, at, &vec![1; len]).expect("write");
            }
            fs.fsync(cx, file, false).expect("fsync");
            crate::world::mkdir(cx, &fs, parent, "ours-dir");
            let node = NewNode { target: Some(b"x"), ..NewNode::new(FileType::Symlink, 0o777) };
            let made = fs.create(cx, parent, b"link", &node).map(drop);
            let barred = *kind == "chattr +n";
            assert_eq!(made, if barred { Err(Errno::EPERM) } else { Ok(()) }, "{kind}");
        }
        fs.unmount(cx).expect("unmount");
        device
    });
    std::fs::write(&image, left.snapshot()).expect("the image is written");
    let mount = judge::LoopMount::new(&image, "xfs", "ro").expect("mounted");
    for (index, kind) in KINDS.iter().enumerate() {
        let path = mount.path().join(format!("d{index}"));
        for (ours, kernels) in [("ours", "kernel"), ("ours-dir", "kernel-dir")] {
            let (ours, kernels) = (described(&path.join(ours)), described(&path.join(kernels)));
            assert_eq!(ours, kernels, "{kind}");
        }
    }
    drop(mount);
    crate::support::xfs_repair(&image).unwrap_or_else(|text| panic!("{text}"));
}

/// Goal: a range that is no range of whole blocks inside of the file is refused, and nothing moves.
#[test]
fn ranges_that_cannot_move_are_refused() {
    rt::testing::real(|cx| {
        let device = CELL.fresh(cx, 64 << 20);
        let fs = CELL.mount(cx, device.clone(), 4 << 20);
        let file = crate::world::file(cx, &fs, fs.root(), "file");
        let content: Vec<u8> = (0..50_000u32).map(|at| (at % 251) as u8).collect();
        fs.write(cx, file, 0, &content).expect("write");
        for (mode, at, len, errno) in [
            (FallocMode::CollapseRange, 1, 4096, Errno::EINVAL),
            (FallocMode::CollapseRange, 4096, 49_152, Errno::EINVAL),
            (FallocMode::InsertRange, 53_248, 4096, Errno::EINVAL),
            (FallocMode::InsertRange, 0, 17, Errno::EINVAL),
            (FallocMode::InsertRange, 0, (i64::MAX as u64) & !4095, Errno::EFBIG),
        ] {
            assert_eq!(fs.fallocate(cx, file, mode, at, len), Err(errno), "{mode:?} {at} {len}");
        }
        let mut bytes = vec![0; 60_000];
        assert_eq!(fs.read(cx, file, 0, &mut bytes), Ok(content.len()));
        assert!(bytes[..content.len()] == content);
        fs.unmount(cx).expect("unmount");
    });
}
