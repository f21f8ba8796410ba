//! The encryption context of an inode on disk: 28 or 40 bytes.

use std::fmt;

use crate::Error;

/// Random bytes that each encrypted inode has of its own.
pub const NONCE_SIZE: usize = 16;
const SIZE_V1: usize = 28;
const SIZE_V2: usize = 40;

/// The shortest encrypted name.
pub(crate) const NAME_MIN: usize = 16;
/// Bytes in front of the encrypted target of a symbolic link: its length.
pub(crate) const LINK_HEADER: usize = 2;

const PAD_MASK: u8 = 0x03;
const DIRECT_KEY: u8 = 0x04;
const IV_INO_LBLK_64: u8 = 0x08;
const IV_INO_LBLK_32: u8 = 0x10;

/// A cipher, by its number on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// AES-256-XTS: contents.
    Aes256Xts = 1,
    /// AES-256-CBC-CTS: names.
    Aes256Cts = 4,
    /// AES-128-CBC-ESSIV: contents.
    Aes128Cbc = 5,
    /// AES-128-CBC-CTS: names.
    Aes128Cts = 6,
    /// Adiantum, with XChaCha12 and AES-256: both.
    Adiantum = 9,
    /// AES-256-HCTR2: names.
    Aes256Hctr2 = 10,
}

impl Mode {
    /// Bytes of its key.
    pub fn key_size(self) -> usize {
        match self {
            Mode::Aes256Xts => 64,
            Mode::Aes256Cts | Mode::Adiantum | Mode::Aes256Hctr2 => 32,
            Mode::Aes128Cbc | Mode::Aes128Cts => 16,
        }
    }

    /// Bytes that a master key needs so that the cipher has its strength.
    fn security_strength(self) -> usize {
        if self.key_size() == 16 { 16 } else { 32 }
    }
}

/// Which key a policy is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyName {
    /// Version 1: chosen by whoever made the policy. By custom the start of SHA-512(SHA-512(key)).
    Descriptor([u8; 8]),
    /// Version 2: a hash of the key.
    Identifier([u8; 16]),
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: &[u8] = match self {
            KeyName::Descriptor(bytes) => bytes,
            KeyName::Identifier(bytes) => bytes,
        };
        f.write_str(&data_encoding::HEXLOWER.encode(bytes))
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How the initialization vector of a data unit is made, and with it, which key encrypts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IvMethod {
    /// The unit's number; each file has its key.
    PerFileKey,
    /// Number and nonce; one key for all files.
    DirectKey,
    /// Number and inode number; one key for all files of the file system.
    InoLblk64,
    /// Number and a hash of the inode number, in 32 bits; one key for all files of the file system.
    InoLblk32,
}

/// How a directory tree is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The key.
    pub key: KeyName,
    /// Cipher of contents.
    pub contents: Mode,
    /// Cipher of names and targets of symbolic links.
    pub names: Mode,
    /// Names are filled up to a multiple of so many bytes: 4, 8, 16 or 32.
    pub padding: usize,
    /// How initialization vectors are made.
    pub iv: IvMethod,
    /// Base-two logarithm of the size of data units; `None`: they are the blocks.
    pub data_unit_bits: Option<u8>,
}

impl Policy {
    /// A policy of version 2 with the defaults of fscrypt(8): AES-256-XTS, AES-256-CTS, names
    /// padded to 32 bytes.
    pub fn new(identifier: [u8; 16]) -> Policy {
        Policy {
            key: KeyName::Identifier(identifier),
            contents: Mode::Aes256Xts,
            names: Mode::Aes256Cts,
            padding: 32,
            iv: IvMethod::PerFileKey,
            data_unit_bits: None,
        }
    }

    /// Bytes that its master key has at the least.
    pub fn key_size_min(&self) -> usize {
        match self.key {
            // Version 1 takes the file's key from the master key byte by byte.
            KeyName::Descriptor(_) => self.contents.key_size().max(self.names.key_size()),
            KeyName::Identifier(_) => self.contents.security_strength(),
        }
    }

