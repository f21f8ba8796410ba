//! Every inode: its core, its forks, what is in them.

use base::{FsBlock, Ino};
use block::DeviceError;

use super::records::Known;
use super::{Checker, Rule};
use crate::bmap::{Fork, Forks, MapPart, Which, runs};
use crate::buf::meta::ReadRequest;
use crate::format::extent::Extent;
use crate::format::inode::{ForkFormat, InodeCore, MetadataType, RawInode, corrected, free_flaw};
use crate::format::record::{InodeChunk, RMAP_ATTR_FORK, RMAP_BMBT, RMAP_UNWRITTEN, Rmap};
use crate::format::{AgInode, At, Kind, remote, u16_at, verifier};

/// An inode that is being checked.
pub(super) struct Subject {
    pub ino: Ino,
    pub core: InodeCore,
    pub forks: Forks,
    /// The kind of the btree whose root is its data fork, if one is.
    pub tree: Option<Kind>,
    /// The extents of both forks; None if they could not be read.
    pub data: Option<Vec<Extent>>,
    pub attr: Option<Vec<Extent>>,
}

impl Subject {
    pub fn at(&self) -> At {
        At::Inode(self.ino)
    }
}

impl Checker<'_> {
    /// Checks all inodes of chunks.
    pub(super) fn check_chunks(
        &mut self,
        groups: Vec<(u32, Vec<InodeChunk>)>,
    ) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        for (ag, chunks) in groups {
            for chunk in chunks {
                let holes = chunk.hole_mask();
                for bit in (0..64).filter(|bit| holes >> bit & 1 == 0) {
                    let ino = geometry.ino_join(AgInode { ag, agino: chunk.start + bit });
                    let free = chunk.free >> bit & 1 == 1;
                    if geometry.ino_valid(ino) {
                        self.inode(ino, free)?;
                    }
                }
                self.meter.add(64);
            }
        }
        Ok(())
    }

    fn inode(&mut self, ino: Ino, free: bool) -> Result<(), DeviceError> {
        let slot = self.reader.read_slot(self.cx, ino);
        let Some(slot) = self.keep(slot)? else {
            self.owners_unknown |= !free;
            self.names_unknown |= !free;
            return Ok(());
        };
        self.newest.note(verifier::written_behind(Kind::Inode, &slot), At::Inode(ino));
        let unused = slot[2..4] == [0, 0];
        if free || unused {
            if free != unused {
                let text = if free {
                    "is in use, and free in the btree"
                } else {
                    "is free, and in use in the btree"
                };
                self.findings.add(Rule::InodeUse, At::Inode(ino), text);
                self.owners_unknown = true;
            }
            if let Some(text) = free_flaw(&slot).filter(|_| unused) {
                self.findings.add(Rule::Inode, At::Inode(ino), text);
            }
            return Ok(());
        }
        let geometry = self.geometry();
        self.fields(ino, &slot);
        let core = InodeCore::parse(&slot, ino, &geometry);
        let Some(core) = self.keep(core.map_err(Into::into))? else {
            self.owners_unknown = true;
            self.names_unknown = true;
            return Ok(());
        };
        self.current = Some(Known::of_core(&core));
        let counts = self.findings.counts();
        counts.inodes_used += 1;
        counts.directories += u64::from(core.file_type() == 0x4000);
        self.count_usage(ino, &core);
        let forks = Forks::new(&slot, &core);
        let tree = MetadataType::tree_of(u16_at(&slot, 6));
        let mut subject = Subject { ino, core, forks, tree, data: None, attr: None };
        self.forks(&mut subject)?;
        match subject.core.file_type() {
            0x4000 => self.directory(&subject)?,
            0xa000 => self.symlink(&subject)?,
            _ => {}
        }
        self.attributes(&subject)?;
        self.inode_is_read(ino);
        Ok(())
    }

    /// Fields that no content depends on.
    fn fields(&mut self, ino: Ino, slot: &[u8]) {
        let raw = RawInode::view(slot).expect("a slot holds a core");
        for field in corrected(raw, ino, &self.reader.geometry).1 {
            self.findings.add(Rule::Inode, At::Inode(ino), field.to_string());
        }
    }

    /// Reads both forks, claims their blocks and compares their number.
    fn forks(&mut self, subject: &mut Subject) -> Result<(), DeviceError> {
        let mut blocks = 0;
        for which in [Which::Data, Which::Attr] {
            let fork = subject.forks.get(which).clone();
            let list = self.fork(subject, which, &fork, &mut blocks)?;
            match which {
                Which::Data => subject.data = list,
                Which::Attr => subject.attr = list,
            }
        }
        let complete = subject.data.is_some() && subject.attr.is_some();
        if complete && blocks != subject.core.blocks {
            let text = format!("{} blocks should be {blocks}", subject.core.blocks);
            self.findings.add(Rule::InodeBlocks, subject.at(), text);
        }
        Ok(())
    }

    fn fork(
        &mut self,
        subject: &Subject,
        which: Which,
        fork: &Fork,
        blocks: &mut u64,
    ) -> Result<Option<Vec<Extent>>, DeviceError> {
        let (mut tree, mut flaws) = (Vec::new(), Vec::new());
        if fork.format == ForkFormat::MetaBtree {
            return self.section_tree(subject, fork, blocks);
        }
        let mut visit = |part| match part {
            MapPart::Block(block) => tree.push(block),
            MapPart::Flaw(flaw) => flaws.push(flaw),
        };
        let read = self.reader.read_extents(self.cx, subject.ino, fork, &mut visit);
        flaws.iter().for_each(|flaw| self.findings.corrupt(flaw));
        let flag = if which == Which::Attr { RMAP_ATTR_FORK } else { 0 };
        for &block in &tree {
            self.claim_blocks(subject.ino, block, 1, flag | RMAP_BMBT);
        }
        *blocks += tree.len() as u64;
        let Some(list) = self.keep(read)? else {
            self.owners_unknown = true;
            return Ok(None);
        };
        if fork.realtime {
            let content = list.iter().map(|extent| u64::from(extent.count)).sum::<u64>();
            *blocks += content;
            self.count_content(&subject.core, content);
            self.claim_realtime(subject.ino, &list);
            return Ok(Some(list));
        }
        for extent in &list {
            let unwritten = if extent.unwritten { RMAP_UNWRITTEN } else { 0 };
            let offset = extent.offset | flag | unwritten;
            self.claim_blocks(subject.ino, extent.start, extent.count, offset);
            *blocks += u64::from(extent.count);
        }
        Ok(Some(list))
    }

    /// Walks the btree of the realtime section whose root an inode holds.
    fn section_tree(
        &mut self,
        subject: &Subject,
        fork: &Fork,
        blocks: &mut u64,
    ) -> Result<Option<Vec<Extent>>, DeviceError> {
        let ino = subject.ino;
        let Some(kind) = subject.tree else {
            let text = "the root of a btree of no known kind";
            self.findings.add(Rule::Inode, subject.at(), text);
            self.owners_unknown = true;
            return Ok(None);
        };
        let mut records = Vec::new();
        let content = self.walk_inode_tree(ino, kind, &fork.bytes, &mut |_, record| {
            records.extend_from_slice(record);
        })?;
        for &block in &content.blocks {
            self.claim_blocks(ino, FsBlock(block), 1, RMAP_BMBT);
        }
        *blocks += content.blocks.len() as u64;
        let complete = content.complete;
        self.owners_unknown |= !complete;
        if complete {
            self.section_trees.insert(ino.0, records);
        }
        Ok(complete.then(Vec::new))
    }

    pub(super) fn claim_blocks(&mut self, ino: Ino, block: FsBlock, len: u32, offset: u64) {
        let place = self.reader.geometry.split(block);
        self.claim(place.ag, Rmap { start: place.block, len, owner: ino.0, offset });
    }

    fn symlink(&mut self, subject: &Subject) -> Result<(), DeviceError> {
        let Some(list) = &subject.data else { return Ok(()) };
        if subject.core.format == ForkFormat::Local {
            return Ok(());
        }
        let (size, at, mut read) = (subject.core.size, subject.at(), 0);
        for extent in list.clone() {
            if extent.count > 64 || size > remote::SYMLINK_MAX {
                break;
            }
            let want = ReadRequest { kinds: &[Kind::Symlink], owner: Some(subject.ino.0), at };
            let block = self.reader.read(self.cx, &[(extent.start, extent.count)], &want);
            let piece = block.and_then(|(_, data)| {
                let piece = remote::piece(&data, read..size, &self.reader.geometry, at);
                piece.map(|piece| piece.len() as u64).map_err(Into::into)
            });
            match self.keep(piece)? {
                Some(bytes) => read += bytes,
                None => return Ok(()),
            }
        }
        if read != size {
            let text = format!("target of {read} bytes, size {size}");
            self.findings.add(Rule::Symlink, at, text);
        }
        Ok(())
    }

    /// Reads one block of a fork, of `count` file system blocks from `offset` on.
    pub(super) fn fork_block(
        &mut self,
        ino: Ino,
        list: &[Extent],
        offset: u64,
        count: u64,
        kinds: &'static [Kind],
    ) -> Result<Option<(Kind, crate::buf::meta::Meta)>, DeviceError> {
        let Some(runs) = runs(list, offset..offset + count) else {
            let rule = if kinds.contains(&Kind::AttrLeaf) || kinds.contains(&Kind::AttrRemote) {
                Rule::Attribute
            } else {
                Rule::DirectoryIndex
            };
            self.findings.add(rule, At::InodeBlock(ino, offset), "the block is a hole");
            return Ok(None);
        };
        let want = ReadRequest { kinds, owner: Some(ino.0), at: At::InodeBlock(ino, offset) };
        let read = self.reader.read(self.cx, &runs, &want);
        self.keep(read)
    }
}
