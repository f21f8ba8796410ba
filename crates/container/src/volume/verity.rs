//! dm-verity: a tree of hashes over a device, of which one hash is known from elsewhere.

use std::sync::Arc;

use crate::bytes::{le16, le32, le64, text};
use crate::error::Subject;
use crate::lru::Lru;
use crate::source::{self, Source};
use crate::volume::luks::Hash;
use crate::volume::uuid_text;
use crate::{Error, Fact, Image};

const MAGIC: &[u8] = b"verity\0\0";
/// Bytes of the superblock.
const SIZE: usize = 512;
const SALT_MAX: usize = 256;
/// Blocks of the tree that are kept after they were checked.
const KEPT: usize = 1024;
/// Bytes of a block of data or hashes.
const BLOCKS: std::ops::RangeInclusive<u32> = 512..=64 << 10;

/// What the superblock of a tree says.
#[derive(Clone, Debug)]
pub struct Tree {
    uuid: [u8; 16],
    hash: Hash,
    hash_name: String,
    data_block: u64,
    hash_block: u64,
    blocks: u64,
    salt: Vec<u8>,
    /// First byte of each level on its device, that over the data first.
    levels: Vec<u64>,
    /// Hashes of a block.
    fan: u64,
}

impl Tree {
    /// Reads the superblock at byte `offset` of the device of the hashes.
    ///
    /// # Errors
    /// There is none, it is damaged, or uses what is not supported.
    pub fn read(source: &dyn Source, offset: u64) -> Result<Tree, Error> {
        let subject = Subject { name: source.name().to_owned(), format: "dm-verity" };
        let damaged =
            |at: u64, what: String| subject.damaged(format!("byte {}", offset + at), what);
        let raw = source::read_some(source, offset, SIZE)?;
        if raw.len() < SIZE || !raw.starts_with(MAGIC) {
            return Err(damaged(0, "no superblock of dm-verity".to_owned()));
        }
        let (version, kind) = (le32(&raw, 8), le32(&raw, 12));
        if (version, kind) != (1, 1) {
            return Err(subject.unsupported(format!("version {version}, hash type {kind}"), ""));
        }
        let hash_name = text(raw[32..64].split(|&b| b == 0).next().unwrap_or_default());
        let hash = hash_name.parse().map_err(|what: String| subject.unsupported(what, ""))?;
        let (data_block, hash_block) = (le32(&raw, 64), le32(&raw, 68));
        for (at, size) in [(64, data_block), (68, hash_block)] {
            if !size.is_power_of_two() || !BLOCKS.contains(&size) {
                return Err(damaged(at, format!("blocks of {size} bytes")));
            }
        }
        let (blocks, salt) = (le64(&raw, 72), usize::from(le16(&raw, 80)));
        if blocks == 0 || blocks.checked_mul(data_block.into()).is_none() {
            return Err(damaged(72, format!("{blocks} blocks of data")));
        }
        if salt > SALT_MAX {
            return Err(damaged(80, format!("a salt of {salt} bytes")));
        }
        let mut tree = Tree {
            uuid: raw[16..32].try_into().unwrap_or_default(),
            hash,
            hash_name,
            data_block: data_block.into(),
            hash_block: hash_block.into(),
            blocks,
            salt: raw[88..88 + salt].to_vec(),
            levels: Vec::new(),
            fan: u64::from(hash_block) / hash.len().next_power_of_two() as u64,
        };
        tree.lay(&subject, source, offset)?;
        Ok(tree)
    }

    /// Finds the places of the levels: the highest one comes first, behind the superblock.
    fn lay(&mut self, subject: &Subject, source: &dyn Source, offset: u64) -> Result<(), Error> {
        let (mut counts, mut count) = (Vec::new(), self.blocks);
        while count > 1 && self.fan > 1 {
            count = count.div_ceil(self.fan);
            counts.push(count);
        }
        let mut at = (offset + SIZE as u64).next_multiple_of(self.hash_block);
        for count in counts.iter().rev() {
            self.levels.push(at);
            let end = count.checked_mul(self.hash_block).and_then(|len| at.checked_add(len));
            let what = || format!("a level of {count} blocks at byte {at}");
            let end = end.filter(|&end| end <= source.size());
            at =
                end.ok_or_else(|| subject.damaged(format!("end, byte {}", source.size()), what()))?;
        }
        self.levels.reverse();
        Ok(())
    }

