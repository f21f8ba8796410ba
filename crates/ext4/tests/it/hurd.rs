//! ext2 of the GNU Hurd: creator OS 1, translators in `osd1`, authors and more in `osd2`.

use std::sync::Arc;

use crate::support::*;
use base::Errno;
use device::{MemoryDevice, RecordDevice};
use ext4::check::{CheckOptions, Rule};
use ext4::{MountError, MountOptions};
use testkit::judge;
use vfs::FileSystem;

/// An image of mke2fs with a file whose translator lies in a block, as `settrans` makes it.
fn image(translator: u64) -> MemoryDevice {
    let file = tempfile::NamedTempFile::new().expect("a file");
    judge::mke2fs(file.path(), 8 << 20, &["-t", "ext2", "-b", "1024", "-o", "hurd"]);
    let content = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(content.path(), b"of the Hurd").expect("written");
    let mut words = format!("write {} f\nsif f blocks 4\n", content.path().display());
    if translator != 0 {
        words += &format!("sif f translator {translator}\nsif f author 7\n");
    }
    judge::debugfs(file.path(), true, &words);
    // The bit of the block, and the counts.
    judge::run("e2fsck", &[&"-fy", &file.path()]);
    testkit::image::load(file.path())
}

/// Goal: it is read, and nothing writes it: the refusal has a name, and comes before any write.
#[test]
fn it_is_read_and_never_written() {
    let device = Arc::new(image(1000));
    rt::testing::world(|cx| {
        let record = Arc::new(RecordDevice::new(device.clone()));
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let (fs, _) = try_mount(cx, record.clone(), 8 << 20, options).expect("read");
        let found = fs.lookup(cx, fs.root(), b"f").expect("the file");
        let mut content = [0; 32];
        let len = fs.read(cx, found.ino, 0, &mut content).expect("read");
        assert_eq!(&content[..len], b"of the Hurd");
        assert_eq!(fs.unlink(cx, fs.root(), b"f").err(), Some(Errno::EROFS));
        fs.unmount(cx).expect("unmount");
        let written = try_mount(cx, record.clone(), 8 << 20, MountOptions::default());
        match written.err() {
            Some(error @ MountError::Hurd) => assert!(error.to_string().contains("creator OS 1")),
            other => panic!("{other:?}"),
        }
        assert!(record.is_empty(), "nothing is written");
    });
}

/// Goal: the block of a translator belongs to its file, as e2fsck has it. Method: a sound image,
/// and translators in a block of the file, of the metadata, and outside.
#[test]
fn translators_are_checked_as_by_e2fsck() {
    let rules = |device: &MemoryDevice| {
        let device = Arc::new(device.fork());
        rt::testing::world(|cx| {
            let queue = queue(cx, device);
            let report = ext4::check(cx, &queue, &CheckOptions::default()).expect("read");
            report.findings.iter().map(|finding| finding.rule).collect::<Vec<_>>()
        })
    };
    for translator in [0, 1000] {
        let sound = image(translator);
        assert_eq!(rules(&sound), [], "{translator}");
        judged(&sound, "sound");
    }
    for (place, rule) in [
        (3, Rule::BlockIsMetadata),
        (999_999, Rule::IndirectPlace),
        (1001, Rule::BlockBitmapMissing),
    ] {
        let file = testkit::image::write_device(&image(1000));
        judge::debugfs(file.path(), true, &format!("sif f translator {place}\n"));
        let broken = testkit::image::load(file.path());
        assert!(rules(&broken).contains(&rule), "{place}: {:?}", rules(&broken));
        assert!(judge::e2fsck(file.path()).is_err(), "{place}: e2fsck");
    }
}
