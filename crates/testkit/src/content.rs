//! What campaigns write into files, so that a reader knows every byte.

use std::sync::Arc;

use base::{Ino, Nanos};
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, SeekWhence, SetAttr};

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

/// Content on its way to the device is data to who seeks, however far it has come: another task
/// syncs the file meanwhile. For a device whose writes take up to some milliseconds.
pub fn is_no_hole_on_its_way<F: FileSystem + 'static>(cx: &mut Cx, fs: &Arc<F>) {
    for delay in (0..4_000).step_by(20) {
        let file = create(cx, &**fs, fs.root(), &format!("file{delay}"));
        // Inside of the file, where blocks may be marked as written after their content.
        let size = SetAttr { size: Some(16384), ..SetAttr::default() };
        fs.setattr(cx, file, &size).expect("setattr");
        fs.fsync(cx, file, false).expect("fsync");
        assert_eq!(fs.write(cx, file, 0, &[7; 16384]), Ok(16384));
        let syncing = fs.clone();
        let sync = cx.spawn("sync", move |cx| syncing.fsync(cx, file, true));
        cx.sleep(Nanos::from_micros(delay));
        assert_eq!(fs.seek(cx, file, 0, SeekWhence::Data), Ok(0), "data after {delay} us");
        assert_eq!(fs.seek(cx, file, 0, SeekWhence::Hole), Ok(16384), "hole after {delay} us");
        sync.join(cx).expect("fsync");
    }
}
