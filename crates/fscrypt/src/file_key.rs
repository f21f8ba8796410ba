//! The key of one inode: its contents, the names in it, its target.

use std::fmt;
use std::hash::Hasher;

use crate::key::Bytes;
use siphasher::sip::SipHasher24;

use crate::Error;
use crate::cipher::{Cipher, IV_SIZE, Iv};
use crate::context::{Context, IvMethod, KeyName, LINK_HEADER, Mode, NAME_MIN};
use crate::key::{MasterKey, Purpose};

/// The longest name, encrypted or not.
const NAME_MAX: usize = 255;
/// The largest unit that Adiantum takes.
const ADIANTUM_MAX: u32 = 4096;

/// What keys that serve a whole file system depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsIds {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Base-two logarithm of its block size.
    pub block_bits: u32,
}

/// The key of one inode, ready for use. Shared by all who read and write it.
pub struct FileKey {
    context: Context,
    contents: Cipher,
    names: Cipher,
    unit_bits: u32,
    /// What the inode adds to the vectors.
    inode: u64,
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileKey").field("policy", &self.context.policy).finish_non_exhaustive()
    }
}

impl FileKey {
    /// Derives the key of inode `ino` from the master key that its policy names.
    ///
    /// # Errors
    /// [`Error::KeyTooShort`], [`Error::DataUnit`].
    pub fn new(
        master: &MasterKey,
        context: &Context,
        fs: &FsIds,
        ino: u32,
    ) -> Result<FileKey, Error> {
        let policy = &context.policy;
        let (found, needed) = (master.bytes().len(), policy.key_size_min());
        if found < needed {
            return Err(Error::KeyTooShort { found, needed });
        }
        let unit_bits = policy.data_unit_bits.map_or(fs.block_bits, u32::from);
        let large = policy.contents == Mode::Adiantum && 1 << unit_bits > ADIANTUM_MAX;
        if !(9..=fs.block_bits).contains(&unit_bits) || large {
            return Err(Error::DataUnit { log2: unit_bits as u8, max: fs.block_bits.min(12) });
        }
        let derived = |mode: Mode| derive(master, context, fs, mode);
        let inode = match policy.iv {
            IvMethod::PerFileKey | IvMethod::DirectKey => 0,
            IvMethod::InoLblk64 => u64::from(ino) << 32,
            IvMethod::InoLblk32 => {
                let mut key = [0; 16];
                master.derive(Purpose::InodeHash, &[], &mut key);
                let mut hasher = SipHasher24::new_with_key(&key);
                hasher.write(&u64::from(ino).to_le_bytes());
                hasher.finish() & 0xffff_ffff
            }
        };
        Ok(FileKey {
            context: *context,
            contents: Cipher::new(policy.contents, &derived(policy.contents)),
            names: Cipher::new(policy.names, &derived(policy.names)),
            unit_bits,
            inode,
        })
    }

    /// Context of the inode.
    pub fn context(&self) -> &Context {
        &self.context
    }

    fn iv(&self, index: u64) -> Iv {
        let mut iv = [0; IV_SIZE];
        let number = match self.context.policy.iv {
            IvMethod::InoLblk32 => (self.inode + index) & 0xffff_ffff,
            _ => self.inode | index,
        };
        iv[..8].copy_from_slice(&number.to_le_bytes());
        if self.context.policy.iv == IvMethod::DirectKey {
            iv[8..24].copy_from_slice(&self.context.nonce);
        }
        iv
    }

    /// Encrypts what lies at byte `offset` of the file, in place.
    ///
    /// # Panics
    /// If offset or length is no multiple of the block size.
    pub fn encrypt(&self, offset: u64, bytes: &mut [u8]) {
        self.each_unit(offset, bytes, |iv, unit| self.contents.encrypt(iv, unit));
    }

    /// The reverse of [`FileKey::encrypt`].
    ///
    /// # Panics
    /// As that.
    pub fn decrypt(&self, offset: u64, bytes: &mut [u8]) {
        self.each_unit(offset, bytes, |iv, unit| self.contents.decrypt(iv, unit));
    }

