//! Logs of the kernel that end between an intent and its done item: changes of parent pointers, and
//! exchanges of ranges, are finished by us as the kernel finishes them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::log_common::cut::KernelLog;
use crate::log_common::replayed::{compare, ours, stop};
use crate::log_common::{copy, scratch};
use testkit::judge::LoopMount;
use testkit::newest;
use testkit::packed::unpack;

const ATTRI: u16 = 0x1246;

/// Says that the work is done, also by a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets `work` run in a mount of the kernel while the log is forced again and again, and shuts the
/// kernel down; returns the dirty image.
#[allow(clippy::disallowed_methods, reason = "the kernel is to do two things at once")]
fn dirty(dir: &Path, words: &[&str], work: impl FnOnce(&Path)) -> PathBuf {
    let image = dir.join("whole.img");
    newest::mkfs_xfs(&image, 320 << 20, words);
    let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
    let root = mount.path();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::create(root.join("tick")).expect("created");
            for size in 1.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                file.set_len(size).expect("a new size");
                file.sync_all().expect("synced");
            }
        });
        let _end = End(&done);
        work(&root);
    });
    stop(mount);
    image
}

/// Cuts the log behind records that hold such an item, and compares replays where the item is left
/// open there; so many of them. Returns how many there were.
fn cut_and_compare(dir: &Path, image: &Path, kind: u16, wanted: usize) -> usize {
    let log = KernelLog::read(image);
    let records = log.with_item(kind);
    let mut compared = 0;
    let step = (records.len() / 40).max(1);
    for &record in records.iter().step_by(step) {
        let [cut, dirty] = ["cut.img", "dirty.img"].map(|name| dir.join(name));
        log.cut(image, record, &cut);
        copy(&cut, &dirty);
        let replayed = ours(&dirty).unwrap_or_else(|error| panic!("record {record}: {error}"));
        if replayed.intents > 0 {
            if let Some(folder) = std::env::var_os("IOPATH_KEEP") {
                copy(&cut, &Path::new(&folder).join(format!("{record}.img")));
            }
            compare(dir, &cut);
            compared += 1;
            if compared == wanted {
                break;
            }
        }
    }
    compared
}

/// Names that come, go and move, in short forms and in trees of attributes.
fn names(root: &Path) {
    let [one, two] = ["one", "two"].map(|name| root.join(name));
    fs::create_dir(&one).expect("a directory");
    fs::create_dir(&two).expect("a directory");
    let target = one.join("target");
    File::create(&target).expect("created");
    for index in 0..3000 {
        let name = format!("{index}-{}", "n".repeat(index % 200));
        fs::hard_link(&target, one.join(&name)).expect("linked");
        fs::rename(one.join(&name), two.join(&name)).expect("renamed");
        let file = one.join(format!("f{index}"));
        File::create(&file).expect("created");
        fs::rename(&file, two.join("over")).expect("renamed");
        if index % 3 == 0 {
            fs::remove_file(two.join(&name)).expect("removed");
        }
    }
}

/// Goal: a change that was cut is finished as the kernel finishes it. Method: images in
/// `tests/intents` whose log of Linux 6.18 ends in the middle of a change, made by the test below
/// with `IOPATH_KEEP=FOLDER`, and packed with `zstd -19`. Those of exchanges are of Linux 7.2; it
/// was shut down (`xfs_io -x -c 'shutdown -f'`) while `xfs_io -c 'exchangerange A' B` ran and the
/// log was forced again and again: of two whole files, each with 800 extents and holes; and, with
/// `-w`, of a range of two files that share blocks with a third one.
#[test]
fn changes_that_were_cut_are_finished() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/intents");
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the folder of images") {
        let path = entry.expect("an entry").path();
        let dir = scratch();
        let [image, copied] = ["cut.img", "copy.img"].map(|name| dir.path().join(name));
        unpack(&path, &image);
        copy(&image, &copied);
        let replayed = ours(&copied).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(replayed.intents > 0, "{}: no intent was open", path.display());
        compare(dir.path(), &image);
        count += 1;
    }
    assert_eq!(count, 8);
}

/// The same on new logs of this machine's kernel (`IOPATH_KERNEL_LOGS=1`): whether a record ends in
/// the middle of a change depends on the machine's load, so the short form has the images above.
#[test]
fn new_logs_of_the_kernel_are_finished_too() {
    if std::env::var_os("IOPATH_KERNEL_LOGS").is_none() {
        return;
    }
    let dir = scratch();
    for words in [&[][..], &["-b", "size=1024"]] {
        let compared = (0..8).find_map(|_| {
            let image = dirty(dir.path(), words, names);
            Some(cut_and_compare(dir.path(), &image, ATTRI, 3)).filter(|&compared| compared > 0)
        });
        assert!(compared.is_some(), "{words:?}: no record of the kernel ends inside of a change");
    }
}
