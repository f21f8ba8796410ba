//! Encryption of an inode's content and names, and whether its key is known (Linux:
//! `fs/ext4/crypto.c`).

use std::sync::OnceLock;

use base::Errno;
use fscrypt::nokey::{self, NameHashes};
use fscrypt::{Context, DirHash, FileKey, FsIds, Policy};

use crate::sb::SuperBlock;

/// How an inode is encrypted. Never changes once it is known.
#[derive(Debug)]
pub(crate) struct InodeCrypt {
    /// What its attribute says; `None` where that is damaged or not supported.
    context: Option<Context>,
    /// The key, where it is at hand.
    key: Option<FileKey>,
    /// What hashes names in a directory that ignores their case, since it was first asked for.
    dir_hash: OnceLock<Option<DirHash>>,
}

impl InodeCrypt {
    /// That of inode `ino` with the bytes of its attribute, if it has one. What is wrong with it is
    /// noted in the superblock's first read error.
    pub fn new(sb: &SuperBlock, ino: u32, attribute: Option<&[u8]>) -> InodeCrypt {
        let note = |text: String| sb.note_read_error(format!("inode {ino}: {text}"));
        let context = match attribute.map(Context::parse) {
            Some(Ok(context)) => Some(context),
            Some(Err(error)) => {
                note(error.to_string());
                None
            }
            None => {
                note("it is encrypted and has no encryption context".into());
                None
            }
        };
        let master = context.and_then(|context| sb.options.keys.find(&context.policy));
        let key = context.zip(master).and_then(|(context, master)| {
            let ids = FsIds { uuid: sb.geometry.uuid, block_bits: sb.geometry.block_bits };
            let key = FileKey::new(master, &context, &ids, ino);
            key.map_err(|error| note(error.to_string())).ok()
        });
        if let (Some(context), None) = (context, master) {
            sb.note_missing_key(ino, &context.policy);
        }
        InodeCrypt { context, key, dir_hash: OnceLock::new() }
    }

    /// The key.
    ///
    /// # Errors
    /// `ENOKEY` it is not at hand; `EUCLEAN` the context is damaged.
    #[inline]
    pub fn key(&self) -> Result<&FileKey, Errno> {
        match (&self.key, &self.context) {
            (Some(key), _) => Ok(key),
            (None, Some(_)) => Err(Errno::ENOKEY),
            (None, None) => Err(Errno::EFSCORRUPTED),
        }
    }

    /// What hashes the folded names of a directory.
    ///
    /// # Errors
    /// As [`InodeCrypt::key`]; `EINVAL` its policy is of version 1.
    pub fn dir_hash(&self, sb: &SuperBlock) -> Result<&DirHash, Errno> {
        let context = *self.key()?.context();
        let derive = || DirHash::new(sb.options.keys.find(&context.policy)?, &context);
        self.dir_hash.get_or_init(derive).as_ref().ok_or(Errno::EINVAL)
    }

    /// The policy of its directory tree; `None` where the context is damaged.
    pub fn policy(&self) -> Option<&Policy> {
        self.context.as_ref().map(|context| &context.policy)
    }

    /// What is shown of an encrypted name with these hashes.
    ///
    /// # Errors
    /// `EUCLEAN` it is no name.
    pub fn shown_name(&self, name: &[u8], hashes: NameHashes) -> Result<Vec<u8>, Errno> {
        let Ok(key) = self.key() else { return Ok(nokey::encode(hashes, name).into_bytes()) };
        let name = key.decrypt_name(name).map_err(|_| Errno::EFSCORRUPTED)?;
        // A slash would let a crafted image write outside the place where it is unpacked.
        let bad = name.is_empty() || name == b"." || name == b".." || name.contains(&b'/');
        if bad { Err(Errno::EFSCORRUPTED) } else { Ok(name) }
    }

    /// What is shown of what a symbolic link stores.
    ///
    /// # Errors
    /// `EUCLEAN` it is no target.
    pub fn shown_target(&self, stored: &[u8]) -> Result<Vec<u8>, Errno> {
        let shown = match self.key() {
            Ok(key) => key.decrypt_target(stored),
            Err(_) => fscrypt::stored_target(stored)
                .map(|target| nokey::encode(NameHashes::default(), target).into_bytes()),
        };
        shown.ok().filter(|target| !target.is_empty()).ok_or(Errno::EFSCORRUPTED)
    }
}

/// The errno of what cannot be encrypted.
pub(crate) fn errno(error: &fscrypt::Error) -> Errno {
    match error {
        fscrypt::Error::TooLong(_) => Errno::ENAMETOOLONG,
        fscrypt::Error::NameSize(_) => Errno::EFSCORRUPTED,
        _ => Errno::EINVAL,
    }
}
