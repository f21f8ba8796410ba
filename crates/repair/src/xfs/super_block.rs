//! The superblock: as it reads, by its checksum, or from the copies in the groups.

use std::collections::{BTreeMap, BTreeSet};

use block::DeviceError;
use xfs::Rule;
use xfs::format::features::{Access, Beside, Incompat, Version};
use xfs::format::log::Lsn;
use xfs::format::super_block::{IN_PROGRESS, MAGIC};
use xfs::format::{AgHeader, At, Geometry, Kind, NULL64, RawSuper, verifier};
use zerocopy::IntoBytes;

use super::meta::restored;
use super::{Fs, Suspects, lossy, safe};
use crate::RepairError;
use crate::plan::Finding;
use crate::view::View;

/// Bytes that a sector may have.
const SECTORS: [usize; 4] = [512, 1024, 2048, 4096];
/// Bytes that a scan reads at once.
const STRIDE: usize = 128 << 10;

/// The counters of the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Inodes that have a place.
    pub inodes: u64,
    /// Those among them that are free.
    pub free_inodes: u64,
    /// Free blocks, those of the free lists and of the free space btrees included.
    pub free_blocks: u64,
}

/// A superblock that was found to be sound.
struct Found {
    raw: RawSuper,
    finding: Option<Finding>,
}

/// A copy of the superblock in the sector at the start of `bytes`, if its checksum is right.
fn sound(bytes: &[u8]) -> Option<RawSuper> {
    let raw = *RawSuper::view(bytes)?;
    let size = usize::from(raw.sb_sectsize.get());
    let five = raw.sb_versionnum.get() & 0xf == 5;
    let known = raw.sb_magicnum.get() == MAGIC && five && SECTORS.contains(&size);
    let data = bytes.get(..size).filter(|_| known)?;
    let sum = verifier::checksum(Kind::Super, data);
    (verifier::stored_checksum(Kind::Super, data) == sum).then_some(raw)
}

/// The sector of a superblock, with its checksum.
fn sealed(raw: &RawSuper) -> Vec<u8> {
    let mut sector = vec![0; usize::from(raw.sb_sectsize.get())];
    sector[..size_of::<RawSuper>()].copy_from_slice(raw.as_bytes());
    verifier::update_crc(Kind::Super, &mut sector);
    sector
}

/// A copy as the first superblock: what copies do not know is left to be counted.
fn as_primary(copy: &RawSuper, root: u64) -> RawSuper {
    let mut raw = *copy;
    raw.sb_inprogress &= !IN_PROGRESS;
    raw.sb_rootino.set(root);
    if raw.sb_features_incompat.get() & Incompat::METADIR.bits() != 0 {
        raw.sb_metadirino.set(root + 1);
    } else {
        raw.sb_rbmino.set(root + 1);
        raw.sb_rsumino.set(root + 2);
    }
    raw.sb_versionnum.set(raw.sb_versionnum.get() | Version::ATTR.bits());
    raw.sb_features_log_incompat.set(0);
    raw
}

/// What no mount changes, for a comparison of copies.
fn shape(raw: &RawSuper) -> Vec<u8> {
    let mut copy = *raw;
    let zero = RawSuper::zeroed();
    (copy.sb_rootino, copy.sb_rbmino) = (zero.sb_rootino, zero.sb_rbmino);
    (copy.sb_rsumino, copy.sb_icount) = (zero.sb_rsumino, zero.sb_icount);
    (copy.sb_ifree, copy.sb_fdblocks) = (zero.sb_ifree, zero.sb_fdblocks);
    (copy.sb_frextents, copy.sb_uquotino) = (zero.sb_frextents, zero.sb_uquotino);
    (copy.sb_gquotino, copy.sb_pquotino) = (zero.sb_gquotino, zero.sb_pquotino);
    (copy.sb_qflags, copy.sb_flags) = (zero.sb_qflags, 0);
    copy.sb_metadirino = zero.sb_metadirino;
    (copy.sb_inprogress, copy.sb_fname) = (0, zero.sb_fname);
    let varies = Version::ATTR | Version::MOREBITS | Version::QUOTA;
    copy.sb_versionnum.set(copy.sb_versionnum.get() & !varies.bits());
    copy.sb_features2.set(copy.sb_features2.get() & !8);
    copy.sb_bad_features2 = zero.sb_bad_features2;
    let incompat = copy.sb_features_incompat.get() & !Incompat::NEEDSREPAIR.bits();
    copy.sb_features_incompat.set(incompat);
    copy.sb_features_log_incompat = zero.sb_features_log_incompat;
    (copy.sb_crc, copy.sb_lsn) = (zero.sb_crc, zero.sb_lsn);
    copy.as_bytes().to_vec()
}

