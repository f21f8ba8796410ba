//! Control groups: whose share of a device the I/O of a task counts against.

/// A control group, by a number of the caller's. Groups do not nest: all lie in the root group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cgroup(pub u32);

impl Cgroup {
    /// The group of a task that nobody put into another one.
    pub const ROOT: Cgroup = Cgroup(0);
}
