//! Blocks: which of a group are free, who gets them, and windows that are kept for a file.

pub(crate) mod balloc;
pub(crate) mod mballoc;
pub(crate) mod reservation;
