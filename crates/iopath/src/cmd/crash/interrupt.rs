//! Ctrl-C while states are judged: checks that run are killed, and what was mounted and written for
//! them goes, before the process ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crash::host::{MOUNT, own_prefix};
use fuse::Signals;
use rustix::process::{Signal, kill_process, kill_process_group};

use super::directory::{self, places};
use super::merge::INCOMPLETE;
use super::orphans::{Child, children};

/// Who starts a check or makes a directory reads it; who ends the process writes it, and keeps it.
/// The threads that wait here are the host's: no task of ours waits for another one by it.
#[allow(clippy::disallowed_types, reason = "a signal comes beside all tasks, in real time")]
static GOING_ON: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// How often what is left is looked for, while the tasks that still write to it fail.
const LOOKS: u32 = 200;

/// Does what leaves a process or a directory behind, unless a signal has come: then it does not
/// come back.
pub fn unless_ended<T>(make: impl FnOnce() -> T) -> T {
    let _held = GOING_ON.read();
    make()
}

/// Waits for a signal in a thread of its own; then ends the process as one that is not complete.
/// `parent` is where the user wants directories to be made.
#[allow(clippy::disallowed_methods, reason = "a signal is waited for beside all tasks")]
pub fn watch(signals: Signals, parent: Option<&Path>) {
    let places = places(parent);
    std::thread::spawn(move || {
        let signal = signals.wait();
        let _kept = GOING_ON.write();
        for _ in 0..LOOKS {
            let children = children().into_iter();
            let children = children.filter(|child| !child.zombie && child.is_ours());
            let running: Vec<Child> = children.collect();
            for child in &running {
                let _it_may_lead_none = kill_process_group(child.pid, Signal::KILL);
                let _it_may_have_ended = kill_process(child.pid, Signal::KILL);
            }
            let left = places.iter().map(|place| remove(place)).sum::<usize>();
            if left == 0 && running.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        eprintln!("iopath: {signal}: not complete; with --results the same command goes on");
        std::process::exit(INCOMPLETE.into());
    });
}

/// Removes what this process has made in a directory, by its names; answers how much there was.
fn remove(place: &Path) -> usize {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let entries =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(own_prefix()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    // Mounts first: their images are in use.
    paths.sort_by_key(|path| path.extension().is_none_or(|extension| extension != MOUNT));
    for path in &paths {
        if path.extension().is_some_and(|extension| extension == MOUNT) {
            let _none_is_mounted = directory::unmount_below(path);
            let _none_is_mounted = fuse::unmount(path, true);
            let _a_directory_may_stay = std::fs::remove_dir(path);
        } else if path.is_dir() {
            let _a_directory_may_stay = directory::remove(path);
        } else {
            let _a_copy_may_stay = std::fs::remove_file(path);
        }
    }
    paths.len()
}