    /// Bytes of a name of `len` bytes, encrypted; at most `limit`.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub(crate) fn name_size(&self, len: usize, limit: usize) -> Result<usize, Error> {
        let padded = len.next_multiple_of(self.padding).max(NAME_MIN).min(limit);
        if len > limit { Err(Error::TooLong(len)) } else { Ok(padded) }
    }

    /// Bytes that a symbolic link stores for a target of `len` bytes, where it can store `limit`
    /// with a byte of 0 behind them.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn target_size(&self, len: usize, limit: usize) -> Result<usize, Error> {
        let room = limit.saturating_sub(LINK_HEADER + 1);
        self.name_size(len, room).map(|size| size + LINK_HEADER)
    }

    fn flags(&self) -> u8 {
        let iv = match self.iv {
            IvMethod::PerFileKey => 0,
            IvMethod::DirectKey => DIRECT_KEY,
            IvMethod::InoLblk64 => IV_INO_LBLK_64,
            IvMethod::InoLblk32 => IV_INO_LBLK_32,
        };
        (self.padding.trailing_zeros() as u8 - 2) | iv
    }

    /// Checks that its parts go together, as Linux does: is it one for a new directory?
    ///
    /// # Errors
    /// [`Error::Modes`], [`Error::Flags`], [`Error::Vectors`].
    pub fn check(&self) -> Result<(), Error> {
        self.check_known()?;
        match self.iv {
            IvMethod::InoLblk64 | IvMethod::InoLblk32 if self.contents != Mode::Aes256Xts => {
                Err(Error::Vectors)
            }
            _ => Ok(()),
        }
    }

    /// Checks that it can be read: what [`Policy::check`] refuses beyond has a meaning, and
    /// earlier programs have made such directories, which Linux does not open.
    fn check_known(&self) -> Result<(), Error> {
        let v1 = matches!(self.key, KeyName::Descriptor(_));
        match (self.contents, self.names) {
            (Mode::Aes256Xts, Mode::Aes256Cts)
            | (Mode::Aes128Cbc, Mode::Aes128Cts)
            | (Mode::Adiantum, Mode::Adiantum) => {}
            (Mode::Aes256Xts, Mode::Aes256Hctr2) if !v1 => {}
            (contents, names) => {
                return Err(Error::Modes { contents: contents as u8, names: names as u8 });
            }
        }
        let fits = match self.iv {
            IvMethod::PerFileKey => true,
            // The vector must have space for the nonce.
            IvMethod::DirectKey => self.contents == Mode::Adiantum,
            IvMethod::InoLblk64 | IvMethod::InoLblk32 => !v1,
        };
        if fits { Ok(()) } else { Err(Error::Flags(self.flags())) }
    }
}

/// What an inode's attribute says: its policy and its nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The policy of its directory tree.
    pub policy: Policy,
    /// Its own random bytes.
    pub nonce: [u8; NONCE_SIZE],
}

fn mode(number: u8) -> Option<Mode> {
    Some(match number {
        1 => Mode::Aes256Xts,
        4 => Mode::Aes256Cts,
        5 => Mode::Aes128Cbc,
        6 => Mode::Aes128Cts,
        9 => Mode::Adiantum,
        10 => Mode::Aes256Hctr2,
        _ => return None,
    })
}

