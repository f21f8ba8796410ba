//! Who owns which blocks where owners contradict each other: the reverse mappings and the free
//! space are asked first, then what the blocks say of themselves.

use std::collections::BTreeMap;

use base::{FsBlock, Ino};
use block::DeviceError;
use xfs::Rule;
use xfs::format::inode::{Flags, Flags2};
use xfs::format::record::{
    RMAP_ATTR_FORK, RMAP_BMBT, RMAP_OFFSET_MASK, RMAP_UNWRITTEN, Rmap, owner,
};
use xfs::format::{At, Extent, Kind, verifier};

use super::forks::{Device, Which, part};
use super::space::Place;
use super::{Fs, lossy, safe};
use crate::RepairError;

/// Which fork of which inode.
pub type ForkOf = (u64, Which);

/// What reverse mappings say of forks.
pub type Mapped = BTreeMap<ForkOf, Vec<Extent>>;

/// A run of blocks of one fork that somebody else claims, too.
#[derive(Clone, Copy, Debug)]
struct Claim {
    of: ForkOf,
    extent: Extent,
}

/// Who has a run of blocks.
#[derive(Clone, Copy)]
struct Owned {
    start: u64,
    end: u64,
    /// The fork; none for headers, the log and inodes.
    of: Option<ForkOf>,
    /// What it maps there; none for a block of its map.
    extent: Option<Extent>,
}

impl Owned {
    /// What a fork maps of a range of blocks.
    fn claim(&self, range: &std::ops::Range<u64>) -> Option<Claim> {
        let (of, extent) = (self.of?, self.extent?);
        let from = extent.offset + (range.start - extent.start.0);
        let extent = part(&extent, from..from + (range.end - range.start))?;
        Some(Claim { of, extent })
    }
}

/// The fork that a reverse mapping names, if it is content of one.
pub fn fork_of(rmap: &Rmap) -> Option<ForkOf> {
    let fork = owner::is_inode(rmap.owner) && rmap.offset & RMAP_BMBT == 0;
    let which = if rmap.offset & RMAP_ATTR_FORK != 0 { Which::Attr } else { Which::Data };
    fork.then_some((rmap.owner, which))
}

/// The parts of `list` that `other` does not have.
pub fn differing(list: &[Extent], other: &[Extent]) -> Vec<Extent> {
    let mut out = Vec::new();
    for extent in list {
        let mut at = extent.offset;
        while at < extent.end() {
            let place = other.partition_point(|theirs| theirs.end() <= at);
            let theirs = other.get(place).filter(|theirs| theirs.offset < extent.end());
            let Some(theirs) = theirs else {
                out.extend(part(extent, at..extent.end()));
                break;
            };
            out.extend(part(extent, at..theirs.offset.clamp(at, extent.end())));
            let start = theirs.offset.max(at);
            let end = theirs.end().min(extent.end());
            // Whether blocks were written is for the fork to say.
            let place = |extent| part(extent, start..end).map(|part| part.start);
            if place(extent) != place(theirs) {
                out.extend(part(extent, start..end));
            }
            at = end;
        }
    }
    out
}

