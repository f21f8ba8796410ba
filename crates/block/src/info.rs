//! The properties of a device: size, limits, supported operations.

use base::unit::SECTOR_SIZE;

/// What a queue must know about a device. Does not change while the device lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Size in sectors of 512 bytes.
    pub sectors: u64,
    /// Unit of addressing in bytes: 512 to 64 KiB, a power of two.
    pub logical_block: u32,
    /// Unit that is written without reading first, in bytes; at least `logical_block`.
    pub physical_block: u32,
    /// Largest data request in bytes; a multiple of `logical_block`.
    pub max_bytes: u32,
    /// Most segments of one request; at least 1.
    pub max_segments: u16,
    /// Completed writes may be lost when power fails, until a flush.
    pub volatile_cache: bool,
    /// [`BioFlags::FUA`] is understood.
    pub fua: bool,
    /// [`Op::Discard`] is understood.
    pub discard: bool,
    /// [`Op::WriteZeroes`] is understood.
    pub write_zeroes: bool,
    /// Nothing that writes is accepted.
    pub read_only: bool,
    /// Requests that the device takes at once; at least 1.
    pub depth: u32,
    /// Hardware queues, at least 1: those with requests are served in turn. A task's requests are
    /// in that of its processor.
    pub hw_queues: u32,
    /// Distance costs time.
    pub rotational: bool,
    /// Bytes of a chunk of a striped device, at whose multiples it cuts requests; a multiple of
    /// `logical_block`. 0: it cuts nowhere.
    pub chunk: u32,
}

impl DeviceInfo {
    /// A device of `sectors` sectors with everything else as a plain image file has it: blocks of
    /// 512 and 4096 bytes, requests of 1 MiB and 256 segments, no volatile cache, depth 64,
    /// one hardware queue.
    pub fn plain(sectors: u64) -> DeviceInfo {
        DeviceInfo {
            sectors,
            logical_block: 512,
            physical_block: 4096,
            max_bytes: 1 << 20,
            max_segments: 256,
            volatile_cache: false,
            fua: false,
            discard: true,
            write_zeroes: true,
            read_only: false,
            depth: 64,
            hw_queues: 1,
            rotational: false,
            chunk: 0,
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR_SIZE
    }

    /// Sectors in a logical block.
    pub fn block_sectors(&self) -> u64 {
        self.logical_block as u64 / SECTOR_SIZE
    }
}
