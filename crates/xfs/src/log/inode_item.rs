//! How an inode is logged, and how it is written to its cluster.
//!
//! The item keeps the inode's last committed *image*, as it stands on the device. From it the log's
//! regions are derived (the core in the host's byte order, the data fork, the attribute fork),
//! and write-back copies it into the cluster's buffer. So neither needs the inode's lock.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on the journaling log; `xfs_logprint -i`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rt::{Cx, Semaphore, SpinLock};

use crate::buf::{Buf, BufMap};
use crate::format::btree::Shape;
use crate::format::extent::Extent;
use crate::format::inode::MetadataType;
use crate::format::{Kind, verifier};
use crate::log::dquot_item::Charge;
use crate::log::item::{ItemCore, LogVec};

/// Type of an inode item in the log.
pub(crate) const LI_INODE: u16 = 0x123b;
/// Bytes of an inode's core, on the device and in the log.
pub(crate) const CORE: usize = 176;
/// The form of a data fork that holds the root of a btree of the realtime section.
pub(crate) const META_BTREE: u8 = 5;
/// Bytes of the item's header.
const HEADER: usize = 56;

/// Fields in the log's header.
pub(crate) mod ilog {
    pub const CORE: u32 = 0x001;
    pub const DDATA: u32 = 0x002;
    pub const DEXT: u32 = 0x004;
    pub const DBROOT: u32 = 0x008;
    pub const DEV: u32 = 0x010;
    pub const ADATA: u32 = 0x040;
    pub const AEXT: u32 = 0x080;
    pub const ABROOT: u32 = 0x100;
}

bitflags::bitflags! {
    /// Which parts of an inode a transaction changed. The core always goes along.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct InodeFields: u8 {
        /// The 176 bytes of the core.
        const CORE = 1 << 0;
        /// The data fork, in whatever form it is.
        const DATA = 1 << 1;
        /// The attribute fork, in whatever form it is.
        const ATTR = 1 << 2;
    }
}

/// Where an inode lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodePlace {
    /// Its number.
    pub ino: u64,
    /// The cluster that holds it.
    pub cluster: BufMap,
    /// Its first byte in the cluster.
    pub offset: u32,
}

/// An inode as it stands on the device.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// Its bytes; the rest of it is zero.
    pub bytes: Vec<u8>,
    /// Bytes of an inode.
    pub size: usize,
}

impl Image {
    /// All of it.
    pub fn whole(mut self) -> Vec<u8> {
        self.bytes.resize(self.size, 0);
        self.bytes
    }
}

impl From<Vec<u8>> for Image {
    fn from(bytes: Vec<u8>) -> Image {
        Image { size: bytes.len(), bytes }
    }
}

struct InodeState {
    /// The last committed image; empty before the first commit.
    image: Image,
    /// Changed since the last copy into the cluster.
    fields: InodeFields,
    /// Of a copy into the cluster that is not on the device yet.
    flushing: InodeFields,
    /// Its cluster was freed: it is never written again.
    stale: bool,
}

/// The log item of an inode. One for each inode in memory, kept while it is dirty.
pub struct InodeItem {
    place: InodePlace,
    /// Held by a transaction that changes the inode; see [`crate::trans::Trans::join_inode`].
    lock: Semaphore,
    /// Number of that transaction; 0 for none.
    owner: AtomicU64,
    state: SpinLock<InodeState>,
    core: ItemCore,
    /// What its owners' accounts have for it.
    charge: SpinLock<Charge>,
    /// Blocks that its content has of the realtime section, where usage is counted.
    content: AtomicI64,
}

impl InodeItem {
    /// A clean item.
    pub fn new(place: InodePlace) -> Arc<InodeItem> {
        let fields = InodeFields::empty();
        let image = Vec::new().into();
        let state = InodeState { image, fields, flushing: fields, stale: false };
        let state = SpinLock::named("xfs inode item", state);
        let (lock, owner) = (Semaphore::named("xfs inode", 1), AtomicU64::new(0));
        let charge = SpinLock::named("xfs inode charge", Charge::default());
        Arc::new(InodeItem {
            place,
            lock,
            owner,
            state,
            core: ItemCore::new(),
            charge,
            content: 0.into(),
        })
    }

    /// Blocks that its content has of the realtime section; whoever changes the map keeps it right.
    pub(crate) fn content(&self) -> &AtomicI64 {
        &self.content
    }

