//! The rule of one handle, checked in debug builds at every commit: blocks become a file's content
//! in the handle that lets the size on the disk cover them. So no inode is logged with written
//! extents behind its size, unless it is on the orphan list and about to lose them, or has the tree
//! of verity there.

use std::sync::Weak;

use rt::Cx;

use crate::format::extent::{Extent, Node};
use crate::format::{At, InodeFlags};
use crate::inode::{Inode, Inodes};
use crate::trans::ext4_jbd2::{Handle, Tid};

/// Nodes and extents that are looked at for one inode.
const LOOKS_MAX: u32 = 4096;

impl Inodes {
    /// Has the commit of the handle's transaction look at `inode`, which was written as part of it.
    pub(crate) fn check_size_at_commit(&self, cx: &mut Cx, handle: &mut Handle, inode: &Inode) {
        let Handle::Journal(journal, _) = handle else { return };
        let tid: Tid = Some(journal.tid());
        let first = inode.with(cx, |core| {
            let mapped = core.mode & 0xf000 == 0x8000 && core.flags.contains(InodeFlags::EXTENTS);
            mapped && std::mem::replace(&mut core.checked_tid, tid) != tid
        });
        if first {
            let weak: Weak<Inode> = std::sync::Arc::downgrade(&inode.arc());
            let fs = self.weak.clone();
            journal.on_freeze(
                cx,
                Box::new(move |cx| {
                    if let (Some(fs), Some(inode)) = (fs.upgrade(), weak.upgrade()) {
                        fs.check_size(cx, &inode);
                    }
                }),
            );
        }
    }

    /// No handle is open: what memory has is what the log gets.
    fn check_size(&self, cx: &Cx, inode: &Inode) {
        let (size, exempt, root) = inode.with(cx, |core| {
            let verity = core.flags.contains(InodeFlags::VERITY);
            let exempt =
                verity || core.orphan.linked() || core.links == 0 || core.gone || core.freed;
            (core.logged_size, exempt, core.block)
        });
        if exempt || self.sb.has_error() {
            return;
        }
        let blocks = size.div_ceil(u64::from(self.sb.geometry.block_size));
        let found = self.written_behind(cx, inode, &root, blocks, &mut LOOKS_MAX.clone());
        assert!(
            found.is_none(),
            "inode {} is logged with a size of {size} bytes and, behind it, {found:?}",
            inode.ino
        );
    }

    /// The last written extent with a block from `block` on, in the nodes that are in memory.
    fn written_behind(
        &self,
        cx: &Cx,
        inode: &Inode,
        data: &[u8],
        block: u64,
        looks: &mut u32,
    ) -> Option<Extent> {
        let node = Node::parse(data, None, At::Inode(inode.ino)).ok()?;
        for index in (0..node.len()).rev() {
            *looks = looks.checked_sub(1)?;
            if node.depth() == 0 {
                let extent = node.extent(index);
                if extent.end() <= block {
                    return None;
                }
                if !extent.unwritten {
                    return Some(extent);
                }
                continue;
            }
            let pointer = node.index(index);
            let buffer = self.sb.buffers.find(cx, pointer.leaf).filter(|buffer| buffer.uptodate());
            let found = buffer
                .and_then(|b| b.with(|data| self.written_behind(cx, inode, data, block, looks)));
            if found.is_some() || u64::from(pointer.block) < block {
                return found;
            }
        }
        None
    }
}
