//! The ciphers, each in place over one data unit or one name.

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt};
use aes::cipher::{BlockSizeUser, InnerIvInit, KeyInit};
use aes::{Aes128, Aes256};
use base::Locked;
use chacha20::XChaCha12;
use cts::{CbcCs3, Decrypt, Encrypt};
use hctr2_rs::Hctr2_256;
use sha2::{Digest, Sha256};

use crate::Mode;
use crate::xts::{Xts, blocks_of};

/// Bytes of the longest initialization vector; a cipher takes the first ones that it needs.
pub(crate) const IV_SIZE: usize = 32;
pub(crate) type Iv = [u8; IV_SIZE];

type Block = Array<u8, U16>;

/// A cipher with its key.
pub(crate) enum Cipher {
    Xts(Locked<Xts<Aes256>>),
    Cts256(Locked<Aes256>),
    Cts128(Locked<Aes128>),
    Cbc128(Locked<Cbc>),
    Adiantum(Locked<adiantum::Cipher<XChaCha12, Aes256>>),
    Hctr2(Locked<Hctr2_256>),
}

/// AES-128-CBC whose vectors are encrypted numbers (ESSIV).
pub(crate) struct Cbc {
    data: Aes128,
    iv: Aes256,
}

impl Cipher {
    /// A cipher with a key of [`Mode::key_size`] bytes.
    pub fn new(mode: Mode, key: &[u8]) -> Cipher {
        assert_eq!(key.len(), mode.key_size(), "the key has the length of its cipher");
        let aes256 = |key: &[u8]| Aes256::new_from_slice(key).expect("32 bytes");
        let aes128 = |key: &[u8]| Aes128::new_from_slice(key).expect("16 bytes");
        match mode {
            Mode::Aes256Xts => {
                Cipher::Xts(Locked::new(Xts::new(aes256(&key[..32]), aes256(&key[32..]))))
            }
            Mode::Aes256Cts => Cipher::Cts256(Locked::new(aes256(key))),
            Mode::Aes128Cts => Cipher::Cts128(Locked::new(aes128(key))),
            Mode::Aes128Cbc => {
                let iv = aes256(&Sha256::digest(key));
                Cipher::Cbc128(Locked::new(Cbc { data: aes128(key), iv }))
            }
            Mode::Adiantum => {
                let key = Array::try_from(key).expect("32 bytes");
                Cipher::Adiantum(Locked::new(adiantum::Cipher::new(&key)))
            }
            Mode::Aes256Hctr2 => Cipher::Hctr2(Locked::new(Hctr2_256::new(key))),
        }
    }

    /// Encrypts at least 16 bytes; XTS and CBC take multiples of 16.
    pub fn encrypt(&self, iv: &Iv, bytes: &mut [u8]) {
        match self {
            Cipher::Xts(xts) => xts.encrypt(first_block(iv).into(), bytes),
            Cipher::Cts256(aes) => cts_encrypt(&**aes, iv, bytes),
            Cipher::Cts128(aes) => cts_encrypt(&**aes, iv, bytes),
            Cipher::Cbc128(cbc) => {
                let (iv, blocks) = (cbc.iv(iv), blocks_of(bytes));
                cbc::Encryptor::inner_iv_init(&cbc.data, &iv).encrypt_blocks(blocks);
            }
            Cipher::Adiantum(cipher) => cipher.encrypt(bytes, iv),
            Cipher::Hctr2(cipher) => {
                let plain = zeroize::Zeroizing::new(bytes.to_vec());
                cipher.encrypt(&plain, iv, bytes).expect("at least 16 bytes");
            }
        }
    }

    /// The reverse of [`Cipher::encrypt`].
    pub fn decrypt(&self, iv: &Iv, bytes: &mut [u8]) {
        match self {
            Cipher::Xts(xts) => xts.decrypt(first_block(iv).into(), bytes),
            Cipher::Cts256(aes) => cts_decrypt(&**aes, iv, bytes),
            Cipher::Cts128(aes) => cts_decrypt(&**aes, iv, bytes),
            Cipher::Cbc128(cbc) => {
                let (iv, blocks) = (cbc.iv(iv), blocks_of(bytes));
                cbc::Decryptor::inner_iv_init(&cbc.data, &iv).decrypt_blocks(blocks);
            }
            Cipher::Adiantum(cipher) => cipher.decrypt(bytes, iv),
            Cipher::Hctr2(cipher) => {
                let secret = bytes.to_vec();
                cipher.decrypt(&secret, iv, bytes).expect("at least 16 bytes");
            }
        }
    }

    /// Decrypts `from` to `to`, which is as long.
    pub fn decrypt_to(&self, iv: &Iv, from: &[u8], to: &mut [u8]) {
        match self {
            Cipher::Xts(xts) => xts.decrypt_to(first_block(iv).into(), from, to),
            _ => {
                to.copy_from_slice(from);
                self.decrypt(iv, to);
            }
        }
    }
}

impl Cbc {
    fn iv(&self, iv: &Iv) -> Block {
        let mut block = first_block(iv);
        self.iv.encrypt_block(&mut block);
        block
    }
}

fn first_block(iv: &Iv) -> Block {
    Block::try_from(&iv[..16]).expect("16 bytes")
}

/// CBC-CTS in the form that always swaps the last two blocks (CS3). A single block is plain CBC,
/// as Linux has it; the crate `cts` makes something else of one.
fn cts_encrypt<C>(aes: &C, iv: &Iv, bytes: &mut [u8])
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut iv = first_block(iv);
    match <[u8; 16]>::try_from(&*bytes) {
        Ok(block) => {
            iv.iter_mut().zip(block).for_each(|(iv, byte)| *iv ^= byte);
            aes.encrypt_block(&mut iv);
            bytes.copy_from_slice(&iv);
        }
        Err(_) => CbcCs3::inner_iv_init(aes, &iv).encrypt(bytes).expect("at least 16 bytes"),
    }
}

