//! Image files and block devices of the host: how they are opened and claimed, and the two ways in
//! which requests reach them. Where the host is not Linux: image files by the standard library.

#[cfg(target_os = "linux")]
mod blockdev;
#[cfg(target_os = "linux")]
mod claim;
#[cfg(any(test, not(target_os = "linux")))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod file;
#[cfg(target_os = "linux")]
mod open;
mod options;
#[cfg(all(target_os = "linux", feature = "io-uring"))]
mod uring;

#[cfg(target_os = "linux")]
pub use claim::wait_for_loop;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{FileDevice, create, create_with, open, open_part, open_unlocked};
#[cfg(target_os = "linux")]
pub use file::FileDevice;
#[cfg(target_os = "linux")]
pub use open::{create, create_with, open, open_part, open_unlocked};
pub use options::{Engine, OpenError, OpenOptions};
#[cfg(all(target_os = "linux", feature = "io-uring"))]
pub use uring::UringDevice;
