//! The credentials of a task.

use std::sync::Arc;

/// The identity under which a task's operations are checked, as Linux's `struct cred`. A spawned
/// task inherits its parent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// Effective user id, also used for file access.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups, in any order.
    pub groups: Arc<[u32]>,
    /// Permission bits taken away from new files (low 9 bits).
    pub umask: u32,
}

impl Cred {
    /// User and group 0, no supplementary groups, umask 022.
    pub fn root() -> Cred {
        Cred::user(0, 0)
    }

    /// User `uid` with the single group `gid`, umask 022.
    pub fn user(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: Arc::default(), umask: 0o022 }
    }

    /// True for user 0, whom permission checks let pass.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// True where `gid` is the group or one of the supplementary groups.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

impl Default for Cred {
    fn default() -> Cred {
        Cred::root()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_the_group_and_the_supplementary_ones() {
        let cred = Cred { groups: Arc::from([7, 9]), ..Cred::user(1, 2) };
        assert!(cred.in_group(2) && cred.in_group(9) && !cred.in_group(1));
        assert!(Cred::default().is_root() && !cred.is_root());
    }
}
