//! The superblock: as it is, corrected by its checksum, or from a copy.

use base::Ino;
use block::{BioFlags, DeviceError};
use ext4::format::checksum::super_block as super_sum;
use ext4::format::features::{Access, Compat, Incompat, RoCompat};
use ext4::format::inode::EXTRA_SIZE;
use ext4::format::super_block::{MAGIC, ROOT_INO, SUPER_OFFSET, SUPER_SIZE};
use ext4::format::{
    At, CorruptKind, Features, FileKind, Geometry, GroupDesc, InodeValues, RawSuper,
};
use ext4::{CheckOptions, Rule};

use super::{Bits, Fs, Suspects};
use crate::RepairError;
use crate::plan::Decisions;
use crate::restore;
use crate::view::View;

/// The superblock in `base` with a change, and its checksum set.
fn bytes_of(base: &[u8], change: impl FnOnce(&mut RawSuper)) -> Vec<u8> {
    let mut bytes = base[..SUPER_SIZE].to_vec();
    let raw = RawSuper::view_mut(&mut bytes).expect("1024 bytes");
    change(raw);
    raw.set_checksum();
    bytes
}

/// Groups whose descriptors vote for a superblock.
const VOTERS: u32 = 64;
/// How far the start of a device is searched for a copy at an unusual place.
const SEARCH_MAX: u64 = 512 << 20;
/// What speaks for a superblock in another block than its own at the least, less one: it may be of
/// a file system inside of a file.
const MOVED_LEAST: u32 = 3;
/// The groups whose copies are tried first.
const COPIES: &[u64] = &[1, 3, 5, 7, 9, 25, 27, 49, 81, 125];

/// Features that are set while mounted, in the first superblock alone.
const LATE: RoCompat = RoCompat::LARGE_FILE.union(RoCompat::ORPHAN_PRESENT);
/// Copies that are asked for their features.
const FEATURE_COPIES: usize = 4;
/// Findings up to which two superblocks are compared.
const COMPARED: usize = 1000;

/// What became of the superblock.
struct Choice {
    bytes: Vec<u8>,
    /// The finding, where the primary was not taken as it is: rule, detail, action, loss.
    change: Option<(Rule, String, String, Option<String>)>,
    from_copy: bool,
}

/// Finds the superblock, or takes the copy at a byte of the device, and makes a repair out of it.
///
/// # Errors
/// None is left, or its features are not understood.
pub fn open<'a>(
    mut view: View<'a>,
    mut out: Decisions<'a>,
    place: Option<u64>,
) -> Result<Fs<'a>, RepairError> {
    let choice = match place {
        Some(place) => at(&mut view, place)?,
        None => choose(&mut view)?,
    };
    let mut geometry = parse(&choice.bytes).map_err(hopeless)?;
    if let Some(pair) = geometry.features.unknown_pair() {
        return Err(RepairError::Feature(pair.to_string()));
    }
    let (access, reasons) = geometry.features.access();
    if access != Access::ReadWrite {
        let names: Vec<String> = reasons.iter().map(ToString::to_string).collect();
        return Err(RepairError::Feature(names.join("; ")));
    }
    if geometry.hurd {
        return Err(RepairError::Feature(ext4::HURD.to_string()));
    }
    view.set_block_size(geometry.block_size);
    if geometry.blocks_count > view.blocks() {
        let size = u64::from(geometry.block_size);
        let (bytes, device_bytes) =
            (geometry.blocks_count.saturating_mul(size), view.blocks() * size);
        return Err(RepairError::CutShort { bytes, device_bytes });
    }
    if let Some((rule, detail, action, loss)) = choice.change {
        let safe = loss.is_none();
        let at = At::Super(0).to_string();
        let finding = crate::plan::Finding { rule: rule.name(), at, detail, action, loss, safe };
        if out.ask(finding) {
            view.write_bytes(SUPER_OFFSET, &choice.bytes)?;
        }
    }
    let bytes = settle_reserve(&mut view, &mut out, choice.bytes, &mut geometry)?;
    let blocks = geometry.blocks_count;
    Ok(Fs {
        view,
        out,
        raw: RawSuper::read(&bytes).expect("1024 bytes"),
        descs: Vec::new(),
        stale: Default::default(),
        whole: Default::default(),
        held: Default::default(),
        suspects: Suspects::default(),
        counted: None,
        meta: Bits::new(blocks),
        used: Bits::new(blocks),
        twice: Bits::new(blocks),
        inodes: Default::default(),
        shared: Default::default(),
        large: Default::default(),
        rebuilt: Default::default(),
        from_copy: choice.from_copy,
        history: None,
        policies: Default::default(),
        context: None,
        tree: Default::default(),
        again: false,
        of_deleted: false,
        overlain: Default::default(),
        mmp_marked: false,
        g: geometry,
    })
}

