//! Extended attributes, the ACLs and encryption contexts among them, and the content that lies in
//! one.

pub(crate) mod acl;
pub(crate) mod context;
pub(crate) mod inline;
pub(crate) mod xattr;
