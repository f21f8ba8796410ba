//! What the client knows of a node: its handle, its attributes with their times, its content, and
//! who changed it.
//!
//! **Whose change?** An answer to one of our changing calls shows attributes before and after.
//! While such calls are under way, their answers are collected; when the last has come, each
//! *before* must be what we knew or an *after* of our own: else somebody else has changed the file
//! in between, and everything cached that is not ours is dropped. Answers may come in any order.
//!
//! Servers that do not take *before* and *after* in one step with the change show states between
//! two of our own changes that overlap, which look like somebody else's. So of calls that
//! overlapped it makes a doubt, and what is cached is dropped by the next open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::map::HashMap;
use base::{Errno, Ino, Nanos, Timespec};
use cache::readahead::ReadAhead;
use rt::{Cx, Mutex, SpinLock, WaitQueue};
use vfs::{Attr, FileType};

use super::folio::{Folio, Holes};
use super::{NfsClient, count};
use crate::proto::{Call, Fattr, Handle, Wcc, WccAttr, WriteVerf};

/// Nodes that are remembered beside those that are open or dirty.
const INODES_MAX: usize = 1 << 19;
/// Numbers of forgotten nodes that may stay in the order.
const ORDER_SLACK: usize = 1024;

/// A node's number, and which of those with this number it is, as they came.
pub(super) type NodePlace = (u64, u64);

/// A node.
pub(super) struct Inode {
    pub ino: Ino,
    /// Which of the nodes with this number: numbers are used again.
    serial: u64,
    pub handle: Handle,
    pub state: SpinLock<State>,
    /// Held by a writer: one at a time, as by Linux's `i_mutex`.
    pub write_lock: Mutex<()>,
    /// Readers wait here for READs, flushers for WRITEs and COMMITs.
    pub wait: WaitQueue,
}

/// What the spin lock guards.
pub(super) struct State {
    /// The server's attributes.
    pub attr: Fattr,
    /// Size with what we wrote and have not sent.
    pub size: u64,
    /// When we wrote last, where that is newer than the server's time.
    pub mtime: Option<Timespec>,
    pub fetched: Nanos,
    /// For how long the attributes are believed.
    pub timeout: Nanos,
    /// Our changing calls that are under way.
    pub changing: u32,
    /// What the answers of them have reported since none was under way.
    pub changes: Vec<(Option<WccAttr>, WccAttr)>,
    /// What was known when the first of them began.
    pub known: WccAttr,
    /// The file was opened while they were under way.
    pub opened: bool,
    /// Somebody else may have changed the file: the next open drops what is cached.
    pub doubt: bool,
    pub opens: u32,
    /// Just made by us: whoever opens it first need not ask for attributes.
    pub made: bool,
    /// The name that it got when its own was removed while it was open.
    pub silly: Option<(Ino, Vec<u8>)>,
    pub folios: BTreeMap<u64, Folio>,
    /// Folios with something of ours.
    pub ours: u64,
    /// WRITEs that wait for a slot or an answer.
    pub writes: u64,
    /// A COMMIT waits for a slot or an answer.
    pub committing: bool,
    /// The server wants a WRITE later.
    pub later: bool,
    pub holes: Holes,
    /// Grows whenever reads under way become stale.
    pub epoch: u64,
    /// The life of the server that has what is unstable.
    pub verf: Option<WriteVerf>,
    /// Counts the times that the server had forgotten something.
    pub losses: u64,
    /// A write that failed, to be reported once.
    pub error: Option<Errno>,
    /// Writing fails: only an fsync tries again.
    pub failed: bool,
    pub readahead: ReadAhead,
    /// Of a directory: the verifier of its cookies.
    pub cookie_verf: [u8; 8],
    /// On the list of files with something of ours.
    pub listed: bool,
}

