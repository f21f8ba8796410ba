//! What the host's kernel shows of a mount, and its settings for one.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes that the kernel reads ahead of a program.
const READ_AHEAD_KB: &str = "1024";

/// The device numbers of what is mounted at `dir`, as `MAJOR:MINOR`; none where nothing of `kind`
/// is. It does not touch the mounted file system, so that it cannot wait for it.
pub(crate) fn mounted(dir: &Path) -> io::Result<Option<String>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let mut found = None;
    for line in table.split(|&b| b == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        let kind = fields.iter().position(|field| *field == b"-").and_then(|at| fields.get(at + 1));
        let is_fuse = kind.is_some_and(|kind| kind.starts_with(b"fuse"));
        if is_fuse && fields.len() > 4 && unescaped(fields[4]) == dir.as_os_str().as_bytes() {
            // The last one is on top.
            found = Some(String::from_utf8_lossy(fields[2]).into_owned());
        }
    }
    Ok(found)
}

/// Undoes `\040` and the like.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match (field[at], octal.and_then(|digits| u8::from_str_radix(digits, 8).ok())) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                at += 4;
            }
            (byte, _) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    bytes
}

/// The two numbers of `MAJOR:MINOR`.
pub(crate) fn numbers(device: &str) -> Option<(u32, u32)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether the kernel's pages of a FUSE file stay in write-back until we have taken them. Before
/// Linux 6.16 a copy was made, and the pages counted as written ("fuse: remove temp page copies in
/// writeback", Joanne Koong, April 2025).
pub(crate) fn waits_for_pages() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 16),
        _ => false,
    }
}

/// Lets the kernel read ahead and collect writes as for a local disk. Only root may; for others the
/// mount works with the kernel's careful defaults.
pub(crate) fn tune(device: &str) {
    let dir = bdi(device);
    set(&dir, [("read_ahead_kb", READ_AHEAD_KB)]);
    set(&dir, NO_LIMIT);
}

/// What lets the kernel collect as much of a mount as all mounts together may have.
const NO_LIMIT: [(&str, &str); 2] = [("strict_limit", "0"), ("max_ratio", "100")];

fn bdi(device: &str) -> PathBuf {
    PathBuf::from("/sys/class/bdi").join(device)
}

fn set<const N: usize>(bdi: &Path, knobs: [(&str, &str); N]) {
    for (knob, value) in knobs {
        // Allowed or not, present or not: then the kernel's own limits hold.
        let _refused = fs::write(bdi.join(knob), value);
    }
}

/// The kernel's limits for what it collects of a mount.
pub(crate) struct Bdi {
    dir: PathBuf,
    whole: u64,
}

impl Bdi {
    /// The limits of a device that is tuned; none before Linux 6.2.
    pub fn of(device: &str) -> Option<Bdi> {
        let dir = bdi(device);
        let whole = fs::read_to_string(dir.join("max_bytes")).ok()?.trim().parse().ok()?;
        Some(Bdi { dir, whole })
    }

    /// The limit of all mounts together, in bytes.
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Holds the kernel to so many bytes; where that is more than all mounts may have, to nothing
    /// but their limit.
    pub fn limit_dirty(&self, bytes: u64) {
        match bytes < self.whole {
            true => set(&self.dir, [("max_bytes", &bytes.to_string()), ("strict_limit", "1")]),
            false => set(&self.dir, NO_LIMIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_of_the_mount_table_are_read() {
        assert_eq!(unescaped(br"/a\040b\134c"), b"/a b\\c");
        assert_eq!(unescaped(br"/plain\04"), br"/plain\04");
    }

    #[test]
    fn device_numbers_are_read() {
        assert_eq!(numbers("0:39"), Some((0, 39)));
        assert_eq!((numbers("0"), numbers("0:x")), (None, None));
    }

    #[test]
    fn what_is_no_mount_has_no_device() {
        assert_eq!(mounted(Path::new("/no/such/mount")).unwrap(), None);
    }
}
