//! Quota files: those that hidden inodes of the file system hold, and the older ones that lie in
//! its root (`aquota.user`, `aquota.group`).
//!
//! A file of 1 KiB blocks. Block 0 has the header; block 1 is the root of a radix tree over the
//! four bytes of an id, of 256 references per block. The leaves are data blocks of 14 entries (21
//! of the older form); entries of any ids share one, and a block with room is in a list. An id
//! without an entry has neither usage nor limits.
//!
//! Source: the layout as `mke2fs -O quota` makes it and `e2fsck` judges it, files that quotacheck
//! and setquota made; quotactl(2), quota(5).

pub use vfs::quota::{Dqblk, GRACE_DEFAULT, Kind, LIMIT_UNIT};

use super::CorruptKind;

/// Bytes of a block of the file.
pub const BLOCK_SIZE: usize = 1024;
const DATA_HEADER: usize = 16;
const HEADER_SIZE: usize = 32;
const ROOT: u32 = 1;
const DEPTH: u32 = 4;

/// The form of the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `vfsv0`: numbers of 32 bits, but for the space and the times.
    V0 = 0,
    /// `vfsv1`: numbers of 64 bits. Hidden files have this one.
    V1 = 1,
}

impl Form {
    /// Bytes of an entry.
    pub const fn entry_size(self) -> usize {
        match self {
            Form::V0 => 48,
            Form::V1 => 72,
        }
    }

    /// Entries of a data block.
    pub const fn entries_max(self) -> usize {
        (BLOCK_SIZE - DATA_HEADER) / self.entry_size()
    }

    /// The largest limit of space (in KiB) and of inodes.
    pub const fn limit_max(self) -> u64 {
        match self {
            Form::V0 => u32::MAX as u64,
            Form::V1 => u64::MAX,
        }
    }

    /// Where the numbers of an entry lie, in the order of [`words`], and how long each is.
    const fn places(self) -> [(usize, usize); 8] {
        match self {
            Form::V0 => [(4, 4), (8, 4), (12, 4), (16, 4), (20, 4), (24, 8), (32, 8), (40, 8)],
            Form::V1 => [(8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8), (56, 8), (64, 8)],
        }
    }

    /// Reads an entry.
    pub fn read(self, data: &[u8]) -> Dqblk {
        let entry = from_words(self.places().map(|(at, len)| {
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&data[at..at + len]);
            u64::from_le_bytes(bytes)
        }));
        // See `emit`.
        if entry == (Dqblk { inode_time: 1, ..Dqblk::default() }) {
            Dqblk::default()
        } else {
            entry
        }
    }

    /// Writes the entry of `id`. What a number has no room for becomes the largest.
    pub fn emit(self, entry: &Dqblk, data: &mut [u8], id: u32) {
        data[..self.entry_size()].fill(0);
        set_word(data, 0, id);
        let mut words = words(entry);
        if id == 0 && words == [0; 8] {
            // All zeroes would be an entry that nobody uses.
            words[7] = 1;
        }
        for ((at, len), word) in self.places().into_iter().zip(words) {
            let most = if len == 4 { u64::from(u32::MAX) } else { u64::MAX };
            data[at..at + len].copy_from_slice(&word.min(most).to_le_bytes()[..len]);
        }
    }

    fn slots(self) -> impl Iterator<Item = usize> {
        (0..self.entries_max()).map(move |index| DATA_HEADER + index * self.entry_size())
    }

    fn slot_of(self, data: &Block, id: u32) -> Option<usize> {
        let used = |at: usize| used(&data[at..at + self.entry_size()]);
        self.slots().find(|&at| word(data, at) == id && used(at))
    }
}

/// First word of the file of a kind.
pub const fn magic(kind: Kind) -> u32 {
    match kind {
        Kind::User => 0xd9c0_1f11,
        Kind::Group => 0xd9c0_1927,
        Kind::Project => 0xd9c0_3f14,
    }
}

/// A block of a quota file.
pub type Block = [u8; BLOCK_SIZE];

