//! A mounted image becomes larger while programs use it.

use std::fs;
use std::os::unix::process::CommandExt;

use testkit::judge::{self, LoopMount};
use testkit::newest;

use crate::host::{Mounted, check, image, iopath, place};

const MIB: u64 = 1 << 20;

/// Goal: `iopath resize` of what is mounted, by the name of the image or of the directory, while
/// files are written; a program sees the new size at once; others than its owner may not. Method:
/// ext4 of mke2fs and XFS of mkfs.xfs; what is written needs more than the old size; e2fsck,
/// xfs_repair and the kernel read it.
#[test]
fn a_mounted_image_grows_while_it_is_used() {
    in_use("ext4", 64, [200, 400]);
    in_use("xfs", 320, [450, 650]);
}

/// Sizes in MiB.
fn in_use(kind: &str, first: u64, later: [u64; 2]) {
    let place = place();
    let image = image(place.path(), kind, first * MIB);
    let [second, third] = later;
    let mount = Mounted::new(&image, "");
    let resize = |words: &[&dyn AsRef<std::ffi::OsStr>]| {
        let output = iopath(words).output().expect("it runs");
        let both = [&output.stdout[..], &output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&both).into_owned())
    };
    let free = || {
        let stat = rustix::fs::statvfs(mount.dir()).expect("statvfs");
        stat.f_bavail * stat.f_frsize
    };
    fs::write(mount.dir().join("before"), vec![1; 40 << 20]).expect("room");
    let before = free();
    let (code, said) = resize(&[&"resize", &image, &format!("{second}M")]);
    assert!(code == Some(0) && said.contains("mounted on"), "{said}");
    assert_eq!(fs::metadata(&image).expect("an image").len(), second * MIB);
    let more = second - first;
    assert!(free() > before + (more - 36) * MIB, "{} after {before}", free());
    let after = before / MIB + more / 2;
    fs::write(mount.dir().join("after"), vec![2; (after * MIB) as usize]).expect("room");
    let file = fs::File::options().write(true).open(&image).expect("an image");
    file.set_len(third * MIB).expect("longer");
    let (code, said) = resize(&[&"resize", &"--json", &mount.dir()]);
    assert!(code == Some(0) && said.contains("\"changed\":true"), "{said}");
    let (code, said) = resize(&[&"resize", &image, &format!("{}M", second - 100)]);
    assert!(code == Some(1) && said.contains("grows only"), "{said}");
    let (code, said) = resize(&[&"resize", &"-M", &image]);
    assert!(code == Some(1) && said.contains("unmount it"), "{said}");
    let mut stranger = iopath(&[&"resize", &mount.dir(), &format!("{third}M")]);
    let output = stranger.uid(65534).gid(65534).output().expect("it runs");
    assert!(!output.status.success(), "{output:?}");
    fs::write(mount.dir().join("last"), vec![3; 150 << 20]).expect("room");
    mount.unmount();
    check(&image);
    let kernel = LoopMount::new(&image, kind, "").expect("the kernel mounts it");
    for (name, byte, len) in [("before", 1, 40), ("after", 2, after as usize), ("last", 3, 150)] {
        let content = fs::read(kernel.path().join(name)).expect("it is there");
        assert!(content.len() == len << 20 && content.iter().all(|&found| found == byte));
    }
    drop(kernel);
    check(&image);
}

/// Prints what `XFS_IOC_FSGEOMETRY` answers; before that asks for a size by `XFS_IOC_FSGROWFSDATA`,
/// with the share of inodes as it is and another one.
const IOCTLS: &str = "
import fcntl, os, struct, sys
root = os.open(sys.argv[1], os.O_RDONLY)
geometry = bytearray(256)
fcntl.ioctl(root, 0x8100587e, geometry)
if len(sys.argv) > 2:
    percent = struct.unpack_from('I', geometry, 28)[0]
    for change in (1, 0):
        want = struct.pack('QIxxxx', int(sys.argv[2]), percent + change)
        try:
            fcntl.ioctl(root, 0x4010586e, want)
        except OSError as error:
            assert change, error
        else:
            assert not change, 'another share of inodes'
    fcntl.ioctl(root, 0x8100587e, geometry)
