//! Misplaced blocks and inodes: each contains its own address, which is its true place.

use base::Ino;
use block::DeviceError;
use xfs::Rule;
use xfs::format::inode::{self, RawInode};
use xfs::format::{At, Kind, verifier};

use super::{Fs, safe};

/// Where a kind keeps its own address.
fn address_at(kind: Kind) -> Option<usize> {
    Some(match kind {
        Kind::FreeByBlock | Kind::FreeBySize | Kind::Inobt | Kind::Finobt => 16,
        Kind::Rmap | Kind::Refcount => 16,
        Kind::Bmap => 24,
        Kind::DirBlock | Kind::DirData | Kind::DirFree => 8,
        Kind::DirLeaf1 | Kind::DirLeafN | Kind::DaNode | Kind::AttrLeaf => 16,
        Kind::AttrRemote | Kind::Symlink => 40,
        _ => return None,
    })
}

impl Fs<'_> {
    /// Takes note of the content of block `here`, and of those behind it if it is a larger one of
    /// a directory, if it belongs somewhere else.
    pub fn notice_stray(&mut self, here: u64, bytes: &[u8]) {
        let Some(kind) = Kind::recognise(bytes) else { return };
        let size = match kind {
            Kind::DirBlock | Kind::DirData | Kind::DirFree | Kind::DirLeaf1 | Kind::DirLeafN => {
                self.g.dir_block_size
            }
            _ => self.g.block_size,
        };
        if bytes.len() != size as usize {
            return;
        }
        let home =
            if kind == Kind::Inode { self.inode_home(bytes) } else { self.home(kind, bytes) };
        if let Some(home) = home.filter(|&home| home != here)
            && self.strays.insert(home, bytes.to_vec()).is_none()
        {
            self.again = true;
        }
    }

    /// The block that sound content says it belongs into.
    fn home(&self, kind: Kind, bytes: &[u8]) -> Option<u64> {
        let at = address_at(kind)?;
        let sum = verifier::checksum(kind, bytes);
        let ours = verifier::has_uuid(kind, bytes, &self.g.meta_uuid);
        let sector = u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let sound = verifier::stored_checksum(kind, bytes) == sum && ours;
        (sound && sector.is_multiple_of(self.g.block_sectors()))
            .then(|| sector / self.g.block_sectors())
    }

    /// The same for a block of inodes.
    fn inode_home(&self, bytes: &[u8]) -> Option<u64> {
        let slot = &bytes[..self.g.inode_size as usize];
        let raw = RawInode::view(slot)?;
        let ino = base::Ino(raw.di_ino.get());
        let sum = verifier::checksum(Kind::Inode, slot);
        let sound = verifier::stored_checksum(Kind::Inode, slot) == sum;
        let ours = raw.di_uuid == self.g.meta_uuid && self.g.ino_valid(ino);
        let (place, offset) = self.g.ino_place(ino);
        (sound && ours && offset == 0).then(|| self.g.linear(place))
    }

    /// Puts content that lay somewhere else back into block `here`; None where there is none.
    pub fn take_stray(&mut self, here: u64, at: At) -> Result<Option<Vec<u8>>, DeviceError> {
        let size = self.g.block_size as usize;
        let stray = self.strays.get(&here).filter(|bytes| bytes.len() == size);
        let Some(bytes) = stray.cloned() else { return Ok(None) };
        let old = self.view.read(here)?;
        self.notice_stray(here, &old);
        self.view.write(here, &bytes);
        self.elsewhere.remove(&here);
        self.note_moved(at);
        Ok(Some(bytes))
    }

    /// Takes note of what lies in the slot of `ino` if it is another inode, whole, which that one's
    /// own place lacks or has too. False where nothing but a number says so, or its block lies here
    /// as a whole.
    pub fn notice_stray_inode(&mut self, ino: Ino, slot: &[u8]) -> Result<bool, DeviceError> {
        let Some(home) = self.home_of_inode(slot).filter(|&home| home != ino) else {
            return Ok(false);
        };
        if !self.has_slot(home) || self.is_moved_block(ino)? {
            return Ok(false);
        }
        let there = self.slot(home)?;
        if inode::verify(&there, home, &self.g).is_ok() {
            let [one, other] = [slot, &there].map(|slot| RawInode::view(slot).expect("a core"));
            let copy = one.di_gen == other.di_gen && one.di_mode == other.di_mode;
            return Ok(copy && one.di_mode.get() != 0);
        }
        if self.stray_inodes.insert(home.0, slot.to_vec()).is_none() {
            self.again = true;
        }
        Ok(true)
    }

    /// Puts an inode back that lay in the place of another.
    pub fn take_stray_inode(&mut self, ino: Ino) -> Result<Option<Vec<u8>>, DeviceError> {
        let Some(mut own) = self.stray_inodes.get(&ino.0).cloned() else { return Ok(None) };
        self.put_slot(ino, &mut own)?;
        let detail = "lies in the place of another inode";
        self.note(safe(Rule::Identity, At::Inode(ino), detail, "put it back"));
        Ok(Some(own))
    }

    /// The number of the inode that a slot holds, if it is whole.
    fn home_of_inode(&self, slot: &[u8]) -> Option<Ino> {
        let raw = RawInode::view(slot)?;
        let ours = raw.di_magic.get() == inode::MAGIC && raw.di_version == 3;
        let sum = verifier::checksum(Kind::Inode, slot);
        let sound = verifier::stored_checksum(Kind::Inode, slot) == sum;
        let ino = Ino(raw.di_ino.get());
        (ours && sound && raw.di_uuid == self.g.meta_uuid && self.g.ino_valid(ino)).then_some(ino)
    }

    /// Whether the inodes in the block of this one lie equally far from their places, several of
    /// them.
    fn is_moved_block(&mut self, ino: Ino) -> Result<bool, DeviceError> {
        let (place, offset) = self.g.ino_place(ino);
        let size = self.g.inode_size as usize;
        let first = ino.0 - (offset / size) as u64;
        let block = self.view.read(self.g.linear(place))?;
        let slots = (first..).zip(block.chunks_exact(size));
        let mut moves =
            slots.filter_map(|(here, slot)| Some(self.home_of_inode(slot)?.0.wrapping_sub(here)));
        let Some(by) = moves.next() else { return Ok(false) };
        let per_block = block.len() / size;
        let mut others = 0;
        let same = moves.all(|other| {
            others += 1;
            other == by
        });
        Ok(same && others > 0 && by.is_multiple_of(per_block as u64))
    }

    /// Says that content went back to its place.
    pub fn note_moved(&mut self, at: At) {
        let detail = "lies in the place of another block";
        self.note(safe(Rule::Identity, at, detail, "put it back"));
    }
}
