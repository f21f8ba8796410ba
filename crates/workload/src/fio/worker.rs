//! The tasks of one copy of a job.

use std::sync::Arc;

use base::{Errno, Nanos, Rng};
use rt::{Cx, Mutex};

use super::file::JobFiles;
use super::job::{Direction, Job, Verify};
use super::place::Unit;
use super::state::{State, Step, Times};
use super::verify::{self, Mismatch};
use crate::{AlignedBuffer, Stop};

/// Longest sleep between two looks at the [`Stop`].
const NAP: Nanos = Nanos::from_millis(100);

/// What one task of a job has: several share state and files.
#[derive(Clone)]
pub struct Worker {
    /// The job.
    pub job: Arc<Job>,
    /// Its files.
    pub files: Arc<JobFiles>,
    /// What the tasks share.
    pub state: Arc<Mutex<State>>,
    /// Ends it.
    pub stop: Stop,
    /// The seed of the content.
    pub seed: u64,
}

impl Worker {
    /// Works until the job is done. May park.
    pub fn run(&self, cx: &mut Cx) {
        let mut buffer = self.buffer();
        loop {
            let stop = self.stop.is_due(cx);
            let now = cx.now();
            let step = self.state.lock(cx).next(now, stop);
            match step {
                Step::Done => return,
                Step::Wait(until) => {
                    let span = until.since(cx.now()).min(NAP).max(Nanos(1));
                    cx.sleep(span);
                }
                Step::Sync(file, data_only) => {
                    let begin = cx.now();
                    let done = self.files.fsync(cx, file, data_only);
                    let span = cx.now().since(begin);
                    self.state.lock(cx).synced(span, done);
                }
                Step::Io(unit, number) => self.operate(cx, unit, number, now, &mut buffer),
            }
        }
    }

    /// Memory for one operation, filled as the job's writes are.
    fn buffer(&self) -> AlignedBuffer {
        let largest = Direction::ALL.map(|direction| self.job.largest(direction));
        let bytes = largest.into_iter().max().unwrap_or(0);
        let mut buffer = AlignedBuffer::new(bytes as usize);
        self.refill(buffer.bytes_mut(), 0);
        buffer
    }

    fn refill(&self, data: &mut [u8], number: u64) {
        if self.job.zero_buffers {
            return;
        }
        let pattern = &self.job.buffer_pattern;
        if !pattern.is_empty() {
            data.iter_mut().zip(pattern.iter().cycle()).for_each(|(out, byte)| *out = *byte);
            return;
        }
        let random = data.len() as u64 * (100 - self.job.compress_percentage) / 100;
        Rng::new(self.seed, number).fill(&mut data[..random as usize]);
    }

    /// Prepares the content of a write.
    fn content(&self, unit: &Unit, number: u64, buffer: &mut AlignedBuffer) {
        let data = &mut buffer.bytes_mut()[..unit.len as usize];
        if let Some(kind) = self.job.verify {
            return verify::fill(kind, &self.job.verify_pattern, unit.offset, number, data);
        }
        let plain = self.job.zero_buffers || !self.job.buffer_pattern.is_empty();
        if self.job.refill_buffers {
            self.refill(data, number + 1);
        } else if self.job.scramble_buffers && !plain {
            // So that no two blocks are alike: each piece of 512 bytes says where it belongs.
            for (piece, at) in data.chunks_mut(512).zip((unit.offset..).step_by(512)) {
                let mark = (at ^ number << 40).to_le_bytes();
                let len = piece.len().min(mark.len());
                piece[..len].copy_from_slice(&mark[..len]);
            }
        }
    }

    fn operate(
        &self,
        cx: &mut Cx,
        unit: Unit,
        number: u64,
        chosen: Nanos,
        buffer: &mut AlignedBuffer,
    ) {
        let mut made = unit;
        if self.job.verify_only && unit.direction == Direction::Write {
            made.direction = Direction::Read;
        }
        if made.direction == Direction::Write {
            self.content(&made, number, buffer);
        }
        let submitted = cx.now();
        let mut done = self.files.perform(cx, &made, buffer);
        let complete = cx.now();
        if let (Ok(bytes), Direction::Read, Some(kind)) = (&done, made.direction, self.job.verify)
            && (self.job.verify_only || !self.job.pattern.writes)
        {
            let data = &buffer.bytes()[..*bytes as usize];
            if let Err(mismatch) = verify::check(kind, &self.job.verify_pattern, made.offset, data)
            {
                self.mismatch(cx, made.file, made.offset, &mismatch);
                done = Err(Errno::EILSEQ);
            }
        }
        let times = Times { chosen, submitted, complete };
        self.state.lock(cx).complete(&made, number, times, done);
    }

    fn mismatch(&self, cx: &mut Cx, file: usize, offset: u64, mismatch: &Mismatch) {
        let text = format!("verify: {mismatch}, file {} offset {offset}", self.files.path(file));
        let mut state = self.state.lock(cx);
        if state.error.is_none() {
            state.error = Some((Errno::EILSEQ, text));
        }
    }

    /// Reads back all that was written and checks it. May park.
    pub fn verify_written(&self, cx: &mut Cx) {
        let Some(kind) = self.job.verify.filter(|&kind| kind != Verify::Null) else { return };
        let written = std::mem::take(&mut self.state.lock(cx).written);
        let mut buffer = self.buffer();
        for ((file, offset), (len, number)) in written {
            if self.stop.is_due(cx) {
                return;
            }
            let unit = Unit { direction: Direction::Read, file, offset, len };
            let chosen = cx.now();
            let done = self.files.perform(cx, &unit, &mut buffer);
            let complete = cx.now();
            let checked = done.map(|bytes| {
                let data = &buffer.bytes()[..bytes as usize];
                let found = verify::check(kind, &self.job.verify_pattern, offset, data);
                found.and_then(|()| self.check_number(kind, data, number)).map(|()| bytes)
            });
            let result = match checked {
                Ok(Ok(bytes)) => Ok(bytes),
                Ok(Err(mismatch)) => {
                    self.mismatch(cx, file, offset, &mismatch);
                    Err(Errno::EILSEQ)
                }
                Err(errno) => Err(errno),
            };
            let failed = result.is_err();
            let times = Times { chosen, submitted: chosen, complete };
            self.state.lock(cx).verified(&unit, times, result);
            if failed && self.job.verify_fatal {
                return;
            }
        }
    }

    /// A block with an older number than the last write to its place is a write that was lost. With
    /// several writes under way their order is not known.
    fn check_number(&self, kind: Verify, data: &[u8], number: u64) -> Result<(), Mismatch> {
        match verify::number(kind, data) {
            Some(found) if found != number && self.job.depth() == 1 => Err(Mismatch::Number(found)),
            _ => Ok(()),
        }
    }
}
