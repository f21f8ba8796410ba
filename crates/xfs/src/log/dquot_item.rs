//! Records of quota in memory: what an id uses and may use, what is reserved for it, and how that
//! gets into the log.
//!
//! A transaction that changes inodes says what that does to the accounts of their owners; the
//! commit adds it to the records and formats these, under the same lock of the log as everything
//! else of the transaction. So a checkpoint holds usage and inodes of the same moment, and nobody
//! waits for a record.
//!
//! Source: "XFS Algorithms and Data Structures", chapters on the journaling log and on quota.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Sub, SubAssign};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use base::Errno;
use rt::SpinLock;
use smallvec::SmallVec;
use vfs::quota::{Dqblk, GRACE_DEFAULT, Grace, Kind, LIMIT_UNIT, Limits};
use zerocopy::IntoBytes;

use crate::buf::{Buf, BufMap, BufOps};
use crate::format::dquot::{self, DQUOT_SIZE, DquotId, QuotaFlags, RECORD_SIZE, RawDquot};
use crate::format::inode::{Flags, Flags2};
use crate::format::{Section, U64, u16_at, u32_at, u64_at};
use crate::log::item::{ItemCore, LogVec};

/// Type of a quota record in the log.
const LI_DQUOT: u16 = 0x123d;
/// Bytes of the item's header.
const HEADER: usize = 24;

/// A block of quota records, each of which has a checksum of its own.
pub(crate) static DQUOT_BLOCK: BufOps =
    BufOps { name: "quota block", kinds: &[], check: None, unmapped: false };

/// Bytes that the changed records of one transaction take in the log: old and new owner, group and
/// project.
pub(crate) const LOG_BYTES: u32 = 6 * (HEADER + DQUOT_SIZE + 2 * 12) as u32;

/// Blocks and inodes, or a change of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    pub blocks: i64,
    pub inodes: i64,
    /// Blocks of the realtime section, which have limits of their own.
    pub realtime: i64,
}

impl Usage {
    /// So many blocks.
    pub fn of_blocks(blocks: u64) -> Usage {
        Usage { blocks: blocks as i64, ..Usage::default() }
    }

    /// So many blocks of the content of a file.
    pub fn of_content(section: Section, blocks: u64) -> Usage {
        match section {
            Section::Data => Usage::of_blocks(blocks),
            Section::Realtime => Usage { realtime: blocks as i64, ..Usage::default() },
        }
    }

    /// What a record says.
    pub fn of_record(raw: &RawDquot) -> Usage {
        Usage {
            blocks: raw.d_bcount.get() as i64,
            inodes: raw.d_icount.get() as i64,
            realtime: raw.d_rtbcount.get() as i64,
        }
    }

    /// In the order of [`State::accounts`].
    fn counts(self) -> [i64; 3] {
        [self.blocks, self.inodes, self.realtime]
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.blocks += other.blocks;
        self.inodes += other.inodes;
        self.realtime += other.realtime;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, other: Usage) {
        self.blocks -= other.blocks;
        self.inodes -= other.inodes;
        self.realtime -= other.realtime;
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(mut self, other: Usage) -> Usage {
        self -= other;
        self
    }
}

/// Who an inode is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Owners {
    pub uid: u32,
    pub gid: u32,
    pub project: u32,
}

impl Owners {
    /// The id of a kind.
    pub fn id(&self, kind: Kind) -> DquotId {
        let id = match kind {
            Kind::User => self.uid,
            Kind::Group => self.gid,
            Kind::Project => self.project,
        };
        DquotId { kind, id }
    }
}

/// What an inode's image puts on its owners' accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Charge {
    pub owners: Owners,
    pub usage: Usage,
}

impl Charge {
    /// That of an inode as it stands on the disk; a free one charges nothing, nor does one of the
    /// file system itself. Of a file in the realtime section so many blocks lie there.
    pub fn of(image: &[u8], content: i64) -> Charge {
        if image[2..4] == [0, 0] || Flags2::of(image).contains(Flags2::METADATA) {
            return Charge::default();
        }
        let project = u32::from(u16_at(image, 20)) | u32::from(u16_at(image, 22)) << 16;
        let owners = Owners { uid: u32_at(image, 8), gid: u32_at(image, 12), project };
        let realtime = if Flags::of(image).contains(Flags::REALTIME) { content } else { 0 };
        let blocks = u64_at(image, 64) as i64 - realtime;
        Charge { owners, usage: Usage { blocks, inodes: 1, realtime } }
    }
}

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DquotPlace {
    pub block: BufMap,
    /// Its first byte in the block.
    pub offset: u32,
}

/// What a transaction does to a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DquotChange {
    /// It uses more, or less.
    Add(Usage),
    /// It may use so much.
    Limits(Limits),
    /// The record of id 0: soft limits may be exceeded so long.
    Grace(Grace),
}

