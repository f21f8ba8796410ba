//! The records behind sums that differ: of the blocks of some groups, of names and inodes. They are
//! collected by going over the file system again, for as much of it at a time as memory allows.

use std::collections::BTreeMap;
use std::ops::Range;

use base::Ino;

use super::parents::Parents;
use crate::format::dir::FileType;
use crate::format::inode::{Flags2, InodeCore};
use crate::format::record::{FreeExtent, RMAP_BMBT, Refcount, Rmap, owner};

/// What is known of an inode in use.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub mode: u16,
    pub links: u32,
    /// Names found so far that point here.
    pub names: u32,
    /// A directory has a name for it.
    pub named: bool,
    /// The directory above, as a directory's own `..` says.
    pub parent: Option<Ino>,
    pub generation: u32,
    /// May share blocks, it says.
    pub reflink: bool,
    /// Of the file system itself, it says.
    pub metadata: bool,
}

impl Known {
    /// What its core says.
    pub fn of_core(core: &InodeCore) -> Known {
        Known {
            mode: core.mode,
            links: core.links,
            names: 0,
            named: false,
            parent: None,
            generation: core.generation,
            reflink: core.flags2.contains(Flags2::REFLINK),
            metadata: core.flags2.contains(Flags2::METADATA),
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & 0xf000 == 0x4000
    }
}

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameOf {
    pub dir: Ino,
    /// The directory is one of the file system itself.
    pub metadata: bool,
    pub target: Ino,
    pub file_type: FileType,
    /// It is one of a directory, whatever its type says.
    pub of_directory: bool,
}

/// What a record takes while it is compared: itself, what it becomes, and what sorts it.
const CLAIM: u64 = 120;
const MAPPING: u64 = 72;
const FREE: u64 = 40;
const COUNT: u64 = 48;
const INODE: u64 = 160;
const NAME: u64 = 48;

/// Bytes that records may take.
#[derive(Clone, Copy)]
pub(super) struct Room(pub u64);

/// Records in a window, which shrinks where they are more than fit.
struct Window {
    range: Range<u64>,
    bytes: u64,
    limit: u64,
}

impl Window {
    fn new(start: u64, room: Room) -> Window {
        Window { range: start..u64::MAX, bytes: 0, limit: room.0 }
    }

    /// Counts a record; true if there are too many.
    fn is_full(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        self.bytes > self.limit && self.range.end - self.range.start > 1
    }

    /// Ends before the middle of what it holds, which then counts half.
    fn halve(&mut self, mut places: Vec<u64>) -> u64 {
        places.retain(|&place| place > self.range.start);
        if places.is_empty() {
            // All lie at one place: nothing would be won.
            self.range.end = self.range.start + 1;
        } else {
            let middle = places.len() / 2;
            self.range.end = *places.select_nth_unstable(middle).1;
        }
        self.bytes /= 2;
        self.range.end
    }
}

/// Where a block of a group lies among all blocks.
fn place(ag: u32, block: u32) -> u64 {
    u64::from(ag) << 32 | u64::from(block)
}

/// The records of the blocks of a group.
#[derive(Default)]
pub(super) struct OfGroup {
    pub claims: Vec<Rmap>,
    pub free: Vec<FreeExtent>,
    pub counts: Vec<Refcount>,
    pub mappings: Vec<Rmap>,
}

/// The records of blocks from some place on.
pub(super) struct Blocks {
    window: Window,
    /// The groups that are of interest.
    wanted: Vec<bool>,
    groups: BTreeMap<u32, OfGroup>,
}

impl Blocks {
    /// Nothing yet, from a place on.
    pub fn new(start: u64, room: Room, wanted: Vec<bool>) -> Blocks {
        Blocks { window: Window::new(start, room), wanted, groups: BTreeMap::new() }
    }

    /// The part of a run in a group that lies in the window: how much is cut off before it, and
    /// its length. A whole run may leave its group.
    fn cut(&self, ag: u32, start: u32, len: u32) -> Option<(u32, u32)> {
        if !self.wanted.get(ag as usize).is_some_and(|&wanted| wanted) {
            return None;
        }
        let part = self.part(ag);
        let end = u64::from(start) + u64::from(len);
        let from = u64::from(start).max(part.start);
        let to = if part.end > u64::from(u32::MAX) { end } else { end.min(part.end) };
        let inside = from < to || (len == 0 && part.contains(&u64::from(start)));
        inside.then(|| ((from - u64::from(start)) as u32, (to - from) as u32))
    }

    /// The blocks of a group that lie in the window: all that a number can name in the last ones.
    pub fn part(&self, ag: u32) -> Range<u64> {
        let (first, behind) = (place(ag, 0), place(ag, 0) + (1 << 32));
        let Range { start, end } = self.window.range;
        start.clamp(first, behind) - first..end.clamp(first, behind) - first
    }

    /// Somebody claims blocks.
    pub fn claim(&mut self, ag: u32, claim: &Rmap) {
        if let Some((skip, len)) = self.cut(ag, claim.start, claim.len) {
            self.groups.entry(ag).or_default().claims.push(cut_mapping(claim, skip, len));
            self.count(CLAIM);
        }
    }