    /// What `info` shows of it.
    pub fn facts(&self) -> Vec<(&'static str, Fact)> {
        vec![
            ("uuid", Fact::from(uuid_text(&self.uuid))),
            ("hash", self.hash_name.as_str().into()),
            ("data_block", self.data_block.into()),
            ("hash_block", self.hash_block.into()),
            ("data_blocks", self.blocks.into()),
        ]
    }

    fn digest(&self, block: &[u8]) -> Vec<u8> {
        self.hash.of(&[&self.salt, block]).to_vec()
    }
}

/// The data of a device, each block of which is checked before it is given out.
///
/// # Errors
/// The root hash has another length, or the device is shorter than the data that the tree covers.
pub fn open(
    data: Arc<dyn Source>,
    hashes: Arc<dyn Source>,
    tree: Tree,
    root: &[u8],
) -> Result<Arc<dyn Image>, Error> {
    let subject = Subject { name: data.name().to_owned(), format: "dm-verity" };
    if root.len() != tree.hash.len() {
        let what = format!("a root hash of {} bytes", root.len());
        let hint = format!("{} has {}", tree.hash_name, tree.hash.len());
        return Err(subject.unsupported(what, hint));
    }
    let size = tree.blocks * tree.data_block;
    if size > data.size() {
        let what = format!("the tree covers {size} bytes");
        return Err(subject.damaged(format!("end, byte {}", data.size()), what));
    }
    let kept = Lru::new(KEPT);
    let verified = Verified { subject, data, hashes, tree, root: root.to_vec(), kept };
    verified.expected(0)?;
    Ok(Arc::new(verified))
}

/// A device with its tree.
struct Verified {
    subject: Subject,
    data: Arc<dyn Source>,
    hashes: Arc<dyn Source>,
    tree: Tree,
    root: Vec<u8>,
    /// Blocks of the tree that were checked, by their places.
    kept: Lru<Arc<Vec<u8>>>,
}

impl Verified {
    /// The hash that a block of data must have, from a tree checked down to it.
    fn expected(&self, block: u64) -> Result<Vec<u8>, Error> {
        let mut expected = self.root.clone();
        for level in (0..self.tree.levels.len()).rev() {
            // The number of this block among those of the level below.
            let below = block / self.tree.fan.pow(level as u32);
            let at = self.tree.levels[level] + below / self.tree.fan * self.tree.hash_block;
            let hashes = self.kept.get(at, || self.checked(at, &expected))?;
            let slot = self.tree.hash.len().next_power_of_two();
            let start = (below % self.tree.fan) as usize * slot;
            expected = hashes[start..start + self.tree.hash.len()].to_vec();
        }
        Ok(expected)
    }

    /// A block of the tree whose hash is this.
    fn checked(&self, at: u64, expected: &[u8]) -> Result<Arc<Vec<u8>>, Error> {
        let mut block = vec![0; self.tree.hash_block as usize];
        source::read(&*self.hashes, at, &mut block)?;
        if self.tree.digest(&block) != expected {
            let place = format!("hash tree, byte {at} of {}", self.hashes.name());
            return Err(self.subject.damaged(place, "the block is not what the root hash says"));
        }
        Ok(Arc::new(block))
    }
}

impl Image for Verified {
    fn format(&self) -> &'static str {
        "dm-verity"
    }

    fn size(&self) -> u64 {
        self.tree.blocks * self.tree.data_block
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let unit = self.tree.data_block;
        let start = offset / unit * unit;
        let end = (offset + buf.len() as u64).next_multiple_of(unit);
        let mut whole = vec![0; (end - start) as usize];
        source::read(&*self.data, start, &mut whole)?;
        for (number, block) in (start / unit..).zip(whole.chunks_exact(unit as usize)) {
            if self.tree.digest(block) != self.expected(number)? {
                let what = format!("block {number} is not what the root hash says");
                return Err(self.subject.damaged(format!("byte {}", number * unit), what));
            }
        }
        let skip = (offset - start) as usize;
        buf.copy_from_slice(&whole[skip..skip + buf.len()]);
        Ok(())
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        let mut facts = self.tree.facts();
        facts.push(("verified", Fact::Flag(true)));
        Ok(facts)
    }

    fn threads(&self) -> usize {
        self.data.threads()
    }
}
