#![deny(missing_docs)]
#![forbid(unsafe_code)]
//! bio, request, queue.

mod bio;
mod device;
mod error;

pub use bio::{Bio, BioFlags, BioResult, EndIo, Op, Segment, Segments, bytes_of};
pub use device::{Device, DeviceInfo, DeviceIo};
pub use error::{Cause, DeviceError};
