//! The realtime section without groups: bitmap, summary and counter follow from the files that lie
//! in it. Its device is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::{FsBlock, Ino, bitmap};
use xfs::Rule;
use xfs::format::{At, Extent};

use super::forks::Which;
use super::{Fs, lossy, safe};
use crate::RepairError;

/// Mode of the files of the section.
const FILE_MODE: u16 = 0x8000;
const RULES: [Rule; 2] = [Rule::RealtimeBitmap, Rule::RealtimeSummary];

impl Fs<'_> {
    /// The files of the section exist, with as many blocks as it takes: none where there is no
    /// section.
    ///
    /// # Errors
    /// Their place is gone; no room for their blocks.
    pub fn realtime_files_exist(&mut self) -> Result<(), RepairError> {
        if self.g.metadata_root.is_some() {
            return Ok(());
        }
        self.realtime_numbers()?;
        let shape = self.g.realtime;
        let blocks = match shape.blocks {
            0 => [0; 2],
            _ => [shape.bitmap_blocks, shape.summary_blocks(self.g.block_size)],
        };
        for ((ino, rule), blocks) in self.g.realtime_inos.into_iter().zip(RULES).zip(blocks) {
            let size = u64::from(blocks) << self.g.block_bits;
            let sound = self.inodes.get(&ino.0).is_some_and(|inode| {
                let whole = match blocks {
                    0 => inode.data.extents.is_empty(),
                    _ => inode.data.runs(0, blocks).is_some(),
                };
                let sized =
                    if blocks == 0 { inode.core.size == 0 } else { inode.core.size >= size };
                let plain = inode.core.file_type() == FILE_MODE && inode.data.section.is_none();
                plain && sized && whole && inode.data.wrong.is_none()
            });
            if sound {
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
            if blocks > 0 {
                let runs = self.take_blocks(blocks)?;
                let inode = self.inodes.get_mut(&ino.0).expect("it is new");
                inode.data.append_runs(0, &runs);
                (inode.core.size, inode.map_data) = (size, true);
            }
        }
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

    /// Settles what belongs to whom in the section, and makes bitmap, summary and counter say so.
    ///
    /// # Errors
    /// The device's.
    pub fn write_section(&mut self) -> Result<(), RepairError> {
        let shape = self.g.realtime;
        if shape.blocks == 0 {
            return Ok(());
        }
        self.settle_section();
        let count = shape.extents as usize;
        let mut free = vec![0; count.div_ceil(8)];
        bitmap::set_range(&mut free, 0, count);
        for (run, _) in self.section_claims() {
            bitmap::clear_range(&mut free, run.start as usize, run.end as usize);
        }
        let words = shape.words(self.g.block_size);
        let size = self.g.block_size as usize;
        let blocks = |bytes: &[u8], count: u32| {
            let mut bytes = bytes.to_vec();
            bytes.resize(count as usize * size, 0);
            bytes
        };
        let bitmap = blocks(&free, shape.bitmap_blocks);
        let mut rows = blocks(&[], shape.summary_blocks(self.g.block_size));
        let (mut at, row) = (0, u64::from(shape.bitmap_blocks));
        while let Some(start) = bitmap::find_next_set(&free, at, count) {
            let len = bitmap::run_of_ones(&free, start, count);
            let index = u64::from(len.ilog2()) * row + start as u64 / words.bits();
            let word = &mut rows[index as usize * 4..][..4];
            let found = u32::from_le_bytes((&*word).try_into().expect("a word"));
            words.set(word, found + 1);
            at = start + len;
        }
        for (rule, (ino, bytes)) in
            RULES.into_iter().zip(self.g.realtime_inos.into_iter().zip([bitmap, rows]))
        {
            self.write_section_file(rule, ino, &bytes)?;
        }
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

    /// Writes the blocks of one of the files that differ.
    fn write_section_file(
        &mut self,
        rule: Rule,
        ino: Ino,
        bytes: &[u8],
    ) -> Result<(), RepairError> {
        let size = self.g.block_size as usize;
        let inode = &self.inodes[&ino.0];
        let runs = inode.data.runs(0, (bytes.len() / size) as u32).expect("the file is whole");
        let places = runs.iter().flat_map(|&(start, count)| {
            (0..u64::from(count)).map(move |block| FsBlock(start.0 + block))
        });
        let mut wrong = 0;
        for (place, content) in places.collect::<Vec<_>>().into_iter().zip(bytes.chunks(size)) {
            let place = self.linear(place);
            if self.view.read(place)? != content {
                self.view.write(place, content);
                wrong += 1;
            }
        }
        if wrong > 0 {
            let detail = format!("{wrong} blocks say something else than the files of the section");
            self.note(safe(rule, At::Inode(ino), detail, "write them anew"));
        }
        Ok(())
    }

    /// Extents of the section that files have, with the file, in their order. An extent is a
    /// file's as a whole.
    fn section_claims(&self) -> Vec<(Range<u64>, u64)> {
        let unit = u64::from(self.g.realtime.extent_blocks.max(1));
        let mut claims: Vec<(Range<u64>, u64)> = Vec::new();
        for (&ino, inode) in &self.inodes {
            for extent in inode.data.section.iter().flatten() {
                claims.push((units(extent, unit), ino));
            }
        }
        claims.sort_unstable_by_key(|(run, ino)| (run.start, run.end, *ino));
        claims
    }

    /// Takes extents of the section out of the maps of all files but one: no copy can be made. A
    /// file that contradicts itself has the weaker claim, then the one with the higher number.
    fn settle_section(&mut self) {
        let unit = u64::from(self.g.realtime.extent_blocks.max(1));
        let partial = self.partial_files(unit);
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
            let kept = list.into_iter().filter(|extent| units(extent, unit) != run);
            inode.data.section = Some(kept.collect());
            inode.renew(Which::Data);
            let detail = format!("realtime extents from {} on are another file's, too", run.start);
            let (action, loss) = ("take them out of its map", "its content there");
            self.note(lossy(Rule::DoubleUse, At::Inode(Ino(ino)), detail, action, loss));
        }
        self.whole_units(unit);
    }

    /// Files that map extents of the section in part.
    fn partial_files(&self, unit: u64) -> BTreeSet<u64> {
        let partial = |list: &Vec<Extent>| {
            let mut whole = Whole { unit, ..Whole::default() };
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
    fn whole_units(&mut self, unit: u64) {
        let mut notes = Vec::new();
        for (&ino, inode) in &mut self.inodes {
            let Some(list) = &inode.data.section else { continue };
            let mut whole = Whole { unit, ..Whole::default() };
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
    unit: u64,
    list: Vec<Extent>,
    /// Extents of the section that are mapped, by their starts.
    seen: BTreeMap<u64, u64>,
    lost: bool,
}

impl Whole {
    /// Takes the next extent of the file.
    fn take(&mut self, extent: Extent) {
        let inside = extent.start.0 % self.unit;
        let last = self.list.last();
        let goes_on = inside > 0 && last.is_some_and(|last| last.goes_on(&extent));
        let end = last.map_or(0, Extent::end);
        let mut run = units(&extent, self.unit);
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
fn units(extent: &Extent, unit: u64) -> Range<u64> {
    let end = extent.start.0 + u64::from(extent.count);
    extent.start.0 / unit..end.div_ceil(unit)
}
