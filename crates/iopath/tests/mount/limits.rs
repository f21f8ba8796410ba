//! Limits that hold for programs on a mount.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;

use rustix::io::Errno;
use testkit::judge;

use crate::host::{Mounted, check, image, iopath, on_each_format, place, shell, wait_until};

/// Quota: what a user writes through the kernel's cache is held to his limit of space, to the
/// block, and his files to the limit of inodes; write(2) tells who never asks; root is not held;
/// e2fsck counts the same.
#[test]
fn a_user_is_held_to_his_quota() {
    let place = place();
    let path = place.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    let image = path.join("ext4.img");
    judge::mke2fs(&image, 64 << 20, &["-t", "ext4", "-O", "quota"]);
    let quota = |rest: &str| {
        let words: Vec<&str> = rest.split(' ').collect();
        let mut command = iopath(&[&"quota"]);
        let output = command.args(words).arg(&image).output().expect("the command starts");
        assert!(output.status.success(), "quota {rest}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    quota("set --kind user --id 1234 --block-hard 400 --inode-hard 3");
    // As far as the limit, and no farther: `dd` tells by its status.
    for options in ["", ",nowriteback"] {
        let mount = Mounted::new(&image, options);
        fs::write(
            mount.dir().join("user.sh"),
            "dd() { command dd if=/dev/zero status=none conv=fsync \"$@\" 2>/dev/null; }
             set -e; dd of=open/f bs=64k count=4
             if dd of=open/g bs=64k count=16; then exit 1; fi
             test $(du -sk open/g | cut -f1) -le 144; rm open/g; dd of=open/g bs=16k count=9
             case \"$(timeout 100 dd if=/dev/zero of=open/e bs=64k 2>&1)\" in
               *'quota exceeded'*) rm open/e;; *) exit 4;; esac
             touch open/h; if (echo >open/i) 2>/dev/null; then exit 3; fi
             rm open/f open/g open/h\n",
        )
        .unwrap();
        shell(
            mount.dir(),
            "mkdir -p open; chmod 1777 open; head -c 3000000 /dev/zero >open/root; sync open/root",
        );
        let user = "setpriv --reuid 1234 --regid 77 --clear-groups sh user.sh";
        shell(mount.dir(), user);
        mount.unmount();
        check(&image);
    }
}

const MIB: u64 = 1 << 20;

/// Bytes that can be written yet.
fn room(dir: &Path) -> u64 {
    let stat = rustix::fs::statvfs(dir).unwrap();
    stat.f_bfree * stat.f_frsize
}

/// Writes to a new file in calls of `size` bytes until one is refused; answers how much was taken.
fn write_until_refused(path: &Path, size: usize) -> (u64, Option<i32>) {
    let mut file = fs::File::create(path).unwrap();
    let (mut taken, part) = (0, vec![5; size]);
    loop {
        match file.write(&part) {
            Ok(count) => taken += count as u64,
            Err(error) => return (taken, error.raw_os_error()),
        }
        assert!(taken < 4 << 30, "a program that writes without end is not stopped");
    }
}

/// Programs that write without end and never ask are told by write(2) that the image is full, not
/// far behind its end; so are several at once, and others tell their users. Looking at the file
/// does not fail. What was there stays as it was, and where something is removed writing goes on.
fn write_tells_that_the_image_is_full(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 96 << 20);
    let mount = Mounted::new(&image, "");
    let dir = mount.dir();
    let keep = place.path().join("keep");
    shell(place.path(), &format!("seq 300000 >keep; cp keep {0}; sync {0}/keep", dir.display()));
    let full = Some(Errno::NOSPC.raw_os_error());
    for size in [1 << 20, 70_000, 4096] {
        let file = dir.join("file");
        // What was removed is free a moment later.
        wait_until("room", || room(dir) > 32 * MIB);
        let before = room(dir);
        let (taken, told) = write_until_refused(&file, size);
        assert_eq!(told, full, "{kind}, {size}");
        // What the kernel collects before it writes back; the rest was told by close.
        assert!(taken < before + 64 * MIB, "{kind}, {size}: {taken} taken of {before}");
        assert!(fs::metadata(&file).unwrap().len() <= taken);
        fs::remove_file(&file).unwrap();
    }
    thread::scope(|scope| {
        for number in 0..3 {
            let file = dir.join(format!("file{number}"));
            scope.spawn(move || assert_eq!(write_until_refused(&file, 100_000).1, full, "{kind}"));
        }
    });
    let outside = place.path().display();
    shell(
        dir,
        &format!(
            "rm file*; truncate -s 2G {outside}/large
             told={outside}/told
             fails() {{ ! timeout 100 \"$@\" 2>$told; grep 'No space left' $told; }}
             fails dd if=/dev/zero of=file bs=1M; fails dd if=/dev/zero of=file bs=1M; rm file
             fails sh -c 'yes >file'; rm file
             fails cp --sparse=never {outside}/large file; rm file"
        ),
    );
    let content = fs::read(&keep).unwrap();
    assert!(fs::read(dir.join("keep")).unwrap() == content, "{kind}");
    fs::write(dir.join("again"), &content).unwrap();
    fs::File::open(dir.join("again")).unwrap().sync_all().unwrap();
    mount.unmount();
    check(&image);
    let mount = Mounted::new(&image, "");
    for name in ["keep", "again"] {
        assert!(fs::read(mount.dir().join(name)).unwrap() == content, "{kind}: {name}");
    }
    mount.unmount();
}

/// Direct writes into the holes of a file until the image is full: the last one finds room for a
/// part, and the program gets `ENOSPC`. The kernel makes `EIO` of a short answer to such a write.
fn direct_writes_into_holes_tell_that_the_image_is_full(kind: &str) {
    const SIZE: u64 = 512 << 20;
    let place = place();
    let image = image(place.path(), kind, 96 << 20);
    let mount = Mounted::new(&image, "");
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
    let file = options.open(mount.dir().join("file")).unwrap();
    file.set_len(SIZE).unwrap();
    // Less than a multiple fits in the end.
    let size = 300 << 12;
    let memory = vec![7; size + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    let told = (0..SIZE / size as u64).find_map(|at| {
        let wrote = file.write_at(&memory[skip..skip + size], at * size as u64);
        wrote.map_err(|error| error.raw_os_error()).err()
    });
    assert_eq!(told, Some(Some(Errno::NOSPC.raw_os_error())), "{kind}");
    drop(file);
    mount.unmount();
    check(&image);
}

/// Direct writes that make a file longer until the image is full: the last one finds room for a
/// part, and the program gets `ENOSPC`; the file ends where the one before did.
fn direct_writes_that_grow_a_file_tell_that_the_image_is_full(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 32 << 20);
    let mount = Mounted::new(&image, "");
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
    let file = options.open(mount.dir().join("file")).unwrap();
    // Less than a multiple fits in the end.
    let data = vec![7; 77 << 12];
    let mut size = 0;
    let told = loop {
        match file.write_at(&data, size) {
            Ok(count) => size += count as u64,
            Err(error) => break error.raw_os_error(),
        }
    };
    assert_eq!(told, Some(Errno::NOSPC.raw_os_error()), "{kind}");
    assert_eq!(file.metadata().unwrap().len(), size, "{kind}");
    drop(file);
    mount.unmount();
    check(&image);
}

on_each_format!(
    write_tells_that_the_image_is_full,
    direct_writes_into_holes_tell_that_the_image_is_full,
    direct_writes_that_grow_a_file_tell_that_the_image_is_full,
);
