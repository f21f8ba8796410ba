//! The realtime section: bitmaps, summaries and the counter follow from the files that lie in it.
//! Its device is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::{FsBlock, Ino, bitmap};
use block::DeviceError;
use xfs::Rule;
use xfs::format::record::{Rmap, owner};
use xfs::format::{At, Extent, Kind, RealtimeShape, verifier};

use super::forks::Which;
use super::groups::Records;
use super::lsn::Place;
use super::{Fs, lossy, safe};
use crate::RepairError;

/// Mode of the files of the section.
pub const FILE_MODE: u16 = 0x8000;
const RULES: [Rule; 2] = [Rule::RealtimeBitmap, Rule::RealtimeSummary];

/// A group of the section, or all of it where it is not divided.
#[derive(Default)]
pub struct SectionGroup {
    /// Bitmap, summary, reverse map and reference counts, as far as they are there.
    pub files: [Option<Ino>; 4],
    /// What its btrees say of its blocks.
    pub records: Records,
}

impl Fs<'_> {
    /// Blocks of a group that no file has.
    pub fn section_fixed(&self, group: u32) -> Vec<Rmap> {
        let shape = self.g.realtime;
        let len = shape.super_extents() as u32 * shape.extent_blocks;
        let held = Rmap { start: 0, len, owner: owner::FS, offset: 0 };
        if group == 0 && len > 0 { vec![held] } else { Vec::new() }
    }

    /// The files of a section without groups exist, with as many blocks as it takes: none where
    /// there is no section.
    ///
    /// # Errors
    /// Their place is gone; no room for their blocks.
    pub fn realtime_files_exist(&mut self) -> Result<(), RepairError> {
        if self.g.metadata_root.is_some() {
            return Ok(());
        }
        self.realtime_numbers()?;
        let shape = self.g.realtime;
        if let Some(section) = self.section.first_mut() {
            let [bitmap, summary] = self.g.realtime_inos;
            section.files = [Some(bitmap), Some(summary), None, None];
        }
        let blocks = match shape.blocks {
            0 => [0; 2],
            _ => [shape.bitmap_blocks, shape.summary_blocks(self.g.block_size)],
        };
        for ((ino, rule), blocks) in self.g.realtime_inos.into_iter().zip(RULES).zip(blocks) {
            let size = u64::from(blocks) << self.g.block_bits;
            let sized = self.inodes.get(&ino.0).is_some_and(|inode| match blocks {
                0 => inode.core.size == 0,
                _ => inode.core.size >= size,
            });
            if sized && self.holds_blocks(ino, blocks) {
                continue;
            }
            if !self.has_slot(ino) {
                let text = format!("the place of inode {ino}, the {}, is gone", rule.name());
                return Err(RepairError::Hopeless(text));
            }
            self.dirs.remove(&ino.0);
            let detail = match blocks {
                0 => "is no empty file".to_owned(),
                _ => format!("is no file of {blocks} blocks"),
            };
            self.note(safe(rule, At::Inode(ino), detail, "make one"));
            self.new_inode(ino, FILE_MODE)?;
            self.give_blocks(ino, blocks)?;
        }
        Ok(())
    }

    /// Whether an inode is a file on the device of the data that has its first blocks, and no
    /// others if there are to be none.
    pub fn holds_blocks(&self, ino: Ino, blocks: u32) -> bool {
        self.inodes.get(&ino.0).is_some_and(|inode| {
            let whole = match blocks {
                0 => inode.data.extents.is_empty(),
                _ => inode.data.runs(0, blocks).is_some(),
            };
            let plain = inode.core.file_type() == FILE_MODE && inode.data.section.is_none();
            plain && whole && inode.data.wrong.is_none()
        })
    }

    /// Gives a new file its blocks.
    ///
    /// # Errors
    /// There are not enough.
    pub fn give_blocks(&mut self, ino: Ino, blocks: u32) -> Result<(), RepairError> {
        if blocks == 0 {
            return Ok(());
        }
        let runs = self.take_blocks(blocks)?;
        let inode = self.inodes.get_mut(&ino.0).expect("it is new");
        inode.data.append_runs(0, &runs);
        inode.core.size = u64::from(blocks) << self.g.block_bits;
        inode.map_data = true;
        Ok(())
    }

    /// Bitmap and summary are the inodes behind the root directory: no other numbers are made.
    fn realtime_numbers(&mut self) -> Result<(), RepairError> {
        let root = self.g.root_ino.0;
        let right = [Ino(root + 1), Ino(root + 2)];
        if self.g.realtime_inos == right || !right.iter().all(|&ino| self.has_slot(ino)) {
            return Ok(());
        }
        let [bitmap, summary] = self.g.realtime_inos;
        let detail = format!("bitmap and summary are inodes {bitmap} and {summary}");
        let action = format!("store inodes {} and {}", right[0], right[1]);
        self.raw.sb_rbmino.set(right[0].0);
        self.raw.sb_rsumino.set(right[1].0);
        self.g.realtime_inos = right;
        self.write_super()?;
        self.note(safe(Rule::Super, At::Super(0), detail, &action));
        Ok(())
    }

    /// Settles what belongs to whom in the section, and makes bitmaps, summaries, btrees and the
    /// counter say so.
    ///
    /// # Errors
    /// The device's; no room for a btree.
    pub fn write_section(&mut self) -> Result<(), RepairError> {
        if self.g.realtime.blocks == 0 {
            return Ok(());
        }
        self.settle_section();
        let shape = self.g.realtime;
        let count = shape.extents as usize;
        let mut free = vec![0; count.div_ceil(8)];
        bitmap::set_range(&mut free, 0, count);
        for (run, _) in self.section_claims() {
            bitmap::clear_range(&mut free, run.start as usize, run.end as usize);
        }
        for group in 0..shape.group_count() {
            self.write_free_space(group, &free)?;
        }
        self.write_section_trees()?;
        let extents = count as u64 - bitmap::count_zeros(&free, count) as u64;
        let found = self.raw.sb_frextents.get();
        if found != extents {
            self.raw.sb_frextents.set(extents);
            self.write_super()?;
            let detail = format!("free realtime extents: {found} should be {extents}");
            self.note(safe(Rule::SuperCount, At::Super(0), detail, "store that"));
        }
        Ok(())
    }

    /// Makes bitmap and summary of a group say which extents of the section are free.
    fn write_free_space(&mut self, group: u32, free: &[u8]) -> Result<(), DeviceError> {
        let shape = self.g.realtime;
        let words = shape.words(self.g.block_size);
        let (here, row) = (shape.extents_of(group), u64::from(shape.bitmap_blocks));
        let (first, end) = (here.start as usize, here.end as usize);
        let size = self.g.block_size as usize;
        let blocks = |count: u32| vec![vec![0; size]; count as usize];
        let mut maps = blocks(shape.bitmap_blocks);
        let mut counts = blocks(shape.summary_blocks(self.g.block_size));
        let (all, bits) = (words.place(0..words.per_block() as usize), words.bits() as usize);
        let mut at = first;
        while let Some(start) = bitmap::find_next_set(free, at, end) {
            let len = bitmap::run_of_ones(free, start, end);
            let run = start - first..start - first + len;
            let touched = run.start / bits..run.end.div_ceil(bits);
            for (index, block) in touched.clone().zip(&mut maps[touched]) {
                let own = index * bits..(index + 1) * bits;
                let from = run.start.max(own.start) - own.start;
                let to = run.end.min(own.end) - own.start;
                bitmap::set_range(&mut block[all.clone()], from, to);
            }
            let index = u64::from(len.ilog2()) * row + (run.start / bits) as u64;
            let (block, word) = (index / words.per_block(), (index % words.per_block()) as usize);
            let block = &mut counts[block as usize];
            let value = words.get(block, word) + 1;
            words.set(&mut block[words.place(word..word + 1)], value);
            at = start + len;
        }
        maps.iter_mut().for_each(|block| words.turn(&mut block[all.clone()]));
        let [bitmap, summary, ..] = self.section[group as usize].files;
        self.write_section_file(Rule::RealtimeBitmap, Kind::RealtimeBitmap, bitmap, maps)?;
        self.write_section_file(Rule::RealtimeSummary, Kind::RealtimeSummary, summary, counts)
    }

    /// Writes the blocks of a bitmap or a summary that differ.
    fn write_section_file(
        &mut self,
        rule: Rule,
        kind: Kind,
        ino: Option<Ino>,
        blocks: Vec<Vec<u8>>,
    ) -> Result<(), DeviceError> {
        let ino = ino.expect("the files of the section exist");
        let runs = self.inodes[&ino.0].data.runs(0, blocks.len() as u32);
        let runs = runs.expect("the file is whole");
        let places = runs.iter().flat_map(|&(start, count)| {
            (0..u64::from(count)).map(move |block| FsBlock(start.0 + block))
        });
        let mut wrong = 0;
        for (place, mut content) in places.collect::<Vec<_>>().into_iter().zip(blocks) {
            let found = self.view.read(self.linear(place))?;
            if self.g.realtime.groups.is_some() {
                let expect = self.g.expect(self.g.sector(place), Some(ino.0));
                let sound = verifier::verify(kind, &found, &expect, At::Inode(ino)).is_ok();
                let lsn = if sound { verifier::lsn(kind, &found) } else { 0 };
                if sound {
                    let runs = || Place::Blocks(vec![(place, 1)]);
                    self.note_lsn(kind, &found, At::Inode(ino), runs);
                }
                verifier::stamp(kind, &mut content, &expect);
                verifier::update_lsn_crc(kind, &mut content, lsn);
            }
            if found[..] != content {
                self.view.write(self.linear(place), &content);
                wrong += 1;
            }
        }
        if wrong > 0 {
            let detail = format!("{wrong} blocks say something else than the files of the section");
            self.note(safe(rule, At::Inode(ino), detail, "write them anew"));
        }
        Ok(())
    }

    /// Extents of the section that files have, with the file, in their order; inode 0 has those of
    /// the section's superblock. An extent is a file's as a whole.
    fn section_claims(&self) -> Vec<(Range<u64>, u64)> {
        let shape = self.g.realtime;
        let mut claims: Vec<(Range<u64>, u64)> = Vec::new();
        claims.extend((shape.super_extents() > 0).then(|| (0..shape.super_extents(), 0)));
        for (&ino, inode) in &self.inodes {
            for extent in inode.data.section.iter().flatten() {
                claims.push((units(extent, &shape), ino));
            }
        }
        claims.sort_unstable_by_key(|(run, ino)| (run.start, run.end, *ino));
        claims
    }

    /// Takes extents of the section out of the maps of all files but one: no copy can be made. A
    /// file that contradicts itself has the weaker claim, then the one with the higher number.
    /// Where blocks may be shared that is settled already.
    fn settle_section(&mut self) {
        let shape = self.g.realtime;
        if shape.groups.is_some() && self.g.features.reflink() {
            return self.whole_units();
        }
        let partial = self.partial_files();
        let mut claims = self.section_claims();
        claims.sort_by_key(|(run, ino)| (partial.contains(ino), *ino, run.start));
        let mut taken: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut lost: Vec<(u64, Range<u64>)> = Vec::new();
        for (run, ino) in claims {
            let mut over =
                taken.range(..run.end).rev().take_while(|(_, (end, _))| *end > run.start);
            match over.any(|(_, (_, by))| *by != ino) {
                true => lost.push((ino, run)),
                false => {
                    let end = taken.get(&run.start).map_or(run.end, |(end, _)| run.end.max(*end));
                    taken.insert(run.start, (end, ino));
                }
            }
        }
        for (ino, run) in lost {
            let inode = self.inodes.get_mut(&ino).expect("in use");
            let list = inode.data.section.take().unwrap_or_default();
            let kept = list.into_iter().filter(|extent| units(extent, &shape) != run);
            inode.data.section = Some(kept.collect());
            inode.renew(Which::Data);
            let detail = format!("realtime extents from {} on are another file's, too", run.start);
            let (action, loss) = ("take them out of its map", "its content there");
            self.note(lossy(Rule::DoubleUse, At::Inode(Ino(ino)), detail, action, loss));
        }
        self.whole_units();
    }

    /// Files that map extents of the section in part.
    fn partial_files(&self) -> BTreeSet<u64> {
        let shape = self.g.realtime;
        let partial = |list: &Vec<Extent>| {
            let mut whole = Whole { shape, ..Whole::default() };
            list.iter().for_each(|extent| whole.take(*extent));
            whole.list != *list
        };
        let files = self
            .inodes
            .iter()
            .filter(|(_, inode)| inode.data.section.as_ref().is_some_and(partial));
        files.map(|(&ino, _)| ino).collect()
    }

    /// A file maps extents of the section once, and from their starts on: what is lost of one is
    /// mapped as unwritten, or the rest of it goes, too.
    fn whole_units(&mut self) {
        let shape = self.g.realtime;
        let mut notes = Vec::new();
        for (&ino, inode) in &mut self.inodes {
            let Some(list) = &inode.data.section else { continue };
            let mut whole = Whole { shape, ..Whole::default() };
            list.iter().for_each(|extent| whole.take(*extent));
            if whole.list != *list {
                inode.data.section = Some(whole.list);
                inode.renew(Which::Data);
                notes.push((At::Inode(Ino(ino)), whole.lost));
            }
        }
        for (at, lost) in notes {
            let detail = "maps parts of realtime extents";
            let action = "map them from their starts on, unwritten where they were not";
            let rule = Rule::InodeExtents;
            self.note(match lost {
                false => safe(rule, at, detail, action),
                true => lossy(rule, at, detail, "take them out of its map", "its content there"),
            });
        }
    }
}

