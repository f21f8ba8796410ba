//! fs-verity: the Merkle tree of a file's content, and its descriptor.
//!
//! The content is cut into blocks, the last one filled up with zeros, and each is hashed. The
//! hashes fill blocks of the first level, those are hashed into the next one, until one hash is
//! left. Behind the file's end, at the next multiple of 64 KiB, lie the levels, that of the root
//! first; then, in a new block, the descriptor with the signature; the last four bytes of the last
//! block say how long both are.
//!
//! Source: kernel `Documentation/filesystems/fsverity.rst` and `ext4/verity.rst`; fsverity(1) and
//! Linux 7.2 compute the same digests.

use sha2::{Digest, Sha256, Sha512};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{U32, U64, assert_layout};

/// The tree begins at a multiple of this many bytes.
const TREE_ALIGN: u64 = 65536;
/// The longest salt, and the longest signature.
const SALT_MAX: usize = 32;
pub(crate) const SIGNATURE_MAX: usize = 16128;
/// The longest descriptor, with its signature.
const DESCRIPTOR_MAX: usize = 256 + SIGNATURE_MAX;
/// The most levels that a tree has.
const LEVELS_MAX: usize = 8;

/// A hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HashAlg {
    /// SHA-256.
    #[default]
    Sha256 = 1,
    /// SHA-512.
    Sha512 = 2,
}

impl HashAlg {
    /// Its name: `sha256` or `sha512`.
    pub fn name(self) -> &'static str {
        match self {
            HashAlg::Sha256 => "sha256",
            HashAlg::Sha512 => "sha512",
        }
    }

    /// Bytes of a hash.
    pub fn size(self) -> usize {
        match self {
            HashAlg::Sha256 => 32,
            HashAlg::Sha512 => 64,
        }
    }
}

impl std::str::FromStr for HashAlg {
    type Err = String;

    fn from_str(name: &str) -> Result<HashAlg, String> {
        let known = [HashAlg::Sha256, HashAlg::Sha512].into_iter().find(|alg| alg.name() == name);
        known.ok_or_else(|| format!("unknown hash algorithm {name}: not sha256 or sha512"))
    }
}

/// How a file is hashed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerityParams {
    /// The hash.
    pub alg: HashAlg,
    /// Bytes of a block of the tree: a power of two, at least 1,024.
    pub block_size: u32,
    /// At most 32 bytes, hashed before every block.
    pub salt: Vec<u8>,
}

impl Default for VerityParams {
    fn default() -> VerityParams {
        VerityParams { alg: HashAlg::Sha256, block_size: 4096, salt: Vec::new() }
    }
}

/// What is wrong with parameters or a descriptor.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message says it")]
pub enum VerityError {
    #[error("version {0} of the verity descriptor is not 1")]
    Version(u8),
    #[error("hash algorithm {0} of verity is not known: 1 is SHA-256, 2 SHA-512")]
    Algorithm(u8),
    #[error("block size {0} of verity is not a power of two from 1024 to {1}")]
    BlockSize(u64, u32),
    #[error("salt of verity has {0} bytes, more than 32")]
    Salt(usize),
    #[error("signature of verity has {0} bytes, more than 16128")]
    Signature(usize),
    #[error("verity was enabled on {found} bytes, the file has {size}")]
    DataSize { found: u64, size: u64 },
    #[error("the verity tree overlaps its descriptor")]
    Overlap,
    #[error("verity descriptor of {0} bytes is not there")]
    Descriptor(u32),
}

impl VerityParams {
    /// Are they possible in a file system with blocks of `limit` bytes?
    ///
    /// # Errors
    /// Which one is not.
    pub fn check(&self, limit: u32) -> Result<(), VerityError> {
        let size = self.block_size;
        if !size.is_power_of_two() || !(1024..=limit).contains(&size) {
            return Err(VerityError::BlockSize(size.into(), limit));
        }
        if self.salt.len() > SALT_MAX {
            return Err(VerityError::Salt(self.salt.len()));
        }
        Ok(())
    }

    /// The hash of a block.
    pub fn hash(&self, block: &[u8]) -> Vec<u8> {
        match self.alg {
            HashAlg::Sha256 => self.salted::<Sha256>(64, block),
            HashAlg::Sha512 => self.salted::<Sha512>(128, block),
        }
    }

    fn salted<D: Digest>(&self, unit: usize, block: &[u8]) -> Vec<u8> {
        let mut digest = D::new();
        if !self.salt.is_empty() {
            let mut salt = [0; 128];
            salt[..self.salt.len()].copy_from_slice(&self.salt);
            digest.update(&salt[..unit]);
        }
        digest.update(block);
        digest.finalize().to_vec()
    }

    fn per_block(&self) -> u64 {
        u64::from(self.block_size) / self.alg.size() as u64
    }
}

/// The descriptor as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
struct RawDescriptor {
    version: u8,
    hash_algorithm: u8,
    log_blocksize: u8,
    salt_size: u8,
    sig_size: U32,
    data_size: U64,
    root_hash: [u8; 64],
    salt: [u8; SALT_MAX],
    reserved: [u8; 144],
}