    /// Says that its owners' accounts have for it what the image says, whose content has so much of
    /// the realtime section.
    pub(crate) fn begin_charge(&self, image: &[u8], content: &[Extent]) {
        let blocks = content.iter().map(|extent| i64::from(extent.count)).sum();
        self.content.store(blocks, Ordering::Relaxed);
        self.set_charge(Charge::of(image, blocks));
    }

    /// What its owners' accounts have for it.
    pub(crate) fn charge(&self) -> Charge {
        *self.charge.lock_irq()
    }

    /// Says what its owners' accounts have for it, from now on; returns what they had.
    pub(crate) fn set_charge(&self, charge: Charge) -> Charge {
        std::mem::replace(&mut self.charge.lock_irq(), charge)
    }

    /// Takes the inode for a transaction. May park.
    pub(crate) fn lock(&self, cx: &mut Cx, transaction: u64) {
        self.lock.acquire(cx);
        self.owner.store(transaction, Ordering::Relaxed);
    }

    pub(crate) fn unlock(&self) {
        self.owner.store(0, Ordering::Relaxed);
        self.lock.release(1);
    }

    /// The transaction that has taken the inode; 0 for none.
    pub(crate) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Where the inode lives.
    pub fn place(&self) -> &InodePlace {
        &self.place
    }

    pub(crate) fn core(&self) -> &ItemCore {
        &self.core
    }

    /// Number of the last checkpoint that holds a change of it, for an fsync; 0 for none.
    pub fn last_seq(&self) -> u64 {
        self.core.lock().last_seq
    }

    /// True if a change is not on its place on the device yet.
    pub fn is_dirty(&self) -> bool {
        let state = self.state.lock_irq();
        !(state.fields | state.flushing).is_empty() || self.core.is_pinned()
    }

    /// Says that its cluster is freed.
    pub(crate) fn make_stale(&self) {
        self.state.lock_irq().stale = true;
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.state.lock_irq().stale
    }

    /// Takes a new image, and formats it: the *format* pass. The item must be pinned before, so
    /// that write-back leaves it alone. What is on its way to the cluster is formatted once more:
    /// the item moves up in the AIL, and the write may never arrive.
    pub(crate) fn commit_image(&self, mut image: Image, fields: InodeFields, vec: &mut LogVec) {
        let mut state = self.state.lock_irq();
        std::mem::swap(&mut state.image, &mut image);
        state.fields |= fields | InodeFields::CORE;
        state.stale = false;
        vec.clear();
        format_image(&self.place, &state.image.bytes, state.fields | state.flushing, vec);
        drop(state);
        drop(image);
    }

    /// Copies the image into its cluster, whose lock the caller holds, and gives it `lsn` and its
    /// checksum; false if it may not be written now. The unlinked pointer stays the cluster's own:
    /// only it is logged through the cluster.
    pub(crate) fn flush(&self, cluster: &Buf, lsn: u64) -> bool {
        let mut state = self.state.lock_irq();
        if state.stale || state.image.size == 0 || self.core.is_pinned() {
            return false;
        }
        let (at, image) = (self.place.offset as usize, &state.image);
        cluster.with_range_mut(at, image.size, |slot| {
            let used = image.bytes.len();
            slot[..96].copy_from_slice(&image.bytes[..96]);
            slot[100..used].copy_from_slice(&image.bytes[100..]);
            slot[used..].fill(0);
            verifier::update_lsn_crc(Kind::Inode, slot, lsn);
        });
        let fields = std::mem::take(&mut state.fields);
        state.flushing |= fields;
        true
    }

    /// The cluster is on the device, or could not be written.
    pub(crate) fn flushed(&self, written: bool) {
        let mut state = self.state.lock_irq();
        let fields = std::mem::take(&mut state.flushing);
        if !written {
            state.fields |= fields;
        }
    }
}

/// Where the core's fields of two, four and eight bytes lie; single bytes and padding stand as they
/// are.
const HALVES: [usize; 8] = [0, 2, 6, 20, 22, 80, 88, 90];
const WORDS: [usize; 10] = [8, 12, 16, 72, 76, 84, 92, 96, 100, 128];
const LONGS: [usize; 7] = [24, 56, 64, 104, 112, 120, 152];
/// Access, modification, change, creation: one number each, or two words where it is old.
const TIMES: [usize; 4] = [32, 40, 48, 144];

