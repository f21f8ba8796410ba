//! The files whose content is on the device while their maps still say unwritten.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};

use rt::{Cx, Runtime, RwLock, SpinLock};

use crate::inode::Inode;

/// Files whose content is on the device and whose maps do not say so yet.
pub(crate) struct Finisher {
    pub(crate) waiting: SpinLock<Waiting>,
    pub(crate) runtime: OnceLock<Runtime>,
    /// Held shared by who finishes a file; alone for a moment by who waits for all of them.
    pub(crate) busy: RwLock<()>,
    /// Callers of sync: they finish what comes, nobody need be woken.
    pub(crate) syncing: AtomicU32,
    /// Content of some file was written that may be in the device's cache only.
    pub unflushed: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) files: BTreeMap<u64, Arc<Inode>>,
    /// Finished but for their size, which content before it holds back, or for their times.
    pub(crate) held: BTreeMap<u64, Arc<Inode>>,
    pub(crate) running: bool,
}

impl Finisher {
    pub fn new() -> Finisher {
        Finisher {
            waiting: SpinLock::named("files to finish", Waiting::default()),
            runtime: OnceLock::new(),
            busy: RwLock::named("finishing files", ()),
            syncing: AtomicU32::new(0),
            unflushed: AtomicBool::new(false),
        }
    }

    /// Learns where tasks are started. Before the first bio of a file.
    pub fn learn(&self, cx: &Cx) {
        self.runtime.get_or_init(|| cx.runtime().clone());
    }
}
