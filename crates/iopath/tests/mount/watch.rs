//! inotify(7) on the mount beside the kernel's own.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use testkit::judge::LoopMount;

use crate::host::{Mounted, check, image, on_each_format, place, shell, wait_until};

/// Takes the events that are there: which watch, what, the name; renames with the number that joins
/// their halves, counted anew.
fn take(inotify: &OwnedFd, cookies: &mut Vec<u32>) -> Vec<String> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(inotify, &mut buffer);
    let mut seen = Vec::new();
    loop {
        let event = match reader.next() {
            Err(Errno::WOULDBLOCK) => return seen,
            event => event.expect("events can be read"),
        };
        let cookie = event.cookie();
        if cookie != 0 && !cookies.contains(&cookie) {
            cookies.push(cookie);
        }
        let rename = cookies.iter().position(|known| *known == cookie).map(|at| at + 1);
        let (what, name) = (event.events(), event.file_name());
        seen.push(format!("watch {} {what:?} {name:?} {rename:?}", event.wd()));
    }
}

/// Changes of all kinds. Processes of their own make them: while this one starts another, that has
/// its open files, too, and their close is not the last.
const CHANGES: &[&str] = &[
    "touch d/new",
    "printf more >>d/f",
    "sync d/f",
    "head -c 5 d/f",
    "truncate -s 2 d/f",
    "chmod 600 d/f",
    "setfattr -n user.a -v b d/f",
    "touch -d @5 d/f",
    "ln d/f e/link",
    "ln -s f d/symlink",
    "mkdir d/sub",
    "ls d",
    "mv d/new d/renamed",
    "mv d/renamed e/moved",
    "mv -fT e/moved d/symlink",
    "mv d/sub e/sub",
    "rmdir e/sub",
    "rm d/f",
    "rm e/link",
    "rmdir e",
];

/// Carries the changes out below `root`; what watches of two directories and a file tell of each.
fn changes(root: &Path, inotify: &OwnedFd) -> Vec<String> {
    shell(root, "mkdir d e; echo content >d/f");
    for name in ["d", "e", "d/f"] {
        inotify::add_watch(inotify, root.join(name), WatchFlags::ALL_EVENTS).unwrap();
    }
    let mut cookies = Vec::new();
    let line = |change: &&str| {
        shell(root, change);
        format!("{change}: {}", take(inotify, &mut cookies).join("; "))
    };
    CHANGES.iter().map(line).collect()
}

/// The events of each change are the kernel's, and who watches is told of the unmount.
fn watches_tell_what_the_kernels_tell(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 64 << 20);
    let copy = place.path().join("kernel.img");
    fs::copy(&image, &copy).unwrap();
    let watch = || inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let [ours, kernels] = [watch(), watch()];
    let mount = Mounted::new(&image, "");
    let said = changes(mount.dir(), &ours);
    let kernel = LoopMount::new(&copy, kind, "rw,noatime").unwrap();
    let expected = changes(&kernel.path(), &kernels);
    for (said, expected) in said.iter().zip(&expected) {
        assert_eq!(said, expected, "{kind}: ours beside the kernel's");
        assert!(said.contains("watch"), "{kind}: nobody was told: {said}");
    }
    mount.unmount();
    drop(kernel);
    let mut ends = [Vec::new(), Vec::new()];
    for (inotify, end) in [&ours, &kernels].into_iter().zip(&mut ends) {
        wait_until("the news of the unmount", || {
            end.extend(take(inotify, &mut Vec::new()));
            end.len() >= 2
        });
    }
    assert_eq!(ends[0], ends[1], "{kind}: at the unmount");
    assert!(ends[0][0].contains("UNMOUNT"), "{kind}: {:?}", ends[0]);
    check(&image);
}

on_each_format!(watches_tell_what_the_kernels_tell);
