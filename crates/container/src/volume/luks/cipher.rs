//! The ciphers of sectors: AES in XTS and CBC, with the vectors that dm-crypt makes of numbers.

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser,
    InnerIvInit, KeyInit,
};
use aes::{Aes128, Aes192, Aes256};
use base::Locked;
use fscrypt::Xts;

use super::kdf::Hash;

/// Bytes that a sector number counts, whatever the size of the volume's sectors.
const UNIT: u64 = 512;

/// A cipher with its key, for data units of `unit` bytes.
pub(crate) struct SectorCipher {
    cipher: Box<dyn Mode>,
    vector: Vector,
    unit: usize,
}

/// How a sector number becomes an initialization vector.
enum Vector {
    /// 32 bits, the rest zero.
    Plain,
    /// 64 bits, the rest zero.
    Plain64,
    /// 64 bits, encrypted with a hash of the key.
    Essiv(Box<dyn Encrypts>),
}

/// One data unit in place.
trait Mode: Send + Sync {
    fn encrypt(&self, iv: [u8; 16], bytes: &mut [u8]);
    fn decrypt(&self, iv: [u8; 16], bytes: &mut [u8]);
}

/// A block cipher alone.
trait Encrypts: Send + Sync {
    fn one(&self, block: [u8; 16]) -> [u8; 16];
}

struct Alone<C>(Locked<C>);
struct InXts<C>(Locked<Xts<C>>);
struct InCbc<C>(Locked<C>);

/// AES of one length of keys.
trait Aes:
    BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + Send + Sync + 'static
{
}

impl Aes for Aes128 {}
impl Aes for Aes192 {}
impl Aes for Aes256 {}

impl<C: Aes> Encrypts for Alone<C> {
    fn one(&self, block: [u8; 16]) -> [u8; 16] {
        let mut block = Array::<u8, U16>::from(block);
        self.0.encrypt_block(&mut block);
        block.into()
    }
}

impl<C: Aes> Mode for InXts<C> {
    fn encrypt(&self, iv: [u8; 16], bytes: &mut [u8]) {
        self.0.encrypt(iv, bytes);
    }

    fn decrypt(&self, iv: [u8; 16], bytes: &mut [u8]) {
        self.0.decrypt(iv, bytes);
    }
}

impl<C: Aes> Mode for InCbc<C> {
    fn encrypt(&self, iv: [u8; 16], bytes: &mut [u8]) {
        let (blocks, _) = Array::<u8, U16>::slice_as_chunks_mut(bytes);
        cbc::Encryptor::inner_iv_init(&*self.0, &iv.into()).encrypt_blocks(blocks);
    }

    fn decrypt(&self, iv: [u8; 16], bytes: &mut [u8]) {
        let (blocks, _) = Array::<u8, U16>::slice_as_chunks_mut(bytes);
        cbc::Decryptor::inner_iv_init(&*self.0, &iv.into()).decrypt_blocks(blocks);
    }
}

impl SectorCipher {
    /// The cipher that `spec` names (`aes-xts-plain64`), with a key, for data units of `unit`
    /// bytes, a multiple of 512.
    ///
    /// # Errors
    /// What of it is not supported.
    pub fn new(spec: &str, key: &[u8], unit: u32) -> Result<SectorCipher, String> {
        let other = || format!("the cipher `{spec}`");
        let (name, rest) = spec.split_once('-').ok_or_else(other)?;
        let (mode, vector) = rest.split_once('-').ok_or_else(other)?;
        if name != "aes" {
            return Err(other());
        }
        let cipher = match mode {
            "xts" => xts(key),
            "cbc" => cbc(key),
            _ => return Err(other()),
        };
        let keys = || format!("{}, with a key of {} bytes", other(), key.len());
        let vector = match vector.split_once(':') {
            None if vector == "plain" => Vector::Plain,
            None if vector == "plain64" => Vector::Plain64,
            Some(("essiv", hash)) => {
                let hash: Hash = hash.parse().map_err(|_| other())?;
                Vector::Essiv(alone(&hash.of(&[key])).ok_or_else(other)?)
            }
            _ => return Err(other()),
        };
        Ok(SectorCipher { cipher: cipher.ok_or_else(keys)?, vector, unit: unit as usize })
    }

    /// Bytes of a data unit.
    pub fn unit(&self) -> u64 {
        self.unit as u64
    }

    /// Decrypts whole data units in place; the first one has this number, in units of 512 bytes.
    pub fn decrypt(&self, first: u64, bytes: &mut [u8]) {
        self.each(first, bytes, |iv, unit| self.cipher.decrypt(iv, unit));
    }

    /// Encrypts whole data units in place; the first one has this number, in units of 512 bytes.
    pub fn encrypt(&self, first: u64, bytes: &mut [u8]) {
        self.each(first, bytes, |iv, unit| self.cipher.encrypt(iv, unit));
    }

    fn each(&self, first: u64, bytes: &mut [u8], work: impl Fn([u8; 16], &mut [u8])) {
        let mut number = first;
        for unit in bytes.chunks_exact_mut(self.unit) {
            work(self.vector.of(number), unit);
            number = number.wrapping_add(self.unit as u64 / UNIT);
        }
    }
}

impl Vector {
    fn of(&self, number: u64) -> [u8; 16] {
        let mut iv = [0; 16];
        match self {
            Vector::Plain => iv[..4].copy_from_slice(&(number as u32).to_le_bytes()),
            Vector::Plain64 | Vector::Essiv(_) => iv[..8].copy_from_slice(&number.to_le_bytes()),
        }
        match self {
            Vector::Essiv(cipher) => cipher.one(iv),
            _ => iv,
        }
    }
}

fn xts(key: &[u8]) -> Option<Box<dyn Mode>> {
    let (data, tweak) = key.split_at(key.len() / 2);
    fn of<C: Aes + KeyInit>(data: &[u8], tweak: &[u8]) -> Option<Box<dyn Mode>> {
        let (data, tweak) = (C::new_from_slice(data).ok()?, C::new_from_slice(tweak).ok()?);
        Some(Box::new(InXts(Locked::new(Xts::new(data, tweak)))))
    }
    match key.len() {
        32 => of::<Aes128>(data, tweak),
        64 => of::<Aes256>(data, tweak),
        _ => None,
    }
}

fn cbc(key: &[u8]) -> Option<Box<dyn Mode>> {
    Some(match key.len() {
        16 => Box::new(InCbc(Locked::new(Aes128::new_from_slice(key).ok()?))),
        24 => Box::new(InCbc(Locked::new(Aes192::new_from_slice(key).ok()?))),
        32 => Box::new(InCbc(Locked::new(Aes256::new_from_slice(key).ok()?))),
        _ => return None,
    })
}

fn alone(key: &[u8]) -> Option<Box<dyn Encrypts>> {
    Some(match key.len() {
        16 => Box::new(Alone(Locked::new(Aes128::new_from_slice(key).ok()?))),
        24 => Box::new(Alone(Locked::new(Aes192::new_from_slice(key).ok()?))),
        32 => Box::new(Alone(Locked::new(Aes256::new_from_slice(key).ok()?))),
        _ => return None,
    })
}
