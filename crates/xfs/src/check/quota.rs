//! Records of quota against what the inodes have.

use std::collections::BTreeMap;

use base::Ino;
use block::DeviceError;
use vfs::quota::Kind;

use super::{Checker, Rule};
use crate::bmap::{Forks, Which};
use crate::error::Fault;
use crate::format::dquot::{self, DquotId, QuotaFlags, RECORD_SIZE, RawDquot};
use crate::format::features::Version;
use crate::format::inode::{Flags2, ForkFormat, InodeCore, MetadataType, RawInode};
use crate::format::{At, CorruptKind};
use crate::log::dquot_item::{DQUOT_BLOCK, Usage};
use crate::metadir;
use crate::quota::places;

/// Blocks and inodes of each id.
pub(super) type Counted = BTreeMap<DquotId, Usage>;

/// Adds what others have counted.
pub(super) fn absorb(counted: &mut Counted, others: Counted) {
    for (id, other) in others {
        let sum = counted.entry(id).or_default();
        sum.blocks += other.blocks;
        sum.inodes += other.inodes;
        sum.realtime += other.realtime;
    }
}

/// What an inode of the metadata directory must say of itself.
pub(super) struct Held {
    pub holds: MetadataType,
    pub size: u64,
    /// The number of its group, of a file of the realtime section.
    pub project: u32,
}

