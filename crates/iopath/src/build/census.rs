//! How much there is to be copied: names, blocks of content, directories, attributes. It is counted
//! in the block sizes that a file system may have, before that is decided.
//!
//! Where the content lies, the source says; but where two builds are to be equal, it is read, since
//! two copies of a tree may have their holes in other places.

use std::ops::Range;

use anyhow::Result;
use base::map::HashMap;
use rt::Cx;
use sha2::{Digest, Sha256};
use vfs::FileType;

use crate::copy::content::read_stretches;
use crate::copy::exact::Exact;
use crate::copy::{Batch, Event, Keep, Problems, Sink, split};

/// Block sizes that are counted in: 512 bytes times a power of two, to 64 KiB.
const SIZES: usize = 8;

/// The names of one directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    /// How many.
    pub count: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// What a tree holds.
pub struct Census {
    keep: Keep,
    /// Inodes.
    pub inodes: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
    /// Blocks of content in each size.
    blocks: [u64; SIZES],
    /// The block of each size that was counted last, where content is read.
    last: [Option<u64>; SIZES],
    /// Stretches of content beyond the first four of each file.
    pub stretches: u64,
    /// Directories by a hash of their path.
    pub directories: HashMap<u64, Names>,
    /// Symlinks by their length where that is 60 bytes or more.
    pub long_symlinks: u64,
    /// Sizes of the attributes of a node, rounded up to 64 bytes, and how many nodes have that.
    pub attributes: HashMap<u64, u64>,
    digest: Sha256,
}

impl Census {
    /// Nothing counted so far.
    pub fn new(keep: &Keep) -> Census {
        Census {
            keep: keep.clone(),
            inodes: 0,
            bytes: 0,
            blocks: [0; SIZES],
            last: [None; SIZES],
            stretches: 0,
            directories: HashMap::default(),
            long_symlinks: 0,
            attributes: HashMap::default(),
            digest: Sha256::new(),
        }
    }

    /// Blocks of content, of this many bytes each.
    pub fn blocks_of(&self, size: u32) -> u64 {
        let index = size.trailing_zeros().saturating_sub(9) as usize;
        self.blocks[index.min(SIZES - 1)]
    }

    /// Bytes of content in whole sectors that are not zeros, or may not be.
    pub fn sectors_bytes(&self) -> u64 {
        self.blocks[0] << 9
    }

    /// A UUID that follows from names, owners, modes, sizes, times and content.
    pub fn uuid(&self) -> [u8; 16] {
        let digest = self.digest.clone().finalize();
        let mut uuid: [u8; 16] = digest[..16].try_into().expect("sixteen of 32 bytes");
        // Version 8 (made from something of one's own), the usual variant.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }

    fn name(&mut self, path: &[u8]) {
        let (above, name) = split(path);
        let names = self.directories.entry(hash_of(above)).or_default();
        names.count += 1;
        names.bytes += name.len() as u64;
    }

    fn content(&mut self, stretches: &[Range<u64>]) {
        for data in stretches.iter().filter(|data| !data.is_empty()) {
            self.bytes += data.end - data.start;
            for (index, blocks) in self.blocks.iter_mut().enumerate() {
                let shift = 9 + index as u32;
                *blocks += ((data.end - 1) >> shift) - (data.start >> shift) + 1;
            }
        }
        self.stretches += (stretches.len() as u64).saturating_sub(4);
    }

    /// Content that was read: blocks of zeros take no space, wherever the source has its holes.
    fn data(&mut self, offset: u64, data: &[u8]) {
        self.bytes += data.len() as u64;
        let sector = Exact { block: 512, ..Exact::default() };
        for run in sector.runs(offset, data) {
            self.digest.update(&data[run.clone()]);
            let (start, end) = (offset + run.start as u64, offset + run.end as u64);
            for (index, blocks) in self.blocks.iter_mut().enumerate() {
                let shift = 9 + index as u32;
                let (first, last) = (start >> shift, (end - 1) >> shift);
                *blocks += last - first + u64::from(self.last[index] != Some(first));
                self.last[index] = Some(last);
            }
        }
    }

    fn node(&mut self, batch: &Batch, at: usize) -> Result<()> {
        let Event::Node { path, meta, target, xattrs } = &batch.events[at] else { return Ok(()) };
        let path = batch.at(path);
        let meta = self.keep.adjust(path, meta)?;
        self.inodes += 1;
        if !path.is_empty() {
            self.name(path);
        }
        let own = batch.events[at + 1..at + 1 + *xattrs as usize].iter();
        let own = own.filter_map(|event| match event {
            Event::Xattr { name, value } => Some((batch.at(name), batch.at(value))),
            _ => None,
        });
        let exact = self.keep.exact.clone();
        let added = exact.iter().flat_map(|exact| exact.attributes(path));
        let added = added.map(|(name, value)| (&name[..], &value[..]));
        let mut attributes = 0;
        for (name, value) in own.chain(added) {
            attributes += 24 + name.len() as u64 + value.len() as u64;
            self.digest.update(name);
            self.digest.update(value);
        }
        if attributes > 0 {
            *self.attributes.entry(attributes.next_multiple_of(64)).or_default() += 1;
        }
        match meta.kind {
            FileType::Directory => {
                self.directories.entry(hash_of(path)).or_default();
            }
            FileType::Symlink if target.len() >= 60 => self.long_symlinks += 1,
            // The content follows.
            FileType::Regular if !self.keep.names_only => self.last = [None; SIZES],
            FileType::Regular => match batch.events.get(at + 1 + *xattrs as usize) {
                Some(Event::Stretches(pairs)) => self.content(&read_stretches(batch.at(pairs))),
                _ => self.content(&[Range { start: 0, end: meta.size }]),
            },
            _ => {}
        }
        // How large a directory is says the host's file system.
        let size = if meta.kind == FileType::Regular { meta.size } else { 0 };
        let words = [u64::from(meta.mode), meta.uid.into(), meta.gid.into(), meta.rdev, size];
        let times = [meta.mtime.sec as u64, meta.mtime.nsec.into(), meta.kind.mode_bits().into()];
        self.digest.update((path.len() as u64).to_le_bytes());
        self.digest.update(path);
        self.digest.update(batch.at(target));
        words.iter().chain(&times).for_each(|word| self.digest.update(word.to_le_bytes()));
        Ok(())
    }
}

/// A directory's path as a number: two with one number are counted as one, which is larger.
fn hash_of(path: &[u8]) -> u64 {
    path.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &b| {
        (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Sink for Census {
    fn event(&mut self, _cx: &mut Cx, batch: &Batch, at: usize) -> Result<()> {
        match &batch.events[at] {
            Event::Node { .. } => self.node(batch, at),
            Event::Link { path, to } => {
                self.name(batch.at(path));
                self.digest.update(batch.at(path));
                self.digest.update(batch.at(to));
                Ok(())
            }
            Event::Data { offset, data } => {
                self.data(*offset, batch.at(data));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn abandon(&mut self) {}

    fn is_over(&self, _error: &anyhow::Error) -> bool {
        false
    }

    fn finish(&mut self, _cx: &mut Cx, _problems: &mut Problems) -> Result<()> {
        Ok(())
    }
}
