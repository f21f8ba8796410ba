//! `Image::repair`: damaged images are whole again for the outside judges, and what was changed is
//! in the undo file.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use image::{Errno, Format, Image};

/// What is destroyed, and bytes of an image: the table of groups of ext4, the free space of the
/// first group of XFS.
const DAMAGE: [(Format, u64, usize); 2] = [(Format::Ext, 4096, 512), (Format::Xfs, 512, 512)];

fn judge(format: Format, image: &Path) {
    match format {
        Format::Ext => testkit::judge::e2fsck(image).unwrap(),
        Format::Xfs => testkit::judge::xfs_repair(image).unwrap(),
    }
}

#[test]
fn a_damaged_image_is_repaired_once() {
    for (format, at, len) in DAMAGE {
        let folder = tempfile::tempdir().unwrap();
        let [path, undo, other] =
            ["a.img", "a.undo", "b.undo"].map(|name| folder.path().join(name));
        let mounted = Image::create(&path, 400 << 20).format(format).make().unwrap().fs().unwrap();
        mounted.create_dir("/d").unwrap();
        mounted.write("/d/f", [7; 10_000]).unwrap();
        let image = mounted.unmount().unwrap();
        assert!(image.repair(&undo).unwrap().is_clean() && !undo.exists(), "nothing is wrong");
        drop(image);
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .write_all_at(&vec![0; len], at)
            .unwrap();
        let damaged = fs::read(&path).unwrap();
        let image = Image::open(&path).unwrap();
        assert_eq!(image.repair(&undo).unwrap_err().errno(), Errno::EROFS);
        assert!(!image.repair_plan().unwrap().findings.is_empty(), "{format:?}");
        drop(image);
        let image = Image::options().write(true).open(&path).unwrap();
        fs::write(&other, "no undo file").unwrap();
        assert_eq!(image.repair(&other).unwrap_err().errno(), Errno::EINVAL);
        assert!(fs::read(&path).unwrap() == damaged, "nothing was written yet");
        let done = image.repair(&undo).unwrap();
        assert!(!done.findings.is_empty() && undo.exists(), "{format:?}");
        assert!(image.check().unwrap().clean, "{format:?}");
        assert!(image.repair(&undo).unwrap().is_clean(), "it was done before");
        assert_eq!(image.undo(&other).unwrap_err().errno(), Errno::EINVAL);
        image.undo(&undo).unwrap();
        assert!(fs::read(&path).unwrap() == damaged, "all is as before, {format:?}");
        fs::remove_file(&undo).unwrap();
        // What is written holds the time, so only the findings are the same.
        assert_eq!(image.repair(&undo).unwrap().findings, done.findings);
        let mounted = image.fs().unwrap();
        assert_eq!(mounted.read("/d/f").unwrap(), [7; 10_000]);
        mounted.unmount().unwrap();
        judge(format, &path);
    }
}
