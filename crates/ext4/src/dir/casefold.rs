//! Directories that ignore the case of names.

use base::Errno;

use super::Dir;
use crate::format::casefold::{self, Encoding};
use crate::format::hash::{HashVersion, NameHash, hash_name};

impl Dir<'_> {
    /// The folded form of a name to search for; `None` where names are compared by their bytes.
    ///
    /// # Errors
    /// `EINVAL` the name is no UTF-8, and the file system is strict.
    #[inline]
    pub(super) fn folded(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        match self.encoding {
            None => Ok(None),
            Some(encoding) => fold(encoding, name),
        }
    }

    /// How a name is hashed here.
    #[cold]
    pub(super) fn hash_folded(&self, version: HashVersion, name: &[u8]) -> NameHash {
        let folded = casefold::fold(name);
        hash_name(version, &self.fs.sb.geometry.hash_seed, folded.as_deref().unwrap_or(name))
    }
}

#[cold]
fn fold(encoding: Encoding, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    if encoding.strict && !casefold::is_valid(name) {
        return Err(Errno::EINVAL);
    }
    Ok(casefold::fold(name))
}
