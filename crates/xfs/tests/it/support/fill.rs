//! Trees that cross the thresholds of the format, made through the kernel's mount.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use rustix::fs::{FallocateFlags, FileType, Mode, XattrFlags, fallocate, mknodat, setxattr};
use testkit::judge;

/// How much of everything.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Names of 255 bytes in the largest directory.
    pub long_names: usize,
    /// Extents of the most fragmented file.
    pub extents: u64,
    /// Bytes of a block.
    pub block: u64,
}

/// Fills a mounted file system.
pub fn fill(root: &Path, scale: Scale) {
    directories(root, scale);
    files(root, scale);
    attributes(root);
    others(root);
}

fn directories(root: &Path, scale: Scale) {
    for count in [0usize, 3, 12, 60, 400, 3000] {
        let dir = root.join(format!("dir-of-{count}"));
        fs::create_dir(&dir).expect("mkdir");
        for number in 0..count {
            let name = format!("{}-{number}", "n".repeat(number % 40 + 1));
            File::create(dir.join(name)).expect("create");
        }
        // Gaps in data blocks, stale entries in leaves.
        for number in (0..count).step_by(3) {
            let name = format!("{}-{number}", "n".repeat(number % 40 + 1));
            fs::remove_file(dir.join(name)).expect("unlink");
        }
    }
    let dir = root.join("long-names");
    fs::create_dir(&dir).expect("mkdir");
    for number in 0..scale.long_names {
        let name = format!("{number:0>255}");
        File::create(dir.join(&name)).expect("create");
    }
    // Whole data blocks disappear: the fork has holes.
    for number in scale.long_names / 3..scale.long_names / 2 {
        fs::remove_file(dir.join(format!("{number:0>255}"))).expect("unlink");
    }
    let mut deep = root.to_path_buf();
    for level in 0..30 {
        deep = deep.join(format!("level-{level}"));
        fs::create_dir(&deep).expect("mkdir");
        fs::write(deep.join("file"), format!("at {level}")).expect("write");
    }
}

/// Bytes that differ everywhere.
pub fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn files(root: &Path, scale: Scale) {
    for (index, len) in [0usize, 1, 511, 4096, 100_000, 3 << 20].into_iter().enumerate() {
        let path = root.join(format!("file-{len}"));
        fs::write(&path, content(len, index as u64 + 7)).expect("write");
        fs::hard_link(&path, root.join(format!("hard-{len}"))).expect("link");
    }
    let file = File::create(root.join("fragmented")).expect("create");
    for extent in 0..scale.extents {
        let data = content(scale.block as usize, extent + 99);
        file.write_all_at(&data, extent * 2 * scale.block).expect("write");
    }
    file.sync_all().expect("sync");
    let file = File::create(root.join("sparse")).expect("create");
    for offset in [0u64, 1 << 20, 5 << 30, 40 << 40] {
        file.write_all_at(b"island", offset + 5).expect("write");
    }
    file.set_len(5 << 20).expect("truncate");
    let mut file = File::create(root.join("unwritten")).expect("create");
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).expect("fallocate");
    file.write_all(&content(10_000, 3)).expect("write");
    fallocate(&file, FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20).expect("fallocate");
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 4096)
        .expect("punch");
}

/// Lets one file share the blocks of another, then differ in the middle.
pub fn share(root: &Path) {
    let (from, to) = (root.join(format!("file-{}", 3 << 20)), root.join("shared"));
    judge::run_ok("cp", &[&"--reflink=always", &from, &to]);
    let file = fs::OpenOptions::new().write(true).open(&to).expect("open");
    file.write_all_at(&content(70_000, 5), 1 << 20).expect("write");
}

fn attributes(root: &Path) {
    let set = |path: &Path, name: &str, value: &[u8]| {
        setxattr(path, name, value, XattrFlags::empty()).expect("setxattr");
    };
    for (file, count, len) in [("few", 2usize, 8usize), ("leaf", 20, 60), ("node", 300, 90)] {
        let path = root.join(format!("attrs-{file}"));
        fs::write(&path, file).expect("write");
        for number in 0..count {
            let value = content(len + number % 17, number as u64);
            set(&path, &format!("user.attribute-{number}"), &value);
        }
        set(&path, "trusted.t", b"root's");
        set(&path, "security.label", b"context");
    }
    let path = root.join("attrs-remote");
    fs::write(&path, "remote").expect("write");
    for (number, len) in [3000usize, 5000, 65536].into_iter().enumerate() {
        set(&path, &format!("user.big-{number}"), &content(len, 17));
    }
    set(&path, "user.empty", b"");
    let path = root.join("acl");
    fs::create_dir(&path).expect("mkdir");
    judge::run_ok("setfacl", &[&"-m", &"u:1000:rw,g:50:r", &path]);
    judge::run_ok("setfacl", &[&"-d", &"-m", &"u:1001:rwx", &path]);
}

fn others(root: &Path) {
    for len in [1usize, 80, 335, 337, 600, 1023] {
        symlink("t".repeat(len), root.join(format!("link-{len}"))).expect("symlink");
    }
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("block", FileType::BlockDevice, rustix::fs::makedev(259, 70000)),
    ] {
        let path = CString::new(root.join(name).to_str().expect("UTF-8")).expect("no NUL");
        mknodat(rustix::fs::CWD, path, kind, Mode::from_raw_mode(0o640), device).expect("mknod");
    }
    for (date, name) in [("1960-01-02 03:04:05", "old"), ("2035-05-05 01:02:03.123456789", "new")] {
        let path = root.join(format!("time-{name}"));
        fs::write(&path, name).expect("write");
        judge::run_ok("touch", &[&"-d", &date, &path]);
    }
    judge::run_ok("chown", &[&"70000:80000", &root.join("time-old")]);
    judge::run_ok("chmod", &[&"7751", &root.join("dir-of-3")]);
}
