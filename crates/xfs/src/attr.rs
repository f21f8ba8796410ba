//! Extended attributes, read and written, in all forms.
//!
//! ACLs are attributes of the `trusted` space under fixed names; they are shown in the wire form
//! under the names that system calls use.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;

use crate::Xfs;
use crate::bmap::{self, Which};
use crate::buf::meta::{Meta, ReadRequest};
use crate::da_btree::{self, LeafBlock};
use crate::error::Fault;
use crate::format::attr::{AttrFlags, NAMESPACE, PARENT_VALUE, attr_hash, parse_sf};
use crate::format::attr_leaf::{AttrLeaf, LeafAttr, Value};
use crate::format::hash::{Case, hash};
use crate::format::inode::ForkFormat;
use crate::format::{At, CorruptKind, Kind, da, remote};
use crate::inode::Inode;

mod acl;
mod attribute;
mod edit;
mod fork;
mod leaf;
pub(crate) mod parent;
mod recover;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use fork::local_max;
pub(crate) use recover::recover_attribute;
pub(crate) use write::{Change, apply, chmod, fit_inside, of_new, remove, room_for, set};

/// The value of a parent pointer, as it lies on the disk.
pub(crate) type ParentValue = [u8; PARENT_VALUE];

/// The name of an attribute on the disk: its space and what follows the prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    pub space: AttrFlags,
    pub rest: Vec<u8>,
    /// The value of a parent pointer: it is part of what it is found by.
    pub parent: Option<ParentValue>,
}

impl Name {
    /// The name of a system call, with its prefix.
    ///
    /// # Errors
    /// `EOPNOTSUPP` unknown prefix; `EINVAL` nothing behind it; `ERANGE` too long.
    pub fn parse(name: &[u8]) -> Result<Name, Errno> {
        if name.len() > vfs::XATTR_NAME_MAX {
            return Err(Errno::ERANGE);
        }
        if let Some(rest) = acl::disk_name(name) {
            return Ok(Name::new(AttrFlags::ROOT, rest));
        }
        let dot = name.iter().position(|&byte| byte == b'.').ok_or(Errno::EOPNOTSUPP)?;
        let (prefix, rest) = (&name[..dot], &name[dot + 1..]);
        let space = match prefix {
            b"user" => AttrFlags::empty(),
            b"trusted" => AttrFlags::ROOT,
            b"security" => AttrFlags::SECURE,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        if rest.is_empty() {
            return Err(Errno::EINVAL);
        }
        Ok(Name::new(space, rest))
    }

    fn new(space: AttrFlags, rest: &[u8]) -> Name {
        Name { space, rest: rest.to_vec(), parent: None }
    }

    /// The hash under which it is found; `case` is that of names in directories.
    pub fn hash(&self, case: Case) -> u32 {
        attr_hash(case, self.space, &self.rest, self.parent.as_ref().map(|value| &value[..]))
    }

    /// The name that a system call would show. None for what users do not see.
    pub fn shown(flags: AttrFlags, rest: &[u8]) -> Option<Vec<u8>> {
        if flags.contains(AttrFlags::INCOMPLETE) {
            return None;
        }
        let space = flags & NAMESPACE;
        let prefix: &[u8] = if space == AttrFlags::ROOT {
            if let Some(name) = acl::shown_name(rest) {
                return Some(name.to_vec());
            }
            b"trusted."
        } else if space == AttrFlags::SECURE {
            b"security."
        } else if space.is_empty() {
            b"user."
        } else {
            return None;
        };
        Some([prefix, rest].concat())
    }
}

/// Attributes of one inode.
struct Attrs<'a> {
    fs: &'a Xfs,
    inode: &'a Arc<Inode>,
}

