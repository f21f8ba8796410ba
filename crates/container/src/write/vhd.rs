//! VHD, fixed: the disk, and a footer of 512 bytes. Azure takes only such, of whole MiB.
//!
//! Source: Microsoft's "Virtual Hard Disk Image Format Specification", version 1.0.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Disk, LOOK, put, refused};

/// Sizes are multiples of this, for Azure.
const STEP: u64 = 1 << 20;
/// The largest disk, bytes.
const MAX: u64 = 2040 << 30;

/// Writes the disk; zeros behind its end fill the last MiB.
pub fn write(disk: &Disk, identity: [u8; 16], out: &mut File) -> io::Result<()> {
    let bytes = disk.bytes.next_multiple_of(STEP);
    if bytes > MAX {
        return Err(refused("a VHD has at most 2040 GiB"));
    }
    out.set_len(bytes + 512)?;
    disk.each(LOOK, |number, block| out.write_all_at(block, number * LOOK))?;
    put(out, bytes, &footer(bytes, identity))
}

fn footer(bytes: u64, identity: [u8; 16]) -> [u8; 512] {
    let mut footer = [0; 512];
    let mut set = |at: usize, bytes: &[u8]| footer[at..at + bytes.len()].copy_from_slice(bytes);
    set(0, b"conectix");
    // A reserved bit that is always set; version 1.0; no table behind it.
    set(8, &2_u32.to_be_bytes());
    set(12, &0x0001_0000_u32.to_be_bytes());
    set(16, &u64::MAX.to_be_bytes());
    // Readers take the size from its field, not from the geometry, where this is the creator.
    set(28, b"win ");
    set(32, &0x0006_0001_u32.to_be_bytes());
    set(36, b"Wi2k");
    set(40, &bytes.to_be_bytes());
    set(48, &bytes.to_be_bytes());
    set(56, &geometry(bytes / 512));
    // Fixed.
    set(60, &2_u32.to_be_bytes());
    set(68, &identity);
    let sum: u32 = footer.iter().map(|&b| u32::from(b)).sum();
    footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
    footer
}

/// Cylinders, heads and sectors, by the rule of the specification's appendix.
fn geometry(sectors: u64) -> [u8; 4] {
    let total = sectors.min(65535 * 16 * 255);
    let (mut track, mut heads, mut cylinders_heads);
    if total >= 65535 * 16 * 63 {
        (track, heads) = (255, 16);
        cylinders_heads = total / track;
    } else {
        track = 17;
        cylinders_heads = total / track;
        heads = cylinders_heads.div_ceil(1024).max(4);
        if cylinders_heads >= heads * 1024 || heads > 16 {
            (track, heads) = (31, 16);
            cylinders_heads = total / track;
        }
        if cylinders_heads >= heads * 1024 {
            (track, heads) = (63, 16);
            cylinders_heads = total / track;
        }
    }
    let cylinders = (cylinders_heads / heads) as u16;
    [(cylinders >> 8) as u8, cylinders as u8, heads as u8, track as u8]
}
