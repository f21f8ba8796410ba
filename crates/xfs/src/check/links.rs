//! Names against inodes: targets, types, link counts, parents, unlinked lists.

use std::collections::BTreeSet;

use base::Ino;
use block::DeviceError;

use super::records::{Links, NameOf};
use super::sums::NOWHERE;
use super::{Checker, Count, Rule};
use crate::error::Fault;
use crate::format::dir::FileType;
use crate::format::inode::InodeCore;
use crate::format::record::InodeChunk;
use crate::format::{AgInode, At, NULL32};

/// What the unlinked lists hold.
#[derive(Default)]
pub(super) struct Lists {
    /// Inodes in use that are on one.
    members: BTreeSet<u64>,
    /// What is wrong with them.
    wrong: Vec<(At, String)>,
}

impl Checker<'_> {
    /// Whether names, inodes or unlinked lists are not as they should be.
    pub(super) fn links_differ(&mut self) -> Result<bool, DeviceError> {
        self.lists = self.unlinked_lists()?;
        let lists = &self.lists;
        if !lists.wrong.is_empty() || self.sums.links_differ(lists.members.len()) {
            return Ok(true);
        }
        let pointers = self.reader.geometry.features.parent() && self.sums.pointers_differ();
        Ok(!self.names_unknown && (pointers || !self.lost_directories().is_empty()))
    }

    /// Follows the names of a window, and all unlinked lists with the first one.
    pub(super) fn link_pass(
        &mut self,
        links: &mut Links,
        is_first: bool,
    ) -> Result<(), DeviceError> {
        let names = std::mem::take(&mut links.names);
        for name in &names {
            if links.covers(name.target) {
                self.follow(links, name);
            }
        }
        if is_first {
            for (at, text) in std::mem::take(&mut self.lists.wrong) {
                self.findings.add(Rule::UnlinkedList, at, text);
            }
        }
        self.parents(links, &names);
        self.metadata_names(links, &names);
        self.link_counts(links);
        if links.next().is_none() && !self.names_unknown {
            self.unreachable();
        }
        self.parent_pass(links);
        Ok(())
    }

    fn follow(&mut self, links: &mut Links, name: &NameOf) {
        let (at, target) = (At::Inode(name.dir), name.target);
        let Some(known) = links.inodes.get_mut(&target.0) else {
            if !self.names_unknown {
                let text = format!("a name points at inode {target}, which is not in use");
                self.findings.add(Rule::DirectoryEntry, at, text);
            }
            return;
        };
        known.names += 1;
        known.named = true;
        let (found, expected) = (name.file_type, FileType::of_mode(known.mode));
        let whiteout = found == FileType::Whiteout && expected == FileType::CharDevice;
        if self.reader.geometry.features.ftype() && found != expected && !whiteout {
            let text = format!("inode {target} is {expected:?}, its name says {found:?}");
            self.findings.add(Rule::DirectoryEntry, at, text);
        }
    }

    /// Every directory's `..` is the directory that holds its name, and that counts as a name of
    /// the latter.
    fn parents(&mut self, links: &mut Links, names: &[NameOf]) {
        for name in names.iter().filter(|name| name.of_directory) {
            let known = links.inodes.get(&name.target.0);
            let parent = known.and_then(|known| known.parent);
            if parent.is_some_and(|parent| parent != name.dir) {
                let text = format!("\"..\" points at {parent:?}, its name is in {}", name.dir);
                self.findings.add(Rule::DirectoryDots, At::Inode(name.target), text);
            }
        }
        for root in self.roots.clone() {
            let up = links.inodes.get(&root.0).and_then(|known| known.parent);
            if up.is_some_and(|up| up != root) {
                let text = "\"..\" of a root does not point at itself";
                self.findings.add(Rule::DirectoryDots, At::Inode(root), text);
            }
        }
        for name in names.iter().filter(|name| name.of_directory) {
            if let Some(known) = links.inodes.get_mut(&name.dir.0) {
                known.names += 1;
            }
        }
    }

    /// Names of the metadata directory point at inodes of the file system itself, all others at
    /// those of users.
    fn metadata_names(&mut self, links: &Links, names: &[NameOf]) {
        for root in self.roots.clone() {
            let wanted = Some(root) == self.reader.geometry.metadata_root;
            if links.inodes.get(&root.0).is_some_and(|known| known.metadata != wanted) {
                let text = format!("the flag of metadata in a root should be {wanted}");
                self.findings.add(Rule::MetadataDirectory, At::Inode(root), text);
            }
        }
        for NameOf { dir, metadata, target, .. } in names {
            let Some(below) = links.inodes.get(&target.0) else { continue };
            if *metadata != below.metadata {
                let text = format!("the flag of metadata is not that of its directory {dir}");
                self.findings.add(Rule::MetadataDirectory, At::Inode(*target), text);
            }
        }
    }

    /// An inode as it is, if it is in use.
    pub(super) fn in_use(&mut self, ag: u32, agino: u32) -> Result<Option<InodeCore>, DeviceError> {
        let chunks = &self.groups[ag as usize].chunks;
        let used = |chunk: &InodeChunk| {
            let bit = agino.checked_sub(chunk.start).filter(|&bit| bit < 64);
            bit.is_some_and(|bit| chunk.used() >> bit & 1 == 1)
        };
        let near = chunks.partition_point(|chunk| chunk.start <= agino).checked_sub(1);
        // The order of the chunks may be damaged, too.
        if !near.is_some_and(|near| used(&chunks[near])) && !chunks.iter().any(used) {
            return Ok(None);
        }
        let geometry = self.geometry();
        let ino = geometry.ino_join(AgInode { ag, agino });
        if !geometry.ino_valid(ino) {
            return Ok(None);
        }
        match self.reader.read_slot(self.cx, ino) {
            Ok(slot) if slot[2..4] != [0, 0] => Ok(InodeCore::parse(&slot, ino, &geometry).ok()),
            Err(Fault::Device(error)) => Err(error),
            _ => Ok(None),
        }
    }

    fn unlinked_lists(&mut self) -> Result<Lists, DeviceError> {
        let geometry = self.geometry();
        let mut lists = Lists::default();
        for ag in 0..geometry.ag_count() {
            let Some(agi) = self.groups[ag as usize].agi else { continue };
            for (bucket, head) in agi.agi_unlinked.iter().enumerate() {
                let mut agino = head.get();
                while agino != NULL32 {
                    let ino = geometry.ino_join(AgInode { ag, agino });
                    let Some(core) = self.in_use(ag, agino)? else {
                        let what = "no inode in use of this group";
                        let text = format!("list {bucket} names {agino}, {what}");
                        lists.wrong.push((At::Agi(ag), text));
                        break;
                    };
                    let again = !lists.members.insert(ino.0);
                    let reason = match (again, core.links, agino % 64) {
                        (true, ..) => Some("it was met before on a list".to_string()),
                        (_, 1.., _) => Some(format!("it has {} links", core.links)),
                        (_, _, own) if own as usize != bucket => {
                            Some(format!("its list is number {own}"))
                        }
                        _ => None,
                    };
                    if let Some(reason) = reason {
                        lists.wrong.push((At::Inode(ino), format!("on list {bucket}: {reason}")));
                    }
                    if again {
                        break;
                    }
                    agino = core.next_unlinked;
                }
            }
        }
        Ok(lists)
    }

    fn link_counts(&mut self, links: &Links) {
        let names_unknown = self.names_unknown;
        let mut wrong = Vec::new();
        for (&ino, known) in &links.inodes {
            let is_dir = known.is_directory();
            let is_root = self.roots.contains(&Ino(ino));
            // A directory has its own ".", the root also its "..".
            let own = u32::from(is_dir) + u32::from(is_root);
            let is_system = self.system.contains(&Ino(ino));
            let own = if is_system { 1 } else { own };
            if known.links == 0 && self.lists.members.contains(&ino) {
                continue;
            }
            if !known.named && !is_root && !is_system {
                wrong.push((ino, Rule::Unconnected, "no name points here".to_string()));
            } else if known.links != known.names + own {
                let (ino, found, counted) = (Ino(ino), known.links, known.names + own);
                let text = format!("{found} links should be {counted}");
                wrong.push((ino.0, Rule::LinkCount, text));
                self.counts.push(Count::Links { ino, found, counted });
            }
        }
        if names_unknown {
            return;
        }
        for (ino, rule, text) in wrong {
            self.findings.add(rule, At::Inode(Ino(ino)), text);
        }
    }

    fn unreachable(&mut self) {
        for ino in self.lost_directories() {
            let text = "the directory is above itself: no way leads to the root";
            self.findings.add(Rule::Unconnected, At::Inode(Ino(ino)), text);
        }
    }

    /// Directories that no way from the root leads to: one of each circle, and those whose way ends
    /// at what is no directory.
    fn lost_directories(&self) -> Vec<u64> {
        let directories = self.sums.directories();
        // Those from which a way leads to a root, or that were looked at before.
        let mut reached = vec![false; directories.len()];
        let mut elsewhere: BTreeSet<u64> = self.roots.iter().map(|root| root.0).collect();
        let (mut way, mut lost) = (Vec::new(), Vec::new());
        for &(ino, _) in directories {
            if self.lists.members.contains(&ino) {
                continue;
            }
            let mut at = ino;
            let found = loop {
                if elsewhere.contains(&at) {
                    break true;
                }
                let Ok(index) = directories.binary_search_by_key(&at, |entry| entry.0) else {
                    elsewhere.insert(at);
                    break false;
                };
                if std::mem::replace(&mut reached[index], true) {
                    break !way.contains(&index);
                }
                way.push(index);
                at = directories[index].1;
                if at == NOWHERE {
                    break false;
                }
            };
            way.clear();
            if !found {
                lost.push(ino);
            }
        }
        lost
    }
}