/// Turns a core from the device's byte order into the log's, or back.
pub(crate) fn swap_core(core: &mut [u8]) {
    let bigtime = bigtime(core);
    let core: &mut [u8; CORE] = (&mut core[..CORE]).try_into().expect("as long as a core");
    HALVES.into_iter().for_each(|at| swap::<2>(core, at));
    WORDS.into_iter().for_each(|at| swap::<4>(core, at));
    LONGS.into_iter().for_each(|at| swap::<8>(core, at));
    for at in TIMES {
        if bigtime {
            swap::<8>(core, at);
        } else {
            swap::<4>(core, at);
            swap::<4>(core, at + 4);
        }
    }
}

#[inline(always)]
fn swap<const N: usize>(core: &mut [u8; CORE], at: usize) {
    let field: &mut [u8; N] = (&mut core[at..at + N]).try_into().expect("N bytes");
    field.reverse();
}

/// The flag of large times, in either byte order: the core's version byte does not say which.
fn bigtime(core: &[u8]) -> bool {
    let swapped = core[0..2] == *b"NI";
    let flags = &core[120..128];
    let low = if swapped { flags[0] } else { flags[7] };
    low & (1 << 3) != 0
}

/// Writes the regions of an inode.
fn format_image(place: &InodePlace, image: &[u8], fields: InodeFields, vec: &mut LogVec) {
    let header_at = vec.len();
    // A few extents more are to come as a rule, before the checkpoint is written.
    vec.reserve(HEADER + image.len().max(CORE + 64));
    vec.region(HEADER);
    vec.append(|bytes| {
        let start = bytes.len();
        bytes.extend_from_slice(&image[..CORE]);
        let core = &mut bytes[start..];
        core[96..100].copy_from_slice(&[0xff; 4]);
        core[100..104].fill(0);
        swap_core(core);
    });
    let mut log_fields = ilog::CORE;
    let mut sizes = [0usize; 2];
    let mut rdev = 0;
    if fields.contains(InodeFields::DATA) {
        let fork = Fork::data(image);
        if fork.format == 0 {
            log_fields |= ilog::DEV;
            rdev = u32::from_be_bytes(fork.bytes[..4].try_into().expect("four bytes"));
        } else {
            let kinds = [ilog::DDATA, ilog::DEXT, ilog::DBROOT];
            sizes[0] = fork.append(kinds, &mut log_fields, vec);
        }
    }
    if fields.contains(InodeFields::ATTR)
        && let Some(fork) = Fork::attr(image)
    {
        sizes[1] = fork.append([ilog::ADATA, ilog::AEXT, ilog::ABROOT], &mut log_fields, vec);
    }
    let regions = vec.count() as u16;
    let header = &mut vec.bytes_mut()[header_at..header_at + HEADER];
    header[0..2].copy_from_slice(&LI_INODE.to_le_bytes());
    header[2..4].copy_from_slice(&regions.to_le_bytes());
    header[4..8].copy_from_slice(&log_fields.to_le_bytes());
    header[8..10].copy_from_slice(&(sizes[1] as u16).to_le_bytes());
    header[10..12].copy_from_slice(&(sizes[0] as u16).to_le_bytes());
    header[16..24].copy_from_slice(&place.ino.to_le_bytes());
    header[24..28].copy_from_slice(&rdev.to_le_bytes());
    header[40..48].copy_from_slice(&place.cluster.daddr.0.to_le_bytes());
    header[48..52].copy_from_slice(&place.cluster.len.to_le_bytes());
    header[52..56].copy_from_slice(&place.offset.to_le_bytes());
}

/// One fork of an image.
struct Fork<'a> {
    format: u8,
    /// The kind of tree that a root is of.
    tree: Kind,
    bytes: &'a [u8],
    /// Bytes of local data.
    local: usize,
    extents: usize,
}

impl<'a> Fork<'a> {
    fn attr_offset(image: &[u8]) -> Option<usize> {
        let at = CORE + usize::from(image[82]) * 8;
        (image[82] != 0 && at < image.len()).then_some(at)
    }

