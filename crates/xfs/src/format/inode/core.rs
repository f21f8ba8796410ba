//! The valid inode: its numbers in plain words, checked against the forks that hold them.

use base::{Ino, Timespec};

use super::{CORE_SIZE, Flags, Flags2, MAGIC, RawInode};
use crate::format::{At, Corrupt, CorruptKind, Geometry, NULL32, time};

/// What a fork holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ForkFormat {
    /// A device number.
    Device = 0,
    /// The content itself.
    Local = 1,
    /// A list of extents.
    Extents = 2,
    /// The root of a btree of extents.
    Btree = 3,
    /// The root of a btree that an inode of the file system itself holds in the place of content.
    MetaBtree = 5,
}

impl ForkFormat {
    /// The format of this number; UUID (4), which was never used, is none.
    pub fn from_number(number: u8) -> Option<ForkFormat> {
        Some(match number {
            0 => ForkFormat::Device,
            1 => ForkFormat::Local,
            2 => ForkFormat::Extents,
            3 => ForkFormat::Btree,
            5 => ForkFormat::MetaBtree,
            _ => return None,
        })
    }
}

/// An inode's core. A value exists only where formats, sizes and counts agree with the mode and
/// the room in the forks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeCore {
    /// File type and permissions.
    pub mode: u16,
    /// Form of the data fork.
    pub format: ForkFormat,
    /// Form of the attribute fork; extents without any where there is none.
    pub attr_format: ForkFormat,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that point here.
    pub links: u32,
    /// Project.
    pub project: u32,
    /// Last read.
    pub atime: Timespec,
    /// Last change of content.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Creation.
    pub crtime: Timespec,
    /// Size in bytes.
    pub size: u64,
    /// Blocks of both forks, those of their btrees included.
    pub blocks: u64,
    /// Wanted size of extents in blocks.
    pub extsize: u32,
    /// Wanted size of copy-on-write extents in blocks.
    pub cowextsize: u32,
    /// Extents of the data fork.
    pub extents: u64,
    /// Extents of the attribute fork.
    pub attr_extents: u32,
    /// Where the attribute fork begins behind the core, in units of eight bytes; 0 for none.
    pub forkoff: u8,
    /// `di_flags`.
    pub flags: Flags,
    /// `di_flags2`.
    pub flags2: Flags2,
    /// Incremented whenever the inode is used anew.
    pub generation: u32,
    /// The next inode of its unlinked list, a number in the group.
    pub next_unlinked: u32,
    /// Incremented at every change.
    pub change_count: u64,
}

fn ensure(holds: bool, kind: CorruptKind, at: At) -> Result<(), Corrupt> {
    if holds { Ok(()) } else { Err(kind.at(at)) }
}

impl InodeCore {
    /// The core of a new inode without content, of nobody, with one name and no flags; all its
    /// times are `now`.
    pub fn fresh(mode: u16, now: Timespec) -> InodeCore {
        InodeCore {
            mode,
            format: ForkFormat::Extents,
            attr_format: ForkFormat::Extents,
            uid: 0,
            gid: 0,
            links: 1,
            project: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            size: 0,
            blocks: 0,
            extsize: 0,
            cowextsize: 0,
            extents: 0,
            attr_extents: 0,
            forkoff: 0,
            flags: Flags::empty(),
            flags2: Flags2::empty(),
            generation: 0,
            next_unlinked: NULL32,
            change_count: 0,
        }
    }

