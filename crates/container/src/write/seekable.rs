//! Seekable zstd: frames of 1 MiB, and a table of them that ordinary readers skip.
//!
//! Source: zstd's contrib/seekable_format/zstd_seekable_compression_format.md (BSD).

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use super::{Disk, refused};

/// Bytes of the disk in one frame.
const FRAME: u64 = 1 << 20;
/// zstd's own default.
const LEVEL: i32 = 3;
/// A frame that readers skip, and the end of the table.
const SKIPPABLE: u32 = 0x184d_2a5e;
const SEEKABLE: u32 = 0x8f92_eab1;
/// Entries have checksums.
const CHECKSUMS: u8 = 1 << 7;

/// Writes the disk.
pub fn write(disk: &Disk, out: &mut File) -> io::Result<()> {
    let frames = disk.bytes.div_ceil(FRAME);
    let Ok(count) = u32::try_from(frames) else {
        return Err(refused("a seekable image has at most 4 PiB"));
    };
    let mut buffered = BufWriter::with_capacity(1 << 20, out.try_clone()?);
    buffered.seek(SeekFrom::Start(0))?;
    let (mut table, mut block) = (Vec::new(), vec![0; FRAME as usize]);
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    for number in 0..frames {
        let start = number * FRAME;
        let len = FRAME.min(disk.bytes - start);
        let block = &mut block[..len as usize];
        match disk.next_data(start)? {
            Some(data) if data < start + len => disk.file.read_exact_at(block, start)?,
            _ => block.fill(0),
        }
        let frame = compressor.compress(block)?;
        buffered.write_all(&frame)?;
        let sum = xxhash_rust::xxh64::xxh64(block, 0) as u32;
        let words = [frame.len() as u32, len as u32, sum];
        words.iter().for_each(|word| table.extend(word.to_le_bytes()));
    }
    let mut head = SKIPPABLE.to_le_bytes().to_vec();
    head.extend((table.len() as u32 + 9).to_le_bytes());
    buffered.write_all(&head)?;
    buffered.write_all(&table)?;
    buffered.write_all(&count.to_le_bytes())?;
    buffered.write_all(&[CHECKSUMS])?;
    buffered.write_all(&SEEKABLE.to_le_bytes())?;
    buffered.flush()
}
