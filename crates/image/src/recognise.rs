//! Recognises what is on a device by the magic numbers at its start.

use std::sync::Arc;

use base::Sector;
use block::{DeviceError, Queue};
use rt::Cx;

/// The content of an image or device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// ext2, ext3 or ext4.
    Ext(&'static str),
    /// XFS.
    Xfs,
    /// Something else with a name and a hint what to do.
    Other(&'static str, &'static str),
    /// A partition table (`GPT`, `MBR`).
    Partitioned(&'static str),
    /// Nothing but zeros where a file system would be.
    Blank,
    /// None of the known magic numbers.
    Unknown,
}

/// Bytes from the start of a device that recognition looks at.
pub const PROBE: usize = 72 << 10;

const LATER: &str = "iopath knows ext2, ext3, ext4 and XFS only";
const CONVERT: &str = "convert it first: qemu-img convert -O raw IMAGE disk.img";
const UNPACK: &str = "unpack it first";

/// The device of an external journal of ext3 or ext4.
pub const EXT_JOURNAL: Content = Content::Other(
    "an external journal of ext3 or ext4",
    "give the device of its file system, and this one with `-o journal_path=`",
);

/// Offset, magic, name, hint.
const MAGICS: &[(usize, &[u8], &str, &str)] = &[
    (0x10040, b"_BHRfS_M", "Btrfs", LATER),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "F2FS", LATER),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "EROFS", LATER),
    (0, b"hsqs", "SquashFS", LATER),
    (3, b"NTFS    ", "NTFS", LATER),
    (3, b"EXFAT   ", "exFAT", LATER),
    (82, b"FAT32   ", "FAT32", LATER),
    (54, b"FAT16   ", "FAT16", LATER),
    (54, b"FAT12   ", "FAT12", LATER),
    (32769, b"CD001", "ISO 9660", LATER),
    (65588, b"ReIsEr", "ReiserFS", LATER),
    (4086, b"SWAPSPACE2", "swap space", LATER),
    (0, b"LUKS\xba\xbe", "a LUKS volume", "open it with cryptsetup and give the mapped device"),
    (536, b"LVM2 001", "an LVM volume", "activate it with vgchange and give the logical volume"),
    (0, b"QFI\xfb", "a QCOW2 image", CONVERT),
    (0, b"KDMV", "a VMDK image", CONVERT),
    (0, b"vhdxfile", "a VHDX image", CONVERT),
    (0, b"conectix", "a VHD image", CONVERT),
    (64, &[0x7f, 0x10, 0xda, 0xbe], "a VDI image", CONVERT),
    (0, &[0x1f, 0x8b], "gzip data", UNPACK),
    (0, &[0xfd, b'7', b'z', b'X', b'Z', 0], "xz data", UNPACK),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "zstd data", UNPACK),
    (257, b"ustar", "a tar archive", "copy it with `iopath cp FILE.tar: IMAGE:/`"),
    (0, b"\x7fELF", "a program", "give an image file or a block device"),
];

/// Reads from the start of a device: up to `len` bytes, a multiple of 4096. May park.
///
/// # Errors
/// The device failed.
pub fn read_start(cx: &mut Cx, queue: &Arc<Queue>, len: usize) -> Result<Vec<u8>, DeviceError> {
    let len = (len as u64).min(queue.info().bytes()) as usize;
    let mut start = Vec::with_capacity(len);
    while start.len() < len {
        let part = (len - start.len()).min(64 << 10);
        start.extend_from_slice(&queue.read(cx, Sector::from_bytes(start.len() as u64), part)?);
    }
    Ok(start)
}

