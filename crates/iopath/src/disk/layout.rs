//! Where the partitions of a disk lie.

use std::ops::Range;

use anyhow::{Result, bail};

use super::numbered;
use super::plan::{Holds, PartSize, Plan, Table};

/// Bytes behind a GPT's last partition: the entries and the header once more.
const GPT_END: u64 = 33 * 512;
/// Bytes before the first one: the protective record, the header and the entries.
const GPT_START: u64 = 34 * 512;

/// A partition with its place.
#[derive(Clone, Debug)]
pub struct Part {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its GUID.
    pub uuid: [u8; 16],
    /// The UUID of what it holds.
    pub fs_uuid: [u8; 16],
}

/// The places of all.
pub struct Place {
    /// Bytes of the disk.
    pub bytes: u64,
    /// The partitions in the order of their numbers.
    pub parts: Vec<Part>,
}

/// Arranges the partitions, which need at least this many bytes.
///
/// # Errors
/// They overlap or do not fit; which.
pub fn arrange(plan: &Plan, needs: &[u64], uuid: [u8; 16]) -> Result<Place> {
    let align = plan.align.0;
    let (start, behind) = match plan.table {
        Table::Gpt => (GPT_START, GPT_END),
        Table::Mbr => (512, 0),
        Table::None => (0, 0),
    };
    if plan.table == Table::None && !plan.partitions.is_empty() {
        bail!("partitions need a table: gpt or mbr");
    }
    let end = plan.size.map(|size| size.0);
    if let Some(size) = end
        && (size % 512 != 0 || size < start + behind)
    {
        bail!("a disk of {size} bytes: it needs whole sectors, and room for the table");
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut next = start.next_multiple_of(align);
    for (index, wanted) in plan.partitions.iter().enumerate() {
        let shown = || plan.shown(index);
        let offset = wanted.offset.map_or(next, |offset| offset.0);
        if offset % align != 0 {
            bail!("{}: offset {offset} is not a multiple of {align} (align)", shown());
        }
        if offset < start {
            bail!("{}: offset {offset} lies in the partition table", shown());
        }
        let bytes = match (wanted.size, end) {
            (Some(PartSize::Bytes(bytes)), _) => bytes,
            (Some(PartSize::Rest), Some(end)) => {
                let after: u64 = plan.partitions[index + 1..]
                    .iter()
                    .zip(&needs[index + 1..])
                    .map(|(part, need)| match part.size {
                        Some(PartSize::Bytes(bytes)) => bytes.next_multiple_of(align),
                        _ => need.next_multiple_of(align),
                    })
                    .sum();
                let end = (end - behind).saturating_sub(after) / align * align;
                end.saturating_sub(offset)
            }
            (Some(PartSize::Rest), None) => bail!("{}: `rest` needs the size of the disk", shown()),
            (None, _) if needs[index] == 0 => bail!("{}: has no size", shown()),
            (None, _) => needs[index].next_multiple_of(align),
        };
        if bytes == 0 || bytes % 512 != 0 {
            bail!("{}: {bytes} bytes are left for it, or are no whole sectors", shown());
        }
        if bytes < needs[index] && !matches!(wanted.holds()?, Holds::Tree(_)) {
            bail!("{}: {bytes} bytes, what it holds needs {}", shown(), needs[index]);
        }
        let number = index as u32 + 1;
        let own = |given: Option<super::plan::Id>, number| {
            given.map_or_else(|| numbered(&uuid, number), |id| id.0)
        };
        let (uuid, fs_uuid) = (own(wanted.uuid, 2 * number), own(wanted.fs_uuid, 2 * number + 1));
        parts.push(Part { offset, bytes, uuid, fs_uuid });
        next = (offset + bytes).next_multiple_of(align);
    }
    let outside = plan.files.iter().map(|file| file.offset.0).max().unwrap_or(0);
    let last = parts.iter().map(|part| part.offset + part.bytes).max().unwrap_or(start);
    let least = last.max(outside) + behind;
    let bytes = end.unwrap_or_else(|| least.next_multiple_of(align));
    if bytes < least {
        bail!("the partitions need {least} bytes, the disk has {bytes}");
    }
    check(plan, &parts, start..bytes - behind)?;
    Ok(Place { bytes, parts })
}

/// Nothing overlaps: partitions, files, tables.
fn check(plan: &Plan, parts: &[Part], room: Range<u64>) -> Result<()> {
    let Range { start, end } = room;
    let mut taken: Vec<(u64, u64, String)> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        taken.push((part.offset, part.offset + part.bytes, plan.shown(index)));
    }
    for file in &plan.files {
        let (offset, len) = (file.offset.0, plan.file(&file.path)?.metadata()?.len());
        let shown = file.path.display().to_string();
        // Boot code shares the first sector with an MBR's entries.
        let in_record = plan.table == Table::Mbr && offset + len <= 440;
        if offset < start && len > 0 && !in_record {
            bail!("{shown}: offset {offset} lies in the partition table");
        }
        if offset + len > end {
            bail!("{shown}: {len} bytes at {offset} do not fit before byte {end}");
        }
        taken.push((offset, offset + len, shown));
    }
    taken.sort();
    for pair in taken.windows(2) {
        let ((_, end, first), (start, _, second)) = (&pair[0], &pair[1]);
        if start < end {
            bail!("{first} and {second} overlap: one ends at byte {end}, one begins at {start}");
        }
    }
    Ok(())
}
