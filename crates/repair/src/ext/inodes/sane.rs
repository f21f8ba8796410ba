//! Fields of an inode in use that have impossible values.

use block::DeviceError;
use ext4::Rule;
use ext4::format::features::{Compat, Incompat, RoCompat};
use ext4::format::inode::{BASE_SIZE, BLOCK_AREA, EXTRA_SIZE};
use ext4::format::verity::{LocateError, VerityError, locate};
use ext4::format::{FileKind, InodeFlags, InodeValues, dir, extent, xattr};

use crate::ext::Fs;
use crate::ext::attributes::inline_tail;
use crate::ext::map::Map;

/// Points at which an inode with a right checksum, or none, is taken as nonsense.
const NONSENSE: u32 = 4;
/// The same where the checksum does not fit.
const NONSENSE_UNSUMMED: u32 = 2;

/// Where an inode's slot has the high half of its size.
const SIZE_HIGH: usize = 0x6c;

/// A correction: rule, what is wrong, what is done, what is lost.
struct Fix(Rule, String, &'static str, Option<&'static str>);

/// A device, FIFO or socket.
fn is_special(kind: FileKind) -> bool {
    !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}

/// Whether an inode says that it is special, and has more than the number of a device where others
/// have their map.
fn maps_as_special(values: &InodeValues) -> bool {
    values.kind().is_some_and(is_special) && values.block[8..].iter().any(|&byte| byte != 0)
}

