//! Image files and block devices of the host: how they are opened and claimed, and the two ways in
//! which requests reach them.

mod blockdev;
mod claim;
mod file;
mod open;
mod uring;

pub use file::FileDevice;
pub use open::{
    Engine, OpenError, OpenOptions, create, create_with, open, open_part, open_unlocked,
};
pub use uring::UringDevice;
