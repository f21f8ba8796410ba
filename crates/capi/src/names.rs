//! Names and attributes.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use image::{DirBuilder, Fs};

use crate::arguments::{bytes, bytes_mut, path, place, shared, text};
use crate::error::{Failed, done, run};
use crate::fs::iopath_fs;
use crate::types::{iopath_stat, iopath_time, system_time};

/// Runs a call on one path.
///
/// # Safety
/// A handle of `iopath_open`, and a string of the caller.
unsafe fn on<T>(
    fs: *const iopath_fs,
    name: *const c_char,
    work: impl FnOnce(&Fs, &Path) -> image::Result<T>,
) -> Result<T, Failed> {
    // SAFETY: the caller's promise.
    let (fs, name) = unsafe { (shared(fs)?, path(name)?) };
    Ok(work(&fs.0, name)?)
}

/// The attributes of a path; where `follow` is 0, of a symbolic link itself.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_getattr(
    fs: *const iopath_fs,
    name: *const c_char,
    follow: c_int,
    out: *mut iopath_stat,
) -> c_int {
    done(|| {
        // SAFETY: memory of the caller.
        let out = unsafe { place(out) }?;
        let stat = |fs: &Fs, name: &Path| match follow {
            0 => fs.symlink_metadata(name),
            _ => fs.metadata(name),
        };
        // SAFETY: pointers of the caller, as the header says.
        let meta = unsafe { on(fs, name, stat) }?;
        out.write((&meta).into());
        Ok(())
    })
}

/// Makes a directory.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_mkdir(
    fs: *const iopath_fs,
    name: *const c_char,
    mode: u32,
) -> c_int {
    let make = |fs: &Fs, name: &Path| {
        DirBuilder::new().recursive(false).mode((mode & 0o7777) as u16).create(fs, name)
    };
    // SAFETY: pointers of the caller, as the header says.
    done(|| unsafe { on(fs, name, make) })
}

/// Removes a name that is no directory.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_unlink(fs: *const iopath_fs, name: *const c_char) -> c_int {
    // SAFETY: pointers of the caller, as the header says.
    done(|| unsafe { on(fs, name, |fs, name| fs.remove_file(name)) })
}

/// Removes an empty directory.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_rmdir(fs: *const iopath_fs, name: *const c_char) -> c_int {
    // SAFETY: pointers of the caller, as the header says.
    done(|| unsafe { on(fs, name, |fs, name| fs.remove_dir(name)) })
}

/// Renames; what has the new name is replaced.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_rename(
    fs: *const iopath_fs,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: pointers of the caller, as the header says.
        let to = unsafe { path(to) }?;
        // SAFETY: as above.
        unsafe { on(fs, from, |fs, from| fs.rename(from, to)) }
    })
}

/// Gives a file a further name.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_link(
    fs: *const iopath_fs,
    original: *const c_char,
    link: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: pointers of the caller, as the header says.
        let link = unsafe { path(link) }?;
        // SAFETY: as above.
        unsafe { on(fs, original, |fs, original| fs.hard_link(original, link)) }
    })
}

/// Makes a symbolic link to `target`, which need not exist.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_symlink(
    fs: *const iopath_fs,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: pointers of the caller, as the header says.
        let target = unsafe { path(target) }?;
        // SAFETY: as above.
        unsafe { on(fs, link, |fs, link| fs.symlink(target, link)) }
    })
}

/// The target of a symbolic link: its length, which may be more than `count`; as much of it as
/// there is room for is copied, without a zero.
///
/// # Safety
/// See the head of the header; `buffer` is memory of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_readlink(
    fs: *const iopath_fs,
    name: *const c_char,
    buffer: *mut u8,
    count: usize,
) -> i64 {
    run(|| {
        // SAFETY: pointers of the caller, as the header says.
        let target = unsafe { on(fs, name, |fs, name| fs.read_link(name)) }?;
        // SAFETY: as above.
        let buffer = unsafe { bytes_mut(buffer, count) }?;
        Ok(copy(target.as_os_str().as_bytes(), buffer))
    })
}

/// Copies as much as there is room for; returns how much there is.
fn copy(value: &[u8], buffer: &mut [u8]) -> i64 {
    let len = value.len().min(buffer.len());
    buffer[..len].copy_from_slice(&value[..len]);
    value.len() as i64
}

