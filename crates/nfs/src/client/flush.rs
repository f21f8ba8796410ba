//! From the cache to the server: WRITEs in flight together, and what follows from their answers.

use std::ops::Range;
use std::sync::Arc;

use base::{Errno, Nanos, Page};
use rt::{Cred, Cx};

use super::folio::Folio;
use super::inode::{Inode, State};
use super::{Mode, NfsClient, auth_of, count, read_answer};
use crate::proto::{Body, Call, Proc, Reply, Stable, Status, WriteVerf};
use crate::rpc;
use crate::xdr::Writer;

/// Bytes of a file that lie together, with their memory.
struct Run {
    range: Range<u64>,
    parts: Vec<(Page, Range<u32>)>,
    cred: Option<Cred>,
}

/// Rounds of sending and committing after which a server that forgets each time is given up.
const ROUNDS_MAX: u32 = 16;
/// First wait after a server asked to come again later, doubled up to the second.
const LATER: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(15));

impl NfsClient {
    /// Sends what is dirty in `range` and waits for the answers. May park.
    ///
    /// # Errors
    /// The file's latched error, which stays latched.
    pub(super) fn flush(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
        stable: Stable,
    ) -> Result<(), Errno> {
        let mut later = LATER.0;
        loop {
            let busy = self.send_dirty(cx, inode, range.clone(), stable);
            if stable != Stable::Unstable {
                self.send_ahead(cx, inode);
            }
            self.wait_writing(cx, inode, range.clone());
            let (again, error) = {
                let mut state = inode.state.lock(cx);
                let error = if state.failed { state.error.or(Some(Errno::EIO)) } else { None };
                (std::mem::take(&mut state.later), error)
            };
            match (error, again) {
                (Some(errno), _) => return Err(errno),
                // What was passed over can be sent now.
                (None, false) if busy => {}
                (None, false) => return Ok(()),
                (None, true) => {
                    cx.sleep(later);
                    later = Nanos((later.0 * 2).min(LATER.1.0));
                }
            }
        }
    }

    /// Has WRITEs of what is dirty in `range` sent, and does not wait for them. True where
    /// something was passed over that is dirty again while its WRITE is under way.
    pub(super) fn send_dirty(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
        stable: Stable,
    ) -> bool {
        let (mut cursor, mut busy) = (range.start, false);
        while !self.has_failed(cx, inode)
            && let Some(run) = self.next_run(cx, inode, &mut cursor, range.end, &mut busy)
        {
            self.send_write(cx, inode, run, stable);
        }
        busy
    }

    fn has_failed(&self, cx: &Cx, inode: &Inode) -> bool {
        inode.state.lock(cx).failed
    }

    /// Waits until no WRITE of a byte of `range` is under way.
    pub(super) fn wait_writing(&self, cx: &mut Cx, inode: &Inode, range: Range<u64>) {
        let size = self.folio_size();
        let all = range == (0..u64::MAX);
        let done = || {
            let state = inode.state.lock_irq();
            let mut folios = state.folios.range(range.start / size..range.end.div_ceil(size));
            state.ours == 0
                || state.writes == 0
                || (!all && folios.all(|(_, folio)| folio.writing.is_empty()))
        };
        inode.wait.wait_until(cx, "WRITE", done);
    }