struct State {
    raw: RawDquot,
    /// Reserved, and not yet part of the counts.
    reserved: Usage,
}

/// Limits of blocks, inodes, and blocks of the realtime section, hard and soft; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DefaultLimits([[u64; 2]; 3]);

impl DefaultLimits {
    /// Those that a record has: of id 0 they hold for all who have none of their own.
    pub fn of(raw: &RawDquot) -> DefaultLimits {
        let pair = |hard: U64, soft: U64| [hard.get(), soft.get()];
        DefaultLimits([
            pair(raw.d_blk_hardlimit, raw.d_blk_softlimit),
            pair(raw.d_ino_hardlimit, raw.d_ino_softlimit),
            pair(raw.d_rtb_hardlimit, raw.d_rtb_softlimit),
        ])
    }
}

/// The record of an id.
pub(crate) struct DquotItem {
    pub id: DquotId,
    pub place: DquotPlace,
    pub core: ItemCore,
    /// Innermost but for the content of a buffer.
    state: SpinLock<State>,
}

impl std::fmt::Debug for DquotItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DquotItem({} {})", self.id.kind.name(), self.id.id)
    }
}

/// What an id has of one of the things that are counted, and may have.
struct Account {
    used: u64,
    /// 0 for none.
    hard: u64,
    soft: u64,
    /// When the grace ends: 0 where it does not run.
    end: u64,
}

impl Account {
    /// When the grace ends that would end at `begun` if it began now: it begins when a limit is
    /// passed.
    fn end_of_grace(&self, begun: u64) -> u64 {
        match [self.hard, self.soft].into_iter().any(|limit| limit != 0 && self.used > limit) {
            false => 0,
            true if self.end == 0 => begun,
            true => self.end,
        }
    }

    /// Whether so much more is allowed: up to the soft limit once its grace is over.
    fn allows(&self, more: i64, now: u64) -> bool {
        let used = self.used.saturating_add_signed(more);
        let expired = self.end != 0 && now > self.end;
        (self.hard == 0 || used <= self.hard) && (self.soft == 0 || used <= self.soft || !expired)
    }
}

impl State {
    /// Blocks, inodes, and blocks of the realtime section.
    fn accounts(&self, defaults: DefaultLimits) -> [Account; 3] {
        let raw = &self.raw;
        let DefaultLimits(own) = DefaultLimits::of(raw);
        let account = |index: usize, used: U64, timer| {
            let limit = |which: usize| match own[index][which] {
                0 => defaults.0[index][which],
                own => own,
            };
            let (used, end) = (used.get(), raw.seconds(timer));
            Account { used, hard: limit(0), soft: limit(1), end }
        };
        [
            account(0, raw.d_bcount, raw.d_btimer),
            account(1, raw.d_icount, raw.d_itimer),
            account(2, raw.d_rtbcount, raw.d_rtbtimer),
        ]
    }

    /// Starts and ends the grace periods as the usage asks for it. Those of id 0 are no times.
    fn adjust_timers(&mut self, now: u64, grace: Grace, defaults: DefaultLimits) {
        if self.raw.d_id.get() == 0 {
            return;
        }
        let [blocks, inodes, realtime] = self.accounts(defaults);
        let timer =
            |account: Account, grace| self.raw.timer(account.end_of_grace(now + u64::from(grace)));
        let blocks = timer(blocks, grace.blocks);
        let inodes = timer(inodes, grace.inodes);
        let realtime = timer(realtime, grace.realtime);
        let raw = &mut self.raw;
        (raw.d_btimer, raw.d_itimer, raw.d_rtbtimer) = (blocks, inodes, realtime);
    }

    fn apply(&mut self, change: &DquotChange, block_size: u64) {
        let raw = &mut self.raw;
        match *change {
            DquotChange::Add(Usage { blocks, inodes, realtime }) => {
                raw.d_rtbcount.set(raw.d_rtbcount.get().saturating_add_signed(realtime));
                raw.d_bcount.set(raw.d_bcount.get().saturating_add_signed(blocks));
                raw.d_icount.set(raw.d_icount.get().saturating_add_signed(inodes));
            }
            DquotChange::Limits(ref limits) => store_limits(raw, limits, block_size),
            DquotChange::Grace(grace) => {
                raw.d_btimer.set(grace.blocks);
                raw.d_itimer.set(grace.inodes);
                raw.d_rtbtimer.set(grace.realtime);
            }
        }
    }
}

