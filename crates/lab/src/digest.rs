//! Digests of texts and files.

use base::hash::EventHash;

/// A digest of bytes: two that differ are two texts. Not cryptographic.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = EventHash::new();
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.update(u64::from_le_bytes(word));
    }
    hash.update(bytes.len() as u64);
    hash.finish()
}
