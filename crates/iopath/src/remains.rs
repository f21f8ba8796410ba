//! What is left of a file system or of a partition table if the start of a device is gone:
//! copies of superblocks, logs, the second copy of a GPT.

use std::sync::Arc;

use anyhow::{Context, Result};
use block::{Device, Queue};
use rt::Cx;

use crate::scan::{Family, FileSystem, Scanner};
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
    let mut scanner = Scanner::default();
    for range in ranges(queue.info().bytes()) {
        scanner.read(cx, queue, range, |_| ()).with_context(|| target.to_string())?;
    }
    let mut remains = remains(&scanner, queue.info().bytes(), target);
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

/// What a scanner found, in words.
fn remains(scanner: &Scanner, bytes: u64, target: &Target) -> Vec<Remain> {
    let mut remains = Vec::new();
    let found = scanner.file_systems(bytes);
    for family in [Family::Ext, Family::Xfs] {
        let of_it = found.iter().filter(|found| found.shape.family == family);
        let most = of_it.max_by_key(|found| (found.found.len(), std::cmp::Reverse(found.start)));
        remains.extend(most.map(|found| remain(found, target)));
    }
    let is = |family| found.iter().any(|found| found.shape.family == family);
    for trace in scanner.traces.values().filter(|trace| !is(trace.family)) {
        let how = "no copy of its superblock was found".into();
        remains.push(Remain { what: trace.to_string(), how });
    }
    remains
}

/// The first copy of a superblock of a file system, and how to read it.
fn remain(found: &FileSystem, target: &Target) -> Remain {
    let label = match &found.label[..] {
        [] => String::new(),
        label => format!(" `{}`", text::printable(label)),
    };
    let count = match found.found.len() {
        1 => String::new(),
        count => format!(", one of {count} that were found"),
    };
    let name = found.shape.family.name();
    let Some((&group, &at)) = found.found.first_key_value() else {
        let at = found.in_journal.expect("it was found by one");
        return Remain {
            what: format!("the superblock of {name}{label} in a journal, at byte {at}"),
            how: format!(
                "read what is left with `iopath --rescue ls {target}`; restore it with `iopath \
                 repair {target}`, which can be undone"
            ),
        };
    };
    let how = match found.shape.family {
        _ if found.start > 0 => {
            format!("read it with `iopath --rescue --offset {} ls {target}`", found.start)
        }
        Family::Ext => {
            let (block, size) =
                ((at - found.start) / found.shape.block_size, found.shape.block_size);
            format!(
                "read it with `iopath --rescue ls {target}`; restore it with `iopath repair \
                 {target}`, which can be undone, or, in a copy of this, with `e2fsck -b {block} -B \
                 {size}`"
            )
        }
        Family::Xfs => format!(
            "read it with `iopath --rescue ls {target}`; restore it with `iopath repair {target}`, \
             which can be undone, or, in a copy of this, with `xfs_repair`"
        ),
    };
    let what =
        format!("a copy of a superblock of {name}{label} at byte {at}, of group {group}{count}");
    Remain { what, how }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_devices_are_read_at_their_parts() {
        let small = ranges(1 << 20);
        assert!(small.len() == 1 && small[0] == (0..1 << 20), "{small:?}");
        let large = ranges(1 << 40);
        assert_eq!(large.len(), 6);
        assert!(large[2].contains(&(1 << 38)), "{large:?}");
    }
}
