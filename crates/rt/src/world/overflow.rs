//! A clear end where a fiber's stack overflows: the guard page is hit, and a handler on the
//! thread's alternate signal stack says which task it was.
//!
//! # Safety invariant
//!
//! While a world runs, the thread's [`RUNNING`] points at it. The handler reads it on that same
//! thread, between two instructions of a fiber, when nothing else changes the world; where it finds
//! the address in a guard page of the world it writes a message and aborts, so nobody sees the
//! world again. Every other fault goes to the handler that was there before. Tested by
//! `tests/overflow.rs`.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_macros, clippy::disallowed_types, reason = "a signal handler's")]

use std::cell::Cell;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Once, OnceLock};

use super::World;
use super::stack::PAGE;

thread_local! {
    /// The world that runs on this thread, null where there is none.
    static RUNNING: Cell<*const World> = const { Cell::new(ptr::null()) };
}

/// The handler that was there before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// Bytes of an alternate stack, for threads without one.
const ALTERNATE: usize = 64 << 10;

/// Says which world runs on this thread, until it is dropped.
pub(super) struct Running {
    outer: *const World,
}

impl Running {
    /// From now on a fault belongs to `world`, which does not move until this is dropped.
    pub fn enter(world: *const World) -> Running {
        install();
        Running { outer: RUNNING.replace(world) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(self.outer);
    }
}

/// Installs the handler once, and gives this thread an alternate stack if it has none.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: both structures are plain data, valid when zero; the handler has the signature
        // that SA_SIGINFO asks for and calls only what may be called in a signal handler.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            let mut before: libc::sigaction = MaybeUninit::zeroed().assume_init();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            if libc::sigaction(libc::SIGSEGV, ptr::null(), &mut before) == 0
                && BEFORE.set(before).is_ok()
            {
                libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut());
            }
        }
    });
    thread_local! {
        static HAS_STACK: Cell<bool> = const { Cell::new(false) };
    }
    if !HAS_STACK.replace(true) {
        give_stack();
    }
}

/// Threads of the standard library have an alternate stack already.
fn give_stack() {
    // SAFETY: asks for the present stack; then offers memory that is never given back.
    unsafe {
        let mut present: libc::stack_t = MaybeUninit::zeroed().assume_init();
        let known = libc::sigaltstack(ptr::null(), &mut present) == 0;
        if known && present.ss_flags & libc::SS_DISABLE != 0 {
            let memory = Box::leak(vec![0u8; ALTERNATE].into_boxed_slice());
            let ss_sp = memory.as_mut_ptr().cast();
            let stack = libc::stack_t { ss_sp, ss_flags: 0, ss_size: ALTERNATE };
            libc::sigaltstack(&stack, ptr::null_mut());
        }
    }
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure for SIGSEGV; for the world see the invariant.
    let (address, world) = unsafe { ((*info).si_addr() as usize, RUNNING.get().as_ref()) };
    let hit = world.and_then(|world| {
        let fibers = world.fibers.iter().flatten();
        let mut guarded = fibers.filter_map(|fiber| Some((fiber, fiber.guard?)));
        guarded.find(|(_, guard)| (*guard..guard + PAGE).contains(&address)).zip(Some(world))
    });
    if let Some(((fiber, _), world)) = hit {
        let mut text = Text { bytes: [0; 400], len: 0 };
        // What does not fit is cut off.
        let _ = write!(
            text,
            "\nstack overflow in task {} `{}` of a world (seed {}): {} KiB are not enough; take \
             large values off the stack, or raise `WorldConfig::stack_size`\n",
            fiber.task.id,
            fiber.task.name,
            world.rt.seed(),
            world.pool.stack_size() >> 10
        );
        // SAFETY: writes from a live buffer, and ends the process.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.bytes.as_ptr().cast(), text.len);
            libc::abort();
        }
    }
    // The fault happens again when we return, and is then the other handler's.
    if let Some(before) = BEFORE.get() {
        // SAFETY: what the kernel gave us before.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
}

/// Text in a buffer of fixed size: a signal handler must not allocate.
struct Text {
    bytes: [u8; 400],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let len = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}
