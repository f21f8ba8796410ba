//! Quota as an administrator sees it.

use base::{Errno, Ino};
use rt::Cx;
use vfs::FileType;
use vfs::quota::{Account, Grace, Kind, Limits, Project};

use crate::Xfs;
use crate::bmap::{Forks, Which};
use crate::buf::BufMap;
use crate::error::Fault;
use crate::format::At;
use crate::format::dquot::{self, DquotId, QuotaFlags, RECORD_SIZE, RawDquot};
use crate::log::dquot_item::{DQUOT_BLOCK, DquotChange, DquotTable, LOG_BYTES, entry_of, grace_of};
use crate::quota::{self, Quota};
use crate::set_attr::set_inode_project;
use crate::trans::LogReservation;

impl Xfs {
    fn counting(&self, kind: Kind) -> Result<&Quota, Errno> {
        self.writer()?;
        let quota = self.quota().ok_or(Errno::ESRCH)?;
        let counted = quota.table.flags().contains(QuotaFlags::counted(kind));
        if counted { Ok(quota) } else { Err(Errno::ESRCH) }
    }

    fn quota_flags(&self) -> QuotaFlags {
        match &self.write {
            Some(_) => self.quota().map_or(QuotaFlags::empty(), |quota| quota.table.flags()),
            None => self.quota_super.flags,
        }
    }

    /// Changes the record of an id.
    fn change_dquot(&self, cx: &mut Cx, id: DquotId, change: DquotChange) -> Result<(), Errno> {
        let quota = self.counting(id.kind)?;
        let item = quota.dquot(cx, id).map_err(|error| self.fail(error))?;
        self.transact(cx, LogReservation::new(LOG_BYTES), |_, trans| {
            trans.log_dquot(item, change);
            Ok(())
        })
    }

    /// The blocks of a kind's records, with their places on the device.
    fn quota_blocks(&self, cx: &mut Cx, kind: Kind) -> Result<Vec<(u64, BufMap)>, Fault> {
        let geometry = self.geometry();
        if let Some(quota) = self.quota() {
            let Some(file) = quota.file(kind) else { return Ok(Vec::new()) };
            return Ok(file.lock(cx).places(geometry));
        }
        let Some(ino) = self.quota_super.inos[kind as usize] else { return Ok(Vec::new()) };
        let (slot, core) = self.reader.read_inode(cx, Ino(ino))?;
        let forks = Forks::new(&slot, &core);
        let fork = forks.get(Which::Data);
        let extents = self.reader.read_extents(cx, Ino(ino), fork, &mut |_| ())?;
        Ok(quota::places(&extents, geometry))
    }

    /// The grace periods that the record of id 0 has.
    fn grace_on_disk(&self, cx: &mut Cx, kind: Kind) -> Result<Grace, Fault> {
        let geometry = self.geometry();
        let table = DquotTable::new(u64::from(geometry.block_size));
        let blocks = self.quota_blocks(cx, kind)?;
        if let Some(&(0, map)) = blocks.first() {
            let buf = self.reader.bufs.read(cx, &[map], &DQUOT_BLOCK)?;
            let uuid = (!geometry.v4()).then_some(&geometry.meta_uuid);
            let (id, at) = (DquotId { kind, id: 0 }, At::Block(map.daddr.0));
            let raw =
                buf.with_range(0, RECORD_SIZE, |record| RawDquot::parse(record, id, uuid, at))?;
            table.set_grace(kind, grace_of(&raw));
        }
        Ok(table.grace(kind))
    }

    fn quota_accounts(&self, cx: &mut Cx, kind: Kind) -> Result<Vec<Account>, Fault> {
        let geometry = self.geometry();
        let uuid = (!geometry.v4()).then_some(&geometry.meta_uuid);
        let (size, per_block) = (geometry.block_size, dquot::per_block(geometry.block_size));
        let table = self.quota().map(|quota| &quota.table);
        let mut list = Vec::new();
        for (block, map) in self.quota_blocks(cx, kind)? {
            let buf = self.reader.bufs.read(cx, &[map], &DQUOT_BLOCK)?;
            let first = block * u64::from(per_block);
            for (index, id) in (first..first + u64::from(per_block)).enumerate() {
                let Ok(id) = u32::try_from(id) else { break };
                let id = DquotId { kind, id };
                let raw = match table.and_then(|table| table.find(id)) {
                    Some(item) => item.raw(),
                    None => buf.with_range(index * RECORD_SIZE, RECORD_SIZE, |record| {
                        RawDquot::parse(record, id, uuid, At::Block(map.daddr.0))
                    })?,
                };
                let entry = entry_of(&raw, u64::from(size));
                if id.id == 0 || entry != Default::default() {
                    list.push(Account { id: id.id, entry });
                }
            }
        }
        Ok(list)
    }
}

impl vfs::quota::Quota for Xfs {
    fn kinds(&self) -> Vec<Kind> {
        let flags = self.quota_flags();
        let counted = |kind: &Kind| flags.contains(QuotaFlags::counted(*kind));
        Kind::ALL.into_iter().filter(counted).collect()
    }

    fn report(&self, cx: &mut Cx, kind: Kind) -> Result<Vec<Account>, Errno> {
        self.check_alive()?;
        if !self.quota_flags().contains(QuotaFlags::counted(kind)) {
            return Err(Errno::ESRCH);
        }
        self.quota_accounts(cx, kind).map_err(|fault| self.fault(fault))
    }

    fn set_limits(&self, cx: &mut Cx, kind: Kind, id: u32, limits: &Limits) -> Result<(), Errno> {
        self.change_dquot(cx, DquotId { kind, id }, DquotChange::Limits(*limits))
    }

    fn grace(&self, cx: &mut Cx, kind: Kind) -> Result<Grace, Errno> {
        if !self.quota_flags().contains(QuotaFlags::counted(kind)) {
            return Err(Errno::ESRCH);
        }
        if let Some(quota) = self.quota() {
            return Ok(quota.table.grace(kind));
        }
        self.grace_on_disk(cx, kind).map_err(|fault| self.fault(fault))
    }

    fn set_grace(&self, cx: &mut Cx, kind: Kind, grace: Grace) -> Result<(), Errno> {
        self.change_dquot(cx, DquotId { kind, id: 0 }, DquotChange::Grace(grace))
    }

    fn project(&self, cx: &mut Cx, ino: Ino) -> Result<Project, Errno> {
        let inode = self.iget(cx, ino)?;
        Ok(inode.with(cx, |state| Project {
            id: state.core.project,
            inherit: state.core.flags.contains(crate::format::inode::Flags::PROJINHERIT),
        }))
    }

    fn set_project(&self, cx: &mut Cx, ino: Ino, project: Project) -> Result<(), Errno> {
        let inode = self.iget(cx, ino)?;
        let directory = inode.kind(cx) == FileType::Directory;
        let project = Project { inherit: project.inherit && directory, ..project };
        set_inode_project(self, cx, &inode, project)
    }
}
