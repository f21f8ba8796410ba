//! Requests of the kernel through io_uring: a ring with several *slots* for one processor.
//!
//! A slot is memory that the kernel fills with a request and takes the answer from. One call hands
//! answers over and waits for the next request. The kernel has a queue for each processor: what is
//! asked on one comes to the slots of that queue.
//!
//! # Invariant of the unsafe code
//!
//! The kernel knows the addresses of a slot's headers and payload from its first entry on, and
//! touches them only for an entry that it has not completed. A [`Slot`] is ours as long as one has
//! it: [`Ring::hand_over`], the only place that pushes entries, takes the slot, and [`Ring::next`]
//! gives it back with the completion of that entry. Meanwhile it lies in `lent`, where nobody looks
//! into it, and where it is never freed. Held by the tests of the mount with `-o io_uring`, where
//! the host's kernel has such rings.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use base::Errno;
use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use nix::errno::Errno as HostErrno;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::abi::{InHeader, OutHeader, RingHeaders, ring_command};
use crate::wire::{Answer, Request};

/// Where `len` lies in a submission entry: the builder has no name for it.
const SQE_LEN_AT: usize = 24;
/// What the payload is aligned to.
const ALIGN: usize = 4096;
/// Entries that wait to be submitted, at most.
const SUBMISSIONS: u32 = 64;
/// What the completion of the bell is called; the others are called by the number of their slot.
const BELL: u64 = u64::MAX;
/// The event of poll(2): there is something to read.
const POLLIN: u32 = 1;

type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// The memory of a request and of its answer.
struct Memory {
    headers: RingHeaders,
    /// `struct iovec` of the headers and of the payload: address and length.
    vectors: [[usize; 2]; 2],
    bytes: Vec<u8>,
    payload_at: usize,
}

/// A request, and the place for its answer.
pub(crate) struct Slot {
    memory: NonNull<Memory>,
    index: usize,
    /// The kernel knows it.
    registered: bool,
    /// Its request is a seek.
    pub seeks: bool,
}

// SAFETY: a slot is the only owner of its memory, which holds plain data.
unsafe impl Send for Slot {}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: made from a box by `new`; a slot that the kernel may touch is never dropped.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

impl Slot {
    fn new(index: usize, payload_bytes: usize) -> Slot {
        // Of zeros that the host provides when they are touched.
        let mut bytes = vec![0; payload_bytes + ALIGN];
        let payload_at = bytes.as_ptr().align_offset(ALIGN);
        let payload = bytes[payload_at..].as_mut_ptr();
        let vectors = [[0; 2], [payload as usize, payload_bytes]];
        let memory = Memory { headers: RingHeaders::new_zeroed(), vectors, bytes, payload_at };
        let memory = Box::leak(Box::new(memory));
        memory.vectors[0] = [(&raw mut memory.headers) as usize, size_of::<RingHeaders>()];
        Slot { memory: NonNull::from(memory), index, registered: false, seeks: false }
    }

    fn memory(&mut self) -> &mut Memory {
        // SAFETY: this slot owns the memory, and whoever has the slot has it alone.
        unsafe { self.memory.as_mut() }
    }

    /// The request, and memory for the body of its answer: in the slot, or `other` where the
    /// request needs the slot. None where it is no request.
    pub fn request<'a>(&'a mut self, other: &'a mut [u8]) -> Option<(Request<'a>, &'a mut [u8])> {
        let Memory { headers, bytes, payload_at, .. } = self.memory();
        let (header, _) = InHeader::read_from_prefix(&headers.in_out).ok()?;
        let used = headers.payload_sz as usize;
        let (body, rest) = bytes[*payload_at..].split_at_mut_checked(used)?;
        let space = if used == 0 { rest } else { other };
        Some((Request::split(header, &headers.op_in, body), space))
    }

    /// Takes the answer: the length of its body, which lies where [`Slot::request`] has said.
    pub fn answer(&mut self, unique: u64, result: Result<usize, Errno>, other: &[u8]) {
        let (error, len) = result.map_or_else(|errno| (-errno.0, 0), |len| (0, len));
        let Memory { headers, bytes, payload_at, .. } = self.memory();
        if headers.payload_sz > 0 {
            bytes[*payload_at..][..len].copy_from_slice(&other[..len]);
        }
        headers.payload_sz = len as u32;
        let whole = (size_of::<OutHeader>() + len) as u32;
        let header = OutHeader { len: whole, error, unique };
        headers.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
    }

    /// Takes the answer to a request without a payload.
    pub fn answer_with<T: IntoBytes + Immutable>(&mut self, unique: u64, value: Result<T, Errno>) {
        let Some((_request, space)) = self.request(&mut []) else { return };
        let mut out = Answer::body(space);
        let result = value.map(|value| out.push(value));
        let result = out.close(result);
        self.answer(unique, result, &[]);
    }
}

/// What happens next.
pub(crate) enum Next {
    /// A request.
    Request(Slot),
    /// Somebody has rung the bell.
    Bell,
    /// The mount ends.
    End,
}

/// A ring in the queue of one processor. It belongs to the thread that has made it.
pub(crate) struct Ring {
    uring: Uring,
    device: OwnedFd,
    queue: u16,
    /// What rings here: whoever writes a byte to its other end.
    bell: File,
    payload_bytes: usize,
    /// What the kernel has, by the number of the slot.
    lent: Vec<Option<Slot>>,
}

