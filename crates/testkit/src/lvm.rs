//! lvm2 without a device mapper, on loop devices. Needs root.

use std::ffi::OsStr;
use std::path::Path;

use crate::judge::{run, run_ok};

/// A block device of the host for a file, until it is dropped.
pub struct Loop(String);

impl Loop {
    /// The device of a file.
    ///
    /// # Panics
    /// If the host refuses.
    pub fn new(path: &Path) -> Loop {
        Loop(run_ok("losetup", &[&"--find", &"--show", &path]).trim().to_owned())
    }

    /// Its path.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Others that look at it keep it open, and what was written out of the file.
        run("blockdev", &[&"--flushbufs", &self.0]);
        run("losetup", &[&"--detach", &self.0]);
    }
}

/// Runs a command of lvm2, with the words of `line`, that sees these devices alone; answers what it
/// prints.
///
/// # Panics
/// With all it printed, if it fails.
pub fn lvm2(devices: &[&Loop], line: &str) -> String {
    let accept: String = devices.iter().map(|device| format!("\"a|^{}$|\",", device.0)).collect();
    let config = format!(
        "devices {{ filter=[{accept}\"r|.*|\"] use_devicesfile=0 \
         external_device_info_source=\"none\" obtain_device_list_from_udev=0 }} \
         activation {{ udev_sync=0 udev_rules=0 monitoring=0 }} \
         global {{ use_lvmpolld=0 event_activation=0 }} backup {{ backup=0 archive=0 }}"
    );
    let mut words = line.split_whitespace();
    let command = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    let mut args: Vec<&dyn AsRef<OsStr>> =
        vec![&command, &"--driverloaded", &"n", &"--config", &config];
    args.extend(words.iter().map(|word| word as &dyn AsRef<OsStr>));
    run_ok("lvm", &args)
}
