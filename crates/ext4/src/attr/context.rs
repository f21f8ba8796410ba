//! The encryption context of an inode: an attribute that programs do not see.

use std::sync::Arc;

use base::Errno;
use fscrypt::{Context, Policy};
use rt::Cx;
use vfs::{FileType, XattrFlags};

use super::xattr::{self, Change, Name};
use crate::crypto::InodeCrypt;
use crate::format::InodeFlags;
use crate::format::xattr::{CONTEXT_INDEX, CONTEXT_NAME, Xattr};
use crate::inode::{Inode, Inodes};
use crate::trans::credits;

/// The attribute's name.
const NAME: Name<'static> = Name { index: CONTEXT_INDEX, rest: CONTEXT_NAME };

/// Finds out how an inode that was just read is encrypted, if it is, and whether it has verity. May
/// park.
///
/// # Errors
/// `EOPNOTSUPP` encrypted content lies in the inode, which Linux never does; `EUCLEAN`,
/// `EIO` its attributes cannot be read.
pub(crate) fn load(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
    let flags = inode.with(cx, |core| core.flags);
    if flags.contains(InodeFlags::VERITY) && inode.is_regular(cx) {
        inode.set_verity();
    }
    if !flags.contains(InodeFlags::ENCRYPT) {
        return Ok(());
    }
    if flags.contains(InodeFlags::INLINE_DATA) {
        let text = "encrypted content in the inode is not supported";
        fs.sb.note_read_error(format!("inode {}: {text}", inode.ino));
        return Err(Errno::EOPNOTSUPP);
    }
    let attribute = xattr::read(fs, cx, inode, NAME)?;
    inode.set_crypt(InodeCrypt::new(&fs.sb, inode.ino.0 as u32, attribute.as_deref()));
    Ok(())
}

/// The context of something new of type `kind` in `dir`: its policy and random bytes of its own;
/// `None` where that is not encrypted.
///
/// # Errors
/// `ENOKEY` the directory's key is not at hand; `EUCLEAN` its context is damaged.
pub(crate) fn of_new(cx: &mut Cx, dir: &Inode, kind: FileType) -> Result<Option<Context>, Errno> {
    let Some(crypt) = dir.crypt() else { return Ok(None) };
    let policy = crypt.key()?.context().policy;
    Ok(is_encryptable(kind).then(|| Context { policy, nonce: cx.random_uuid() }))
}

/// The attribute of a new inode.
pub(crate) fn attribute(context: &Context) -> Xattr {
    Xattr { name_index: NAME.index, name: NAME.rest.to_vec(), value: context.emit(), large: None }
}

/// Makes a new inode encrypted, before anything is put into it. The caller writes it, with its
/// [`attribute`].
pub(crate) fn begin(fs: &Inodes, cx: &Cx, inode: &Inode, context: Option<&Context>) {
    let Some(context) = context else { return };
    inode.with(cx, |core| {
        core.flags |= InodeFlags::ENCRYPT;
        core.may_inline = false;
    });
    inode.set_crypt(InodeCrypt::new(&fs.sb, inode.ino.0 as u32, Some(&context.emit())));
}

/// Files without content, pipes and devices are not encrypted.
fn is_encryptable(kind: FileType) -> bool {
    matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink)
}

/// Whether `dir` may have a name of `inode`: in an encrypted directory everything that can be is
/// encrypted by its policy.
pub(crate) fn permits(cx: &Cx, dir: &Inode, inode: &Inode) -> bool {
    let Some(crypt) = dir.crypt() else { return true };
    let policy = inode.crypt().and_then(InodeCrypt::policy);
    !is_encryptable(inode.kind(cx)) || policy.is_some() && policy == crypt.policy()
}

/// Gives an empty directory, locked by the caller, a policy. Its key is at hand. May park.
///
/// # Errors
/// `EEXIST` it has another one; `ENOSPC`, `EDQUOT`, `EUCLEAN`, `EIO`.
pub(crate) fn set_policy(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    policy: Policy,
) -> Result<(), Errno> {
    if let Some(crypt) = inode.crypt() {
        return if crypt.policy() == Some(&policy) { Ok(()) } else { Err(Errno::EEXIST) };
    }
    let value = Context { policy, nonce: cx.random_uuid() }.emit();
    let more = credits::INODE;
    xattr::with_value(fs, cx, inode, Some(&value), more, &mut |cx, edit, value| {
        xattr::set_in(edit, cx, Change { name: NAME, value, flags: XattrFlags::CREATE })?;
        let now = fs.sb.now(cx);
        inode.with(cx, |core| {
            core.flags |= InodeFlags::ENCRYPT;
            core.ctime = now;
        });
        fs.mark_dirty(cx, edit.handle, inode)
    })?;
    inode.set_crypt(InodeCrypt::new(&fs.sb, inode.ino.0 as u32, Some(&value)));
    Ok(())
}
