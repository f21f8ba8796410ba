//! A mounted image becomes larger while programs use it.

use std::fs;
use std::os::unix::process::CommandExt;

use testkit::judge::{self, LoopMount};

use crate::host::{Mounted, check, image, iopath, place};

const MIB: u64 = 1 << 20;

/// Goal: `iopath resize` of what is mounted, by the name of the image or of the directory, while
/// files are written; a program sees the new size at once; others than its owner may not. Method:
/// ext4 of mke2fs; what is written needs more than the old size; e2fsck and the kernel read it.
#[test]
fn a_mounted_image_grows_while_it_is_used() {
    let place = place();
    let image = image(place.path(), "ext4", 64 * MIB);
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
    let (code, said) = resize(&[&"resize", &image, &"200M"]);
    assert!(code == Some(0) && said.contains("mounted on"), "{said}");
    assert_eq!(fs::metadata(&image).expect("an image").len(), 200 * MIB);
    assert!(free() > before + 100 * MIB, "{} after {before}", free());
    fs::write(mount.dir().join("after"), vec![2; 100 << 20]).expect("room");
    let file = fs::File::options().write(true).open(&image).expect("an image");
    file.set_len(400 * MIB).expect("longer");
    let (code, said) = resize(&[&"resize", &"--json", &mount.dir()]);
    assert!(code == Some(0) && said.contains("\"changed\":true"), "{said}");
    let (code, said) = resize(&[&"resize", &image, &"100M"]);
    assert!(code == Some(1) && said.contains("grows only"), "{said}");
    let (code, said) = resize(&[&"resize", &"-M", &image]);
    assert!(code == Some(1) && said.contains("unmount it"), "{said}");
    let mut stranger = iopath(&[&"resize", &mount.dir(), &"400M"]);
    let output = stranger.uid(65534).gid(65534).output().expect("it runs");
    assert!(!output.status.success(), "{output:?}");
    fs::write(mount.dir().join("last"), vec![3; 150 << 20]).expect("room");
    mount.unmount();
    check(&image);
    let kernel = LoopMount::new(&image, "ext4", "").expect("the kernel mounts it");
    for (name, byte, len) in [("before", 1, 40), ("after", 2, 100), ("last", 3, 150)] {
        let content = fs::read(kernel.path().join(name)).expect("it is there");
        assert!(content.len() == len << 20 && content.iter().all(|&found| found == byte));
    }
    drop(kernel);
    judge::e2fsck(&image).expect("sound after the kernel's mount");
}