/// The copies in the groups behind the first, as a superblock names their places.
fn copies(view: &mut View<'_>, of: &RawSuper) -> Result<Vec<RawSuper>, DeviceError> {
    let bytes = u64::from(of.sb_agblocks.get()) * u64::from(of.sb_blocksize.get());
    let device = view.blocks() * view.block_size() as u64;
    let mut list = Vec::new();
    for ag in 1..u64::from(of.sb_agcount.get()) {
        let Some(place) = ag.checked_mul(bytes).filter(|&place| place < device) else { break };
        list.extend(sound(&view.read_bytes(place, 4096)?));
    }
    Ok(list)
}

/// The first superblock again, from the copies that agree best. `first` is any sound one.
fn from_copies(view: &mut View<'_>, first: &RawSuper) -> Result<Option<RawSuper>, DeviceError> {
    let mut counts: BTreeMap<Vec<u8>, Vec<RawSuper>> = BTreeMap::new();
    for copy in copies(view, first)? {
        counts.entry(shape(&copy)).or_default().push(copy);
    }
    let Some(best) = counts.into_values().max_by_key(Vec::len) else { return Ok(None) };
    let known = |copy: &&RawSuper| ![0, NULL64].contains(&copy.sb_rootino.get());
    let root = best.iter().find(known).map(|copy| copy.sb_rootino.get());
    Ok(root.map(|root| as_primary(&best[0], root)))
}

/// Looks for a copy over the whole device.
fn scan(view: &mut View<'_>) -> Result<Option<RawSuper>, DeviceError> {
    let device = view.blocks() * view.block_size() as u64;
    let mut at = 0;
    while at < device {
        let len = (STRIDE + 4096).min((device - at) as usize);
        let bytes = view.read_bytes(at, len)?;
        for place in (0..bytes.len().min(STRIDE)).step_by(512) {
            let Some(copy) = sound(&bytes[place..]) else { continue };
            let group = u64::from(copy.sb_agblocks.get()) * u64::from(copy.sb_blocksize.get());
            let offset = at + place as u64;
            let own = group > 0 && offset.is_multiple_of(group);
            if own
                && offset > 0
                && let Some(raw) = from_copies(view, &copy)?
            {
                return Ok(Some(raw));
            }
        }
        at += STRIDE as u64;
    }
    Ok(None)
}

/// The superblock, by whatever says it.
fn find(view: &mut View<'_>) -> Result<Option<Found>, DeviceError> {
    let bytes = view.read_bytes(0, 4096)?;
    let at = At::Super(0);
    if let Some(raw) = sound(&bytes) {
        let list = copies(view, &raw)?;
        let agree = list.iter().any(|copy| shape(copy) == shape(&raw));
        let parsed = Geometry::parse(&unmarked(&raw), at).is_ok();
        if parsed && (agree || raw.sb_agcount.get() == 1) {
            return Ok(Some(Found { raw, finding: None }));
        }
        if let Some(other) = scan(view)? {
            let detail = "describes another file system than its copies";
            let finding = safe(Rule::SuperBackup, at, detail, "take a copy in its place");
            return Ok(Some(Found { raw: other, finding: Some(finding) }));
        }
        return Ok(parsed.then_some(Found { raw, finding: None }));
    }
    for size in SECTORS {
        let sector = &bytes[..size];
        let expect =
            xfs::format::Expect { uuid: [0; 16], address: base::Sector(0), owner: None, v4: false };
        let Some((_, fixed)) = restored(&[Kind::Super], sector, &expect, at) else { continue };
        if let Some(raw) = sound(&fixed) {
            let detail = "one byte does not fit the checksum";
            let finding = safe(Rule::Super, at, detail, "put that byte right");
            return Ok(Some(Found { raw, finding: Some(finding) }));
        }
    }
    let Some(raw) = scan(view)? else { return Ok(None) };
    let detail = "cannot be read";
    let finding =
        lossy(Rule::Super, at, detail, "take a copy in its place", "changes of the label");
    Ok(Some(Found { raw, finding: Some(finding) }))
}

/// The sector of a superblock without the mark that a repair is wanted.
fn unmarked(raw: &RawSuper) -> Vec<u8> {
    let mut raw = *raw;
    let incompat = raw.sb_features_incompat.get() & !Incompat::NEEDSREPAIR.bits();
    raw.sb_features_incompat.set(incompat);
    sealed(&raw)
}

/// Refuses what cannot be kept right, by name.
fn refuse(g: &Geometry, view: &View<'_>) -> Result<(), RepairError> {
    let beside = Beside { log: true, realtime: true };
    let (access, reasons) = g.features.access_beside(beside);
    if access != Access::ReadWrite {
        let name = reasons.first().map_or("a feature", |reason| reason.name.as_str());
        return Err(RepairError::Feature(name.to_string()));
    }
    if !(1024..=65536).contains(&g.block_size) {
        return Err(RepairError::Feature(format!("blocks of {} bytes", g.block_size)));
    }
    let device_bytes = view.blocks() * view.block_size() as u64;
    let bytes = g.blocks_count() * u64::from(g.block_size);
    if bytes > device_bytes {
        return Err(RepairError::CutShort { bytes, device_bytes });
    }
    Ok(())
}

