//! Archives that are compressed: recognised by their first bytes, and unpacked on the way.

use std::io::{BufRead, BufReader, Read};

use anyhow::{Result, bail};

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;
/// Memory that an archive of xz may ask for, KiB.
const XZ_KIB_MAX: u32 = 256 << 10;

/// What `input` holds, unpacked if it is gzip, zstd or xz.
///
/// # Errors
/// It cannot be read, or it is compressed in another way.
pub fn unpacked(input: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let start = input.fill_buf()?;
    let is = |magic: &[u8]| start.starts_with(magic);
    Ok(match () {
        () if is(&[0x1f, 0x8b]) => {
            Box::new(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(input)))
        }
        () if is(&[0x28, 0xb5, 0x2f, 0xfd]) => {
            let decoder = zstd::stream::read::Decoder::with_buffer(input)?;
            Box::new(BufReader::with_capacity(BUFFER, decoder))
        }
        () if is(b"\xfd7zXZ\0") => {
            let decoder = lzma_rust2::XzReader::new_mem_limit(input, true, XZ_KIB_MAX);
            Box::new(BufReader::with_capacity(BUFFER, decoder))
        }
        () if is(b"BZh") => bail!("bzip2 is not unpacked here; pipe it through bzcat"),
        () if is(b"LZIP") => bail!("lzip is not unpacked here; pipe it through lzip -dc"),
        () => Box::new(input),
    })
}