fn uring() -> io::Result<Uring> {
    let mut builder = Uring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled();
    let ring = builder.build(SUBMISSIONS)?;
    // No filter of system calls sees what goes through a ring: it takes our entries, no others.
    let mut allowed = [opcode::UringCmd80::CODE, opcode::PollAdd::CODE].map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// Makes a ring.
///
/// # Errors
/// This process may have none.
pub(crate) fn try_one() -> io::Result<()> {
    uring().map(drop)
}

impl Ring {
    /// A ring for the queue of a processor, for requests and answers of `payload_bytes` at most.
    ///
    /// # Errors
    /// The host has no more rings or descriptors.
    pub fn new(
        device: &impl AsFd,
        queue: u16,
        bell: PipeReader,
        payload_bytes: usize,
    ) -> io::Result<Ring> {
        let device = device.as_fd().try_clone_to_owned()?;
        // Two that ring at once may be heard twice and read once.
        let flags = fcntl_getfl(&bell)?;
        fcntl_setfl(&bell, flags | OFlags::NONBLOCK)?;
        let bell = File::from(OwnedFd::from(bell));
        let (uring, lent) = (uring()?, Vec::new());
        let mut ring = Ring { uring, device, queue, bell, payload_bytes, lent };
        ring.listen()?;
        Ok(ring)
    }

    /// Gives `count` new slots to the kernel.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn grow(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let slot = Slot::new(self.lent.len(), self.payload_bytes);
            self.lent.push(None);
            self.hand_over(slot)?;
        }
        self.enter(0)
    }

    /// Slots, wherever they are.
    pub fn slots(&self) -> usize {
        self.lent.len()
    }

    /// Gives a slot to the kernel, with the answer where it had a request: at the next call of
    /// [`Ring::next`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn hand_over(&mut self, mut slot: Slot) -> io::Result<()> {
        let index = slot.index;
        let entry = self.entry(&mut slot).user_data(index as u64);
        slot.registered = true;
        slot.seeks = false;
        self.lent[index] = Some(slot);
        // SAFETY: the entry points to the memory of the slot, which is in `lent` from now on.
        unsafe { self.push(entry) }
    }

    /// # Safety
    /// What the entry points to lives until it is completed, and nobody touches it.
    unsafe fn push(&mut self, entry: squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: what the caller guarantees.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.enter(0)?;
        }
    }

    /// Waits for the bell.
    fn listen(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.bell.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, POLLIN).build().user_data(BELL);
        // SAFETY: it points to nothing.
        unsafe { self.push(entry.into()) }
    }

    fn enter(&mut self, want: usize) -> io::Result<()> {
        match self.uring.submit_and_wait(want).map_err(|error| HostErrno::from_raw(code(&error))) {
            Ok(_) | Err(HostErrno::EINTR | HostErrno::EAGAIN | HostErrno::EBUSY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Submits what was handed over, and waits for the next request. Blocks the thread.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn next(&mut self) -> io::Result<Next> {
        let completion = loop {
            // An answer does not wait for the request that is to be carried out now.
            if !self.uring.submission().is_empty() {
                let want = usize::from(self.uring.completion().is_empty());
                self.enter(want)?;
            }
            if let Some(completion) = self.uring.completion().next() {
                break completion;
            }
            self.enter(1)?;
        };
        if completion.user_data() == BELL {
            let _silent = self.bell.read(&mut [0; 64]);
            self.listen()?;
            return Ok(Next::Bell);
        }
        let result = completion.result();
        if result < 0 {
            // The slot stays in `lent`.
            return match HostErrno::from_raw(-result) {
                HostErrno::ENOTCONN | HostErrno::ECONNABORTED => Ok(Next::End),
                HostErrno::ECANCELED | HostErrno::ENODEV => Ok(Next::End),
                error => Err(error.into()),
            };
        }
        let slot = self.lent.get_mut(completion.user_data() as usize).and_then(Option::take);
        slot.map(Next::Request).ok_or_else(|| io::Error::other("a completion of no slot"))
    }

    /// The entry that hands a slot over.
    fn entry(&self, slot: &mut Slot) -> squeue::Entry128 {
        let fd = types::Fd(self.device.as_raw_fd());
        let mut command = [0; 80];
        command[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        if slot.registered {
            command[8..16].copy_from_slice(&slot.memory().headers.commit_id.to_ne_bytes());
            return opcode::UringCmd80::new(fd, ring_command::COMMIT_AND_FETCH)
                .cmd(command)
                .build();
        }
        let vectors = slot.memory().vectors.as_ptr() as u64;
        let entry = opcode::UringCmd80::new(fd, ring_command::REGISTER).cmd(command);
        let mut entry = entry.addr(Some(vectors)).build();
        // SAFETY: the entry is the 128 bytes of `struct io_uring_sqe`, whose `len` is an aligned
        // 32-bit number there.
        unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write(2) };
        entry
    }
}

fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(HostErrno::EIO as i32)
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may touch them yet.
        self.lent.drain(..).for_each(std::mem::forget);
    }
}

const _: () = assert!(size_of::<squeue::Entry128>() == 128);