fn hopeless(kind: CorruptKind) -> RepairError {
    RepairError::Hopeless(kind.to_string())
}

/// Removes a reserve of descriptors that `meta_bg` excludes, or that has no feature; answers the
/// superblock.
fn settle_reserve(
    view: &mut View<'_>,
    out: &mut Decisions<'_>,
    bytes: Vec<u8>,
    geometry: &mut Geometry,
) -> Result<Vec<u8>, RepairError> {
    let Some(fault) = geometry.reserve_fault() else { return Ok(bytes) };
    let finding = crate::plan::Finding {
        rule: Rule::SuperReserve.name(),
        at: At::Super(0).to_string(),
        detail: fault.to_string(),
        action: "remove the reserve".to_string(),
        loss: None,
        safe: true,
    };
    if !out.ask(finding) {
        return Ok(bytes);
    }
    let bytes = bytes_of(&bytes, |raw| {
        let mut features = raw.features();
        features.compat -= Compat::RESIZE_INODE;
        raw.set_features(&features);
        raw.s_reserved_gdt_blocks.set(0);
    });
    view.write_bytes(SUPER_OFFSET, &bytes)?;
    *geometry = parse(&bytes).map_err(hopeless)?;
    Ok(bytes)
}

/// Parses a superblock, and refuses one whose inode tables leave no room.
fn parse(bytes: &[u8]) -> Result<Geometry, CorruptKind> {
    let g = Geometry::parse(bytes, 0).map_err(|corrupt| corrupt.kind)?;
    let tables = u64::from(g.itable_blocks) * u64::from(g.groups_count);
    if tables >= g.blocks_count {
        return Err(CorruptKind::BlocksCount { blocks: g.blocks_count, first: g.first_data_block });
    }
    Ok(g)
}

fn choose(view: &mut View<'_>) -> Result<Choice, RepairError> {
    let bytes = view.read_bytes(SUPER_OFFSET, SUPER_SIZE)?;
    let primary = parse(&bytes);
    if let Some(features) = RawSuper::view(&bytes).and_then(RawSuper::lost_features) {
        let fixed = bytes_of(&bytes, |raw| raw.set_features(&features));
        if parse(&fixed).is_ok() {
            let detail = format!("the checksum is that of other features: {features}");
            let action = "set them".to_string();
            let change = Some((Rule::SuperChecksum, detail, action, None));
            return Ok(Choice { bytes: fixed, change, from_copy: false });
        }
    }
    if let Ok(g) = &primary
        && let Some((features, fixed)) = copied_features(view, &bytes, g)?
    {
        let detail =
            format!("the copies have other features, and the content fits them: {features}");
        let change = Some((Rule::SuperFeature, detail, "take theirs".to_string(), None));
        return Ok(Choice { bytes: fixed, change, from_copy: false });
    }
    if let Ok(g) = &primary {
        let trusted = g.checksums.metadata;
        if trusted || !disagrees(view, &bytes, g)? {
            return Ok(Choice { bytes, change: None, from_copy: false });
        }
    }
    let stored = |bytes: &[u8]| RawSuper::view(bytes).map_or(0, |raw| raw.s_checksum.get());
    if primary.is_err()
        && let Some(fixed) = restore::one_byte(&bytes, super_sum, stored)
        && parse(&fixed).is_ok()
    {
        let detail = "one byte does not fit the checksum".to_string();
        let action = "put that byte right by the checksum".to_string();
        let change = Some((Rule::SuperChecksum, detail, action, None));
        return Ok(Choice { bytes: fixed, change, from_copy: false });
    }
    let wrong = match &primary {
        Ok(_) => "describes another file system than its copies".to_string(),
        Err(kind) => kind.to_string(),
    };
    let rule = primary.as_ref().err().map_or(Rule::SuperGeometry, Rule::of);
    let own = primary.is_ok().then(|| bytes.clone()).or_else(|| resummed(&bytes));
    let own_score = match &own {
        Some(own) => score(view, own, 0)?,
        None => 0,
    };
    if let Some((block, copy)) = best_copy(view, own_score.saturating_sub(1))? {
        let joined = join(&copy, &bytes);
        let action = format!("restore it from the copy in block {block}");
        let change = Some((rule, wrong, action, None));
        return Ok(Choice { bytes: joined, change, from_copy: true });
    }
    let Some(own) = own.filter(|_| own_score > 0) else {
        let Some((field, bytes)) = guessed(view, &bytes)? else {
            return Err(RepairError::NoSuperblock);
        };
        let action = format!("set {field} to what the rest fits");
        let loss = Some("another field of it may be wrong".to_string());
        let change = Some((rule, wrong, action, loss));
        return Ok(Choice { bytes, change, from_copy: false });
    };
    let change = primary.is_err().then(|| {
        let loss = "some field of it may be wrong".to_string();
        (rule, wrong, "take it as it is, with its checksum set".to_string(), Some(loss))
    });
    Ok(Choice { bytes: own, change, from_copy: false })
}