    /// Decrypts `from`, which lies at byte `offset` of the file, to `to`.
    ///
    /// # Panics
    /// As [`FileKey::decrypt`], and if the two differ in length.
    pub fn decrypt_to(&self, offset: u64, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "what is decrypted is as long as before");
        let mut from = from.chunks_exact(1 << self.unit_bits);
        self.each_unit(offset, to, |iv, unit| {
            self.contents.decrypt_to(iv, from.next().expect("as many units"), unit);
        });
    }

    fn each_unit(&self, offset: u64, bytes: &mut [u8], mut step: impl FnMut(&Iv, &mut [u8])) {
        let unit = 1usize << self.unit_bits;
        let whole = offset.is_multiple_of(unit as u64) && bytes.len().is_multiple_of(unit);
        assert!(whole, "contents come in whole data units");
        for (index, unit) in (offset >> self.unit_bits..).zip(bytes.chunks_exact_mut(unit)) {
            step(&self.iv(index), unit);
        }
    }

    /// The encrypted form of a name of this directory, at most 255 bytes.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn encrypt_name(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let size = self.context.policy.name_size(name.len(), NAME_MAX)?;
        Ok(self.encrypt_padded(name, size))
    }

    /// The name behind an encrypted one.
    ///
    /// # Errors
    /// [`Error::NameSize`].
    pub fn decrypt_name(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        if name.len() < NAME_MIN {
            return Err(Error::NameSize(name.len()));
        }
        let mut name = name.to_vec();
        self.names.decrypt(&self.iv(0), &mut name);
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        name.truncate(end);
        Ok(name)
    }

    /// What a symbolic link stores for a target: its length and itself, encrypted; at most
    /// `limit` bytes.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn encrypt_target(&self, target: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
        let size = self.context.policy.target_size(target.len(), limit)?;
        let secret = self.encrypt_padded(target, size - LINK_HEADER);
        let mut stored = (secret.len() as u16).to_le_bytes().to_vec();
        stored.extend(secret);
        Ok(stored)
    }

    /// The target behind what a symbolic link stores.
    ///
    /// # Errors
    /// [`Error::NameSize`].
    pub fn decrypt_target(&self, stored: &[u8]) -> Result<Vec<u8>, Error> {
        self.decrypt_name(stored_target(stored)?)
    }

    fn encrypt_padded(&self, name: &[u8], size: usize) -> Vec<u8> {
        let mut secret = name.to_vec();
        secret.resize(size, 0);
        self.names.encrypt(&self.iv(0), &mut secret);
        secret
    }
}

/// The encrypted target in what a symbolic link stores.
///
/// # Errors
/// [`Error::NameSize`]: it is not there in whole.
pub fn stored_target(stored: &[u8]) -> Result<&[u8], Error> {
    let (len, secret) = stored.split_first_chunk().ok_or(Error::NameSize(stored.len()))?;
    secret.get(..usize::from(u16::from_le_bytes(*len))).ok_or(Error::NameSize(stored.len()))
}

