//! Blocks that two files claim, or a file and the file system itself.

use std::collections::{BTreeMap, BTreeSet};

use block::DeviceError;
use ext4::Rule;
use ext4::format::{FileKind, dir};

use super::Fs;
use super::map::Map;
use ext4::format::extent::FileRun;

/// Who claims a block, and how much speaks for him.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Claim {
    weight: u32,
    ino: u32,
    node: bool,
}

impl Fs<'_> {
    /// Marks the blocks of all files, and decides about those that are claimed twice.
    ///
    /// # Errors
    /// The device's.
    pub fn claims(&mut self) -> Result<(), DeviceError> {
        self.mark_all();
        if self.twice.is_empty() {
            return Ok(());
        }
        let mut claims = BTreeMap::new();
        for (&ino, inode) in &self.inodes {
            for (block, node) in
                self.clusters_of(&inode.map).filter(|(block, _)| self.twice.get(*block))
            {
                let claim = Claim { weight: 0, ino, node };
                claims.entry(block).or_insert_with(Vec::new).push(claim);
            }
        }
        let mut lost: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        let mut copied: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for (block, mut list) in claims {
            for claim in &mut list {
                claim.weight = self.weight(block, claim)?;
            }
            list.sort_by_key(|claim| (std::cmp::Reverse(claim.weight), claim.ino));
            let keeps = !self.meta.get(block) && !self.shared.contains_key(&block);
            let best = list[0].weight;
            for (index, claim) in list.iter().enumerate() {
                let same = index > 0 && claim.weight == best && !claim.node;
                match (keeps, index) {
                    (true, 0) => {}
                    (true, _) if same => drop(copied.entry(claim.ino).or_default().insert(block)),
                    _ => drop(lost.entry(claim.ino).or_default().insert(block)),
                }
            }
        }
        for (ino, blocks) in lost {
            self.give_up_blocks(ino, &blocks)?;
        }
        for (ino, blocks) in copied {
            self.copy_blocks(ino, &blocks)?;
        }
        self.mark_all();
        Ok(())
    }

    /// Marks attribute blocks and the blocks of all files.
    pub fn mark_all(&mut self) {
        self.used = super::Bits::new(self.g.blocks_count);
        self.twice = super::Bits::new(self.g.blocks_count);
        let ratio = u64::from(self.g.cluster_ratio);
        for &block in self.shared.keys() {
            let first = self.cluster_of(block);
            self.used.set_run(first..first + ratio);
        }
        for inode in self.inodes.values() {
            for (block, _) in clusters_of(&inode.map, ratio) {
                if self.used.get(block) || self.meta.get(block) {
                    self.twice.set(block);
                }
                self.used.set_run(block..block + ratio);
            }
        }
    }

    /// The first block of a block's cluster: the block itself where there are none.
    pub fn cluster_of(&self, block: u64) -> u64 {
        block & !(u64::from(self.g.cluster_ratio) - 1)
    }

    /// The first blocks of all clusters of a map, and whether they map.
    pub fn clusters_of<'m>(&self, map: &'m Map) -> impl Iterator<Item = (u64, bool)> + use<'m> {
        clusters_of(map, self.g.cluster_ratio.into())
    }

    /// The first blocks of the clusters with a file's data.
    pub fn data_clusters<'m>(&self, map: &'m Map) -> impl Iterator<Item = u64> + use<'m> {
        self.clusters_of(map).filter(|(_, node)| !node).map(|(block, _)| block)
    }

    /// Nobody has a block any more, nor the rest of its cluster.
    pub fn free_block(&mut self, block: u64) {
        let first = self.cluster_of(block);
        for block in first..first + u64::from(self.g.cluster_ratio) {
            self.used.clear(block);
        }
    }

    /// How much speaks for a claim: the checksum of the block for that owner, that of the inode,
    /// the form of the block.
    fn weight(&mut self, block: u64, claim: &Claim) -> Result<u32, DeviceError> {
        let inode = &self.inodes[&claim.ino];
        let (trusted, sound) = (inode.trusted, inode.map.damage.is_empty());
        let (kind, generation, flags) = (inode.kind, inode.generation, inode.flags);
        let mut weight = 2 * u32::from(trusted) + u32::from(sound);
        weight += 4 * u32::from(claim.node) + u32::from(inode.nameless);
        if kind == FileKind::Directory && !claim.node {
            let content = self.view.read(block)?;
            let layout = self.layout_of(flags);
            let seed = self.seed(claim.ino, generation);
            let named = dir::check(&content, layout, self.g.inodes_count).is_ok();
            let summed = layout.checksum && dir::verify_checksum(seed, &content).is_ok();
            weight += 4 * u32::from(named) + 8 * u32::from(summed);
        }
        Ok(weight)
    }

    /// Takes blocks away from a file, which has a hole there afterwards.
    fn give_up_blocks(&mut self, ino: u32, blocks: &BTreeSet<u64>) -> Result<(), DeviceError> {
        let (count, first) = (blocks.len(), *blocks.first().expect("one at least"));
        let detail = format!("block {first} and {} more belong to somebody else", count - 1);
        let act = "leave holes in their place";
        let loss = format!("{count} blocks, if they were its own");
        let rule = match self.meta.get(first) {
            true => Rule::BlockIsMetadata,
            false => Rule::BlockClaimedTwice,
        };
        if !self.lossy(rule, Self::at(ino), detail, act, loss) {
            return Ok(());
        }
        let inode = self.inodes.get_mut(&ino).expect("it has claims");
        inode.map = without(&inode.map, blocks, self.g.cluster_ratio.into());
        inode.rewrite = true;
        Ok(())
    }

    /// Gives a file copies of blocks that another one claims as well.
    fn copy_blocks(&mut self, ino: u32, blocks: &BTreeSet<u64>) -> Result<(), DeviceError> {
        let (count, first) = (blocks.len(), *blocks.first().expect("one at least"));
        let detail = format!("block {first} and {} more are claimed by another file", count - 1);
        let loss = "one of the two files holds the other's data; which one, nothing shows";
        let act = "give it copies of its own";
        if !self.lossy(Rule::BlockClaimedTwice, Self::at(ino), detail, act, loss) {
            return Ok(());
        }
        let old = self.inodes[&ino].map.clone();
        let ratio = u64::from(self.g.cluster_ratio);
        let mut map = Map { nodes: old.nodes, ..Map::default() };
        let mut seen = BTreeSet::new();
        // The cluster at hand: its number in the file, its first block, and that of its copy.
        let mut last: Option<[u64; 3]> = None;
        for run in old.runs {
            for index in 0..run.len {
                let (logical, block) = (run.logical + index, run.start + index);
                let (number, cluster) = (logical / ratio, self.cluster_of(block));
                let mut piece = FileRun { logical, start: block, len: 1, ..run };
                let same = last.filter(|&[n, c, _]| (n, c) == (number, cluster));
                let fresh = match same {
                    Some([.., fresh]) => fresh,
                    None if blocks.contains(&cluster) || !seen.insert(cluster) => {
                        let Some(fresh) = self.take_block(block)? else { continue };
                        fresh
                    }
                    None => cluster,
                };
                last = Some([number, cluster, fresh]);
                if fresh != cluster {
                    piece.start = fresh + block % ratio;
                    let content = self.view.read(block)?;
                    self.view.write(piece.start, &content);
                }
                map.push(piece);
            }
        }
        let inode = self.inodes.get_mut(&ino).expect("it has claims");
        inode.map = map;
        inode.rewrite = true;
        Ok(())
    }
}

