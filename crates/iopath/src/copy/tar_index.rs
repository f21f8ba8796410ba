//! Where the members of an archive lie, for archives that hold files which are looked up by name.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use anyhow::{Context, Result, bail};

use super::tar_sink::BLOCK;
use super::tar_source::{Raw, parse_records};

/// Members that are remembered.
const MEMBERS_MAX: usize = 1 << 17;
/// Longest set of pax records that is read, bytes.
const RECORDS_MAX: u64 = 1 << 20;

/// A member of an archive.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name as it is written.
    pub path: Vec<u8>,
    /// Its content, as a range of bytes of the archive: where it begins.
    pub offset: u64,
    /// Bytes of it.
    pub size: u64,
    /// Where a symlink leads; empty for others.
    pub target: Vec<u8>,
}

/// The members of an archive that is a plain file.
///
/// # Errors
/// It is no archive, it ends too early, or has too many members.
pub fn members(file: File) -> Result<Vec<Member>> {
    let end = file.metadata()?.len();
    let mut file = BufReader::with_capacity(16 << 10, file);
    let (mut members, mut at) = (Vec::new(), 0);
    let mut name = None;
    while at + BLOCK as u64 <= end {
        let mut block = [0; BLOCK];
        file.read_exact(&mut block)?;
        if block.iter().all(|&b| b == 0) {
            break;
        }
        let raw = Raw::parse(&block).with_context(|| format!("byte {at} of the archive"))?;
        let offset = at + BLOCK as u64;
        let size = raw.size.checked_next_multiple_of(BLOCK as u64);
        at = size.and_then(|size| offset.checked_add(size)).context("a member without an end")?;
        if matches!(raw.kind, b'x' | b'L') && raw.size <= RECORDS_MAX {
            let mut text = vec![0; raw.size as usize];
            file.read_exact(&mut text)?;
            name = match raw.kind {
                b'x' => parse_records(&text)?.remove(&b"path"[..]),
                _ => Some(text.split(|&b| b == 0).next().unwrap_or_default().to_vec()),
            };
        } else if !matches!(raw.kind, b'x' | b'L' | b'K' | b'g') {
            let target = if raw.kind == b'2' { raw.target } else { Vec::new() };
            let path = name.take().unwrap_or(raw.path);
            members.push(Member { path, offset, size: raw.size, target });
            if members.len() > MEMBERS_MAX {
                bail!("more than {MEMBERS_MAX} members");
            }
        }
        file.seek(SeekFrom::Start(at))?;
    }
    Ok(members)
}
