//! Names of encrypted directories, with their key and without it.

use std::borrow::Cow;

use base::Errno;
use fscrypt::nokey;
use rt::Cx;

use super::{Dir, EntryPlace, Place, Role};
use crate::crypto;
use crate::format::dir::{self, Key};

impl Dir<'_> {
    /// What the disk has for a name: itself, or its encrypted form.
    ///
    /// # Errors
    /// `ENAMETOOLONG`; `ENOKEY` the directory's key is not at hand.
    pub(super) fn disk_name<'n>(&self, name: &'n [u8]) -> Result<Cow<'n, [u8]>, Errno> {
        let Some(crypt) = self.inode.crypt() else { return Ok(Cow::Borrowed(name)) };
        let secret = crypt.key()?.encrypt_name(name);
        secret.map(Cow::Owned).map_err(|error| crypto::errno(&error))
    }

    /// Searches for a name by its no-key form.
    #[cold]
    pub(super) fn find_without_key(
        &self,
        cx: &mut Cx,
        name: &[u8],
    ) -> Result<Option<EntryPlace>, Errno> {
        let Some(name) = nokey::decode(name) else { return Ok(None) };
        if let Some(whole) = name.whole() {
            return self.find_on_disk(cx, &Key::new(whole));
        }
        let mut leaves = Vec::new();
        if self.indexed {
            let (mut path, hash) = self.probe(cx, |_| name.hashes.major)?;
            leaves.push(path.leaf);
            while self.next_leaf(cx, &mut path, Some(hash))?.is_some() {
                leaves.push(path.leaf);
            }
        } else {
            leaves.extend(0..self.blocks);
        }
        for lblk in leaves {
            let buffer = self.block(cx, lblk, Role::Leaf)?;
            let found =
                buffer.with(|data| dir::find_by(data, self.layout, |secret| name.is_of(secret)));
            if let Some(found) = found {
                return Ok(Some(EntryPlace { place: Place::Block(buffer), found }));
            }
        }
        Ok(None)
    }
}