/// The first block of every cluster of a map, and whether it maps; of those that two extents of a
/// file share, once. `ratio` is 1 where the clusters are the blocks.
fn clusters_of(map: &Map, ratio: u64) -> impl Iterator<Item = (u64, bool)> + use<'_> {
    let mut last = None;
    let data = map.runs.iter().flat_map(move |run| {
        let first = run.start & !(ratio - 1);
        let (number, end) = (run.logical / ratio, (run.start + run.len).next_multiple_of(ratio));
        let skip = u64::from(last == Some((number, first)));
        last = Some(((run.logical + run.len - 1) / ratio, end - ratio));
        (first + skip * ratio..end).step_by(ratio as usize)
    });
    let nodes = map.nodes.iter().map(move |&block| (block & !(ratio - 1), true));
    data.map(|block| (block, false)).chain(nodes)
}

/// A map without some clusters, given by their first blocks.
fn without(map: &Map, blocks: &BTreeSet<u64>, ratio: u64) -> Map {
    let first = |block: u64| block & !(ratio - 1);
    let nodes = map.nodes.iter().copied().filter(|&node| !blocks.contains(&first(node))).collect();
    let mut left = Map { nodes, ..Map::default() };
    for run in &map.runs {
        let end = run.start + run.len;
        let mut from = run.start;
        let cuts = blocks.range(first(run.start)..end).copied().chain([end]);
        for cut in cuts {
            if cut > from {
                let logical = run.logical + (from - run.start);
                left.push(FileRun { logical, start: from, len: cut - from, ..*run });
            }
            from = from.max(cut + ratio);
        }
    }
    left
}