    fn data(image: &'a [u8]) -> Fork<'a> {
        let end = Fork::attr_offset(image).unwrap_or(image.len());
        let size = u64::from_be_bytes(image[56..64].try_into().expect("eight bytes"));
        let extents = match wide_counts(image) {
            true => u64::from_be_bytes(image[24..32].try_into().expect("eight bytes")),
            false => u32::from_be_bytes(image[76..80].try_into().expect("four bytes")).into(),
        };
        let (local, extents) = (size as usize, extents as usize);
        let meta = MetadataType::tree_of(u16::from_be_bytes([image[6], image[7]]));
        let tree = meta.filter(|_| image[5] == META_BTREE).unwrap_or(Kind::Bmap);
        Fork { format: image[5], tree, bytes: &image[CORE..end], local, extents }
    }

    fn attr(image: &'a [u8]) -> Option<Fork<'a>> {
        let at = Fork::attr_offset(image)?;
        let bytes = &image[at..];
        let extents = match wide_counts(image) {
            true => u32::from_be_bytes(image[76..80].try_into().expect("four bytes")),
            false => u16::from_be_bytes([image[80], image[81]]).into(),
        };
        let local = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        let (format, tree) = (image[83], Kind::Bmap);
        Some(Fork { format, tree, bytes, local, extents: extents as usize })
    }

    /// Appends the fork's region, if it has content, and notes its kind; returns its bytes.
    fn append(&self, kinds: [u32; 3], fields: &mut u32, vec: &mut LogVec) -> usize {
        let (kind, len) = match self.format {
            1 => (kinds[0], self.local.next_multiple_of(4)),
            2 => (kinds[1], self.extents * 16),
            3 | META_BTREE => (kinds[2], 0),
            _ => return 0,
        };
        if matches!(self.format, 3 | META_BTREE) {
            let before = vec.len();
            vec.append(|to| append_root(Shape::of(self.tree), self.bytes, to));
            *fields |= kind;
            return vec.len() - before;
        }
        let len = len.min(self.bytes.len());
        if len > 0 {
            vec.append(|to| to.extend_from_slice(&self.bytes[..len]));
            *fields |= kind;
        }
        len
    }
}

/// The flag of 64-bit extent counts.
fn wide_counts(image: &[u8]) -> bool {
    image[127] & (1 << 4) != 0
}

/// The root of a btree as the log holds it: with the long header of a block, and packed for exactly
/// as many entries as it has.
fn append_root(shape: Shape, root: &[u8], to: &mut Vec<u8>) {
    let level = u16::from_be_bytes([root[0], root[1]]);
    let count = usize::from(u16::from_be_bytes([root[2], root[3]]));
    let most = shape.root_max(root.len(), level);
    let count = count.min(most);
    let mut header = [0u8; 72];
    header[0..4].copy_from_slice(&shape.kind.magic().to_be_bytes());
    header[4..8].copy_from_slice(&root[0..4]);
    header[8..24].fill(0xff);
    header[24..32].fill(0xff);
    to.extend_from_slice(&header);
    let keys = if level == 0 { shape.record } else { shape.key * shape.keys };
    to.extend_from_slice(&root[4..4 + count * keys]);
    if level > 0 {
        let pointers = 4 + most * keys;
        to.extend_from_slice(&root[pointers..pointers + count * shape.pointer]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_cover_the_core_up_to_its_uuid() {
        let mut covered = [0u8; 160];
        let fields = [(&HALVES[..], 2), (&WORDS, 4), (&LONGS, 8), (&TIMES, 8)];
        for (places, width) in fields {
            places.iter().for_each(|&at| covered[at..at + width].iter_mut().for_each(|n| *n += 1));
        }
        let alone = [4, 5, 82, 83].into_iter().chain(132..144);
        alone.for_each(|at: usize| covered[at] += 1);
        assert_eq!(covered, [1; 160]);
    }

    #[test]
    fn a_core_swapped_twice_is_itself_with_small_and_with_large_times() {
        for flags in [0u8, 1 << 3] {
            let mut core: Vec<u8> = (0..CORE as u8).collect();
            core[0..2].copy_from_slice(b"IN");
            core[127] = flags;
            let before = core.clone();
            swap_core(&mut core);
            assert_eq!(core[0..2], *b"NI");
            assert_eq!(core[160..], before[160..]);
            assert_eq!(core[32..36] == [35, 34, 33, 32], flags == 0);
            swap_core(&mut core);
            assert_eq!(core, before);
        }
    }
}