    /// Takes the first dirty bytes from `cursor` on, up to a WRITE's size, and moves the cursor
    /// behind them. From then on they are being written. What is dirty again while its WRITE is
    /// under way is passed over, which `busy` says.
    fn next_run(
        &self,
        cx: &Cx,
        inode: &Inode,
        cursor: &mut u64,
        end: u64,
        busy: &mut bool,
    ) -> Option<Run> {
        let (size, most) = (self.folio_size(), u64::from(self.limits.wsize));
        let mut run: Option<Run> = None;
        let mut guard = inode.state.lock(cx);
        let state = &mut *guard;
        if state.ours == 0 {
            return None;
        }
        'folios: for (&index, folio) in state.folios.range_mut(*cursor / size..) {
            let start = index * size;
            let joins = run.as_ref().is_none_or(|run| run.range.end == start);
            if start >= end || !joins {
                break;
            }
            let dirty: Vec<Range<u32>> = folio.dirty.iter().collect();
            for part in dirty {
                let first = (start + u64::from(part.start)).max(*cursor);
                let last = (start + u64::from(part.end)).min(end);
                if first >= last {
                    continue;
                }
                let room =
                    run.as_ref().map_or(most, |run| most - (run.range.end - run.range.start));
                let joins = run
                    .as_ref()
                    .is_none_or(|run| run.range.end == first && run.cred == folio.cred && room > 0);
                if !joins {
                    break 'folios;
                }
                let last = last.min(first + room);
                let inner = (first - start) as u32..(last - start) as u32;
                if folio.writing.intersects(inner.clone()) {
                    *busy = true;
                    if run.is_some() {
                        break 'folios;
                    }
                    continue;
                }
                folio.dirty.remove(inner.clone());
                folio.writing.insert(inner.clone());
                let run = run.get_or_insert_with(|| Run {
                    range: first..first,
                    parts: Vec::new(),
                    cred: folio.cred.clone(),
                });
                run.parts.push((folio.page.clone(), inner));
                run.range.end = last;
            }
        }
        *cursor = run.as_ref()?.range.end;
        state.writes += 1;
        run
    }

    /// Has a WRITE sent as soon as there is a slot; its answer is taken when it comes.
    fn send_write(&self, cx: &mut Cx, inode: &Arc<Inode>, run: Run, stable: Stable) {
        let Some(own) = self.own.upgrade() else { return };
        self.change_begins(cx, inode);
        let Run { range, parts, cred } = run;
        count(&self.counters.calls[Proc::Write as usize], 1);
        count(&self.counters.write_bytes, range.end - range.start);
        count(&self.counters.stable_writes, u64::from(stable != Stable::Unstable));
        let auth = auth_of(cred.as_ref().unwrap_or(cx.cred()));
        let (theirs, handle, offset) = (inode.clone(), inode.handle, range.start);
        let len = (range.end - range.start) as usize;
        let write = move |w: &mut Writer| {
            let mut data = Vec::with_capacity(len);
            for (page, part) in parts {
                data.extend_from_slice(&page[part.start as usize..part.end as usize]);
            }
            Call::Write { handle, offset, stable, data: &data }.write(w);
        };
        let done = move |record: Result<Vec<u8>, Errno>| {
            let now = own.rpc.runtime().now();
            let reply = record.and_then(|record| {
                let reply = read_answer(Proc::Write, &record)?;
                Ok((reply.status, reply.wcc.clone(), Written::of(&reply)))
            });
            let (wcc, written) = match reply {
                Ok((Status::OK, wcc, written)) => (Some(wcc), written.ok_or(Errno::EIO)),
                Ok((status, wcc, _)) => {
                    (Some(wcc), Err(status.check().err().unwrap_or(Errno::EIO)))
                }
                Err(errno) => (None, Err(errno)),
            };
            own.take_write(&theirs, range, written);
            own.change_ends(&theirs, wcc, now);
            theirs.wait.wake_all();
        };
        let numbers = (rpc::NFS, 3, Proc::Write as u32);
        self.rpc.queue(cx, numbers, auth, Box::new(write), Box::new(done));
    }

    /// Calls `each` for the part of every folio in `range`, and counts it anew.
    fn each_part(
        &self,
        state: &mut State,
        range: &Range<u64>,
        mut each: impl FnMut(&mut Folio, Range<u32>),
    ) {
        let size = self.folio_size();
        let mut at = range.start;
        while at < range.end {
            let (index, start) = (at / size, at / size * size);
            let until = range.end.min(start + size);
            if let Some(folio) = state.folios.get_mut(&index) {
                each(folio, (at - start) as u32..(until - start) as u32);
                self.recount(state, index);
            }
            at = until;
        }
    }

    /// Event context: the answer to the WRITE of `range` has come.
    fn take_write(&self, inode: &Inode, range: Range<u64>, written: Result<Written, Errno>) {
        let mut guard = inode.state.lock_irq();
        let state = &mut *guard;
        state.writes -= 1;
        let (done, written) = match written {
            Ok(written) if written.count > 0 => {
                (range.start + written.count.min(range.end - range.start), Ok(written))
            }
            Ok(_) => (range.start, Err(Errno::EIO)),
            Err(errno) => (range.start, Err(errno)),
        };
        match &written {
            Ok(written) => self.note_verf(state, written),
            // The server wants it later.
            Err(Errno::EAGAIN) => state.later = true,
            Err(errno) => {
                state.error = Some(*errno);
                state.failed = true;
            }
        }
        let durable = written.as_ref().is_ok_and(|w| w.committed != Stable::Unstable);
        self.each_part(state, &(range.start..done), |folio, part| {
            // What a truncate has cut meanwhile is nobody's any more.
            let mine: Vec<Range<u32>> = folio.writing.within(part.clone()).collect();
            folio.writing.remove(part);
            if !durable {
                mine.into_iter().for_each(|part| folio.unstable.insert(part));
            }
        });
        self.each_part(state, &(done..range.end), |folio, part| {
            let mine: Vec<Range<u32>> = folio.writing.within(part.clone()).collect();
            folio.writing.remove(part);
            mine.into_iter().for_each(|part| folio.dirty.insert(part));
        });
        if durable {
            self.settle(state, &range);
        }
    }

    /// A server whose verifier is another one has forgotten what was not committed.
    fn note_verf(&self, state: &mut State, written: &Written) {
        if written.committed != Stable::Unstable {
            return;
        }
        if state.verf.is_some_and(|verf| verf != written.verf) {
            let mut lost = Vec::new();
            for (&index, folio) in &mut state.folios {
                if !folio.unstable.is_empty() {
                    folio.send_again();
                    lost.push(index);
                }
            }
            if !lost.is_empty() {
                state.losses += 1;
                count(&self.counters.verifier_changes, 1);
            }
        }
        state.verf = Some(written.verf);
    }

    /// What the older modes forget: which part of a page was written, once the server has it.
    pub(super) fn settle(&self, state: &mut State, range: &Range<u64>) {
        if self.options.mode == Mode::Ranges {
            return;
        }
        let (size, file_size) = (self.folio_size(), state.size);
        for (&index, folio) in state.folios.range_mut(range.start / size..=range.end / size) {
            let live = file_size.saturating_sub(index * size).min(size) as u32;
            if !folio.is_ours() && !folio.valid.covers(0..live) {
                folio.valid.clear();
            }
        }
    }

    /// Sends one folio and makes it durable, as the older modes do before they read it, or write
    /// it elsewhere. May park.
    ///
    /// # Errors
    /// Those of WRITE and COMMIT.
    pub(super) fn flush_folio(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        index: u64,
    ) -> Result<(), Errno> {
        let start = index * self.folio_size();
        self.flush(cx, inode, start..start + self.folio_size(), Stable::FileSync)?;
        let done = if self.is_ours(cx, inode, index) { self.commit(cx, inode) } else { Ok(()) };
        self.retire(cx, inode);
        done
    }

    /// Sends everything dirty and has it made durable, again where the server has forgotten it.
    /// May park.
    ///
    /// # Errors
    /// Those of WRITE and COMMIT, which stay latched; `EIO` where the server forgets each time.
    pub(super) fn flush_and_commit(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        for _ in 0..ROUNDS_MAX {
            let losses = {
                let state = inode.state.lock(cx);
                if state.ours == 0 {
                    return Ok(());
                }
                state.losses
            };
            let stable = self.stable_for(cx, inode);
            self.flush(cx, inode, 0..u64::MAX, stable)?;
            self.commit(cx, inode)?;
            // What was forgotten meanwhile may lie behind where the flush had got to.
            if inode.state.lock(cx).losses == losses {
                return Ok(());
            }
        }
        Err(Errno::EIO)
    }

    /// A single WRITE needs no COMMIT: it is made durable by itself.
    pub(super) fn stable_for(&self, cx: &Cx, inode: &Inode) -> Stable {
        let state = inode.state.lock(cx);
        let most = u64::from(self.limits.wsize) / self.folio_size();
        if self.options.mode != Mode::Ranges || state.ours > most.max(1) {
            return Stable::Unstable;
        }
        let (mut end, mut runs) = (None, 0);
        for (index, folio) in state.folios.iter().filter(|(_, folio)| folio.is_ours()) {
            let others = [&folio.writing, &folio.unstable, &folio.committing];
            if others.iter().any(|set| !set.is_empty()) {
                return Stable::Unstable;
            }
            for part in folio.dirty.iter() {
                let start = index * self.folio_size();
                if end != Some(start + u64::from(part.start)) {
                    runs += 1;
                }
                end = Some(start + u64::from(part.end));
            }
        }
        if runs == 1 { Stable::FileSync } else { Stable::Unstable }
    }

    /// Everything written so far is durable when this answers; an error since the last call is
    /// reported. What failed before is tried again. May park.
    ///
    /// # Errors
    /// Those of WRITE and COMMIT.
    pub(super) fn sync_file(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        self.cache.syncs.note();
        let before = {
            let mut state = inode.state.lock(cx);
            state.failed = false;
            state.error.take()
        };
        let done = self.flush_and_commit(cx, inode);
        let now = inode.state.lock(cx).error.take();
        self.retire(cx, inode);
        match done.err().or(now).or(before) {
            Some(errno) => Err(errno),
            None => Ok(()),
        }
    }

    /// Gives up what could not be written: nobody has the file open any more.
    pub(super) fn give_up(&self, cx: &Cx, inode: &Inode) {
        self.drop_folios(cx, inode);
        {
            let mut state = inode.state.lock(cx);
            state.failed = false;
            state.size = state.attr.size;
        }
        self.retire(cx, inode);
    }
}

/// What the answer to a WRITE reports.
struct Written {
    count: u64,
    committed: Stable,
    verf: WriteVerf,
}

impl Written {
    fn of(reply: &Reply<'_>) -> Option<Written> {
        match reply.body {
            Body::Write { count, committed, verf } => {
                Some(Written { count: count.into(), committed, verf })
            }
            _ => None,
        }
    }
}
