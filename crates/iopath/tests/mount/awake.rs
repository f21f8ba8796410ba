//! The host's processors are kept awake while programs use the mount: always with `-o awake`, never
//! with `-o noawake`, and by itself while many requests come.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::host::{Mounted, check, image, iopath, place, wait_until};

const FILE: &str = "/dev/cpu_dma_latency";

/// Whether a process keeps the processors awake; then the kernel says so too.
fn keeps_awake(process: u32) -> bool {
    let is_open = || {
        let open = fs::read_dir(format!("/proc/{process}/fd")).expect("the process is there");
        let mut files = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.any(|file| file == Path::new(FILE))
    };
    if !is_open() {
        return false;
    }
    let mut micros = [0; 4];
    File::open(FILE).unwrap().read_exact(&mut micros).unwrap();
    // It may have been let go of, or been held for a moment to measure.
    let is_held = i32::from_ne_bytes(micros) == 0;
    is_held && is_open()
}

/// Asks for names that are not there, each of which is a request.
fn ask(mount: &Mounted, asked: &mut u32, count: u32) {
    for _ in 0..count {
        *asked += 1;
        assert!(!mount.dir().join(format!("none-{asked}")).exists());
    }
}

/// Only as long as programs use the mount; refused by name where the host has no such thing.
#[test]
fn processors_are_kept_awake_while_programs_use_the_mount() {
    let place = place();
    let image = image(place.path(), "ext4", 16 << 20);
    if !Path::new(FILE).exists() {
        let dir = place.path().join("mnt");
        fs::create_dir(&dir).unwrap();
        let output = iopath(&[&"mount", &"-o", &"awake", &image, &dir]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(FILE), "{error}");
        return;
    }
    let mount = Mounted::new(&image, ",awake");
    let mut asked = 0;
    wait_until("processors that are kept awake", || {
        ask(&mount, &mut asked, 1);
        keeps_awake(mount.pid())
    });
    wait_until("processors that may sleep", || !keeps_awake(mount.pid()));
    mount.unmount();
    check(&image);
}

/// Without a word: it is taken to pay until it was measured, which is when the requests stop. On a
/// loaded machine they may stop before anybody has looked; then another mount is looked at.
#[test]
fn processors_are_kept_awake_while_many_requests_come() {
    if !Path::new(FILE).exists() {
        return;
    }
    let place = place();
    let image = image(place.path(), "ext4", 16 << 20);
    wait_until("a mount that keeps processors awake", || {
        let mount = Mounted::new(&image, "");
        let mut asked = 0;
        let held = (0..20).any(|_| {
            ask(&mount, &mut asked, 40);
            keeps_awake(mount.pid())
        });
        wait_until("processors that may sleep", || !keeps_awake(mount.pid()));
        mount.unmount();
        held
    });
    check(&image);
}

/// Not wanted: however many requests come.
#[test]
fn processors_may_sleep_where_they_are_not_to_be_kept_awake() {
    let place = place();
    let image = image(place.path(), "ext4", 16 << 20);
    let mount = Mounted::new(&image, ",noawake");
    let mut asked = 0;
    for _ in 0..20 {
        ask(&mount, &mut asked, 200);
        assert!(!keeps_awake(mount.pid()));
    }
    mount.unmount();
}