assert_layout!(RawDescriptor, 256, sig_size @ 4, data_size @ 8, root_hash @ 16, salt @ 80);

/// What is known of a file with verity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// How it is hashed.
    pub params: VerityParams,
    /// Bytes of the content.
    pub data_size: u64,
    /// The hash at the root of the tree.
    pub root_hash: Vec<u8>,
    /// The built-in signature, which nobody checks here; empty where there is none.
    pub signature: Vec<u8>,
}

impl Descriptor {
    /// Reads a descriptor with what follows it; blocks have at most `limit` bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8], limit: u32) -> Result<Descriptor, VerityError> {
        let len = bytes.len() as u32;
        let (raw, rest) =
            RawDescriptor::read_from_prefix(bytes).map_err(|_| VerityError::Descriptor(len))?;
        if raw.version != 1 {
            return Err(VerityError::Version(raw.version));
        }
        let alg = match raw.hash_algorithm {
            1 => HashAlg::Sha256,
            2 => HashAlg::Sha512,
            other => return Err(VerityError::Algorithm(other)),
        };
        let block_size = 1u64.checked_shl(raw.log_blocksize.into()).unwrap_or(0);
        let block_size =
            u32::try_from(block_size).map_err(|_| VerityError::BlockSize(block_size, limit))?;
        let salt = raw.salt.get(..raw.salt_size.into());
        let salt = salt.ok_or(VerityError::Salt(raw.salt_size.into()))?.to_vec();
        let size = raw.sig_size.get() as usize;
        let signature = rest.get(..size).filter(|_| size <= SIGNATURE_MAX);
        let params = VerityParams { alg, block_size, salt };
        params.check(limit)?;
        Ok(Descriptor {
            data_size: raw.data_size.get(),
            root_hash: raw.root_hash[..alg.size()].to_vec(),
            signature: signature.ok_or(VerityError::Signature(size))?.to_vec(),
            params,
        })
    }

    /// The bytes of the descriptor and of the signature behind it.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = self.raw(self.signature.len() as u32).as_bytes().to_vec();
        bytes.extend(&self.signature);
        bytes
    }

    fn raw(&self, sig_size: u32) -> RawDescriptor {
        let mut raw = RawDescriptor {
            version: 1,
            hash_algorithm: self.params.alg as u8,
            log_blocksize: self.params.block_size.trailing_zeros() as u8,
            salt_size: self.params.salt.len() as u8,
            sig_size: U32::new(sig_size),
            data_size: U64::new(self.data_size),
            root_hash: [0; 64],
            salt: [0; SALT_MAX],
            reserved: [0; 144],
        };
        raw.root_hash[..self.root_hash.len()].copy_from_slice(&self.root_hash);
        raw.salt[..self.params.salt.len()].copy_from_slice(&self.params.salt);
        raw
    }

    /// The digest of the file: that of the descriptor without its signature.
    pub fn digest(&self) -> Vec<u8> {
        let params = VerityParams { salt: Vec::new(), ..self.params.clone() };
        params.hash(self.raw(0).as_bytes())
    }

    /// The digest as fsverity(1) prints it: `sha256:` and hexadecimal digits.
    pub fn digest_text(&self) -> String {
        let digits: String = self.digest().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}:{digits}", self.params.alg.name())
    }
}

/// Where the blocks of a tree lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    /// From the lowest level on: its first byte in the tree, and its blocks.
    levels: Vec<Level>,
    /// Bytes of the tree.
    pub size: u64,
}

/// One level of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// Its first byte in the tree.
    pub start: u64,
    /// How many blocks it has.
    pub blocks: u64,
}

impl Levels {
    /// Those of the tree over `size` bytes; `None` where they are more than a tree can have.
    pub fn new(params: &VerityParams, size: u64) -> Option<Levels> {
        let mut counts = Vec::new();
        let mut blocks = size.div_ceil(params.block_size.into());
        while blocks > 1 {
            blocks = blocks.div_ceil(params.per_block());
            counts.push(blocks);
        }
        let mut levels = Vec::new();
        let mut start = 0u64;
        for &blocks in counts.iter().rev() {
            levels.insert(0, Level { start, blocks });
            start = start.checked_add(blocks.checked_mul(params.block_size.into())?)?;
        }
        (levels.len() <= LEVELS_MAX).then_some(Levels { levels, size: start })
    }

    /// A level, counted from the lowest one; `None` above the root.
    pub fn get(&self, level: usize) -> Option<Level> {
        self.levels.get(level).copied()
    }
}

/// The first byte of the tree of a file of `size` bytes.
pub fn tree_start(size: u64) -> u64 {
    size.next_multiple_of(TREE_ALIGN)
}

/// Why a descriptor was not found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocateError<E> {
    /// What there is is damaged.
    Verity(VerityError),
    /// It could not be read.
    Read(E),
}