impl Inode {
    fn new(serial: u64, handle: Handle, attr: Fattr, now: Nanos, timeout: Nanos) -> Inode {
        let state = State {
            size: attr.size,
            mtime: None,
            fetched: now,
            timeout,
            changing: 0,
            changes: Vec::new(),
            known: attr.stamp(),
            opened: false,
            doubt: false,
            opens: 0,
            made: false,
            silly: None,
            folios: BTreeMap::new(),
            ours: 0,
            writes: 0,
            committing: false,
            later: false,
            holes: Holes::default(),
            epoch: 0,
            verf: None,
            losses: 0,
            error: None,
            failed: false,
            readahead: ReadAhead::new(),
            cookie_verf: [0; 8],
            listed: false,
            attr,
        };
        Inode {
            ino: Ino(state.attr.fileid),
            serial,
            handle,
            state: SpinLock::named("nfs inode", state),
            write_lock: Mutex::named("nfs write", ()),
            wait: WaitQueue::named("nfs folio"),
        }
    }

    /// Its place among all nodes.
    pub fn place(&self) -> NodePlace {
        (self.ino.0, self.serial)
    }
}

impl State {
    /// True where something of the content is ours.
    pub fn is_ours(&self) -> bool {
        self.ours > 0
    }

    /// Drops what is cached of another's content; what is ours stays.
    pub fn invalidate(&mut self) {
        self.epoch += 1;
        let epoch = self.epoch;
        self.folios.values_mut().for_each(|folio| folio.invalidate(epoch));
        self.holes.clear();
        self.readahead = ReadAhead::new();
    }

    /// Takes the server's attributes after a change of ours or of nobody's; the size is kept where
    /// we have written beyond it.
    pub fn adopt(&mut self, attr: Fattr, now: Nanos) {
        let ours = self.is_ours();
        if !ours || attr.size > self.size {
            self.size = attr.size;
        }
        if !ours {
            self.mtime = None;
        }
        self.attr = attr;
        self.fetched = now;
    }
}

#[derive(Default)]
pub(super) struct Inodes(SpinLock<Table>);

#[derive(Default)]
struct Table {
    all: HashMap<u64, Arc<Inode>>,
    /// In the order in which they came.
    order: VecDeque<u64>,
    serials: u64,
}

impl NfsClient {
    /// The node of an inode number that was handed out.
    ///
    /// # Errors
    /// `ESTALE` it was never, or is forgotten.
    pub(super) fn inode(&self, cx: &Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        self.inodes.0.lock(cx).all.get(&ino.0).cloned().ok_or(Errno::ESTALE)
    }

    /// Notes what the server said of a node, and answers it.
    pub(super) fn note(&self, cx: &Cx, handle: Handle, attr: Fattr) -> Arc<Inode> {
        let now = cx.now();
        let known = self.inodes.0.lock(cx).all.get(&attr.fileid).cloned();
        if let Some(inode) = known
            && inode.handle == handle
        {
            self.refresh(cx, &inode, attr);
            return inode;
        }
        let timeout = self.timeouts(attr.kind).0;
        let mut table = self.inodes.0.lock(cx);
        table.serials += 1;
        let inode = Arc::new(Inode::new(table.serials, handle, attr, now, timeout));
        let gone = table.insert(inode.clone());
        drop(table);
        drop(gone);
        inode
    }

    /// Notes a node that has a name, if it was forgotten with another one.
    pub(super) fn keep(&self, cx: &Cx, inode: &Arc<Inode>) {
        let mut table = self.inodes.0.lock(cx);
        let known = table.all.contains_key(&inode.ino.0);
        let gone = if known { None } else { table.insert(inode.clone()) };
        drop(table);
        drop(gone);
    }

    /// True where an answer is about a node whose number another one has since: it was overtaken.
    pub(super) fn is_overtaken(&self, cx: &Cx, handle: &Handle, attr: &Fattr) -> bool {
        let known = self.inodes.0.lock(cx).all.get(&attr.fileid).cloned();
        known.is_some_and(|inode| {
            inode.handle != *handle && inode.state.lock(cx).attr.ctime > attr.ctime
        })
    }

