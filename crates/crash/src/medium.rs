//! The medium after a power cut: what is durable, shared by many states, and over it what a state
//! has beside, copied on write.

use std::sync::Arc;

use base::Page;
use base::map::{HashMap, HashSet};
use base::page::is_zero;
use base::unit::SECTOR_SIZE;
use block::{Cause, Device, DeviceInfo, DeviceIo, Op, Segment};
use device::Cut;
use rt::SpinLock;

use crate::log::{Log, LogError, PIECE, PieceId, content_hash};

/// A block of 4 KiB: content of the log, or put together.
#[derive(Clone)]
enum Block {
    Piece(PieceId),
    Page(Page),
}

/// Blocks that somebody read or wrote, in no order.
pub type BlockSet = HashSet<u32>;

/// Blocks by number.
type Blocks = HashMap<u32, Block>;

/// The share of one block in the hash of a medium; zeroes have none, wherever they are.
fn share(block: u32, hash: u128) -> u128 {
    xxhash_rust::xxh3::xxh3_128_with_seed(&hash.to_le_bytes(), u64::from(block))
}

/// A medium that holds the first entries of a log, all of them.
#[derive(Clone)]
pub struct Stable {
    log: Log,
    upto: usize,
    blocks: Blocks,
    /// Hash over the whole content.
    hash: u128,
}

impl Stable {
    /// The medium as it was when recording began.
    pub fn new(log: &Log) -> Stable {
        let mut blocks = Blocks::default();
        let mut hash = 0;
        for &(block, piece) in log.base() {
            blocks.insert(block, Block::Piece(piece));
            hash ^= share(block, log.hash(piece));
        }
        Stable { log: log.clone(), upto: 0, blocks, hash }
    }

    /// Entries that it holds.
    pub fn upto(&self) -> usize {
        self.upto
    }

    /// Blocks that are kept.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True for a medium of zeroes.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Carries out all entries up to `upto` (exclusive).
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn advance(&mut self, upto: usize) -> Result<(), LogError> {
        let log = self.log.clone();
        for entry in &log.writes().entries[self.upto..upto.max(self.upto)] {
            for (at, len, piece) in log.pieces(entry) {
                let number = (at / PIECE as u64) as u32;
                let old = self.blocks.get(&number);
                let old_share = old.map_or(0, |block| self.share(number, block));
                let new = patched(&log, old, at, len, piece, None)?;
                self.hash ^= old_share ^ self.share(number, &new);
                self.blocks.insert(number, new);
            }
        }
        self.upto = self.upto.max(upto);
        Ok(())
    }

    fn share(&self, number: u32, block: &Block) -> u128 {
        block_share(&self.log, number, block)
    }

    fn share_at(&self, number: u32) -> u128 {
        self.blocks.get(&number).map_or(0, |block| self.share(number, block))
    }

    /// The hash of some of its blocks.
    pub fn hash_of(&self, blocks: impl Iterator<Item = u32>) -> u128 {
        blocks.fold(0, |hash, number| hash ^ self.share_at(number))
    }

    /// The medium after a cut; everything below [`upto`](Stable::upto) is durable at the cut.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn after(self: &Arc<Stable>, cut: &Cut) -> Result<Medium, LogError> {
        let log = &self.log;
        let mut over = Blocks::default();
        let early = cut.early.iter().copied();
        for index in (self.upto..cut.upto).chain(early) {
            if cut.drop.binary_search(&index).is_ok() {
                continue;
            }
            let torn = cut.torn.iter().find(|torn| torn.0 == index).map(|torn| &torn.1[..]);
            let entry = &log.writes().entries[index];
            for (at, len, piece) in log.pieces(entry) {
                let number = (at / PIECE as u64) as u32;
                let old = over.get(&number).or_else(|| self.blocks.get(&number));
                let torn = torn.map(|there| {
                    let skip = ((at - entry.start().bytes()) / SECTOR_SIZE) as usize;
                    there.get(skip..).unwrap_or(&[])
                });
                let new = patched(log, old, at, len, piece, torn)?;
                over.insert(number, new);
            }
        }
        let changes = self.changes(&over, |_| true);
        let hash = changes.iter().fold(self.hash, |hash, change| hash ^ change.share);
        let sectors = log.header().sectors;
        let info = DeviceInfo { physical_block: 512, ..DeviceInfo::plain(sectors) };
        let over = Over { blocks: over, ..Over::default() };
        let over = SpinLock::named("medium after a cut", over);
        let zero = log.page(PieceId::ZERO)?;
        Ok(Medium { stable: self.clone(), info, over, hash, changes, zero })
    }

    /// What `over` changes in the blocks that are `wanted`.
    fn changes(&self, over: &Blocks, wanted: impl Fn(u32) -> bool) -> Vec<Change> {
        let wanted = over.iter().filter(|(number, _)| wanted(**number));
        let change = |(&block, new): (&u32, &Block)| {
            let share = self.share_at(block) ^ self.share(block, new);
            Change { block, share }
        };
        wanted.map(change).filter(|change| change.share != 0).collect()
    }
}

