//! What is left of a file system or of a partition table where the start of a device is gone:
//! copies of superblocks, logs, the second copy of a GPT.

use std::sync::Arc;

use anyhow::{Context, Result};
use base::Sector;
use block::{Device, Queue};
use rt::Cx;

use crate::target::Target;
use crate::text;

/// A copy that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remain {
    /// What and where it is.
    pub what: String,
    /// How to read what was there.
    pub how: String,
}

/// Bytes from the start that are searched from end to end.
const SEARCHED: u64 = 256 << 20;
/// Bytes that are read at once.
const PIECE: u64 = 256 << 10;
/// Bytes around the places where groups of a large XFS may begin.
const WINDOW: u64 = 2 << 20;

/// Searches a device whose start says nothing. The first 256 MiB are read, and the places where
/// groups begin; the second copy of a GPT is looked for on the `whole` device. May park.
///
/// # Errors
/// The device failed.
pub fn search(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    target: &Target,
    whole: Option<&Arc<dyn Device>>,
) -> Result<Vec<Remain>> {
    let mut found = Found::default();
    for range in ranges(queue.info().bytes()) {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(PIECE) as usize;
            let page = queue.read(cx, Sector::from_bytes(at), len);
            let page = page.with_context(|| target.to_string())?;
            if page.iter().any(|&b| b != 0) {
                found.look(&page, at);
            }
            at += len as u64;
        }
    }
    let mut remains = found.remains();
    if let Some(device) = whole
        && let Ok(table) = device::Partition::list(cx, device)
        && !table.partitions.is_empty()
    {
        let numbers: Vec<String> =
            table.partitions.iter().map(|entry| format!("{target}@{}", entry.number)).collect();
        remains.push(Remain {
            what: "the second copy of a GPT, at the end".into(),
            how: format!("its partitions can be named: {}", numbers.join(", ")),
        });
    }
    Ok(remains)
}

/// All of it in a sentence.
pub fn sentence(found: &[Remain]) -> String {
    let each: Vec<String> = found.iter().map(|r| format!("{} ({})", r.what, r.how)).collect();
    each.join("; ")
}

/// What is read: the start, and windows where a quarter, an eighth .. of the device ends.
fn ranges(bytes: u64) -> Vec<std::ops::Range<u64>> {
    let end = bytes / 4096 * 4096;
    let mut ranges: Vec<_> = std::iter::once(0..end.min(SEARCHED)).collect();
    for groups in [2u64, 4, 8, 16, 32] {
        let start = (bytes / groups).saturating_sub(WINDOW / 2) / 4096 * 4096;
        if start >= SEARCHED {
            ranges.push(start..(start + WINDOW).min(end));
        }
    }
    ranges
}

#[derive(Default)]
struct Found {
    ext: Vec<Ext>,
    xfs: Vec<(u64, String)>,
    journal: Option<u64>,
    xfs_log: Option<u64>,
}

/// A copy of a superblock of ext2, ext3 or ext4.
struct Ext {
    at: u64,
    group: u64,
    block_size: u64,
    label: String,
}