/// The features of the copies, where those agree with each other, differ from the superblock's, and
/// a check finds less with them. Features that are set while mounted may be missing in copies.
fn copied_features(
    view: &mut View<'_>,
    bytes: &[u8],
    g: &Geometry,
) -> Result<Option<(Features, Vec<u8>)>, DeviceError> {
    let mut theirs: Option<Features> = None;
    for group in (1..g.groups_count).filter(|&group| is_power(group)).take(FEATURE_COPIES) {
        let place = g.group_first_block(group) * u64::from(g.block_size);
        let Ok(copy) = parse(&view.read_bytes(place, SUPER_SIZE)?) else { continue };
        if copy.uuid != g.uuid || copy.blocks_count != g.blocks_count {
            continue;
        }
        match &theirs {
            Some(known) if *known != copy.features => return Ok(None),
            _ => theirs = Some(copy.features),
        }
    }
    let Some(mut features) = theirs else { return Ok(None) };
    features.incompat.set(Incompat::RECOVER, g.features.incompat.contains(Incompat::RECOVER));
    features.incompat |= g.features.incompat & Incompat::EXTENTS;
    features.ro_compat |= g.features.ro_compat & (LATE | RoCompat::HUGE_FILE | RoCompat::DIR_NLINK);
    features.compat |= g.features.compat & Compat::EXT_ATTR;
    if features == g.features {
        return Ok(None);
    }
    let fixed = bytes_of(bytes, |raw| raw.set_features(&features));
    let known = features.access().0 == Access::ReadWrite && features.unknown_pair().is_none();
    if parse(&fixed).is_err() || !known {
        return Ok(None);
    }
    let [ours, others] = [bytes, &fixed[..]].map(|bytes| findings(view, bytes));
    Ok((others? < ours?).then_some((features, fixed)))
}

/// How much a check finds with a superblock, up to a limit.
fn findings(view: &mut View<'_>, bytes: &[u8]) -> Result<u64, DeviceError> {
    let (_, queue) = view.overlay()?;
    let page = base::Page::from_slice(bytes);
    queue.write(view.cx(), base::Sector::from_bytes(SUPER_OFFSET), page, BioFlags::empty())?;
    let options = CheckOptions { findings_max: COMPARED, ..CheckOptions::default() };
    let report = ext4::check(view.cx(), &queue, &options)?;
    let backup = |found: &&ext4::Finding| found.rule == Rule::SuperBackup;
    let copies = report.findings.iter().filter(backup).count();
    Ok((report.findings.len() - copies) as u64 + report.more)
}

