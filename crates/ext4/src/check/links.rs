//! Fourth pass: every directory is reached from the root, every inode has as many names as it says.

use base::Ino;

use super::Checker;
use super::rule::Rule;
use crate::format::features::RoCompat;
use crate::format::super_block::ROOT_INO;
use crate::format::{At, FileKind};

/// Names that a directory counts at most; beyond, with `dir_nlink`, it has one link.
const LINK_MAX: u32 = 65_000;

/// What is known about a directory's way to the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    Walking,
    Done,
}

impl Checker<'_> {
    /// Compares parents, connections and links.
    pub fn links(&mut self) {
        let root = self.inodes.get(ROOT_INO);
        if !root.used || root.kind != Some(FileKind::Directory) {
            let detail = format!("inode {ROOT_INO} is no directory");
            self.findings.add(Rule::RootMissing, At::Inode(Ino(ROOT_INO.into())), detail);
            return;
        }
        self.parents();
        if self.names_unknown {
            return;
        }
        self.connections();
        for group in 0..self.g.groups_count {
            for index in 0..self.inodes.group(group).len() {
                self.inode_links(group * self.g.inodes_per_group + index as u32 + 1);
            }
        }
    }

    /// `..` names the directory that holds the name.
    fn parents(&mut self) {
        for index in 0..self.dirs.len() {
            let (ino, parent, dotdot) = {
                let dir = &self.dirs[index];
                (dir.ino, if dir.ino == ROOT_INO { ROOT_INO } else { dir.parent }, dir.dotdot)
            };
            if parent == 0 {
                continue;
            }
            if let Ok(above) = self.dirs.binary_search_by_key(&parent, |dir| dir.ino)
                && ino != ROOT_INO
            {
                self.dirs[above].children += 1;
            }
            if dotdot != 0 && dotdot != parent {
                let detail = format!("`..` names inode {dotdot}, the parent is {parent}");
                self.findings.add(Rule::DirDotdot, At::Inode(Ino(ino.into())), detail);
            }
        }
    }

    /// Follows every directory to the root. A directory without a name, or one that is its own
    /// ancestor, is reported once; those below it are not.
    fn connections(&mut self) {
        let mut ways = vec![Way::Unknown; self.dirs.len()];
        for start in 0..self.dirs.len() {
            let mut path = Vec::new();
            let mut at = start;
            loop {
                if ways[at] == Way::Done {
                    break;
                }
                let (ino, parent) = (self.dirs[at].ino, self.dirs[at].parent);
                if ino == ROOT_INO {
                    ways[at] = Way::Done;
                    break;
                }
                let loops = ways[at] == Way::Walking;
                ways[at] = Way::Walking;
                path.push(at);
                let next = self.dirs.binary_search_by_key(&parent, |dir| dir.ino);
                if loops || parent == 0 || next.is_err() {
                    let detail = if loops { "it is its own ancestor" } else { "it has no name" };
                    self.findings.add(Rule::DirUnconnected, At::Inode(Ino(ino.into())), detail);
                    break;
                }
                at = next.expect("checked by the line above");
            }
            for index in path {
                ways[index] = Way::Done;
            }
        }
    }

    fn inode_links(&mut self, ino: u32) {
        let info = self.inodes.get(ino);
        if !info.used || info.nameless {
            return;
        }
        let at = At::Inode(Ino(ino.into()));
        let directory = info.kind == Some(FileKind::Directory);
        if info.counted == 0 && ino != ROOT_INO {
            if !directory {
                self.findings.add(Rule::InodeUnconnected, at, "it has no name");
            }
            return;
        }
        let mut expected = info.counted;
        if directory {
            let dir = self.dirs.binary_search_by_key(&ino, |dir| dir.ino);
            let children = dir.map_or(0, |index| self.dirs[index].children);
            // Its name in the parent, or the root's `..`; its own `.`; a `..` in each child.
            expected = 2 + children;
        }
        let many = self.g.features.ro_compat.contains(RoCompat::DIR_NLINK);
        if directory && many && info.links == 1 && expected >= LINK_MAX {
            return;
        }
        if u32::from(info.links) != expected {
            let detail = format!("{} links, counted {expected}", info.links);
            self.findings.add(Rule::InodeLinks, at, detail);
        }
    }
}