impl Found {
    /// Looks at each sector of bytes that were read at `from`.
    fn look(&mut self, bytes: &[u8], from: u64) {
        for (index, sector) in bytes.chunks(512).enumerate() {
            let at = from + index as u64 * 512;
            let rest = &bytes[index * 512..];
            if sector.starts_with(b"XFSB") {
                self.xfs.extend(xfs_copy(rest, at));
            } else if sector.starts_with(&[0xfe, 0xed, 0xba, 0xbe]) {
                self.xfs_log.get_or_insert(at);
            } else if sector.starts_with(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4]) {
                self.journal.get_or_insert(at);
            } else if sector.get(56..58) == Some(&[0x53, 0xef]) {
                self.ext.extend(ext_copy(rest, at));
            }
        }
    }

    fn remains(self) -> Vec<Remain> {
        let mut remains = Vec::new();
        let copies = |count: usize| match count {
            1 => String::new(),
            count => format!(", one of {count} that were found"),
        };
        if let Some(Ext { at, group, block_size, label }) = self.ext.first() {
            let count = copies(self.ext.len());
            let (kib, block) = (at / 1024, at / block_size);
            remains.push(Remain {
                what: format!(
                    "a copy of a superblock of ext2, ext3 or ext4{label} at byte {at}, of group \
                     {group}{count}"
                ),
                how: format!(
                    "read it with `mount -o ro,loop,sb={kib}`; restore it, in a copy of this, \
                     with `e2fsck -b {block} -B {block_size}`"
                ),
            });
        }
        if let Some((at, label)) = self.xfs.first() {
            let count = copies(self.xfs.len());
            remains.push(Remain {
                what: format!("a copy of a superblock of XFS{label} at byte {at}{count}"),
                how: "`xfs_repair`, in a copy of this, finds and restores it".into(),
            });
        }
        let logs = [
            (self.journal, self.ext.is_empty(), "a journal of ext3 or ext4"),
            (self.xfs_log, self.xfs.is_empty(), "a log of XFS"),
        ];
        for (at, alone, what) in logs {
            if let (Some(at), true) = (at, alone) {
                let how = "no copy of its superblock was found".into();
                remains.push(Remain { what: format!("{what} at byte {at}"), how });
            }
        }
        remains
    }
}

fn little(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(word.try_into().ok()?).into())
}

fn big(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(word.try_into().ok()?).into())
}

fn named(label: &[u8]) -> String {
    let end = label.iter().position(|&b| b == 0).unwrap_or(label.len());
    match &label[..end] {
        [] => String::new(),
        label => format!(" `{}`", text::printable(label)),
    }
}

/// A copy lies where its group begins: what looks like one elsewhere is the content of a file.
fn ext_copy(bytes: &[u8], at: u64) -> Option<Ext> {
    let block_size = 1024u64.checked_shl(little(bytes, 24)? as u32).filter(|&b| b <= 65536)?;
    let (first, per_group) = (little(bytes, 20)?, little(bytes, 32)?);
    let group = little(bytes, 88)? >> 16;
    let sane = (1..=65528).contains(&per_group) && first <= 1 && group > 0;
    let place = (group.checked_mul(per_group)?.checked_add(first)?).checked_mul(block_size)?;
    let label = named(bytes.get(120..136)?);
    (sane && place == at).then_some(Ext { at, group, block_size, label })
}

fn xfs_copy(bytes: &[u8], at: u64) -> Option<(u64, String)> {
    let (block_size, ag_blocks) = (big(bytes, 4)?, big(bytes, 84)?);
    let sane = block_size.is_power_of_two() && (512..=65536).contains(&block_size);
    let group = ag_blocks.checked_mul(block_size).filter(|&bytes| bytes > 0 && sane)?;
    let label = named(bytes.get(108..120)?);
    (at > 0 && at.is_multiple_of(group)).then_some((at, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_lie_where_groups_begin() {
        let mut copy = vec![0; 1024];
        copy[20] = 1;
        copy[32..36].copy_from_slice(&8192u32.to_le_bytes());
        copy[56..58].copy_from_slice(&[0x53, 0xef]);
        copy[90] = 1;
        copy[120..123].copy_from_slice(b"one");
        let mut found = Found::default();
        found.look(&copy, 8193 * 1024);
        found.look(&copy, 9000 * 1024);
        let remains = found.remains();
        assert_eq!(remains.len(), 1, "{remains:?}");
        assert!(remains[0].what.contains("`one` at byte 8389632, of group 1"), "{remains:?}");
        assert!(remains[0].how.contains("-b 8193 -B 1024"), "{remains:?}");
    }

    #[test]
    fn large_devices_are_read_at_their_parts() {
        let small = ranges(1 << 20);
        assert!(small.len() == 1 && small[0] == (0..1 << 20), "{small:?}");
        let large = ranges(1 << 40);
        assert_eq!(large.len(), 6);
        assert!(large[2].contains(&(1 << 38)), "{large:?}");
    }
}