    /// Forgets a node whose last name is gone, and only that one: the server may have used its
    /// number for a new one before its answer was here.
    pub(super) fn forget(&self, cx: &Cx, inode: &Inode) {
        {
            let state = inode.state.lock(cx);
            // Others have opened it, or made a further name, in between.
            if state.opens > 0 || state.attr.nlink > 1 {
                return;
            }
        }
        let gone = {
            let mut table = self.inodes.0.lock(cx);
            let same = |known: &Arc<Inode>| std::ptr::eq(Arc::as_ptr(known), inode);
            match table.all.get(&inode.ino.0).is_some_and(same) {
                true => table.all.remove(&inode.ino.0),
                false => None,
            }
        };
        if gone.is_some() {
            self.drop_folios(cx, inode);
            self.retire(cx, inode);
        }
    }

    fn timeouts(&self, kind: FileType) -> (Nanos, Nanos) {
        match kind {
            FileType::Directory => self.options.attr_dir,
            _ => self.options.attr_file,
        }
    }

    /// Takes attributes that came with an answer that changed nothing. Where they show a change
    /// that is not ours, what is cached is dropped.
    pub(super) fn refresh(&self, cx: &Cx, inode: &Inode, attr: Fattr) {
        let (shortest, longest) = self.timeouts(attr.kind);
        let now = cx.now();
        let mut state = inode.state.lock(cx);
        if state.changing > 0 {
            // What is ours and what is not, the last answer will show.
            return;
        }
        if attr.stamp() != state.attr.stamp() {
            state.timeout = shortest;
            if attr.kind == FileType::Regular {
                count(&self.counters.foreign_changes, 1);
                state.invalidate();
            }
        } else if now.since(state.fetched) >= state.timeout {
            state.timeout = Nanos((state.timeout.0.saturating_mul(2)).min(longest.0));
        }
        state.adopt(attr, now);
    }

    /// One of our changing calls begins.
    pub(super) fn change_begins(&self, cx: &Cx, inode: &Inode) {
        let mut state = inode.state.lock(cx);
        if state.changing == 0 {
            state.known = state.attr.stamp();
            state.opened = false;
            state.changes.clear();
        }
        state.changing += 1;
    }

    /// One of them has ended, with what its answer shows (nothing where there is none). Event
    /// context.
    pub(super) fn change_ends(&self, inode: &Inode, wcc: Option<Wcc>, now: Nanos) {
        let mut state = inode.state.lock_irq();
        state.changing = state.changing.saturating_sub(1);
        if let Some(Wcc { before, after: Some(attr) }) = wcc {
            state.changes.push((before, attr.stamp()));
            // Answers may overtake each other, also within one step of the server's clock. One that
            // was alone is the last: it may have set an older mtime.
            let key = |attr: &Fattr| (attr.ctime, attr.mtime, attr.size);
            let alone = state.changing == 0 && state.changes.len() == 1;
            let later = attr.ctime > state.attr.ctime;
            if later || (alone && attr.ctime == state.attr.ctime) || key(&attr) >= key(&state.attr)
            {
                state.adopt(attr, now);
            }
        }
        if state.changing > 0 {
            return;
        }
        let changes = std::mem::take(&mut state.changes);
        let known = state.known;
        let mine =
            |stamp: &WccAttr| *stamp == known || changes.iter().any(|(_, after)| after == stamp);
        if changes.iter().all(|(before, _)| before.as_ref().is_none_or(mine))
            || state.attr.kind != FileType::Regular
        {
            return;
        }
        if changes.len() > 1 && !state.opened {
            state.doubt = true;
            return;
        }
        count(&self.counters.foreign_changes, 1);
        state.invalidate();
    }

