//! Many small files read at once: their blocks lie side by side where they were written side by
//! side, and come with a few large requests, past the page cache.
//!
//! A file takes part while nothing in memory is newer than the device: no page of it is cached, no
//! block only promised, and its data does not go through the journal. Its lock is held, shared,
//! from that look until the device has answered. All others are read as usual.

use base::{Errno, FsBlock};
use rt::Cx;
use vfs::gather::{Gather, PIECE_MAX};
use vfs::{FileRead, FileType};

use crate::Ext4;
use crate::inode::Inode;
use crate::map::{Mapped, State};

/// Where a run of blocks goes in the buffer of a read.
struct Place {
    read: usize,
    at: usize,
}

impl Ext4 {
    /// [`vfs::FileSystem::read_many`].
    pub(crate) fn read_files(&self, cx: &mut Cx, reads: &mut [FileRead<'_>]) {
        let inodes: Vec<_> = reads.iter().map(|read| self.iget(cx, read.ino)).collect();
        let (mut guards, mut gather) = (Vec::with_capacity(reads.len()), Gather::new());
        let (mut places, mut usual) = (Vec::new(), Vec::new());
        for (index, (read, inode)) in reads.iter_mut().zip(&inodes).enumerate() {
            let inode = match inode {
                Ok(inode) => inode,
                Err(errno) => {
                    read.done = Err(*errno);
                    continue;
                }
            };
            // Whoever holds it for writing may wait for others of ours.
            let guard = inode.rwsem.try_read();
            let planned = guard.is_some() && self.only_on_device(cx, inode);
            match planned.then(|| self.plan_read(cx, inode, read)) {
                Some(Ok(runs)) => {
                    for (run, at, len) in runs {
                        let sector = FsBlock(run.pblk).sector(self.geometry.block_size);
                        gather.add(sector, len as u64, places.len());
                        places.push(Place { read: index, at });
                    }
                    guards.push(guard);
                }
                _ => usual.push(index),
            }
        }
        let failed = gather.read(cx, &self.queue, |tag, bytes| {
            let place: &Place = &places[tag];
            reads[place.read].buf[place.at..place.at + bytes.len()].copy_from_slice(bytes);
        });
        drop(guards);
        // What the device refused in company is asked for alone, and tells its own error.
        usual.extend(failed.iter().map(|&tag| places[tag].read));
        usual.dedup();
        for index in usual {
            if let (read, Ok(inode)) = (&mut reads[index], &inodes[index]) {
                read.done = self.read_file(cx, inode, read.offset, read.buf);
            }
        }
    }

    /// Whether the device has the newest content of a file; its lock is held.
    fn only_on_device(&self, cx: &Cx, inode: &Inode) -> bool {
        let regular = inode.kind(cx) == FileType::Regular && !inode.with(cx, |core| core.dead);
        let quiet = inode.mapping_if_any().is_none_or(|mapping| mapping.memory_bytes() == 0);
        regular && quiet && inode.delayed.lock(cx).is_empty() && !self.data_in_buffers(cx, inode)
    }

    /// Sets the answer of a read, clears what is a hole of it, and answers its runs of blocks with
    /// their places in the buffer and their lengths.
    ///
    /// # Errors
    /// Those of the map; `EINVAL` where the read does not begin with a block or is large.
    fn plan_read(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        read: &mut FileRead<'_>,
    ) -> Result<Vec<(Mapped, usize, usize)>, Errno> {
        let block_size = u64::from(self.geometry.block_size);
        let len = inode.size(cx).saturating_sub(read.offset).min(read.buf.len() as u64);
        if len > PIECE_MAX || !read.offset.is_multiple_of(block_size) {
            return Err(Errno::EINVAL);
        }
        let mut runs = Vec::with_capacity(1);
        let mut at = 0;
        while at < len {
            let lblk = u32::try_from((read.offset + at) / block_size).map_err(|_| Errno::EFBIG)?;
            let want = (len - at).div_ceil(block_size) as u32;
            let mapped = self.map_lookup(cx, inode, lblk, want)?;
            let here = (u64::from(mapped.len) * block_size).min(len - at) as usize;
            match mapped.state {
                State::Written => runs.push((mapped, at as usize, here)),
                _ => read.buf[at as usize..at as usize + here].fill(0),
            }
            at += here as u64;
        }
        read.done = Ok(len as usize);
        Ok(runs)
    }
}
