//! Removes all attributes of an inode that is freed.

use std::sync::Arc;

use base::Errno;
use rt::Cx;

use super::value::{self, Dropped, Totals};
use super::{CREDITS, Edit, block, charge, load, load_inside, store_inside, visit_locked};
use crate::inode::{Inode, Inodes};
use crate::trans::credits;

/// Gives up all attributes of an inode that is being freed: [`CREDITS`], and for each value in an
/// inode a reference ([`release_values`] leaves none of these). The caller writes the inode.
///
/// # Errors
/// `EUCLEAN`, `EIO`.
pub(crate) fn delete_inode(edit: &mut Edit, cx: &mut Cx) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    // Whoever comes later finds the inode dead.
    let _guard = inode.xattr_lock.lock(cx);
    let has_block = inode.with(cx, |core| core.file_acl) != 0;
    let held = match fs.sb.geometry.large_values() && !inode.with(cx, |core| core.fresh) {
        true => load(fs, cx, inode)?,
        false => Default::default(),
    };
    if has_block {
        block::replace(edit, cx, &[])?;
    }
    let totals = Totals::of(&fs.sb.geometry, held.0.iter().chain(&held.1));
    if totals.count > 0 {
        store_inside(edit, cx, &held.0, &[])?;
        charge(cx, inode, totals, Totals::default());
    }
    Ok(())
}

/// Asked before the last name of an inode is taken: whether all its values can be let go of. No
/// handle is open.
///
/// # Errors
/// `EOPNOTSUPP` one has Lustre's older form; `EUCLEAN`, `EIO`.
pub(crate) fn check_freeing(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
    if !fs.sb.geometry.large_values() {
        return Ok(());
    }
    let _guard = inode.xattr_lock.lock(cx);
    let mut values = Vec::new();
    visit_locked(fs, cx, inode, &mut |entry| {
        values.extend(entry.large.map(|large| (entry.name.to_vec(), large)));
    })?;
    let mut each = values.iter();
    each.try_for_each(|(name, large)| value::refuse_old_form(fs, cx, inode, name, large))
}

/// Whether an inode itself names values in other inodes: then it is not freed in the handle that
/// takes its last name. The caller holds its `xattr_lock`.
///
/// # Errors
/// `EUCLEAN`, `EIO`.
pub(crate) fn names_values(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<bool, Errno> {
    let inside =
        if fs.sb.geometry.large_values() { load_inside(fs, cx, inode)? } else { Vec::new() };
    Ok(inside.iter().any(|xattr| xattr.large.is_some()))
}

/// Lets go of the values in other inodes that an inode names, in a handle for each: it is dead and
/// an orphan, so that a power cut in between is finished by the next mount. No handle is open.
///
/// # Errors
/// `EUCLEAN`, `EIO`, `EROFS`.
pub(crate) fn release_values(fs: &Inodes, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
    while fs.sb.geometry.large_values() {
        let mut count = 0;
        {
            let _guard = inode.xattr_lock.lock(cx);
            visit_locked(fs, cx, inode, &mut |entry| count += u32::from(entry.large.is_some()))?;
        }
        if count == 0 {
            break;
        }
        // Where sharers let go of the block meanwhile it may be ours alone at last.
        let need = CREDITS + credits::INODE + 2 * value::REFERENCE;
        let mut handle = fs.sb.journal_start(cx, need)?;
        let mut dropped = Dropped::default();
        let mut edit = Edit { fs, handle: &mut handle, inode, dropped: &mut dropped };
        let result = release_one(&mut edit, cx);
        let stopped = handle.stop(cx);
        let freed = dropped.free(fs, cx);
        result.and(stopped).and(freed)?;
    }
    Ok(())
}

fn release_one(edit: &mut Edit, cx: &mut Cx) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    let _guard = inode.xattr_lock.lock(cx);
    let (inside, outside) = load(fs, cx, inode)?;
    let before = Totals::of(&fs.sb.geometry, inside.iter().chain(&outside));
    if let Some(at) = inside.iter().position(|xattr| xattr.large.is_some()) {
        let mut left = inside.clone();
        left.remove(at);
        store_inside(edit, cx, &inside, &left)?;
    } else {
        block::shrink(edit, cx)?;
    }
    let (inside, outside) = load(fs, cx, inode)?;
    charge(cx, inode, before, Totals::of(&fs.sb.geometry, inside.iter().chain(&outside)));
    fs.mark_dirty(cx, edit.handle, inode)
}