impl<E> From<VerityError> for LocateError<E> {
    fn from(error: VerityError) -> LocateError<E> {
        LocateError::Verity(error)
    }
}

/// Finds the descriptor of a file of `size` bytes whose last block of `block` bytes ends at byte
/// `end`; `read` gives bytes of the file from a place on.
///
/// # Errors
/// It is damaged; those of `read`.
pub fn locate<E>(
    size: u64,
    block: u32,
    end: u64,
    mut read: impl FnMut(u64, usize) -> Result<Vec<u8>, E>,
) -> Result<(Descriptor, Levels), LocateError<E>> {
    let start = tree_start(size);
    if end < start + u64::from(block) {
        return Err(VerityError::Descriptor(0).into());
    }
    let len = read(end - 4, 4).map_err(LocateError::Read)?;
    let len = len.try_into().map_or(0, u32::from_le_bytes);
    let place =
        (end - 4).checked_sub(len.into()).map(|at| at / u64::from(block) * u64::from(block));
    let place = place.filter(|&at| at >= start && len as usize <= DESCRIPTOR_MAX);
    let place = place.ok_or(VerityError::Descriptor(len))?;
    let bytes = read(place, len as usize).map_err(LocateError::Read)?;
    let descriptor = Descriptor::parse(&bytes, block)?;
    if descriptor.data_size != size {
        let found = descriptor.data_size;
        return Err(VerityError::DataSize { found, size }.into());
    }
    let levels = Levels::new(&descriptor.params, size);
    let levels = levels.filter(|levels| start + levels.size <= place);
    Ok((descriptor, levels.ok_or(VerityError::Overlap)?))
}

/// The tree over some content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The blocks of all levels as they lie on the disk.
    pub bytes: Vec<u8>,
    /// The hash at the root.
    pub root_hash: Vec<u8>,
}

/// Builds the tree over `size` bytes, of which `read` gives the next ones. It is held in memory as
/// a whole: a 127th of the content with the usual parameters.
///
/// # Errors
/// Those of `read`.
pub fn build<E>(
    params: &VerityParams,
    size: u64,
    mut read: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<Tree, E> {
    let block_size = params.block_size as usize;
    if size == 0 {
        return Ok(Tree { bytes: Vec::new(), root_hash: vec![0; params.alg.size()] });
    }
    let (mut hashes, mut block, mut left) = (Vec::new(), vec![0; block_size], size);
    while left > 0 {
        let len = left.min(block_size as u64) as usize;
        read(&mut block[..len])?;
        block[len..].fill(0);
        hashes.extend(params.hash(&block));
        left -= len as u64;
    }
    let mut levels = Vec::new();
    while hashes.len() > params.alg.size() {
        hashes.resize(hashes.len().next_multiple_of(block_size), 0);
        let above = hashes.chunks(block_size).flat_map(|block| params.hash(block)).collect();
        levels.push(std::mem::replace(&mut hashes, above));
    }
    Ok(Tree { bytes: levels.into_iter().rev().flatten().collect(), root_hash: hashes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(params: VerityParams, data: &[u8]) -> String {
        let mut rest = data;
        let tree = build(&params, data.len() as u64, |part| {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
            Ok::<(), ()>(())
        });
        let tree = tree.expect("no error");
        let levels = Levels::new(&params, data.len() as u64).expect("few levels");
        assert_eq!(levels.size, tree.bytes.len() as u64);
        let (root_hash, data_size) = (tree.root_hash, data.len() as u64);
        let descriptor = Descriptor { params, data_size, root_hash, signature: vec![7; 5] };
        assert_eq!(Descriptor::parse(&descriptor.emit(), 65536), Ok(descriptor.clone()));
        descriptor.digest_text()
    }

    #[test]
    fn an_empty_file_has_the_digest_of_fsverity() {
        let text = digest(VerityParams::default(), &[]);
        assert!(text.starts_with("sha256:3d248ca5") && text.ends_with("af95"), "{text}");
    }

    #[test]
    fn trees_of_every_depth_have_the_size_that_their_levels_say() {
        for alg in [HashAlg::Sha256, HashAlg::Sha512] {
            let params = VerityParams { alg, block_size: 1024, salt: vec![0xaa; 5] };
            for size in [1, 1024, 1025, 32 << 10, (32 << 10) + 1, 1 << 20, (1 << 20) + 1] {
                digest(params.clone(), &vec![3; size]);
            }
        }
    }

    #[test]
    fn damaged_descriptors_are_refused() {
        let descriptor = Descriptor {
            params: VerityParams::default(),
            data_size: 1,
            root_hash: vec![1; 32],
            signature: Vec::new(),
        };
        let good = descriptor.emit();
        for (at, value) in [(0, 2), (1, 3), (2, 9), (2, 17), (2, 70), (3, 33), (4, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(Descriptor::parse(&bytes, 65536).is_err(), "byte {at} = {value}");
        }
        assert!(Descriptor::parse(&good[..255], 65536).is_err());
        assert!(Descriptor::parse(&good, 2048).is_err());
    }
}
