//! Which members of an archive are copied, where several archives make one tree.

use base::map::HashMap;

/// The names of a node; the first is the one that it is made by.
pub type Names = Box<[Box<[u8]>]>;

/// Members of one archive that are left in the end, by their number among those that are not
/// excluded.
#[derive(Debug, Default)]
pub struct Picks {
    names: HashMap<u64, Names>,
}

impl Picks {
    /// A member goes under these names.
    pub fn insert(&mut self, member: u64, names: Names) {
        self.names.insert(member, names);
    }

    /// The names of a member; none if something later replaced or removed it.
    pub fn names(&self, member: u64) -> Option<&Names> {
        self.names.get(&member)
    }
}