impl Context {
    /// Reads a context: version, ciphers and flags are checked, in that order.
    ///
    /// # Errors
    /// What is not known, by its number.
    pub fn parse(bytes: &[u8]) -> Result<Context, Error> {
        let size = bytes.len();
        let &[version, contents, names, flags, ..] = bytes else {
            return Err(Error::ContextSize(size));
        };
        let (key, unit) = match (version, size) {
            (1, SIZE_V1) => (KeyName::Descriptor(array(&bytes[4..])), 0),
            (2, SIZE_V2) => (KeyName::Identifier(array(&bytes[8..])), bytes[4]),
            (1 | 2, _) => return Err(Error::ContextSize(size)),
            _ => return Err(Error::Version(version)),
        };
        let (Some(contents), Some(names)) = (mode(contents), mode(names)) else {
            return Err(Error::Modes { contents, names });
        };
        let iv = match flags & !PAD_MASK {
            0 => IvMethod::PerFileKey,
            DIRECT_KEY => IvMethod::DirectKey,
            IV_INO_LBLK_64 => IvMethod::InoLblk64,
            IV_INO_LBLK_32 => IvMethod::InoLblk32,
            _ => return Err(Error::Flags(flags)),
        };
        let policy = Policy {
            key,
            contents,
            names,
            padding: 4 << (flags & PAD_MASK),
            iv,
            data_unit_bits: (unit != 0).then_some(unit),
        };
        policy.check_known()?;
        Ok(Context { policy, nonce: array(&bytes[size - NONCE_SIZE..]) })
    }

    /// The bytes of the attribute.
    pub fn emit(&self) -> Vec<u8> {
        let policy = &self.policy;
        let ciphers = [policy.contents as u8, policy.names as u8, policy.flags()];
        let mut bytes = Vec::with_capacity(SIZE_V2);
        match policy.key {
            KeyName::Descriptor(descriptor) => {
                bytes.push(1);
                bytes.extend(ciphers);
                bytes.extend(descriptor);
            }
            KeyName::Identifier(identifier) => {
                bytes.push(2);
                bytes.extend(ciphers);
                bytes.extend([policy.data_unit_bits.unwrap_or(0), 0, 0, 0]);
                bytes.extend(identifier);
            }
        }
        bytes.extend(self.nonce);
        bytes
    }
}

/// The first bytes; the caller has checked the length.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().expect("the length was checked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_and_written() {
        let mut v1 = vec![1, 1, 4, 3];
        v1.extend([7; 8]);
        v1.extend([9; 16]);
        let mut v2 = vec![2, 9, 9, 4, 9, 0, 0, 0];
        v2.extend([7; 16]);
        v2.extend([9; 16]);
        let one = Context::parse(&v1).unwrap();
        assert_eq!((one.policy.padding, one.policy.key), (32, KeyName::Descriptor([7; 8])));
        let two = Context::parse(&v2).unwrap();
        assert_eq!((two.policy.iv, two.policy.data_unit_bits), (IvMethod::DirectKey, Some(9)));
        assert_eq!((one.emit(), two.emit()), (v1, v2));
    }

    #[test]
    fn what_is_not_known_is_named() {
        let good = Context { policy: Policy::new([1; 16]), nonce: [2; 16] }.emit();
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Context::parse(&bytes).unwrap_err()
        };
        assert_eq!(with(0, 3), Error::Version(3));
        assert_eq!(with(0, 1), Error::ContextSize(40));
        assert_eq!(with(1, 7), Error::Modes { contents: 7, names: 4 });
        assert_eq!(with(2, 9), Error::Modes { contents: 1, names: 9 });
        let adiantum = Policy {
            contents: Mode::Adiantum,
            names: Mode::Adiantum,
            iv: IvMethod::InoLblk32,
            ..Policy::new([1; 16])
        };
        assert_eq!(adiantum.check(), Err(Error::Vectors));
        let read = Context::parse(&Context { policy: adiantum, nonce: [2; 16] }.emit());
        assert_eq!(read.map(|context| context.policy), Ok(adiantum));
        assert_eq!(with(3, 0x18), Error::Flags(0x18));
        assert_eq!(with(3, 0x04), Error::Flags(0x04), "a vector of 16 bytes holds no nonce");
        assert_eq!(with(3, 0x40), Error::Flags(0x40));
        assert_eq!(Context::parse(&good[..39]), Err(Error::ContextSize(39)));
        assert_eq!(Context::parse(b""), Err(Error::ContextSize(0)));
    }
}
