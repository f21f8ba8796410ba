//! Keys from passphrases, and the anti-forensic form in which a key lies on the disk.

use std::str::FromStr;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use pbkdf2::pbkdf2_hmac;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use zeroize::{Zeroize, Zeroizing};

/// Rounds of PBKDF2 that one slot may ask for; cryptsetup chooses a few millions.
const ROUNDS_MAX: u32 = 100_000_000;
/// KiB of memory that Argon2 may ask for, as cryptsetup has it.
const MEMORY_MAX: u32 = 4 << 20;
/// Passes over its memory.
const PASSES_MAX: u32 = 64;
/// Lanes of that memory.
const LANES_MAX: u32 = 4;

/// A hash that LUKS names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hash {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(name: &str) -> Result<Hash, String> {
        Ok(match name {
            "sha1" => Hash::Sha1,
            "sha224" => Hash::Sha224,
            "sha256" => Hash::Sha256,
            "sha384" => Hash::Sha384,
            "sha512" => Hash::Sha512,
            _ => return Err(format!("the hash `{name}`")),
        })
    }
}

impl Hash {
    /// The hash of these bytes one after the other.
    pub fn of(self, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        fn of<D: Digest>(parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
            let mut digest = D::new();
            parts.iter().for_each(|part| digest.update(part));
            Zeroizing::new(digest.finalize().to_vec())
        }
        match self {
            Hash::Sha1 => of::<Sha1>(parts),
            Hash::Sha224 => of::<Sha224>(parts),
            Hash::Sha256 => of::<Sha256>(parts),
            Hash::Sha384 => of::<Sha384>(parts),
            Hash::Sha512 => of::<Sha512>(parts),
        }
    }

    /// Bytes of a hash.
    pub fn len(self) -> usize {
        match self {
            Hash::Sha1 => 20,
            Hash::Sha224 => 28,
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }
}

/// How a key is made of a passphrase.
#[derive(Clone, Debug)]
pub(crate) enum Kdf {
    Pbkdf2 { hash: Hash, rounds: u32, salt: Vec<u8> },
    Argon2 { kind: Algorithm, passes: u32, memory: u32, lanes: u32, salt: Vec<u8> },
}

impl Kdf {
    /// Its name and its costs.
    pub fn describe(&self) -> String {
        match self {
            Kdf::Pbkdf2 { hash, rounds, .. } => format!("pbkdf2 {hash:?}, {rounds} rounds"),
            Kdf::Argon2 { kind, passes, memory, lanes, .. } => {
                format!("{kind}, {passes} passes over {memory} KiB in {lanes} lanes")
            }
        }
    }

    /// A key of `len` bytes.
    ///
    /// # Errors
    /// Costs beyond what is done, or memory that is not there.
    pub fn derive(&self, secret: &[u8], len: usize) -> Result<Zeroizing<Vec<u8>>, String> {
        let mut key = Zeroizing::new(vec![0; len]);
        match self {
            Kdf::Pbkdf2 { hash, rounds, salt } => {
                if !(1..=ROUNDS_MAX).contains(rounds) {
                    return Err(format!("{rounds} rounds of PBKDF2, not 1 to {ROUNDS_MAX}"));
                }
                match hash {
                    Hash::Sha1 => pbkdf2_hmac::<Sha1>(secret, salt, *rounds, &mut key),
                    Hash::Sha224 => pbkdf2_hmac::<Sha224>(secret, salt, *rounds, &mut key),
                    Hash::Sha256 => pbkdf2_hmac::<Sha256>(secret, salt, *rounds, &mut key),
                    Hash::Sha384 => pbkdf2_hmac::<Sha384>(secret, salt, *rounds, &mut key),
                    Hash::Sha512 => pbkdf2_hmac::<Sha512>(secret, salt, *rounds, &mut key),
                }
            }
            Kdf::Argon2 { kind, passes, memory, lanes, salt } => {
                if *memory > MEMORY_MAX || *passes > PASSES_MAX || *lanes > LANES_MAX {
                    return Err(format!(
                        "{}; at most {PASSES_MAX}, {MEMORY_MAX} and {LANES_MAX} are done",
                        self.describe()
                    ));
                }
                let costs = Params::new(*memory, *passes, *lanes, Some(len));
                let costs = costs.map_err(|error| format!("{}: {error}", self.describe()))?;
                let mut blocks: Vec<Block> = Vec::new();
                let count = costs.block_count();
                let short = |_| format!("{memory} KiB of memory for Argon2 are not there");
                blocks.try_reserve_exact(count).map_err(short)?;
                blocks.resize(count, Block::default());
                let argon = Argon2::new(*kind, Version::V0x13, costs);
                let done =
                    argon.hash_password_into_with_memory(secret, salt, &mut key, &mut blocks);
                blocks.iter_mut().for_each(Zeroize::zeroize);
                done.map_err(|error| format!("{}: {error}", self.describe()))?;
            }
        }
        Ok(key)
    }
}

/// The key of `len` bytes in its anti-forensic form of some stripes of that length.
pub(crate) fn merge(stripes: &[u8], len: usize, hash: Hash) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(vec![0; len]);
    let last = stripes.len() - len;
    for (at, stripe) in stripes.chunks_exact(len).enumerate() {
        key.iter_mut().zip(stripe).for_each(|(byte, other)| *byte ^= other);
        if at * len < last {
            diffuse(&mut key, hash);
        }
    }
    key
}

/// Each part of the length of a hash becomes the hash of its number and of itself.
fn diffuse(key: &mut [u8], hash: Hash) {
    for (number, part) in key.chunks_mut(hash.len()).enumerate() {
        let digest = hash.of(&[&(number as u32).to_be_bytes(), part]);
        let len = part.len();
        part.copy_from_slice(&digest[..len]);
    }
}
