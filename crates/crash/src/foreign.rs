//! File systems that are not ours: their mkfs, their checkers, and how they are recognised.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Bytes of a name.
const NAME_MAX: usize = 32;

/// A file system that the kernel recovers, or a program of mount(8). Its name is the TYPE of
/// `mount -t TYPE` and `mkfs.TYPE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Foreign {
    name: &'static str,
}

/// What is known of one.
struct Known {
    name: &'static str,
    /// So that its mkfs asks nothing and says little.
    mkfs: &'static [&'static str],
    /// A program that changes nothing, with its flags.
    check: Option<(&'static str, &'static [&'static str])>,
    /// A program that replays its log, with its flags, where the kernel does not.
    replay: Option<(&'static str, &'static [&'static str])>,
    /// MiB of the smallest usual disk.
    mebibytes: u64,
    /// Sectors of its first superblock, where that has one checksum.
    superblock: Range<u64>,
    /// Where it says what it is.
    sign: Option<(u64, &'static [u8])>,
}

/// What most of them have, and those that are not known.
const PLAIN: Known = Known {
    name: "",
    mkfs: &[],
    check: None,
    replay: None,
    mebibytes: 64,
    superblock: 0..1,
    sign: None,
};

/// From their manual pages; the signs are in the documents of the formats.
const KNOWN: [Known; 8] = [
    Known {
        name: "btrfs",
        mkfs: &["-q", "-f"],
        check: Some(("btrfs", &["check", "--readonly", "--force"])),
        mebibytes: 128,
        superblock: 128..136,
        sign: Some((0x1_0040, b"_BHRfS_M")),
        ..PLAIN
    },
    Known {
        name: "f2fs",
        mkfs: &["-q", "-f"],
        check: Some(("fsck.f2fs", &["--dry-run"])),
        sign: Some((1024, &[0x10, 0x20, 0xf5, 0xf2])),
        ..PLAIN
    },
    Known {
        name: "jfs",
        mkfs: &["-q"],
        check: Some(("fsck.jfs", &["-n"])),
        replay: Some(("fsck.jfs", &["-a"])),
        sign: Some((0x8000, b"JFS1")),
        ..PLAIN
    },
    Known {
        name: "nilfs2",
        mkfs: &["-q", "-f"],
        mebibytes: 256,
        sign: Some((1024 + 6, b"\x34\x34")),
        ..PLAIN
    },
    Known {
        name: "exfat",
        check: Some(("fsck.exfat", &["-n"])),
        sign: Some((3, b"EXFAT   ")),
        ..PLAIN
    },
    Known {
        name: "vfat",
        check: Some(("fsck.vfat", &["-n"])),
        // No sign: a boot sector like those of others.
        ..PLAIN
    },
    Known {
        name: "ntfs",
        mkfs: &["-q", "-F", "-f"],
        check: Some(("ntfsfix", &["-n"])),
        sign: Some((3, b"NTFS    ")),
        ..PLAIN
    },
    Known {
        name: "reiserfs",
        mkfs: &["-q", "-f"],
        check: Some(("fsck.reiserfs", &["--check", "-y", "-q"])),
        sign: Some((0x1_0034, b"ReIsEr")),
        ..PLAIN
    },
];

impl Foreign {
    fn known(self) -> &'static Known {
        KNOWN.iter().find(|known| known.name == self.name).unwrap_or(&PLAIN)
    }

    /// Arguments of `mkfs.TYPE`, so that it asks nothing.
    pub fn mkfs_flags(self) -> &'static [&'static str] {
        self.known().mkfs
    }

    /// A program that checks it and changes nothing, with its flags, where one is known.
    pub fn checker(self) -> Option<(&'static str, &'static [&'static str])> {
        self.known().check
    }

    /// A program that replays its log before it can be mounted, with its flags.
    pub(crate) fn replayer(self) -> Option<(&'static str, &'static [&'static str])> {
        self.known().replay
    }

    /// Places and contents by which it is recognised.
    pub(crate) fn signs() -> impl Iterator<Item = (u64, &'static [u8], Foreign)> {
        KNOWN.iter().filter_map(|known| {
            let (at, sign) = known.sign?;
            Some((at, sign, Foreign { name: known.name }))
        })
    }

    /// The smallest usual size of a disk with it.
    pub(crate) fn usual_bytes(self) -> u64 {
        self.known().mebibytes << 20
    }

    /// Sectors of its first superblock, which has one checksum.
    pub(crate) fn superblock(self) -> Range<u64> {
        self.known().superblock.clone()
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Foreign {
    type Err = String;

    /// # Errors
    /// A sentence: it cannot be the name of a file system.
    fn from_str(text: &str) -> Result<Foreign, String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !first || text.len() > NAME_MAX || !text.bytes().all(fits) {
            return Err(format!(
                "{text}: not the name of a file system; ours are ext2, ext3, ext4 and xfs, and \
                 by the kernel any that mkfs.TYPE makes and mount(8) mounts"
            ));
        }
        let known = KNOWN.iter().find(|known| known.name == text);
        // As many as there are options and logs: a few.
        Ok(Foreign {
            name: match known {
                Some(known) => known.name,
                None => text.to_owned().leak(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words() {
        assert_eq!("btrfs".parse::<Foreign>(), Ok(Foreign { name: "btrfs" }));
        assert_eq!("ntfs-3g".parse::<Foreign>().unwrap().to_string(), "ntfs-3g");
        for bad in ["", "-t", "a b", "../x", "a/b", "äh", &"x".repeat(33)] {
            bad.parse::<Foreign>().unwrap_err();
        }
    }
}
