//! The cache on disk: for each version of an object a folder with a sparse file of its blocks and a
//! file of their checksums.
//!
//! A block is written first, its checksum behind it; a reader believes a block whose checksum fits.
//! So processes share a folder without locks: they write the same bytes, and half a block is none.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use base::crc::crc32c;
use sha2::{Digest, Sha256};

use crate::blocks::BLOCK;
use crate::version::Version;

/// Bytes of an entry of the checksums: a mark, then the sum.
const ENTRY: u64 = 8;
/// The block is there.
const MARK: u32 = 0x4b4c_4221;
/// Says to backup programs that nothing here is worth keeping.
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# Blocks of remote images.\n";

/// The blocks of one version of one object.
pub(crate) struct Disk {
    data: File,
    sums: File,
}

impl Disk {
    /// Opens the folder of a version below `folder`; none for an object without a strong ETag.
    ///
    /// # Errors
    /// The host refuses.
    pub fn open(folder: &Path, address: &str, version: &Version) -> io::Result<Option<Disk>> {
        let Some(etag) = version.strong() else { return Ok(None) };
        let mut hash = Sha256::new();
        for part in [address, etag, &version.size.to_string()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let own = folder.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&own)?;
        let tag = folder.join("CACHEDIR.TAG");
        if !tag.exists() {
            std::fs::write(tag, TAG)?;
        }
        let file = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.open(own.join(name))
        };
        let disk = Disk { data: file("blocks")?, sums: file("sums")? };
        std::fs::write(own.join("address"), format!("{address}\n{etag}\n{}\n", version.size))?;
        Ok(Some(disk))
    }

    /// The block `index` of `len` bytes, where it is there and whole.
    pub fn read(&self, index: u64, len: usize) -> Option<Vec<u8>> {
        let mut entry = [0; ENTRY as usize];
        self.sums.read_exact_at(&mut entry, index * ENTRY).ok()?;
        let (mark, sum) = entry.split_at(4);
        if mark != MARK.to_le_bytes() {
            return None;
        }
        let mut bytes = vec![0; len];
        self.data.read_exact_at(&mut bytes, index * BLOCK).ok()?;
        (sum == crc32c(!0, &bytes).to_le_bytes()).then_some(bytes)
    }

    /// Keeps a block. A host that refuses (no space) costs a fetch later, nothing else.
    pub fn write(&self, index: u64, bytes: &[u8]) {
        let mut entry = [0; ENTRY as usize];
        entry[..4].copy_from_slice(&MARK.to_le_bytes());
        entry[4..].copy_from_slice(&crc32c(!0, bytes).to_le_bytes());
        let written = self.data.write_all_at(bytes, index * BLOCK);
        let _fetched_again = written.and_then(|()| self.sums.write_all_at(&entry, index * ENTRY));
    }
}
