//! Directories that ignore the case of names.

use base::Errno;

use super::Dir;
use super::htree::Version;
use crate::format::casefold::{self, Encoding};
use crate::format::dir::{Entry, Fold, Key, Names};
use crate::format::hash::{HashVersion, NameHash, hash_name};

impl<'a> Dir<'a> {
    /// How a name is searched for where its case is ignored.
    ///
    /// # Errors
    /// `EINVAL` the name is no UTF-8, and the file system is strict; `ENOKEY`.
    pub(super) fn fold(&self, encoding: Encoding, name: &[u8]) -> Result<Fold<'a>, Errno> {
        let folded = fold(encoding, name)?;
        let inode = self.inode;
        let secret = match inode.crypt() {
            None => None,
            Some(crypt) => {
                let hashes = crypt.dir_hash(&self.fs.sb)?.hash(folded.as_deref().unwrap_or(name));
                let hash = NameHash::new(hashes.major, hashes.minor);
                Some((hash, crypt.key()?))
            }
        };
        Ok(Fold { folded, secret })
    }

    /// The hash of a name to search for.
    #[inline]
    pub(crate) fn hash(&self, version: Version, key: &Key) -> NameHash {
        match (key.fold(), version) {
            (None, Some(version)) => self.hash_bytes(version, key.name()),
            (Some(fold), _) => self.hash_fold(version, fold, key.name()),
            (None, None) => NameHash::default(),
        }
    }

    #[cold]
    fn hash_fold(&self, version: Version, fold: &Fold, name: &[u8]) -> NameHash {
        match (fold.secret, version) {
            (Some((hash, _)), _) => hash,
            (None, Some(version)) => {
                self.hash_bytes(version, fold.folded.as_deref().unwrap_or(name))
            }
            (None, None) => NameHash::default(),
        }
    }

    /// The hash of a name that is there.
    pub(crate) fn hash_of(&self, version: Version, entry: &Entry) -> NameHash {
        entry.tree_hash(version, &self.fs.sb.geometry.hash_seed, self.encoding.is_some())
    }

    #[inline]
    fn hash_bytes(&self, version: HashVersion, name: &[u8]) -> NameHash {
        hash_name(version, &self.fs.sb.geometry.hash_seed, name)
    }

    /// How names are hashed in a directory without a tree.
    pub(crate) fn default_version(&self) -> Version {
        (self.layout.names != Names::Hashed).then_some(self.fs.sb.geometry.hash_version)
    }
}

#[cold]
fn fold(encoding: Encoding, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    if encoding.strict && !casefold::is_valid(name) {
        return Err(Errno::EINVAL);
    }
    Ok(casefold::fold(name))
}
