//! Damaged images by seed: after a repair e2fsck finds nothing, a second repair neither, and undo
//! gives the image back byte for byte.
//!
//! `IOPATH_SEEDS=n` runs n seeds of each kind of image in place of the few of an ordinary run;
//! `IOPATH_KEEP=FILE` keeps the last mutant.

mod features;
mod support;
mod xfs_support;

use base::Rng;
use device::MemoryDevice;
use std::sync::Arc;
use support::*;
use testkit::campaign::{Watchdog, seeds};
use xfs_support as on_xfs;

struct Count {
    sound: u32,
    repaired: u32,
    refused: u32,
    failed: Vec<String>,
}

/// What an outside checker says of an image file.
type Judge = fn(&std::path::Path) -> Result<(), String>;

/// What e2fsck says of an image with data behind names, which it does not know: without them.
fn e2fscks_without_data(image: &std::path::Path) -> Result<(), String> {
    let plain = data::take(&testkit::image::read(image));
    testkit::judge::e2fsck(testkit::image::write(&plain).path())
}

/// Repairs a mutant and has it judged.
fn one(name: String, image: &[u8], judge: Judge, count: &mut Count) {
    let _watchdog = Watchdog::new(name.clone(), 100);
    if let Ok(path) = std::env::var("IOPATH_KEEP") {
        std::fs::write(path, image).expect("the mutant is kept");
    }
    let device = Arc::new(MemoryDevice::from_image(image));
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| plan(&device)));
    let plan_ = match tried {
        Err(_) => return count.fail(format!("{name}: PANIC")),
        Ok(Err(error)) => {
            count.refused += 1;
            return println!("{name}: refused: {error}");
        }
        Ok(Ok(plan)) => plan,
    };
    if !plan_.left.is_empty() {
        count.refused += 1;
        return println!("{name}: left: {:?}", &plan_.left[..plan_.left.len().min(4)]);
    }
    if plan_.is_clean() {
        count.sound += 1;
    } else {
        count.repaired += 1;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut undo = apply(&(device.clone() as _), &plan_, dir.path());
    let file = testkit::image::write_device(&device);
    if let Err(text) = judge(file.path()) {
        let acts: Vec<String> = plan_
            .findings
            .iter()
            .take(8)
            .map(|f| format!("{} {}: {}: {}", f.rule, f.at, f.detail, f.action))
            .collect();
        count.fail(format!("{name}: {text}\nplan: {acts:#?}"));
    }
    match plan(&device) {
        Ok(again) if again.is_clean() => {}
        Ok(again) => count.fail(format!("{name}: a second repair finds {:?}", again.findings)),
        Err(error) => count.fail(format!("{name}: a second repair fails: {error}")),
    }
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        undo.undo(cx, &queue).expect("undo");
    });
    if device.snapshot() != image {
        count.fail(format!("{name}: undo gives another image"));
    }
}

/// Goal: whatever one to four blows do to an image, the repair makes it clean in one run. Method:
/// by seed, over small images of each kind.
#[test]
fn damaged_images_are_clean_after_one_repair() {
    campaign(KINDS, 18);
}

/// The same for features that not every image has.
#[test]
fn damaged_images_with_other_features_are_clean_after_one_repair() {
    campaign(FEATURES, 2);
}

/// Damages images of these kinds, a few of each in an ordinary run.
fn campaign(kinds: &[Kind], few: u64) {
    let mut count = Count { sound: 0, repaired: 0, refused: 0, failed: Vec::new() };
    for kind in kinds.iter().filter(|kind| wanted(kind.name)) {
        let base = kind.image();
        let blocks = metadata(&base, kind.block.into());
        for seed in seeds(few) {
            let mut image = base.snapshot();
            let mut rng = Rng::new(seed, 77);
            let what = damage(&mut image, &blocks, kind.block.into(), &mut rng);
            let name = format!("{} seed {seed}: {what}", kind.name);
            let judge = if kind.extra == Extra::Data {
                e2fscks_without_data
            } else {
                testkit::judge::e2fsck
            };
            one(name, &image, judge, &mut count);
        }
    }
    count.judge(5);
}

/// A reserved inode whose checksum did not fit stayed as it was, and the repair was refused.
#[test]
fn a_reserved_inode_with_a_wrong_checksum_is_repaired() {
    let mut image = KINDS[0].image().snapshot();
    let word = |image: &[u8], at: usize| u16::from_le_bytes([image[at], image[at + 1]]) as usize;
    let (size, table) = (word(&image, 1024 + 88), word(&image, 2 * 1024 + 8));
    // The lower half of the checksums of 1, the bad blocks, and of three that nothing uses.
    for ino in [1, 4, 9, 10] {
        let slot = table * 1024 + (ino - 1) * size;
        image[slot..slot + size].fill(0);
        image[slot + 8] = 7;
        image[slot + 124] = 0x5a;
    }
    let mut count = Count { sound: 0, repaired: 0, refused: 0, failed: Vec::new() };
    one("reserved".into(), &image, testkit::judge::e2fsck, &mut count);
    assert_eq!(count.repaired, 1);
    count.judge(0);
}

/// The same for XFS, whose check goes by sums: they hide nothing.
#[test]
fn damaged_images_of_xfs_are_clean_after_one_repair() {
    let mut count = Count { sound: 0, repaired: 0, refused: 0, failed: Vec::new() };
    for kind in on_xfs::KINDS.iter().filter(|kind| wanted(kind.name)) {
        let base = kind.image();
        let blocks = on_xfs::metadata(&base);
        for seed in seeds(6) {
            let mut image = base.snapshot();
            let g = on_xfs::geometry(&image).expect("a sound image");
            let mut rng = Rng::new(seed, 77);
            let what = on_xfs::damage(&mut image, &blocks, &g, &mut rng);
            let name = format!("{} seed {seed}: {what}", kind.name);
            if let Some(text) = sums_differ(&image) {
                count.fail(format!("{name}: {text}"));
            }
            one(name, &image, testkit::judge::xfs_repair, &mut count);
        }
    }
    count.judge(2);
}

/// What a check that goes by sums says otherwise than one that compares every record.
fn sums_differ(image: &[u8]) -> Option<String> {
    let device = Arc::new(MemoryDevice::from_image(image));
    let [sums, records] = [false, true].map(|every_record| {
        rt::testing::world(|cx| {
            let queue = queue(cx, device.clone());
            let options = xfs::CheckOptions { every_record, ..Default::default() };
            xfs::check(cx, &queue, &options).expect("memory")
        })
    });
    (sums != records).then(|| format!("by sums {sums:?}, by records {records:?}"))
}

/// `IOPATH_KIND` names one kind.
fn wanted(name: &str) -> bool {
    std::env::var("IOPATH_KIND").ok().is_none_or(|only| only == name)
}

impl Count {
    /// A campaign is long: what fails is said at once.
    fn fail(&mut self, text: String) {
        println!("FAILED {text}");
        self.failed.push(text);
    }

    fn judge(self, refused_percent: u32) {
        println!("{} sound, {} repaired, {} refused", self.sound, self.repaired, self.refused);
        assert!(self.failed.is_empty(), "{}: {}", self.failed.len(), self.failed.join("\n\n"));
        let all = self.sound + self.repaired + self.refused;
        assert!(self.refused * 100 <= all * refused_percent, "{} were refused", self.refused);
    }
}
