//! The nodes of a directory's hash tree.
//!
//! The root is the directory's first block: `.`, a `..` whose length covers the rest, and behind
//! its name (and data behind that, with `dirdata`) eight bytes with hash version and depth, then
//! the array of (hash, block) pairs.
//! Further nodes look like one unused entry over the whole block, with the array behind its header.
//! Readers that know no index see ordinary directory blocks.
//!
//! The first pair has no hash (its place holds limit and count): it stands for all hashes below the
//! second. Bit 0 of a hash says that names of exactly this hash begin in the block before
//! (*continuation*). With `metadata_csum` eight bytes behind the array hold the checksum.
//!
//! Source: kernel `Documentation/filesystems/ext4/directory`, "Hash Tree Directories".

use super::CorruptKind;
use super::checksum::{self, HTREE_TAIL_SIZE as TAIL_LEN, InodeSeed};
use super::dir::{self, DirLayout, Entry, Names};

/// Offset of the array in the root of a directory without data behind `.` and `..`.
pub const ROOT_ARRAY: usize = 32;
/// Offset of the array in all other nodes.
pub const NODE_ARRAY: usize = 8;
/// Bytes of the information in the root, before the array.
const INFO_LEN: usize = 8;
/// The fewest pairs of a root.
const ROOT_MIN: usize = 4;
/// Bytes of a pair.
const PAIR_LEN: usize = 8;
/// Bits of a block number; the upper four of a word are reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// The hash version of [`Names::Hashed`]: the hashes stand beside the names.
pub const SIPHASH: u8 = 6;

/// What the root says about its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootInfo {
    /// Hash version: 0, 1, 2 (the superblock adds whether characters are signed), or
    /// [`SIPHASH`].
    pub hash_version: u8,
    /// Levels of nodes between root and leaves: 0, 1 (2 with `large_dir`).
    pub levels: u8,
    /// Where the pairs begin.
    pub array: usize,
}

/// Where a root has its second entry, `..`, and its pairs: behind eight bytes of information that
/// follow what lies behind `..`.
#[derive(Clone, Copy)]
struct RootPlaces {
    second: usize,
    array: usize,
}

/// Those of a root without data behind `.` and `..`.
const ROOT_PLACES: RootPlaces = RootPlaces { second: 12, array: ROOT_ARRAY };

/// The places of a root. `None` where the first two entries have no place for a root behind them.
fn root_places(block: &[u8], names: Names) -> Option<RootPlaces> {
    if names != Names::Data {
        return Some(ROOT_PLACES);
    }
    let (second, end) = dir::dots_with_data(block)?;
    let array = end + INFO_LEN;
    (array + ROOT_MIN * PAIR_LEN + TAIL_LEN <= block.len()).then_some(RootPlaces { second, array })
}

/// Where the pairs of a root begin, in a directory with such names.
#[inline]
pub fn root_array(block: &[u8], names: Names) -> usize {
    match names {
        Names::Data => root_places(block, names).map_or(ROOT_ARRAY, |places| places.array),
        _ => ROOT_ARRAY,
    }
}

/// Can the first block of a linear directory become a root? Its `.` and `..` stay where they are.
pub fn can_be_root(block: &[u8], layout: DirLayout) -> bool {
    let Some(RootPlaces { second, .. }) = root_places(block, layout.names) else { return false };
    let mut entries = dir::entries(block, layout);
    [(0, b".".as_slice()), (second, b"..")].iter().all(|&(offset, name)| {
        let entry = entries.next();
        entry.is_some_and(|e| e.offset as usize == offset && e.name == name && e.ino != 0)
    })
}

/// How many pairs fit into the node whose array begins at `array`.
pub fn limit(layout: DirLayout, array: usize) -> u16 {
    let tail = if layout.checksum { TAIL_LEN } else { 0 };
    ((layout.block_size as usize - array - tail) / PAIR_LEN) as u16
}

fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