fn store_limits(raw: &mut RawDquot, limits: &Limits, block_size: u64) {
    let blocks = |kib: u64| kib.saturating_mul(LIMIT_UNIT).div_ceil(block_size);
    raw.d_blk_hardlimit.set(blocks(limits.block_hard));
    raw.d_blk_softlimit.set(blocks(limits.block_soft));
    raw.d_ino_hardlimit.set(limits.inode_hard);
    raw.d_ino_softlimit.set(limits.inode_soft);
    raw.d_rtb_hardlimit.set(blocks(limits.realtime_hard));
    raw.d_rtb_softlimit.set(blocks(limits.realtime_soft));
}

impl DquotItem {
    /// A record as it was read.
    pub fn new(id: DquotId, place: DquotPlace, raw: RawDquot) -> Arc<DquotItem> {
        let state = State { raw, reserved: Usage::default() };
        let state = SpinLock::named("xfs dquot", state);
        Arc::new(DquotItem { id, place, core: ItemCore::new(), state })
    }

    /// The record as it is now.
    pub fn raw(&self) -> RawDquot {
        self.state.lock_irq().raw
    }

    /// Reserves blocks and inodes where the limits allow it now, or always without that. `limits`
    /// are those of who has none of their own.
    ///
    /// # Errors
    /// `EDQUOT`; `ENOSPC` of a project.
    pub fn reserve(&self, want: Usage, limits: Option<(u64, DefaultLimits)>) -> Result<(), Errno> {
        let mut state = self.state.lock_irq();
        let fits = |(now, defaults)| {
            let counts = want.counts().into_iter().zip(state.reserved.counts());
            let mut accounts = state.accounts(defaults).into_iter().zip(counts);
            accounts.all(|(account, (want, held))| want <= 0 || account.allows(held + want, now))
        };
        if self.id.id != 0 && limits.is_some_and(|limits| !fits(limits)) {
            let project = self.id.kind == Kind::Project;
            return Err(if project { Errno::ENOSPC } else { Errno::EDQUOT });
        }
        state.reserved += want;
        Ok(())
    }

    /// Gives back what was reserved.
    pub fn unreserve(&self, usage: Usage) {
        self.state.lock_irq().reserved -= usage;
    }

    /// Carries a change out and formats the record. The item is pinned.
    pub fn commit(&self, change: &DquotChange, context: &DquotTable, now: u64, vec: &mut LogVec) {
        let mut state = self.state.lock_irq();
        state.apply(change, context.block_size);
        if let (0, DquotChange::Limits(_)) = (self.id.id, change) {
            context.set_default_limits(self.id.kind, DefaultLimits::of(&state.raw));
        }
        let kind = self.id.kind;
        state.adjust_timers(now, context.grace(kind), context.default_limits(kind));
        if let (0, DquotChange::Grace(grace)) = (self.id.id, change) {
            context.set_grace(self.id.kind, *grace);
        }
        vec.clear();
        let header = vec.region(HEADER);
        let place = &self.place;
        header[0..2].copy_from_slice(&LI_DQUOT.to_le_bytes());
        header[2..4].copy_from_slice(&2u16.to_le_bytes());
        header[4..8].copy_from_slice(&self.id.id.to_le_bytes());
        header[8..16].copy_from_slice(&place.block.daddr.0.to_le_bytes());
        let blocks = (place.block.bytes() as u64 / context.block_size) as u32;
        header[16..20].copy_from_slice(&blocks.to_le_bytes());
        header[20..24].copy_from_slice(&place.offset.to_le_bytes());
        vec.append(|bytes| bytes.extend_from_slice(state.raw.as_bytes()));
    }

    /// Copies the record into its block, whose lock the caller holds; false if it may not be
    /// written now.
    pub fn flush(&self, block: &Buf, lsn: u64) -> bool {
        let state = self.state.lock_irq();
        if self.core.is_pinned() {
            return false;
        }
        block.with_range_mut(self.place.offset as usize, RECORD_SIZE, |record| {
            dquot::store(record, state.raw.as_bytes(), Some(lsn));
        });
        true
    }
}

/// Usage and limits of a record, as an administrator sees them.
pub(crate) fn entry_of(raw: &RawDquot, block_size: u64) -> Dqblk {
    let kib = |blocks: u64| blocks.saturating_mul(block_size) / LIMIT_UNIT;
    let time = |timer| if raw.d_id.get() == 0 { 0 } else { raw.seconds(timer) };
    Dqblk {
        inode_hard: raw.d_ino_hardlimit.get(),
        inode_soft: raw.d_ino_softlimit.get(),
        inodes: raw.d_icount.get(),
        block_hard: kib(raw.d_blk_hardlimit.get()),
        block_soft: kib(raw.d_blk_softlimit.get()),
        space: raw.d_bcount.get().saturating_mul(block_size),
        block_time: time(raw.d_btimer),
        inode_time: time(raw.d_itimer),
        realtime_hard: kib(raw.d_rtb_hardlimit.get()),
        realtime_soft: kib(raw.d_rtb_softlimit.get()),
        realtime: raw.d_rtbcount.get().saturating_mul(block_size),
        realtime_time: time(raw.d_rtbtimer),
    }
}

