//! What campaigns write into files, so that a reader knows every byte.

use base::Ino;
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode};

/// Creates a regular file.
pub fn create(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    let node = NewNode::new(FileType::Regular, 0o644);
    fs.create(cx, dir, name.as_bytes(), &node).unwrap_or_else(|e| panic!("{name}: {e}")).ino
}

/// Creates a directory.
pub fn mkdir(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    let node = NewNode::new(FileType::Directory, 0o755);
    fs.create(cx, dir, name.as_bytes(), &node).unwrap_or_else(|e| panic!("{name}: {e}")).ino
}

/// The bytes of file number `file` at `offset`: what a reader must find wherever a writer wrote.
pub fn pattern(file: u64, offset: u64, bytes: &mut [u8]) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        let at = offset + index as u64;
        let word = (file << 32 ^ (at / 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ file;
        *byte = (word >> (at % 8 * 8)) as u8 | 1;
    }
}
