//! Extended attributes and ACLs of the reference file system.

use std::collections::BTreeMap;

use base::{Errno, Timespec};
use vfs::acl::{self, Acl};
use vfs::{FileType, XATTR_NAME_MAX, XATTR_SIZE_MAX, XattrFlags};

use super::Node;

const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Is this a name that an attribute may have?
pub fn check(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE);
    }
    if name == acl::ACCESS || name == acl::DEFAULT {
        return Ok(());
    }
    if PREFIXES.contains(&name) {
        return Err(Errno::EINVAL);
    }
    let known = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if known { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

pub fn set(
    node: &mut Node,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
    now: Timespec,
) -> Result<(), Errno> {
    check(name)?;
    if value.len() > XATTR_SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    if name == acl::ACCESS || name == acl::DEFAULT {
        return set_acl(node, name, value, now);
    }
    let exists = node.xattrs.contains_key(name);
    if exists && flags.contains(XattrFlags::CREATE) {
        return Err(Errno::EEXIST);
    }
    if !exists && flags.contains(XattrFlags::REPLACE) {
        return Err(Errno::ENODATA);
    }
    node.xattrs.insert(name.to_vec(), value.to_vec());
    node.attr.ctime = now;
    Ok(())
}

fn set_acl(node: &mut Node, name: &[u8], value: &[u8], now: Timespec) -> Result<(), Errno> {
    if node.attr.kind == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let list = Acl::parse(value)?;
    if name == acl::DEFAULT && !node.attr.is_dir() {
        return if list.is_some() { Err(Errno::EACCES) } else { Ok(()) };
    }
    let Some(list) = list else { return remove(node, name, now) };
    if name == acl::ACCESS {
        node.attr.mode = node.attr.mode & !0o777 | list.mode_bits();
    }
    if name == acl::ACCESS && list.is_minimal() {
        node.xattrs.remove(name);
    } else {
        node.xattrs.insert(name.to_vec(), list.emit());
    }
    node.attr.ctime = now;
    Ok(())
}

pub fn remove(node: &mut Node, name: &[u8], now: Timespec) -> Result<(), Errno> {
    check(name)?;
    let existed = node.xattrs.remove(name).is_some();
    if !existed && name != acl::ACCESS && name != acl::DEFAULT {
        return Err(Errno::ENODATA);
    }
    node.attr.ctime = now;
    Ok(())
}

/// chmod: the access list follows.
pub fn follow_mode(xattrs: &mut BTreeMap<Vec<u8>, Vec<u8>>, mode: u16) {
    if let Some(value) = xattrs.get_mut(acl::ACCESS)
        && let Ok(Some(mut list)) = Acl::parse(value)
    {
        list.chmod(mode);
        *value = list.emit();
    }
}
