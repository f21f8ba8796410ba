//! Damaged images by seed: after a repair e2fsck finds nothing, a second repair neither, and undo
//! gives the image back byte for byte.
//!
//! `IOPATH_SEEDS=n` runs n seeds of each kind of image in place of the few of an ordinary run.

mod support;

use base::Rng;
use device::MemoryDevice;
use std::sync::Arc;
use support::*;
use testkit::campaign::{Watchdog, seeds};

struct Count {
    sound: u32,
    repaired: u32,
    refused: u32,
    failed: Vec<String>,
}

fn one(base: &MemoryDevice, blocks: &[u64], kind: &Kind, seed: u64, count: &mut Count) {
    let _watchdog = Watchdog::new(format!("{} seed {seed}", kind.name), 100);
    let mut rng = Rng::new(seed, 77);
    let mut image = base.snapshot();
    let what = damage(&mut image, blocks, kind.block.into(), &mut rng);
    let name = format!("{} seed {seed}: {what}", kind.name);
    let device = Arc::new(MemoryDevice::from_image(&image));
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| plan(&device)));
    let plan_ = match tried {
        Err(_) => return count.failed.push(format!("{name}: PANIC")),
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
    let file = testkit::judge::write_sparse(&device.snapshot());
    if let Err(text) = testkit::judge::e2fsck(file.path()) {
        let acts: Vec<String> = plan_
            .findings
            .iter()
            .take(8)
            .map(|f| format!("{} {}: {}: {}", f.rule, f.at, f.detail, f.action))
            .collect();
        count.failed.push(format!("{name}: {text}\nplan: {acts:#?}"));
    }
    match plan(&device) {
        Ok(again) if again.is_clean() => {}
        Ok(again) => {
            count.failed.push(format!("{name}: a second repair finds {:?}", again.findings))
        }
        Err(error) => count.failed.push(format!("{name}: a second repair fails: {error}")),
    }
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        undo.undo(cx, &queue).expect("undo");
    });
    if device.snapshot() != image {
        count.failed.push(format!("{name}: undo gives another image"));
    }
}

/// Goal: whatever one to four blows do to an image, the repair makes it clean in one run. Method:
/// by seed, over small images of each kind.
#[test]
fn damaged_images_are_clean_after_one_repair() {
    let mut count = Count { sound: 0, repaired: 0, refused: 0, failed: Vec::new() };
    let only = std::env::var("IOPATH_KIND").ok();
    for kind in KINDS.iter().filter(|kind| only.as_ref().is_none_or(|name| name == kind.name)) {
        let base = kind.image();
        let blocks = metadata(&base, kind.block.into());
        for seed in seeds(25) {
            one(&base, &blocks, kind, seed, &mut count);
        }
    }
    println!("{} sound, {} repaired, {} refused", count.sound, count.repaired, count.refused);
    assert!(count.failed.is_empty(), "{}: {}", count.failed.len(), count.failed.join("\n\n"));
    assert!(count.refused * 20 <= count.repaired, "{} were refused", count.refused);
}
