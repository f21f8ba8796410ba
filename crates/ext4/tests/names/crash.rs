//! Power cuts in the middle of growing and changing directories.

use std::sync::Arc;

use base::{Ino, Rng};
use device::RecordDevice;
use rt::Cx;
use testkit::{crash, judge};
use vfs::{FileSystem, RenameFlags};

use super::support::*;

/// What a directory holds.
type State = Vec<(Vec<u8>, Ino)>;

/// One random operation on the names of a directory; long names, so that leaves and nodes split.
fn step(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, rng: &mut Rng) {
    let name = |n: u64| format!("{n:0>200}").into_bytes();
    let (a, b) = (name(rng.below(150)), name(rng.below(150)));
    // Errors are right answers too: they change nothing.
    let _ = match rng.below(6) {
        0..=2 => {
            fs.create(cx, dir, &a, &vfs::NewNode::new(vfs::FileType::Regular, 0o600)).map(drop)
        }
        3 => fs.create(cx, dir, &a, &vfs::NewNode::new(vfs::FileType::Directory, 0o700)).map(drop),
        4 => fs.rename(cx, dir, &a, dir, &b, RenameFlags::empty()),
        _ => fs.unlink(cx, dir, &a).or_else(|_| fs.rmdir(cx, dir, &a)),
    };
}

/// Answers how many cuts lost something.
fn cut_in_the_middle(cx: &mut Cx, shape: &str, seed: u64) -> usize {
    let image = Image::new(shape, 8);
    let fs = image.mount(cx);
    let root = fs.root();
    let dir = mkdir(cx, &*fs, root, b"dir");
    close(cx, fs, &image);

    let base = image.device.fork();
    let record = Arc::new(RecordDevice::new(image.device.clone()));
    let fs = mount_device(cx, record.clone());
    let mut rng = Rng::new(seed, 6);
    let mut states: Vec<State> = vec![Vec::new()];
    for number in 1..=200 {
        step(cx, &*fs, dir, &mut rng);
        let mut state = list(cx, &*fs, dir);
        state.sort();
        states.push(state);
        if rng.chance(0.05) {
            fs.fsync(cx, dir, false).expect("the directory is durable");
            record.mark(number);
        }
    }
    fs.sync(cx).expect("all is durable");
    record.mark(200);
    fs.shutdown_hard();

    let config =
        crash::CrashConfig { random: 25, at_flushes_max: 40, ..crash::CrashConfig::new(seed) };
    let mut checked = 0;
    let report = crash::explore(&config, &base, &record.log(), |device, case| {
        let fs = try_mount(cx, device.clone()).map_err(|error| error.to_string())?;
        let mut state = list(cx, &*fs, dir);
        state.sort();
        fs.unmount(cx).map_err(|errno| errno.to_string())?;
        let least = case.promised.last().copied().unwrap_or(0) as usize;
        if !states[least..].contains(&state) {
            return Err(format!("{} names are no state after operation {least}", state.len()));
        }
        checked += 1;
        if checked % 4 == 0 {
            judge::e2fsck_device(&device)?;
        }
        Ok(())
    });
    assert!(report.with_promises > 10, "{report:?}");
    report.lossy
}

/// After a power cut a directory holds what it held after one of the operations, none before the
/// last one that was promised: operations are whole or not there, in their order, splits included.
#[test]
fn a_power_cut_leaves_a_state_that_was() {
    let mut lossy = 0;
    for seed in rt::testing::seeds(8) {
        let shapes =
            ["-t ext4 -b 1024", "-t ext3 -b 1024", "-t ext4 -b 4096", "-t ext4 -O inline_data"];
        let shape = shapes[seed as usize % shapes.len()];
        lossy += rt::testing::world(|cx| cut_in_the_middle(cx, shape, seed));
    }
    assert!(lossy > 0, "some cut lost a write");
}
