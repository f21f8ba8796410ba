//! Writes to the cache, and changes the size.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::{Charge, Cx};

use super::inode::{Inode, State};
use super::{Mode, NfsClient, count};
use crate::proto::{Call, Sattr};

/// What a page of the older modes needs before a part of it is written.
enum Prepare {
    Nothing,
    /// Its WRITE must be answered first.
    Wait,
    /// It must be sent first: another's, or a range elsewhere.
    Flush,
    /// It must be read first.
    Read,
}

impl NfsClient {
    /// Writes into the cache. May park: waits for memory, at the dirty limit, and where the mode
    /// says so for the server.
    pub(super) fn write_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        off: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let _guard = inode.write_lock.lock(cx);
        self.write_locked(cx, inode, off, data)
    }

    /// As [`write_file`](Self::write_file); the caller holds the write lock.
    pub(super) fn write_locked(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        off: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        self.must_write()?;
        self.cache.syncs.end();
        let end = off.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if end > self.limits.max_file {
            return Err(Errno::EFBIG);
        }
        let size = self.folio_size();
        let (mut at, mut rest) = (off, data);
        while !rest.is_empty() {
            let room = (size - at % size) as usize;
            let (now, later) = rest.split_at(room.min(rest.len()));
            let done = self.write_part(cx, inode, at, now);
            match done {
                Ok(()) => {}
                Err(_) if at > off => return Ok((at - off) as usize),
                Err(errno) => return Err(errno),
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(data.len())
    }

    /// Writes a part that lies in one folio.
    fn write_part(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let size = self.folio_size();
        let (index, from) = (at / size, (at % size) as u32);
        let part = from..from + bytes.len() as u32;
        cx.charge_for(Charge::PageLookup, 1);
        cx.charge_bytes(Charge::CopyPage, bytes.len() as u64);
        let fresh = loop {
            self.ensure_folio(cx, inode, index);
            let now = cx.realtime();
            let mut guard = inode.state.lock(cx);
            let state = &mut *guard;
            let prepare = self.prepare(state, index, part.clone(), cx.cred());
            if let Prepare::Nothing = prepare {
                // Gone meanwhile, for its memory: again.
                if !state.folios.contains_key(&index) {
                    continue;
                }
                self.copy_in(state, index, from, bytes);
                let folio = state.folios.get_mut(&index).expect("looked at above");
                folio.cred = Some(cx.cred().clone());
                state.mtime = Some(now);
                self.recount(state, index);
                break !std::mem::replace(&mut state.listed, true);
            }
            drop(guard);
            match prepare {
                Prepare::Nothing => {}
                Prepare::Wait => self.wait_writing(cx, inode, at..at + 1),
                Prepare::Flush => {
                    count(&self.counters.flush_writes, 1);
                    self.flush_folio(cx, inode, index)?;
                }
                Prepare::Read => {
                    count(&self.counters.write_reads, 1);
                    let mut byte = [0];
                    self.read_cached(cx, inode, index * size, &mut byte, false)?;
                }
            }
        };
        if fresh {
            self.list(cx, inode);
        }
        self.balance(cx, inode)
    }

    fn prepare(&self, state: &State, index: u64, part: Range<u32>, cred: &rt::Cred) -> Prepare {
        let Some(folio) = state.folios.get(&index) else { return Prepare::Nothing };
        if folio.is_ours() && folio.cred.as_ref().is_some_and(|other| other != cred) {
            return Prepare::Flush;
        }
        if self.options.mode == Mode::Ranges {
            return Prepare::Nothing;
        }
        let start = index * self.folio_size();
        let live = state.size.saturating_sub(start).min(self.folio_size()) as u32;
        if !folio.writing.is_empty() {
            return Prepare::Wait;
        }
        if live > 0 && folio.valid.covers(0..live) {
            return Prepare::Nothing;
        }
        if folio.is_ours() {
            let ours = folio.ours();
            let first = ours.iter().map(|range| range.start).min().unwrap_or(0);
            let last = ours.iter().map(|range| range.end).max().unwrap_or(0);
            let apart = part.end < first || part.start > last;
            return if apart { Prepare::Flush } else { Prepare::Nothing };
        }
        let partial = live > 0 && !(part.start == 0 && part.end >= live);
        match self.options.mode {
            Mode::Rmw if partial => Prepare::Read,
            _ => Prepare::Nothing,
        }
    }

    /// Copies bytes into a folio, lets the file grow, and notes what is known by that.
    fn copy_in(&self, state: &mut State, index: u64, from: u32, bytes: &[u8]) {
        let (size, full) = (self.folio_size(), self.options.folio_size);
        let start = index * size;
        let (at, end) = (start + u64::from(from), start + u64::from(from) + bytes.len() as u64);
        let before = state.size;
        let known = before.saturating_sub(start).min(size) as u32;
        let folio = state.folios.get_mut(&index).expect("the caller looked");
        let whole = known > 0 && folio.valid.covers(0..known);
        folio.write(from, bytes);
        folio.referenced = true;
        if self.options.mode == Mode::Ranges {
            if at > before {
                state.holes.insert(before..at);
            }
            state.holes.remove(at..end);
            state.size = before.max(end);
            return;
        }
        state.size = before.max(end);
        let live = (state.size - start).min(size) as u32;
        if known == 0 || (from == 0 && end >= before.min(start + size)) {
            // Beyond the end of the file, or all of the page: the rest is zeros.
            folio.fill(0..full, &[]);
        }
        if whole || known == 0 {
            // The request of a page that is up to date widens to the whole of it.
            folio.fill(0..live, &[]);
            folio.dirty.insert(0..live);
        }
    }

    /// Sets the size, at the server and here. The caller holds the write lock. May park.
    pub(super) fn set_size(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        set: Sattr,
        size: u64,
    ) -> Result<(), Errno> {
        if size > self.limits.max_file {
            return Err(Errno::EFBIG);
        }
        // What was written before the cut must not arrive after it.
        self.flush_and_commit(cx, inode)?;
        let before = inode.state.lock(cx).size;
        self.change_begins(cx, inode);
        let call = Call::Setattr { handle: inode.handle, set, guard: None };
        let done = self.call(cx, &call, |reply| (reply.status.check(), reply.wcc.clone()));
        let (done, wcc) = match done {
            Ok((done, wcc)) => (done, Some(wcc)),
            Err(errno) => (Err(errno), None),
        };
        if done.is_ok() {
            self.cut_folios(cx, inode, before, size);
        }
        self.change_ends(inode, wcc, cx.now());
        done
    }

    /// The file has `size` bytes now.
    fn cut_folios(&self, cx: &Cx, inode: &Inode, before: u64, size: u64) {
        let folio_size = self.folio_size();
        let dropped = {
            let mut guard = inode.state.lock(cx);
            let state = &mut *guard;
            state.size = size;
            state.epoch += 1;
            let epoch = state.epoch;
            let keep = size.div_ceil(folio_size);
            let dropped = state.folios.split_off(&keep);
            let counted = dropped.values().filter(|folio| folio.counted).count() as u64;
            state.ours -= counted;
            for folio in state.folios.values_mut() {
                folio.reading.clear();
                folio.epoch = epoch;
            }
            if !size.is_multiple_of(folio_size)
                && let Some(folio) = state.folios.get_mut(&(size / folio_size))
            {
                folio.cut((size % folio_size) as u32, self.options.folio_size);
            }
            state.holes.remove(size..u64::MAX);
            if size > before && self.options.mode == Mode::Ranges {
                state.holes.insert(before..size);
            }
            (dropped, counted)
        };
        let (folios, counted) = dropped;
        self.uncount(counted);
        self.uncharge(folios.len() as u64);
        inode.wait.wake_all();
    }
}
