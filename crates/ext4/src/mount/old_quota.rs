//! Old quota files as files: are they damaged, and how are they made anew? The mount does not count
//! in them meanwhile.

use base::{Errno, Ino};
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, RenameFlags};

use crate::Ext4;
use crate::format::CorruptKind;
use crate::format::quota::{self, BLOCK_SIZE, Dqblk, Form, InMemory, Info, Kind};

/// Bytes of the largest file that is read: an entry of its own block for millions of ids.
const SIZE_MAX: u64 = 1 << 30;

/// What an old quota file holds.
#[derive(Clone, Debug)]
pub struct OldQuotaFile {
    /// The form of its entries; None where the header does not say.
    pub form: Option<Form>,
    /// Entries by their ids, as far as they could be read.
    pub entries: Vec<(u32, Dqblk)>,
    /// What is wrong with it first.
    pub damage: Option<CorruptKind>,
}

impl Ext4 {
    /// Reads the old quota file with this name in the root directory. None without one. Parks.
    ///
    /// # Errors
    /// What reading a file can answer; `EFBIG`.
    pub fn old_quota_file(
        &self,
        cx: &mut Cx,
        kind: Kind,
        name: &[u8],
    ) -> Result<Option<OldQuotaFile>, Errno> {
        let attr = match self.lookup(cx, self.root(), name) {
            Err(Errno::ENOENT) => return Ok(None),
            found => found?,
        };
        if attr.size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let mut bytes = vec![0; (attr.size as usize).next_multiple_of(BLOCK_SIZE)];
        read_all(self, cx, attr.ino, &mut bytes[..attr.size as usize])?;
        let chunks = bytes.chunks_exact(BLOCK_SIZE);
        let mut file = InMemory(chunks.map(|data| data.try_into().expect("a block")).collect());
        let mut found = OldQuotaFile { form: None, entries: Vec::new(), damage: None };
        let info = match Info::parse(file.0.first().map_or(&[0; BLOCK_SIZE], |block| block), kind) {
            Ok(info) => info,
            Err(damage) => return Ok(Some(OldQuotaFile { damage: Some(damage), ..found })),
        };
        found.form = Some(info.form);
        let entries = &mut found.entries;
        let walked = quota::walk(&mut file, &info, &mut |id, entry| entries.push((id, *entry)));
        found.damage = walked.err();
        Ok(Some(found))
    }

    /// Puts a new file with these entries in the place of the one with this name, in one step.
    /// Parks.
    ///
    /// # Errors
    /// `EROFS`, `ENOSPC`, `EIO`.
    pub fn replace_old_quota_file(
        &self,
        cx: &mut Cx,
        kind: Kind,
        name: &[u8],
        form: Form,
        entries: &[(u32, Dqblk)],
    ) -> Result<(), Errno> {
        let bytes = quota::new_file_of(form, kind, entries).0.concat();
        let beside = [name, b".new"].concat();
        match self.unlink(cx, self.root(), &beside) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        let node = NewNode::new(FileType::Regular, 0o600);
        let ino = self.create(cx, self.root(), &beside, &node)?.ino;
        let mut done = 0;
        while done < bytes.len() {
            done += self.write(cx, ino, done as u64, &bytes[done..])?;
        }
        self.fsync(cx, ino, false)?;
        self.rename(cx, self.root(), &beside, self.root(), name, RenameFlags::empty())?;
        self.sync(cx)
    }
}

fn read_all(fs: &Ext4, cx: &mut Cx, ino: Ino, bytes: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match fs.read(cx, ino, done as u64, &mut bytes[done..])? {
            0 => break,
            len => done += len,
        }
    }
    Ok(())
}
