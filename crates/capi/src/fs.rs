//! Opening, making, checking and closing.

use std::ffi::{c_char, c_int};

use image::{Format, Fs, Image};

use crate::arguments::{ensure_size, path, place, shared, text};
use crate::error::{Failed, done, run};
use crate::types::{iopath_mkfs_options, iopath_open_options, iopath_space};

/// A mounted file system.
#[allow(non_camel_case_types)]
pub struct iopath_fs(pub(crate) Fs);

/// Opens an image file or block device and mounts what is on it. `options` may be NULL. `*out` is
/// closed with iopath_close.
///
/// Errors: -ENOENT, -EACCES of the host; -EBUSY: another process has it; -EUCLEAN: damaged;
/// -EOPNOTSUPP: a feature that is refused, by name in iopath_last_error.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_open(
    image: *const c_char,
    options: *const iopath_open_options,
    out: *mut *mut iopath_fs,
) -> c_int {
    done(|| {
        // SAFETY: memory of the caller.
        let out = unsafe { place(out) }?;
        // SAFETY: pointers of the caller, as the header says.
        let (image, options) = unsafe { (path(image)?, options.as_ref()) };
        let mut how = Image::options();
        if let Some(options) = options {
            ensure_size::<iopath_open_options>(options.size, "iopath_open_options")?;
            how = how.write(options.write != 0).direct(options.direct != 0);
            if options.partition != 0 {
                how = how.partition(options.partition);
            }
            if options.cache_size != 0 {
                how = how.cache_size(options.cache_size);
            }
        }
        let fs = how.open(image)?.fs()?;
        out.write(Box::into_raw(Box::new(iopath_fs(fs))));
        Ok(())
    })
}

/// Writes everything out, unmounts, and frees the handle, whatever the result.
///
/// Errors: -EBUSY: files or directories are open; the file system is unmounted when the last of
/// them is closed. -EIO, -ENOSPC: not everything could be written, and iopath_last_error says what.
///
/// # Safety
/// See the head of the header. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_close(fs: *mut iopath_fs) -> c_int {
    done(|| {
        if fs.is_null() {
            return Ok(());
        }
        // SAFETY: a handle of `iopath_open`, which nobody uses any more.
        let fs = unsafe { Box::from_raw(fs) };
        Ok(fs.0.unmount().map(drop)?)
    })
}

/// Commits all changes, and returns when they are on the image.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_sync(fs: *const iopath_fs) -> c_int {
    // SAFETY: a handle of `iopath_open`.
    done(|| Ok(unsafe { shared(fs) }?.0.sync()?))
}

/// Space and inodes.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_statfs(fs: *const iopath_fs, out: *mut iopath_space) -> c_int {
    done(|| {
        // SAFETY: memory of the caller.
        let out = unsafe { place(out) }?;
        // SAFETY: a handle of `iopath_open`.
        let space = unsafe { shared(fs) }?.0.space()?;
        let space = iopath_space {
            bytes: space.bytes,
            bytes_free: space.bytes_free,
            bytes_available: space.bytes_available,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
            block_size: space.block_size,
            name_max: space.name_max,
        };
        out.write(space);
        Ok(())
    })
}

/// Makes an image of `bytes` bytes with an empty file system. `options` may be NULL.
///
/// Errors: -EEXIST, unless overwrite is set; -EINVAL: too small; -ENOSPC of the host.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_mkfs(
    image: *const c_char,
    bytes: u64,
    options: *const iopath_mkfs_options,
) -> c_int {
    done(|| {
        // SAFETY: pointers of the caller, as the header says.
        let (image, options) = unsafe { (path(image)?, options.as_ref()) };
        let mut make = Image::create(image, bytes);
        if let Some(options) = options {
            ensure_size::<iopath_mkfs_options>(options.size, "iopath_mkfs_options")?;
            make = make.overwrite(options.overwrite != 0);
            if options.xfs != 0 {
                make = make.format(Format::Xfs);
            }
            if !options.label.is_null() {
                // SAFETY: a string of the caller.
                make = make.label(unsafe { text(options.label) }?);
            }
        }
        Ok(make.make().map(drop)?)
    })
}

/// Checks an image without changing it: how many findings there are, 0 where it is clean. The first
/// of them is in iopath_last_error.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_check(image: *const c_char) -> i64 {
    let mut first = None;
    let findings = run(|| {
        // SAFETY: a string of the caller.
        let report = Image::open(unsafe { path(image) }?)?.check()?;
        first =
            report.findings.first().map(|one| format!("{}: {}: {}", one.rule, one.at, one.detail));
        Ok(match report.clean {
            true => 0,
            false => (report.findings.len() as u64 + report.more).max(1) as i64,
        })
    });
    if let (true, Some(first)) = (findings > 0, first) {
        // Only its words are wanted.
        let _number = run(|| Err(Failed::number(libc::EUCLEAN, first)));
    }
    findings
}
