//! Many tasks that create in one directory: whoever holds the directory's lock makes the files of
//! those who wait for it, too.
//!
//! Nearly all of a creation happens under that lock, and changes blocks that the one before it has
//! changed. So the directory stays with one processor for several files, instead of going to and
//! fro between the caches of two for each of them, and those who wait need no lock.
//!
//! An *order* is put on the directory's list before its task waits for the lock, and is taken off
//! the list only by a holder of the lock. So whoever gets the lock finds its own order on the list,
//! or carried out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use base::Errno;
use rt::{Cx, SpinLock, WriteGuard};
use smallvec::SmallVec;
use vfs::{Attr, FileType, NewNode};

use crate::Xfs;
use crate::attr::Change;
use crate::inode::Inode;

/// Orders that a task carries out beside its own before it gives the lock back.
const AT_ONCE: usize = 16;

/// A file that somebody who holds the directory's lock is to make.
struct Order {
    name: SmallVec<[u8; 64]>,
    node: NewNode<'static>,
    answer: SpinLock<Option<Result<Attr, Errno>>>,
    /// `answer` is there.
    done: AtomicBool,
}

impl Order {
    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn finish(&self, answer: Result<Attr, Errno>) {
        *self.answer.lock_irq() = Some(answer);
        self.done.store(true, Ordering::Release);
    }

    /// What came of it. Only a task that panicked leaves an order undone that it has taken.
    fn answer(&self) -> Result<Attr, Errno> {
        self.answer.lock_irq().take().unwrap_or(Err(Errno::EIO))
    }
}

/// The orders of a directory, the oldest first.
#[derive(Default)]
pub(crate) struct Orders {
    /// How many there are, for a look without the lock.
    count: AtomicU32,
    list: SpinLock<Vec<Arc<Order>>>,
}

impl Orders {
    fn change<R>(&self, change: impl FnOnce(&mut Vec<Arc<Order>>) -> R) -> R {
        let mut list = self.list.lock_irq();
        let result = change(&mut list);
        self.count.store(list.len() as u32, Ordering::Relaxed);
        result
    }

    fn add(&self, order: Arc<Order>) {
        self.change(|list| list.push(order));
    }

    /// Takes the oldest one.
    fn next(&self) -> Option<Arc<Order>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.change(|list| (!list.is_empty()).then(|| list.remove(0)))
    }

    /// Takes this one; false where somebody has it.
    fn take_back(&self, order: &Arc<Order>) -> bool {
        self.change(|list| {
            let at = list.iter().position(|other| Arc::ptr_eq(other, order));
            at.map(|at| list.remove(at)).is_some()
        })
    }
}

/// True for what another task can make as well: it needs nothing but a name and numbers.
pub(super) fn can_wait(node: &NewNode<'_>, attributes: &[Change]) -> bool {
    node.kind == FileType::Regular && node.target.is_none() && attributes.is_empty()
}

impl Xfs {
    /// Creates a file as [`can_wait`] wants it, or has it created by who holds the directory's
    /// lock. May park.
    pub(super) fn create_in_turn(
        &self,
        cx: &mut Cx,
        parent: &Arc<Inode>,
        name: &[u8],
        node: &NewNode<'_>,
    ) -> Result<Attr, Errno> {
        let guard = match parent.rwsem.try_write() {
            Some(guard) => guard,
            None => {
                let order = Arc::new(Order {
                    name: name.into(),
                    node: NewNode { target: None, ..*node },
                    answer: SpinLock::named("xfs order", None),
                    done: AtomicBool::new(false),
                });
                parent.orders.add(order.clone());
                match parent.rwsem.write_unless(cx, || order.is_done()) {
                    Some(guard) if parent.orders.take_back(&order) => guard,
                    _ => return order.answer(),
                }
            }
        };
        let created = self.create_checked(cx, parent, name, node);
        self.serve_orders(cx, parent, &guard);
        created
    }

    fn create_checked(
        &self,
        cx: &mut Cx,
        parent: &Arc<Inode>,
        name: &[u8],
        node: &NewNode<'_>,
    ) -> Result<Attr, Errno> {
        parent.check_there(cx)?;
        self.create_locked(cx, parent, name, (node, &[]))
    }

    /// Carries out the orders of others, under the directory's lock.
    fn serve_orders(&self, cx: &mut Cx, parent: &Arc<Inode>, _lock: &WriteGuard<'_, ()>) {
        for _ in 0..AT_ONCE {
            let Some(order) = parent.orders.next() else { return };
            order.finish(self.create_checked(cx, parent, &order.name, &order.node));
        }
    }
}