/// Groups that have copies whatever the features are.
fn is_power(group: u32) -> bool {
    [3u32, 5, 7].into_iter().any(|base| {
        let mut power = 1;
        while power < group {
            power *= base;
        }
        power == group
    })
}

/// The copy at a byte of the device.
fn at(view: &mut View<'_>, place: u64) -> Result<Choice, RepairError> {
    let end = view.blocks() * view.block_size() as u64;
    if place.checked_add(SUPER_SIZE as u64).is_none_or(|last| last > end) {
        return Err(RepairError::NotThere(format!("no superblock of ext lies at byte {place}")));
    }
    let copy = view.read_bytes(place, SUPER_SIZE)?;
    parse(&copy).map_err(|kind| {
        RepairError::NotThere(format!("no superblock of ext lies at byte {place}: {kind}"))
    })?;
    let primary = view.read_bytes(SUPER_OFFSET, SUPER_SIZE)?;
    let detail = "another one is wanted".to_string();
    let action = format!("restore it from the copy at byte {place}");
    let loss = Some("what only the first one knows".to_string());
    let change = Some((Rule::SuperGeometry, detail, action, loss));
    Ok(Choice { bytes: join(&copy, &primary), change, from_copy: true })
}

/// The superblock with its checksum set, where only that is wrong.
fn resummed(bytes: &[u8]) -> Option<Vec<u8>> {
    let fixed = bytes_of(bytes, |_| ());
    parse(&fixed).is_ok().then_some(fixed)
}