/// Opens a file system: reads the superblock and restores it where it must be.
///
/// # Errors
/// No superblock, or a feature that is refused.
pub fn open(mut view: View<'_>) -> Result<Fs<'_>, RepairError> {
    let v4 = RawSuper::view(&view.read_bytes(0, 512)?).is_some_and(|raw| {
        raw.sb_magicnum.get() == MAGIC && (1..5).contains(&(raw.sb_versionnum.get() & 0xf))
    });
    let Some(found) = find(&mut view)? else {
        return Err(match v4 {
            true => RepairError::Feature("v4".into()),
            false => RepairError::NoSuperblock,
        });
    };
    let mut findings: Vec<Finding> = found.finding.into_iter().collect();
    let sector = unmarked(&found.raw);
    let marked = found.raw.sb_features_incompat.get() & Incompat::NEEDSREPAIR.bits() != 0;
    if marked {
        let detail = "asks for a repair";
        findings.push(safe(Rule::Super, At::Super(0), detail, "repair, and take that back"));
    }
    let g = Geometry::parse(&sector, At::Super(0))
        .map_err(|corrupt| RepairError::Hopeless(corrupt.to_string()))?;
    refuse(&g, &view)?;
    view.set_block_size(g.block_size);
    let first = view.read(0)?;
    if !findings.is_empty() {
        view.write_bytes(0, &sector)?;
    }
    let raw = *RawSuper::view(&sector).expect("a sector holds it");
    let newest = Lsn::from_bits(raw.sb_lsn.get()).max(Lsn { cycle: 1, block: 0 });
    let mut fs = Fs {
        view,
        findings,
        g,
        raw,
        suspects: Suspects::default(),
        groups: Vec::new(),
        section: Vec::new(),
        tree_records: BTreeMap::new(),
        inodes: BTreeMap::new(),
        dirs: BTreeMap::new(),
        spare: None,
        touched: BTreeSet::new(),
        strays: BTreeMap::new(),
        elsewhere: BTreeSet::new(),
        healing: false,
        stray_inodes: BTreeMap::new(),
        again: false,
        names_damaged: false,
        quota_inos: [None; 3],
        log: None,
        log_emptied: false,
        newest_cycle: newest.cycle,
        log_end: newest,
        ahead: BTreeMap::new(),
        memory: None,
    };
    // Another block may lie there.
    fs.notice_stray(0, &first);
    Ok(fs)
}

impl Fs<'_> {
    /// Writes copies that are damaged or describe another file system from the first one.
    pub fn write_copies(&mut self) -> Result<(), DeviceError> {
        for ag in 1..self.g.ag_count() {
            let sector = self.g.header_sector(ag, AgHeader::Super);
            let (bytes, whole) = self.header(sector, Kind::Super, At::Super(ag))?;
            let raw = RawSuper::view(&bytes).expect("a sector holds it");
            if whole && shape(raw) == shape(&self.raw) {
                continue;
            }
            let mut copy = self.raw.without_quota();
            copy.sb_inprogress |= IN_PROGRESS;
            copy.sb_lsn.set(0);
            self.view.write_bytes(sector.bytes(), &sealed(&copy))?;
            let detail = "does not describe this file system";
            self.note(safe(Rule::SuperBackup, At::Super(ag), detail, "copy the first one"));
        }
        Ok(())
    }

    /// Writes the superblock as it is here.
    ///
    /// # Errors
    /// The device's.
    pub fn write_super(&mut self) -> Result<(), DeviceError> {
        let sector = sealed(&self.raw);
        self.view.write_bytes(0, &sector)
    }

    /// Stores the sums over all groups.
    pub fn write_sums(&mut self, sums: &Sums) -> Result<(), DeviceError> {
        let raw = &mut self.raw;
        let found = Sums {
            inodes: raw.sb_icount.get(),
            free_inodes: raw.sb_ifree.get(),
            free_blocks: raw.sb_fdblocks.get(),
        };
        let section = raw.sb_rblocks.get() == 0 && raw.sb_frextents.get() != 0;
        if found == *sums && !section {
            return Ok(());
        }
        if section {
            raw.sb_frextents.set(0);
        }
        raw.sb_icount.set(sums.inodes);
        raw.sb_ifree.set(sums.free_inodes);
        raw.sb_fdblocks.set(sums.free_blocks);
        self.write_super()?;
        let detail = "the counters are not the sums over all groups";
        self.note(safe(Rule::SuperCount, At::Super(0), detail, "store the sums"));
        Ok(())
    }
}
