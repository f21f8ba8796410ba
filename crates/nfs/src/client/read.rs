//! Reading: what may be served from memory, and READs for the rest.
//!
//! The question "is this part up to date?" is asked folio by folio, at the place where the generic
//! read of the kernel asks `is_partially_uptodate`. What a folio answers is the whole difference
//! between the modes ([`Mode`]):
//!
//! | | served from memory | before the READ of a folio with written bytes |
//! | --- | --- | --- |
//! | off, rmw | a folio that is valid as a whole | it is sent and made durable |
//! | request | also what lies in its one written range | the same |
//! | ranges | every valid byte | nothing: what comes fills in around them |

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use base::{Errno, Nanos};
use rt::{Charge, Cx};

use super::folio::Folio;
use super::inode::{Inode, State};
use super::{Mode, NfsClient, count, read_answer};
use crate::proto::{Body, Call, Proc};
use crate::rpc::{self, Auth};

/// The first error of the READs that one reader caused; 0 for none.
type ReadError = Arc<AtomicI32>;

/// What a reader finds at a byte.
enum Step {
    /// So many bytes were copied; from a folio that is not valid as a whole.
    Copied(usize, bool),
    /// A READ is under way.
    Reading,
    /// The folio must be sent first.
    Flush(u64),
    /// The range is to be read. Nothing of the first folio was in memory.
    Miss(Range<u64>, bool),
}

/// After so many bytes of an answer the file's lock is let go for those who wait for it.
const FILL_BYTES: u64 = 64 << 10;

/// A wait after a server asked to come again later.
const LATER: Nanos = Nanos::from_secs(1);

