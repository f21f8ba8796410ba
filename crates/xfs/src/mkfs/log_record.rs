//! The record that a new log begins with: the one that unmounting would write.

use crate::format::log::{
    CLIENT_LOG, CYCLE_DATA, FORMAT_LITTLE, LOG_BLOCK, OpFlags, RECORD_MAGIC, RawOpHeader,
    RawRecordHeader, RawUnmount, UNMOUNT_MAGIC, VERSION_2, header_blocks,
};
use crate::format::{NULL32, put_u32, u32_at};

/// The transaction number that mkfs writes.
const TID: u32 = 0xb0c0_d0d0;

/// A log that holds nothing.
pub struct EmptyLog {
    record: Vec<u8>,
    cycle: u32,
}

impl EmptyLog {
    /// A log with a stripe unit in bytes (0 or 1 for none), in a cycle that is at least 1 and above
    /// that of every sequence number in the metadata.
    pub fn new(uuid: [u8; 16], sunit: u32, cycle: u32) -> EmptyLog {
        EmptyLog { record: unmount_record(uuid, sunit, cycle), cycle }
    }

    /// `len` of its bytes from `at` on, whole blocks of the log.
    pub fn piece(&self, at: usize, len: usize) -> Vec<u8> {
        let mut piece = vec![0; len];
        for block in piece.chunks_exact_mut(LOG_BLOCK) {
            put_u32(block, 0, self.cycle - 1);
        }
        if let Some(rest) = self.record.get(at..) {
            let len = rest.len().min(len);
            piece[..len].copy_from_slice(&rest[..len]);
        }
        piece
    }
}

/// The record that an empty log begins with, of a stripe unit in bytes (0 or 1 for none) and a
/// cycle, which is at least 1 and above that of every sequence number in the metadata.
pub(super) fn unmount_record(uuid: [u8; 16], sunit: u32, cycle: u32) -> Vec<u8> {
    let total = (sunit as usize).max(2 * LOG_BLOCK);
    let size = total.max(CYCLE_DATA);
    let headers = header_blocks(size);
    let mut record = vec![0; total.max((headers + 1) * LOG_BLOCK)];
    let body = record.len() - headers * LOG_BLOCK;
    let at = headers * LOG_BLOCK;
    let op = RawOpHeader::view_mut(&mut record[at..]).expect("a block");
    op.oh_tid.set(TID);
    op.oh_len.set(size_of::<RawUnmount>() as u32);
    op.oh_clientid = CLIENT_LOG;
    op.oh_flags = OpFlags::UNMOUNT.bits();
    let at = at + size_of::<RawOpHeader>();
    RawUnmount::view_mut(&mut record[at..]).expect("a block").magic.set(UNMOUNT_MAGIC);
    // The first word of each block is the cycle; what was there goes into the headers.
    let mut cycle_words = [0; 64];
    for (index, block) in record.chunks_exact_mut(LOG_BLOCK).enumerate().skip(1) {
        if index >= headers
            && let Some(word) = cycle_words.get_mut(index - headers)
        {
            *word = u32_at(block, 0);
        }
        put_u32(block, 0, cycle);
    }
    let header = RawRecordHeader::view_mut(&mut record).expect("a block");
    header.h_magicno.set(RECORD_MAGIC);
    header.h_cycle.set(cycle);
    header.h_version.set(VERSION_2);
    header.h_len.set(body as u32);
    header.h_lsn.set(u64::from(cycle) << 32);
    header.h_tail_lsn.set(u64::from(cycle) << 32);
    header.h_prev_block.set(NULL32);
    header.h_num_logops.set(1);
    for (word, kept) in header.h_cycle_data.iter_mut().zip(cycle_words) {
        word.set(kept);
    }
    header.h_fmt.set(FORMAT_LITTLE);
    header.h_fs_uuid = uuid;
    header.h_size.set(size as u32);
    record
}