fn half(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Reads and checks the information of the root of a directory with such names; `levels_max` is 1,
/// or 2 with `large_dir`.
///
/// # Errors
/// What is not as it must be, also hash versions and flags that nothing here understands.
pub fn parse_root(block: &[u8], names: Names, levels_max: u8) -> Result<RootInfo, CorruptKind> {
    if names != Names::Data {
        // Places that the compiler knows.
        return parse_root_at(block, names, ROOT_PLACES, levels_max);
    }
    let places = root_places(block, names).ok_or(CorruptKind::HtreeDots { entry: 0 })?;
    parse_root_at(block, names, places, levels_max)
}

#[inline(always)]
fn parse_root_at(
    block: &[u8],
    names: Names,
    places: RootPlaces,
    levels_max: u8,
) -> Result<RootInfo, CorruptKind> {
    let RootPlaces { second, array } = places;
    let dot = half(block, 4) as usize == second && block[6] == 1 && block[8] == b'.';
    if !dot {
        return Err(CorruptKind::HtreeDots { entry: 0 });
    }
    if !is_last_dot_dot(block, second) {
        return Err(CorruptKind::HtreeDots { entry: 1 });
    }
    let info = array - INFO_LEN;
    let reserved = word(block, info);
    if reserved != 0 {
        return Err(CorruptKind::HtreeReserved { found: reserved });
    }
    let [hash_version, info_length, levels, flags] =
        block[info + 4..array].try_into().expect("four bytes");
    let known = if names == Names::Hashed { SIPHASH..=SIPHASH } else { 0..=2 };
    if !known.contains(&hash_version) {
        return Err(CorruptKind::HtreeHashVersion { found: hash_version });
    }
    if usize::from(info_length) != INFO_LEN {
        return Err(CorruptKind::HtreeInfoLength { found: info_length });
    }
    if flags & 1 != 0 {
        return Err(CorruptKind::HtreeFlags { found: flags });
    }
    if levels > levels_max {
        return Err(CorruptKind::HtreeLevels { found: levels, limit: levels_max });
    }
    Ok(RootInfo { hash_version, levels, array })
}

/// Checks the array of a root (whose `array` is [`root_array`]'s) or node ([`NODE_ARRAY`]) of a
/// directory of `blocks` blocks: room, count, order of the hashes, and block numbers.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(
    block: &[u8],
    layout: DirLayout,
    array: usize,
    blocks: u64,
) -> Result<(), CorruptKind> {
    if array == NODE_ARRAY && !is_node(block) {
        return Err(CorruptKind::HtreeNode);
    }
    let node = Node::new(block, array);
    let expected = limit(layout, array);
    if node.limit() != expected {
        return Err(CorruptKind::HtreeLimit { found: node.limit(), expected });
    }
    if node.count() == 0 || node.count() > expected {
        return Err(CorruptKind::HtreeCount { found: node.count(), limit: expected });
    }
    let mut before = 0;
    for index in 0..node.count() {
        let child = node.block(index);
        // A node that points at the root would make every search endless.
        if child == 0 || u64::from(child) >= blocks {
            return Err(CorruptKind::HtreeBlock { index, block: child, blocks });
        }
        if index > 0 {
            let hash = node.hash(index);
            if hash < before {
                return Err(CorruptKind::HtreeOrder { index, hash, before });
            }
            before = hash;
        }
    }
    Ok(())
}

/// Is the entry at `at` a `..` that reaches the block's end, behind the tail of a linear block?
#[inline(always)]
fn is_last_dot_dot(block: &[u8], at: usize) -> bool {
    let reaches = half(block, at + 4) as usize + at == block.len();
    reaches && block[at + 6] == 2 && block[at + 8..at + 10] == *b".."
}

/// Does the block look like a root of a directory with such names: a `..` to its end, and the
/// root's information behind it?
pub fn is_root(block: &[u8], names: Names) -> bool {
    let Some(RootPlaces { second, array }) = root_places(block, names) else { return false };
    let info = array - INFO_LEN;
    is_last_dot_dot(block, second)
        && word(block, info) == 0
        && usize::from(block[info + 5]) == INFO_LEN
}

/// Is the root where `.` and `..`, with the data behind them, end? That of a directory with such
/// data may be elsewhere, since nobody says where to; it is known by what it says of its room.
pub fn is_known_root(block: &[u8], layout: DirLayout) -> bool {
    let array = root_array(block, layout.names);
    let known = || Node::new(block, array).limit() == limit(layout, array);
    !dir::data_behind_dots(block) || is_root(block, layout.names) && known()
}