fn word(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

fn set_word(data: &mut [u8], at: usize, value: u32) {
    data[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// What block 0 says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// The form of its entries.
    pub form: Form,
    /// Seconds for which more blocks than the soft limit are allowed.
    pub block_grace: u32,
    /// The same for inodes.
    pub inode_grace: u32,
    /// Flags; none is known here, all are kept.
    pub flags: u32,
    /// Blocks of the file.
    pub blocks: u32,
    /// First block of those that nobody uses; 0 where there is none.
    pub free_block: u32,
    /// First data block with room; 0 where there is none.
    pub free_entry: u32,
}

impl Info {
    /// Reads and checks block 0.
    ///
    /// # Errors
    /// Another magic number or version, no tree.
    pub fn parse(data: &[u8], kind: Kind) -> Result<Info, CorruptKind> {
        let (found, expected) = (word(data, 0), magic(kind));
        if found != expected {
            return Err(CorruptKind::QuotaMagic { found, expected });
        }
        let form = match word(data, 4) {
            0 => Form::V0,
            1 => Form::V1,
            found => return Err(CorruptKind::QuotaVersion { found }),
        };
        let [block_grace, inode_grace, flags, blocks, free_block, free_entry] =
            [8, 12, 16, 20, 24, 28].map(|at| word(data, at));
        let info = Info { form, block_grace, inode_grace, flags, blocks, free_block, free_entry };
        if blocks < 2 {
            return Err(CorruptKind::QuotaBlock { block: ROOT, blocks });
        }
        Ok(info)
    }

    /// Writes block 0.
    pub fn emit(&self, data: &mut [u8], kind: Kind) {
        let words = [
            magic(kind),
            self.form as u32,
            self.block_grace,
            self.inode_grace,
            self.flags,
            self.blocks,
            self.free_block,
            self.free_entry,
        ];
        for (index, value) in words.into_iter().enumerate() {
            set_word(&mut data[..HEADER_SIZE], index * 4, value);
        }
    }
}

fn words(entry: &Dqblk) -> [u64; 8] {
    [
        entry.inode_hard,
        entry.inode_soft,
        entry.inodes,
        entry.block_hard,
        entry.block_soft,
        entry.space,
        entry.block_time,
        entry.inode_time,
    ]
}

fn from_words(words: [u64; 8]) -> Dqblk {
    let [inode_hard, inode_soft, inodes, ..] = words;
    let [.., block_hard, block_soft, space, block_time, inode_time] = words;
    let none = Dqblk::default();
    Dqblk {
        inode_hard,
        inode_soft,
        inodes,
        block_hard,
        block_soft,
        space,
        block_time,
        inode_time,
        ..none
    }
}

/// Where an entry lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The data block.
    pub block: u32,
    /// Bytes from its start.
    pub offset: usize,
}

/// The blocks of a quota file, wherever they are.
pub trait Blocks {
    /// What goes wrong.
    type Error;

    /// Reads a block of the file.
    fn load(&mut self, block: u32) -> Result<Block, Self::Error>;

    /// Writes a block of the file, maybe one behind its end.
    fn store(&mut self, block: u32, data: &Block) -> Result<(), Self::Error>;

    /// The error for a damaged file.
    fn damaged(&mut self, kind: CorruptKind) -> Self::Error;
}

fn reference(id: u32, level: u32) -> usize {
    (id >> (8 * (DEPTH - 1 - level)) & 0xff) as usize * 4
}

fn check<B: Blocks>(blocks: &mut B, info: &Info, block: u32) -> Result<(), B::Error> {
    if (ROOT + 1..info.blocks).contains(&block) {
        return Ok(());
    }
    Err(blocks.damaged(CorruptKind::QuotaBlock { block, blocks: info.blocks }))
}

fn used(entry: &[u8]) -> bool {
    entry.iter().any(|&byte| byte != 0)
}

/// The place of an id's entry; `None` where it has none.
///
/// # Errors
/// A tree that leads nowhere; those of the blocks.
pub fn find<B: Blocks>(blocks: &mut B, info: &Info, id: u32) -> Result<Option<Slot>, B::Error> {
    let mut block = ROOT;
    for level in 0..DEPTH {
        let data = blocks.load(block)?;
        block = word(&data, reference(id, level));
        if block == 0 {
            return Ok(None);
        }
        check(blocks, info, block)?;
    }
    let data = blocks.load(block)?;
    match info.form.slot_of(&data, id) {
        Some(offset) => Ok(Some(Slot { block, offset })),
        None => Err(blocks.damaged(CorruptKind::QuotaEntry { id, block })),
    }
}

/// Gives `id`, which has none, an empty entry; the caller writes block 0 afterwards. Takes at most
/// four new blocks.
///
/// # Errors
/// As [`find`].
pub fn insert<B: Blocks>(blocks: &mut B, info: &mut Info, id: u32) -> Result<Slot, B::Error> {
    // The tree from the top down, as Linux makes it: every block names the next one.
    let mut block = ROOT;
    for level in 0..DEPTH - 1 {
        let mut data = blocks.load(block)?;
        let at = reference(id, level);
        let next = word(&data, at);
        if next != 0 {
            check(blocks, info, next)?;
            block = next;
            continue;
        }
        let next = take_block(blocks, info)?;
        set_word(&mut data, at, next);
        blocks.store(block, &data)?;
        blocks.store(next, &[0; BLOCK_SIZE])?;
        block = next;
    }
    let slot = take_slot(blocks, info, id)?;
    let mut data = blocks.load(block)?;
    set_word(&mut data, reference(id, DEPTH - 1), slot.block);
    blocks.store(block, &data)?;
    Ok(slot)
}

/// A block that nobody uses.
fn take_block<B: Blocks>(blocks: &mut B, info: &mut Info) -> Result<u32, B::Error> {
    let block = info.free_block;
    if block == 0 {
        info.blocks += 1;
        blocks.store(info.blocks - 1, &[0; BLOCK_SIZE])?;
        return Ok(info.blocks - 1);
    }
    check(blocks, info, block)?;
    let data = blocks.load(block)?;
    info.free_block = word(&data, 0);
    Ok(block)
}

/// Takes a slot in a data block with room and writes an empty entry into it.
fn take_slot<B: Blocks>(blocks: &mut B, info: &mut Info, id: u32) -> Result<Slot, B::Error> {
    let (block, mut data) = match info.free_entry {
        0 => (take_block(blocks, info)?, [0; BLOCK_SIZE]),
        block => {
            check(blocks, info, block)?;
            (block, blocks.load(block)?)
        }
    };
    info.free_entry = block;
    let count = u16::from_le_bytes([data[8], data[9]]);
    let form = info.form;
    let free = form.slots().find(|&at| !used(&data[at..at + form.entry_size()]));
    let Some(offset) = free.filter(|_| usize::from(count) < form.entries_max()) else {
        return Err(blocks.damaged(CorruptKind::QuotaEntry { id, block }));
    };
    data[8..10].copy_from_slice(&(count + 1).to_le_bytes());
    form.emit(&Dqblk::default(), &mut data[offset..], id);
    if usize::from(count) + 1 == form.entries_max() {
        // Full: out of the list, whose first block it is.
        info.free_entry = word(&data, 0);
        set_word(&mut data, 0, 0);
        if info.free_entry != 0 {
            check(blocks, info, info.free_entry)?;
            let mut next = blocks.load(info.free_entry)?;
            set_word(&mut next, 4, 0);
            blocks.store(info.free_entry, &next)?;
        }
    }
    blocks.store(block, &data)?;
    Ok(Slot { block, offset })
}

/// Takes the entry of `id` out, and the blocks that hold nothing else any more; the caller writes
/// block 0 afterwards. Changes at most seven blocks beside that one. False where there is none.
///
/// # Errors
/// As [`find`].
pub fn remove<B: Blocks>(blocks: &mut B, info: &mut Info, id: u32) -> Result<bool, B::Error> {
    let mut path = [ROOT; DEPTH as usize];
    let mut block = ROOT;
    for level in 0..DEPTH {
        path[level as usize] = block;
        block = word(&blocks.load(block)?, reference(id, level));
        if block == 0 {
            return Ok(false);
        }
        check(blocks, info, block)?;
    }
    release_slot(blocks, info, id, block)?;
    for level in (0..DEPTH).rev() {
        let block = path[level as usize];
        let mut data = blocks.load(block)?;
        set_word(&mut data, reference(id, level), 0);
        if block == ROOT || used(&data) {
            blocks.store(block, &data)?;
            break;
        }
        give_block(blocks, info, block)?;
    }
    Ok(true)
}

/// Puts a block among those that nobody uses.
fn give_block<B: Blocks>(blocks: &mut B, info: &mut Info, block: u32) -> Result<(), B::Error> {
    let mut data = [0; BLOCK_SIZE];
    set_word(&mut data, 0, info.free_block);
    info.free_block = block;
    blocks.store(block, &data)
}

/// Empties the slot of `id` in a data block: one that was full has room now, one that is empty is
/// given back.
fn release_slot<B: Blocks>(
    blocks: &mut B,
    info: &mut Info,
    id: u32,
    block: u32,
) -> Result<(), B::Error> {
    let mut data = blocks.load(block)?;
    let count = usize::from(u16::from_le_bytes([data[8], data[9]]));
    let most = info.form.entries_max();
    let Some(at) = info.form.slot_of(&data, id).filter(|_| (1..=most).contains(&count)) else {
        return Err(blocks.damaged(CorruptKind::QuotaEntry { id, block }));
    };
    data[at..at + info.form.entry_size()].fill(0);
    data[8..10].copy_from_slice(&(count as u16 - 1).to_le_bytes());
    let (next, before) = (word(&data, 0), word(&data, 4));
    if count == 1 {
        if before == 0 {
            info.free_entry = next;
        } else {
            link(blocks, info, before, 0, next)?;
        }
        if next != 0 {
            link(blocks, info, next, 4, before)?;
        }
        return give_block(blocks, info, block);
    }
    if count == most {
        set_word(&mut data, 0, info.free_entry);
        set_word(&mut data, 4, 0);
        if info.free_entry != 0 {
            link(blocks, info, info.free_entry, 4, block)?;
        }
        info.free_entry = block;
    }
    blocks.store(block, &data)
}

/// Sets a word of the header of a data block in the list of those with room.
fn link<B: Blocks>(
    blocks: &mut B,
    info: &Info,
    block: u32,
    at: usize,
    to: u32,
) -> Result<(), B::Error> {
    check(blocks, info, block)?;
    let mut data = blocks.load(block)?;
    set_word(&mut data, at, to);
    blocks.store(block, &data)
}

/// Shows every entry to `look`, ids rising.
///
/// # Errors
/// A tree that leads nowhere or twice to the same block; those of the blocks.
pub fn walk<B: Blocks>(
    blocks: &mut B,
    info: &Info,
    look: &mut dyn FnMut(u32, &Dqblk),
) -> Result<(), B::Error> {
    // A damaged tree may lead in circles; each of its blocks is met once.
    let mut budget = info.blocks;
    walk_below(blocks, info, ROOT, 0, 0, &mut budget, look)
}

fn walk_below<B: Blocks>(
    blocks: &mut B,
    info: &Info,
    block: u32,
    level: u32,
    prefix: u32,
    budget: &mut u32,
    look: &mut dyn FnMut(u32, &Dqblk),
) -> Result<(), B::Error> {
    if *budget == 0 {
        return Err(blocks.damaged(CorruptKind::QuotaBlock { block, blocks: info.blocks }));
    }
    *budget -= 1;
    let data = blocks.load(block)?;
    let mut leaf: Option<(u32, Block)> = None;
    for byte in 0..256u32 {
        let next = word(&data, byte as usize * 4);
        if next == 0 {
            continue;
        }
        check(blocks, info, next)?;
        let id = prefix << 8 | byte;
        if level < DEPTH - 1 {
            walk_below(blocks, info, next, level + 1, id, budget, look)?;
            continue;
        }
        // Neighbouring ids mostly share their block.
        let known = leaf.take().filter(|(known, _)| *known == next);
        let (_, entries) = match known {
            Some(known) => leaf.insert(known),
            None => leaf.insert((next, blocks.load(next)?)),
        };
        let Some(at) = info.form.slot_of(entries, id) else {
            return Err(blocks.damaged(CorruptKind::QuotaEntry { id, block: next }));
        };
        look(id, &info.form.read(&entries[at..]));
    }
    Ok(())
}

/// A whole file in memory: for mkfs and for tests.
#[derive(Clone, Debug, Default)]
pub struct InMemory(pub Vec<Block>);

impl Blocks for InMemory {
    type Error = CorruptKind;

    fn load(&mut self, block: u32) -> Result<Block, CorruptKind> {
        let blocks = self.0.len() as u32;
        self.0.get(block as usize).copied().ok_or(CorruptKind::QuotaBlock { block, blocks })
    }

    fn store(&mut self, block: u32, data: &Block) -> Result<(), CorruptKind> {
        let len = self.0.len().max(block as usize + 1);
        self.0.resize(len, [0; BLOCK_SIZE]);
        self.0[block as usize] = *data;
        Ok(())
    }

    fn damaged(&mut self, kind: CorruptKind) -> CorruptKind {
        kind
    }
}

/// A new quota file with these entries, as hidden inodes have it.
pub fn new_file(kind: Kind, entries: &[(u32, Dqblk)]) -> InMemory {
    new_file_of(Form::V1, kind, entries)
}

/// A new quota file of this form.
pub fn new_file_of(form: Form, kind: Kind, entries: &[(u32, Dqblk)]) -> InMemory {
    let mut file = InMemory(vec![[0; BLOCK_SIZE]; 2]);
    let mut info = Info {
        form,
        block_grace: GRACE_DEFAULT,
        inode_grace: GRACE_DEFAULT,
        flags: 0,
        blocks: 2,
        free_block: 0,
        free_entry: 0,
    };
    for (id, entry) in entries {
        let slot = insert(&mut file, &mut info, *id).expect("a new file is sound");
        form.emit(entry, &mut file.0[slot.block as usize][slot.offset..], *id);
    }
    info.emit(&mut file.0[0], kind);
    file
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::Rng;

    use super::*;

    fn entry(space: u64) -> Dqblk {
        Dqblk { space, inodes: space / 7, block_hard: 5, ..Dqblk::default() }
    }

    #[test]
    fn entries_come_back_as_they_were_written() {
        // Goal: random ids over all four bytes, found one by one and listed in order; the file is
        // as short as its entries allow.
        let mut rng = Rng::new(1, 1);
        let ids = |rng: &mut Rng| match rng.below(3) {
            0 => rng.below(300) as u32,
            1 => rng.next_u32(),
            _ => rng.below(70_000) as u32,
        };
        let map: BTreeMap<u32, Dqblk> =
            (0..500).map(|n| (ids(&mut rng), entry(n * 4096))).collect();
        let mut order: Vec<(u32, Dqblk)> = map.clone().into_iter().collect();
        order.sort_by_key(|(id, _)| id.wrapping_mul(0x9e37_79b9));
        for form in [Form::V0, Form::V1] {
            let mut file = new_file_of(form, Kind::Group, &order);
            let info = Info::parse(&file.0[0], Kind::Group).expect("sound");
            assert_eq!(info.blocks as usize, file.0.len());
            for (id, entry) in &map {
                let slot = find(&mut file, &info, *id).expect("sound").expect("has an entry");
                let data = &file.0[slot.block as usize][slot.offset..];
                assert_eq!(form.read(data), *entry, "id {id}");
            }
            let mut seen = Vec::new();
            walk(&mut file, &info, &mut |id, entry| seen.push((id, *entry))).expect("sound");
            assert_eq!(seen, map.clone().into_iter().collect::<Vec<_>>());
            let missing = (0..).find(|id| !map.contains_key(id)).expect("one is missing");
            assert_eq!(find(&mut file, &info, missing), Ok(None));
        }
    }

    /// The blocks of a list, from `first`, each naming the next at `at`.
    fn list(file: &mut InMemory, first: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut block = first;
        while block != 0 {
            assert!(!found.contains(&block), "a circle at {block}");
            found.push(block);
            block = word(&file.0[block as usize], 0);
        }
        found
    }

    /// Every block is in the tree, holds entries, or is free; those with room are in their list,
    /// both ways.
    fn sound(file: &mut InMemory, info: &Info) -> usize {
        let mut data_blocks: BTreeMap<u32, usize> = BTreeMap::new();
        let mut tree = vec![ROOT];
        let mut level = vec![ROOT];
        for depth in 0..DEPTH {
            let below = |block: &u32| -> Vec<u32> {
                let data = &file.0[*block as usize];
                (0..256).map(|n| word(data, n * 4)).filter(|&next| next != 0).collect()
            };
            level = level.iter().flat_map(below).collect();
            match depth < DEPTH - 1 {
                true => tree.extend(&level),
                false => level.iter().for_each(|at| *data_blocks.entry(*at).or_default() += 1),
            }
        }
        let free = list(file, info.free_block);
        let room = list(file, info.free_entry);
        let mut before = 0;
        for &block in &room {
            assert_eq!(word(&file.0[block as usize], 4), before);
            before = block;
        }
        for (block, entries) in &data_blocks {
            let data = &file.0[*block as usize];
            assert_eq!(usize::from(u16::from_le_bytes([data[8], data[9]])), *entries);
            assert_eq!(room.contains(block), *entries < info.form.entries_max(), "block {block}");
        }
        assert!(room.iter().all(|block| data_blocks.contains_key(block)));
        assert_eq!(1 + tree.len() + data_blocks.len() + free.len(), info.blocks as usize);
        free.len()
    }

    #[test]
    fn entries_that_go_leave_room_for_others() {
        // Goal: random ids come and go; after each step the file is a sound tree with sound lists,
        // and at the end, empty, it has only its root in use.
        [Form::V0, Form::V1].into_iter().for_each(come_and_go);
    }

    fn come_and_go(form: Form) {
        let mut file = new_file_of(form, Kind::User, &[]);
        let mut info = Info::parse(&file.0[0], Kind::User).expect("sound");
        let mut rng = Rng::new(3, 3);
        let mut ids: Vec<u32> = Vec::new();
        for step in 0..1500 {
            let id = [rng.below(200) as u32, rng.next_u32() & 0x0303_00ff][step % 2];
            let at = ids.iter().position(|&known| known == id);
            match at {
                Some(at) => {
                    assert_eq!(remove(&mut file, &mut info, id), Ok(true));
                    ids.swap_remove(at);
                }
                None => {
                    assert_eq!(remove(&mut file, &mut info, id), Ok(false));
                    let slot = insert(&mut file, &mut info, id).expect("sound");
                    let place = &mut file.0[slot.block as usize][slot.offset..];
                    form.emit(&entry(4096), place, id);
                    ids.push(id);
                }
            }
            sound(&mut file, &info);
        }
        assert!(ids.len() > 50, "{} ids", ids.len());
        while let Some(id) = ids.pop() {
            assert_eq!(remove(&mut file, &mut info, id), Ok(true));
        }
        assert_eq!(sound(&mut file, &info), info.blocks as usize - 2);
        let mut seen = 0;
        walk(&mut file, &info, &mut |_, _| seen += 1).expect("sound");
        assert_eq!(seen, 0);
    }

    #[test]
    fn an_empty_entry_of_id_0_is_not_an_unused_one() {
        for form in [Form::V0, Form::V1] {
            let entries = [(0, Dqblk::default()), (1, entry(4096))];
            let mut file = new_file_of(form, Kind::User, &entries);
            let info = Info::parse(&file.0[0], Kind::User).expect("sound");
            let mut seen = Vec::new();
            walk(&mut file, &info, &mut |id, entry| seen.push((id, *entry))).expect("sound");
            assert_eq!(seen, entries);
        }
    }

    #[test]
    fn damage_has_its_error_and_never_a_circle() {
        let good = new_file(Kind::User, &[(7, entry(1)), (300, entry(2))]);
        let info = Info::parse(&good.0[0], Kind::User).expect("sound");
        assert!(matches!(
            Info::parse(&good.0[0], Kind::Project),
            Err(CorruptKind::QuotaMagic { .. })
        ));
        let mut rng = Rng::new(2, 2);
        for _ in 0..3000 {
            let mut bad = good.clone();
            let block = rng.below(bad.0.len() as u64) as usize;
            let at = rng.below(256) as usize * 4;
            set_word(&mut bad.0[block], at, rng.below(12) as u32);
            let Ok(mut info) = Info::parse(&bad.0[0], Kind::User) else { continue };
            info.blocks = info.blocks.min(64);
            let _ = walk(&mut bad, &info, &mut |_, _| {});
            let _ = find(&mut bad, &info, 300);
            let _ = insert(&mut bad, &mut info, 9);
            let _ = remove(&mut bad, &mut info, 300);
        }
        let mut bad = good;
        set_word(&mut bad.0[1], 0, 1);
        assert_eq!(
            find(&mut bad, &info, 7),
            Err(CorruptKind::QuotaBlock { block: 1, blocks: info.blocks })
        );
    }
}