impl Fs<'_> {
    /// Settles who owns what. Forks hold no block twice afterwards but those that may be shared.
    ///
    /// # Errors
    /// The device's; no room for a copy.
    pub fn settle_claims(&mut self) -> Result<(), RepairError> {
        let mapped = Device::BOTH.map(|device| self.mapped_by_rmaps(device));
        self.settle_devices(&mapped)?;
        for (device, mapped) in Device::BOTH.into_iter().zip(mapped) {
            if let Some(mapped) = mapped {
                self.ask_rmaps(device, mapped);
            }
            self.ask_blocks(device)?;
        }
        let known =
            Device::BOTH.map(|device| self.all_records(device).all(|it| it.rmaps.is_some()));
        let mut wrong = Vec::new();
        for (&ino, inode) in &mut self.inodes {
            for which in Which::BOTH {
                let fork = inode.fork(which);
                let whole = fork.wrong.is_none() || known[fork.device() as usize];
                if let Some(detail) = fork.flaw().cloned() {
                    inode.renew(which);
                    wrong.push((At::Inode(Ino(ino)), detail, whole));
                }
            }
        }
        for (at, detail, whole) in wrong {
            let action = "write its map anew";
            self.note(match whole {
                true => safe(Rule::InodeExtents, at, detail, action),
                false => lossy(Rule::InodeExtents, at, detail, action, "what cannot be read of it"),
            });
        }
        Ok(())
    }

    /// A file whose map is what the reverse mappings of the other device say lies there: its flag
    /// is wrong.
    fn settle_devices(&mut self, mapped: &[Option<Mapped>; 2]) -> Result<(), DeviceError> {
        let [Some(data), Some(section)] = mapped else { return Ok(()) };
        let mut moved = Vec::new();
        for (&ino, inode) in &self.inodes {
            let of = (ino, Which::Data);
            let [here, there] = match inode.data.device() {
                Device::Data => [data, section],
                Device::Realtime => [section, data],
            };
            if let Some(mapped) = there.get(&of).filter(|_| !here.contains_key(&of)) {
                moved.push((Ino(ino), mapped));
            }
        }
        for (ino, mapped) in moved {
            let (slot, mut core) = (self.slot(ino)?, self.inodes[&ino.0].core.clone());
            core.flags.toggle(Flags::REALTIME);
            let fork = self.read_fork(ino, &slot, &core, Which::Data)?;
            let list = fork.mapped();
            let same = differing(list, mapped).is_empty() && differing(mapped, list).is_empty();
            if !same || fork.wrong.is_some() || core.file_type() != 0x8000 {
                continue;
            }
            let inode = self.inodes.get_mut(&ino.0).expect("in use");
            (inode.core, inode.data, inode.dirty) = (core, fork, true);
            let detail = "its map is that of blocks of the other device";
            self.note(safe(Rule::Inode, At::Inode(ino), detail, "change the flag that says which"));
        }
        Ok(())
    }

    /// What the reverse mappings of all groups of a device say of forks; none where a group's
    /// cannot be read.
    fn mapped_by_rmaps(&self, device: Device) -> Option<Mapped> {
        let mut forks = Mapped::new();
        for (group, records) in (0..).zip(self.all_records(device)) {
            for rmap in records.rmaps.as_ref()? {
                let Some(of) = fork_of(rmap) else { continue };
                forks.entry(of).or_default().push(Extent {
                    offset: rmap.offset & RMAP_OFFSET_MASK,
                    start: self.block_of(Place { device, group, block: rmap.start }),
                    count: rmap.len,
                    unwritten: rmap.offset & RMAP_UNWRITTEN != 0,
                });
            }
        }
        forks.values_mut().for_each(|list| list.sort_by_key(|extent| extent.offset));
        Some(forks)
    }

    /// Settles what is still claimed twice on a device.
    fn ask_blocks(&mut self, device: Device) -> Result<(), RepairError> {
        if device == Device::Realtime && !self.g.section_trees() {
            // Without reference counts extents have one owner: see `settle_section`.
            return Ok(());
        }
        let mut runs: Vec<Owned> = Vec::new();
        for group in 0..self.all_records(device).count() as u32 {
            let place = Place { device, group, block: 0 };
            for claim in self.fixed_on(place) {
                let start = self.block_of(Place { block: claim.start, ..place }).0;
                let end = start + u64::from(claim.len);
                runs.push(Owned { start, end, of: None, extent: None });
            }
        }
        for (&ino, inode) in &self.inodes {
            for which in Which::BOTH {
                let (fork, of) = (inode.fork(which), Some((ino, which)));
                let here = fork.device() == device;
                for &extent in fork.mapped().iter().filter(|_| here) {
                    let start = extent.start.0;
                    let end = start + u64::from(extent.count);
                    runs.push(Owned { start, end, of, extent: Some(extent) });
                }
                let tree = fork.tree.iter().filter(|_| device == Device::Data).map(|block| block.0);
                runs.extend(tree.map(|start| Owned { start, end: start + 1, of, extent: None }));
            }
        }
        runs.sort_unstable_by_key(|run| (run.start, run.end));
        // The one that reaches furthest so far, and each that begins before its end.
        let (mut last, mut pairs): (Option<Owned>, Vec<[Owned; 2]>) = (None, Vec::new());
        for run in runs {
            if let Some(before) = last.filter(|before| run.start < before.end) {
                pairs.push([before, run]);
            }
            if last.is_none_or(|before| run.end > before.end) {
                last = Some(run);
            }
        }
        pairs.into_iter().try_for_each(|pair| self.settle_pair(pair))
    }

    /// Settles the run that two have.
    fn settle_pair(&mut self, [one, two]: [Owned; 2]) -> Result<(), RepairError> {
        let range = one.start.max(two.start)..one.end.min(two.end);
        match (one.claim(&range), two.claim(&range)) {
            (Some(first), Some(second)) => self.settle_forks(first, second),
            // A block of a map, an inode, a header or the log speaks for itself.
            (Some(loser), None) | (None, Some(loser)) => {
                self.lose(loser, "holds metadata of another owner");
                Ok(())
            }
            (None, None) => {
                for (ino, which) in [one.of, two.of].into_iter().flatten() {
                    let inode = self.inodes.get_mut(&ino).expect("in use");
                    let block = FsBlock(range.start);
                    inode.fork_mut(which).tree.retain(|&other| other != block);
                    inode.renew(which);
                }
                Ok(())
            }
        }
    }

    fn settle_forks(&mut self, first: Claim, second: Claim) -> Result<(), RepairError> {
        // An earlier pair may have settled it.
        if !self.still_holds(&first) || !self.still_holds(&second) {
            return Ok(());
        }
        if self.may_share(&first, &second) {
            self.share(first, second);
            return Ok(());
        }
        let (one, two) = (self.speaks_for(&first)?, self.speaks_for(&second)?);
        match (one, two) {
            (true, false) => self.lose(second, "holds metadata of another owner"),
            (false, true) => self.lose(first, "holds metadata of another owner"),
            _ if first.of == second.of => self.lose(second, "is mapped twice by the same file"),
            _ if self.device_of(&second) == Device::Realtime => {
                // No copy is made without the device. The lower number keeps it.
                let loser = if first.of.0 > second.of.0 { first } else { second };
                self.lose(loser, "is another file's, too");
            }
            _ => return self.copy(second, first.of.0),
        }
        Ok(())
    }

    fn still_holds(&self, claim: &Claim) -> bool {
        let Some(inode) = self.inodes.get(&claim.of.0) else { return false };
        let runs = inode.fork(claim.of.1).runs(claim.extent.offset, claim.extent.count);
        runs.is_some_and(|runs| runs == [(claim.extent.start, claim.extent.count)])
    }

    /// Whether the blocks say of themselves that they belong to this inode.
    fn speaks_for(&mut self, claim: &Claim) -> Result<bool, DeviceError> {
        let block = claim.extent.start;
        if self.device_of(claim) == Device::Realtime {
            return Ok(false);
        }
        let data = self.read_runs(&[(block, 1)])?;
        let Some(kind) = Kind::recognise(&data) else { return Ok(false) };
        let of_fork = match claim.of.1 {
            Which::Attr => matches!(kind, Kind::AttrLeaf | Kind::AttrRemote | Kind::DaNode),
            Which::Data => matches!(
                kind,
                Kind::DirBlock
                    | Kind::DirData
                    | Kind::DirFree
                    | Kind::DirLeaf1
                    | Kind::DirLeafN
                    | Kind::DaNode
                    | Kind::Symlink
            ),
        };
        let expect = self.g.expect(self.g.sector(block), Some(claim.of.0));
        Ok(of_fork && verifier::verify_identity(kind, &data, &expect, At::Block(0)).is_ok())
    }

    /// Whether two files may have these blocks together.
    fn may_share(&self, first: &Claim, second: &Claim) -> bool {
        let regular = |claim: &Claim| {
            let inode = &self.inodes[&claim.of.0];
            claim.of.1 == Which::Data && inode.core.file_type() == 0x8000 && !claim.extent.unwritten
        };
        self.g.features.reflink() && regular(first) && regular(second)
    }

    /// Marks both as sharing; where nothing knew that they do, that is a guess.
    fn share(&mut self, first: Claim, second: Claim) {
        let place = self.place(self.device_of(&first), first.extent.start);
        let known = self.records_of(place).refs(place.block).is_some();
        let marked = [&first, &second].map(|claim| {
            let core = &self.inodes[&claim.of.0].core;
            core.flags2.contains(Flags2::REFLINK)
        });
        for (claim, marked) in [(&first, marked[0]), (&second, marked[1])] {
            if marked {
                continue;
            }
            let inode = self.inodes.get_mut(&claim.of.0).expect("in use");
            inode.core.flags2 |= Flags2::REFLINK;
            inode.dirty = true;
            let at = At::Inode(Ino(claim.of.0));
            let detail = "shares blocks and is not marked for that";
            self.note(match known {
                true => safe(Rule::ReferenceCount, at, detail, "mark it"),
                false => {
                    let loss = "the content of one of the files that share them may be the other's";
                    lossy(Rule::DoubleUse, at, detail, "mark it", loss)
                }
            });
        }
    }

    /// The device on which a claim lies.
    fn device_of(&self, claim: &Claim) -> Device {
        self.inodes[&claim.of.0].fork(claim.of.1).device()
    }

    /// Takes blocks out of a fork.
    fn lose(&mut self, claim: Claim, why: &str) {
        let (ino, which) = claim.of;
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        inode.fork_mut(which).cut(claim.extent.offset..claim.extent.end());
        inode.renew(which);
        let place = self.place(self.device_of(&claim), claim.extent.start);
        let detail = format!("block {} of {} {why}", place.block, place.group_name());
        let action = "take it out of the file's map";
        self.note(lossy(Rule::DoubleUse, At::Inode(Ino(ino)), detail, action, "what was there"));
    }

    /// Gives a fork a copy of blocks that another one has, too.
    fn copy(&mut self, claim: Claim, other: u64) -> Result<(), RepairError> {
        let (ino, which) = claim.of;
        self.spare = None;
        let runs = self.take_blocks(claim.extent.count)?;
        let content = self.read_runs(&[(claim.extent.start, claim.extent.count)])?;
        self.write_runs(&runs, &content);
        let inode = self.inodes.get_mut(&ino).expect("in use");
        let mut at = claim.extent.offset;
        for (start, count) in runs {
            let extent = Extent { offset: at, start, count, ..claim.extent };
            inode.fork_mut(which).place(extent);
            at += u64::from(count);
        }
        inode.renew(which);
        let detail = format!("{} blocks are inode {other}'s, too", claim.extent.count);
        let loss = "the content of one of the two may be the other's";
        self.note(lossy(Rule::DoubleUse, At::Inode(Ino(ino)), detail, "copy them", loss));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, start: u64, count: u32) -> Extent {
        Extent { offset, start: FsBlock(start), count, unwritten: false }
    }

    #[test]
    fn maps_are_compared_by_their_parts() {
        let one = [extent(0, 100, 10), extent(20, 200, 5)];
        let two = [extent(0, 100, 4), extent(4, 104, 6), extent(20, 300, 2), extent(22, 202, 3)];
        assert_eq!(differing(&one, &two), [extent(20, 200, 2)]);
        assert_eq!(differing(&two, &one), [extent(20, 300, 2)]);
        assert_eq!(differing(&one, &[]), one);
        assert_eq!(differing(&one, &one), []);
    }
}
