//! The walk over the metadata of XFS: headers, btrees, inodes, and what inodes own.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{FsBlock, Ino, Sector};
use block::Queue;
use rt::Cx;
use xfs::XfsError;
use xfs::format::ag::{RawAgf, RawAgi, Root};
use xfs::format::btree::Node;
use xfs::format::record::InodeChunk;
use xfs::format::super_block::section;
use xfs::format::{AgBlock, AgHeader, AgInode, At, Geometry, Kind, RawSuper, verifier};
use xfs::log::LogError;
use xfs::mkfs::EmptyLog;
use xfs::mount::recovery::recover_in_memory;

use super::{Devices, DumpError, DumpOptions, Out, Part, Report, Sink};
use crate::view::View;

mod blocks;
mod forks;
mod inodes;

/// Bytes of the log that one piece holds.
const LOG_PIECE: u64 = 1 << 20;

/// One dump.
struct Dump<'a> {
    view: View<'a>,
    out: Out<'a>,
    devices: &'a Devices,
    g: Geometry,
    raw: RawSuper,
    /// The newest cycle of the log that metadata name.
    newest_cycle: u32,
}

/// A block of a btree.
struct Branch {
    block: u64,
    level: u16,
}

/// A btree of a group.
struct Tree {
    ag: u32,
    kind: Kind,
    root: Root,
}

/// Dumps an XFS of version 5.
///
/// # Errors
/// See [`DumpError`].
pub fn dump(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    devices: &Devices,
    options: &DumpOptions,
    sink: &mut dyn Sink,
) -> Result<Report, DumpError> {
    let mut view = View::new(cx, queue);
    let unit = u64::from(queue.info().logical_block.max(512));
    let sector = view.read_bytes(0, unit as usize)?;
    let g = Geometry::parse(&sector, At::Super(0)).map_err(damaged)?;
    if g.v4() {
        return refuse("XFS of version 4 is not dumped; xfs_metadump (xfsprogs) does that");
    }
    let raw = *RawSuper::view(&sector).expect("a sector holds it");
    let device = queue.info().bytes() / u64::from(g.block_size);
    if g.blocks_count() > device {
        let blocks = g.blocks_count();
        return refuse(format!("it has {blocks} blocks, its device {device}; try --rescue"));
    }
    let size = g.blocks_count() * u64::from(g.block_size);
    let mut out = Out::new(sink, options, size);
    let recovered = match recover_in_memory(view.cx(), queue, &g, devices.log.as_ref()) {
        Ok(recovered) => recovered.map(|(over, _)| over),
        Err(XfsError::Device(error) | XfsError::Log(LogError::Device(error))) => {
            return Err(error.into());
        }
        Err(error) => {
            out.report.dirty_log = true;
            out.leave_out(format!("the log, which cannot be replayed: {error}"));
            None
        }
    };
    out.report.dirty_log |= recovered.is_some();
    // Whoever keeps the names wants the state with the log beside it.
    let queue = recovered.as_ref().filter(|_| !options.keep_names).unwrap_or(queue);
    let mut dump = Dump { view: View::new(cx, queue), out, devices, g, raw, newest_cycle: 0 };
    dump.view.set_block_size(dump.g.block_size);
    dump.run()?;
    Ok(dump.out.report)
}

fn damaged(corrupt: xfs::format::Corrupt) -> DumpError {
    let hint = "--rescue dumps the state that a repair would leave";
    DumpError::Refused(format!("{corrupt}; {hint}"))
}

fn sum_is_right(kind: Kind, bytes: &[u8]) -> bool {
    verifier::verify_magic(kind, bytes, At::Block(0)).is_ok()
        && verifier::stored_checksum(kind, bytes) == verifier::checksum(kind, bytes)
}

fn refuse<T>(why: impl Into<String>) -> Result<T, DumpError> {
    Err(DumpError::Refused(why.into()))
}

