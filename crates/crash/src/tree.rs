//! The identity of a recovered tree: what a program that looks at it can see.

use base::Ino;
use rt::Cx;
use vfs::{FileSystem, FileType};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read at once.
const PART: usize = 64 << 10;

/// A hash of names, types, modes, link counts, targets and contents; times and inode numbers do not
/// count. Parks.
///
/// # Errors
/// What could not be read.
pub fn tree_hash(cx: &mut Cx, fs: &dyn FileSystem) -> Result<u128, String> {
    let mut hash = Xxh3::new();
    let mut folders = vec![(String::new(), fs.root())];
    while let Some((path, dir)) = folders.pop() {
        let mut names = Vec::new();
        let listed = fs.readdir(cx, dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        });
        listed.map_err(|errno| format!("{path}: {errno}"))?;
        names.sort();
        for name in names {
            let child = format!("{path}/{}", String::from_utf8_lossy(&name));
            let attr = fs.lookup(cx, dir, &name).map_err(|errno| format!("{child}: {errno}"))?;
            hash.update(child.as_bytes());
            hash.update(&[0, attr.kind as u8]);
            hash.update(&attr.mode.to_le_bytes());
            hash.update(&attr.nlink.to_le_bytes());
            hash.update(&attr.size.to_le_bytes());
            match attr.kind {
                FileType::Directory => folders.push((child, attr.ino)),
                FileType::Regular => content(cx, fs, attr.ino, &mut hash)
                    .map_err(|errno| format!("{child}: {errno}"))?,
                FileType::Symlink => {
                    let target = fs.readlink(cx, attr.ino);
                    hash.update(&target.map_err(|errno| format!("{child}: {errno}"))?);
                }
                _ => {}
            }
        }
    }
    Ok(hash.digest128())
}

fn content(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino, hash: &mut Xxh3) -> Result<(), base::Errno> {
    let mut bytes = vec![0; PART];
    let mut at = 0;
    loop {
        let read = fs.read(cx, ino, at, &mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        hash.update(&bytes[..read]);
        at += read as u64;
    }
}
