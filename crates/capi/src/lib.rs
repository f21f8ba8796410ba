//! `libiopath`: the functions of C over [`image`]. `include/iopath.h` is their documentation.
//!
//! # Invariant of the unsafe code
//!
//! Pointers come from C. Each function says in the header what they must be: a handle that this
//! library has given and that is not closed, a string that ends with zero, memory of the length
//! that goes with it. They are turned into references here and in `arguments`, and nowhere is
//! one kept after the call, but in the handles themselves. No panic crosses into C.
#![allow(unsafe_code)]
#![deny(missing_docs)]

mod arguments;
mod dir;
mod error;
mod file;
mod fs;
mod names;
mod types;

use std::ffi::{c_char, c_int};

pub use dir::{iopath_closedir, iopath_dir, iopath_opendir, iopath_readdir};
pub use error::iopath_last_error;
pub use file::{
    iopath_fclose, iopath_file, iopath_fstat, iopath_fsync, iopath_ftruncate, iopath_openfile,
    iopath_pread, iopath_pwrite,
};
pub use fs::{
    iopath_check, iopath_close, iopath_fs, iopath_mkfs, iopath_open, iopath_statfs, iopath_sync,
};
pub use names::{
    iopath_chmod, iopath_chown, iopath_getattr, iopath_getxattr, iopath_link, iopath_listxattr,
    iopath_mkdir, iopath_readlink, iopath_removexattr, iopath_rename, iopath_rmdir,
    iopath_setxattr, iopath_symlink, iopath_unlink, iopath_utimens,
};
pub use types::{
    iopath_dirent, iopath_mkfs_options, iopath_open_options, iopath_space, iopath_stat, iopath_time,
};

/// The version of this interface: programs that were compiled with the same number work with it.
#[unsafe(no_mangle)]
pub extern "C" fn iopath_abi_version() -> c_int {
    0
}

/// The version of the library, for people.
#[unsafe(no_mangle)]
pub extern "C" fn iopath_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
