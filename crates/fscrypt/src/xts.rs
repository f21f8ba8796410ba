//! XTS over whole blocks of 16 bytes, for files here and for sectors of encrypted volumes.
//!
//! All of it runs inside the cipher's backend, which is compiled for the instructions of the
//! processor that was found at run time: up to 64 blocks side by side with AVX-512, and the loops
//! below over as many bytes as its registers have. (The crate `xts-mode` does one block after the
//! other, at a sixth of the speed; the tests compare with it.)

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt};
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt};
use aes::cipher::{BlockSizeUser, ParBlocks};

/// Blocks whose tweaks are made at once: those that the widest backend takes at once. More would
/// cost more in clearing the memory of short units.
const LANES: usize = 64;
/// Tweaks that are made side by side, each from the one so many before it.
const CHAINS: usize = 8;

type Block = Array<u8, U16>;

/// A block cipher in mode XTS, with its two keys.
pub struct Xts<C> {
    data: C,
    tweak: C,
}

impl<C> Xts<C>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    /// The cipher with its first key, and with its second.
    pub fn new(data: C, tweak: C) -> Xts<C> {
        Xts { data, tweak }
    }

    /// Encrypts a data unit in place.
    ///
    /// # Panics
    /// If it is no multiple of 16 bytes.
    pub fn encrypt(&self, iv: [u8; 16], bytes: &mut [u8]) {
        self.data.encrypt_with_backend(Unit { tweak: self.tweak(iv), from: None, to: bytes });
    }

    /// The reverse of [`Xts::encrypt`].
    ///
    /// # Panics
    /// If it is no multiple of 16 bytes.
    pub fn decrypt(&self, iv: [u8; 16], bytes: &mut [u8]) {
        self.data.decrypt_with_backend(Unit { tweak: self.tweak(iv), from: None, to: bytes });
    }

    /// Decrypts the data unit `from` to `to`.
    ///
    /// # Panics
    /// If it is no multiple of 16 bytes, or `to` is shorter or longer.
    pub fn decrypt_to(&self, iv: [u8; 16], from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "what is decrypted is as long as before");
        self.data.decrypt_with_backend(Unit { tweak: self.tweak(iv), from: Some(from), to });
    }

    /// The tweak of the first block.
    fn tweak(&self, iv: [u8; 16]) -> u128 {
        let mut tweak = Block::from(iv);
        self.tweak.encrypt_block(&mut tweak);
        u128::from_le_bytes(tweak.into())
    }
}

/// A data unit on its way through the cipher.
struct Unit<'a, 'b> {
    /// The first block's.
    tweak: u128,
    /// Where it comes from; `None` in place.
    from: Option<&'a [u8]>,
    to: &'b mut [u8],
}

impl BlockSizeUser for Unit<'_, '_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Unit<'_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.apply(|blocks| {
            let (many, rest) = ParBlocks::<B>::slice_as_chunks_mut(blocks);
            many.iter_mut().for_each(|blocks| backend.encrypt_par_blocks_inplace(blocks));
            backend.encrypt_tail_blocks_inplace(rest);
        });
    }
}

impl BlockCipherDecClosure for Unit<'_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.apply(|blocks| {
            let (many, rest) = ParBlocks::<B>::slice_as_chunks_mut(blocks);
            many.iter_mut().for_each(|blocks| backend.decrypt_par_blocks_inplace(blocks));
            backend.decrypt_tail_blocks_inplace(rest);
        });
    }
}

impl Unit<'_, '_> {
    /// Block for block: the tweak is added, the cipher's `step` made, the tweak added.
    #[inline(always)]
    fn apply(self, step: impl Fn(&mut [Block])) {
        let mut chains = Chains::new(self.tweak);
        let mut tweaks = [Block::default(); LANES];
        for (index, to) in self.to.chunks_mut(LANES * 16).enumerate() {
            let tweaks = &mut tweaks[..to.len() / 16];
            chains.next(tweaks);
            let tweaks = Block::slice_as_flattened(tweaks);
            match self.from {
                Some(from) => add_to(&from[index * LANES * 16..][..to.len()], tweaks, to),
                None => add(to, tweaks),
            }
            step(blocks_of(to));
            add(to, tweaks);
        }
    }
}

#[inline(always)]
fn add(bytes: &mut [u8], tweaks: &[u8]) {
    for (byte, tweak) in bytes.iter_mut().zip(tweaks) {
        *byte ^= tweak;
    }
}

#[inline(always)]
fn add_to(from: &[u8], tweaks: &[u8], to: &mut [u8]) {
    for ((to, from), tweak) in to.iter_mut().zip(from).zip(tweaks) {
        *to = from ^ tweak;
    }
}

/// The tweaks to come, their halves apart: so a processor makes [`CHAINS`] of them at once.
struct Chains {
    low: [u64; LANES + CHAINS],
    high: [u64; LANES + CHAINS],
}

impl Chains {
    #[inline(always)]
    fn new(mut tweak: u128) -> Chains {
        let mut new = Chains { low: [0; LANES + CHAINS], high: [0; LANES + CHAINS] };
        for (low, high) in new.low.iter_mut().zip(&mut new.high).take(CHAINS) {
            (*low, *high) = (tweak as u64, (tweak >> 64) as u64);
            // Times x in the field of 2^128 elements.
            tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
        }
        new
    }

    /// The next tweaks, [`LANES`] at the most.
    #[inline(always)]
    fn next(&mut self, tweaks: &mut [Block]) {
        let (low, high) = (&mut self.low, &mut self.high);
        let len = tweaks.len().min(LANES);
        for at in 0..len {
            // Times x^8: what leaves at the top comes in below, times x^7 + x^2 + x + 1.
            let over = high[at] >> 56;
            high[at + CHAINS] = high[at] << 8 | low[at] >> 56;
            low[at + CHAINS] = low[at] << 8 ^ over ^ over << 1 ^ over << 2 ^ over << 7;
        }
        for ((tweak, low), high) in tweaks.iter_mut().zip(&*low).zip(&*high) {
            tweak[..8].copy_from_slice(&low.to_le_bytes());
            tweak[8..].copy_from_slice(&high.to_le_bytes());
        }
        low.copy_within(len..len + CHAINS, 0);
        high.copy_within(len..len + CHAINS, 0);
    }
}

/// The bytes in blocks.
///
/// # Panics
/// If they are no multiple of 16: data units are.
pub(crate) fn blocks_of(bytes: &mut [u8]) -> &mut [Block] {
    let (blocks, rest) = Block::slice_as_chunks_mut(bytes);
    assert!(rest.is_empty(), "data units are whole blocks of the cipher");
    blocks
}