/// Does the block look like a node that is not a root: one unused entry over the whole block?
pub fn is_node(block: &[u8]) -> bool {
    word(block, 0) == 0 && dir::whole_len(half(block, 4), block) == block.len() && block[6] == 0
}

/// A checked node.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    block: &'a [u8],
    array: usize,
}

impl<'a> Node<'a> {
    /// The node whose array begins at `array`.
    #[inline]
    pub fn new(block: &'a [u8], array: usize) -> Node<'a> {
        Node { block, array }
    }

    /// How many pairs fit.
    #[inline]
    pub fn limit(&self) -> u16 {
        half(self.block, self.array)
    }

    /// How many pairs there are.
    #[inline]
    pub fn count(&self) -> u16 {
        half(self.block, self.array + 2)
    }

    /// The lowest hash of pair `index`, with the continuation bit; 0 for the first.
    #[inline]
    pub fn hash(&self, index: u16) -> u32 {
        match index {
            0 => 0,
            _ => word(self.block, self.array + PAIR_LEN * index as usize),
        }
    }

    /// The logical block of pair `index`.
    #[inline]
    pub fn block(&self, index: u16) -> u32 {
        word(self.block, self.array + PAIR_LEN * index as usize + 4) & BLOCK_MASK
    }

    /// The last pair whose hash is at most `hash`.
    #[inline]
    pub fn search(&self, hash: u32) -> u16 {
        let (mut low, mut high) = (1, self.count().max(1));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.hash(middle) > hash {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - 1
    }
}

fn set_word(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn set_count(block: &mut [u8], array: usize, count: u16) {
    block[array + 2..array + 4].copy_from_slice(&count.to_le_bytes());
}

/// Inserts a pair before `index` (1..=count).
///
/// # Panics
/// If the node is full.
pub fn insert_pair(block: &mut [u8], array: usize, index: u16, hash: u32, child: u32) {
    let node = Node::new(block, array);
    let (count, limit) = (node.count(), node.limit());
    assert!((1..=count).contains(&index) && count < limit, "room for a pair, and not before all");
    let at = array + PAIR_LEN * index as usize;
    let end = array + PAIR_LEN * count as usize;
    block.copy_within(at..end, at + PAIR_LEN);
    set_word(block, at, hash);
    set_word(block, at + 4, child);
    set_count(block, array, count + 1);
}

/// Turns the first block of a linear directory into a root with one leaf, `leaf`. `.` and `..`
/// stay; everything behind them is overwritten.
///
/// # Panics
/// If it cannot be a root, by [`can_be_root`].
pub fn init_root(block: &mut [u8], layout: DirLayout, hash_version: u8, leaf: u32) {
    let size = block.len();
    let RootPlaces { second, array } = root_places(block, layout.names).expect("it was asked for");
    block[second + 4..second + 6].copy_from_slice(&((size - second) as u16).to_le_bytes());
    block[array - INFO_LEN..].fill(0);
    block[array - 4] = hash_version;
    block[array - 3] = INFO_LEN as u8;
    init_array(block, layout, array, leaf);
}

/// Makes `..` of a root name another directory. What lay behind it was the old one's: it goes, and
/// the root moves up.
pub fn set_root_parent(block: &mut [u8], layout: DirLayout, parent: u32, directory_type: u8) {
    let Some(RootPlaces { second, array: old }) = root_places(block, layout.names) else {
        return;
    };
    let node = Node::new(block, old);
    let end = old + PAIR_LEN * usize::from(node.count().min(limit(layout, old)));
    dir::set_target(block, layout, second as u32, parent, directory_type);
    let new = root_array(block, layout.names);
    if new < old {
        block.copy_within(old - INFO_LEN..end, new - INFO_LEN);
        block[end - (old - new)..].fill(0);
        block[new..new + 2].copy_from_slice(&limit(layout, new).to_le_bytes());
    }
}

/// Sets the levels that the root whose pairs begin at `array` says.
pub fn set_levels(block: &mut [u8], array: usize, levels: u8) {
    block[array - 2] = levels;
}

fn init_array(block: &mut [u8], layout: DirLayout, array: usize, child: u32) {
    block[array..array + 2].copy_from_slice(&limit(layout, array).to_le_bytes());
    set_count(block, array, 1);
    set_word(block, array + 4, child);
}

/// Writes a node without pairs; the caller fills it with [`take_pairs`].
fn init_node(block: &mut [u8], layout: DirLayout) {
    block.fill(0);
    block[4..6].copy_from_slice(&dir::stored_len(layout.block_size as usize).to_le_bytes());
    block[NODE_ARRAY..NODE_ARRAY + 2].copy_from_slice(&limit(layout, NODE_ARRAY).to_le_bytes());
}

/// Fills the new node `to` with the pairs of `from` beginning at `index`, and answers the hash of
/// the first of them (which `to` itself does not store).
pub fn take_pairs(to: &mut [u8], layout: DirLayout, from: Node, index: u16) -> u32 {
    init_node(to, layout);
    let pairs = from.count() - index;
    let start = from.array + PAIR_LEN * index as usize;
    let bytes = PAIR_LEN * pairs as usize;
    // The first pair's hash lies where the new node keeps limit and count.
    to[NODE_ARRAY + 4..NODE_ARRAY + bytes].copy_from_slice(&from.block[start + 4..start + bytes]);
    set_count(to, NODE_ARRAY, pairs);
    from.hash(index)
}

/// Cuts a node after its first `count` pairs.
pub fn cut_pairs(block: &mut [u8], array: usize, count: u16) {
    let end = array + PAIR_LEN * Node::new(block, array).count() as usize;
    block[array + PAIR_LEN * count as usize..end].fill(0);
    set_count(block, array, count);
}

/// Makes the root one level deeper: its only pair is `child`, which has taken all the others.
pub fn deepen_root(block: &mut [u8], array: usize, child: u32) {
    cut_pairs(block, array, 1);
    set_word(block, array + 4, child);
    set_levels(block, array, block[array - 2] + 1);
}

/// Compares the checksum of a node. Only for layouts with checksums.
///
/// # Errors
/// `HtreeChecksum`, or `HtreeLimit` where limit and count leave no place for one.
pub fn verify_checksum(seed: InodeSeed, block: &[u8], array: usize) -> Result<(), CorruptKind> {
    let found = checksum::stored_htree_node(block, array);
    let (Some(found), Some(expected)) = (found, seed.htree_node(block, array)) else {
        let layout = DirLayout {
            block_size: block.len() as u32,
            checksum: true,
            filetype: true,
            names: Names::Plain,
        };
        let found = Node::new(block, array).limit();
        return Err(CorruptKind::HtreeLimit { found, expected: limit(layout, array) });
    };
    if found == expected { Ok(()) } else { Err(CorruptKind::HtreeChecksum { found, expected }) }
}

/// Sets the checksum of a node; one whose limit leaves no place for it stays as it is.
pub fn set_checksum(seed: InodeSeed, block: &mut [u8], array: usize) {
    seed.set_htree_node(block, array);
}

/// Is this the block of a leaf (or of a linear directory) rather than a node?
pub fn is_leaf(block: &[u8], layout: DirLayout) -> bool {
    if layout.checksum { dir::has_tail(block) } else { !is_node(block) }
}

/// Where the pairs of a directory's block begin; None of a block with entries. A root that was a
/// leaf once may still end as one: Linux leaves that tail in it.
pub fn array_of(block: &[u8], logical: u64, indexed: bool, layout: DirLayout) -> Option<usize> {
    match logical {
        0 if indexed => Some(root_array(block, layout.names)),
        _ if indexed && !is_leaf(block, layout) => Some(NODE_ARRAY),
        _ => None,
    }
}

/// Splits the entries of a full leaf by hash into `low` and `high`, in the middle by bytes, and
/// answers the hash with which `high` goes into the tree (with the continuation bit where names of
/// that hash stay in `low`).
///
/// # Errors
/// A leaf with fewer than two names cannot be split (and is never full).
pub fn split_leaf(
    leaf: &[u8],
    layout: DirLayout,
    low: &mut [u8],
    high: &mut [u8],
    mut hash: impl FnMut(&Entry) -> u32,
) -> Result<u32, CorruptKind> {
    let mut used: Vec<Entry> = Vec::with_capacity(leaf.len() / dir::entry_len(1));
    used.extend(dir::entries(leaf, layout).filter(|entry| entry.ino != 0));
    if used.len() < 2 {
        return Err(CorruptKind::HtreeCount { found: used.len() as u16, limit: 2 });
    }
    // Hash and place in one number: that is what is moved while they are put in order.
    let mut order: Vec<u64> =
        (0u64..).zip(&used).map(|(place, entry)| u64::from(hash(entry)) << 32 | place).collect();
    order.sort_unstable();
    let entry = |of: &u64| used[*of as u32 as usize];
    let at = middle(&order, layout, entry);
    let hash = |index: usize| (order[index] >> 32) as u32;
    let continued = hash(at) == hash(at - 1);
    dir::pack(low, layout, order[..at].iter().map(entry));
    dir::pack(high, layout, order[at..].iter().map(entry));
    Ok(hash(at) | u32::from(continued))
}

/// Where to cut: 1..len, so that the upper part has about half a block.
fn middle<'a>(order: &[u64], layout: DirLayout, entry: impl Fn(&u64) -> Entry<'a>) -> usize {
    let block_size = layout.block_size as usize;
    let mut size = 0;
    let mut at = order.len();
    while at > 1 {
        let len = entry(&order[at - 1]).need(layout);
        if size + len / 2 > block_size / 2 {
            break;
        }
        size += len;
        at -= 1;
    }
    match at {
        1 => order.len() / 2,
        at => at.min(order.len() - 1),
    }
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;
    use crate::format::hash::{HashVersion, hash_name};

    const LAYOUT: DirLayout =
        DirLayout { block_size: 1024, checksum: true, filetype: true, names: Names::Plain };

    fn new_root() -> Vec<u8> {
        let mut block = vec![0; 1024];
        dir::init_dots(&mut block, LAYOUT, 12, 2, 2);
        init_root(&mut block, LAYOUT, 1, 1);
        block
    }

    #[test]
    fn a_root_tells_what_was_put_into_it() {
        let mut root = new_root();
        assert_eq!(
            parse_root(&root, Names::Plain, 1),
            Ok(RootInfo { hash_version: 1, levels: 0, array: ROOT_ARRAY })
        );
        check(&root, LAYOUT, ROOT_ARRAY, 2).expect("well formed");
        set_checksum(InodeSeed(5), &mut root, ROOT_ARRAY);
        verify_checksum(InodeSeed(5), &root, ROOT_ARRAY).expect("its own checksum");
        assert!(verify_checksum(InodeSeed(6), &root, ROOT_ARRAY).is_err());
    }

    #[test]
    fn pairs_stay_in_order_and_are_found() {
        let mut root = new_root();
        let mut rng = Rng::new(1, 1);
        let mut model: Vec<(u32, u32)> = vec![(0, 1)];
        for child in 2..u32::from(limit(LAYOUT, ROOT_ARRAY)) + 1 {
            let hash = rng.next_u32() & !1;
            let index = Node::new(&root, ROOT_ARRAY).search(hash);
            let expected = model.iter().rposition(|pair| pair.0 <= hash).expect("the first");
            assert_eq!(index as usize, expected);
            insert_pair(&mut root, ROOT_ARRAY, index + 1, hash, child);
            model.insert(expected + 1, (hash, child));
        }
        check(&root, LAYOUT, ROOT_ARRAY, 1000).expect("well formed");
        let node = Node::new(&root, ROOT_ARRAY);
        assert_eq!(node.count(), node.limit());

        // One level deeper, then the node split: together they hold the same pairs.
        let mut lower = vec![0; 1024];
        assert_eq!(take_pairs(&mut lower, LAYOUT, node, 0), 0);
        deepen_root(&mut root, ROOT_ARRAY, 500);
        assert_eq!(parse_root(&root, Names::Plain, 1).map(|info| info.levels), Ok(1));
        let mut upper = vec![0; 1024];
        let hash = take_pairs(&mut upper, LAYOUT, Node::new(&lower, NODE_ARRAY), 60);
        cut_pairs(&mut lower, NODE_ARRAY, 60);
        insert_pair(&mut root, ROOT_ARRAY, 1, hash, 501);
        let mut pairs = Vec::new();
        for block in [&lower, &upper] {
            check(block, LAYOUT, NODE_ARRAY, 1000).expect("well formed");
            let node = Node::new(block, NODE_ARRAY);
            pairs.extend((0..node.count()).map(|i| (node.hash(i), node.block(i))));
        }
        assert_eq!(pairs[60].1, model[60].1);
        pairs[60].0 = hash;
        assert_eq!(pairs, model);
    }

    #[test]
    fn a_split_keeps_every_name_on_its_side() {
        let mut rng = Rng::new(2, 2);
        for round in 0..200 {
            let mut leaf = vec![0; 1024];
            dir::init_empty(&mut leaf, LAYOUT);
            let mut count = 0;
            loop {
                let bound = if round % 2 == 0 { 20 } else { 255 };
                let name = vec![b'a' + rng.below(26) as u8; 1 + rng.below(bound) as usize];
                let need = dir::entry_len(name.len());
                let seen = dir::scan(&leaf, LAYOUT, &dir::Key::new(&name), need);
                let Some(room) = seen.room else { break };
                dir::insert(&mut leaf, LAYOUT, room, 20, 1, &name);
                count += 1;
            }
            let hash = |name: &[u8]| hash_name(HashVersion::HalfMd4, &[0; 4], name).major;
            let (mut low, mut high) = (vec![0; 1024], vec![0; 1024]);
            let bound =
                split_leaf(&leaf, LAYOUT, &mut low, &mut high, |e| hash(e.name)).expect("splits");
            let names = |block: &[u8]| -> Vec<u32> {
                dir::check(block, LAYOUT, 100).expect("well formed");
                dir::entries(block, LAYOUT).map(|e| hash(e.name)).collect()
            };
            let (low, high) = (names(&low), names(&high));
            assert_eq!(low.len() + high.len(), count);
            assert!(low.iter().all(|h| *h < bound) && high.iter().all(|h| *h >= bound & !1));
            assert_eq!(low.contains(&(bound & !1)), bound & 1 == 1);
        }
    }

    #[test]
    fn every_malformed_node_has_its_error() {
        use CorruptKind::*;
        let damaged = |at: usize, byte: u8| {
            let mut block = new_root();
            block[at] = byte;
            match parse_root(&block, Names::Plain, 1) {
                Err(kind) => kind,
                Ok(_) => check(&block, LAYOUT, ROOT_ARRAY, 2).expect_err("a damaged root"),
            }
        };
        assert_eq!(damaged(8, b'x'), HtreeDots { entry: 0 });
        assert_eq!(damaged(17, 0), HtreeDots { entry: 1 });
        assert_eq!(damaged(24, 1), HtreeReserved { found: 1 });
        assert_eq!(damaged(28, 6), HtreeHashVersion { found: 6 });
        assert_eq!(damaged(29, 9), HtreeInfoLength { found: 9 });
        assert_eq!(damaged(30, 2), HtreeLevels { found: 2, limit: 1 });
        assert_eq!(damaged(31, 1), HtreeFlags { found: 1 });
        assert_eq!(damaged(32, 9), HtreeLimit { found: 9, expected: 123 });
        assert_eq!(damaged(34, 0), HtreeCount { found: 0, limit: 123 });
        assert_eq!(damaged(34, 124), HtreeCount { found: 124, limit: 123 });
        assert_eq!(damaged(36, 2), HtreeBlock { index: 0, block: 2, blocks: 2 });
        assert_eq!(check(&[0; 1024], LAYOUT, NODE_ARRAY, 2), Err(HtreeNode));
        let mut root = new_root();
        insert_pair(&mut root, ROOT_ARRAY, 1, 100, 1);
        insert_pair(&mut root, ROOT_ARRAY, 2, 50, 1);
        let order = HtreeOrder { index: 2, hash: 50, before: 100 };
        assert_eq!(check(&root, LAYOUT, ROOT_ARRAY, 2), Err(order));
    }
}
