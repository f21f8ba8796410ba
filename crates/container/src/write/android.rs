//! Android sparse, version 1: chunks of data, of one word repeated, and of what is not written.
//!
//! Source: the comments of libsparse's sparse_format.h (Apache-2.0).

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use super::{Disk, refused};

const BLOCK: u64 = 4096;
const MAGIC: u32 = 0xed26_ff3a;
const RAW: u16 = 0xcac1;
const SKIPPED: u16 = 0xcac3;
/// Blocks of one chunk of data: its length in bytes has 32 bits.
const CHUNK_BLOCKS: u64 = 1 << 16;

/// A run of blocks.
#[derive(Clone, Copy)]
struct Chunk {
    data: bool,
    blocks: u64,
}

/// Writes the disk.
pub fn write(disk: &Disk, out: &mut File) -> io::Result<()> {
    if !disk.bytes.is_multiple_of(BLOCK) {
        return Err(refused("an Android sparse image has whole blocks of 4096 bytes"));
    }
    let total = disk.bytes / BLOCK;
    if u32::try_from(total).is_err() {
        return Err(refused("an Android sparse image has at most 16 TiB"));
    }
    let chunks = chunks(disk, total)?;
    let mut buffered = BufWriter::with_capacity(1 << 20, out.try_clone()?);
    buffered.seek(SeekFrom::Start(0))?;
    let mut header = Vec::new();
    header.extend(MAGIC.to_le_bytes());
    [1_u16, 0, 28, 12].iter().for_each(|half| header.extend(half.to_le_bytes()));
    let words = [BLOCK as u32, total as u32, chunks.len() as u32, 0];
    words.iter().for_each(|word| header.extend(word.to_le_bytes()));
    buffered.write_all(&header)?;
    let (mut next, mut left) = (chunks.iter(), 0);
    let mut begin = |out: &mut BufWriter<File>| -> io::Result<u64> {
        for chunk in next.by_ref() {
            out.write_all(&chunk_header(*chunk))?;
            if chunk.data {
                return Ok(chunk.blocks);
            }
        }
        Ok(0)
    };
    disk.each(BLOCK, |_, block| {
        if left == 0 {
            left = begin(&mut buffered)?;
        }
        left -= 1;
        buffered.write_all(block)
    })?;
    // What is skipped at the end.
    begin(&mut buffered)?;
    buffered.flush()
}

fn chunk_header(chunk: Chunk) -> [u8; 12] {
    let kind = if chunk.data { RAW } else { SKIPPED };
    let bytes = 12 + if chunk.data { chunk.blocks * BLOCK } else { 0 };
    let mut header = [0; 12];
    header[..2].copy_from_slice(&kind.to_le_bytes());
    header[4..8].copy_from_slice(&(chunk.blocks as u32).to_le_bytes());
    header[8..].copy_from_slice(&(bytes as u32).to_le_bytes());
    header
}

/// The runs of the disk: blocks of data, and blocks of zeros.
fn chunks(disk: &Disk, total: u64) -> io::Result<Vec<Chunk>> {
    let (mut chunks, mut end) = (Vec::<Chunk>::new(), 0);
    disk.each(BLOCK, |number, _| {
        if number > end {
            chunks.push(Chunk { data: false, blocks: number - end });
        }
        end = number + 1;
        match chunks.last_mut() {
            Some(last) if last.data && last.blocks < CHUNK_BLOCKS => last.blocks += 1,
            _ => chunks.push(Chunk { data: true, blocks: 1 }),
        }
        Ok(())
    })?;
    if end < total {
        chunks.push(Chunk { data: false, blocks: total - end });
    }
    Ok(chunks)
}
