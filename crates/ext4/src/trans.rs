//! The handles that make a change atomic, and how many blocks each operation may change.

pub(crate) mod credits;
pub(crate) mod ext4_jbd2;
