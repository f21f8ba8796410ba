//! Ground of iopath.
