//! Decompression into a known number of bytes.

use std::io::Read;

use flate2::{Decompress, FlushDecompress};

/// Exactly `wanted` bytes out of a raw deflate stream; what follows it does not matter.
pub(crate) fn inflate(packed: &[u8], wanted: usize) -> Result<Vec<u8>, String> {
    run(Decompress::new(false), packed, wanted)
}

/// The same out of a zlib stream.
pub(crate) fn inflate_zlib(packed: &[u8], wanted: usize) -> Result<Vec<u8>, String> {
    run(Decompress::new(true), packed, wanted)
}

fn run(mut stream: Decompress, packed: &[u8], wanted: usize) -> Result<Vec<u8>, String> {
    let mut out = vec![0; wanted];
    let result = stream.decompress(packed, &mut out, FlushDecompress::Finish);
    let got = stream.total_out();
    match result {
        Ok(_) if got == wanted as u64 => Ok(out),
        Ok(_) => Err(format!("{got} bytes of {wanted} come out of its compressed data")),
        Err(error) => Err(format!("its compressed data: {error}")),
    }
}

/// Exactly `wanted` bytes out of frames of zstd; what follows them does not matter.
pub(crate) fn unzstd(packed: &[u8], wanted: usize) -> Result<Vec<u8>, String> {
    let mut out = vec![0; wanted];
    let decoder = zstd::Decoder::with_buffer(packed);
    let read = decoder.and_then(|mut decoder| {
        // 128 MiB of window at most; images are written with 8 MiB and less.
        decoder.window_log_max(27)?;
        decoder.read_exact(&mut out)
    });
    match read {
        Ok(()) => Ok(out),
        Err(error) => Err(format!("its compressed data: {error}")),
    }
}