    /// The core of a used inode in `slot`, whose self-description was verified.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(slot: &[u8], ino: Ino, geometry: &Geometry) -> Result<InodeCore, Corrupt> {
        let at = At::Inode(ino);
        let raw = RawInode::view(slot).expect("verified");
        let (number, attr_number) = (raw.di_format, raw.di_aformat);
        let format = ForkFormat::from_number(number)
            .ok_or_else(|| CorruptKind::ForkFormat { number }.at(at))?;
        let attr_format = ForkFormat::from_number(attr_number)
            .filter(|&format| !matches!(format, ForkFormat::Device | ForkFormat::MetaBtree))
            .or((raw.di_forkoff == 0 && attr_number == 0).then_some(ForkFormat::Extents))
            .ok_or_else(|| CorruptKind::ForkFormat { number: attr_number }.at(at))?;
        let core = InodeCore::unchecked(raw, format, attr_format);
        core.check(slot.len(), geometry, at)?;
        Ok(core)
    }

    fn unchecked(raw: &RawInode, format: ForkFormat, attr_format: ForkFormat) -> InodeCore {
        let flags2 = Flags2::from_bits_retain(raw.di_flags2.get());
        let (bigtime, wide) = (flags2.contains(Flags2::BIGTIME), flags2.contains(Flags2::NREXT64));
        let project = u32::from(raw.di_projid_lo.get()) | u32::from(raw.di_projid_hi.get()) << 16;
        let (narrow, narrow_attr) = (raw.di_nextents.get(), u32::from(raw.di_anextents.get()));
        InodeCore {
            mode: raw.di_mode.get(),
            format,
            attr_format,
            uid: raw.di_uid.get(),
            gid: raw.di_gid.get(),
            links: raw.di_nlink.get(),
            project,
            atime: time::decode(raw.di_atime.get(), bigtime),
            mtime: time::decode(raw.di_mtime.get(), bigtime),
            ctime: time::decode(raw.di_ctime.get(), bigtime),
            crtime: time::decode(raw.di_crtime.get(), bigtime),
            size: raw.di_size.get(),
            blocks: raw.di_nblocks.get(),
            extsize: raw.di_extsize.get(),
            cowextsize: raw.di_cowextsize.get(),
            extents: if wide { raw.di_big_nextents.get() } else { u64::from(narrow) },
            attr_extents: if wide { narrow } else { narrow_attr },
            forkoff: raw.di_forkoff,
            flags: Flags::from_bits_retain(raw.di_flags.get()),
            flags2,
            generation: raw.di_gen.get(),
            next_unlinked: raw.di_next_unlinked.get(),
            change_count: raw.di_changecount.get(),
        }
    }

    /// The type bits of the mode.
    pub fn file_type(&self) -> u16 {
        self.mode & 0xf000
    }

    /// Whether its content lies in the realtime section.
    pub fn is_realtime(&self) -> bool {
        self.flags.contains(Flags::REALTIME) && self.file_type() == 0x8000
    }

    fn check(&self, slot: usize, geometry: &Geometry, at: At) -> Result<(), Corrupt> {
        use ForkFormat::{Btree, Device, Extents, Local, MetaBtree};
        let number = self.format as u8;
        let usual = match self.file_type() {
            0x1000 | 0x2000 | 0x6000 | 0xc000 => self.format == Device,
            0x4000 => matches!(self.format, Local | Extents | Btree),
            0x8000 if self.format == MetaBtree => self.flags2.contains(Flags2::METADATA),
            0x8000 => matches!(self.format, Extents | Btree),
            0xa000 => matches!(self.format, Local | Extents),
            _ => return Err(CorruptKind::InodeMode { mode: self.mode }.at(at)),
        };
        ensure(usual, CorruptKind::ForkFormatOfMode { number, mode: self.mode }, at)?;
        let size = self.size;
        ensure(size <= i64::MAX as u64, CorruptKind::InodeBytes { size }, at)?;
        let (data, attr) = super::fork_ranges(self.forkoff, slot);
        let border = data.end;
        let fits = self.forkoff == 0 || (border + 4 <= slot && border > CORE_SIZE);
        ensure(fits, CorruptKind::ForkOffset { found: self.forkoff }, at)?;
        if self.format == Local {
            let room = data.len() as u64;
            ensure(size <= room, CorruptKind::LocalSize { size, room }, at)?;
        }
        check_count(self.format, self.extents, data.len(), "data", at)?;
        let count = u64::from(self.attr_extents);
        check_count(self.attr_format, count, attr.len(), "attribute", at)?;
        let least = self.extents.saturating_add(count);
        let most =
            geometry.blocks_count() + if self.is_realtime() { geometry.realtime.blocks } else { 0 };
        let fits = self.blocks <= most || self.flags2.contains(Flags2::REFLINK);
        ensure(fits && self.blocks >= least, CorruptKind::InodeBlocks { found: self.blocks }, at)
    }

    /// Writes what the core owns into `slot`; forks, self-description, sequence number and
    /// checksum stay.
    pub fn emit(&self, slot: &mut [u8]) {
        let raw = RawInode::view_mut(slot).expect("an inode's slot");
        let bigtime = self.flags2.contains(Flags2::BIGTIME);
        raw.di_magic.set(MAGIC);
        raw.di_version = 3;
        raw.di_mode.set(self.mode);
        raw.di_format = self.format as u8;
        raw.di_aformat = self.attr_format as u8;
        raw.di_uid.set(self.uid);
        raw.di_gid.set(self.gid);
        raw.di_nlink.set(self.links);
        raw.di_projid_lo.set(self.project as u16);
        raw.di_projid_hi.set((self.project >> 16) as u16);
        raw.di_atime.set(time::encode(self.atime, bigtime));
        raw.di_mtime.set(time::encode(self.mtime, bigtime));
        raw.di_ctime.set(time::encode(self.ctime, bigtime));
        raw.di_crtime.set(time::encode(self.crtime, bigtime));
        raw.di_size.set(self.size);
        raw.di_nblocks.set(self.blocks);
        raw.di_extsize.set(self.extsize);
        raw.di_cowextsize.set(self.cowextsize);
        if self.flags2.contains(Flags2::NREXT64) {
            raw.di_big_nextents.set(self.extents);
            raw.di_nextents.set(self.attr_extents);
            raw.di_anextents.set(0);
        } else {
            raw.di_big_nextents.set(0);
            raw.di_nextents.set(self.extents as u32);
            raw.di_anextents.set(self.attr_extents as u16);
        }
        raw.di_forkoff = self.forkoff;
        raw.di_flags.set(self.flags.bits());
        raw.di_flags2.set(self.flags2.bits());
        raw.di_gen.set(self.generation);
        raw.di_next_unlinked.set(self.next_unlinked);
        raw.di_changecount.set(self.change_count);
    }
}

/// Bytes of the root of a btree in an inode of the file system at the least: one child.
const META_ROOT_MIN: usize = 4 + 48;

fn check_count(
    format: ForkFormat,
    count: u64,
    room: usize,
    fork: &'static str,
    at: At,
) -> Result<(), Corrupt> {
    let inline = (room / 16) as u64;
    let fits = match format {
        ForkFormat::Device | ForkFormat::Local => count == 0,
        ForkFormat::MetaBtree => count == 0 && room >= META_ROOT_MIN,
        ForkFormat::Extents => count <= inline,
        ForkFormat::Btree => count > inline.min(1) && room >= 20,
    };
    let number = format as u8;
    ensure(fits, CorruptKind::ForkExtents { fork, number, count, inline }, at)
}
