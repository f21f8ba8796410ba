//! What was removed lately: inodes and names that the journal's older copies of blocks still hold,
//! and, where the journal was not replayed yet, the blocks themselves.
//!
//! A removal empties the inode and its map. Their older content is in the log until the log is
//! overwritten. The blocks of content are only marked as free: what of them nobody uses by now
//! still holds the content, unless the device discarded them.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Ino;
use block::{DeviceError, Queue};
use ext4::format::extent::FileRun;
use ext4::format::super_block::ROOT_INO;
use ext4::format::{FileKind, InodeFlags, InodeValues};
use rt::Cx;

use super::dirs::Name;
use super::map::Map;
use super::{Bits, Fs};
use crate::RepairError;
use crate::plan::Decisions;
use crate::undelete::{Deleted, Deletions, Known, path_of};
use crate::view::View;

/// A removed inode with its newest content, before it is known what it is called.
struct Candidate {
    values: InodeValues,
    kind: FileKind,
    sequence: u32,
    map: Map,
}

/// Looks for what was removed from an ext2, ext3 or ext4.
pub fn deleted(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Deletions, RepairError> {
    let mut decide = |_: &crate::Finding| true;
    let mut fs = Fs::open(View::new(cx, queue), Decisions::new(&mut decide), None)?;
    fs.start_inodes();
    fs.system_inodes()?;
    fs.scan_inodes()?;
    fs.attribute_blocks()?;
    fs.claims()?;
    fs.of_deleted = true;
    let candidates = fs.candidates()?;
    let names = fs.names_of_deleted(&candidates)?;
    let files = fs.judge_deleted(candidates, &names);
    Ok(Deletions { files, block_size: fs.g.block_size })
}

impl Fs<'_> {
    /// Inodes that are not in use, and have a version that was.
    fn candidates(&mut self) -> Result<BTreeMap<u32, Candidate>, DeviceError> {
        let (size, per_block) = (self.g.inode_size as usize, self.g.inodes_per_block);
        let mut found = BTreeMap::new();
        for group in 0..self.g.groups_count {
            let table = self.descs[group as usize].inode_table;
            for index in 0..self.g.itable_blocks {
                let versions = self.versions(table + u64::from(index))?;
                for (content, sequence) in &versions {
                    for slot in 0..per_block {
                        let number = index * per_block + slot;
                        let ino = group * self.g.inodes_per_group + number + 1;
                        let live = number >= self.g.inodes_per_group
                            || self.is_system(ino)
                            || self.inodes.contains_key(&ino)
                            || found.contains_key(&ino);
                        if live {
                            continue;
                        }
                        let bytes = &content[slot as usize * size..][..size];
                        if let Some(candidate) = self.candidate(ino, bytes, *sequence)? {
                            found.insert(ino, candidate);
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    fn candidate(
        &mut self,
        ino: u32,
        slot: &[u8],
        sequence: u32,
    ) -> Result<Option<Candidate>, DeviceError> {
        let Ok(values) = InodeValues::parse(slot, Ino(ino.into()), &self.g) else {
            return Ok(None);
        };
        let Some(kind) = values.kind() else { return Ok(None) };
        if values.links == 0 || values.dtime != 0 {
            return Ok(None);
        }
        let inside = matches!(kind, FileKind::Symlink) && values.blocks == 0;
        let map = match kind {
            FileKind::Regular | FileKind::Directory | FileKind::Symlink if !inside => {
                self.map(ino, &values)?
            }
            _ => Map::default(),
        };
        Ok(Some(Candidate { values, kind, sequence, map }))
    }

    /// The names of all inodes that a directory holds or held, the newest for each.
    fn names_of_deleted(
        &mut self,
        candidates: &BTreeMap<u32, Candidate>,
    ) -> Result<BTreeMap<u64, Known>, DeviceError> {
        let live = self.inodes.iter().filter(|(_, inode)| inode.kind == FileKind::Directory);
        let mut dirs: Vec<(u32, bool, Vec<FileRun>)> = live
            .map(|(&ino, inode)| {
                (ino, inode.flags.contains(InodeFlags::INDEX), inode.map.runs.clone())
            })
            .collect();
        let removed = candidates.iter().filter(|(_, one)| one.kind == FileKind::Directory);
        dirs.extend(removed.map(|(&ino, one)| {
            (ino, one.values.flags.contains(InodeFlags::INDEX), one.map.runs.clone())
        }));
        let mut names = BTreeMap::new();
        for (dir, index, runs) in dirs {
            for run in runs {
                for at in 0..run.len {
                    let first = run.logical + at == 0;
                    let place =
                        FileRun { logical: u64::from(!first), start: run.start + at, ..run };
                    for Name { name, ino, .. } in self.names_ever(dir, place, index)? {
                        names.entry(ino.into()).or_insert(Known { dir: dir.into(), name });
                    }
                }
            }
        }
        Ok(names)
    }

    /// The newest removals first, so that a block belongs to who had it last.
    fn judge_deleted(
        &mut self,
        candidates: BTreeMap<u32, Candidate>,
        names: &BTreeMap<u64, Known>,
    ) -> Vec<Deleted> {
        let mut all: Vec<(u32, Candidate)> = candidates.into_iter().collect();
        all.sort_by_key(|(ino, one)| (std::cmp::Reverse(one.sequence), *ino));
        let mut taken = Bits::new(self.g.blocks_count);
        let mut files = Vec::with_capacity(all.len());
        for (ino, one) in all {
            let Candidate { values, kind, map, .. } = one;
            let (mut blocks, mut lost) = (0, map.lost);
            for block in map.runs.iter().flat_map(|run| run.start..run.start + run.len) {
                blocks += 1;
                let other = self.used.get(block) || self.meta.get(block) || taken.get(block);
                lost += u64::from(other);
                taken.set(block);
            }
            let short = kind == FileKind::Symlink && values.blocks == 0;
            let len = (values.size as usize).min(values.block.len());
            files.push(Deleted {
                ino: ino.into(),
                exact: true,
                kind,
                path: path_of(Ino(ino.into()), Ino(ROOT_INO.into()), names),
                mode: values.mode,
                uid: values.uid,
                gid: values.gid,
                size: values.size,
                mtime: values.mtime,
                runs: map.runs,
                blocks,
                lost,
                target: short.then(|| values.block[..len].to_vec()),
            });
        }
        files.sort_by(|a, b| (&a.path, a.ino).cmp(&(&b.path, b.ino)));
        files
    }
}
