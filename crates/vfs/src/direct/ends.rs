//! The ends of the bios of one call: what is still on its way, what was read, where it failed
//! first.

use std::sync::Arc;

use base::Errno;
use base::unit::SECTOR_SIZE;
use block::{BioResult, EndIo, Segment};
use rt::{Charge, Cx, SpinLock, WaitQueue};
use smallvec::SmallVec;

/// Where the bytes of each segment of a bio lie in the file: offset and length. A bio may hold
/// neighbours on the device that are none in the file.
pub(super) type Spans = SmallVec<[(u64, u32); 4]>;

#[derive(Default)]
struct State {
    bios: u64,
    bytes: u64,
    ended: u64,
    /// The waiter goes on when no more bytes than this are on their way.
    wanted: u64,
    /// The lowest place in the file that failed.
    failed: Option<(u64, Errno)>,
    /// What was read and not yet taken.
    filled: Vec<(u64, Segment)>,
}

#[derive(Default)]
struct Shared {
    state: SpinLock<State>,
    waiters: WaitQueue,
}

/// The ends of one call's bios.
#[derive(Default)]
pub(super) struct Ends(Arc<Shared>);

impl Ends {
    /// The end of one more bio that begins at `sector` and has its bytes at `spans`; with `keep`
    /// its segments are kept for [`Ends::take_filled`].
    pub fn end(&self, sector: u64, spans: Spans, keep: bool) -> EndIo {
        let bytes: u64 = spans.iter().map(|span| u64::from(span.1)).sum();
        {
            let mut state = self.0.state.lock_irq();
            state.bios += 1;
            state.bytes += bytes;
        }
        let shared = self.0.clone();
        Box::new(move |done: BioResult| {
            let mut state = shared.state.lock_irq();
            state.bios -= 1;
            state.bytes -= bytes;
            state.ended += 1;
            if let Err(error) = &done.result {
                let at = error.sector.0.saturating_sub(sector) * SECTOR_SIZE;
                let failed = place(&spans, at);
                if state.failed.is_none_or(|(before, _)| failed < before) {
                    state.failed = Some((failed, error.to_errno()));
                }
            }
            if keep {
                let segments = spans.iter().map(|span| span.0).zip(done.segs);
                state.filled.extend(segments);
            } else {
                // Before the caller goes on, who may want to write to its memory again.
                drop(done.segs);
            }
            let wake = state.bios == 0 || state.bytes <= state.wanted;
            drop(state);
            if wake {
                shared.waiters.wake_all();
            }
        })
    }

    /// The lowest place in the file that failed so far, with the error.
    pub fn failed(&self) -> Option<(u64, Errno)> {
        self.0.state.lock_irq().failed
    }

    /// What was read and not yet taken: place in the file, memory.
    pub fn take_filled(&self) -> Vec<(u64, Segment)> {
        std::mem::take(&mut self.0.state.lock_irq().filled)
    }

    /// Bytes on their way.
    pub fn in_flight(&self) -> u64 {
        self.0.state.lock_irq().bytes
    }

    /// Waits until no more than `bytes` are on their way. Parks.
    pub fn wait(&self, cx: &mut Cx, bytes: u64) {
        self.0.state.lock_irq().wanted = bytes;
        let done = || {
            let state = self.0.state.lock_irq();
            state.bios == 0 || state.bytes <= bytes && bytes > 0
        };
        self.0.waiters.wait_until(cx, "direct I/O", done);
        let ended = {
            let mut state = self.0.state.lock_irq();
            state.wanted = 0;
            std::mem::take(&mut state.ended)
        };
        cx.charge_for(Charge::Interrupt, ended.min(1));
        cx.charge_for(Charge::BioComplete, ended);
    }
}

/// The place in the file of byte `at` of a bio.
fn place(spans: &Spans, at: u64) -> u64 {
    let mut before = 0;
    for &(file, len) in spans {
        if at < before + u64::from(len) {
            return file + (at - before);
        }
        before += u64::from(len);
    }
    spans.first().map_or(0, |span| span.0)
}
