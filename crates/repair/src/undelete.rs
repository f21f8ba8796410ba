//! What was removed lately: what is found of it, for ext and XFS.

use std::collections::BTreeMap;

use base::{Ino, Timespec};
use ext4::format::FileKind;
use ext4::format::extent::FileRun;

/// Directories above each other that a path follows.
const DEPTH_MAX: usize = 1 << 16;

/// An inode that was removed.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Its number.
    pub ino: u64,
    /// What it was.
    pub kind: FileKind,
    /// Its path from the root, as far as names are known: it begins with `/`, else with `#INO` of
    /// the directory whose own name is lost.
    pub path: Vec<u8>,
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Size and permissions are those of an older copy of the inode. Otherwise the size is that of
    /// all blocks that were found, and the permissions are a guess.
    pub exact: bool,
    /// Last change of the content.
    pub mtime: Timespec,
    /// Where its content lies.
    pub runs: Vec<FileRun>,
    /// Blocks of content.
    pub blocks: u64,
    /// Blocks of content that somebody else uses by now, or that are not known.
    pub lost: u64,
    /// The target of a short symbolic link.
    pub target: Option<Vec<u8>>,
}

/// What was removed, and where its content lies.
#[derive(Clone, Debug, Default)]
pub struct Deletions {
    /// By path.
    pub files: Vec<Deleted>,
    /// Bytes of a block.
    pub block_size: u32,
}

/// A name of an inode: its directory, the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub dir: u64,
    pub name: Vec<u8>,
}

/// The path of an inode, as far as its directories' names are known.
pub(crate) fn path_of(ino: Ino, root: Ino, names: &BTreeMap<u64, Known>) -> Vec<u8> {
    let (mut at, mut parts) = (ino.0, Vec::new());
    while at != root.0 && parts.len() < DEPTH_MAX {
        let Some(known) = names.get(&at) else { break };
        parts.push(&known.name[..]);
        at = known.dir;
        if at == ino.0 {
            break;
        }
    }
    let mut path = if at == root.0 { Vec::new() } else { format!("#{at}").into_bytes() };
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    path
}
