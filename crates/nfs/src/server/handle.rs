//! File handles: inode and generation under a keyed checksum (HMAC-SHA-256, RFC 2104, cut to 16
//! bytes), so that a client can only use those that it was given.

use std::fmt;

use base::Ino;
use sha2::{Digest, Sha256};

use crate::proto::Handle;

const VERSION: u8 = 1;
const HEAD: usize = 16;
const MAC: usize = 16;

/// The secret that handles are made with.
#[derive(Clone, PartialEq, Eq)]
pub struct HandleKey {
    inner: Sha256State,
    outer: Sha256State,
}

#[derive(Clone)]
struct Sha256State(Sha256, [u8; 64]);

impl PartialEq for Sha256State {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

impl Eq for Sha256State {}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

impl HandleKey {
    /// The key of these bytes, which nobody else knows.
    pub fn new(secret: [u8; 32]) -> HandleKey {
        let state = |pad: u8| {
            let mut block = [pad; 64];
            block.iter_mut().zip(secret).for_each(|(byte, key)| *byte ^= key);
            Sha256State(Sha256::new_with_prefix(block), block)
        };
        HandleKey { inner: state(0x36), outer: state(0x5c) }
    }

    fn mac(&self, head: &[u8]) -> [u8; MAC] {
        let inner = self.inner.0.clone().chain_update(head).finalize();
        let outer = self.outer.0.clone().chain_update(inner).finalize();
        let mut mac = [0; MAC];
        mac.copy_from_slice(&outer[..MAC]);
        mac
    }

    /// The handle of an inode.
    pub fn make(&self, ino: Ino, generation: u32) -> Handle {
        let mut bytes = [0; HEAD + MAC];
        bytes[0] = VERSION;
        bytes[4..12].copy_from_slice(&ino.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&generation.to_be_bytes());
        let mac = self.mac(&bytes[..HEAD]);
        bytes[HEAD..].copy_from_slice(&mac);
        Handle::new(&bytes).expect("shorter than a handle may be")
    }

    /// Inode and generation of a handle that this key made.
    pub fn open(&self, handle: &Handle) -> Option<(Ino, u32)> {
        let bytes: &[u8; HEAD + MAC] = handle.bytes().try_into().ok()?;
        let mac = self.mac(&bytes[..HEAD]);
        // Takes the same time wherever they differ.
        let differ = bytes[HEAD..].iter().zip(mac).fold(0, |all, (a, b)| all | (a ^ b));
        if differ != 0 || bytes[0] != VERSION {
            return None;
        }
        let ino = u64::from_be_bytes(bytes[4..12].try_into().ok()?);
        Some((Ino(ino), u32::from_be_bytes(bytes[12..16].try_into().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_opened_by_their_key_and_by_no_other() {
        let key = HandleKey::new([7; 32]);
        let handle = key.make(Ino(12), 34);
        assert_eq!(key.open(&handle), Some((Ino(12), 34)));
        assert_eq!(HandleKey::new([7; 32]).open(&handle), Some((Ino(12), 34)));
        assert_eq!(HandleKey::new([8; 32]).open(&handle), None);
        for at in 0..handle.bytes().len() {
            let mut forged = handle.bytes().to_vec();
            forged[at] ^= 1;
            assert_eq!(key.open(&Handle::new(&forged).unwrap()), None, "byte {at}");
        }
        assert_eq!(key.open(&Handle::new(&handle.bytes()[1..]).unwrap()), None);
    }

    #[test]
    fn the_checksum_is_that_of_rfc_4231() {
        // Test case 2 has a key of 4 bytes: zeros behind it change nothing.
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(b"Jefe");
        let mac = HandleKey::new(secret).mac(b"what do ya want for nothing?");
        assert_eq!(mac[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
    }
}
