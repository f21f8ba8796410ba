//! Extended attributes, and the ACLs among them.

pub(crate) mod acl;
pub(crate) mod xattr;
