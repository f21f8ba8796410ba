//! Fourth pass: every directory is reached from the root, every inode has as many names as it says.

use base::Ino;

use super::Checker;
use super::dirs::DirRecord;
use super::findings::Findings;
use super::inodes::{InodeInfo, InodeMap};
use super::rule::Rule;
use crate::format::features::RoCompat;
use crate::format::super_block::ROOT_INO;
use crate::format::{At, FileKind, Geometry};

/// Names that a directory counts at most; beyond, with `dir_nlink`, it has one link.
const LINK_MAX: u32 = 65_000;

/// What is known about a directory's way to the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    Walking,
    Done,
}

/// The names of a file system, as the third pass has counted them.
pub struct Names<'a> {
    /// The file system.
    pub g: &'a Geometry,
    /// Its inodes.
    pub inodes: &'a InodeMap,
    /// Its directories, in the order of their inodes.
    pub dirs: &'a mut [DirRecord],
    /// What is wrong.
    pub findings: &'a mut Findings,
}

/// An inode whose number of links is not that of its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongLinks {
    /// The inode.
    pub ino: Ino,
    /// Links that it claims.
    pub found: u16,
    /// Links that it has.
    pub counted: u32,
}

impl Checker<'_> {
    /// Compares parents, connections and links.
    pub fn links(&mut self) {
        let root = self.inodes.get(ROOT_INO);
        if !root.is_used() || root.kind != Some(FileKind::Directory) {
            let detail = format!("inode {ROOT_INO} is no directory");
            self.findings.add(Rule::RootMissing, At::Inode(Ino(ROOT_INO.into())), detail);
            return;
        }
        let (g, inodes) = (&self.g, &self.inodes);
        let (dirs, findings) = (&mut self.dirs[..], &mut self.findings);
        let mut names = Names { g, inodes, dirs, findings };
        names.parents();
        if !self.pass.names_unknown {
            names.connections();
            for wrong in names.wrong_links() {
                let detail = format!("{} links, counted {}", wrong.found, wrong.counted);
                self.findings.add(Rule::InodeLinks, At::Inode(wrong.ino), detail);
            }
        }
    }
}

impl Names<'_> {
    /// `..` names the directory that holds the name.
    pub fn parents(&mut self) {
        self.dirs.iter_mut().for_each(|dir| dir.children = 0);
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
    pub fn connections(&mut self) {
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

    /// The inodes in use with a wrong number of links; one without a name is a finding.
    pub fn wrong_links(&mut self) -> Vec<WrongLinks> {
        let mut wrong = Vec::new();
        for group in 0..self.g.groups_count {
            for (index, info) in (1..).zip(self.inodes.group(group)) {
                let ino = group * self.g.inodes_per_group + index;
                let counted = self.counted_links(ino, *info);
                if let Some(counted) = counted.filter(|&count| count != info.links.into()) {
                    wrong.push(WrongLinks { ino: Ino(ino.into()), found: info.links, counted });
                }
            }
        }
        wrong
    }

    /// The links that an inode should claim. None where it has none, or where it may claim others.
    fn counted_links(&mut self, ino: u32, info: InodeInfo) -> Option<u32> {
        if !info.has_names() {
            return None;
        }
        let directory = info.kind == Some(FileKind::Directory);
        let names = self.inodes.names(ino);
        if names == 0 && ino != ROOT_INO {
            if !directory {
                let at = At::Inode(Ino(ino.into()));
                self.findings.add(Rule::InodeUnconnected, at, "it has no name");
            }
            return None;
        }
        if !directory {
            return Some(names);
        }
        let dir = self.dirs.binary_search_by_key(&ino, |dir| dir.ino);
        // Its name in the parent, or the root's `..`; its own `.`; a `..` in each child.
        let expected = 2 + dir.map_or(0, |index| self.dirs[index].children);
        let many = self.g.features.ro_compat.contains(RoCompat::DIR_NLINK);
        (!many || info.links != 1 || expected < LINK_MAX).then_some(expected)
    }
}