impl Dump<'_> {
    fn run(&mut self) -> Result<(), DumpError> {
        let bytes = self.view.read_bytes(0, self.g.sector_size as usize)?;
        self.raw = *RawSuper::view(&bytes).expect("a sector holds it");
        for ag in 0..self.g.ag_count() {
            self.group(ag)?;
        }
        self.log()?;
        self.section()
    }

    /// The superblock of a realtime section in groups, where its device is given.
    fn section(&mut self) -> Result<(), DumpError> {
        let device = self.devices.realtime.as_ref();
        let Some(device) = device.filter(|_| self.g.realtime.groups.is_some()) else {
            return Ok(());
        };
        let size = self.g.block_size as usize;
        let mut block = device.0.read(self.view.cx(), Sector(0), size)?.to_vec();
        if !self.out.keeps_names() && !section::rename(&mut block, b'L') {
            self.out.leave_out("the superblock of the realtime section: it is damaged");
            return Ok(());
        }
        Ok(self.out.put_on(Part::Realtime, 0, &block)?)
    }

    /// Headers and btrees of a group, then its inodes.
    fn group(&mut self, ag: u32) -> Result<(), DumpError> {
        use AgHeader::{Agf, Agfl, Agi, Super};
        self.header(ag, Super, Kind::Super)?;
        let agf = self.header(ag, Agf, Kind::Agf)?;
        let agi = self.header(ag, Agi, Kind::Agi)?;
        self.header(ag, Agfl, Kind::Agfl)?;
        let features = self.g.features;
        let (rmap, counts, free) = (features.rmapbt(), features.reflink(), features.finobt());
        if let Ok(agf) = RawAgf::parse_trusted(&agf, ag, &self.g).copied() {
            let list = [
                (Kind::FreeByBlock, Some(agf.by_block())),
                (Kind::FreeBySize, Some(agf.by_size())),
                (Kind::Rmap, rmap.then(|| agf.rmap())),
                (Kind::Refcount, counts.then(|| agf.refcount())),
            ];
            for (kind, root) in list {
                let Some(root) = root else { continue };
                self.tree(&Tree { ag, kind, root })?;
            }
        } else {
            self.out.leave_out(format!("the btrees of group {ag}: its AGF is damaged"));
        }
        let Ok(agi) = RawAgi::parse_trusted(&agi, ag, &self.g).copied() else {
            self.out.leave_out(format!("the inodes of group {ag}: its AGI is damaged"));
            return Ok(());
        };
        if free {
            self.tree(&Tree { ag, kind: Kind::Finobt, root: agi.finobt() })?;
        }
        for chunk in self.tree(&Tree { ag, kind: Kind::Inobt, root: agi.inobt() })? {
            self.chunk(ag, &chunk)?;
        }
        Ok(())
    }

    /// A header of a group, passed on and returned.
    fn header(&mut self, ag: u32, header: AgHeader, kind: Kind) -> Result<Vec<u8>, DumpError> {
        let sector = self.g.header_sector(ag, header);
        let mut bytes = self.view.read_bytes(sector.bytes(), self.g.sector_size as usize)?;
        let sound = self.is_sound(kind, &bytes);
        if kind == Kind::Super {
            self.obscure_super(&mut bytes);
        }
        self.seal(kind, &mut bytes, sound);
        self.out.put(sector.bytes(), &bytes)?;
        Ok(bytes)
    }

    fn obscure_super(&mut self, bytes: &mut [u8]) {
        if self.out.keeps_names() {
            return;
        }
        if let Some(raw) = RawSuper::view_mut(bytes) {
            raw.sb_fname.iter_mut().filter(|byte| **byte != 0).for_each(|byte| *byte = b'L');
        }
    }

    /// Whether the checksum of a block is right. Its sequence number counts for the new log then.
    fn is_sound(&mut self, kind: Kind, bytes: &[u8]) -> bool {
        let sound = sum_is_right(kind, bytes);
        if let Some(lsn) = verifier::written_behind(kind, bytes).filter(|_| sound) {
            self.newest_cycle = self.newest_cycle.max((lsn >> 32) as u32);
        }
        sound
    }

    /// Sets the checksum of a changed block, if it was right before; else it stays wrong.
    fn seal(&self, kind: Kind, bytes: &mut [u8], sound: bool) {
        if sound {
            return verifier::update_crc(kind, bytes);
        }
        if sum_is_right(kind, bytes)
            && let Some(last) = bytes.len().checked_sub(1)
        {
            // What was damaged is not in the dump: the checksum of something else shows it.
            bytes[last] ^= 0xff;
            verifier::update_crc(kind, bytes);
            bytes[last] ^= 0xff;
        }
    }

    /// The blocks of a tree. The chunks of inodes if it is theirs.
    fn tree(&mut self, tree: &Tree) -> Result<Vec<InodeChunk>, DumpError> {
        let &Tree { ag, kind, root } = tree;
        let (sparse, mut chunks) = (self.g.features.sparse(), Vec::new());
        let mut seen = BTreeSet::new();
        let mut todo = vec![(root.block, root.levels.saturating_sub(1) as u16)];
        while let Some((block, level)) = todo.pop() {
            let at = At::AgBlock(ag, block);
            if block >= self.g.ag_length(ag) || !seen.insert(block) {
                self.out.leave_out(format!("{at}: {} points there", kind.name()));
                continue;
            }
            let linear = self.g.linear(AgBlock { ag, block });
            let node = Branch { block: linear, level };
            let below = self.node(kind, &node, at, &mut |record| {
                if kind == Kind::Inobt {
                    chunks.push(InodeChunk::read(record, sparse));
                }
            })?;
            todo.extend(below.into_iter().rev().map(|block| (block as u32, level - 1)));
        }
        Ok(chunks)
    }

    /// A block of a btree, passed on: `each` gets the records of a leaf. What lies below it.
    fn node(
        &mut self,
        kind: Kind,
        &Branch { block: linear, level }: &Branch,
        at: At,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Vec<u64>, DumpError> {
        let mut data = self.view.read(linear)?;
        let sound = self.is_sound(kind, &data);
        let magic = verifier::verify_magic(kind, &data, at).is_ok();
        let parsed = Node::parse_trusted(kind, &data, Some(level), at);
        let Some(node) = parsed.ok().filter(|_| magic) else {
            self.unknown(linear, &data, at, kind)?;
            return Ok(Vec::new());
        };
        let mut below = Vec::new();
        match level {
            0 => (0..node.len()).for_each(|index| each(node.record(index))),
            _ => below.extend((0..node.len()).map(|index| node.pointer(index))),
        }
        blocks::clear_tail(kind, &mut data);
        self.seal(kind, &mut data, sound);
        self.out.put(linear * u64::from(self.g.block_size), &data)?;
        Ok(below)
    }

    /// A block that is not what it should be: passed on only where names may be seen.
    fn unknown(&mut self, linear: u64, data: &[u8], at: At, kind: Kind) -> Result<(), DumpError> {
        if self.out.keeps_names() {
            self.out.put(linear * u64::from(self.g.block_size), data)?;
            return Ok(());
        }
        self.out.leave_out(format!("{at}: no {}", kind.name()));
        Ok(())
    }

    /// The blocks of a chunk of inodes, and what these own.
    fn chunk(&mut self, ag: u32, chunk: &InodeChunk) -> Result<(), DumpError> {
        let per_block = self.g.inodes_per_block();
        let first = self.g.agino_block(chunk.start);
        if !chunk.start.is_multiple_of(per_block) {
            // Of several chunks in one large block the first has it.
            return Ok(());
        }
        let mask = chunk.hole_mask();
        for index in 0..self.g.chunks.blocks {
            let bit = (index * per_block).min(63);
            let block = first + index;
            if mask >> bit & 1 != 0 || block >= self.g.ag_length(ag) {
                continue;
            }
            let linear = self.g.linear(AgBlock { ag, block });
            let agino = self.g.block_agino(block);
            let mut data = self.view.read(linear)?;
            let size = self.g.inode_size as usize;
            for (index, slot) in data.chunks_exact_mut(size).enumerate() {
                let ino = self.g.ino_join(AgInode { ag, agino: agino + index as u32 });
                self.inode(ino, slot)?;
            }
            self.out.put(linear * u64::from(self.g.block_size), &data)?;
        }
        Ok(())
    }

    /// The log: as it is, or an empty one above all sequence numbers.
    fn log(&mut self) -> Result<(), DumpError> {
        let (block, mut device) = (u64::from(self.g.block_size), None);
        let (part, first) = match self.g.log_start {
            FsBlock(0) => {
                device = self.devices.log.as_ref();
                if device.is_none() {
                    self.out.leave_out("the external log; -o logdev= and --format xfs2 take it");
                    return Ok(());
                }
                (Part::Log, 0)
            }
            start => (Part::Data, self.g.linear(self.g.split(start)) * block),
        };
        let bytes = u64::from(self.g.log_blocks) * block;
        let cycle = self.newest_cycle.saturating_add(1);
        let empty = EmptyLog::new(self.g.uuid, self.g.log_sunit, cycle);
        let mut done = 0;
        while done < bytes {
            let len = LOG_PIECE.min(bytes - done) as usize;
            let piece = match (self.out.keeps_names(), &device) {
                (false, _) => empty.piece(done as usize, len),
                (true, None) => self.view.read_bytes(first + done, len)?,
                (true, Some(device)) => {
                    device.0.read(self.view.cx(), Sector(done / 512), len)?.to_vec()
                }
            };
            self.out.put_on(part, first + done, &piece)?;
            done += len as u64;
        }
        Ok(())
    }

    /// Which inode of the file system itself this is.
    fn is_system(&self, ino: Ino) -> bool {
        let raw = &self.raw;
        let list = [
            raw.sb_rbmino.get(),
            raw.sb_rsumino.get(),
            raw.sb_uquotino.get(),
            raw.sb_gquotino.get(),
            raw.sb_pquotino.get(),
        ];
        list.contains(&ino.0)
    }
}
