//! What the host's kernel shows of a mount, and its settings for one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Bytes that the kernel reads ahead of a program.
const READ_AHEAD_KB: &str = "1024";

/// The type in `/proc/mounts`: by its second part mount(8) finds our helpers.
pub(crate) const KIND: &str = "fuse.iopath";

/// A line of the kernel's table of mounts.
struct Mounted {
    /// `MAJOR:MINOR`.
    device: String,
    at: PathBuf,
    is_fuse: bool,
    /// By this program.
    is_ours: bool,
    /// What is mounted.
    source: OsString,
}

/// What is mounted in this namespace, in the order in which it was. It does not touch the mounted
/// file systems, so that it cannot wait for them.
fn table() -> io::Result<Vec<Mounted>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let mount = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let kind = *fields.get(dash + 1)?;
        Some(Mounted {
            device: String::from_utf8_lossy(fields.get(2)?).into_owned(),
            at: OsString::from_vec(unescaped(fields.get(4)?)).into(),
            is_fuse: kind.starts_with(b"fuse"),
            is_ours: kind == KIND.as_bytes(),
            source: OsString::from_vec(unescaped(fields.get(dash + 2)?)),
        })
    };
    Ok(table.split(|&b| b == b'\n').filter_map(mount).collect())
}

/// The device numbers of what is mounted at `dir`, as `MAJOR:MINOR`; none where nothing through
/// FUSE is.
pub(crate) fn mounted(dir: &Path) -> io::Result<Option<String>> {
    // The last one is on top.
    let found = table()?.into_iter().rfind(|mount| mount.is_fuse && mount.at == dir);
    Ok(found.map(|mount| mount.device))
}

/// What is mounted by this program, and where; the last one, which is on top, first.
///
/// # Errors
/// The kernel's table cannot be read.
pub fn mounts() -> io::Result<Vec<(OsString, PathBuf)>> {
    let ours = table()?.into_iter().rev().filter(|mount| mount.is_ours);
    Ok(ours.map(|mount| (mount.source, mount.at)).collect())
}

/// Where something is mounted below a directory, or at it; the last one, which is on top, first.
/// The path has no symlinks.
///
/// # Errors
/// The kernel's table cannot be read.
pub(crate) fn mounts_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let points = table()?.into_iter().rev().map(|mount| mount.at);
    Ok(points.filter(|at| at.starts_with(dir)).collect())
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