print(geometry.hex())
";

/// Goal: the ioctls of XFS grow a mount, and show what it is, as the kernel does. Method: images of
/// the newest mkfs.xfs; the answers for each are equal.
#[test]
fn the_ioctls_of_xfs_answer_as_the_kernel_does() {
    let place = place();
    let image = place.path().join("xfs.img");
    for words in [
        "",
        "-m finobt=0,reflink=0,rmapbt=0,inobtcount=0,bigtime=0 -i exchange=0,nrext64=0 -n parent=0",
        "-m reflink=0 -i sparse=0,size=1024 -s size=4096 -d su=64k,sw=2",
        "-b size=1024 -n size=8192 -m metadir=1 -i maxpct=7",
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        newest::mkfs_xfs(&image, 900 * MIB, &words);
        let mount = Mounted::new(&image, "");
        // A file with an attribute, which the superblock notes; parent pointers are some.
        fs::write(mount.dir().join("file"), "content").expect("room");
        judge::run_ok("setfattr", &[&"-n", &"user.a", &"-v", &"b", &mount.dir().join("file")]);
        let block = rustix::fs::statvfs(mount.dir()).expect("statvfs").f_frsize;
        let file = fs::File::options().write(true).open(&image).expect("an image");
        file.set_len(1234 * MIB).expect("longer");
        let blocks = (1234 * MIB / block).to_string();
        let ours = judge::run_ok("python3", &[&"-c", &IOCTLS, &mount.dir(), &blocks]);
        mount.unmount();
        check(&image);
        let kernel = LoopMount::new(&image, "xfs", "").expect("the kernel mounts it");
        let theirs = judge::run_ok("python3", &[&"-c", &IOCTLS, &kernel.path()]);
        assert_eq!(ours, theirs, "{words:?}");
        let size = format!("{:016x}", (1234 * MIB / block).swap_bytes());
        assert_eq!(&ours[64..80], size, "{words:?}");
    }
}

/// Goal: so does the disk of a mounted qcow2, by the mount itself. Method: the same; a size must be
/// given, since the file has none; QEMU reads what was written behind the old end.
#[test]
fn a_mounted_container_grows() {
    in_a_container("ext4", [64, 300], 200);
    in_a_container("xfs", [320, 560], 300);
}

/// Sizes, and of what is written behind the old end, in MiB.
fn in_a_container(kind: &str, [first, second]: [u64; 2], after: usize) {
    let place = place();
    let image = place.path().join("disk.qcow2");
    judge::run_ok("qemu-img", &[&"create", &"-fqcow2", &image, &format!("{first}M")]);
    let made = iopath(&[&"mkfs", &"-q", &"-t", &kind, &image]).output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    let mount = Mounted::new(&image, "");
    let resize = |words: &[&dyn AsRef<std::ffi::OsStr>]| {
        let output = iopath(words).output().expect("it runs");
        let both = [&output.stdout[..], &output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&both).into_owned())
    };
    fs::write(mount.dir().join("before"), vec![1; 40 << 20]).expect("room");
    let (code, said) = resize(&[&"resize", &mount.dir()]);
    assert!(code == Some(1) && said.contains("give the size"), "{said}");
    let (code, said) = resize(&[&"resize", &image, &format!("{second}M")]);
    assert!(code == Some(0) && said.contains("mounted on"), "{said}");
    fs::write(mount.dir().join("after"), vec![2; after << 20]).expect("room");
    mount.unmount();
    judge::run_ok("qemu-img", &[&"check", &image]);
    let raw = place.path().join(format!("{kind}.img"));
    judge::run_ok("qemu-img", &[&"convert", &"-Oraw", &image, &raw]);
    assert_eq!(fs::metadata(&raw).expect("the disk").len(), second * MIB);
    check(&raw);
    let kernel = LoopMount::new(&raw, kind, "").expect("the kernel mounts it");
    for (name, byte, len) in [("before", 1, 40), ("after", 2, after)] {
        let content = fs::read(kernel.path().join(name)).expect("it is there");
        assert!(content.len() == len << 20 && content.iter().all(|&found| found == byte));
    }
}
