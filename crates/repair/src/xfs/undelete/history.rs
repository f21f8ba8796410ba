//! Inodes as older records of the log have them.

use std::collections::BTreeMap;

use base::Ino;
use block::DeviceError;
use xfs::format::inode::{Flags2, MAGIC};
use xfs::format::log::{
    FORMAT_LITTLE, LOG_BLOCK, OpFlags, RawOpHeader, RawRecordHeader, record_checksum, unpacked,
};
use xfs::format::log_item::{InodeFields, ItemKind, RawInodeItem, RawLogInode};
use xfs::log::OP_HEADER;

use super::{Fs, has_extents};

/// Bytes of the first region of an inode item, and of the core.
const ITEM: usize = size_of::<RawInodeItem>();
const CORE: usize = size_of::<RawLogInode>();

/// An inode as it was.
#[derive(Clone, Debug, Default)]
pub struct Older {
    /// The record that holds it.
    pub lsn: u64,
    /// Type and permissions.
    pub mode: u16,
    /// Bytes.
    pub size: u64,
    /// Extents of its data fork.
    pub extent_count: u64,
    /// Records of these extents, if they lie in the inode.
    pub extents: Vec<u8>,
    /// Content that lies in the inode.
    pub local: Vec<u8>,
}

/// What the log has of the past.
#[derive(Default)]
pub struct History {
    /// The newest state of each inode in which it was in use.
    pub inodes: BTreeMap<u64, Older>,
    /// Small directories as they were: inode, the bytes of the fork.
    pub dirs: Vec<(u64, Vec<u8>)>,
    pending: Pending,
    /// The beginning of a region that goes on in the next record.
    part: Vec<u8>,
}

/// What is known of the item that is being read.
#[derive(Default)]
enum Pending {
    #[default]
    Nothing,
    Item(InodeFields, u64),
    Core(InodeFields, u64, Older),
}

impl Fs<'_> {
    /// Reads the log as it lies on the device.
    pub fn history(&mut self) -> Result<History, DeviceError> {
        let mut found = History::default();
        let sectors = self.g.log_blocks * (self.g.block_size / LOG_BLOCK as u32);
        let mut at = 0;
        while at < sectors {
            let taken = self.history_at(at, sectors, &mut found)?;
            if taken == 0 {
                // What goes on is not in the next record.
                (found.pending, found.part) = (Pending::Nothing, Vec::new());
            }
            at += taken.max(1);
        }
        Ok(found)
    }

    /// Takes the record at a sector of the log; its length in sectors, 0 if there is none.
    fn history_at(
        &mut self,
        at: u32,
        sectors: u32,
        found: &mut History,
    ) -> Result<u32, DeviceError> {
        let head = self.log_bytes(at, 1)?;
        let Ok(raw) = RawRecordHeader::parse(&head, at) else { return Ok(0) };
        let ours = raw.h_fs_uuid == self.g.uuid && raw.h_fmt.get() == FORMAT_LITTLE;
        let (bytes, total) = (raw.h_len.get() as usize, raw.total_blocks());
        // A record that goes round the end is not worth the trouble.
        if !ours || total > sectors - at || bytes == 0 {
            return Ok(0);
        }
        let whole = self.log_bytes(at, total)?;
        let (headers, data) = whole.split_at(raw.header_blocks() * LOG_BLOCK);
        let data = &data[..bytes];
        if raw.h_crc.get() != record_checksum(&head, &headers[LOG_BLOCK..], data) {
            return Ok(0);
        }
        found.take_items(raw.lsn().bits(), &unpacked(headers, data));
        Ok(total)
    }

    /// Sectors of the log as they are on the device.
    fn log_bytes(&mut self, at: u32, count: u32) -> Result<Vec<u8>, DeviceError> {
        let per_block = self.g.block_size / LOG_BLOCK as u32;
        let first = self.linear(self.g.log_start);
        let (from, to) = (at / per_block, (at + count).div_ceil(per_block));
        let mut bytes = Vec::new();
        for block in from..to {
            bytes.extend_from_slice(&self.view.original(first + u64::from(block))?);
        }
        let skip = (at - from * per_block) as usize * LOG_BLOCK;
        Ok(bytes[skip..skip + count as usize * LOG_BLOCK].to_vec())
    }
}