/// The superblock with one field set to what others, or most file systems, say, where descriptors
/// and root directory fit it then: the best of them, with the name of the field.
fn guessed(
    view: &mut View<'_>,
    bytes: &[u8],
) -> Result<Option<(&'static str, Vec<u8>)>, DeviceError> {
    let mut best: Option<(u32, &'static str, Vec<u8>)> = None;
    for (field, change) in guesses() {
        let bytes = bytes_of(bytes, change);
        let score = score(view, &bytes, 0)?;
        let rooted = score > MOVED_LEAST && has_root(view, &bytes)?;
        if rooted && best.as_ref().is_none_or(|(known, ..)| score > *known) {
            best = Some((score, field, bytes));
        }
    }
    Ok(best.map(|(_, field, bytes)| (field, bytes)))
}

/// Is the root directory where a superblock puts it?
fn has_root(view: &mut View<'_>, bytes: &[u8]) -> Result<bool, DeviceError> {
    let Ok(g) = parse(bytes) else { return Ok(false) };
    let size = u64::from(g.block_size);
    let (block, offset) = g.desc_place(0);
    let place = block.0 * size + offset as u64;
    let desc = GroupDesc::read(&view.read_bytes(place, g.desc_size as usize)?);
    let slot = root_slot(view, &g, &desc)?;
    let root = InodeValues::parse(&slot, Ino(ROOT_INO.into()), &g);
    Ok(root.is_ok_and(|values| values.kind() == Some(FileKind::Directory) && values.links > 1))
}

/// The inode of the root directory, where the first group's descriptor puts it.
fn root_slot(view: &mut View<'_>, g: &Geometry, desc: &GroupDesc) -> Result<Vec<u8>, DeviceError> {
    let (_, index) = g.inode_group(Ino(ROOT_INO.into())).expect("in range");
    let (at, offset) = g.inode_offset(index);
    let block = desc.inode_table.saturating_add(at).saturating_mul(g.block_size.into());
    view.read_bytes(block.saturating_add(offset as u64), g.inode_size as usize)
}

/// A field, and what sets it.
type Guess = (&'static str, Box<dyn Fn(&mut RawSuper)>);

/// What one wrong field of a superblock may have been.
fn guesses() -> Vec<Guess> {
    let mut list: Vec<Guess> = vec![
        ("s_magic", Box::new(|raw| raw.s_magic.set(MAGIC))),
        ("s_rev_level", Box::new(|raw| raw.s_rev_level.set(1))),
        (
            "s_r_blocks_count",
            Box::new(|raw| {
                raw.s_r_blocks_count_lo.set(0);
                raw.s_r_blocks_count_hi.set(0);
            }),
        ),
        ("s_log_cluster_size", Box::new(|raw| raw.s_log_cluster_size = raw.s_log_block_size)),
        ("s_clusters_per_group", Box::new(|raw| raw.s_clusters_per_group = raw.s_blocks_per_group)),
        ("s_blocks_per_group", Box::new(|raw| raw.s_blocks_per_group = raw.s_clusters_per_group)),
        ("s_inodes_count", Box::new(|raw| raw.s_inodes_count = raw.s_inodes_per_group)),
        ("s_inodes_per_group", Box::new(|raw| raw.s_inodes_per_group = raw.s_inodes_count)),
        (
            "s_first_data_block",
            Box::new(|raw| raw.s_first_data_block.set(u32::from(raw.s_log_block_size.get() == 0))),
        ),
        ("s_first_ino", Box::new(|raw| raw.s_first_ino.set(11))),
        (
            "s_want_extra_isize",
            Box::new(|raw| {
                raw.s_min_extra_isize.set(EXTRA_SIZE);
                raw.s_want_extra_isize.set(EXTRA_SIZE);
            }),
        ),
    ];
    for log in 0..=6 {
        list.push(("s_log_block_size", Box::new(move |raw| raw.s_log_block_size.set(log))));
        let size = 128 << log;
        list.push(("s_inode_size", Box::new(move |raw| raw.s_inode_size.set(size))));
        list.push(("s_desc_size", Box::new(move |raw| raw.s_desc_size.set(size >> 2))));
    }
    list
}

/// A copy becomes the primary: what changes while mounted comes from the old primary, if that is of
/// the same file system.
fn join(copy: &[u8], primary: &[u8]) -> Vec<u8> {
    let old = RawSuper::read(primary).expect("1024 bytes");
    bytes_of(copy, |raw| {
        raw.s_block_group_nr.set(0);
        if old.s_uuid != raw.s_uuid {
            return;
        }
        raw.s_mtime = old.s_mtime;
        raw.s_last_orphan = old.s_last_orphan;
        raw.s_last_mounted = old.s_last_mounted;
        raw.s_kbytes_written = old.s_kbytes_written;
        let mut features = raw.features();
        features.incompat |= old.features().incompat & Incompat::RECOVER;
        features.ro_compat |= old.features().ro_compat & LATE;
        features.compat |= old.features().compat & Compat::EXT_ATTR;
        raw.set_features(&features);
    })
}

/// What no mount changes.
fn shape(g: &Geometry) -> impl PartialEq + use<> {
    let incompat = g.features.incompat - Incompat::RECOVER;
    let late = RoCompat::LARGE_FILE
        | RoCompat::ORPHAN_PRESENT
        | RoCompat::HUGE_FILE
        | RoCompat::DIR_NLINK
        | RoCompat::EXTRA_ISIZE;
    let compat = g.features.compat - Compat::EXT_ATTR - Compat::HAS_JOURNAL;
    let sizes = [g.block_size, g.inode_size, g.desc_size, g.first_data_block, g.first_ino];
    let groups = [g.inodes_count, g.blocks_per_group, g.flex_size, g.reserved_gdt_blocks];
    let words = (incompat.bits(), (g.features.ro_compat - late).bits(), compat.bits());
    (sizes, groups, words, g.blocks_count, g.uuid, g.hash_seed)
}

/// True where a copy describes another file system, and more descriptors speak for it.
fn disagrees(view: &mut View<'_>, bytes: &[u8], g: &Geometry) -> Result<bool, RepairError> {
    let mut copies = 0;
    for group in (1..g.groups_count).filter(|&group| g.has_super(group)).take(3) {
        let place = g.group_first_block(group) * u64::from(g.block_size);
        let copy = view.read_bytes(place, SUPER_SIZE)?;
        if let Ok(theirs) = parse(&copy)
            && shape(&theirs) != shape(g)
        {
            copies += 1;
        }
    }
    if copies == 0 {
        return Ok(false);
    }
    // One copy alone must be better.
    let own = score(view, bytes, 0)?;
    Ok(best_copy(view, own.saturating_sub(u32::from(copies > 1)))?.is_some())
}

/// How well the descriptors and the root directory fit a superblock; 0 where nothing does. The
/// descriptors are those of the table that lies behind the superblock of the group `holder`.
fn score(view: &mut View<'_>, bytes: &[u8], holder: u32) -> Result<u32, DeviceError> {
    let Ok(g) = parse(bytes) else { return Ok(0) };
    let size = u64::from(g.block_size);
    let moved = g.group_first_block(holder) - g.group_first_block(0);
    let mut score = 0;
    for group in 0..g.groups_count.min(VOTERS) {
        let (block, offset) = g.desc_place(group);
        let place = (block.0 + moved) * size + offset as u64;
        let bytes = view.read_bytes(place, g.desc_size as usize)?;
        let desc = GroupDesc::read(&bytes);
        score += u32::from(desc.check_places(group, &g).is_ok());
        score += u32::from(GroupDesc::parse(&bytes, group, &g).is_ok());
        // mke2fs puts a group's bitmap behind the copies, or those of many groups there.
        let behind = g.group_first_block(group) + u64::from(g.base_meta_blocks(group));
        score += u32::from(desc.block_bitmap == behind);
        if group == 0 && desc.check_places(group, &g).is_ok() {
            let slot = root_slot(view, &g, &desc)?;
            let values = InodeValues::read(&slot, &g);
            score += 2 * u32::from(values.kind() == Some(FileKind::Directory));
            score += 2 * u32::from(InodeValues::parse(&slot, Ino(2), &g).is_ok());
        }
    }
    Ok(score)
}

/// The copy with the best score, if that is above `least`: block and content.
fn best_copy(view: &mut View<'_>, least: u32) -> Result<Option<(u64, Vec<u8>)>, DeviceError> {
    let mut best: Option<(u32, u64, Vec<u8>)> = None;
    let bytes = view.blocks() * view.block_size() as u64;
    for log in 0..=6 {
        let size = 1024u64 << log;
        for group in COPIES {
            let place = (u64::from(log == 0) + group * size * 8) * size;
            consider(view, place, false, &mut best)?;
        }
    }
    for moved in [false, true] {
        if best.is_none() {
            for place in (1..bytes.min(SEARCH_MAX) / 1024).map(|kib| kib * 1024) {
                consider(view, place, moved, &mut best)?;
            }
        }
    }
    Ok(best.filter(|(score, ..)| *score > least).map(|(_, block, bytes)| (block, bytes)))
}

/// Takes what lies at a place if it is a copy and better than the best so far; where the first one
/// may have `moved` to another block, that counts as one if the descriptors and the root fit it.
fn consider(
    view: &mut View<'_>,
    place: u64,
    moved: bool,
    best: &mut Option<(u32, u64, Vec<u8>)>,
) -> Result<(), DeviceError> {
    let end = view.blocks() * view.block_size() as u64;
    if place + SUPER_SIZE as u64 > end || place == SUPER_OFFSET {
        return Ok(());
    }
    let bytes = view.read_bytes(place, SUPER_SIZE)?;
    let Ok(g) = parse(&bytes) else { return Ok(()) };
    let raw = RawSuper::read(&bytes).expect("1024 bytes");
    let group = u32::from(raw.s_block_group_nr.get());
    let size = u64::from(g.block_size);
    let in_place = group > 0 && g.group_first_block(group) * size == place;
    if group >= g.groups_count || in_place == moved || group > 0 && moved {
        return Ok(());
    }
    // Where the start of the device is gone, only the copy of the table beside it speaks.
    let mut score = score(view, &bytes, 0)?.max(score(view, &bytes, group)?);
    // A journal's copy: with a right checksum, and of no file system that could begin here.
    if moved && g.checksums.metadata && place + g.blocks_count * size > end {
        score += MOVED_LEAST + 1;
    }
    let least = if moved { MOVED_LEAST } else { 0 };
    if score > least && best.as_ref().is_none_or(|(known, ..)| score > *known) {
        *best = Some((score, place / size, bytes));
    }
    Ok(())
}