/// A block that differs from the durable part.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Its number.
    pub block: u32,
    /// What that adds to the hash of the content.
    pub share: u128,
}

fn block_share(log: &Log, number: u32, block: &Block) -> u128 {
    match block {
        Block::Piece(PieceId::ZERO) => 0,
        Block::Piece(piece) => share(number, log.hash(*piece)),
        Block::Page(page) if is_zero(page) => 0,
        Block::Page(page) => share(number, content_hash(page)),
    }
}

/// A block after a piece was written to it, or only those of its sectors that `torn` has.
fn patched(
    log: &Log,
    old: Option<&Block>,
    at: u64,
    len: usize,
    piece: PieceId,
    torn: Option<&[bool]>,
) -> Result<Block, LogError> {
    if len == PIECE && torn.is_none() {
        return Ok(Block::Piece(piece));
    }
    let mut page = match old {
        None => log.page(PieceId::ZERO)?,
        Some(Block::Piece(old)) => log.page(*old)?,
        Some(Block::Page(page)) => page.clone(),
    };
    let new = log.page(piece)?;
    let start = (at % PIECE as u64) as usize;
    let sector = SECTOR_SIZE as usize;
    let bytes = page.make_mut();
    for (index, part) in (0..len).step_by(sector).enumerate() {
        if torn.is_none_or(|there| there.get(index) == Some(&true)) {
            bytes[start + part..start + part + sector].copy_from_slice(&new[part..part + sector]);
        }
    }
    Ok(Block::Page(page))
}

/// The medium after a cut of a log.
///
/// # Errors
/// The log cannot be read.
pub fn medium(log: &Log, cut: &Cut) -> Result<Medium, LogError> {
    let mut stable = Stable::new(log);
    stable.advance(durable(log, cut))?;
    Arc::new(stable).after(cut)
}

/// Entries below the answer are durable at a cut, whatever disk made it.
pub(crate) fn durable(log: &Log, cut: &Cut) -> usize {
    let lost = cut.drop.iter().chain(cut.torn.iter().map(|(index, _)| index)).min();
    lost.copied().unwrap_or(usize::MAX).min(log.flushed(cut.upto))
}

/// The medium after a cut, as a device. What is written to it stays with it.
pub struct Medium {
    stable: Arc<Stable>,
    info: DeviceInfo,
    over: SpinLock<Over>,
    hash: u128,
    changes: Vec<Change>,
    zero: Page,
}

/// What lies over the durable part, and what was read and written since the cut.
#[derive(Clone, Default)]
struct Over {
    blocks: Blocks,
    /// Blocks that were written.
    written: BlockSet,
    /// Blocks whose content as the cut left it was read.
    read: BlockSet,
    /// All blocks that were read, since somebody asked for them.
    asked: Option<BlockSet>,
}

impl Over {
    /// Notes that a block is read.
    fn read(&mut self, number: u32) {
        if !self.written.contains(&number) {
            self.read.insert(number);
        }
        if let Some(asked) = &mut self.asked {
            asked.insert(number);
        }
    }

    fn write(&mut self, number: u32, page: Page) {
        self.written.insert(number);
        self.blocks.insert(number, Block::Page(page));
    }
}

impl Medium {
    /// A hash of the whole content as the cut left it: equal content has equal hashes.
    pub fn hash(&self) -> u128 {
        self.hash
    }

    /// What the cut left that differs from the durable part.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The durable part below it.
    pub fn stable(&self) -> &Stable {
        &self.stable
    }

    /// What differs from the durable part now, in the blocks that are `wanted`.
    pub fn changes_in(&self, wanted: impl Fn(u32) -> bool) -> Vec<Change> {
        self.stable.changes(&self.over.lock_irq().blocks, wanted)
    }

    /// Begins to note every block that is read.
    pub fn begin_reads(&self) {
        self.over.lock_irq().asked = Some(BlockSet::default());
    }

    /// The blocks that were read since [`begin_reads`](Medium::begin_reads).
    pub fn end_reads(&self) -> BlockSet {
        self.over.lock_irq().asked.take().unwrap_or_default()
    }

    /// Notes blocks as read, all at once.
    pub fn note_reads(&self, blocks: &BlockSet) {
        let mut over = self.over.lock_irq();
        blocks.iter().for_each(|block| over.read(*block));
    }