/// Sets permission, set-id and sticky bits.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_chmod(
    fs: *const iopath_fs,
    name: *const c_char,
    mode: u32,
) -> c_int {
    // SAFETY: pointers of the caller, as the header says.
    done(|| unsafe { on(fs, name, |fs, name| fs.set_mode(name, (mode & 0o7777) as u16)) })
}

/// Sets owner and group; (uint32_t)-1 leaves what is there. Where `follow` is 0, of a symbolic link
/// itself.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_chown(
    fs: *const iopath_fs,
    name: *const c_char,
    uid: u32,
    gid: u32,
    follow: c_int,
) -> c_int {
    let id = |id: u32| (id != u32::MAX).then_some(id);
    let chown = |fs: &Fs, name: &Path| match follow {
        0 => fs.lchown(name, id(uid), id(gid)),
        _ => fs.chown(name, id(uid), id(gid)),
    };
    // SAFETY: pointers of the caller, as the header says.
    done(|| unsafe { on(fs, name, chown) })
}

/// Sets the times of the last read and of the last change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_utimens(
    fs: *const iopath_fs,
    name: *const c_char,
    atime: *const iopath_time,
    mtime: *const iopath_time,
) -> c_int {
    done(|| {
        // SAFETY: pointers of the caller, as the header says.
        let times = unsafe { (system_time(shared(atime)?), system_time(shared(mtime)?)) };
        let (Some(atime), Some(mtime)) = times else {
            return Err(Failed::argument("a time that is none"));
        };
        // SAFETY: as above.
        unsafe { on(fs, name, |fs, name| fs.set_times(name, atime, mtime)) }
    })
}

/// The value of an extended attribute, `key` with its prefix (user.x): its length, which may be
/// more than `count`; as much of it as there is room for is copied.
///
/// # Safety
/// See the head of the header; `buffer` is memory of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_getxattr(
    fs: *const iopath_fs,
    name: *const c_char,
    key: *const c_char,
    buffer: *mut u8,
    count: usize,
) -> i64 {
    run(|| {
        // SAFETY: pointers of the caller, as the header says.
        let (key, buffer) = unsafe { (text(key)?, bytes_mut(buffer, count)?) };
        // SAFETY: as above.
        let value = unsafe { on(fs, name, |fs, name| fs.xattr(name, key)) }?;
        Ok(copy(&value, buffer))
    })
}

/// The names of all extended attributes, with their prefixes and each with a zero behind it, in no
/// particular order: their length in bytes, which may be more than `count`; as much of it as there
/// is room for is copied. The last name may then be cut. A file without attributes has 0 bytes.
///
/// # Safety
/// See the head of the header; `buffer` is memory of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_listxattr(
    fs: *const iopath_fs,
    name: *const c_char,
    buffer: *mut u8,
    count: usize,
) -> i64 {
    run(|| {
        // SAFETY: pointers of the caller, as the header says.
        let buffer = unsafe { bytes_mut(buffer, count)? };
        // SAFETY: as above.
        let mut names = unsafe { on(fs, name, |fs, name| fs.xattrs(name)) }?;
        names.iter_mut().for_each(|name| name.push(0));
        Ok(copy(&names.concat(), buffer))
    })
}

/// Sets an extended attribute, `key` with its prefix (user.x).
///
/// # Safety
/// See the head of the header; `value` is memory of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_setxattr(
    fs: *const iopath_fs,
    name: *const c_char,
    key: *const c_char,
    value: *const u8,
    count: usize,
) -> c_int {
    done(|| {
        // SAFETY: pointers of the caller, as the header says.
        let (key, value) = unsafe { (text(key)?, bytes(value, count)?) };
        // SAFETY: as above.
        unsafe { on(fs, name, |fs, name| fs.set_xattr(name, key, value)) }
    })
}

/// Removes an extended attribute, `key` with its prefix (user.x).
///
/// Errors: -ENODATA: the file has none of this name.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_removexattr(
    fs: *const iopath_fs,
    name: *const c_char,
    key: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: pointers of the caller, as the header says.
        let key = unsafe { text(key)? };
        // SAFETY: as above.
        unsafe { on(fs, name, |fs, name| fs.remove_xattr(name, key)) }
    })
}
