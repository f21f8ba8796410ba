//! Where the members of an archive lie, for archives that hold files which are looked up by name.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use anyhow::{Context, Result};

use super::tar_sink::BLOCK;
use super::tar_source::{Raw, parse_records};

/// Members of an archive that holds layers: a few for each.
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

/// The members of an archive that is a plain file; none where there are more than an archive of
/// layers has.
///
/// # Errors
/// It is no archive, or it ends too early.
pub fn members(file: File) -> Result<Option<Vec<Member>>> {
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
                return Ok(None);
            }
        }
        file.seek(SeekFrom::Start(at))?;
    }
    Ok(Some(members))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Goal: a tree of any size is an archive. Method: one member more than are remembered.
    #[test]
    fn an_archive_of_many_members_holds_no_layers() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut header = [0; BLOCK];
        header[..4].copy_from_slice(b"name");
        header[124..135].fill(b'0');
        header[148..157].copy_from_slice(b"        0");
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        file.write_all(&header.repeat(MEMBERS_MAX)).expect("written");
        let open = |file: &File| {
            let mut file = file.try_clone().expect("open");
            file.rewind().expect("a file");
            members(file).expect("an archive").map(|members| members.len())
        };
        assert_eq!(open(&file), Some(MEMBERS_MAX));
        file.seek(SeekFrom::End(0)).expect("its end");
        file.write_all(&header).expect("written");
        assert_eq!(open(&file), None);
    }
}
