//! Accounts of quota files, where the map of a file takes more blocks than before, or fewer.

use ext4::format::quota::{self, BLOCK_SIZE, Block, Blocks, Info, Kind};
use ext4::format::{At, CorruptKind};

use super::place::Relayout;
use crate::volume::EditError;

/// A quota file where it will be.
struct File<'r, 'a> {
    layout: &'r mut Relayout<'a>,
    kind: usize,
}

impl File<'_, '_> {
    /// Block and offset in it of a block of the quota file.
    fn place(&self, block: u32) -> Result<(u64, usize), EditError> {
        let at = block as usize * BLOCK_SIZE;
        let size = self.layout.v.size();
        let blocks = &self.layout.quota_blocks[self.kind];
        let Some(&place) = blocks.get(at / size) else {
            let kind = CorruptKind::QuotaBlock { block, blocks: blocks.len() as u32 };
            return Err(kind.at(At::Super(0)).into());
        };
        Ok((place, at % size))
    }
}

impl Blocks for File<'_, '_> {
    type Error = EditError;

    fn load(&mut self, block: u32) -> Result<Block, EditError> {
        let (place, offset) = self.place(block)?;
        let content = self.layout.v.view.read(place)?;
        Ok(content[offset..offset + BLOCK_SIZE].try_into().expect("a whole block"))
    }

    fn store(&mut self, block: u32, data: &Block) -> Result<(), EditError> {
        let (place, offset) = self.place(block)?;
        let mut content = self.layout.v.view.read(place)?;
        content[offset..offset + BLOCK_SIZE].copy_from_slice(data);
        self.layout.v.view.write(place, &content);
        Ok(())
    }

    fn damaged(&mut self, kind: CorruptKind) -> EditError {
        kind.at(At::Super(0)).into()
    }
}

impl Relayout<'_> {
    /// Adds bytes to an account, where there are quota files; `kind` as [`Kind::ALL`] has it.
    ///
    /// # Errors
    /// The device's; a damaged quota file.
    pub fn charge(&mut self, kind: usize, id: u32, bytes: i64) -> Result<(), EditError> {
        if self.quota_blocks[kind].is_empty() {
            return Ok(());
        }
        let mut file = File { layout: self, kind };
        let head = file.load(0)?;
        let info = Info::parse(&head, Kind::ALL[kind]).map_err(|kind| file.damaged(kind))?;
        let Some(slot) = quota::find(&mut file, &info, id)? else { return Ok(()) };
        let mut data = file.load(slot.block)?;
        let mut entry = info.form.read(&data[slot.offset..]);
        entry.space = entry.space.saturating_add_signed(bytes);
        info.form.emit(&entry, &mut data[slot.offset..], id);
        file.store(slot.block, &data)
    }
}
