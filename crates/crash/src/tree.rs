//! The identity of a recovered tree: what a program that looks at it can see.

use base::map::HashMap;
use base::page::is_zero;
use base::{Errno, Ino};
use rt::Cx;
use vfs::walk::{descend, next_data};
use vfs::{FileSystem, FileType};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read at once.
const PART: usize = 64 << 10;

/// A hash of names, types, modes, links, targets and contents; times, inode numbers and where holes
/// are do not count. Parks.
///
/// # Errors
/// What could not be read.
pub fn tree_hash(cx: &mut Cx, fs: &dyn FileSystem) -> Result<u128, String> {
    let mut hash = Xxh3::new();
    let root = fs.getattr(cx, fs.root()).map_err(|errno| format!("/: {errno}"))?;
    hash.update(&root.mode.to_le_bytes());
    let mut folders = vec![(Vec::new(), root.ino)];
    // Inodes of several names, by the first one.
    let mut links = HashMap::default();
    while let Some((path, dir)) = folders.pop() {
        let failed = |path: &[u8]| {
            let path = String::from_utf8_lossy(path).into_owned();
            move |errno: Errno| format!("{path}: {errno}")
        };
        let mut names = names(cx, fs, dir).map_err(failed(&path))?;
        names.sort();
        for name in names {
            let mut child = path.clone();
            descend(&mut child, &name);
            let attr = fs.lookup(cx, dir, &name).map_err(failed(&child))?;
            hash.update(&child);
            hash.update(&[0, attr.kind as u8]);
            hash.update(&attr.mode.to_le_bytes());
            hash.update(&attr.nlink.to_le_bytes());
            hash.update(&attr.size.to_le_bytes());
            if attr.kind != FileType::Directory && attr.nlink > 1 {
                let number = links.len() as u64;
                let first = *links.entry(attr.ino).or_insert(number);
                hash.update(&first.to_le_bytes());
                if first != number {
                    continue;
                }
            }
            match attr.kind {
                FileType::Directory => folders.push((child, attr.ino)),
                FileType::Regular => {
                    content(cx, fs, attr.ino, &mut hash).map_err(failed(&child))?;
                }
                FileType::Symlink => {
                    hash.update(&fs.readlink(cx, attr.ino).map_err(failed(&child))?);
                }
                _ => {}
            }
        }
    }
    Ok(hash.digest128())
}

/// The names of a directory but `.` and `..`. Parks.
pub(crate) fn names(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    Ok(names)
}

fn content(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino, hash: &mut Xxh3) -> Result<(), Errno> {
    let mut at = 0;
    let mut bytes = vec![0; PART];
    while let Some(data) = next_data(cx, fs, ino, at)? {
        // What is zero has the same hash as a hole: parts begin at the same places.
        at = at.max(data.start - data.start % PART as u64);
        while at < data.end {
            let read = fs.read(cx, ino, at, &mut bytes)?;
            if read == 0 {
                return Ok(());
            }
            if !is_zero(&bytes[..read]) {
                hash.update(&at.to_le_bytes());
                hash.update(&bytes[..read]);
            }
            at += read as u64;
        }
    }
    Ok(())
}