/// The grace periods that the record of id 0 has.
pub(crate) fn grace_of(raw: &RawDquot) -> Grace {
    Grace { blocks: raw.d_btimer.get(), inodes: raw.d_itimer.get(), realtime: raw.d_rtbtimer.get() }
}

/// The records that are in memory, and which kinds are counted.
pub(crate) struct DquotTable {
    pub block_size: u64,
    /// [`QuotaFlags`]: what is counted and enforced.
    flags: AtomicU16,
    items: SpinLock<BTreeMap<DquotId, Arc<DquotItem>>>,
    grace: SpinLock<[Grace; 3]>,
    /// The limits of who has none of their own, by kind.
    defaults: SpinLock<[DefaultLimits; 3]>,
    /// The inodes that hold the records: nobody is charged for them.
    inos: SpinLock<[u64; 3]>,
}

/// The records of up to two owners of each kind.
pub(crate) type DquotList = SmallVec<[Arc<DquotItem>; 3]>;

impl DquotTable {
    pub fn new(block_size: u64) -> DquotTable {
        let usual = GRACE_DEFAULT;
        let grace = Grace { blocks: usual, inodes: usual, realtime: usual };
        DquotTable {
            block_size,
            flags: AtomicU16::new(0),
            items: SpinLock::named("xfs dquots", BTreeMap::new()),
            grace: SpinLock::named("xfs quota grace", [grace; 3]),
            defaults: SpinLock::named("xfs default limits", Default::default()),
            inos: SpinLock::named("xfs quota inodes", [0; 3]),
        }
    }

    /// What is counted and enforced.
    pub fn flags(&self) -> QuotaFlags {
        QuotaFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Begins to count, or to enforce.
    pub fn set_flags(&self, flags: QuotaFlags) {
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// Names the inode that holds the records of a kind.
    pub fn set_ino(&self, kind: Kind, ino: u64) {
        self.inos.lock_irq()[kind as usize] = ino;
    }

    /// Whether an inode holds records.
    pub fn holds_records(&self, ino: u64) -> bool {
        self.inos.lock_irq().contains(&ino)
    }

    /// How long soft limits of a kind may be exceeded.
    pub fn grace(&self, kind: Kind) -> Grace {
        self.grace.lock_irq()[kind as usize]
    }

    /// Grace periods of a kind; 0 is the usual one.
    pub fn set_grace(&self, kind: Kind, grace: Grace) {
        let usual = |seconds| if seconds == 0 { GRACE_DEFAULT } else { seconds };
        let Grace { blocks, inodes, realtime } = grace;
        let [blocks, inodes, realtime] = [blocks, inodes, realtime].map(usual);
        let grace = Grace { blocks, inodes, realtime };
        self.grace.lock_irq()[kind as usize] = grace;
    }

    /// The limits of who has none of their own.
    pub fn default_limits(&self, kind: Kind) -> DefaultLimits {
        self.defaults.lock_irq()[kind as usize]
    }

    /// Sets them: those of the record of id 0.
    pub fn set_default_limits(&self, kind: Kind, limits: DefaultLimits) {
        self.defaults.lock_irq()[kind as usize] = limits;
    }

    pub fn find(&self, id: DquotId) -> Option<Arc<DquotItem>> {
        self.items.lock_irq().get(&id).cloned()
    }

    /// Keeps a record, unless it is there already; returns the one that is.
    pub fn keep(&self, item: Arc<DquotItem>) -> Arc<DquotItem> {
        self.items.lock_irq().entry(item.id).or_insert(item).clone()
    }

    /// The kinds that are counted.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        let flags = self.flags();
        Kind::ALL.into_iter().filter(move |&kind| flags.contains(QuotaFlags::counted(kind)))
    }

    /// What the change of an inode from one charge to another adds to whose records. None if a
    /// record is not in memory.
    pub fn changes(&self, old: &Charge, new: &Charge) -> Option<SmallVec<[DquotAdd; 3]>> {
        let mut list = SmallVec::new();
        for kind in self.kinds() {
            let (from, to) = (old.owners.id(kind), new.owners.id(kind));
            let mut add = |id, usage: Usage| -> Option<()> {
                if usage != Usage::default() {
                    let item = self.find(id)?;
                    list.push(DquotAdd { item, usage });
                }
                Some(())
            };
            if from == to {
                add(to, new.usage - old.usage)?;
            } else {
                add(from, Usage::default() - old.usage)?;
                add(to, new.usage)?;
            }
        }
        Some(list)
    }
}

/// What is added to a record.
pub(crate) struct DquotAdd {
    pub item: Arc<DquotItem>,
    pub usage: Usage,
}