impl NfsClient {
    /// Reads from the cache, and from the server what it does not have. May park.
    pub(super) fn read_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        off: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        self.read_cached(cx, inode, off, buf, true)
    }

    /// As [`read_file`](Self::read_file); only what a reader asks for is counted.
    pub(super) fn read_cached(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        off: u64,
        buf: &mut [u8],
        counted: bool,
    ) -> Result<usize, Errno> {
        self.revalidate(cx, inode)?;
        let (mut at, mut waited, mut partly) = (off, false, false);
        let error: ReadError = ReadError::default();
        loop {
            let (step, ahead) = {
                let mut state = inode.state.lock(cx);
                let end = off.saturating_add(buf.len() as u64).min(state.size);
                if at >= end {
                    state.readahead.note(end);
                    break;
                }
                let room = &mut buf[(at - off) as usize..(end - off) as usize];
                self.step(&mut state, at, room)
            };
            cx.charge_for(Charge::PageLookup, 1);
            match step {
                Step::Copied(len, partial) => {
                    cx.charge_bytes(Charge::CopyPage, len as u64);
                    at += len as u64;
                    partly |= partial;
                }
                Step::Reading => self.wait_for_byte(cx, inode, at),
                Step::Flush(index) => {
                    count(&self.counters.flush_reads, 1);
                    waited = true;
                    self.flush_folio(cx, inode, index)?;
                }
                Step::Miss(window, cold) => {
                    if !waited && counted {
                        let counters = &self.counters;
                        count(if cold { &counters.cold_reads } else { &counters.rest_reads }, 1);
                    }
                    waited = true;
                    match error.swap(0, Ordering::AcqRel) {
                        0 => self.start_reads(cx, inode, window, &error),
                        errno if Errno(errno) == Errno::EAGAIN => cx.sleep(LATER),
                        _ if at > off => break,
                        errno => return Err(Errno(errno)),
                    }
                }
            }
            if let Some(window) = ahead {
                self.start_reads(cx, inode, window, &ReadError::default());
            }
        }
        if !waited && counted {
            count(&self.counters.read_hits, 1);
            count(&self.counters.partial_hits, u64::from(partly));
        }
        Ok((at - off) as usize)
    }

    /// Looks at the byte `at`; `room` ends where the reader ends. The second answer is to be read
    /// ahead.
    fn step(&self, state: &mut State, at: u64, room: &mut [u8]) -> (Step, Option<Range<u64>>) {
        let size = self.folio_size();
        let (index, start) = (at / size, at / size * size);
        let (end, max) = (at + room.len() as u64, self.options.readahead_bytes);
        let from = (at - start) as u32;
        let to = (end - start).min(size) as u32;
        let live = (state.size - start).min(size) as u32;
        let Some(folio) = state.folios.get_mut(&index) else {
            return (self.miss(state, at, end, true), None);
        };
        // One READ of a folio at a time: what it does not bring, the next one does.
        let reading = !folio.reading.is_empty();
        if let Some(until) = served(self.asks(), folio, from..to, live) {
            let len = (until - from) as usize;
            room[..len].copy_from_slice(&folio.page[from as usize..until as usize]);
            folio.referenced = true;
            let partial = !folio.valid.covers(0..live);
            let ahead = state.readahead.on_hit(at..at + len as u64, max);
            return (Step::Copied(len, partial), ahead.filter(|w| w.start < state.size));
        }
        if reading {
            return (Step::Reading, None);
        }
        if self.options.mode != Mode::Ranges && folio.is_ours() {
            return (Step::Flush(index), None);
        }
        let cold = folio.valid.is_empty();
        (self.miss(state, at, end, cold), None)
    }

    /// The window that readahead proposes, in whole folios.
    fn miss(&self, state: &mut State, at: u64, end: u64, cold: bool) -> Step {
        let size = self.folio_size();
        let window = state.readahead.on_miss(at, end, self.options.readahead_bytes);
        let window = window.start / size * size..window.end.next_multiple_of(size);
        Step::Miss(window, cold)
    }

    fn wait_for_byte(&self, cx: &mut Cx, inode: &Inode, at: u64) {
        let index = at / self.folio_size();
        let done = || {
            let state = inode.state.lock_irq();
            state.folios.get(&index).is_none_or(|folio| folio.reading.is_empty())
        };
        inode.wait.wait_until(cx, "READ", done);
    }

    /// Makes sure that there is a folio. May park: takes memory.
    pub(super) fn ensure_folio(&self, cx: &mut Cx, inode: &Arc<Inode>, index: u64) {
        if inode.state.lock(cx).folios.contains_key(&index) {
            return;
        }
        self.charge(cx);
        cx.charge_for(Charge::PageAdd, 1);
        let fresh = {
            let mut state = inode.state.lock(cx);
            let epoch = state.epoch;
            let fresh = !state.folios.contains_key(&index);
            let new = || Folio::new(self.zeros.clone(), epoch);
            state.folios.entry(index).or_insert_with(new);
            fresh
        };
        match fresh {
            true => self.track(inode, index),
            false => self.uncharge(1),
        }
    }

    /// Sends READs for what is missing in a window of whole folios. May park: takes memory, waits
    /// for slots.
    fn start_reads(&self, cx: &mut Cx, inode: &Arc<Inode>, window: Range<u64>, error: &ReadError) {
        let size = self.folio_size();
        let end = window.end.min(inode.state.lock(cx).size);
        let mut run: Option<Range<u64>> = None;
        let mut at = window.start;
        let mut epoch = 0;
        while at < end {
            let index = at / size;
            self.ensure_folio(cx, inode, index);
            let gap = {
                let mut state = inode.state.lock(cx);
                epoch = state.epoch;
                self.claim(&mut state, index, at == window.start)
            };
            inode.wait.wake_all();
            let gap = gap.map(|gap| at + u64::from(gap.start)..at + u64::from(gap.end));
            let room = u64::from(self.limits.rsize);
            match (&mut run, gap) {
                (Some(run), Some(gap)) if run.end == gap.start && gap.end - run.start <= room => {
                    run.end = gap.end;
                }
                (_, gap) => {
                    if let Some(run) = std::mem::replace(&mut run, gap) {
                        self.send_read(cx, inode, run, epoch, error);
                    }
                }
            }
            at += size;
        }
        if let Some(run) = run {
            self.send_read(cx, inode, run, epoch, error);
        }
    }

    /// The part of a folio that a READ must bring, marked as being read. What is known as a hole
    /// becomes zeros.
    fn claim(&self, state: &mut State, index: u64, wanted: bool) -> Option<Range<u32>> {
        let size = self.folio_size();
        let start = index * size;
        let live = (state.size.saturating_sub(start)).min(size);
        if self.options.mode == Mode::Ranges {
            let holes = state.holes.within(start..start + live);
            let folio = state.folios.get_mut(&index)?;
            for hole in holes {
                let part = (hole.start - start) as u32..(hole.end - start) as u32;
                let gaps = folio.valid.gaps(part.clone());
                let bytes: u64 = gaps.iter().map(|gap| u64::from(gap.end - gap.start)).sum();
                count(&self.counters.hole_bytes, bytes);
                folio.fill(part, &[]);
            }
        }
        let folio = state.folios.get_mut(&index)?;
        if !folio.reading.is_empty() {
            return None;
        }
        let gaps = folio.valid.gaps(0..live as u32);
        let span = gaps.first()?.start..gaps.last()?.end;
        let legacy = self.options.mode != Mode::Ranges;
        if legacy && (folio.is_ours() || (!wanted && !folio.valid.is_empty())) {
            return None;
        }
        folio.reading.insert(span.clone());
        Some(span)
    }

    /// Sends READs of a range, each within the server's limit.
    fn send_read(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
        epoch: u64,
        error: &ReadError,
    ) {
        let Some(own) = self.own.upgrade() else { return };
        let mut at = range.start;
        while at < range.end {
            let part = at..range.end.min(at + u64::from(self.limits.rsize));
            at = part.end;
            let (handle, offset) = (inode.handle, part.start);
            let call = Call::Read { handle, offset, count: (part.end - part.start) as u32 };
            let (own, inode, error) = (own.clone(), inode.clone(), error.clone());
            let done = move |record: Result<Vec<u8>, Errno>| {
                let answer = own.take_read(&inode, part.clone(), epoch, record);
                if let Err(errno) = answer {
                    error.store(errno.0, Ordering::Release);
                }
                own.end_reading(&inode, part);
            };
            count(&self.counters.calls[Proc::Read as usize], 1);
            let numbers = (rpc::NFS, 3, Proc::Read as u32);
            let auth = Auth::of(cx.cred());
            self.rpc.begin(cx, numbers, auth, |w| call.write(w), Box::new(done));
        }
    }

    /// Event context: the answer to a READ has come. Fills what is not valid by now.
    fn take_read(
        &self,
        inode: &Inode,
        range: Range<u64>,
        epoch: u64,
        record: Result<Vec<u8>, Errno>,
    ) -> Result<(), Errno> {
        let record = record?;
        let answer = self.take_data(inode, range, epoch, &record);
        self.rpc.done_with(record);
        answer
    }

    fn take_data(
        &self,
        inode: &Inode,
        range: Range<u64>,
        epoch: u64,
        record: &[u8],
    ) -> Result<(), Errno> {
        let reply = read_answer(Proc::Read, record)?;
        reply.status.check()?;
        let Body::Read { eof, data } = reply.body else { return Err(Errno::EIO) };
        let asked = (range.end - range.start) as usize;
        let data = &data[..data.len().min(asked)];
        if data.is_empty() && !eof {
            return Err(Errno::EIO);
        }
        count(&self.counters.read_bytes, data.len() as u64);
        // Behind the server's end of the file lie zeros, up to ours.
        let len = if eof { asked } else { data.len() };
        let size = self.folio_size();
        let end = range.start + len as u64;
        let mut at = range.start;
        while at < end {
            let pause = end.min(at + FILL_BYTES);
            let mut state = inode.state.lock_irq();
            while at < pause {
                let (index, start) = (at / size, at / size * size);
                let until = end.min(start + size);
                if let Some(folio) = state.folios.get_mut(&index)
                    && folio.epoch <= epoch
                {
                    let part = (at - start) as u32..(until - start) as u32;
                    let bytes = data.get((at - range.start) as usize..).unwrap_or(&[]);
                    let bytes = &bytes[..bytes.len().min((until - at) as usize)];
                    folio.fill(part, bytes);
                }
                at = until;
            }
        }
        Ok(())
    }

    /// Event context: the marks of a READ go, and those who wait look again.
    fn end_reading(&self, inode: &Inode, range: Range<u64>) {
        let size = self.folio_size();
        {
            let mut state = inode.state.lock_irq();
            for (index, folio) in state.folios.range_mut(range.start / size..=range.end / size) {
                let start = index * size;
                let from = range.start.saturating_sub(start).min(size) as u32;
                let to = range.end.saturating_sub(start).min(size) as u32;
                if from < to {
                    folio.reading.remove(from..to);
                }
            }
        }
        inode.wait.wake_all();
    }
}

impl NfsClient {
    /// The mode of reads. The patch's question is asked only where the file system's block is not a
    /// page, and a block of NFS is what a WRITE takes: with a `wsize` of a page it is not asked.
    fn asks(&self) -> Mode {
        let block = 1 << self.limits.wsize.max(1).ilog2();
        match self.options.mode {
            Mode::Request if block == self.options.folio_size => Mode::Off,
            mode => mode,
        }
    }
}

/// Up to where the part of a folio may be read from memory; `None`: not even its first byte. `live`
/// is the folio's part of the file.
fn served(mode: Mode, folio: &Folio, part: Range<u32>, live: u32) -> Option<u32> {
    if mode == Mode::Ranges {
        let valid = folio.valid.within(part.clone()).next()?;
        return (valid.start == part.start).then_some(valid.end);
    }
    let whole = folio.valid.covers(0..live);
    // The patch's question: does the read lie within the one written range of the page?
    let within = mode == Mode::Request && folio.ours().covers(part.clone());
    (whole || within).then_some(part.end)
}
