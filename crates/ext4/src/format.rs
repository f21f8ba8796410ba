//! The on-disk format: raw little-endian structures, validated values, checksums.
//!
//! *Raw* structures keep the kernel's field names and are views over a cached block without a copy;
//! *valid* values use plain words. `parse` and `emit` are the only doors between the two.