    /// The file is opened: from here on it shows what others have closed before.
    pub(super) fn note_open(&self, cx: &Cx, inode: &Inode) {
        let mut state = inode.state.lock(cx);
        state.opens += 1;
        state.opened = true;
        if std::mem::take(&mut state.doubt) {
            count(&self.counters.foreign_changes, 1);
            state.invalidate();
        }
    }

    /// Makes sure that the attributes are not older than they may be.
    ///
    /// # Errors
    /// Those of GETATTR.
    pub(super) fn revalidate(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let now = cx.now();
        let fresh = {
            let state = inode.state.lock(cx);
            now.since(state.fetched) < state.timeout
        };
        if fresh { Ok(()) } else { self.fetch_attr(cx, inode) }
    }

    /// Asks the server for attributes.
    ///
    /// # Errors
    /// Those of GETATTR; after `ESTALE` nothing is cached but what is ours.
    pub(super) fn fetch_attr(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let call = Call::Getattr { handle: inode.handle };
        let attr = self.call(cx, &call, |reply| {
            reply.status.check().and_then(|()| reply.attr.clone().ok_or(Errno::EIO))
        })?;
        if attr == Err(Errno::ESTALE) {
            inode.state.lock(cx).invalidate();
        }
        self.refresh(cx, inode, attr?);
        Ok(())
    }

    /// Forgets what is cached of a file but for what is ours, so that it is read anew: for who has
    /// got a lock on it by other means, or knows otherwise that it has changed.
    ///
    /// # Errors
    /// `ESTALE` the node is not known; those of GETATTR.
    pub fn forget_cached(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let inode = self.inode(cx, ino)?;
        inode.state.lock(cx).invalidate();
        self.fetch_attr(cx, &inode)
    }

    /// The attributes as everybody else has them.
    pub(super) fn attr(&self, cx: &Cx, inode: &Inode) -> Attr {
        let state = inode.state.lock(cx);
        let attr = &state.attr;
        let size = if attr.kind == FileType::Regular { state.size } else { attr.size };
        let mtime = state.mtime.unwrap_or(attr.mtime.timespec());
        Attr {
            ino: inode.ino,
            kind: attr.kind,
            mode: attr.mode as u16,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size,
            blocks: attr.used.div_ceil(512),
            atime: attr.atime.timespec(),
            mtime,
            ctime: mtime.max(attr.ctime.timespec()),
            btime: None,
            generation: base::crc::crc32c(0, inode.handle.bytes()),
            flags: 0,
            blksize: self.limits.rsize,
        }
    }
}

impl Table {
    /// Returns a node to be dropped without the lock.
    fn insert(&mut self, inode: Arc<Inode>) -> Option<Arc<Inode>> {
        let ino = inode.ino;
        let replaced = self.all.insert(ino.0, inode);
        if replaced.is_none() {
            if self.order.len() > 2 * self.all.len() + ORDER_SLACK {
                let mut seen = BTreeSet::new();
                let all = &self.all;
                self.order.retain(|ino| all.contains_key(ino) && seen.insert(*ino));
            }
            self.order.push_back(ino.0);
        }
        replaced.or_else(|| self.forget_one(ino))
    }

    /// Where there are too many, forgets the oldest that nobody needs.
    fn forget_one(&mut self, not: Ino) -> Option<Arc<Inode>> {
        if self.all.len() <= INODES_MAX {
            return None;
        }
        for _ in 0..64 {
            let ino = self.order.pop_front()?;
            let Some(inode) = self.all.get(&ino) else { continue };
            let needed = {
                let state = inode.state.lock_irq();
                // Who walks through a directory, or is in it, asks for it by its number alone.
                let directory = state.attr.kind == FileType::Directory;
                directory || state.opens > 0 || state.listed || !state.folios.is_empty()
            };
            if needed || ino == not.0 {
                self.order.push_back(ino);
                continue;
            }
            return self.all.remove(&ino);
        }
        None
    }
}
