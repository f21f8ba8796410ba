//! A handle that can be closed, and that belongs to one process.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rt::SpinLock;

/// How often this process was forked off another one that had loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Notes that this process is a child.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A handle, until it is closed. In a child process it is out of reach, and is leaked: dropping it
/// would unmount the parent's file system.
pub struct Slot<T: Send> {
    what: &'static str,
    forks: u32,
    /// Held for a clone or a move only.
    value: SpinLock<Option<T>>,
}

impl<T: Clone + Send> Slot<T> {
    pub fn new(what: &'static str, value: T) -> Slot<T> {
        let forks = FORKS.load(Ordering::Relaxed);
        Slot { what, forks, value: SpinLock::named("python handle", Some(value)) }
    }

    /// The handle.
    ///
    /// # Errors
    /// `ValueError` it was closed; `RuntimeError` in a child process.
    pub fn get(&self) -> PyResult<T> {
        self.own()?;
        let closed = || PyValueError::new_err(format!("I/O operation on closed {}", self.what));
        self.value.lock_irq().clone().ok_or_else(closed)
    }

    /// Takes the handle out; None if it was closed before.
    ///
    /// # Errors
    /// `RuntimeError` in a child process.
    pub fn take(&self) -> PyResult<Option<T>> {
        self.own()?;
        Ok(self.value.lock_irq().take())
    }

    pub fn is_closed(&self) -> bool {
        self.value.lock_irq().is_none()
    }

    fn own(&self) -> PyResult<()> {
        if self.forks == FORKS.load(Ordering::Relaxed) {
            return Ok(());
        }
        let what = self.what;
        let words = format!("this {what} was opened before fork: open the image in the child");
        Err(PyRuntimeError::new_err(words))
    }
}

impl<T: Send> Drop for Slot<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.get_mut().take() else { return };
        if self.forks != FORKS.load(Ordering::Relaxed) {
            std::mem::forget(value);
            return;
        }
        // Closing may wait for a task that needs the interpreter: give its lock up.
        let mut value = Some(value);
        Python::try_attach(|py| {
            let value = value.take();
            py.detach(|| drop(value));
        });
    }
}
