//! Hashes of encrypted names whose case is ignored.

use std::fmt;
use std::hash::Hasher;

use base::Locked;
use siphasher::sip::SipHasher24;

use crate::context::{Context, KeyName};
use crate::key::{MasterKey, Purpose};
use crate::nokey::NameHashes;

/// The key that hashes the folded names of one directory (SipHash-2-4): without it the
/// hashes say nothing about the names.
pub struct DirHash(Locked<[u8; 16]>);

impl fmt::Debug for DirHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirHash")
    }
}

impl DirHash {
    /// Derives the key of the directory with this context from the master key that its policy
    /// names; `None` for policies of version 1, which have none.
    pub fn new(master: &MasterKey, context: &Context) -> Option<DirHash> {
        let KeyName::Identifier(_) = context.policy.key else { return None };
        let mut key = Locked::new([0; 16]);
        master.derive(Purpose::DirHash, &context.nonce, &mut *key);
        Some(DirHash(key))
    }

    /// The hashes of a name, given in its folded form or, where it has none, as it is.
    pub fn hash(&self, folded: &[u8]) -> NameHashes {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(folded);
        let hash = hasher.finish();
        NameHashes { major: (hash >> 32) as u32, minor: hash as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    /// What Linux 7.2 stored beside a name, in a directory with this key and nonce. Bit 0 of the
    /// first hash is ext4's to clear.
    #[test]
    fn hashes_are_those_of_linux() {
        let master = MasterKey::new(vec![b'K'; 64]).unwrap();
        let policy = Policy::new(master.identifier());
        let nonce = [208, 215, 191, 223, 67, 240, 222, 48, 143, 41, 51, 193, 246, 240, 209, 47];
        let hash = DirHash::new(&master, &Context { policy, nonce }).unwrap();
        assert_eq!(hash.hash(b"hello"), NameHashes { major: 0xf2bb_cfe3, minor: 0x0b7b_080c });
        assert_eq!(hash.hash(b"strasse"), NameHashes { major: 0x1298_1867, minor: 0x8fde_884b });
        let key = KeyName::Descriptor(master.descriptor());
        assert!(
            DirHash::new(&master, &Context { policy: Policy { key, ..policy }, nonce }).is_none()
        );
    }
}
