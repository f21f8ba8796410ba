//! Errors: the result is the number; the message is kept for the calling thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::Error;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Why a call failed.
pub(crate) struct Failed {
    number: c_int,
    words: String,
}

impl Failed {
    /// An argument that means nothing.
    pub fn argument(what: &str) -> Failed {
        Failed { number: libc::EINVAL, words: format!("libiopath: {what}") }
    }

    /// An error of this number at a place.
    pub fn number(number: c_int, words: impl Into<String>) -> Failed {
        Failed { number, words: words.into() }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed { number: error.errno().0, words: error.to_string() }
    }
}

/// Runs a call; what it answers, or the number of its error with its sign turned.
pub(crate) fn run(work: impl FnOnce() -> Result<i64, Failed>) -> i64 {
    let failed = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(result)) => return result,
        Ok(Err(failed)) => failed,
        Err(_) => Failed::number(libc::EIO, "libiopath: a flaw of the library: it panicked"),
    };
    let words: Vec<u8> = failed.words.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    LAST.with(|last| *last.borrow_mut() = CString::new(words).unwrap_or_default());
    -i64::from(failed.number)
}

/// As [`run`], for calls that answer 0.
pub(crate) fn done(work: impl FnOnce() -> Result<(), Failed>) -> c_int {
    run(|| work().map(|()| 0)) as c_int
}

/// The words of this thread's last error: the place and the reason. Valid until the thread's next
/// call that fails; empty where none has. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn iopath_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
