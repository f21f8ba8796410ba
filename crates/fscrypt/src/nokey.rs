//! Names as they are shown without their key.
//!
//! A name is shown as base64url of its two hashes and its encrypted bytes: all of them if they are
//! few, else the first 149 and a SHA-256 of the rest, so that it stays below 255 characters.

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};

/// Encrypted bytes that are shown as they are.
const SHOWN_MAX: usize = 149;
const HASHES: usize = 8;
const DIGEST: usize = 32;

/// The hashes of an encrypted name in its directory; 0 where it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NameHashes {
    /// The hash that an indexed directory is sorted by.
    pub major: u32,
    /// The second one.
    pub minor: u32,
}

/// A name in its no-key form, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoKeyName {
    /// Its hashes, by the first of which an indexed directory finds it.
    pub hashes: NameHashes,
    shown: Vec<u8>,
    digest: Option<[u8; DIGEST]>,
}

/// The no-key form of an encrypted name, or of a target, which has no hashes.
pub fn encode(hashes: NameHashes, name: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(HASHES + SHOWN_MAX + DIGEST);
    bytes.extend(hashes.major.to_le_bytes());
    bytes.extend(hashes.minor.to_le_bytes());
    let (shown, rest) = name.split_at(name.len().min(SHOWN_MAX));
    bytes.extend(shown);
    if !rest.is_empty() {
        bytes.extend(Sha256::digest(rest));
    }
    BASE64URL_NOPAD.encode(&bytes)
}

/// Takes a no-key form apart; `None` for what is none.
pub fn decode(text: &[u8]) -> Option<NoKeyName> {
    let bytes = BASE64URL_NOPAD.decode(text).ok()?;
    let (hashes, name) = bytes.split_first_chunk::<HASHES>()?;
    let word = |at: usize| u32::from_le_bytes(hashes[at..at + 4].try_into().expect("four bytes"));
    let (shown, rest) = name.split_at(name.len().min(SHOWN_MAX));
    let digest = if rest.is_empty() { None } else { Some(rest.try_into().ok()?) };
    if shown.is_empty() {
        return None;
    }
    Some(NoKeyName {
        hashes: NameHashes { major: word(0), minor: word(4) },
        shown: shown.to_vec(),
        digest,
    })
}

impl NoKeyName {
    /// The encrypted name, if its no-key form shows all of it.
    pub fn whole(&self) -> Option<&[u8]> {
        self.digest.is_none().then_some(&self.shown)
    }

    /// Is it the form of this encrypted name?
    pub fn is_of(&self, name: &[u8]) -> bool {
        match &self.digest {
            None => name == self.shown,
            Some(digest) => {
                let rest = name.strip_prefix(self.shown.as_slice());
                rest.is_some_and(|rest| !rest.is_empty() && *digest == *Sha256::digest(rest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_abbreviated_and_found_again() {
        for len in [16, 32, 148, 149, 150, 181, 255] {
            let name: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            let hashes = NameHashes { major: 0x1234, minor: 0x5678 };
            let text = encode(hashes, &name);
            assert!(text.len() <= 252 && !text.contains('='), "{text}");
            let found = decode(text.as_bytes()).unwrap();
            assert_eq!(found.hashes, hashes);
            assert!(found.is_of(&name));
            assert_eq!(found.whole().is_some(), len <= 149);
            let mut other = name.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(!found.is_of(&other) && !found.is_of(&name[..len as usize - 1]));
        }
    }

    #[test]
    fn other_names_are_none() {
        for text in ["", "AAAA", "AAAAAAAAAAA", "not/base64", "AAAAAAAAAAAA=", "ä"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        // 150 bytes behind the hashes: neither whole nor with a digest.
        assert_eq!(decode(BASE64URL_NOPAD.encode(&[1; 158]).as_bytes()), None);
    }
}
