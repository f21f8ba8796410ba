#![deny(missing_docs)]
//! devices
