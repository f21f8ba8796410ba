//! Hash maps with a fixed hasher, so that no run depends on a random seed of the process.
//!
//! Their order of iteration is still an accident of layout: never iterate one; use a `BTreeMap`
//! where order can be seen.

pub use rustc_hash::FxHasher;

/// Builds the fixed hasher.
pub type FixedState = rustc_hash::FxBuildHasher;
/// A hash map with a fixed hasher. Do not iterate.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// A hash set with a fixed hasher. Do not iterate.
pub type HashSet<K> = hashbrown::HashSet<K, FixedState>;
pub use hashbrown::hash_map;