fn cts_decrypt<C>(aes: &C, iv: &Iv, bytes: &mut [u8])
where
    C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let iv = first_block(iv);
    match <[u8; 16]>::try_from(&*bytes) {
        Ok(block) => {
            let mut block = Block::from(block);
            aes.decrypt_block(&mut block);
            block.iter().zip(iv).zip(bytes).for_each(|((byte, iv), to)| *to = byte ^ iv);
        }
        Err(_) => CbcCs3::inner_iv_init(aes, &iv).decrypt(bytes).expect("at least 16 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xts_is_that_of_another_library() {
        let key: Vec<u8> = (0..64).map(|n| n * 3).collect();
        let other = xts_mode::Xts128::new(
            Aes256::new_from_slice(&key[..32]).unwrap(),
            Aes256::new_from_slice(&key[32..]).unwrap(),
        );
        let ours = Cipher::new(Mode::Aes256Xts, &key);
        for (index, len) in
            [(0u64, 16), (1, 256), (77, 272), (3, 1040), (u64::MAX, 4096), (5, 65536)]
        {
            let plain: Vec<u8> = (0..len).map(|n| (n % 253) as u8).collect();
            let mut iv = [0; IV_SIZE];
            iv[..8].copy_from_slice(&index.to_le_bytes());
            let (mut mine, mut theirs) = (plain.clone(), plain.clone());
            ours.encrypt(&iv, &mut mine);
            other.encrypt_sector(&mut theirs, first_block(&iv));
            assert_eq!(mine, theirs, "unit {index} of {len} bytes");
            ours.decrypt(&iv, &mut mine);
            assert_eq!(mine, plain);
            ours.decrypt_to(&iv, &theirs, &mut mine);
            assert_eq!(mine, plain);
        }
    }

    /// Goal: HCTR2 is that of its authors. Method: some of their vectors with tweaks of 32 bytes,
    /// as names have: key, tweak, plain, secret (github.com/google/hctr2, HCTR2_AES256.json;
    /// Copyright 2021 Google LLC, MIT licence).
    #[test]
    fn hctr2_is_that_of_its_authors() {
        let bytes = |hex: &str| -> Vec<u8> {
            let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(digits).collect()
        };
        for row in [
            [
                "9ecb0e037c3640d651b549b29126c9002caeeba227f45c4e8df8013f6cf44044",
                "88d201c53fe3be47394445b88d3c2dc26a9cd0a53472ce2d15196a8b19d605cc",
                "3e3c7d7fecfc668289fc6f0a409d1c0eab",
                "e92650f84d3253a4db5bfe1ef6ad690094",
            ],
            [
                "362b5797f85dcd995f1a5a441d920f27cc16d72b856399d3ba96a1dbd26068da",
                "ef5869b12c5e9a4724c1b169e112938f433d6d00db5ed8d9129afed9ff2daac4",
                "5ea8681985981223260accdb0a04b9df4db3487bb0e3c819435a4606942df2",
                "dbfdc803d0ecc1febd6437b88243624e7e54a3e224a727e8a4d5b36cb226b4",
            ],
            [
                "0365036e4de6e84e8bbe22194831eed9a09121be6289de78d9b036a33cce43d5",
                "a9c34be70ffc6dbf5627211cfcd604105f43e23035296c1090f1bf61ed0f8a91",
                "07aa0226b498115e3341215151632c7200ab32a71cc83c9c250e8b9adf85ed2d\
                f4f2bc55ca926d22fd223b424c0b74ec",
                "7bb1436dd8726cf6676a00c4f1f0f5a4fc6091ab460b15fcd7c12815a1fcf768\
                8ecc276200645672a617d73f67801058",
            ],
            [
                "f49c832e65ef9646e31877d147b82b11c00355f18678cf7965bdd80896282eba",
                "863653c24782e2d6d8aeb50b54fb220f9a34f3c72722f9f3105cbbe16f7ee449",
                "546e4ac2a9a90f90fbd0d6f349cda1f98750cf1b2e6e022e77d405336bfd8914\
                091de5732772eae5ae36dfabc7b21fdfcaf9c65b43ebaf152209e5d31d251bc4\
                75c3267c49d5940232bbc6be23c64e7cab083d876d0a1b8c6bfffa6ab74bec7b\
                3f1370d9ffeec7a9d2339f408f8c7567129e4c1aa6560dbe97b8d2bc98b09e9c",
                "8b527159ad072049a986bd675497a58ae9ea755b8b6da53fb6784a3c6e8853b7\
                788e9b7b50a78b8d754829bb0992234c929044605323cd61c5943448398d82fe\
                500c935007b86ce473c22fb009dea36ea350bc6cbf23b51f16547bada64af4ff\
                01490ecb424b1c600e01e8a52bf0a514d555fa1ec9375bcaa47a3c0df51ddf4f",
            ],
        ] {
            let [key, tweak, plain, secret] = row.map(bytes);
            let cipher = Cipher::new(Mode::Aes256Hctr2, &key);
            let tweak = Iv::try_from(&tweak[..]).unwrap();
            let mut bytes = plain.clone();
            cipher.encrypt(&tweak, &mut bytes);
            assert_eq!(bytes, secret, "{} bytes", plain.len());
            cipher.decrypt(&tweak, &mut bytes);
            assert_eq!(bytes, plain);
        }
    }
}
