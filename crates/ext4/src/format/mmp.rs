//! The block of multi-mount protection (feature `mmp`): who writes to the file system, and a number
//! that changes as long as he does.
//!
//! Source: kernel `Documentation/filesystems/ext4/mmp.rst`; the waits were observed.

use base::crc::crc32c;

use super::CorruptKind;
use super::checksum::u32_at;

/// Bytes of the structure.
pub const SIZE: usize = 1024;
const MAGIC: u32 = 0x004d_4d50;
/// The number of a file system that nobody writes to.
pub const CLEAN: u32 = 0xff4d_4d50;
/// The number of one that a check is at work on.
pub const FSCK: u32 = 0xe24d_4d50;
/// Numbers of those who write are at most this large.
pub const SEQUENCE_MAX: u32 = 0xe24d_4d4f;
/// Seconds between two looks, at least.
pub const CHECK_INTERVAL_MIN: u16 = 5;
const CHECKSUM: usize = 1020;

/// What the block says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mmp {
    /// [`CLEAN`], [`FSCK`], or a number that whoever writes to the file system changes.
    pub sequence: u32,
    /// When that was, in seconds since 1970.
    pub time: u64,
    /// The machine.
    pub node: String,
    /// The name of its device.
    pub device: String,
    /// Seconds after which an unchanged number means that nobody writes any more.
    pub check_interval: u16,
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn put(bytes: &mut [u8], text: &str) {
    bytes.fill(0);
    let len = text.len().min(bytes.len() - 1);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
}

impl Mmp {
    /// Reads a block; `seed` is that of the file system where it has checksums.
    ///
    /// # Errors
    /// `MmpMagic`, `MmpChecksum`.
    pub fn parse(block: &[u8], seed: Option<u32>) -> Result<Mmp, CorruptKind> {
        let found = u32_at(block, 0);
        if found != MAGIC {
            return Err(CorruptKind::MmpMagic { found });
        }
        if let Some(seed) = seed {
            let (found, expected) = (u32_at(block, CHECKSUM), crc32c(seed, &block[..CHECKSUM]));
            if found != expected {
                return Err(CorruptKind::MmpChecksum { found, expected });
            }
        }
        Ok(Mmp {
            sequence: u32_at(block, 4),
            time: u64::from(u32_at(block, 8)) | u64::from(u32_at(block, 12)) << 32,
            node: text(&block[16..80]),
            device: text(&block[80..112]),
            check_interval: u16::from_le_bytes([block[112], block[113]]),
        })
    }

    /// Writes it into a block, of which the rest stays.
    pub fn emit(&self, block: &mut [u8], seed: Option<u32>) {
        block[..4].copy_from_slice(&MAGIC.to_le_bytes());
        block[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        block[8..16].copy_from_slice(&self.time.to_le_bytes());
        put(&mut block[16..80], &self.node);
        put(&mut block[80..112], &self.device);
        block[112..114].copy_from_slice(&self.check_interval.to_le_bytes());
        if let Some(seed) = seed {
            let sum = crc32c(seed, &block[..CHECKSUM]);
            block[CHECKSUM..SIZE].copy_from_slice(&sum.to_le_bytes());
        }
    }
}