    /// The reverse map has a record.
    pub fn mapping(&mut self, ag: u32, record: &Rmap) {
        if let Some((skip, len)) = self.cut(ag, record.start, record.len) {
            self.groups.entry(ag).or_default().mappings.push(cut_mapping(record, skip, len));
            self.count(MAPPING);
        }
    }

    /// Blocks are free.
    pub fn free(&mut self, ag: u32, extent: FreeExtent) {
        if let Some((skip, len)) = self.cut(ag, extent.start, extent.len) {
            let extent = FreeExtent { start: extent.start + skip, len };
            self.groups.entry(ag).or_default().free.push(extent);
            self.count(FREE);
        }
    }

    /// The reference counts have a record.
    pub fn reference(&mut self, ag: u32, record: &Refcount) {
        if let Some((skip, len)) = self.cut(ag, record.start, record.len) {
            let record = Refcount { start: record.start + skip, len, ..*record };
            self.groups.entry(ag).or_default().counts.push(record);
            self.count(COUNT);
        }
    }

    fn count(&mut self, bytes: u64) {
        if self.window.is_full(bytes) {
            self.give_up_half();
        }
    }

    /// Gives up about half of what it holds.
    fn give_up_half(&mut self) {
        let mut places = Vec::new();
        for (&ag, group) in &self.groups {
            places.extend(group.claims.iter().map(|claim| place(ag, claim.start)));
            places.extend(group.mappings.iter().map(|record| place(ag, record.start)));
            places.extend(group.free.iter().map(|extent| place(ag, extent.start)));
            places.extend(group.counts.iter().map(|record| place(ag, record.start)));
        }
        self.window.halve(places);
        let before = std::mem::take(&mut self.groups);
        // What remains is half of what there was, so this does not shrink again.
        self.window.bytes = 0;
        let limit = std::mem::replace(&mut self.window.limit, u64::MAX);
        for (ag, group) in before {
            group.claims.iter().for_each(|claim| self.claim(ag, claim));
            group.mappings.iter().for_each(|record| self.mapping(ag, record));
            group.free.iter().for_each(|&extent| self.free(ag, extent));
            group.counts.iter().for_each(|record| self.reference(ag, record));
        }
        self.window.limit = limit;
    }

    /// The records of a group.
    pub fn take(&mut self, ag: u32) -> OfGroup {
        self.groups.remove(&ag).unwrap_or_default()
    }

    /// Whether a group is of interest.
    pub fn is_wanted(&self, ag: u32) -> bool {
        self.wanted[ag as usize]
    }

    /// Where the next window begins; none if this one is the last.
    pub fn next(&self) -> Option<u64> {
        let end = self.window.range.end;
        (end < place(self.wanted.len() as u32, 0)).then_some(end)
    }

    /// The groups that are of interest.
    pub fn into_wanted(self) -> Vec<bool> {
        self.wanted
    }
}

/// A part of a mapping.
fn cut_mapping(run: &Rmap, skip: u32, len: u32) -> Rmap {
    let placed = owner::is_inode(run.owner) && run.offset & RMAP_BMBT == 0;
    let offset = if placed { run.offset.wrapping_add(skip.into()) } else { run.offset };
    Rmap { start: run.start + skip, len, owner: run.owner, offset }
}

/// The inodes from some number on, and the names that concern them.
pub(super) struct Links {
    window: Window,
    pub inodes: BTreeMap<u64, Known>,
    pub names: Vec<NameOf>,
    pub parents: Parents,
}

impl Links {
    /// Nothing yet, from an inode on.
    pub fn new(start: u64, room: Room) -> Links {
        let (inodes, names, parents) = (BTreeMap::new(), Vec::new(), Parents::default());
        Links { window: Window::new(start, room), inodes, names, parents }
    }

    /// Whether an inode is in the window.
    pub fn covers(&self, ino: Ino) -> bool {
        self.window.range.contains(&ino.0)
    }

    /// An inode was read.
    pub fn inode(&mut self, ino: Ino, known: Known) {
        if self.covers(ino) {
            self.inodes.insert(ino.0, known);
            self.count_bytes(INODE);
        }
    }

    /// Whether a name concerns an inode in the window: its own, or the directory that it is in.
    fn concerns(&self, name: &NameOf) -> bool {
        self.covers(name.target) || name.of_directory && self.covers(name.dir)
    }

    /// A directory has a name.
    pub fn name(&mut self, name: NameOf) {
        if self.concerns(&name) {
            self.names.push(name);
            self.count_bytes(NAME);
        }
    }

    /// A name or a parent pointer takes memory.
    pub fn count_parent(&mut self, bytes: u64) {
        self.count_bytes(bytes);
    }

    fn count_bytes(&mut self, bytes: u64) {
        if !self.window.is_full(bytes) {
            return;
        }
        let mut places: Vec<u64> = self.inodes.keys().copied().collect();
        for name in &self.names {
            let at = if self.covers(name.target) { name.target } else { name.dir };
            places.push(at.0);
        }
        self.parents.places(&mut places);
        let end = self.window.halve(places);
        self.inodes.split_off(&end);
        let names = std::mem::take(&mut self.names);
        self.names = names.into_iter().filter(|name| self.concerns(name)).collect();
        self.parents.forget(end);
    }

    /// Where the next window begins; none if this one is the last.
    pub fn next(&self) -> Option<u64> {
        (self.window.range.end != u64::MAX).then_some(self.window.range.end)
    }
}
