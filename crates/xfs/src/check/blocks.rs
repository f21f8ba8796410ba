//! The owner of each block: free space, double use, lost blocks; reverse mappings and reference
//! counts against the owners.

use std::collections::BTreeSet;
use std::ops::Range;

use base::Ino;
use block::DeviceError;

use super::records::{Blocks, OfGroup};
use super::sums::is_data;
use super::{Checker, Rule};
use crate::error::Fault;
use crate::format::At;
use crate::format::inode::Flags2;
use crate::format::record::{
    FreeExtent, RMAP_ATTR_FORK, RMAP_BMBT, RMAP_UNWRITTEN, Refcount, Rmap, owner,
};

/// What begins or ends at a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    block: u32,
    /// Ends come before beginnings.
    begins: bool,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Free,
    Owned,
    Shared,
}

/// How many of each kind hold a run of blocks.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Holders {
    free: u32,
    owned: u32,
    shared: u32,
}

fn flags(claim: &Rmap) -> u64 {
    claim.offset & (RMAP_ATTR_FORK | RMAP_BMBT | RMAP_UNWRITTEN)
}

/// Joins what one record could hold, and sorts as the reverse mapping tree does.
fn normalise(mut list: Vec<Rmap>) -> Vec<Rmap> {
    list.sort_unstable_by_key(|claim| (claim.owner, flags(claim), claim.offset, claim.start));
    let mut out: Vec<Rmap> = Vec::with_capacity(list.len());
    for claim in list {
        if let Some(last) = out.last_mut() {
            let offset = if owner::is_inode(claim.owner) && claim.offset & RMAP_BMBT == 0 {
                last.offset.wrapping_add(u64::from(last.len))
            } else {
                last.offset
            };
            let touches = last.start.checked_add(last.len) == Some(claim.start);
            if last.owner == claim.owner && touches && claim.offset == offset {
                last.len += claim.len;
                continue;
            }
        }
        out.push(claim);
    }
    out.sort_unstable_by_key(|claim| (claim.key(), claim.len));
    out
}

/// A group of the device, or a group of the realtime section, whose trees lie in an inode.
#[derive(Clone, Copy)]
pub(super) enum Home {
    Group(u32),
    Section(Ino),
}

impl Home {
    /// Where findings about a block lie.
    fn at(self, block: u32) -> At {
        match self {
            Home::Group(ag) => At::AgBlock(ag, block),
            Home::Section(ino) => At::Inode(ino),
        }
    }

    /// Where findings about all of it lie.
    fn head(self) -> At {
        match self {
            Home::Group(ag) => At::Agf(ag),
            Home::Section(ino) => At::Inode(ino),
        }
    }
}

/// Some of its blocks, or all.
#[derive(Clone)]
pub(super) struct Region {
    pub home: Home,
    pub blocks: Range<u32>,
}

/// Looks whether each reference count is possible by itself, and ends before the next one begins.
pub(super) struct RefcountScan {
    length: u32,
    /// Of which kind the one before was, and where it ended.
    end: (bool, u32),
    before: Option<Refcount>,
    impossible: Vec<Refcount>,
    /// Pairs that should be one record.
    apart: Vec<(Refcount, Refcount)>,
}

impl RefcountScan {
    /// Of a region of so many blocks.
    pub fn new(length: u32) -> RefcountScan {
        let (impossible, apart) = (Vec::new(), Vec::new());
        RefcountScan { length, end: (false, 0), before: None, impossible, apart }
    }

    /// The next record.
    pub fn next_record(&mut self, record: &Refcount) {
        let behind = record.start.checked_add(record.len);
        let inside = record.len > 0 && behind.is_some_and(|behind| behind <= self.length);
        let refs = if record.cow { record.refs == 1 } else { record.refs >= 2 };
        if !inside || !refs || (record.cow == self.end.0 && record.start < self.end.1) {
            self.impossible.push(*record);
        }
        self.end = (record.cow, behind.unwrap_or(u32::MAX));
        if let Some(before) = self.before.replace(*record)
            && before.is_continued_by(record)
        {
            self.apart.push((before, *record));
        }
    }

