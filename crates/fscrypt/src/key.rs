//! Master keys, what they are called, and what is derived from them.

use std::fmt;
use std::ops::{Deref, DerefMut};

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use base::Locked;
use hkdf::Hkdf;
use sha2::{Digest, Sha512};
use zeroize::Zeroizing;

use crate::context::{KeyName, NONCE_SIZE};
use crate::{Error, Policy};

/// What a derived key is for: the first byte of its information.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Identifier = 1,
    FileKey = 2,
    DirectKey = 3,
    InoLblk64 = 4,
    DirHash = 5,
    InoLblk32 = 6,
    InodeHash = 7,
}

/// The longest key.
const KEY_MAX: usize = 64;

/// The bytes of a key, in memory that is locked.
#[derive(Clone)]
pub(crate) struct Bytes {
    all: Locked<[u8; KEY_MAX]>,
    len: usize,
}

impl Bytes {
    /// So many zeros.
    pub fn zeros(len: usize) -> Bytes {
        assert!(len <= KEY_MAX, "no key is longer");
        Bytes { all: Locked::new([0; KEY_MAX]), len }
    }

    fn of(bytes: &[u8]) -> Bytes {
        let mut key = Bytes::zeros(bytes.len());
        key.copy_from_slice(bytes);
        key
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.all[..self.len]
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.all[..self.len]
    }
}

/// A key that a user gives: 16 to 64 bytes.
#[derive(Clone)]
pub struct MasterKey {
    bytes: Bytes,
    identifier: [u8; 16],
    descriptor: [u8; 8],
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", KeyName::Identifier(self.identifier))
    }
}

impl MasterKey {
    /// A key by its bytes. Its descriptor, for policies of version 1, is the usual one.
    ///
    /// # Errors
    /// [`Error::KeySize`].
    pub fn new(bytes: Vec<u8>) -> Result<MasterKey, Error> {
        let bytes = Zeroizing::new(bytes);
        if !(16..=64).contains(&bytes.len()) {
            return Err(Error::KeySize(bytes.len()));
        }
        let bytes = Bytes::of(&bytes);
        let mut key = MasterKey { bytes, identifier: [0; 16], descriptor: [0; 8] };
        let mut identifier = [0; 16];
        key.derive(Purpose::Identifier, &[], &mut identifier);
        key.identifier = identifier;
        let twice = Sha512::digest(Sha512::digest(key.bytes()));
        key.descriptor.copy_from_slice(&twice[..8]);
        Ok(key)
    }

    /// Bytes of the payload of a key in the kernel's keyring.
    pub const PAYLOAD_SIZE: usize = 72;

    /// A key by its payload in the kernel's keyring (`struct fscrypt_key`): a mode of four bytes,
    /// which nobody asks for; 64 bytes, the first of which are the key; and how many these are, in
    /// four bytes of either order.
    ///
    /// Source: kernel `Documentation/filesystems/fscrypt`, "Legacy method".
    ///
    /// # Errors
    /// [`Error::PayloadSize`].
    pub fn from_payload(payload: &[u8; MasterKey::PAYLOAD_SIZE]) -> Result<MasterKey, Error> {
        let size = payload[68..].try_into().expect("four bytes");
        let sizes = [u32::from_le_bytes(size), u32::from_be_bytes(size)];
        let Some(size) = sizes.into_iter().find(|size| (16..=64).contains(size)) else {
            return Err(Error::PayloadSize(sizes[0]));
        };
        MasterKey::new(payload[4..4 + size as usize].to_vec())
    }

    /// The same key, for policies of version 1 with this descriptor.
    pub fn with_descriptor(self, descriptor: [u8; 8]) -> MasterKey {
        MasterKey { descriptor, ..self }
    }

    /// Its name in policies of version 2.
    pub fn identifier(&self) -> [u8; 16] {
        self.identifier
    }

    /// Its name in policies of version 1.
    pub fn descriptor(&self) -> [u8; 8] {
        self.descriptor
    }

    /// Does a policy name this key?
    pub fn is_of(&self, policy: &Policy) -> bool {
        match policy.key {
            KeyName::Descriptor(descriptor) => descriptor == self.descriptor,
            KeyName::Identifier(identifier) => identifier == self.identifier,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// HKDF-SHA512 without salt.
    pub(crate) fn derive(&self, purpose: Purpose, data: &[u8], key: &mut [u8]) {
        let expanded = Hkdf::<Sha512>::new(None, &self.bytes)
            .expand_multi_info(&[b"fscrypt\0", &[purpose as u8], data], key);
        expanded.expect("a derived key is far shorter than the longest one");
    }

    /// The file key of version 1: the master key's first bytes, encrypted with the nonce as the
    /// key. The caller has checked its length.
    pub(crate) fn derive_v1(&self, nonce: &[u8; NONCE_SIZE], key: &mut [u8]) {
        key.copy_from_slice(&self.bytes[..key.len()]);
        let cipher = Aes128::new(nonce.into());
        for block in key.as_chunks_mut::<16>().0 {
            cipher.encrypt_block(block.into());
        }
    }
}

/// The keys at hand.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    keys: Vec<MasterKey>,
}

impl KeyRing {
    /// Adds a key.
    pub fn add(&mut self, key: MasterKey) {
        self.keys.push(key);
    }

    /// The key of a policy.
    pub fn find(&self, policy: &Policy) -> Option<&MasterKey> {
        self.keys.iter().find(|key| key.is_of(policy))
    }

    /// Why a policy's key is not found, for messages: its name, and those of the keys at hand.
    pub fn refusal(&self, policy: &Policy) -> String {
        let name = |key: &MasterKey| match policy.key {
            KeyName::Descriptor(_) => KeyName::Descriptor(key.descriptor).to_string(),
            KeyName::Identifier(_) => KeyName::Identifier(key.identifier).to_string(),
        };
        let given: Vec<String> = self.keys.iter().map(name).collect();
        match given.as_slice() {
            [] => format!("encrypted by key {}; no key was given", policy.key),
            _ => format!(
                "encrypted by key {}, not by what was given: {}",
                policy.key,
                given.join(", ")
            ),
        }
    }

    /// All of them.
    pub fn keys(&self) -> &[MasterKey] {
        &self.keys
    }
}
