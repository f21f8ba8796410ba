//! Android sparse images, version 1: read through an index of their chunks.
//!
//! Source: the header "sparse_format.h" of the Android Open Source Project (Apache 2.0).

use std::sync::Arc;

use crate::Error;
use crate::bytes::{le16, le32};
use crate::chain::Chain;
use crate::error::Subject;
use crate::image::{Fact, Image};
use crate::kind::Format;
use crate::source::{self, Source};

const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC32: u16 = 0xcac4;
/// Bytes of a chunk's header.
const CHUNK: u64 = 12;

/// What some blocks hold.
#[derive(Clone, Copy)]
enum Content {
    /// Bytes of the file, from here.
    At(u64),
    /// These four bytes again and again.
    Fill([u8; 4]),
}

struct Chunk {
    /// First block of the disk.
    start: u32,
    content: Content,
}

struct Sparse {
    source: Arc<dyn Source>,
    block: u64,
    blocks: u32,
    chunks: Vec<Chunk>,
}

/// Opens an image.
pub(crate) fn open(
    source: Arc<dyn Source>,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    let subject = Subject { name: source.name().to_owned(), format: "Android sparse" };
    let header = source::read_some(&*source, 0, 28)?;
    if header.len() < 28 || le32(&header, 0) != 0xed26_ff3a {
        return Err(subject.damaged("header", format!("no such header ({} bytes)", header.len())));
    }
    let (major, header_len, chunk_len) = (le16(&header, 4), le16(&header, 8), le16(&header, 10));
    if major != 1 {
        let what = format!("version {major}.{}, known is 1.0", le16(&header, 6));
        return Err(subject.unsupported(what, ""));
    }
    let block = u64::from(le32(&header, 12));
    let (blocks, count) = (le32(&header, 16), le32(&header, 20));
    if header_len < 28 || u64::from(chunk_len) < CHUNK {
        let what = format!("headers of {header_len} and {chunk_len} bytes");
        return Err(subject.damaged("header", what));
    }
    if block == 0 || !block.is_multiple_of(4) || block > 64 << 20 {
        return Err(subject.damaged("header", format!("blocks of {block} bytes")));
    }
    if u64::from(count) > source.size() / CHUNK {
        let what = format!("{count} chunks in a file of {} bytes", source.size());
        return Err(subject.damaged("header", what));
    }
    chain.take(&subject, "index of chunks", u64::from(count) * size_of::<Chunk>() as u64)?;
    let mut walk = Walk { at: header_len.into(), block: 0, subject, size: block, blocks };
    let mut chunks = Vec::new();
    for index in 0..count {
        chunks.extend(walk.chunk(&*source, index, chunk_len.into())?);
    }
    if walk.block != blocks {
        let what = format!("{} blocks in chunks, {blocks} in the header", walk.block);
        return Err(walk.subject.damaged("header", what));
    }
    Ok(Arc::new(Sparse { source, block, blocks, chunks }))
}

/// The way over the chunks.
struct Walk {
    /// Byte of the file.
    at: u64,
    /// Block of the disk.
    block: u32,
    subject: Subject,
    size: u64,
    blocks: u32,
}

impl Walk {
    fn chunk(
        &mut self,
        source: &dyn Source,
        index: u32,
        header_len: u64,
    ) -> Result<Option<Chunk>, Error> {
        let place = || format!("chunk {index} at byte {}", self.at);
        let header = source::read_some(source, self.at, CHUNK as usize)?;
        if header.len() < CHUNK as usize {
            return Err(self.subject.damaged(place(), "the file ends before"));
        }
        let (kind, blocks, total) = (le16(&header, 0), le32(&header, 4), le32(&header, 8).into());
        let data = self.at + header_len;
        let len = match kind {
            RAW => u64::from(blocks) * self.size,
            FILL | CRC32 => 4,
            DONT_CARE => 0,
            other => return Err(self.subject.damaged(place(), format!("kind {other:#x}"))),
        };
        if header_len.checked_add(len) != Some(total) || data + len > source.size() {
            let what = format!("{total} bytes for {blocks} blocks of kind {kind:#x}");
            return Err(self.subject.damaged(place(), what));
        }
        let end = self.block.checked_add(blocks).filter(|&end| end <= self.blocks);
        let Some(end) = end.filter(|_| kind != CRC32 || blocks == 0) else {
            let what = format!("{blocks} blocks pass the end of {}", self.blocks);
            return Err(self.subject.damaged(place(), what));
        };
        let content = match kind {
            RAW => Some(Content::At(data)),
            FILL => {
                let mut fill = [0; 4];
                source::read(source, data, &mut fill)?;
                Some(Content::Fill(fill))
            }
            DONT_CARE => Some(Content::Fill([0; 4])),
            _ => None,
        };
        let chunk =
            content.filter(|_| blocks > 0).map(|content| Chunk { start: self.block, content });
        (self.at, self.block) = (self.at + total, end);
        Ok(chunk)
    }
}

impl Image for Sparse {
    fn format(&self) -> &'static str {
        Format::AndroidSparse.name()
    }

    fn size(&self) -> u64 {
        u64::from(self.blocks) * self.block
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let index = self.chunks.partition_point(|c| u64::from(c.start) * self.block <= at) - 1;
            let start = u64::from(self.chunks[index].start) * self.block;
            let next = self.chunks.get(index + 1).map_or(self.blocks, |chunk| chunk.start);
            let left = u64::from(next) * self.block - at;
            let len = (left as usize).min(buf.len() - done);
            let part = &mut buf[done..done + len];
            match self.chunks[index].content {
                Content::At(from) => source::read(&*self.source, from + (at - start), part)?,
                Content::Fill(fill) => {
                    for (index, byte) in part.iter_mut().enumerate() {
                        *byte = fill[(at as usize + index) % 4];
                    }
                }
            }
            done += len;
        }
        Ok(())
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        Ok(vec![("block_size", self.block.into()), ("chunks", (self.chunks.len() as u64).into())])
    }

    fn threads(&self) -> usize {
        self.source.threads()
    }
}
