//! What reverse mappings, reference counts and free space say for and against the forks' own maps.

use base::{FsBlock, Ino};
use xfs::Rule;
use xfs::format::inode::{Flags2, ForkFormat};
use xfs::format::record::{RMAP_OFFSET_MASK, Rmap, owner};
use xfs::format::{At, Extent};

use super::claims::{ForkOf, Mapped, differing, fork_of};
use super::forks::{Device, Which, part};
use super::space::Place;
use super::{Fs, lossy, safe};

/// A run of blocks that a fork maps.
struct Held {
    start: u64,
    end: u64,
    of: ForkOf,
}

/// All content of forks on a device, by its place.
struct Holders {
    list: Vec<Held>,
    longest: u64,
}

impl Holders {
    /// Who has blocks of a range.
    fn of(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = &Held> {
        let first = range.start.saturating_sub(self.longest);
        let from = self.list.partition_point(|held| held.start < first);
        let list = self.list[from..].iter().take_while(move |held| held.start < range.end);
        list.filter(move |held| range.start < held.end)
    }
}

impl Fs<'_> {
    /// Corrects forks by the reverse mappings where free space and the other forks agree with
    /// those.
    pub fn ask_rmaps(&mut self, device: Device, mut forks: Mapped) {
        let mut changes: Vec<(ForkOf, Vec<Extent>, Vec<Extent>)> = Vec::new();
        for (&ino, inode) in &self.inodes {
            for which in Which::BOTH {
                let mapped = forks.remove(&(ino, which)).unwrap_or_default();
                let fork = inode.fork(which);
                let format = match which {
                    Which::Data => inode.core.format,
                    Which::Attr => inode.core.attr_format,
                };
                if fork.device() != device {
                    continue;
                }
                // What lies in the inode has no blocks.
                let maps = matches!(format, ForkFormat::Extents | ForkFormat::Btree);
                let mapped = if maps { mapped } else { Vec::new() };
                let (extra, missing) =
                    (differing(fork.mapped(), &mapped), differing(&mapped, fork.mapped()));
                if !extra.is_empty() || !missing.is_empty() {
                    changes.push(((ino, which), extra, missing));
                }
            }
        }
        if changes.is_empty() {
            return;
        }
        let (holders, realtime) = (self.holders(device), device == Device::Realtime);
        for (of, extra, missing) in changes {
            let refuted: Vec<Extent> =
                extra.into_iter().filter(|extent| self.is_refuted(extent, of, &missing)).collect();
            let restored: Vec<Extent> = missing
                .into_iter()
                .filter(|extent| extent.check(&self.g, realtime, At::Inode(Ino(of.0))).is_ok())
                .filter(|extent| self.is_in_use(device, extent) && self.fits_size(of, extent.end()))
                .flat_map(|extent| self.may_have(&extent, of, &holders, &refuted))
                .collect();
            self.correct(of, &refuted, &restored);
        }
    }

