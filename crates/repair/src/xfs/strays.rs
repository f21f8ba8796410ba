//! Misplaced blocks: each contains its own address, which is its true place.

use block::DeviceError;
use xfs::Rule;
use xfs::format::inode::RawInode;
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

    /// Says that content went back to its place.
    pub fn note_moved(&mut self, at: At) {
        let detail = "lies in the place of another block";
        self.note(safe(Rule::Identity, at, detail, "put it back"));
    }
}
