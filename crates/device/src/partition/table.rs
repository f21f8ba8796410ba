//! Reading partition tables from bytes. Nothing read is trusted.

use super::{PartitionEntry, PartitionTable};
use base::Sector;
use base::unit::SECTOR_SIZE;
use block::{DeviceError, DeviceInfo};

/// Which kind of partition table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableKind {
    /// Master boot record.
    Mbr,
    /// GUID partition table.
    Gpt,
}

/// Why there is no partition.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartitionError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device cannot be read through a queue.
    #[error("{0}")]
    Queue(String),
    /// Neither an MBR nor a GPT.
    #[error("no partition table")]
    NoTable,
    /// There is a table, without this number.
    #[error("no partition {number}; there are: {known}")]
    NoSuch {
        /// The number that was asked for.
        number: u32,
        /// The numbers that exist.
        known: String,
    },
    /// The partition does not lie on the device.
    #[error("partition {number}: {count} sectors from {start} do not lie on a device of {size}")]
    OutOfRange {
        /// Number of the partition.
        number: u32,
        /// First sector.
        start: u64,
        /// Number of sectors.
        count: u64,
        /// Sectors of the device.
        size: u64,
    },
    /// The partition is not made of whole blocks of the device.
    #[error(
        "partition {number}: {count} sectors from {start} are no whole blocks of {block} bytes"
    )]
    Unaligned {
        /// Number of the partition.
        number: u32,
        /// First sector.
        start: u64,
        /// Number of sectors.
        count: u64,
        /// Logical block of the device in bytes.
        block: u32,
    },
    /// Two partitions share sectors.
    #[error("partitions {first} and {second} overlap")]
    Overlap {
        /// Number of the one.
        first: u32,
        /// Number of the other.
        second: u32,
    },
    /// The chain of logical partitions does not end.
    #[error("more than {0} logical partitions")]
    Chain(u32),
    /// Both copies of a GPT are damaged; what is wrong with the first, and with the second.
    #[error("damaged GPT: {primary}; its copy: {backup}")]
    Gpt {
        /// The failed check of the table at the start.
        primary: &'static str,
        /// The failed check of the table at the end.
        backup: &'static str,
    },
}

/// Reads bytes of the device: first sector, length.
type Read<'a> = dyn FnMut(Sector, usize) -> Result<Vec<u8>, DeviceError> + 'a;

/// Logical partitions that a chain may have; ours is larger than what tools can make.
const MAX_LOGICAL: u32 = 128;
/// Entries of a GPT that are read.
const MAX_GPT_ENTRIES: u32 = 1024;
/// Type of the MBR's entry that says that there is a GPT.
const PROTECTIVE: u8 = 0xee;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u32_at(bytes, at) as u64 | (u32_at(bytes, at + 4) as u64) << 32
}

/// Reads the table of a device, the GPT before the MBR.
pub(super) fn read(info: &DeviceInfo, read: &mut Read) -> Result<PartitionTable, PartitionError> {
    // An image of a disk with 4096-byte blocks may be opened as one with 512-byte blocks.
    let mut units = vec![info.logical_block, 512, 4096];
    units.dedup();
    let mut damage = None;
    for unit in units {
        if info.bytes() < 3 * unit as u64 {
            continue;
        }
        match Gpt::read(info, unit, read)? {
            Ok(table) => return Ok(table),
            Err(error) => damage = damage.or(error),
        }
    }
    let mbr = read(Sector(0), 512)?;
    let Some(entries) = mbr_entries(&mbr) else {
        return Err(damage.unwrap_or(PartitionError::NoTable));
    };
    if entries.iter().any(|entry| entry.kind == PROTECTIVE) {
        let missing = "no signature EFI PART";
        let none = PartitionError::Gpt { primary: missing, backup: missing };
        return Err(damage.unwrap_or(none));
    }
    let partitions = mbr_partitions(info, &entries, read)?;
    Ok(PartitionTable { kind: TableKind::Mbr, partitions })
}

struct MbrEntry {
    bootable: bool,
    kind: u8,
    start: u64,
    count: u64,
}

impl MbrEntry {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    fn entry(&self, number: u32, base: u64, unit: u64) -> PartitionEntry {
        PartitionEntry {
            number,
            start: Sector((base + self.start) * unit),
            count: self.count * unit,
            kind: format!("{:02x}", self.kind),
            name: String::new(),
            guid: None,
            bootable: self.bootable,
        }
    }
}

