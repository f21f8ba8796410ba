//! fscrypt: what Linux's file systems keep encrypted, and how (its documentation: fscrypt.rst).
//!
//! Each encrypted inode has a [`Context`]: the policy of its directory tree and 16 random bytes of
//! its own. With the master key that the policy names, a [`FileKey`] turns contents, names and
//! targets of symbolic links into what the disk holds, and back. Without it, a name is shown in its
//! [no-key form](nokey), by which it can be removed.
//!
//! ```text
//! master key --HKDF-SHA512 (policy 2) or AES-ECB (policy 1)--> key of a file, or of a mode
//! contents: AES-256-XTS, AES-128-CBC-ESSIV, Adiantum       names: AES-CBC-CTS, Adiantum, HCTR2
//! ```
//!
//! This crate knows no file system: `ext4` asks it. Nothing here waits. Keys are cleared from
//! memory when they are dropped, and no `Debug` output and no error has a byte of them. They are
//! not locked into memory: a swap device must be encrypted itself.
//!
//! Where case is ignored, the folded name's [hash](DirHash) stands beside the encrypted one.
//!
//! Not here: SM4, and keys wrapped by hardware.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod cipher;
mod context;
mod dir_hash;
mod file_key;
mod key;
pub mod nokey;
mod xts;

pub use context::{Context, IvMethod, KeyName, Mode, NONCE_SIZE, Policy};
pub use dir_hash::DirHash;
pub use file_key::{FileKey, FsIds, stored_target};
pub use key::{KeyRing, MasterKey};
pub use xts::Xts;

/// Why something cannot be decrypted, or not be encrypted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A context whose length is that of no version.
    #[error("an encryption context of {0} bytes; known are 28 (version 1) and 40 (version 2)")]
    ContextSize(usize),
    /// A version of policies that is not known.
    #[error("an encryption policy of version {0}; known are 1 and 2")]
    Version(u8),
    /// Ciphers that do not go together, or are not supported.
    #[error(
        "encryption modes {contents} of contents and {names} of names; known are 1 and 4, 1 and \
         10, 5 and 6, 9 and 9"
    )]
    Modes {
        /// Number of the mode of contents.
        contents: u8,
        /// Number of the mode of names.
        names: u8,
    },
    /// Flags of a policy that are not known, or exclude each other.
    #[error("flags {0:#x} of an encryption policy")]
    Flags(u8),
    /// Vectors of a file system, with other contents than AES-256-XTS.
    #[error(
        "initialization vectors IV_INO_LBLK_64 and IV_INO_LBLK_32 go with AES-256-XTS only, as in \
         Linux"
    )]
    Vectors,
    /// A size of data units that this file system cannot have.
    #[error("data units of 2^{log2} bytes; they have 2^9 to 2^{max}")]
    DataUnit {
        /// Base-two logarithm of the size.
        log2: u8,
        /// The largest one.
        max: u32,
    },
    /// A master key of a length that no cipher takes.
    #[error("a master key of {0} bytes; it has 16 to 64")]
    KeySize(usize),
    /// A payload of the kernel's keyring whose length of the key no cipher takes.
    #[error("a payload of the kernel's keyring for a key of {0} bytes; it has 16 to 64")]
    PayloadSize(u32),
    /// A master key that is too short for the ciphers of a policy.
    #[error("a master key of {found} bytes, where the policy's ciphers need {needed}")]
    KeyTooShort {
        /// Bytes that it has.
        found: usize,
        /// Bytes that it needs.
        needed: usize,
    },
    /// An encrypted name or target of a length that none has.
    #[error("an encrypted name of {0} bytes; they have at least 16")]
    NameSize(usize),
    /// A name or a target that does not fit, encrypted.
    #[error("{0} bytes are too long for an encrypted name or target")]
    TooLong(usize),
}
