//! Directories: new names that fit where the old ones lie.
//!
//! A name of a hash tree must hash into the range of its leaf. New names are drawn, one length
//! after the other, and each goes to the leaf that its hash asks for while that needs some: about
//! as many are drawn as there are leaves, times the logarithm of that, for each length.

use std::collections::BTreeMap;

use ext4::format::dir::{self, DirLayout};
use ext4::format::extent::FileRun;
use ext4::format::features::Incompat;
use ext4::format::hash::{HashVersion, hash_name};
use ext4::format::htree::{self, NODE_ARRAY, Node};
use ext4::format::{InodeFlags, InodeValues};

use super::Dump;
use crate::metadump::{DumpError, permute};

/// Leaves whose names are drawn together.
const WINDOW: usize = 16 << 10;
/// Names that are drawn in vain for each leaf before the rest stays.
const PATIENCE: u64 = 64;
/// The names that stay.
const COMMON: [&[u8]; 3] = [b".", b"..", b"lost+found"];

/// A leaf, or all blocks of a directory without a tree.
#[derive(Clone, Copy)]
struct Leaf {
    /// Where it lies.
    block: u64,
    /// Its hashes.
    low: u32,
    end: u64,
}

/// The shape of a directory.
#[derive(Default)]
struct Shape {
    /// In the order of their hashes.
    leaves: Vec<Leaf>,
    /// Root and nodes: block, and where their pairs begin.
    nodes: Vec<(u64, usize)>,
    /// How names are hashed; None without a tree.
    version: Option<HashVersion>,
}

/// How many names of each length a leaf needs, and those that it got.
type Wanted = BTreeMap<usize, BTreeMap<usize, Slots>>;

#[derive(Default)]
struct Slots {
    wanted: usize,
    names: Vec<Vec<u8>>,
}

/// New names for entries in any order.
pub struct Drawn {
    key: [u8; 16],
    ino: u64,
    folds: bool,
    keep: bool,
    by_length: BTreeMap<usize, permute::Names>,
}

impl Drawn {
    /// For one directory.
    pub fn new(dump: &Dump<'_>, ino: u32, values: &InodeValues) -> Drawn {
        Drawn {
            key: dump.out.options.key,
            ino: ino.into(),
            folds: values.flags.contains(InodeFlags::CASEFOLD),
            keep: dump.out.keeps_names(),
            by_length: BTreeMap::new(),
        }
    }

    fn name(&mut self, len: usize) -> Option<Vec<u8>> {
        let names = self.by_length.entry(len);
        names.or_insert_with(|| permute::Names::new(&self.key, self.ino, len, self.folds)).next()
    }

    /// Replaces the names of a checked block, and clears what lies between them. How many stay that
    /// should not.
    pub fn replace(&mut self, block: &mut [u8], layout: DirLayout) -> u64 {
        let keep = self.keep;
        let kept = rewrite(block, layout, |len| if keep { None } else { self.name(len) });
        if keep { 0 } else { kept }
    }
}

/// The entries of a checked block: each name becomes what `draw` says, gaps become zeros. How many
/// names stay because nothing was drawn.
fn rewrite(
    block: &mut [u8],
    layout: DirLayout,
    mut draw: impl FnMut(usize) -> Option<Vec<u8>>,
) -> u64 {
    let entries = dir::entries(block, layout);
    let list: Vec<_> = entries
        .map(|entry| {
            let (at, len) = (entry.offset as usize, entry.name.len());
            let stays = entry.ino == 0 || COMMON.contains(&entry.name);
            let (start, need) = (at + dir::HEADER_LEN, entry.need(layout));
            // What lies behind it, by `dirdata`, names no file.
            let kept = if entry.ino == 0 { 0 } else { entry.behind.len() };
            (start, len, at + entry.rec_len as usize, entry.ino != 0, stays, kept, need)
        })
        .collect();
    let mut kept = 0;
    for (start, len, end, used, stays, behind, need) in list {
        let end = end.min(layout.end());
        // Hashes beside a name say nothing about it, and sort it.
        let at = start - dir::HEADER_LEN;
        let (name_end, aligned, taken) = match used {
            true => (start + len + behind, at + dir::entry_len(len + behind), at + need),
            false => (start, start, start),
        };
        block[name_end.min(end)..aligned.min(end)].fill(0);
        block[taken.min(end)..end].fill(0);
        if stays {
            continue;
        }
        match draw(len) {
            Some(name) => block[start..start + len].copy_from_slice(&name),
            None => kept += 1,
        }
    }
    kept
}

