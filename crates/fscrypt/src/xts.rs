//! XTS over whole blocks of 16 bytes, for files here and for sectors of encrypted volumes.

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser};

/// Blocks whose tweaks are made at once: those of a data unit of 4 KiB. AES instructions work on up
/// to 64 side by side (AVX-512), and the crate `aes` does the rest of a shorter run one by one.
const LANES: usize = 256;

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
        self.apply(iv, bytes, |data, lanes| data.encrypt_blocks(lanes));
    }

    /// The reverse of [`Xts::encrypt`].
    ///
    /// # Panics
    /// If it is no multiple of 16 bytes.
    pub fn decrypt(&self, iv: [u8; 16], bytes: &mut [u8]) {
        self.apply(iv, bytes, |data, lanes| data.decrypt_blocks(lanes));
    }

    /// Blocks are independent of each other, so that many go through the processor's pipeline at
    /// once. (The crate `xts-mode` does one after the other, at a fifth of the speed; the tests
    /// compare with it.)
    fn apply(&self, iv: [u8; 16], bytes: &mut [u8], step: impl Fn(&C, &mut [Block])) {
        let mut tweak = Block::from(iv);
        self.tweak.encrypt_block(&mut tweak);
        let mut tweak = u128::from_le_bytes(tweak.into());
        for lanes in blocks_of(bytes).chunks_mut(LANES) {
            let mut tweaks = [0; LANES];
            for each in &mut tweaks[..lanes.len()] {
                *each = tweak;
                // Times x in the field of 2^128 elements.
                tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
            }
            xor(lanes, &tweaks);
            step(&self.data, lanes);
            xor(lanes, &tweaks);
        }
    }
}

fn xor(blocks: &mut [Block], tweaks: &[u128; LANES]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        let value = u128::from_le_bytes((*block).into()) ^ tweak;
        *block = value.to_le_bytes().into();
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
