//! Names on ext2, ext3 and ext4: directories of all sizes, hash trees, attributes, ACLs; on images
//! of mke2fs, judged by e2fsck after every test and by the kernel's mount in some.

mod acls;
mod collisions;
mod crash;
mod damage;
mod full;
mod kernel;
mod large;
mod links;
mod listing;
mod model;
mod support;
mod xattrs;
