//! The commands, one file each: `Options` is its command line, `run` carries it out.

pub mod cat;
pub mod check;
pub mod chmod;
pub mod chown;
pub mod completions;
pub mod cp;
pub mod demo;
pub mod df;
pub mod info;
pub mod ln;
pub mod ls;
pub mod man;
pub mod manifest;
pub mod mkdir;
pub mod mkfs;
pub mod mv;
pub mod replay;
pub mod rm;
pub mod stat;
pub mod touch;
pub mod tree;
pub mod truncate;
pub mod xattr;