/// What a file maps of the section, extents as a whole.
#[derive(Default)]
struct Whole {
    shape: RealtimeShape,
    list: Vec<Extent>,
    /// Extents of the section that are mapped, by their starts.
    seen: BTreeMap<u64, u64>,
    lost: bool,
}

impl Whole {
    /// Takes the next extent of the file.
    fn take(&mut self, extent: Extent) {
        let inside = self.shape.linear(extent.start) % u64::from(self.shape.extent_blocks.max(1));
        let last = self.list.last();
        let goes_on = inside > 0 && last.is_some_and(|last| last.goes_on(&extent));
        let end = last.map_or(0, Extent::end);
        let mut run = units(&extent, &self.shape);
        if goes_on {
            // Its first extent of the section is known as that of the one before.
            run.start += 1;
        }
        if self.is_seen(&run) || inside > 0 && !goes_on && extent.offset < end + inside {
            self.lost = true;
            return;
        }
        if inside > 0 && !goes_on {
            let (offset, start) = (extent.offset - inside, FsBlock(extent.start.0 - inside));
            self.list.push(Extent { offset, start, count: inside as u32, unwritten: true });
        }
        self.list.push(extent);
        if !run.is_empty() {
            self.seen.insert(run.start, run.end);
        }
    }

    fn is_seen(&self, run: &Range<u64>) -> bool {
        let before = self.seen.range(..run.end).next_back();
        !run.is_empty() && before.is_some_and(|(_, &end)| end > run.start)
    }
}

/// The extents of the section that an extent of a file has a part of.
fn units(extent: &Extent, shape: &RealtimeShape) -> Range<u64> {
    let (unit, start) = (u64::from(shape.extent_blocks.max(1)), shape.linear(extent.start));
    start / unit..(start + u64::from(extent.count)).div_ceil(unit)
}
