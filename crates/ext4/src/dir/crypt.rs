//! Names of encrypted directories, with their key and without it.

use std::borrow::Cow;

use base::Errno;
use fscrypt::nokey;
use rt::Cx;

use super::{Dir, EntryPlace, Place, Role};
use crate::crypto;
use crate::format::dir::{self, Fold, Key, Names};

/// A name to search for or to add, as the disk has it.
pub(super) struct Sought<'n> {
    name: Cow<'n, [u8]>,
    fold: Option<Box<Fold<'n>>>,
}

impl Sought<'_> {
    #[inline]
    pub(super) fn key(&self) -> Key<'_> {
        Key::folded(&self.name, self.fold.as_deref())
    }
}

impl<'a> Dir<'a> {
    /// How a name is searched for here.
    ///
    /// # Errors
    /// `ENAMETOOLONG`; `ENOKEY` the directory's key is not at hand; `EINVAL` no UTF-8, where
    /// nothing else is taken.
    #[inline]
    pub(super) fn sought<'n>(&self, name: &'n [u8]) -> Result<Sought<'n>, Errno>
    where
        'a: 'n,
    {
        if !self.layout.names.is_encrypted() && self.encoding.is_none() {
            return Ok(Sought { name: Cow::Borrowed(name), fold: None });
        }
        self.sought_otherwise(name)
    }

    #[cold]
    fn sought_otherwise<'n>(&self, name: &'n [u8]) -> Result<Sought<'n>, Errno>
    where
        'a: 'n,
    {
        let encoding = self.encoding;
        let fold = encoding.map(|encoding| self.fold(encoding, name).map(Box::new)).transpose()?;
        let name = match self.inode.crypt() {
            None => Cow::Borrowed(name),
            Some(crypt) => {
                let secret = crypt.key()?.encrypt_name(name);
                Cow::Owned(secret.map_err(|error| crypto::errno(&error))?)
            }
        };
        Ok(Sought { name, fold })
    }

    /// Searches for a name by its no-key form.
    #[cold]
    pub(super) fn find_without_key(
        &self,
        cx: &mut Cx,
        name: &[u8],
    ) -> Result<Option<EntryPlace>, Errno> {
        let Some(name) = nokey::decode(name) else { return Ok(None) };
        let whole = name.whole().filter(|_| self.layout.names == Names::Encrypted);
        if let Some(whole) = whole {
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
                buffer.with(|data| dir::find_by(data, self.layout, |entry| name.is_of(entry.name)));
            if let Some(found) = found {
                return Ok(Some(EntryPlace { place: Place::Block(buffer), found }));
            }
        }
        Ok(None)
    }
}
