//! Extended attributes, the ACLs among them, and the content that lies in one.

pub(crate) mod acl;
pub(crate) mod inline;
pub(crate) mod xattr;