impl Dump<'_> {
    /// How the blocks of a directory look.
    pub fn dir_layout(&self, values: &InodeValues) -> DirLayout {
        DirLayout { names: self.g.dir_names(values.flags), ..self.g.dir_layout() }
    }

    /// Passes on the blocks of a directory.
    pub fn directory(
        &mut self,
        ino: u32,
        values: &InodeValues,
        runs: &[FileRun],
    ) -> Result<(), DumpError> {
        let mut shape = self.shape(values, runs)?;
        let indexed = values.flags.contains(InodeFlags::INDEX) && shape.leaves.len() > 1;
        if indexed && shape.nodes.is_empty() && !self.out.keeps_names() {
            self.out.leave_out(format!("the hash tree of inode {ino}, which is damaged"));
        }
        for &(block, array) in &shape.nodes {
            self.index_block(block, array)?;
        }
        let mut drawn = Drawn::new(self, ino, values);
        let leaves = std::mem::take(&mut shape.leaves);
        let Some(version) = shape.version.filter(|_| !self.out.keeps_names()) else {
            for leaf in leaves {
                self.leaf(ino, values, leaf.block, &mut |len| drawn.name(len))?;
            }
            return Ok(());
        };
        for window in leaves.chunks(WINDOW) {
            let mut wanted = self.wanted(values, window)?;
            self.draw(ino, values, version, leaves.len(), window, &mut wanted);
            for (index, leaf) in window.iter().enumerate() {
                self.leaf(ino, values, leaf.block, &mut |len| {
                    wanted.get_mut(&len)?.get_mut(&index)?.names.pop()
                })?;
            }
        }
        Ok(())
    }

    /// Which blocks are leaves, with their hashes; all of them where there is no sound tree.
    fn shape(&mut self, values: &InodeValues, runs: &[FileRun]) -> Result<Shape, DumpError> {
        let blocks = || runs.iter().flat_map(|run| run.start..run.start + run.len);
        let end = u64::from(u32::MAX) + 1;
        let plain = |block| Leaf { block, low: 0, end };
        let linear = Shape { leaves: blocks().map(plain).collect(), ..Shape::default() };
        let count: u64 = runs.iter().map(|run| run.len).sum();
        let whole = runs
            .iter()
            .try_fold(0, |next, run| (run.logical == next).then_some(run.logical + run.len));
        if !values.flags.contains(InodeFlags::INDEX) || whole != Some(count) || count < 2 {
            return Ok(linear);
        }
        let layout = self.dir_layout(values);
        let large = self.g.features.incompat.contains(Incompat::LARGEDIR);
        let place = |logical: u64| {
            let index = runs.partition_point(|run| run.logical + run.len <= logical);
            runs[index].start + (logical - runs[index].logical)
        };
        let root = self.view.read(place(0))?;
        let Ok(info) = htree::parse_root(&root, layout.names, if large { 2 } else { 1 }) else {
            return Ok(linear);
        };
        let version = HashVersion::from_disk(info.hash_version, self.g.hash_unsigned);
        let mut shape = Shape { version, ..Shape::default() };
        let mut todo = vec![(0, info.levels + 1, 0, end)];
        while let Some((logical, levels, low, end)) = todo.pop() {
            let block = place(logical);
            if levels == 0 {
                shape.leaves.push(Leaf { block, low, end });
                continue;
            }
            let data = self.view.read(block)?;
            let array = match logical {
                0 => htree::root_array(&data, layout.names),
                _ => NODE_ARRAY,
            };
            let twice = shape.nodes.len() as u64 > count;
            if twice || htree::check(&data, layout, array, count).is_err() {
                return Ok(linear);
            }
            shape.nodes.push((block, array));
            let node = Node::new(&data, array);
            for index in (0..node.count()).rev() {
                let low = if index == 0 { low } else { node.hash(index) & !1 };
                let next = index + 1;
                let end = if next < node.count() { u64::from(node.hash(next) & !1) } else { end };
                todo.push((node.block(index).into(), levels - 1, low, end));
            }
        }
        let all = shape.leaves.len() + shape.nodes.len();
        Ok(if all as u64 == count { shape } else { linear })
    }

    /// Root or node of a hash tree: pairs that nobody uses become zeros.
    fn index_block(&mut self, block: u64, array: usize) -> Result<(), DumpError> {
        let mut data = self.view.read(block)?;
        let node = Node::new(&data, array);
        let used = array + 8 * usize::from(node.count());
        let end = array + 8 * usize::from(node.limit());
        // Their checksum does not cover these.
        data[used..end].fill(0);
        self.put(block, &data)
    }

    /// How many names of each length the leaves of a window need.
    fn wanted(&mut self, values: &InodeValues, window: &[Leaf]) -> Result<Wanted, DumpError> {
        let layout = self.dir_layout(values);
        let mut wanted = Wanted::new();
        for (index, leaf) in window.iter().enumerate() {
            let data = self.view.read(leaf.block)?;
            if dir::check(&data, layout, self.g.inodes_count).is_err() {
                continue;
            }
            for entry in dir::entries(&data, layout) {
                if entry.ino != 0 && !COMMON.contains(&entry.name) {
                    let by_leaf = wanted.entry(entry.name.len()).or_default();
                    by_leaf.entry(index).or_default().wanted += 1;
                }
            }
        }
        Ok(wanted)
    }

    /// Draws names until all leaves have theirs. Where some are missing at the end, a leaf keeps
    /// all of its names of that length, so that none is there twice.
    fn draw(
        &self,
        ino: u32,
        values: &InodeValues,
        version: HashVersion,
        leaves: usize,
        window: &[Leaf],
        wanted: &mut Wanted,
    ) {
        let folds = values.flags.contains(InodeFlags::CASEFOLD);
        for (&len, by_leaf) in wanted.iter_mut() {
            let mut left: usize = by_leaf.values().map(|slots| slots.wanted).sum();
            let most = by_leaf.values().map(|slots| slots.wanted).max().unwrap_or(0) as u64;
            let tries = leaves as u64 * (PATIENCE + 8 * most) + 4096;
            let names = permute::Names::new(&self.out.options.key, ino.into(), len, folds);
            for name in names.take(usize::try_from(tries).unwrap_or(usize::MAX)) {
                if left == 0 {
                    break;
                }
                let hash = hash_name(version, &self.g.hash_seed, &name).major;
                let index = window.partition_point(|leaf| leaf.low <= hash);
                let Some(index) = index.checked_sub(1) else { continue };
                if u64::from(hash) >= window[index].end {
                    continue;
                }
                let Some(slots) = by_leaf.get_mut(&index) else { continue };
                if slots.names.len() < slots.wanted {
                    slots.names.push(name);
                    left -= 1;
                }
            }
            for slots in by_leaf.values_mut().filter(|slots| slots.names.len() < slots.wanted) {
                slots.names.clear();
            }
        }
    }

    /// A block of entries.
    fn leaf(
        &mut self,
        ino: u32,
        values: &InodeValues,
        block: u64,
        draw: &mut dyn FnMut(usize) -> Option<Vec<u8>>,
    ) -> Result<(), DumpError> {
        let layout = self.dir_layout(values);
        let seed = self.seed(ino, values);
        let mut data = self.view.read(block)?;
        if dir::check(&data, layout, self.g.inodes_count).is_err() {
            match self.out.keeps_names() {
                true => self.put(block, &data)?,
                false => self.out.leave_out(format!("entries of inode {ino} in block {block}")),
            }
            return Ok(());
        }
        let sound = layout.checksum && dir::verify_checksum(seed, &data).is_ok();
        let keep = self.out.keeps_names();
        let kept = rewrite(&mut data, layout, |len| if keep { None } else { draw(len) });
        if !keep {
            self.out.report.names_kept += kept;
        }
        if sound {
            dir::set_checksum(seed, &mut data);
        }
        self.put(block, &data)
    }
}
