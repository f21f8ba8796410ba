//! Swap space, as mkswap(8) makes it.
//!
//! Source: `union swap_header` of linux/swap.h as an interface; what mkswap 2.38 writes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Result, bail};

use super::layout::Part;

/// Pages of the machines that swap to it.
const PAGE: u64 = 4096;
/// Bytes of a label.
const LABEL_MAX: usize = 15;

/// Makes swap space in a partition.
///
/// # Errors
/// It is too small, or the label too long.
pub fn make(file: &File, part: &Part, label: &str) -> Result<()> {
    let pages = part.bytes / PAGE;
    let Some(last) = u32::try_from(pages).ok().filter(|pages| *pages >= 10) else {
        bail!("{} bytes are too few or too many for swap space", part.bytes);
    };
    if label.len() > LABEL_MAX {
        bail!("label `{label}` has more than {LABEL_MAX} bytes");
    }
    let mut page = vec![0; PAGE as usize];
    let mut set = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    set(1024, &1_u32.to_le_bytes());
    set(1028, &(last - 1).to_le_bytes());
    set(1036, &part.fs_uuid);
    set(1052, label.as_bytes());
    set(PAGE as usize - 10, b"SWAPSPACE2");
    Ok(file.write_all_at(&page, part.offset)?)
}