/// The key of a cipher for one inode.
fn derive(master: &MasterKey, context: &Context, fs: &FsIds, mode: Mode) -> Bytes {
    let mut key = Bytes::zeros(mode.key_size());
    let per_mode = |purpose, uuid: &[u8], key: &mut [u8]| {
        let data = [&[mode as u8], uuid].concat();
        master.derive(purpose, &data, key);
    };
    match (context.policy.key, context.policy.iv) {
        (KeyName::Descriptor(_), IvMethod::DirectKey) => {
            key.copy_from_slice(&master.bytes()[..mode.key_size()]);
        }
        (KeyName::Descriptor(_), _) => master.derive_v1(&context.nonce, &mut key),
        (KeyName::Identifier(_), IvMethod::PerFileKey) => {
            master.derive(Purpose::FileKey, &context.nonce, &mut key);
        }
        (_, IvMethod::DirectKey) => per_mode(Purpose::DirectKey, &[], &mut key),
        (_, IvMethod::InoLblk64) => per_mode(Purpose::InoLblk64, &fs.uuid, &mut key),
        (_, IvMethod::InoLblk32) => per_mode(Purpose::InoLblk32, &fs.uuid, &mut key),
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    const FS: FsIds = FsIds { uuid: [3; 16], block_bits: 12 };

    fn master() -> MasterKey {
        MasterKey::new((0..64).collect()).unwrap()
    }

    fn every_policy() -> Vec<Policy> {
        let key = master();
        let two = Policy::new(key.identifier());
        let one = Policy { key: KeyName::Descriptor(key.descriptor()), ..two };
        let adiantum = |p| Policy { contents: Mode::Adiantum, names: Mode::Adiantum, ..p };
        let aes128 = |p| Policy { contents: Mode::Aes128Cbc, names: Mode::Aes128Cts, ..p };
        vec![
            one,
            aes128(one),
            adiantum(one),
            Policy { iv: IvMethod::DirectKey, ..adiantum(one) },
            two,
            aes128(two),
            adiantum(two),
            Policy { names: Mode::Aes256Hctr2, padding: 4, ..two },
            Policy { iv: IvMethod::DirectKey, ..adiantum(two) },
            Policy { iv: IvMethod::InoLblk64, ..two },
            Policy { iv: IvMethod::InoLblk32, padding: 16, ..two },
            Policy { data_unit_bits: Some(9), ..two },
        ]
    }

    #[test]
    fn every_policy_reads_what_it_writes() {
        for policy in every_policy() {
            policy.check().unwrap();
            let context = Context { policy, nonce: [5; 16] };
            assert_eq!(Context::parse(&context.emit()), Ok(context));
            let key = FileKey::new(&master(), &context, &FS, 12).unwrap();
            let plain: Vec<u8> = (0..8192u32).map(|n| (n % 251) as u8).collect();
            let mut bytes = plain.clone();
            key.encrypt(4096, &mut bytes);
            assert_ne!(bytes, plain, "{policy:?}");
            assert_ne!(bytes[..4096], bytes[4096..]);
            key.decrypt(4096, &mut bytes);
            assert_eq!(bytes, plain, "{policy:?}");
            for len in [1, 3, 16, 17, 32, 63, 254, 255] {
                let name = vec![b'n'; len];
                let secret = key.encrypt_name(&name).unwrap();
                let padded = len.next_multiple_of(policy.padding).clamp(16, 255);
                assert_eq!(secret.len(), padded);
                assert_eq!(key.decrypt_name(&secret).unwrap(), name, "{policy:?}");
                let stored = key.encrypt_target(&name, 4096).unwrap();
                assert_eq!(key.decrypt_target(&stored).unwrap(), name);
            }
        }
    }

    #[test]
    fn names_and_keys_that_do_not_fit_are_refused() {
        let context = Context { policy: Policy::new(master().identifier()), nonce: [5; 16] };
        let key = FileKey::new(&master(), &context, &FS, 12).unwrap();
        assert_eq!(key.encrypt_name(&[b'n'; 256]), Err(Error::TooLong(256)));
        assert_eq!(key.decrypt_name(&[0; 15]), Err(Error::NameSize(15)));
        assert_eq!(key.decrypt_target(&[40, 0, 1, 2]), Err(Error::NameSize(4)));
        assert_eq!(key.decrypt_target(&[40]), Err(Error::NameSize(1)));
        assert_eq!(key.encrypt_target(&[b't'; 4094], 4096), Err(Error::TooLong(4094)));
        assert_eq!(key.encrypt_target(&[b't'; 4093], 4096).unwrap().len(), 4095);
        let short = MasterKey::new(vec![1; 16]).unwrap();
        let too_short = FileKey::new(&short, &context, &FS, 12).unwrap_err();
        assert_eq!(too_short, Error::KeyTooShort { found: 16, needed: 32 });
        assert_eq!(MasterKey::new(vec![1; 15]).unwrap_err(), Error::KeySize(15));
        let policy = Policy { data_unit_bits: Some(13), ..context.policy };
        let wrong = FileKey::new(&master(), &Context { policy, ..context }, &FS, 12).unwrap_err();
        assert!(matches!(wrong, Error::DataUnit { log2: 13, .. }));
    }

    #[test]
    fn no_output_has_bytes_of_a_key() {
        let context = Context { policy: Policy::new(master().identifier()), nonce: [5; 16] };
        let key = FileKey::new(&master(), &context, &FS, 12).unwrap();
        let text = format!("{:?} {key:?}", master());
        for bytes in ["0, 1, 2, 3", "00010203", "[5, 5", "0505"] {
            assert!(!text.contains(bytes), "{text}");
        }
    }

    /// The identifier that Linux 6.18 gives the key of the bytes 0 to 63.
    #[test]
    fn the_identifier_is_linuxs() {
        let identifier = KeyName::Identifier(master().identifier());
        assert_eq!(identifier.to_string(), "8699c2c53707405da5aba5ae4d8583c0");
    }
}