/// The four entries of a boot record. `None` without the signature, and where an entry's status is
/// neither 0 nor 0x80: then it is the boot sector of a file system, which bears the same signature.
fn mbr_entries(sector: &[u8]) -> Option<Vec<MbrEntry>> {
    let entries = sector[446..510].chunks(16).map(|raw| MbrEntry {
        bootable: raw[0] == 0x80,
        kind: raw[4],
        start: u32_at(raw, 8) as u64,
        count: u32_at(raw, 12) as u64,
    });
    let plausible = sector[446..510].chunks(16).all(|raw| matches!(raw[0], 0 | 0x80));
    (sector[510..512] == [0x55, 0xaa] && plausible).then(|| entries.collect())
}

fn mbr_partitions(
    info: &DeviceInfo,
    entries: &[MbrEntry],
    read: &mut Read,
) -> Result<Vec<PartitionEntry>, PartitionError> {
    let unit = info.block_sectors();
    let mut found = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.kind != 0 && entry.count > 0 && !entry.is_extended() {
            found.push(checked(entry.entry(index as u32 + 1, 0, unit), info)?);
        }
    }
    for extended in entries.iter().filter(|entry| entry.is_extended() && entry.count > 0) {
        let mut record = extended.start;
        loop {
            let number = 5 + found.iter().filter(|entry| entry.number >= 5).count() as u32;
            if number > 5 + MAX_LOGICAL {
                return Err(PartitionError::Chain(MAX_LOGICAL));
            }
            let range = Sector(record * unit);
            if record == 0 || range.0 >= info.sectors {
                let (start, count, size) = (range.0, 1, info.sectors);
                return Err(PartitionError::OutOfRange { number, start, count, size });
            }
            let Some(pair) = mbr_entries(&read(range, 512)?) else { break };
            if pair[0].kind != 0 && pair[0].count > 0 {
                found.push(checked(pair[0].entry(number, record, unit), info)?);
            }
            // The link counts from the start of the extended partition. A link that goes back
            // would be a chain without end, so links must go up.
            let next = extended.start + pair[1].start;
            if pair[1].kind == 0 || next <= record {
                break;
            }
            record = next;
        }
    }
    Ok(found)
}

fn checked(entry: PartitionEntry, info: &DeviceInfo) -> Result<PartitionEntry, PartitionError> {
    let end = entry.start.0.checked_add(entry.count);
    if entry.count > 0 && end.is_some_and(|end| end <= info.sectors) {
        return Ok(entry);
    }
    let (number, start, count) = (entry.number, entry.start.0, entry.count);
    Err(PartitionError::OutOfRange { number, start, count, size: info.sectors })
}

/// The fields of a GPT header that matter here, in blocks of `unit` bytes.
struct Gpt {
    first_usable: u64,
    last_usable: u64,
    entries_at: u64,
    entries: u32,
    entry_bytes: u32,
    entries_crc: u32,
}

