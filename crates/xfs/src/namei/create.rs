//! New inodes.

use std::sync::Arc;

use base::Errno;
use rt::Cx;
use vfs::{FileType, NewNode};

use crate::Xfs;
use crate::attr::parent::{self, NameIn, change_parent};
use crate::attr::{self, Change};
use crate::bmap::{Fork, Forks};
use crate::error::Result;
use crate::format::inode::{CORE_SIZE, Flags, Flags2, ForkFormat, InodeCore};
use crate::format::{Geometry, dir_sf, remote, time};
use crate::fs::Resources;
use crate::inode::{Inode, State};
use crate::log::dquot_item::Owners;
use crate::log::inode_item::InodeFields;
use crate::symlink::write_target;
use crate::trans::Trans;

/// What is to be created.
#[derive(Clone, Copy)]
pub(crate) struct NewInode<'a> {
    pub node: &'a NewNode<'a>,
    /// The attributes that it has from the beginning.
    pub attributes: &'a [Change],
}

/// Where a new inode is made.
#[derive(Clone, Copy)]
pub(crate) struct InodePlace<'a> {
    /// The directory that it is to be near to.
    pub parent: &'a Inode,
    /// Its name there, if it gets one at once.
    pub name: Option<&'a [u8]>,
}

/// Blocks of the target of a symbolic link that does not fit into its inode, beside attributes
/// where it has some.
pub(crate) fn target_blocks(geometry: &Geometry, node: &NewNode<'_>, attributes: bool) -> u64 {
    let room = match attributes {
        _ if geometry.features.parent() => parent::DATA_ROOM,
        true => attr::local_max(geometry.inode_size),
        false => geometry.inode_size as usize - CORE_SIZE,
    };
    match node.target {
        Some(target) if target.len() > room => {
            remote::blocks(target.len() as u64, geometry.block_size as usize)
        }
        _ => 0,
    }
}

/// Bits of the parts of a device number that the kernel takes; an inode has room for 14 and 18.
const MAJOR_BITS: u32 = 9;
const MINOR_BITS: u32 = 18;

/// Checks what a new node is to hold.
///
/// # Errors
/// `EINVAL` a symbolic link without a target, or with a zero byte in it; `ENOENT` an empty one;
/// `ENAMETOOLONG` one of 1,024 bytes or more; `EINVAL` a device number that is too large.
pub(crate) fn check_node(node: &NewNode<'_>) -> std::result::Result<(), Errno> {
    match (node.kind, node.target) {
        (FileType::Symlink, None) => Err(Errno::EINVAL),
        (FileType::Symlink, Some([])) => Err(Errno::ENOENT),
        (FileType::Symlink, Some(target)) if target.len() as u64 >= remote::SYMLINK_MAX => {
            Err(Errno::ENAMETOOLONG)
        }
        (FileType::Symlink, Some(target)) if target.contains(&0) => Err(Errno::EINVAL),
        (FileType::CharDevice | FileType::BlockDevice, _)
            if vfs::major(node.rdev) >= 1 << MAJOR_BITS
                || vfs::minor(node.rdev) >= 1 << MINOR_BITS =>
        {
            Err(Errno::EINVAL)
        }
        _ => Ok(()),
    }
}

/// What a new inode takes over from its directory. `realtime`: there is a realtime section.
fn inherit(parent: &InodeCore, core: &mut InodeCore, realtime: bool) {
    if parent.flags.contains(Flags::PROJINHERIT) {
        core.project = parent.project;
    }
    let directory = core.file_type() == 0x4000;
    if !directory && core.file_type() != 0x8000 {
        return;
    }
    let mut flags =
        Flags::NOATIME | Flags::NODUMP | Flags::SYNC | Flags::NODEFRAG | Flags::FILESTREAM;
    if directory {
        flags |= Flags::PROJINHERIT | Flags::EXTSZINHERIT | Flags::RTINHERIT;
    }
    core.flags = parent.flags & flags;
    if !directory {
        let asked = |flag| parent.flags.contains(flag);
        core.flags.set(Flags::REALTIME, realtime && asked(Flags::RTINHERIT));
        core.flags.set(Flags::EXTSIZE, asked(Flags::EXTSZINHERIT));
    }
    if core.flags.intersects(Flags::EXTSZINHERIT | Flags::EXTSIZE) {
        core.extsize = parent.extsize;
    }
    core.flags2 |= parent.flags2 & (Flags2::DAX | Flags2::COWEXTSIZE);
    if core.flags2.contains(Flags2::COWEXTSIZE) {
        core.cowextsize = parent.cowextsize;
    }
}

/// Who pays for a new node in `parent`.
pub(crate) fn owners_of_new(cx: &Cx, parent: &Inode, node: &NewNode<'_>) -> Owners {
    let project =
        parent.with(
            cx,
            |State { core, .. }| {
                if core.flags.contains(Flags::PROJINHERIT) { core.project } else { 0 }
            },
        );
    Owners { uid: node.uid, gid: node.gid, project }
}

