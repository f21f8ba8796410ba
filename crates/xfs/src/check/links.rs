//! Names against inodes: targets, types, link counts, parents, unlinked lists.

use std::collections::BTreeSet;

use base::Ino;
use block::DeviceError;

use super::{Checker, Count, NameOf, Rule};
use crate::format::dir::FileType;
use crate::format::{AgInode, At, NULL32};

impl Checker<'_> {
    /// Follows all names and all unlinked lists.
    pub(super) fn link_pass(&mut self) -> Result<(), DeviceError> {
        let names = std::mem::take(&mut self.names);
        for name in &names {
            self.follow(name);
        }
        self.unlinked_lists();
        self.parents(&names);
        self.metadata_names(&names);
        self.link_counts();
        Ok(())
    }

    fn follow(&mut self, name: &NameOf) {
        let (at, target) = (At::Inode(name.dir), name.target);
        let Some(known) = self.inodes.get_mut(&target.0) else {
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
    fn parents(&mut self, names: &[NameOf]) {
        let mut subdirs = Vec::new();
        let is_dir = |checker: &Self, ino: Ino| {
            checker.inodes.get(&ino.0).is_some_and(|known| known.mode & 0xf000 == 0x4000)
        };
        for name in names {
            if !is_dir(self, name.target) {
                continue;
            }
            subdirs.push(name.dir);
            let parent = self.inodes[&name.target.0].parent;
            if parent.is_some_and(|parent| parent != name.dir) {
                let text = format!("\"..\" points at {parent:?}, its name is in {}", name.dir);
                self.findings.add(Rule::DirectoryDots, At::Inode(name.target), text);
            }
        }
        for root in self.roots() {
            let up = self.inodes.get(&root.0).and_then(|known| known.parent);
            if up.is_some_and(|up| up != root) {
                let text = "\"..\" of a root does not point at itself";
                self.findings.add(Rule::DirectoryDots, At::Inode(root), text);
            }
        }
        for dir in subdirs {
            if let Some(known) = self.inodes.get_mut(&dir.0) {
                known.names += 1;
            }
        }
    }

    /// The root, and that of the metadata directory.
    fn roots(&self) -> Vec<Ino> {
        let geometry = &self.reader.geometry;
        [geometry.root_ino].into_iter().chain(geometry.metadata_root).collect()
    }

    /// Names of the metadata directory point at inodes of the file system itself, all others at
    /// those of users.
    fn metadata_names(&mut self, names: &[NameOf]) {
        for root in self.roots() {
            let wanted = Some(root) == self.reader.geometry.metadata_root;
            if self.inodes.get(&root.0).is_some_and(|known| known.metadata != wanted) {
                let text = format!("the flag of metadata in a root should be {wanted}");
                self.findings.add(Rule::MetadataDirectory, At::Inode(root), text);
            }
        }
        for NameOf { dir, target, .. } in names {
            let [above, below] = [dir, target].map(|ino| self.inodes.get(&ino.0));
            let (Some(above), Some(below)) = (above, below) else { continue };
            if above.metadata != below.metadata {
                let text = format!("the flag of metadata is not that of its directory {dir}");
                self.findings.add(Rule::MetadataDirectory, At::Inode(*target), text);
            }
        }
    }

    fn unlinked_lists(&mut self) {
        let geometry = self.geometry();
        for ag in 0..geometry.ag_count {
            let Some(agi) = self.groups[ag as usize].agi else { continue };
            for (bucket, head) in agi.agi_unlinked.iter().enumerate() {
                let mut agino = head.get();
                while agino != NULL32 {
                    let ino = geometry.ino_join(AgInode { ag, agino });
                    let at = At::Inode(ino);
                    let Some(known) = self.inodes.get_mut(&ino.0) else {
                        let text = format!("list {bucket} holds an inode that is not in use");
                        self.findings.add(Rule::UnlinkedList, at, text);
                        break;
                    };
                    let again = std::mem::replace(&mut known.unlinked, true);
                    let (links, next) = (known.links, known.next_unlinked);
                    if again || links > 0 || agino as usize % 64 != bucket {
                        let text = format!("list {bucket}: {links} links, met before: {again}");
                        self.findings.add(Rule::UnlinkedList, at, text);
                    }
                    if again {
                        break;
                    }
                    agino = next;
                }
            }
        }
    }

    fn link_counts(&mut self) {
        let geometry = self.geometry();
        let quota = [&self.raw.sb_uquotino, &self.raw.sb_gquotino, &self.raw.sb_pquotino];
        let system: Vec<u64> = quota
            .map(|ino| ino.get())
            .into_iter()
            .chain(geometry.realtime_inos.map(|ino| ino.0))
            .filter(|&ino| ino != 0)
            .collect();
        let roots = self.roots();
        let names_unknown = self.names_unknown;
        let mut wrong = Vec::new();
        for (&ino, known) in &self.inodes {
            let is_dir = known.mode & 0xf000 == 0x4000;
            let is_root = roots.contains(&Ino(ino));
            // A directory has its own ".", the root also its "..".
            let own = u32::from(is_dir) + u32::from(is_root);
            let is_system = system.contains(&ino);
            let own = if is_system { 1 } else { own };
            if known.links == 0 && known.unlinked {
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
        self.unreachable();
    }

    /// Directories that no way from the root leads to.
    fn unreachable(&mut self) {
        let mut reached = BTreeSet::from_iter(self.roots());
        let mut lost = Vec::new();
        for (&ino, known) in &self.inodes {
            if known.mode & 0xf000 != 0x4000 || known.unlinked {
                continue;
            }
            let (mut at, mut way) = (Ino(ino), BTreeSet::new());
            while !reached.contains(&at) && way.insert(at) {
                match self.inodes.get(&at.0).and_then(|known| known.parent) {
                    Some(parent) => at = parent,
                    // Reported elsewhere: its names or it could not be read.
                    None => break,
                }
            }
            if !reached.contains(&at) && way.contains(&at) {
                lost.push(ino);
            }
            reached.extend(way);
        }
        for ino in lost {
            let text = "the directory is above itself: no way leads to the root";
            self.findings.add(Rule::Unconnected, At::Inode(Ino(ino)), text);
        }
    }
}