    /// The blocks whose content as the cut left it was read.
    pub fn reads(&self) -> BlockSet {
        std::mem::take(&mut self.over.lock_irq().read)
    }

    /// Calls `each` for all blocks of 4 KiB that are not zero, in order.
    ///
    /// # Errors
    /// Those of `each`; the log cannot be read.
    pub fn each_block<E: From<LogError>>(
        &self,
        mut each: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let over = self.over.lock_irq().blocks.clone();
        let mut numbers: Vec<u32> = self.stable.blocks.keys().chain(over.keys()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let page = self.page(&over, number)?;
            if !is_zero(&page) {
                each(number, &page)?;
            }
        }
        Ok(())
    }

    /// Bytes of the medium as it is now.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>, LogError> {
        let over = self.over.lock_irq();
        let (first, last) = (at / PIECE as u64, (at + len as u64).div_ceil(PIECE as u64));
        let mut bytes = Vec::with_capacity(len + PIECE);
        for number in first..last {
            bytes.extend_from_slice(&self.page(&over.blocks, number as u32)?);
        }
        let start = (at - first * PIECE as u64) as usize;
        Ok(bytes[start..start + len].to_vec())
    }

    fn page(&self, over: &Blocks, number: u32) -> Result<Page, LogError> {
        match over.get(&number).or_else(|| self.stable.blocks.get(&number)) {
            None => Ok(self.zero.clone()),
            Some(Block::Piece(piece)) => self.stable.log.page(*piece),
            Some(Block::Page(page)) => Ok(page.clone()),
        }
    }

    fn read(&self, over: &mut Over, mut at: u64, seg: &mut Segment) -> Result<(), LogError> {
        if seg.offset == 0 && seg.len as usize == PIECE && at.is_multiple_of(PIECE as u64) {
            let number = (at / PIECE as u64) as u32;
            over.read(number);
            seg.page = self.page(&over.blocks, number)?;
            return Ok(());
        }
        let bytes = seg.bytes_mut();
        let mut done = 0;
        while done < bytes.len() {
            let start = (at % PIECE as u64) as usize;
            let len = (PIECE - start).min(bytes.len() - done);
            let number = (at / PIECE as u64) as u32;
            over.read(number);
            let page = self.page(&over.blocks, number)?;
            bytes[done..done + len].copy_from_slice(&page[start..start + len]);
            done += len;
            at += len as u64;
        }
        Ok(())
    }

    fn write(&self, over: &mut Over, mut at: u64, bytes: &[u8]) -> Result<(), LogError> {
        let mut done = 0;
        while done < bytes.len() {
            let start = (at % PIECE as u64) as usize;
            let len = (PIECE - start).min(bytes.len() - done);
            let number = (at / PIECE as u64) as u32;
            let page = match len == PIECE {
                true => Page::from_slice(&bytes[done..done + len]),
                false => {
                    over.read(number);
                    let mut page = self.page(&over.blocks, number)?;
                    page.make_mut()[start..start + len].copy_from_slice(&bytes[done..done + len]);
                    page
                }
            };
            over.write(number, page);
            done += len;
            at += len as u64;
        }
        Ok(())
    }

    fn carry_out(&self, io: &mut DeviceIo) -> Result<(), LogError> {
        let mut over = self.over.lock_irq();
        let mut at = io.sector.bytes();
        match io.op {
            Op::Read => {
                for seg in &mut io.segs {
                    self.read(&mut over, at, seg)?;
                    at += u64::from(seg.len);
                }
            }
            Op::Write => {
                for seg in &io.segs {
                    if seg.offset == 0
                        && seg.len as usize == PIECE
                        && seg.page.len() == PIECE
                        && at.is_multiple_of(PIECE as u64)
                    {
                        over.write((at / PIECE as u64) as u32, seg.page.clone());
                    } else {
                        self.write(&mut over, at, seg.bytes())?;
                    }
                    at += u64::from(seg.len);
                }
            }
            Op::Discard | Op::WriteZeroes => {
                let zero = [0; PIECE];
                let end = at + io.bytes();
                while at < end {
                    let len = (PIECE as u64 - at % PIECE as u64).min(end - at);
                    self.write(&mut over, at, &zero[..len as usize])?;
                    at += len;
                }
            }
            Op::Flush => {}
        }
        Ok(())
    }
}

impl Device for Medium {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut io: DeviceIo) {
        if io.op != Op::Flush && io.sector.0.saturating_add(io.count) > self.info.sectors {
            return io.fail(Cause::OutOfRange);
        }
        match self.carry_out(&mut io) {
            Ok(()) => io.succeed(),
            // The content is in the log, and the log cannot be read.
            Err(_) => io.fail(Cause::Io),
        }
    }

    fn name(&self) -> String {
        "the medium after a power cut".to_owned()
    }
}
