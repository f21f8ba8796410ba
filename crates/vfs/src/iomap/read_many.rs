//! Many small files read at once: their blocks lie side by side where they were written side by
//! side, and come with a few large requests, past the page cache.
//!
//! A file takes part while nothing in memory is newer than the device
//! ([`IomapFile::only_on_device`]). Its lock is held, shared, from that look until the device has
//! answered. All others are read as usual.

use std::sync::Arc;

use base::{Errno, Sector};
use block::Queue;
use cache::Intent;
use rt::Cx;

use super::IomapFile;
use crate::FileRead;
use crate::gather::{Gather, PIECE_MAX};

/// Where a part of a file goes in the buffer of a read.
struct ReadPlace {
    read: usize,
    at: usize,
}

/// Carries out `reads` of `files`, one of each for one of the other, whose blocks lie behind
/// `queue`: see [`FileSystem::read_many`](crate::FileSystem::read_many). A file that could not be
/// had gives its error to its read. May park.
pub fn read_many<F: IomapFile>(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    files: &[Result<F, Errno>],
    reads: &mut [FileRead<'_>],
) {
    let (mut guards, mut gather) = (Vec::with_capacity(reads.len()), Gather::new());
    let (mut places, mut usual) = (Vec::new(), Vec::new());
    for (index, (read, file)) in reads.iter_mut().zip(files).enumerate() {
        let file = match file {
            Ok(file) => file,
            Err(errno) => {
                read.done = Err(*errno);
                continue;
            }
        };
        // Whoever holds it for writing may wait for others of ours.
        let guard = file.parts().rwsem.try_read();
        let planned = guard.is_some() && file.only_on_device(cx);
        match planned.then(|| plan_read(cx, file, read)) {
            Some(Ok(parts)) => {
                for (sector, len, at) in parts {
                    gather.add(sector, len, places.len());
                    places.push(ReadPlace { read: index, at });
                }
                guards.push(guard);
            }
            _ => usual.push(index),
        }
    }
    let failed = gather.read(cx, queue, |tag, bytes| {
        let place: &ReadPlace = &places[tag];
        reads[place.read].buf[place.at..place.at + bytes.len()].copy_from_slice(bytes);
    });
    drop(guards);
    // What the device refused in company is asked for alone, and gets its own error.
    usual.extend(failed.iter().map(|&tag| places[tag].read));
    usual.dedup();
    for index in usual {
        if let (read, Ok(file)) = (&mut reads[index], &files[index]) {
            read.done = super::read(cx, file, read.offset, read.buf);
        }
    }
}

/// Sets the answer of a read, clears what is a hole of it, and returns its parts on the device with
/// their lengths and their places in the buffer.
///
/// # Errors
/// Those of the map; `EINVAL` where the read does not begin with a block or is large.
fn plan_read(
    cx: &mut Cx,
    file: &impl IomapFile,
    read: &mut FileRead<'_>,
) -> Result<Vec<(Sector, u64, usize)>, Errno> {
    let block = u64::from(file.parts().block_size);
    let len = file.state(cx).size.saturating_sub(read.offset).min(read.buf.len() as u64);
    if len > PIECE_MAX || !read.offset.is_multiple_of(block) {
        return Err(Errno::EINVAL);
    }
    let end = read.offset + len;
    let mut iter = file.walk(Intent::Read, read.offset..end);
    let (mut parts, mut at) = (Vec::with_capacity(1), read.offset);
    while at < end {
        let part = iter.begin(cx, at..end.next_multiple_of(block))?;
        let (here, place) = (part.end().min(end) - at, (at - read.offset) as usize);
        match part.content() {
            Some(sector) => parts.push((sector, here, place)),
            None => read.buf[place..place + here as usize].fill(0),
        }
        at += here;
    }
    read.done = Ok(len as usize);
    Ok(parts)
}