impl Attrs<'_> {
    fn at(&self, block: u64) -> At {
        At::InodeBlock(self.inode.ino, block)
    }

    /// Reads a block of the attribute fork.
    fn block(
        &self,
        cx: &mut Cx,
        block: u64,
        kinds: &'static [Kind],
    ) -> Result<(Kind, Meta), Fault> {
        let runs =
            self.inode.extents(cx, Which::Attr, |list| bmap::runs(list, block..block + 1))?;
        let hole = CorruptKind::AttrHole { block };
        let runs = runs.ok_or_else(|| hole.at(At::Inode(self.inode.ino)))?;
        let want = ReadRequest { kinds, owner: Some(self.inode.ino.0), at: self.at(block) };
        self.fs.reader.read(cx, &runs, &want)
    }

    /// Shows the attributes of leaves from the one of `hash` on, until `look` returns false.
    fn visit_leaves(
        &self,
        cx: &mut Cx,
        hash: u32,
        look: &mut dyn FnMut(&LeafAttr<'_>) -> bool,
    ) -> Result<(), Fault> {
        let at = |block| self.at(block);
        let read = |block| self.block(cx, block, &[Kind::AttrLeaf, Kind::DaNode]);
        let leaf = da_btree::find_leaf(0, hash, at, read)?;
        let Some(LeafBlock { mut block, mut data, .. }) = leaf else { return Ok(()) };
        let mut left = self.inode.with(cx, |state| state.core.blocks);
        loop {
            let leaf = AttrLeaf::parse(&data, self.at(block))?;
            if !leaf.iter().skip(leaf.lower_bound(hash)).all(|attr| look(&attr)) {
                return Ok(());
            }
            let right = da::siblings(&data).right;
            if right == 0 {
                return Ok(());
            }
            left = left.checked_sub(1).ok_or_else(|| {
                CorruptKind::DaLoop { block: right }.at(At::Inode(self.inode.ino))
            })?;
            block = u64::from(right);
            (_, data) = self.block(cx, block, &[Kind::AttrLeaf])?;
        }
    }

    /// The form of the attribute fork; none if there is no attribute.
    fn format(&self, cx: &Cx) -> Option<ForkFormat> {
        self.inode.with(cx, |state| {
            let core = &state.core;
            let none = core.forkoff == 0
                || (core.attr_format == ForkFormat::Extents && core.attr_extents == 0);
            (!none).then_some(core.attr_format)
        })
    }

    fn list(&self, cx: &mut Cx) -> Result<Vec<Vec<u8>>, Fault> {
        let mut names = Vec::new();
        match self.format(cx) {
            None => {}
            Some(ForkFormat::Local) => {
                let forks = self.inode.forks.read(cx);
                let attrs = parse_sf(&forks.attr.bytes, At::Inode(self.inode.ino))?;
                names.extend(attrs.iter().filter_map(|attr| Name::shown(attr.flags, attr.name)));
            }
            Some(_) => self.visit_leaves(cx, 0, &mut |attr| {
                names.extend(Name::shown(attr.flags, attr.name));
                true
            })?,
        }
        Ok(names)
    }

    fn get(&self, cx: &mut Cx, name: &Name) -> Result<Option<Vec<u8>>, Fault> {
        let matches = |flags: AttrFlags, found: &[u8]| {
            found == name.rest
                && flags & NAMESPACE == name.space
                && !flags.contains(AttrFlags::INCOMPLETE)
        };
        match self.format(cx) {
            None => Ok(None),
            Some(ForkFormat::Local) => {
                let forks = self.inode.forks.read(cx);
                let attrs = parse_sf(&forks.attr.bytes, At::Inode(self.inode.ino))?;
                let found = attrs.iter().find(|attr| matches(attr.flags, attr.name));
                Ok(found.map(|attr| attr.value.to_vec()))
            }
            Some(_) => {
                let hash = hash(&name.rest);
                let mut found = None;
                self.visit_leaves(cx, hash, &mut |attr| {
                    if attr.hash == hash && matches(attr.flags, attr.name) {
                        found = Some(match attr.value {
                            Value::Local(value) => Ok(value.to_vec()),
                            Value::Remote { block, len } => Err((block, len)),
                        });
                    }
                    found.is_none() && attr.hash == hash
                })?;
                match found {
                    Some(Err((block, len))) => self.remote_value(cx, block, len).map(Some),
                    Some(Ok(value)) => Ok(Some(value)),
                    None => Ok(None),
                }
            }
        }
    }

    /// Reads a value that has blocks of its own.
    fn remote_value(&self, cx: &mut Cx, block: u32, len: u32) -> Result<Vec<u8>, Fault> {
        let (len, mut block) = (len as usize, u64::from(block));
        let mut value = Vec::with_capacity(len);
        while value.len() < len {
            let (_, data) = self.block(cx, block, &[Kind::AttrRemote])?;
            let at = self.at(block);
            let left = value.len() as u64..len as u64;
            let piece = remote::piece(&data, left, self.fs.geometry(), at)?;
            if piece.is_empty() || value.len() + piece.len() > len {
                return Err(CorruptKind::RemoteBytes { found: piece.len() as u64 }.at(at).into());
            }
            value.extend_from_slice(piece);
            block += 1;
        }
        Ok(value)
    }
}

/// True if an inode has no attributes that users see, which no change of an attribute shows
/// halfway. Asked without the inode's `rwsem`: each name that is made by its path asks its
/// directory for a default ACL, and would wait as a reader behind those who make names there.
fn has_none(cx: &mut Cx, inode: &Inode) -> bool {
    let (forkoff, local) =
        inode.with(cx, |state| (state.core.forkoff, state.core.attr_format == ForkFormat::Local));
    forkoff == 0 || local && parent::has_nothing_else(&inode.forks.read(cx))
}

/// The names of all attributes of an inode, with their prefixes.
pub(crate) fn list(fs: &Xfs, cx: &mut Cx, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
    let inode = fs.iget(cx, ino)?;
    if has_none(cx, &inode) {
        return Ok(Vec::new());
    }
    let guard = inode.lock_shared(cx)?;
    let names = Attrs { fs, inode: &inode }.list(cx);
    drop(guard);
    names.map_err(|fault| fs.fault(fault))
}

/// The value of an attribute.
pub(crate) fn get(fs: &Xfs, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let inode = fs.iget(cx, ino)?;
    let wanted = Name::parse(name)?;
    if has_none(cx, &inode) {
        return Err(Errno::ENODATA);
    }
    let guard = inode.lock_shared(cx)?;
    let value = Attrs { fs, inode: &inode }.get(cx, &wanted);
    drop(guard);
    let value = value.map_err(|fault| fs.fault(fault))?.ok_or(Errno::ENODATA)?;
    match acl::disk_name(name) {
        Some(_) => acl::from_disk(&value).map(|acl| acl.emit()),
        None => Ok(value),
    }
}
