//! Creating a file, and those that other tasks wait to create in the same directory: see
//! [`crate::inode::create_batch`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::Errno;
use rt::{Cx, SpinLock, WriteGuard};
use vfs::{Attr, FileType, NewNode};

use crate::Xfs;
use crate::inode::Inode;
use crate::inode::create_batch::QueuedCreate;
use crate::namei::create::NewInode;
use crate::namei::create_locked;

/// CreateBatch that a task carries out beside its own before it gives the lock back.
const AT_ONCE: usize = 16;

/// True for what another task can make as well: it needs nothing but a name and numbers.
pub(super) fn can_wait(new: &NewInode<'_>) -> bool {
    let NewInode { node, attributes } = new;
    node.kind == FileType::Regular && node.target.is_none() && attributes.is_empty()
}

/// Creates a file as [`can_wait`] wants it, or has it created by who holds the directory's
/// lock. May park.
pub(super) fn create_in_turn(
    fs: &Xfs,
    cx: &mut Cx,
    parent: &Arc<Inode>,
    name: &[u8],
    node: &NewNode<'_>,
) -> Result<Attr, Errno> {
    let guard = match parent.rwsem.try_write() {
        Some(guard) => guard,
        None => {
            let create = Arc::new(QueuedCreate {
                name: name.into(),
                node: NewNode { target: None, ..*node },
                answer: SpinLock::named("xfs create", None),
                done: AtomicBool::new(false),
            });
            parent.creates.add(create.clone());
            match parent.rwsem.write_unless(cx, || create.is_done()) {
                Some(guard) if parent.creates.take_back(&create) => guard,
                _ => return create.answer(),
            }
        }
    };
    let created = create_checked(fs, cx, parent, name, node);
    serve_creates(fs, cx, parent, &guard);
    created
}

fn create_checked(
    fs: &Xfs,
    cx: &mut Cx,
    parent: &Arc<Inode>,
    name: &[u8],
    node: &NewNode<'_>,
) -> Result<Attr, Errno> {
    parent.check_there(cx)?;
    create_locked(fs, cx, parent, name, NewInode { node, attributes: &[] })
}

/// Carries out the creates of others, under the directory's lock.
fn serve_creates(fs: &Xfs, cx: &mut Cx, parent: &Arc<Inode>, _lock: &WriteGuard<'_, ()>) {
    for _ in 0..AT_ONCE {
        let Some(create) = parent.creates.next() else { return };
        create.finish(create_checked(fs, cx, parent, &create.name, &create.node));
    }
}