impl Gpt {
    /// The table in blocks of `unit` bytes: the one at the start, else its copy at the end. The
    /// inner error is `None` where neither has the signature.
    fn read(
        info: &DeviceInfo,
        unit: u32,
        read: &mut Read,
    ) -> Result<Result<PartitionTable, Option<PartitionError>>, PartitionError> {
        let blocks = info.bytes() / unit as u64;
        let mut damage: [Option<&'static str>; 2] = [None; 2];
        for (copy, at) in [1, blocks - 1].into_iter().enumerate() {
            match Gpt::copy(info, unit, at, read)? {
                Ok(partitions) => {
                    return Ok(Ok(PartitionTable {
                        kind: TableKind::Gpt,
                        partitions: partitions?,
                    }));
                }
                Err(what) => damage[copy] = what,
            }
        }
        let missing = "no signature EFI PART";
        let damaged = damage.iter().any(Option::is_some).then(|| PartitionError::Gpt {
            primary: damage[0].unwrap_or(missing),
            backup: damage[1].unwrap_or(missing),
        });
        Ok(Err(damaged))
    }

    /// One copy of the table; the failed check (`None`: the signature) where it cannot be used.
    #[allow(clippy::type_complexity, reason = "device error, damage of the copy, wrong content")]
    fn copy(
        info: &DeviceInfo,
        unit: u32,
        at: u64,
        read: &mut Read,
    ) -> Result<
        Result<Result<Vec<PartitionEntry>, PartitionError>, Option<&'static str>>,
        PartitionError,
    > {
        let scale = unit as u64 / SECTOR_SIZE;
        let header = match Gpt::header(&read(Sector(at * scale), unit as usize)?, at) {
            Ok(header) => header,
            Err(what) => return Ok(Err(what)),
        };
        let len = header.entries as usize * header.entry_bytes as usize;
        let place = header.entries_at.checked_mul(scale).filter(|&start| {
            start.checked_add((len as u64).div_ceil(SECTOR_SIZE)).is_some_and(|e| e <= info.sectors)
        });
        let Some(place) = place else { return Ok(Err(Some("the entries are not on the device"))) };
        let bytes = read(Sector(place), len)?;
        if crc32fast::hash(&bytes) != header.entries_crc {
            return Ok(Err(Some("checksum of the entries")));
        }
        Ok(Ok(header.partitions(&bytes, scale, info)))
    }

    fn header(raw: &[u8], at: u64) -> Result<Gpt, Option<&'static str>> {
        if raw[..8] != *b"EFI PART" {
            return Err(None);
        }
        let size = u32_at(raw, 12) as usize;
        if !(92..=raw.len()).contains(&size) {
            return Err(Some("size of the header"));
        }
        let mut summed = raw[..size].to_vec();
        summed[16..20].fill(0);
        if crc32fast::hash(&summed) != u32_at(raw, 16) {
            return Err(Some("checksum of the header"));
        }
        if u64_at(raw, 24) != at {
            return Err(Some("the header names another place as its own"));
        }
        let gpt = Gpt {
            first_usable: u64_at(raw, 40),
            last_usable: u64_at(raw, 48),
            entries_at: u64_at(raw, 72),
            entries: u32_at(raw, 80),
            entry_bytes: u32_at(raw, 84),
            entries_crc: u32_at(raw, 88),
        };
        if !(1..=MAX_GPT_ENTRIES).contains(&gpt.entries) {
            return Err(Some("number of entries"));
        }
        if !(128..=4096).contains(&gpt.entry_bytes) || !gpt.entry_bytes.is_power_of_two() {
            return Err(Some("size of an entry"));
        }
        Ok(gpt)
    }

    fn partitions(
        &self,
        bytes: &[u8],
        scale: u64,
        info: &DeviceInfo,
    ) -> Result<Vec<PartitionEntry>, PartitionError> {
        let mut found: Vec<PartitionEntry> = Vec::new();
        for (index, raw) in bytes.chunks_exact(self.entry_bytes as usize).enumerate() {
            if raw[..16] == [0; 16] {
                continue;
            }
            let (number, size) = (index as u32 + 1, info.sectors);
            let (first, last) = (u64_at(raw, 32), u64_at(raw, 40));
            let blocks = last.checked_sub(first).and_then(|n| n.checked_add(1)).unwrap_or(0);
            let usable = first >= self.first_usable && last <= self.last_usable;
            let start = first.saturating_mul(scale);
            let count = blocks.saturating_mul(scale);
            if !usable {
                return Err(PartitionError::OutOfRange { number, start, count, size });
            }
            let name: Vec<u16> = raw[56..128]
                .chunks(2)
                .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
                .take_while(|&unit| unit != 0)
                .collect();
            let entry = PartitionEntry {
                number,
                start: Sector(start),
                count,
                kind: guid(&raw[..16]),
                name: String::from_utf16_lossy(&name),
                guid: Some(guid(&raw[16..32])),
                bootable: raw[48] & 4 != 0,
            };
            found.push(checked(entry, info)?);
        }
        no_overlap(&found)?;
        Ok(found)
    }
}

fn no_overlap(partitions: &[PartitionEntry]) -> Result<(), PartitionError> {
    let mut sorted: Vec<&PartitionEntry> = partitions.iter().collect();
    sorted.sort_by_key(|entry| entry.start);
    for pair in sorted.windows(2) {
        if pair[0].start.0 + pair[0].count > pair[1].start.0 {
            let (first, second) = (pair[0].number, pair[1].number);
            return Err(PartitionError::Overlap { first, second });
        }
    }
    Ok(())
}

/// A GUID as text: the first three fields are stored little-endian.
fn guid(raw: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let reversed =
        |range: std::ops::Range<usize>| hex(&raw[range].iter().rev().copied().collect::<Vec<u8>>());
    let (a, b, c) = (reversed(0..4), reversed(4..6), reversed(6..8));
    format!("{a}-{b}-{c}-{}-{}", hex(&raw[8..10]), hex(&raw[10..16]))
}
