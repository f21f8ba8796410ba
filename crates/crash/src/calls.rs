//! What a file system was asked to do: the calls of a recorded run that change it or that promise
//! something.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name in a directory or the target of a symlink: bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(pub Vec<u8>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for Name {
    /// As a string with one character for each byte, which keeps names that are no UTF-8.
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0.iter().map(|byte| char::from(*byte)).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Name, D::Error> {
        let text = String::deserialize(input)?;
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        bytes.map(Name).map_err(|_| D::Error::custom(format!("{text:?} is no name of bytes")))
    }
}

/// A place for a name: inode number of the directory, and the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Inode number of the directory.
    pub dir: u64,
    /// The name in it.
    pub name: Name,
}

/// Who may do what with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Node {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symlink with its target.
    Symlink(Name),
    /// A device, FIFO or socket.
    Special,
}

/// A call that succeeded, or left something behind. Inodes are named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// open(O_CREAT), mkdir, symlink, mknod; without a place O_TMPFILE.
    Create {
        /// Where.
        at: Option<Place>,
        /// The new inode.
        ino: u64,
        /// What it is.
        node: Node,
        /// Its owner and mode.
        rights: Rights,
    },
    /// link.
    Link {
        /// The inode that gets a further name.
        ino: u64,
        /// The name.
        at: Place,
    },
    /// unlink, rmdir.
    Remove {
        /// The name.
        at: Place,
        /// It was a directory.
        directory: bool,
    },
    /// rename.
    Rename {
        /// The old name.
        from: Place,
        /// The new name.
        to: Place,
        /// Both exist and change places.
        exchange: bool,
        /// The old name stays for a whiteout.
        whiteout: bool,
    },
    /// write, in any form. The content is in the log.
    Write {
        /// The file.
        ino: u64,
        /// Where, in bytes.
        offset: u64,
        /// Bytes that were written.
        len: u64,
    },
    /// truncate, ftruncate.
    Truncate {
        /// The file.
        ino: u64,
        /// Its new size.
        size: u64,
    },
    /// fallocate: the range reads as zeroes afterwards, or only `size` may have grown.
    Allocate {
        /// The file.
        ino: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The range was zeroed or punched.
        zeroed: bool,
        /// The file grew to the end of the range where it was shorter.
        grows: bool,
    },
    /// The content of a range changed in a way that is not recorded: it may be anything.
    Unknown {
        /// The file.
        ino: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// chmod, chown; None for rights that are not recorded.
    Rights {
        /// The inode.
        ino: u64,
        /// What it has now.
        rights: Option<Rights>,
    },
    /// fsync or fdatasync.
    Fsync {
        /// The inode.
        ino: u64,
        /// It was fdatasync.
        data: bool,
    },
    /// fsync or fdatasync that failed: whoever called knows that what was written before may be
    /// gone, also where a later one finds nothing left to write.
    Failed {
        /// The inode.
        ino: u64,
    },
    /// sync, syncfs, unmount.
    Sync,
}

impl Call {
    /// Calls that promise what was done before.
    pub fn promises(&self) -> bool {
        matches!(self, Call::Fsync { .. } | Call::Sync)
    }
}
