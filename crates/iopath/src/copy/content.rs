//! The content of a regular file, put into the outbox piece by piece, holes left out.

use std::ops::Range;

use anyhow::Result;
use rt::Cx;

use super::{Event, Outbox, PIECE};

/// Most stretches of data of one file that are listed.
const STRETCHES_MAX: usize = 1 << 16;
/// Bytes that are asked for of a file whose size nobody knows.
const STREAMED: usize = 64 << 10;

/// A regular file as a source sees it. Errors name the file.
pub trait Content {
    /// The first stretch of data at or after `offset`, for a file that may have holes; `None` where
    /// none follows.
    ///
    /// # Errors
    /// The file cannot be asked.
    fn next_data(&mut self, cx: &mut Cx, offset: u64) -> Result<Option<Range<u64>>>;

    /// Reads from `offset` on; 0 at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&mut self, cx: &mut Cx, offset: u64, buf: &mut [u8]) -> Result<usize>;
}

/// Puts the content of a file of `size` bytes into the outbox; where it has become shorter
/// meanwhile, what is there. With `sparse` it is asked for its holes.
///
/// # Errors
/// Those of the file; the sink has stopped.
pub fn carry(
    cx: &mut Cx,
    content: &mut impl Content,
    size: u64,
    sparse: bool,
    out: &mut Outbox,
) -> Result<()> {
    let stretches = match sparse {
        true => outline(cx, content, size, out)?,
        false => Some(0..size).into_iter().collect(),
    };
    for Range { start: mut offset, end } in stretches {
        while offset < end {
            let want = (end - offset).min(PIECE as u64) as usize;
            let data = out.store_with(want, |buf| content.read(cx, offset, buf))?;
            if data.is_empty() {
                return Ok(());
            }
            let len = data.len() as u64;
            out.push(Event::Data { offset, data });
            offset += len;
            out.breathe(cx)?;
        }
    }
    Ok(())
}

/// Puts into the outbox where a file of `size` bytes has data, and answers it.
///
/// # Errors
/// Those of the file.
pub fn outline(
    cx: &mut Cx,
    content: &mut impl Content,
    size: u64,
    out: &mut Outbox,
) -> Result<Vec<Range<u64>>> {
    let stretches = stretches(cx, content, size)?;
    push_stretches(&stretches, out);
    Ok(stretches)
}

/// Puts into the outbox where the file just named has data.
pub fn push_stretches(stretches: &[Range<u64>], out: &mut Outbox) {
    let pairs: Vec<u8> = stretches
        .iter()
        .flat_map(|data| [data.start, data.end - data.start])
        .flat_map(u64::to_le_bytes)
        .collect();
    let pairs = out.store(&pairs);
    out.push(Event::Stretches(pairs));
}

/// The stretches of an event that [`push_stretches`] made.
pub fn read_stretches(pairs: &[u8]) -> Vec<Range<u64>> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
    let pair = |pair: &[u8]| {
        let start = number(&pair[..8]);
        start..start + number(&pair[8..])
    };
    pairs.chunks_exact(16).map(pair).collect()
}

/// Puts all that can be read of a file into the outbox, whose size nobody knows.
///
/// # Errors
/// Those of the file; the sink has stopped.
pub fn stream(cx: &mut Cx, content: &mut impl Content, out: &mut Outbox) -> Result<()> {
    let mut offset = 0;
    loop {
        let data = out.store_with(STREAMED, |buf| content.read(cx, offset, buf))?;
        if data.is_empty() {
            return Ok(());
        }
        let len = data.len() as u64;
        out.push(Event::Data { offset, data });
        offset += len;
        out.breathe(cx)?;
    }
}

/// Where a file has data. One with too many holes to be remembered counts as one without.
fn stretches(cx: &mut Cx, content: &mut impl Content, size: u64) -> Result<Vec<Range<u64>>> {
    let (mut found, mut offset) = (Vec::new(), 0);
    while offset < size {
        let Some(data) = content.next_data(cx, offset)? else { break };
        let data = data.start..data.end.min(size);
        offset = data.end;
        if !data.is_empty() {
            found.push(data);
        }
        if found.len() > STRETCHES_MAX {
            return Ok(Vec::from([Range { start: 0, end: size }]));
        }
    }
    Ok(found)
}
