//! `-o awake`: the host's processors do not sleep while programs use the mount.

use std::fs;
use std::path::Path;

use crate::host::{Mounted, check, image, iopath, place, wait_until};

const FILE: &str = "/dev/cpu_dma_latency";

/// Whether a process keeps the processors awake.
fn keeps_awake(process: u32) -> bool {
    let open = fs::read_dir(format!("/proc/{process}/fd")).expect("the process is there");
    let mut files = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    files.any(|file| file == Path::new(FILE))
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
        asked += 1;
        let name = mount.dir().join(format!("none-{asked}"));
        assert!(!name.exists());
        keeps_awake(mount.pid())
    });
    wait_until("processors that may sleep", || !keeps_awake(mount.pid()));
    mount.unmount();
    check(&image);
}