/// Recognises the content by its first bytes ([`PROBE`] of them, or all).
pub fn recognise(start: &[u8]) -> Content {
    let at = |offset: usize, magic: &[u8]| {
        start.get(offset..offset + magic.len()).is_some_and(|bytes| bytes == magic)
    };
    if at(1024 + 56, &[0x53, 0xef]) {
        // Feature `journal_dev`.
        if start.get(1024 + 96).is_some_and(|byte| byte & 8 != 0) {
            return EXT_JOURNAL;
        }
        return Content::Ext(ext_generation(start));
    }
    if at(0, b"XFSB") {
        return Content::Xfs;
    }
    for (offset, magic, name, hint) in MAGICS {
        if at(*offset, magic) {
            return Content::Other(name, hint);
        }
    }
    if at(512, b"EFI PART") || at(4096, b"EFI PART") {
        return Content::Partitioned("GPT");
    }
    // The only partition of this type says that there is a GPT.
    if at(510, &[0x55, 0xaa]) && at(450, &[0xee]) {
        return Content::Partitioned("GPT");
    }
    if at(510, &[0x55, 0xaa]) {
        return Content::Partitioned("MBR");
    }
    if start.iter().all(|&b| b == 0) { Content::Blank } else { Content::Unknown }
}

/// What is wrong with the first copy of a GPT, in these first bytes of a device.
pub fn gpt_damage(start: &[u8]) -> Option<&'static str> {
    let block = [512usize, 4096].into_iter().find(|&at| start.get(at..at + 8) == Some(b"EFI PART"));
    let Some(block) = block else { return Some("has no signature") };
    let header = &start[block..];
    let word = |at: usize| {
        let bytes = header.get(at..at + 4);
        bytes.map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    let size = word(12) as usize;
    let Some(summed) = header.get(..size).filter(|_| (92..=block).contains(&size)) else {
        return Some("has a wrong size");
    };
    let mut summed = summed.to_vec();
    summed[16..20].fill(0);
    if crc32fast::hash(&summed) != word(16) {
        return Some("has a wrong checksum");
    }
    let len = (word(80) as usize).checked_mul(word(84) as usize)?;
    let from = (word(72) as usize).checked_mul(block)?;
    let entries = start.get(from..from.checked_add(len)?)?;
    (crc32fast::hash(entries) != word(88)).then_some("has entries with a wrong checksum")
}

/// ext4 has extents, 64bit, flex_bg or checksums; ext3 a journal; ext2 neither.
fn ext_generation(start: &[u8]) -> &'static str {
    let word = |offset: usize| {
        let bytes = start.get(1024 + offset..1024 + offset + 4);
        bytes.map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    let (compat, incompat, ro_compat) = (word(92), word(96), word(100));
    const EXT4_INCOMPAT: u32 = 0x40 | 0x80 | 0x200 | 0x400 | 0x2000;
    const EXT4_RO_COMPAT: u32 = 0x8 | 0x10 | 0x20 | 0x40 | 0x400;
    if incompat & EXT4_INCOMPAT != 0 || ro_compat & EXT4_RO_COMPAT != 0 {
        "ext4"
    } else if compat & 4 != 0 {
        "ext3"
    } else {
        "ext2"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(offset: usize, magic: &[u8]) -> Vec<u8> {
        let mut start = vec![0; PROBE];
        start[offset..offset + magic.len()].copy_from_slice(magic);
        start
    }

    #[test]
    fn content_is_recognised_by_its_magic_number() {
        assert_eq!(recognise(&with(1080, &[0x53, 0xef])), Content::Ext("ext2"));
        let mut journal = with(1080, &[0x53, 0xef]);
        journal[1024 + 96] = 8;
        assert_eq!(recognise(&journal), EXT_JOURNAL);
        assert_eq!(recognise(&with(0, b"XFSB")), Content::Xfs);
        assert_eq!(recognise(&with(510, &[0x55, 0xaa])), Content::Partitioned("MBR"));
        assert_eq!(recognise(&vec![0; PROBE]), Content::Blank);
        assert_eq!(recognise(b"short"), Content::Unknown);
        for (offset, magic, name, hint) in MAGICS {
            assert_eq!(recognise(&with(*offset, magic)), Content::Other(name, hint));
        }
    }

    #[test]
    fn features_say_which_generation_of_ext() {
        let mut start = with(1080, &[0x53, 0xef]);
        start[1024 + 92] = 4;
        assert_eq!(recognise(&start), Content::Ext("ext3"));
        start[1024 + 96] = 0x40;
        assert_eq!(recognise(&start), Content::Ext("ext4"));
    }
}