impl History {
    /// Takes the inode items of a record.
    fn take_items(&mut self, lsn: u64, data: &[u8]) {
        let mut at = 0;
        while let Some(head) = data.get(at..at + OP_HEADER) {
            let op = RawOpHeader::view(head).expect("as long as a header");
            let (len, flags) = (op.oh_len.get() as usize, op.flags());
            let Some(region) = data.get(at + OP_HEADER..at + OP_HEADER + len) else { return };
            at += OP_HEADER + len;
            if !flags.contains(OpFlags::WAS_CONTINUED) {
                self.part.clear();
            }
            self.part.extend_from_slice(region);
            if !flags.contains(OpFlags::CONTINUE) {
                let whole = std::mem::take(&mut self.part);
                self.step(lsn, &whole);
            }
        }
    }

    /// The next region of a record.
    fn step(&mut self, lsn: u64, region: &[u8]) {
        match std::mem::take(&mut self.pending) {
            Pending::Item(fields, ino) if region.len() == CORE => {
                let Some(older) = older_of(lsn, Ino(ino), region) else { return };
                match fields.intersects(InodeFields::DEXT | InodeFields::DDATA) {
                    true => self.pending = Pending::Core(fields, ino, older),
                    false => keep(ino, older, &mut self.inodes),
                }
            }
            Pending::Core(fields, ino, mut older) => {
                if fields.contains(InodeFields::DEXT) {
                    older.extents = region.to_vec();
                } else {
                    older.local = region.to_vec();
                    if older.mode & 0xf000 == 0x4000 {
                        let used = region.len().min(older.size as usize);
                        self.dirs.push((ino, region[..used].to_vec()));
                    }
                }
                keep(ino, older, &mut self.inodes);
            }
            _ if region.len() == ITEM => {
                let raw = RawInodeItem::view(region).expect("as long as an item");
                if raw.ilf_type.get() == ItemKind::Inode as u16 {
                    let fields = InodeFields::from_bits_retain(raw.ilf_fields.get());
                    self.pending = Pending::Item(fields, raw.ilf_ino.get());
                }
            }
            _ => {}
        }
    }
}

/// The core of an inode in use.
fn older_of(lsn: u64, ino: Ino, region: &[u8]) -> Option<Older> {
    let raw = RawLogInode::view(region).expect("as long as a core");
    let used = raw.di_magic.get() == MAGIC
        && raw.di_ino.get() == ino.0
        && raw.di_mode.get() != 0
        && raw.di_nlink.get() != 0;
    let wide = raw.di_flags2.get() & Flags2::NREXT64.bits() != 0;
    let extents = if wide { raw.di_big_nextents.get() } else { raw.di_nextents.get().into() };
    used.then(|| Older {
        lsn,
        mode: raw.di_mode.get(),
        size: raw.di_size.get(),
        extent_count: if has_extents(raw.di_format) { extents } else { 0 },
        extents: Vec::new(),
        local: Vec::new(),
    })
}

/// Keeps the newer state; what it does not hold comes from the older one.
fn keep(ino: u64, one: Older, found: &mut BTreeMap<u64, Older>) {
    let Some(other) = found.remove(&ino) else {
        found.insert(ino, one);
        return;
    };
    let (mut newer, older) = if one.lsn >= other.lsn { (one, other) } else { (other, one) };
    // Of another file that had the number before, nothing counts.
    if newer.mode & 0xf000 == older.mode & 0xf000 {
        if newer.extents.is_empty() {
            newer.extents = older.extents;
        }
        if newer.local.is_empty() {
            newer.local = older.local;
        }
    }
    found.insert(ino, newer);
}