impl Fs<'_> {
    /// Corrects what cannot be. None where nothing of the inode can be kept.
    ///
    /// # Errors
    /// The device's.
    pub fn sane_inode(
        &mut self,
        ino: u32,
        slot: &[u8],
        values: InodeValues,
        trusted: bool,
    ) -> Result<Option<(InodeValues, Map)>, DeviceError> {
        let mut fixed = values;
        let mut fixes = Vec::new();
        self.fix_extra(slot, &mut fixed, &mut fixes);
        self.fix_inline(slot, &mut fixed, &mut fixes);
        self.fix_flags(&mut fixed, &mut fixes);
        let mut map = self.fix_kind(ino, slot, &mut fixed, &mut fixes)?;
        let mut points = self.nonsense(&values, &map);
        if maps_as_special(&fixed) {
            points += 2;
        }
        let limit = if trusted { NONSENSE } else { NONSENSE_UNSUMMED };
        if fixed.kind().is_none() || points >= limit {
            let detail = format!("mode {:#o}: its fields make no sense", values.mode);
            let act = "clear the inode";
            let loss = "whatever it was";
            if self.lossy(Rule::InodeMode, Self::at(ino), detail, act, loss) {
                self.clear_slot(ino)?;
            }
            return Ok(None);
        }
        if !trusted {
            let act = "keep it as it reads, set the checksum";
            let loss = Some("some field of it may be wrong");
            fixes.push(Fix(Rule::InodeChecksum, "its checksum does not fit".into(), act, loss));
        }
        self.fix_size(slot, &mut fixed, &mut map, &mut fixes)?;
        if self.suspect(ino, Rule::Verity) {
            self.fix_verity(&mut fixed, &mut map, &mut fixes)?;
        }
        self.fix_rest(slot, &mut fixed, &mut fixes);
        let mut wanted = true;
        for Fix(rule, detail, act, loss) in fixes.iter() {
            wanted &= match loss {
                None => self.safe(*rule, Self::at(ino), detail.clone(), act),
                Some(loss) => self.lossy(*rule, Self::at(ino), detail.clone(), act, *loss),
            };
        }
        if !fixes.is_empty() && wanted {
            self.edit(ino, |values| *values = fixed)?;
        }
        Ok(Some((fixed, map)))
    }

    /// How little sense the fields make.
    fn nonsense(&self, values: &InodeValues, map: &Map) -> u32 {
        let size = values.size > values.size_limit(&self.g);
        let blocks = values.blocks / u64::from(self.g.block_size / 512) > self.g.blocks_count;
        let times = [values.atime, values.ctime, values.mtime];
        let future = times.iter().all(|time| time.sec > i64::from(u32::MAX) || time.sec < 0);
        let special = values.kind().is_some_and(is_special);
        2 * u32::from(values.kind().is_none())
            + 2 * u32::from(special && values.size != 0)
            + u32::from(size)
            + u32::from(blocks)
            + u32::from(future)
            + u32::from(!map.damage.is_empty() && map.runs.is_empty())
            + u32::from(map.damage.len() > 4)
    }

    fn fix_flags(&self, values: &mut InodeValues, fixes: &mut Vec<Fix>) {
        let features = &self.g.features;
        let kind = values.kind();
        let mut flags = values.flags;
        let mut drop = |flag: InodeFlags, allowed: bool| {
            if !allowed {
                flags -= flag;
            }
        };
        let (incompat, compat) = (features.incompat, features.compat);
        drop(InodeFlags::INLINE_DATA, incompat.contains(Incompat::INLINE_DATA));
        drop(InodeFlags::ENCRYPT, incompat.contains(Incompat::ENCRYPT));
        let directory = matches!(kind, Some(FileKind::Directory) | None);
        drop(InodeFlags::CASEFOLD, directory && incompat.contains(Incompat::CASEFOLD));
        let file = matches!(kind, Some(FileKind::Regular) | None);
        drop(InodeFlags::VERITY, file && features.ro_compat.contains(RoCompat::VERITY));
        drop(InodeFlags::IMAGIC, false);
        drop(InodeFlags::EOFBLOCKS, false);
        drop(InodeFlags::HUGE_FILE, features.ro_compat.contains(RoCompat::HUGE_FILE));
        let value = kind == Some(FileKind::Regular) && self.large_values();
        drop(InodeFlags::EA_INODE, value);
        let index = kind == Some(FileKind::Directory) && compat.contains(Compat::DIR_INDEX);
        drop(InodeFlags::INDEX, index);
        let magic = u16::from_le_bytes([values.block[0], values.block[1]]) == extent::MAGIC;
        let room = u16::from_le_bytes([values.block[4], values.block[5]]) == extent::ROOT_MAX;
        let mapped = matches!(kind, Some(FileKind::Regular | FileKind::Directory) | None);
        drop(InodeFlags::IMMUTABLE | InodeFlags::APPEND, mapped);
        let inline = flags.contains(InodeFlags::INLINE_DATA);
        if magic && room && mapped && !inline && incompat.contains(Incompat::EXTENTS) {
            flags |= InodeFlags::EXTENTS;
        }
        // Its mode may be what is wrong.
        let content = magic && values.size != 0 && maps_as_special(values);
        let special = !mapped && kind != Some(FileKind::Symlink) && !content;
        if special || !magic && !incompat.contains(Incompat::EXTENTS) {
            flags -= InodeFlags::EXTENTS;
        }
        if flags != values.flags {
            let detail = format!("flags {:#x}", values.flags.bits());
            fixes.push(Fix(Rule::InodeFlags, detail, "clear or set those that cannot be", None));
            values.flags = flags;
        }
    }

    /// Whether the content lies in the inode: the attribute that holds its end says so.
    fn fix_inline(&self, slot: &[u8], values: &mut InodeValues, fixes: &mut Vec<Fix>) {
        if !self.g.features.incompat.contains(Incompat::INLINE_DATA) {
            return;
        }
        let others = InodeFlags::EXTENTS | InodeFlags::INDEX | InodeFlags::EA_INODE;
        let flags = values.flags;
        let root = values.block[..2] == extent::MAGIC.to_le_bytes()
            && values.block[4..6] == extent::ROOT_MAX.to_le_bytes();
        let mapped = root && flags.contains(InodeFlags::EXTENTS);
        let own = if values.file_acl == 0 { 0 } else { self.g.cluster_sectors() };
        let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink];
        let may = values.kind().is_none_or(|kind| kinds.contains(&kind));
        let inline = match inline_tail(slot, values.extra_isize) {
            Some(_) => may && !mapped,
            None => may && flags.contains(InodeFlags::INLINE_DATA) && !root && values.blocks <= own,
        };
        let mut wanted = flags;
        wanted.set(InodeFlags::INLINE_DATA, inline);
        if inline {
            wanted -= others;
        }
        if wanted != flags {
            let detail = format!("flags {:#x}", flags.bits());
            let act = "say where its content lies";
            fixes.push(Fix(Rule::InodeFlags, detail, act, None));
            values.flags = wanted;
        }
    }

    /// The type of an inode that holds its content, of which nothing else is known.
    fn inline_kind(&self, slot: &[u8], values: &InodeValues) -> FileKind {
        let mut bytes = values.block.to_vec();
        bytes.extend(inline_tail(slot, values.extra_isize).unwrap_or_default());
        let (inodes, filetype) = (self.g.inodes_count, self.g.dir_layout().filetype);
        let names = (0..dir::INLINE_RUNS).all(|index| {
            let (run, layout) = dir::inline_run(&bytes, index, filetype);
            dir::check(run, layout, inodes).is_ok()
        });
        match names && (1..=inodes).contains(&dir::inline_parent(&bytes)) {
            true => FileKind::Directory,
            false => FileKind::Regular,
        }
    }

    /// The size of a file with verity is what its descriptor says. One without a descriptor has no
    /// verity, and nothing behind its end.
    fn fix_verity(
        &mut self,
        values: &mut InodeValues,
        map: &mut Map,
        fixes: &mut Vec<Fix>,
    ) -> Result<(), DeviceError> {
        if !values.flags.contains(InodeFlags::VERITY) {
            return Ok(());
        }
        let error = match self.descriptor_of(values.size, map)? {
            Err(error) => error,
            Ok(()) => return Ok(()),
        };
        let block = u64::from(self.g.block_size);
        if let VerityError::DataSize { found, .. } = error
            && found <= values.size_limit(&self.g)
            && self.descriptor_of(found, map)?.is_ok()
        {
            let act = "take the size in its verity descriptor";
            fixes.push(Fix(Rule::InodeSize, error.to_string(), act, None));
            values.size = found;
            return Ok(());
        }
        let act = "go on without verity";
        let loss = Some("the digest of its content, which nothing verifies any more");
        fixes.push(Fix(Rule::Verity, error.to_string(), act, loss));
        values.flags -= InodeFlags::VERITY;
        let end = values.size.div_ceil(block);
        if map.cut(end) {
            map.wrong("the verity tree behind its end has no descriptor", 0);
        }
        Ok(())
    }

    /// Is there a verity descriptor behind a file of `size` bytes?
    fn descriptor_of(
        &mut self,
        size: u64,
        map: &Map,
    ) -> Result<Result<(), VerityError>, DeviceError> {
        let block = u64::from(self.g.block_size);
        let found = locate(size, self.g.block_size, map.end() * block, |at, len| {
            let mut bytes = Vec::new();
            for logical in at / block..(at + len as u64).div_ceil(block) {
                match map.find(logical) {
                    Some(place) => bytes.extend(self.view.read(place)?),
                    None => bytes.resize(bytes.len() + block as usize, 0),
                }
            }
            let from = (at % block) as usize;
            Ok::<_, DeviceError>(bytes[from..from + len].to_vec())
        });
        match found {
            Ok(_) => Ok(Ok(())),
            Err(LocateError::Read(error)) => Err(error),
            Err(LocateError::Verity(error)) => Ok(Err(error)),
        }
    }

    /// The extra size, found again by the attributes that begin behind it.
    fn fix_extra(&self, slot: &[u8], values: &mut InodeValues, fixes: &mut Vec<Fix>) {
        let limit = slot.len().saturating_sub(BASE_SIZE);
        let found = usize::from(values.extra_isize);
        if limit == 0 || found <= limit && found.is_multiple_of(4) {
            return;
        }
        let magic = xattr::MAGIC.to_le_bytes();
        let usual = usize::from(self.g.want_extra_isize.max(EXTRA_SIZE)).min(limit);
        let marked = (4..limit.saturating_sub(4)).step_by(4);
        let place = marked.into_iter().find(|at| slot[BASE_SIZE + at..][..4] == magic);
        let detail = format!("extra size {found}");
        fixes.push(Fix(Rule::InodeExtraSize, detail, "find it again by what lies behind", None));
        values.extra_isize = place.unwrap_or(usual) as u16;
    }

    /// The type, and the blocks that an inode of that type has.
    fn fix_kind(
        &mut self,
        ino: u32,
        slot: &[u8],
        values: &mut InodeValues,
        fixes: &mut Vec<Fix>,
    ) -> Result<Map, DeviceError> {
        let known = values.kind();
        if values.flags.contains(InodeFlags::INLINE_DATA) {
            if known.is_none() {
                let kind = self.inline_kind(slot, values);
                self.take_kind(values, kind, fixes);
            }
            return Ok(Map::default());
        }
        let map = match known {
            Some(FileKind::Regular | FileKind::Directory) | None => self.map(ino, values)?,
            Some(FileKind::Symlink) if !self.short_link(values) => self.map(ino, values)?,
            // No special file has a size or blocks: the mode may be what is wrong.
            Some(_) if values.size != 0 && maps_as_special(values) => self.map(ino, values)?,
            Some(_) => return Ok(Map::default()),
        };
        if maps_as_special(values) && (map.runs.is_empty() || !map.damage.is_empty()) {
            return Ok(Map::default());
        }
        if known.is_none()
            || maps_as_special(values)
            || known == Some(FileKind::Regular) && values.flags.contains(InodeFlags::INDEX)
        {
            let kind = match self.holds_dots(ino, &map)? {
                true => FileKind::Directory,
                false if map.damage.is_empty() => FileKind::Regular,
                false => return Ok(map),
            };
            if known != Some(kind) {
                self.take_kind(values, kind, fixes);
            }
        }
        Ok(map)
    }

    fn take_kind(&self, values: &mut InodeValues, kind: FileKind, fixes: &mut Vec<Fix>) {
        let detail = match values.kind() {
            Some(kind) if is_special(kind) => {
                format!("mode {:#o} is that of a special file, and it has content", values.mode)
            }
            _ => format!("mode {:#o} has no known type", values.mode),
        };
        let act = "take the type that its content shows";
        fixes.push(Fix(Rule::InodeMode, detail, act, Some("its type is a guess")));
        values.mode = values.mode & 0o7777 | kind.mode_bits();
    }

    /// Is the target of a symbolic link in the inode?
    fn short_link(&self, values: &InodeValues) -> bool {
        if values.is_fast_symlink() {
            return true;
        }
        if values.flags.contains(InodeFlags::ENCRYPT) {
            return values.blocks == 0 && values.target_len(&values.block) > 0;
        }
        let own = if values.file_acl == 0 { 0 } else { u64::from(self.g.block_size / 512) };
        let len = values.block.iter().position(|&byte| byte == 0).unwrap_or(values.block.len());
        let text = values.block[..len].iter().all(|byte| *byte >= 0x20);
        values.blocks <= own && len > 0 && text && !values.flags.contains(InodeFlags::EXTENTS)
    }

    /// Does the first block begin with `.` of this inode?
    pub fn holds_dots(&mut self, ino: u32, map: &Map) -> Result<bool, DeviceError> {
        let Some(run) = map.runs.first().filter(|run| run.logical == 0) else { return Ok(false) };
        let content = self.view.read(run.start)?;
        let own = content[..4] == ino.to_le_bytes();
        Ok(own && content[4..8] == [12, 0, 1, content[7]] && content[8] == b'.')
    }

    fn fix_size(
        &mut self,
        slot: &[u8],
        values: &mut InodeValues,
        map: &mut Map,
        fixes: &mut Vec<Fix>,
    ) -> Result<(), DeviceError> {
        let block = u64::from(self.g.block_size);
        let old = values.size;
        match values.kind().expect("known by now") {
            FileKind::Regular if values.flags.contains(InodeFlags::INLINE_DATA) => {
                if old > values.size_limit(&self.g) {
                    let tail = inline_tail(slot, values.extra_isize).unwrap_or_default();
                    values.size = (values.block.len() + tail.len()) as u64;
                }
            }
            FileKind::Regular => {
                let reaches = values.flags.contains(InodeFlags::VERITY)
                    || old.saturating_add(block) >= map.written_end() * block;
                if old > values.size_limit(&self.g) || !reaches {
                    values.size = map.end() * block;
                }
            }
            FileKind::Symlink => self.fix_link(slot, values, map, fixes)?,
            FileKind::Directory => {}
            _ => {
                values.size = 0;
                if values.block[12..].iter().any(|&byte| byte != 0) {
                    values.block[12..].fill(0);
                    fixes.push(Fix(
                        Rule::InodeSpecial,
                        "a special file maps blocks".into(),
                        "clear the pointers",
                        None,
                    ));
                }
            }
        }
        if values.size != old {
            let detail = format!("size {old}, blocks up to {}", map.end() * block);
            let loss = Some("the exact size");
            let act = "take the size that its blocks or its target show";
            fixes.push(Fix(Rule::InodeSize, detail, act, loss));
        }
        Ok(())
    }

    /// The target of a symbolic link, whose length is the size.
    fn fix_link(
        &mut self,
        slot: &[u8],
        values: &mut InodeValues,
        map: &mut Map,
        fixes: &mut Vec<Fix>,
    ) -> Result<(), DeviceError> {
        let mut content = match map.runs.first() {
            // The root of an empty map is no target.
            None if values.flags.contains(InodeFlags::EXTENTS) => Vec::new(),
            None => values.block.to_vec(),
            Some(run) => self.view.read(run.start)?,
        };
        let inline = values.flags.contains(InodeFlags::INLINE_DATA);
        if inline {
            content.extend(inline_tail(slot, values.extra_isize).unwrap_or_default());
        }
        let len = values.target_len(&content) as usize;
        let placed = map.runs.is_empty() && map.damage.is_empty() || map.end() == 1;
        if placed && len > 0 && (len < content.len() || inline) {
            values.size = len as u64;
            // A short target has its place in the inode.
            if len < BLOCK_AREA && !inline && !map.runs.is_empty() {
                let detail = format!("a target of {len} bytes in a block");
                fixes.push(Fix(Rule::InodeSymlink, detail, "put it into the inode", None));
                values.block = [0; BLOCK_AREA];
                values.block[..len].copy_from_slice(&content[..len]);
                values.flags -= InodeFlags::EXTENTS;
                *map = Map::default();
            }
            return Ok(());
        }
        let act = "let it point at \"?\"";
        fixes.push(Fix(Rule::InodeSymlink, "it has no target".into(), act, Some("the target")));
        values.block = [0; BLOCK_AREA];
        values.block[0] = b'?';
        values.flags -= InodeFlags::EXTENTS | InodeFlags::ENCRYPT;
        values.size = 1;
        *map = Map::default();
        Ok(())
    }

    /// Times of deletion, attribute blocks out of range, fields that have no meaning here.
    fn fix_rest(&self, slot: &[u8], values: &mut InodeValues, fixes: &mut Vec<Fix>) {
        if values.dtime != 0 {
            let detail = format!("{} links and time of deletion {}", values.links, values.dtime);
            fixes.push(Fix(Rule::InodeDtime, detail, "clear the time of deletion", None));
            values.dtime = 0;
        }
        let acl = values.file_acl;
        if acl != 0 && (!self.in_range(acl..acl + 1) || self.meta.get(acl)) {
            let detail = format!("attribute block {acl}");
            let act = "forget the block";
            fixes.push(Fix(Rule::XattrPlace, detail, act, Some("the attributes in that block")));
            values.file_acl = 0;
        }
        let half = |at: usize| u16::from_le_bytes([slot[at], slot[at + 1]]);
        let wide = self.g.features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
        let huge = self.g.features.ro_compat.contains(RoCompat::HUGE_FILE);
        let large = self.g.features.incompat.contains(Incompat::LARGEDIR);
        let size_high = values.kind() != Some(FileKind::Regular) && !large;
        let stray = half(0x76) != 0 && !wide
            || half(0x74) != 0 && !huge
            || half(SIZE_HIGH) | half(SIZE_HIGH + 2) != 0 && size_high;
        if stray || slot[0x70..0x74] != [0; 4] {
            let detail = "fields that mean nothing here are not zero".to_string();
            fixes.push(Fix(Rule::InodeUnusedFields, detail, "clear them", None));
        }
    }
}
