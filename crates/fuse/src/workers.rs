//! The worker threads of a mount, which read `/dev/fuse` by the leader/followers pattern: one of
//! them *leads*, that is, it reads the requests.
//!
//! The leader answers a short request by itself and goes on leading. So a program that makes one
//! call after the other is served by one thread that never sleeps between them. If the next request
//! waits already, or if the current one may take long, the leader lets another worker lead first. A
//! request that takes long unexpectedly is found by the *watch*, a task that looks every few
//! milliseconds while requests come, and lets another worker lead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Nanos;
use rt::{Cx, WaitQueue};

use fuser::INodeNo;

use crate::abi::{ReadIn, op};
use crate::adapter::{Adapter, Outcome};
use crate::lead::Lead;
use crate::seek::Seek;
use crate::wire::{Answer, Device, Pace, Reader, Request, Splicer};

/// How often the watch looks while requests come.
const LOOK: Nanos = Nanos::from_millis(2);
/// After so many looks without a request the watch sleeps.
const QUIET_LOOKS: u32 = 50;
/// Requests with more bytes than this may take long.
const LONG: usize = 32 << 10;
/// A large read that takes no longer came from memory.
const FROM_MEMORY: Nanos = Nanos::from_micros(500);

/// The workers of a mount, and what they share.
pub(crate) struct Workers {
    adapter: Arc<Adapter>,
    device: Arc<Device>,
    lead: Arc<Lead>,
    /// The watch sleeps until a turn begins.
    quiet: AtomicBool,
    ended: AtomicBool,
    watch: WaitQueue,
    /// The last large read took no longer than it takes to copy it.
    from_memory: AtomicBool,
    pace: Pace,
    buffer_bytes: usize,
}

impl Workers {
    pub fn new(
        adapter: Arc<Adapter>,
        device: Arc<Device>,
        pace: Pace,
        buffer_bytes: usize,
    ) -> Workers {
        Workers {
            lead: adapter.lead.clone(),
            adapter,
            device,
            quiet: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            watch: WaitQueue::named("fuse watch"),
            from_memory: AtomicBool::new(false),
            pace,
            buffer_bytes,
        }
    }

    /// Serves with `count` workers until the mount ends. May park.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn run(self: &Arc<Workers>, cx: &mut Cx, count: usize) -> io::Result<()> {
        let tasks: Vec<_> = (0..count)
            .map(|index| {
                let workers = self.clone();
                cx.spawn(&format!("fuse-{index}"), move |cx| {
                    let end = End(&workers);
                    let result = workers.serve(cx);
                    drop(end);
                    result
                })
            })
            .collect();
        let workers = self.clone();
        let watch = cx.spawn("fuse-watch", move |cx| workers.keep_watch(cx));
        let mut result = Ok(());
        for task in tasks {
            result = result.and(task.join(cx));
        }
        watch.join(cx);
        result
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn serve(&self, cx: &mut Cx) -> io::Result<()> {
        let mut buffer = vec![0; self.buffer_bytes];
        let mut answer = Vec::new();
        let mut splicer = Splicer::default();
        let mut reader = Reader::new(&self.device, &self.pace);
        loop {
            let lead = &self.lead;
            lead.waiting.wait_until(cx, "its turn to lead", || self.has_ended() || lead.try_lead());
            let mut leads = !self.has_ended();
            if !leads {
                return Ok(());
            }
            while leads {
                let Some((len, alone)) = reader.next(cx, &mut buffer)? else { return Ok(()) };
                let Some(request) = Request::parse(&buffer[..len]) else { continue };
                // If there was none just before this one, there is hardly another one now.
                leads = !self.takes_long(&request) && (alone || !self.device.is_pending());
                if !leads {
                    lead.hand_over();
                    self.answer(cx, &request, &mut answer, &mut splicer);
                    continue;
                }
                let turn = lead.begin();
                if self.quiet.load(Ordering::SeqCst) {
                    self.watch.wake_one();
                }
                self.answer(cx, &request, &mut answer, &mut splicer);
                leads = lead.finish(turn);
            }
        }
    }

    /// Whether a request may take long, as far as is known.
    fn takes_long(&self, request: &Request) -> bool {
        let is_read = request.header.opcode == op::READ;
        is_long(request) && !(is_read && self.from_memory.load(Ordering::Relaxed))
    }

    /// Answers a request; `buffer` is for the answer, of any content.
    fn answer(&self, cx: &mut Cx, request: &Request, buffer: &mut Vec<u8>, splicer: &mut Splicer) {
        let mut out = Answer::new(buffer).or_splice(splicer, &self.device);
        let unique = request.header.unique;
        let start = (request.header.opcode == op::READ && is_long(request)).then(|| cx.now());
        match self.adapter.answer(cx, request, &mut out) {
            Outcome::Done(_) if out.is_spliced() => {}
            Outcome::Done(result) => self.device.answer(out.finish(unique, result)),
            Outcome::Silent => {}
            Outcome::Seek(arg) => {
                let (node, device) = (INodeNo(request.header.nodeid), self.device.clone());
                let pid = request.header.pid;
                let answer = Box::new(move |found| device.answer_with(unique, found));
                self.adapter.seeks.push(cx, Seek { node, arg, pid, answer });
            }
        }
        if let Some(start) = start {
            let quick = cx.now().0 - start.0 <= FROM_MEMORY.0;
            self.from_memory.store(quick, Ordering::Relaxed);
        }
    }

    fn keep_watch(&self, cx: &mut Cx) {
        let lead = &self.lead;
        let mut seen = lead.turn();
        let mut quiet = 0;
        while !self.has_ended() {
            if quiet < QUIET_LOOKS {
                self.watch.wait_until_timeout(cx, "the next look", LOOK, || self.has_ended());
            } else {
                self.quiet.store(true, Ordering::SeqCst);
                self.watch.wait_until(cx, "requests", || self.has_ended() || lead.turn() != seen);
                self.quiet.store(false, Ordering::SeqCst);
            }
            let turn = lead.turn();
            quiet = if turn == seen { quiet + 1 } else { 0 };
            if turn == seen && turn % 2 == 1 && lead.finish(turn) {
                lead.hand_over();
            }
            seen = lead.turn();
        }
    }
}

/// If one worker ends, all end: the mount has ended, or the worker has panicked.
struct End<'a>(&'a Workers);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.lead.waiting.wake_all();
        self.0.watch.wake_all();
    }
}

/// Whether a request may take long: it waits for the device, or moves much.
pub(crate) fn is_long(request: &Request) -> bool {
    match request.header.opcode {
        op::FSYNC | op::FSYNCDIR | op::FALLOCATE | op::COPY_FILE_RANGE => true,
        op::READ => request.take::<ReadIn>().is_ok_and(|(arg, _)| arg.size as usize > LONG),
        _ => request.body.len() > LONG,
    }
}