    /// Nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.impossible.is_empty() && self.apart.is_empty()
    }
}

/// The claim of an extent that is in a CoW fork.
pub(super) fn cow_claim(count: Refcount) -> Option<Rmap> {
    let claim = Rmap { start: count.start, len: count.len, owner: owner::COW, offset: 0 };
    count.cow.then_some(claim)
}

impl Checker<'_> {
    /// Compares all claims of the groups in a window.
    pub(super) fn block_pass(&mut self, blocks: &mut Blocks) -> Result<(), DeviceError> {
        for ag in 0..self.reader.geometry.ag_count() {
            let part = blocks.part(ag);
            if !blocks.is_wanted(ag) || part.is_empty() {
                continue;
            }
            let index = ag as usize;
            let OfGroup { mut claims, free, counts, mappings } = blocks.take(ag);
            let scan = self.groups[index].refcounts.take();
            let group = &self.groups[index];
            let free = group.free_known.then_some(free);
            let rmaps = group.rmaps_known.then_some(mappings);
            let counts = scan.is_some().then_some(counts);
            claims.extend(counts.iter().flatten().copied().flat_map(cow_claim));
            let length = u64::from(self.reader.geometry.ag_length(ag));
            let inside = part.start.min(length) as u32..part.end.min(length) as u32;
            let region = Region { home: Home::Group(ag), blocks: inside };
            let scan = scan.filter(|_| part.start == 0);
            self.compare_claims(&region, claims, free.as_deref(), scan, counts, rmaps)?;
            self.owners_are_compared();
        }
        Ok(())
    }

    /// Compares the claims of a region with its free space, reference counts and reverse map, as
    /// far as they are known.
    pub(super) fn compare_claims(
        &mut self,
        region: &Region,
        claims: Vec<Rmap>,
        free: Option<&[FreeExtent]>,
        scan: Option<RefcountScan>,
        counts: Option<Vec<Refcount>>,
        rmaps: Option<Vec<Rmap>>,
    ) -> Result<(), DeviceError> {
        let shared = self.sweep(region, &claims, free);
        self.marks(&claims, &shared)?;
        self.impossible_refcounts(region.home, scan);
        if let Some(found) = counts {
            self.compare_refcounts(region, &found, &shared);
        }
        if let Some(found) = rmaps {
            self.compare_rmaps(region, found, claims);
        }
        Ok(())
    }

    fn events(&self, claims: &[Rmap], free: Option<&[FreeExtent]>) -> Vec<Event> {
        let reflink = self.reader.geometry.features.reflink();
        let mut events = Vec::with_capacity(2 * claims.len());
        let mut add = |start: u32, len: u32, what| {
            events.push(Event { block: start, begins: true, what });
            events.push(Event { block: start.saturating_add(len), begins: false, what });
        };
        for claim in claims {
            let what = if reflink && is_data(claim) { What::Shared } else { What::Owned };
            add(claim.start, claim.len, what);
        }
        for extent in free.into_iter().flatten() {
            add(extent.start, extent.len, What::Free);
        }
        events.sort_unstable();
        events
    }

    /// Goes over a group's blocks once; returns the runs that several files share.
    fn sweep(
        &mut self,
        region: &Region,
        claims: &[Rmap],
        free: Option<&[FreeExtent]>,
    ) -> Vec<Refcount> {
        let length = region.blocks.end;
        let events = self.events(claims, free);
        let (mut holders, mut shared) = (Holders::default(), Vec::new());
        let mut at = region.blocks.start;
        let mut index = 0;
        while at < length {
            while let Some(event) = events.get(index).filter(|event| event.block <= at) {
                let slot = match event.what {
                    What::Free => &mut holders.free,
                    What::Owned => &mut holders.owned,
                    What::Shared => &mut holders.shared,
                };
                *slot = if event.begins { *slot + 1 } else { *slot - 1 };
                index += 1;
            }
            let end = events.get(index).map_or(length, |event| event.block).min(length);
            self.judge(region.home.at(at), end - at, holders, free.is_some());
            if holders.shared > 1 {
                let run = Refcount { start: at, cow: false, len: end - at, refs: holders.shared };
                run.append_to(&mut shared);
            }
            at = end;
        }
        shared
    }

    fn judge(&mut self, at: At, len: u32, holders: Holders, free_known: bool) {
        let Holders { free, owned, shared } = holders;
        if free > 0 && owned + shared > 0 {
            let text = format!("{len} blocks are free and in use");
            self.findings.add(Rule::FreeInUse, at, text);
        } else if owned > 1 || (owned == 1 && shared > 0) {
            let text = format!("{len} blocks have {} owners", owned + shared);
            self.findings.add(Rule::DoubleUse, at, text);
        } else if free + owned + shared == 0 && free_known && !self.owners_unknown {
            let text = format!("{len} blocks are neither free nor in use");
            self.findings.add(Rule::LostBlocks, at, text);
        }
    }

    /// Whoever shares blocks must be marked for that, or he would overwrite them.
    fn marks(&mut self, claims: &[Rmap], shared: &[Refcount]) -> Result<(), DeviceError> {
        let mut looked = BTreeSet::new();
        for claim in claims.iter().filter(|claim| is_data(claim)) {
            let at = shared.partition_point(|run| run.start + run.len <= claim.start);
            let shares = shared.get(at).is_some_and(|run| run.start < claim.start + claim.len);
            if !shares || !looked.insert(claim.owner) {
                continue;
            }
            match self.reader.read_inode(self.cx, Ino(claim.owner)) {
                Ok((_, core)) if !core.flags2.contains(Flags2::REFLINK) => {
                    let text = "shares blocks and is not marked for that";
                    self.findings.add(Rule::ReferenceCount, At::Inode(Ino(claim.owner)), text);
                }
                Err(Fault::Device(error)) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn impossible_refcounts(&mut self, home: Home, scan: Option<RefcountScan>) {
        let Some(RefcountScan { impossible, apart, .. }) = scan else { return };
        for record in impossible {
            let text = format!("{record:?} is not possible");
            self.findings.add(Rule::ReferenceCount, home.at(record.start), text);
        }
        for (first, second) in apart {
            let text = format!("{first:?} and {second:?} should be one record");
            self.findings.add(Rule::ReferenceCount, home.at(second.start), text);
        }
    }

    fn compare_refcounts(&mut self, region: &Region, found: &[Refcount], expected: &[Refcount]) {
        if self.owners_unknown {
            return;
        }
        let mut joined: Vec<Refcount> = Vec::new();
        for count in found.iter().filter(|count| !count.cow) {
            count.append_to(&mut joined);
        }
        if joined != expected {
            let differs = joined.iter().zip(expected).find(|(found, wanted)| found != wanted);
            let text = match differs {
                Some((found, wanted)) => format!("{found:?} should be {wanted:?}"),
                None => format!("{} runs should be {}", joined.len(), expected.len()),
            };
            self.findings.add(Rule::ReferenceCount, region.home.head(), text);
        }
    }

    fn compare_rmaps(&mut self, region: &Region, found: Vec<Rmap>, claims: Vec<Rmap>) {
        if self.owners_unknown {
            return;
        }
        let (found, expected) = (normalise(found), normalise(claims));
        if found != expected {
            let differs = found.iter().zip(&expected).find(|(found, wanted)| found != wanted);
            let text = match differs {
                Some((found, wanted)) => format!("{found:?} should be {wanted:?}"),
                None => format!("{} mappings should be {}", found.len(), expected.len()),
            };
            self.findings.add(Rule::ReverseMapping, region.home.head(), text);
        }
    }
}