    /// The parts of an extent that a fork may have: those that nobody else has, or that may be
    /// shared with all who have them.
    fn may_have(
        &self,
        extent: &Extent,
        of: ForkOf,
        holders: &Holders,
        refuted: &[Extent],
    ) -> Vec<Extent> {
        let (start, end) = (extent.start.0, extent.start.0 + u64::from(extent.count));
        let place = self.place(self.inodes[&of.0].fork(of.1).device(), extent.start);
        let base = start - u64::from(place.block);
        let records = self.records_of(place);
        let goes = |from: u64, to: u64| {
            refuted
                .iter()
                .any(|gone| gone.start.0 <= from && to <= gone.start.0 + u64::from(gone.count))
        };
        let held: Vec<&Held> = holders
            .of(start..end)
            .filter(|held| held.of != of || !goes(held.start.max(start), held.end.min(end)))
            .collect();
        if held.is_empty() {
            return vec![*extent];
        }
        let mut cuts: Vec<u64> = held.iter().flat_map(|held| [held.start, held.end]).collect();
        cuts.extend(records.refcounts.iter().flatten().flat_map(|count| {
            [base + u64::from(count.start), base + u64::from(count.start + count.len)]
        }));
        cuts.extend([start, end]);
        cuts.retain(|cut| (start..=end).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        let may = |from: u64| {
            let here = held.iter().filter(|held| held.start <= from && from < held.end);
            let known = records.refs((from - base) as u32).unwrap_or(1);
            let shares = of.1 == Which::Data
                && self.inodes[&of.0].core.flags2.contains(Flags2::REFLINK)
                && held.iter().all(|held| held.of != of);
            match here.count() {
                0 => true,
                others => shares && (records.refcounts.is_none() || known as usize > others),
            }
        };
        let parts = cuts.windows(2).filter(|cut| may(cut[0]));
        let at = |block: u64| extent.offset + (block - start);
        parts.filter_map(|cut| part(extent, at(cut[0])..at(cut[1]))).collect()
    }

    /// All content of forks on a device, by its place.
    fn holders(&self, device: Device) -> Holders {
        let mut list = Vec::new();
        for (&ino, inode) in &self.inodes {
            for which in Which::BOTH {
                let fork = inode.fork(which);
                if fork.device() != device {
                    continue;
                }
                list.extend(fork.mapped().iter().map(|extent| {
                    let (start, of) = (extent.start.0, (ino, which));
                    Held { start, end: start + u64::from(extent.count), of }
                }));
            }
        }
        list.sort_unstable_by_key(|held| held.start);
        let longest = list.iter().map(|held| held.end - held.start).max().unwrap_or(0);
        Holders { list, longest }
    }

    /// Whether no block of an extent is free, as far as its group knows.
    fn is_in_use(&self, device: Device, extent: &Extent) -> bool {
        let place = self.place(device, extent.start);
        let records = self.records_of(place);
        (place.block..place.block + extent.count).all(|block| !records.says_free(block))
    }

    /// Whether reverse mappings and free space speak against a fork: its blocks are of another
    /// owner who knows of them, or nobody's and free, or in another place of the file. One record
    /// alone is as likely to be wrong as the fork, which is believed then. `missing` is what the
    /// reverse mappings say of the fork and it does not have.
    fn is_refuted(&self, extent: &Extent, of: ForkOf, missing: &[Extent]) -> bool {
        let device = self.inodes[&of.0].fork(of.1).device();
        let place = self.place(device, extent.start);
        let end = place.block + extent.count;
        let rmaps = self.records_of(place).rmaps.as_deref().unwrap_or_default();
        let mut overlapping =
            rmaps.iter().filter(|rmap| rmap.start < end && place.block < rmap.start + rmap.len);
        // The reverse mappings know where that part of the file lies.
        let elsewhere = || {
            let its = |other: &Extent| other.offset <= extent.offset && extent.end() <= other.end();
            missing.iter().any(|other| its(other) && self.is_in_use(device, other))
        };
        let other = overlapping.any(|rmap| match fork_of(rmap) {
            Some(theirs) if theirs == of => {
                let offset = rmap.offset & RMAP_OFFSET_MASK;
                let theirs = offset.wrapping_sub(rmap.start.into());
                // Another place of the file, which has nothing there: else the fork has it all.
                theirs != extent.offset.wrapping_sub(place.block.into())
                    && self.fits_size(of, offset + u64::from(rmap.len))
                    && self.inodes[&of.0].fork(of.1).runs(offset, 1).is_none()
                    && (!self.fits_size(of, extent.end()) || elsewhere())
            }
            // One of somebody who shares the block says nothing against this fork.
            Some(theirs) => {
                self.maps(theirs, place, rmap)
                    && !self.is_sharer(of, Place { block: rmap.start.max(place.block), ..place })
            }
            None if owner::is_inode(rmap.owner) => {
                let inode = self.inodes.get(&rmap.owner);
                let start = self.block_of(Place { block: rmap.start, ..place });
                let end = FsBlock(start.0 + u64::from(rmap.len));
                inode.is_some_and(|inode| {
                    let trees = inode.data.tree.iter().chain(&inode.attr.tree);
                    trees.into_iter().any(|block| (start..end).contains(block))
                })
            }
            None if [owner::FS, owner::LOG, owner::INODES].contains(&rmap.owner) => {
                let fixed = self.fixed_on(place);
                fixed.iter().any(|claim| {
                    let apart = claim.start + claim.len <= rmap.start
                        || rmap.start + rmap.len <= claim.start;
                    claim.owner == rmap.owner && !apart
                })
            }
            None => elsewhere(),
        });
        other || !self.is_in_use(device, extent)
    }

    /// Whether a fork may be one of those that share a block: the reference counts know of more
    /// owners than the reverse mappings name that have it, without it.
    fn is_sharer(&self, (ino, which): ForkOf, place: Place) -> bool {
        let (core, records) = (&self.inodes[&ino].core, self.records_of(place));
        if which != Which::Data || !core.flags2.contains(Flags2::REFLINK) {
            return false;
        }
        let known = records.refs(place.block).unwrap_or(1);
        let holds = |rmap: &&Rmap| rmap.start <= place.block && place.block < rmap.start + rmap.len;
        let others = records.rmaps.iter().flatten().filter(holds).filter(|rmap| {
            fork_of(rmap).is_some_and(|it| it != (ino, which) && self.maps(it, place, rmap))
        });
        others.count() < known as usize
    }

    /// Whether a fork maps anything of a record of a group that says so.
    fn maps(&self, (ino, which): ForkOf, group: Place, rmap: &Rmap) -> bool {
        let start = self.block_of(Place { block: rmap.start, ..group }).0;
        let end = start + u64::from(rmap.len);
        self.inodes.get(&ino).is_some_and(|inode| {
            let fork = inode.fork(which);
            fork.device() == group.device
                && fork.mapped().iter().any(|extent| {
                    extent.start.0 < end && start < extent.start.0 + u64::from(extent.count)
                })
        })
    }

    /// Whether a fork may map blocks up to `end`: its content does not end before.
    fn fits_size(&self, (ino, which): ForkOf, end: u64) -> bool {
        let inode = &self.inodes[&ino];
        let size = inode.core.size.div_ceil(u64::from(self.g.block_size));
        which == Which::Attr || inode.core.file_type() != 0x8000 || end <= size
    }

    /// Takes refuted extents out of a fork and puts restored ones in.
    fn correct(&mut self, of: ForkOf, refuted: &[Extent], restored: &[Extent]) {
        if refuted.is_empty() && restored.is_empty() {
            return;
        }
        let (ino, which) = of;
        let inode = self.inodes.get_mut(&ino).expect("an inode in use");
        let fork = inode.fork_mut(which);
        for extent in refuted {
            fork.cut(extent.offset..extent.end());
        }
        for extent in restored {
            fork.place(*extent);
        }
        inode.renew(which);
        let at = At::Inode(Ino(ino));
        let (action, count) = ("take the blocks that the reverse mappings name", restored.len());
        let covered = refuted.iter().all(|extent| {
            let fork = self.inodes[&ino].fork(which);
            fork.runs(extent.offset, extent.count).is_some()
        });
        let detail = format!("{} runs of blocks are not its own", refuted.len());
        self.note(match (refuted.is_empty(), covered) {
            (true, _) => {
                let detail = format!("{count} runs of blocks are missing in its map");
                safe(Rule::InodeExtents, at, detail, action)
            }
            (false, true) => safe(Rule::DoubleUse, at, detail, action),
            (false, false) => {
                lossy(Rule::DoubleUse, at, detail, "take them out of its map", "what was there")
            }
        });
    }
}
