//! The same system calls on our mount and on the kernel's own mount of the same format: results,
//! error numbers, and what the trees look like afterwards must be equal. `IOPATH_SEEDS=500` runs
//! more random sequences; a difference prints the seed and the calls up to it.

pub mod calls;
mod limits;
mod matrix;
mod mixtures;
mod random;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::io::Errno;
use testkit::judge::LoopMount;

use crate::host::{Mounted, check, image, on_each_format, place};
use calls::{Call, User, World};

/// Two worlds side by side.
struct Pair {
    ours: World,
    kernel: World,
    done: u64,
    differences: Vec<String>,
    /// Nobody else is let in.
    root_alone: bool,
}

impl Pair {
    /// Runs a call on both; notes a difference with what led to it. Answers what ours said.
    fn call(&mut self, user: User, call: &Call, history: &dyn Fn() -> String) -> String {
        self.done += 1;
        let (ours, kernel) = (self.ours.run(user, call), self.kernel.run(user, call));
        if ours != kernel {
            let before = history();
            self.differences.push(format!(
                "{before}{user:?} {call:?}\n    ours:   {ours}\n    kernel: {kernel}"
            ));
        }
        ours
    }

    /// Compares the trees.
    fn compare(&mut self, history: &dyn Fn() -> String) {
        let (ours, kernel) = (self.ours.snapshot(), self.kernel.snapshot());
        if ours != kernel {
            let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
            let (left, right) = (lines(&ours), lines(&kernel));
            let only = |a: &[String], b: &[String]| -> String {
                a.iter().filter(|l| !b.contains(l)).map(|l| format!("      {l}\n")).collect()
            };
            self.differences.push(format!(
                "{}the trees differ\n    ours:\n{}    kernel:\n{}",
                history(),
                only(&left, &right),
                only(&right, &left)
            ));
        }
    }
}

/// Options of a mount like the kernel's own.
const EVERYBODY: &str = "allow_other,suid,dev";

/// Runs `work` on both mounts of fresh images.
#[track_caller]
fn side_by_side(kind: &'static str, options: &str, work: impl FnOnce(&mut Pair) + Send) {
    let place = place();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let ours_image = image(place.path(), kind, 320 << 20);
    let kernel_image = place.path().join("kernel.img");
    fs::copy(&ours_image, &kernel_image).unwrap();
    let ours = Mounted::exactly(ours_image.as_os_str(), &ours_image, options);
    let kernel = LoopMount::new(&kernel_image, kind, "rw,noatime").unwrap();
    let root_alone = !options.contains("allow_other");
    Sides { ours, kernel, below: "", root_alone }.run(work);
    check(&ours_image);
}

/// Two mounts, and the directory of both in which the calls happen.
struct Sides {
    ours: Mounted,
    kernel: LoopMount,
    below: &'static str,
    root_alone: bool,
}

impl Sides {
    /// Runs `work` on both, and unmounts them.
    #[track_caller]
    fn run(self, work: impl FnOnce(&mut Pair) + Send) {
        let Sides { ours: mount, kernel, below, root_alone } = self;
        fs::set_permissions(kernel.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [ours, theirs] = [mount.dir(), &kernel.path()].map(|dir| World::new(&dir.join(below)));
        let (done, differences) = (0, Vec::new());
        let mut pair = Pair { ours, kernel: theirs, done, differences, root_alone };
        // The credentials of a thread are changed: it is one of its own.
        std::thread::scope(|scope| {
            scope.spawn(|| work(&mut pair)).join().expect("the calls ran");
        });
        let (done, differences) = (pair.done, std::mem::take(&mut pair.differences));
        drop(pair);
        drop(kernel);
        mount.unmount();
        let shown = differences.iter().take(12).map(|d| format!("{d}\n")).collect::<String>();
        assert!(
            differences.is_empty(),
            "{} differences in {done} calls\n{shown}",
            differences.len()
        );
        assert!(done > 1000, "only {done} calls");
    }
}

fn every_call_on_every_kind_of_name_answers_as_the_kernels(kind: &'static str) {
    side_by_side(kind, EVERYBODY, matrix::run);
}

fn random_calls_answer_as_the_kernels(kind: &'static str) {
    side_by_side(kind, EVERYBODY, random::run);
}

/// Where root alone is let in the kernel checks no permissions and keeps no ACLs. Two tasks serve,
/// which sleep after every request.
fn random_calls_of_root_alone_answer_as_the_kernels(kind: &'static str) {
    side_by_side(kind, "suid,dev,threads=2,spin=0", |pair| {
        matrix::access(pair);
        random::run(pair);
    });
}

fn calls_at_the_limits_answer_as_the_kernels(kind: &'static str) {
    side_by_side(kind, EVERYBODY, |pair| {
        let mut told = limits::attributes(pair);
        told.extend(limits::many_attributes(pair));
        told.extend(limits::largest_file(pair));
        let expected = [Errno::TOOBIG, Errno::NOSPC, Errno::RANGE, Errno::FBIG];
        // An inode of XFS has room for all of them.
        for errno in expected.iter().filter(|errno| kind != "xfs" || **errno != Errno::NOSPC) {
            let error = format!("error {}", errno.raw_os_error());
            assert!(told.contains(&error), "{kind}: {errno} was never told");
        }
    });
}

on_each_format!(
    calls_at_the_limits_answer_as_the_kernels,
    every_call_on_every_kind_of_name_answers_as_the_kernels,
    random_calls_answer_as_the_kernels,
    random_calls_of_root_alone_answer_as_the_kernels,
);
