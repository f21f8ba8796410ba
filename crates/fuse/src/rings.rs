//! The tasks that serve a mount through io_uring: one for each processor, with the slots of that
//! processor's queue, and some that carry out what takes long. Forgotten nodes and interrupts come
//! through the device all the same, which the workers read (`workers`).
//!
//! # Who waits for whom
//!
//! The kernel binds a request to the queue of the processor on which it was asked, and there is no
//! other way out of a queue than its slots. A request that waits for another one of the same mount
//! must therefore never be the last to have a slot, nor be waited for by the task of a queue.
//!
//! - Only seeks for data and holes wait for other requests: for the writes of their file's pages
//!   (`seek`). They go to a task of their own, and a queue whose slots they fill gets more.
//! - What waits for space waits for forgotten nodes, which come through the device.
//! - What may take long (fsync, large reads and writes) goes to the other tasks, so that it holds
//!   up nobody. Locks of the file system are held by tasks that wait for no request.
//!
//! The kernel gives a new slot only what is asked after it has come; what waits already it hands
//! out where an answer is handed in. So each seek is followed by a question of our own to its
//! queue: its answer sets going whatever was overlooked when slots came.

use std::io::{self, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use base::Errno;
use fuser::INodeNo;
use rt::{Channel, Cx, SpinLock};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::abi::{InHeader, LseekIn, LseekOut};
use crate::adapter::{Adapter, Outcome};
use crate::event::{Event, Events};
use crate::ring::{Next, Ring, Slot};
use crate::seek::Seek;
use crate::wire::{Answer, Device};
use crate::workers::is_long;

/// Bytes for the answer to a request that has a payload: the value of an extended attribute is the
/// longest.
const SMALL_BYTES: usize = 64 << 10;
/// Slots of a queue, and those that are added where seeks have taken most of them.
const SLOTS: usize = 32;
/// Slots that are always left for others than seeks.
const SLOTS_FREE: usize = 16;
/// Slots that wait for a task; there are fewer.
const WAITING_MAX: usize = usize::MAX;

/// Where the answers to one queue's requests are brought that its own task does not answer.
pub(crate) struct Home {
    answered: SpinLock<Vec<Slot>>,
    bell: PipeWriter,
}

impl Home {
    /// Brings a slot with an answer. Never waits.
    pub fn bring(&self, slot: Slot) {
        self.answered.lock_irq().push(slot);
        // The task of the queue has ended: then nobody waits for the answer.
        let _ended = (&self.bell).write(&[0]);
    }
}

/// A request that takes long.
type Job = (Slot, Arc<Home>);

/// What the tasks share.
pub(crate) struct Rings {
    adapter: Arc<Adapter>,
    device: Arc<Device>,
    payload_bytes: usize,
    queues: usize,
    jobs: Channel<Job>,
    /// Where it is mounted.
    dir: PathBuf,
}

impl Rings {
    /// Rings for every processor that the host may have.
    ///
    /// # Errors
    /// The number of processors is not known.
    pub fn new(
        adapter: Arc<Adapter>,
        device: Arc<Device>,
        payload_bytes: usize,
        dir: &Path,
    ) -> io::Result<Rings> {
        let jobs = Channel::named("fuse jobs", WAITING_MAX);
        let (queues, dir) = (processors()?, dir.to_owned());
        Ok(Rings { adapter, device, payload_bytes, queues, jobs, dir })
    }

    /// How many queues there are: a ring for each.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Serves until the mount ends, with `count` tasks beside those of the queues. If one fails,
    /// the kernel has nobody to ask, and the failure is sent to `events`. May park.
    /// Each ring that is made is reported to `made`.
    pub fn run(
        self: &Arc<Rings>,
        cx: &mut Cx,
        count: usize,
        events: &Events,
        made: &mpsc::Sender<()>,
    ) {
        let (ask, questions) = mpsc::channel();
        let queues = (0..self.queues).map(|queue| {
            let (rings, events, ask) = (self.clone(), events.clone(), ask.clone());
            let made = made.clone();
            cx.spawn(&format!("fuse-cpu-{queue}"), move |cx| {
                if let Err(error) = rings.serve(cx, queue, &ask, made) {
                    let _nobody_listens = events.send(cx, Event::Ended(Err(error)));
                }
            })
        });
        let queues: Vec<_> = queues.collect();
        let others: Vec<_> = (0..count)
            .map(|index| {
                let rings = self.clone();
                let events = events.clone();
                cx.spawn(&format!("fuse-{index}"), move |cx| {
                    if let Err(error) = rings.work(cx) {
                        let _nobody_listens = events.send(cx, Event::Ended(Err(error)));
                    }
                })
            })
            .collect();
        // It waits for this mount, and must not keep its device open where the process is killed.
        let dir = self.dir.clone();
        rt::spawn_apart("fuse-ask", move |_apart| ask_queues(&dir, &questions));
        queues.into_iter().for_each(|task| task.join(cx));
        self.jobs.close();
        others.into_iter().for_each(|task| task.join(cx));
    }

    /// Serves one queue; sends its number to `ask` when the mount is to be asked something.
    fn serve(
        &self,
        cx: &mut Cx,
        queue: usize,
        ask: &mpsc::Sender<usize>,
        made: mpsc::Sender<()>,
    ) -> io::Result<()> {
        stay_on(queue);
        let (listens, bell) = io::pipe()?;
        let mut ring = Ring::new(&*self.device, queue as u16, listens, self.payload_bytes)?;
        let _nobody_waits = made.send(());
        drop(made);
        let home = Arc::new(Home { answered: SpinLock::named("fuse answers", Vec::new()), bell });
        let mut small = vec![0; SMALL_BYTES];
        let mut seeking = 0;
        ring.grow(SLOTS)?;
        loop {
            let mut slot = match ring.next()? {
                Next::Request(slot) => slot,
                Next::Bell => {
                    let answered = std::mem::take(&mut *home.answered.lock_irq());
                    seeking -= answered.iter().filter(|slot| slot.seeks).count();
                    answered.into_iter().try_for_each(|slot| ring.hand_over(slot))?;
                    continue;
                }
                Next::End => return Ok(()),
            };
            let (request, _) = slot.request(&mut small).ok_or_else(no_request)?;
            if is_long(&request) {
                // At the end of the mount nobody takes it, and nobody waits for the answer.
                let _ended = self.jobs.send(cx, (slot, home.clone()));
                continue;
            }
            match self.carry_out(cx, &mut slot, &mut small)? {
                None => ring.hand_over(slot)?,
                Some((header, arg)) => {
                    slot.seeks = true;
                    seeking += 1;
                    let (node, pid) = (INodeNo(header.nodeid), header.pid);
                    let unique = header.unique;
                    let home = home.clone();
                    let answer = Box::new(move |found: Result<LseekOut, Errno>| {
                        slot.answer_with(unique, found);
                        home.bring(slot);
                    });
                    self.adapter.seeks.push(cx, Seek { node, arg, pid, answer });
                    if seeking + SLOTS_FREE > ring.slots() {
                        ring.grow(SLOTS)?;
                    }
                    let _ended = ask.send(queue);
                }
            }
        }
    }

    /// Carries out a request and puts the answer into its slot; but a seek, which it answers. May
    /// park.
    fn carry_out(
        &self,
        cx: &mut Cx,
        slot: &mut Slot,
        small: &mut [u8],
    ) -> io::Result<Option<(InHeader, LseekIn)>> {
        let (request, space) = slot.request(small).ok_or_else(no_request)?;
        let header = request.header;
        let mut out = Answer::body(space);
        let result = match self.adapter.answer(cx, &request, &mut out) {
            Outcome::Done(result) => result,
            Outcome::Silent => Ok(()),
            Outcome::Seek(arg) => return Ok(Some((header, arg))),
        };
        let result = out.close(result);
        slot.answer(header.unique, result, small);
        Ok(None)
    }

    /// Carries out what takes long.
    fn work(&self, cx: &mut Cx) -> io::Result<()> {
        let mut small = vec![0; SMALL_BYTES];
        while let Some((mut slot, home)) = self.jobs.recv(cx) {
            if self.carry_out(cx, &mut slot, &mut small)?.is_some() {
                return Err(io::Error::other("a seek among what takes long"));
            }
            home.bring(slot);
        }
        Ok(())
    }
}

/// Asks the mount something through queues.
fn ask_queues(dir: &Path, queues: &mpsc::Receiver<usize>) {
    for queue in queues {
        stay_on(queue);
        // The answer means nothing.
        let _answer = rustix::fs::statfs(dir);
    }
}

fn no_request() -> io::Error {
    io::Error::other("the kernel's ring has no request")
}

/// Binds this thread to a processor.
fn stay_on(queue: usize) {
    let mut cpu = CpuSet::new();
    cpu.set(queue);
    // One that is not there, or not for us: then from another.
    let _anywhere = sched_setaffinity(None, &cpu);
}

/// Processors that the host may have: the kernel has a queue for each, and waits for all.
fn processors() -> io::Result<usize> {
    let path = "/sys/devices/system/cpu/possible";
    let list = std::fs::read_to_string(path)?;
    let last = list.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other(format!("{path}: {list}")))
}