impl Checker<'_> {
    /// The kinds whose counts must be right.
    fn checked_kinds(&self) -> Vec<Kind> {
        let flags = QuotaFlags::of(&self.raw);
        let right =
            |kind: &Kind| flags.contains(QuotaFlags::counted(*kind) | QuotaFlags::checked(*kind));
        Kind::ALL.into_iter().filter(right).collect()
    }

    /// Finds the inodes that hold the records.
    pub(super) fn find_quota(&mut self) -> Result<(), DeviceError> {
        let found = metadir::quota_inos(self.cx, &self.reader, &self.raw);
        self.quota_inos = self.keep(found)?.unwrap_or_default();
        if self.reader.geometry.metadata_root.is_none() {
            return Ok(());
        }
        let known = self.raw.sb_versionnum.get() & Version::QUOTA.bits() != 0;
        if !known && self.quota_inos.iter().any(Option::is_some) {
            let text = "there are records of quota, and the version says that there are none";
            self.findings.add(Rule::QuotaFile, At::Super(0), text);
        }
        for kind in Kind::ALL {
            let Some(ino) = self.quota_inos[kind as usize].map(Ino) else { continue };
            let holds = MetadataType::of_quota(kind);
            let wanted = Held { holds, size: 0, project: 0 };
            let name = format!("the quota file of {}", kind.name());
            self.compare_held(Rule::QuotaFile, ino, &wanted, &name)?;
        }
        Ok(())
    }

    /// Compares what an inode of the metadata directory says of itself with its name there.
    pub(super) fn compare_held(
        &mut self,
        rule: Rule,
        ino: Ino,
        wanted: &Held,
        name: &str,
    ) -> Result<(), DeviceError> {
        let slot = self.reader.read_slot(self.cx, ino);
        let Some(slot) = self.keep(slot)? else { return Ok(()) };
        let raw = RawInode::view(&slot).expect("a slot holds a core");
        let [low, high] = [raw.di_projid_lo, raw.di_projid_hi].map(|half| u32::from(half.get()));
        let (holds, size, project) = (raw.di_onlink.get(), raw.di_size.get(), low | high << 16);
        if (holds, size, project) != (wanted.holds as u16, wanted.size, wanted.project) {
            let text = format!("{name} holds {holds}, has {size} bytes and project {project}");
            self.findings.add(rule, At::Inode(ino), text);
        }
        if wanted.holds.is_tree() != (raw.di_format == ForkFormat::MetaBtree as u8) {
            let text = format!("{name} has a fork of form {}", raw.di_format);
            self.findings.add(rule, At::Inode(ino), text);
        }
        Ok(())
    }

    /// Counts an inode in use for its owners; what its content has of the realtime section is not
    /// known yet.
    pub(super) fn count_usage(&mut self, ino: Ino, core: &InodeCore) {
        if self.quota_inos.contains(&Some(ino.0)) || core.flags2.contains(Flags2::METADATA) {
            return;
        }
        for kind in self.checked_kinds() {
            let sum = self.usage.entry(core.owners().id(kind)).or_default();
            sum.blocks += core.blocks as i64;
            sum.inodes += 1;
        }
    }

    /// Counts blocks of an inode as those of the realtime section that they are.
    pub(super) fn count_content(&mut self, core: &InodeCore, blocks: u64) {
        for kind in self.checked_kinds() {
            let sum = self.usage.entry(core.owners().id(kind)).or_default();
            sum.blocks -= blocks as i64;
            sum.realtime += blocks as i64;
        }
    }

    /// Reads the records, and compares those of checked kinds with what was counted.
    pub(super) fn quota_pass(&mut self) -> Result<(), DeviceError> {
        let checked = self.checked_kinds();
        for kind in Kind::ALL {
            let compared = checked.contains(&kind) && !self.owners_unknown;
            let all = DquotId { kind, id: 0 }..=DquotId { kind, id: u32::MAX };
            let mut counted: Counted = self.usage.range(all).map(|(&id, &sum)| (id, sum)).collect();
            let Some(ino) = self.quota_inos[kind as usize] else {
                if checked.contains(&kind) {
                    let text = format!("{} are counted, and no inode has the records", kind.name());
                    self.findings.add(Rule::QuotaFile, At::Super(0), text);
                }
                continue;
            };
            let records = self.quota_records(kind, Ino(ino));
            let Some(records) = self.keep(records)? else { continue };
            let at = At::Inode(Ino(ino));
            for found in records {
                match found {
                    Ok(_) if !compared => {}
                    Ok((id, found)) => {
                        let expected = counted.remove(&id).unwrap_or_default();
                        self.compare_usage(at, id, found, expected);
                    }
                    Err(corrupt) => self.findings.corrupt(&corrupt),
                }
            }
            for (id, expected) in counted.into_iter().filter(|_| compared) {
                self.compare_usage(at, id, Usage::default(), expected);
            }
        }
        Ok(())
    }

    fn compare_usage(&mut self, at: At, id: DquotId, found: Usage, expected: Usage) {
        if found != expected {
            let detail = format!(
                "{} {} has {} blocks, {} inodes and {} realtime blocks, counted {}, {} and {}",
                id.kind.name(),
                id.id,
                found.blocks,
                found.inodes,
                found.realtime,
                expected.blocks,
                expected.inodes,
                expected.realtime
            );
            self.findings.add(Rule::QuotaUsage, at, detail);
        }
    }

    /// Every record of a kind.
    fn quota_records(&mut self, kind: Kind, ino: Ino) -> Result<Vec<Record>, Fault> {
        let geometry = self.geometry();
        let (slot, core) = self.reader.read_inode(self.cx, ino)?;
        if core.file_type() != 0x8000 {
            return Err(CorruptKind::InodeMode { mode: core.mode }.at(At::Inode(ino)).into());
        }
        let forks = Forks::new(&slot, &core);
        let fork = forks.get(Which::Data);
        let extents = self.reader.read_extents(self.cx, ino, fork, &mut |_| ())?;
        let per_block = dquot::per_block(geometry.block_size);
        let uuid = (!geometry.v4()).then_some(&geometry.meta_uuid);
        let mut list = Vec::new();
        for (block, map) in places(&extents, &geometry) {
            let buf = self.reader.bufs.read(self.cx, &[map], &DQUOT_BLOCK)?;
            for index in 0..per_block {
                let Ok(id) = u32::try_from(block * u64::from(per_block) + u64::from(index)) else {
                    break;
                };
                let id = DquotId { kind, id };
                let at = At::InodeBlock(ino, block);
                let offset = index as usize * RECORD_SIZE;
                let raw = buf.with_range(offset, RECORD_SIZE, |record| {
                    RawDquot::parse(record, id, uuid, at)
                });
                list.push(raw.map(|raw| (id, Usage::of_record(&raw))));
            }
        }
        Ok(list)
    }
}

/// A record's usage, or what is wrong with it.
type Record = Result<(DquotId, Usage), crate::format::Corrupt>;