/// A core for a new inode in `parent`.
fn new_core(fs: &Xfs, cx: &mut Cx, parent: &Inode, node: &NewNode<'_>) -> InodeCore {
    let features = fs.geometry().features;
    let now = cx.realtime();
    let stored = |at| time::stored(at, features.bigtime());
    let (atime, mtime) = node.times.map_or((now, now), |(a, m)| (stored(a), stored(m)));
    let mut flags2 = Flags2::empty();
    flags2.set(Flags2::BIGTIME, features.bigtime());
    flags2.set(Flags2::NREXT64, features.nrext64());
    let mut core = InodeCore {
        uid: node.uid,
        gid: node.gid,
        links: if node.kind == FileType::Directory { 2 } else { 1 },
        atime,
        mtime,
        flags2,
        generation: cx.random() as u32,
        ..InodeCore::fresh(node.kind.mode_bits() | node.mode & 0o7777, now)
    };
    let realtime = features.realtime;
    parent.with(cx, |state| inherit(&state.core, &mut core, realtime));
    core
}

/// The attribute fork of a new inode, with its parent pointer where that fits: false if it is
/// still to be set.
fn first_attributes(
    fs: &Xfs,
    cx: &Cx,
    core: &mut InodeCore,
    name: Option<NameIn<'_>>,
) -> (Fork, bool) {
    if !fs.geometry().features.parent() {
        return (Fork::empty(0), true);
    }
    let kind = FileType::from_mode(u32::from(core.mode)).expect("made from a type");
    let device = parent::is_device(kind);
    let (border, fork, named) = parent::new_fork(cx, fs.geometry().inode_size, device, name);
    (core.forkoff, core.attr_format) = (border, fork.format);
    (fork, named)
}

/// Takes a free inode for a node in a directory, fills it and logs it; the transaction may roll
/// before. It has these attributes. Nobody finds it before it is in the cache. May park.
pub(crate) fn new_inode(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    resources: &mut Resources<'_>,
    place: InodePlace<'_>,
    new: NewInode<'_>,
) -> Result<Arc<Inode>> {
    let (NewInode { node, attributes }, InodePlace { parent, name }) = (new, place);
    let directory = node.kind == FileType::Directory;
    let ino = resources.writer.inodes.allocate(cx, trans, parent.ino, directory)?;
    let mut core = new_core(fs, cx, parent, node);
    let ftype = fs.geometry().features.ftype();
    let name = name.map(|name| NameIn { dir: parent, name });
    let (attr, named) = first_attributes(fs, cx, &mut core, name);
    let room = match core.forkoff {
        0 => fs.geometry().inode_size as usize - CORE_SIZE,
        border => 8 * usize::from(border),
    };
    let device = |raw: u32| {
        let mut bytes = vec![0; room];
        bytes[..4].copy_from_slice(&raw.to_be_bytes());
        Fork::new(ForkFormat::Device, bytes, 0)
    };
    let blocks = target_blocks(fs.geometry(), node, !attributes.is_empty());
    let data = match (node.kind, node.target) {
        (FileType::Directory, _) => {
            let mut bytes = vec![0; 10];
            let len = dir_sf::emit(&mut bytes, parent.ino, &[], ftype);
            bytes.truncate(len);
            Fork::new(ForkFormat::Local, bytes, 0)
        }
        (FileType::Symlink, Some(target)) if blocks == 0 => {
            Fork::new(ForkFormat::Local, target.to_vec(), 0)
        }
        (FileType::CharDevice | FileType::BlockDevice, _) => {
            let (major, minor) = (vfs::major(node.rdev), vfs::minor(node.rdev));
            device(major << MINOR_BITS | minor)
        }
        (FileType::Fifo | FileType::Socket, _) => device(0),
        _ => Fork::empty(room).of_realtime(core.is_realtime()),
    };
    // The inode that had the number before may still be on its way to the disk.
    let old = fs.inodes.find(ino).map(|old| old.item.clone());
    let item = old.unwrap_or_else(|| fs.new_item(ino));
    let inode = Inode::new(fs, item, Forks { data, attr }, core);
    if let (Some(target), true) = (node.target, blocks > 0) {
        write_target(fs, cx, trans, resources, &inode, target)?;
    }
    if !named {
        change_parent(fs, cx, trans, &inode, None, name)?;
    }
    for change in attributes {
        attr::apply(fs, cx, trans, &inode, change)?;
    }
    let fields = match attributes.is_empty() && !fs.geometry().features.parent() {
        true => InodeFields::CORE | InodeFields::DATA,
        false => InodeFields::all(),
    };
    inode.log(cx, trans, fs.geometry(), fields);
    Ok(inode)
}
