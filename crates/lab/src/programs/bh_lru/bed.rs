//! File systems in memory, their variants, and what is counted in them.

use std::sync::Arc;

use base::Ino;
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::mkfs::Release;
use ext4::{Ext4, LegacyLookups, MkfsOptions, MountOptions};
use rt::Cx;
use serde::Deserialize;
use vfs::acl::{self, Acl, Entry, NO_ID, Tag};
use vfs::{FileSystem, FileType, Namespace, NewNode, XattrFlags};

/// Entries of a large ACL: too many for the inode.
const ACL_USERS: u32 = 40;
/// Inodes beyond those of the names that are there before.
const SPARE_INODES: u64 = 50_000;
const LABEL: &[u8] = b"unconfined_u:object_r:user_home_t:s0\0";

/// What each CPU keeps in front of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// Our sets.
    Ours,
    /// An array of so many entries: Linux had 8 before the thread, 16 after it.
    Array(usize),
}

impl Variant {
    /// The variant of that name.
    ///
    /// # Errors
    /// What it may be.
    pub fn of(name: &str) -> Result<Variant, String> {
        match (name, name.parse()) {
            ("ours", _) => Ok(Variant::Ours),
            (_, Ok(size @ 1..=64)) => Ok(Variant::Array(size)),
            _ => Err(format!("variant {name}: the LRU has 1 to 64 entries, or is `ours`")),
        }
    }

    /// Entries of the array; `None` for ours.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            Variant::Ours => None,
            Variant::Array(size) => Some(size),
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        self.size().map_or("ours".into(), |size| size.to_string())
    }
}

/// How a file system is made and used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setup {
    /// `ext3` or `ext4`.
    pub kind: String,
    /// Changes to its features.
    pub features: String,
    /// Bytes of a block.
    pub block: u32,
    /// The directory has a large default ACL.
    pub acl: bool,
    /// Labels are inherited.
    pub label: bool,
    /// Names in each directory before.
    pub names: u64,
    /// Directories.
    pub dirs: u64,
    /// Characters of those names at least.
    pub name_len: usize,
    /// Each block of a directory lies apart from the one before: its map is a tree.
    pub fragmented: bool,
}

/// The four sets of the mail of 8 July 2014.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Set {
    /// mdtest, one shared directory, large ACL and SELinux.
    A,
    /// The same without SELinux.
    B,
    /// mds-survey, quota, one shared directory.
    C,
    /// mds-survey, quota, a directory for each thread.
    D,
}

impl Set {
    /// The set of this letter.
    ///
    /// # Errors
    /// The letter.
    pub fn of(letter: &str) -> Result<Set, String> {
        let all = [("a", Set::A), ("b", Set::B), ("c", Set::C), ("d", Set::D)];
        let found = all.iter().find(|(name, _)| *name == letter);
        found.map(|one| one.1).ok_or_else(|| format!("`{letter}` is no set: a, b, c or d"))
    }

    /// Its letter.
    pub fn letter(self) -> &'static str {
        match self {
            Set::A => "a",
            Set::B => "b",
            Set::C => "c",
            Set::D => "d",
        }
    }

    /// Does it go through paths, as mdtest, or below names, as mds-survey?
    pub(super) fn by_path(self) -> bool {
        matches!(self, Set::A | Set::B)
    }

    pub(super) fn setup(self, shape: Shape) -> Setup {
        let Shape { names, dirs, name_len, fragmented, quota } = shape;
        let quota = quota && !self.by_path();
        Setup {
            name_len,
            fragmented,
            kind: "ext4".to_owned(),
            features: if quota { "large_dir,quota" } else { "large_dir" }.to_owned(),
            block: 4096,
            acl: self.by_path(),
            label: self == Set::A,
            names,
            dirs,
        }
    }
}

/// What is in the directories before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Names in each.
    pub names: u64,
    /// Directories.
    pub dirs: u64,
    /// Characters of those names at least.
    pub name_len: usize,
    /// Each block of a directory lies apart from the one before.
    pub fragmented: bool,
    /// With quota, if the set has it.
    pub quota: bool,
}

/// Counters of a stretch of work, or their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Lookups of blocks by number.
    pub lookups: u64,
    /// Of these, not answered by the LRU.
    pub misses: u64,
    /// Keys compared.
    pub compares: u64,
    /// Bytes that entries keep in memory now.
    pub pinned: u64,
}

impl Counts {
    pub(super) fn of(fs: &Ext4) -> Counts {
        let stats = fs.buffers().stats();
        let hits: u64 = stats.lru_hits.iter().sum();
        Counts {
            lookups: hits + stats.lru_misses,
            misses: stats.lru_misses,
            compares: stats.lru_compares,
            pinned: stats.lru_pinned_bytes,
        }
    }

    pub(super) fn since(self, before: Counts) -> Counts {
        Counts {
            lookups: self.lookups - before.lookups,
            misses: self.misses - before.misses,
            compares: self.compares - before.compares,
            pinned: self.pinned,
        }
    }

    pub(super) fn add(&mut self, other: Counts) {
        self.lookups += other.lookups;
        self.misses += other.misses;
        self.compares += other.compares;
        self.pinned = other.pinned;
    }
}

/// An image with its directories filled, to be forked.
pub(super) struct Base {
    device: MemoryDevice,
    setup: Setup,
}

/// A mounted fork.
#[derive(Clone)]
pub(super) struct Bed {
    pub fs: Arc<Ext4>,
    pub names: Namespace,
    pub dirs: Vec<(String, Ino)>,
}

fn queue(cx: &Cx, device: Arc<MemoryDevice>) -> Result<Arc<Queue>, String> {
    Queue::new(cx.runtime(), device, QueueConfig::default()).map_err(|error| error.to_string())
}

fn said<T>(what: &str, result: Result<T, base::Errno>) -> Result<T, String> {
    result.map_err(|errno| format!("{what}: {errno}"))
}

/// The default ACL of set a and b.
fn large_acl() -> Acl {
    let entry = |tag, perm, id| Entry { tag, perm, id };
    let mut entries = vec![entry(Tag::UserObj, 7, NO_ID)];
    entries.extend((0..ACL_USERS).map(|n| entry(Tag::User, 5, 10_000 + n)));
    entries.push(entry(Tag::GroupObj, 5, NO_ID));
    entries.push(entry(Tag::Mask, 7, NO_ID));
    entries.push(entry(Tag::Other, 0, NO_ID));
    Acl::new(entries).expect("a sound list")
}

impl Base {
    /// Makes an image and fills its directories. May park.
    pub fn make(cx: &mut Cx, setup: &Setup) -> Result<Base, String> {
        let inodes = setup.names * setup.dirs + SPARE_INODES;
        // A group of blocks of 4 KiB has an inode for each of them at most.
        let bytes = inodes * 4608 + (512 << 20);
        let device = Arc::new(MemoryDevice::new(bytes.next_multiple_of(1 << 20)));
        let options = MkfsOptions {
            fstype: setup.kind.parse()?,
            block_size: Some(setup.block),
            features: setup.features.clone(),
            inodes_count: Some(inodes as u32),
            journal_size: Some(128 << 20),
            assume_zeroes: true,
            uuid: Some([3; 16]),
            hash_seed: Some([5; 16]),
            // The published figures are of its images.
            release: Release::V1_47_0,
            ..MkfsOptions::default()
        };
        let made = ext4::mkfs(cx, &queue(cx, device.clone())?, &options);
        made.map_err(|error| format!("mkfs: {error}"))?;
        let unfilled = Setup { dirs: 0, ..setup.clone() };
        let bed = mount(cx, device.clone(), &unfilled, MountOptions::default())?;
        (0..setup.dirs).try_for_each(|number| fill(cx, &bed, setup, number))?;
        said("unmount", bed.fs.unmount(cx))?;
        drop(bed);
        let device = device.fork();
        Ok(Base { device, setup: setup.clone() })
    }

    /// A fork, mounted with these lookups.
    pub fn mount(&self, cx: &mut Cx, legacy_lookups: LegacyLookups) -> Result<Bed, String> {
        let device = Arc::new(self.device.fork());
        mount(cx, device, &self.setup, MountOptions { legacy_lookups, ..MountOptions::default() })
    }
}

/// Makes a directory and its names.
fn fill(cx: &mut Cx, bed: &Bed, setup: &Setup, number: u64) -> Result<(), String> {
    let path = directory(number);
    let dir = said("mkdir", bed.names.mkdir(cx, path.as_bytes(), 0o777))?.ino;
    let none = XattrFlags::empty();
    if setup.acl {
        let value = large_acl().emit();
        said("acl", bed.fs.setxattr(cx, dir, acl::DEFAULT, &value, none))?;
    }
    if setup.label {
        said("label", bed.fs.setxattr(cx, dir, b"security.selinux", LABEL, none))?;
    }
    let node = NewNode::new(FileType::Regular, 0o644);
    let others = match setup.fragmented {
        true => Some(
            said("mkdir", bed.names.mkdir(cx, format!("{path}/others").as_bytes(), 0o777))?.ino,
        ),
        false => None,
    };
    // A target that does not fit into the inode has a block of its own.
    let target = [b'x'; 100];
    let mut size = 0;
    for name in 0..setup.names {
        let name = format!("file.mdtest.9999.{name:.<width$}", width = setup.name_len);
        said("fill", bed.fs.create(cx, dir, name.as_bytes(), &node).map(drop))?;
        let Some(others) = others else { continue };
        let now = said("stat", bed.fs.getattr(cx, dir))?.size;
        if now > size {
            // What others write takes the block behind the directory's last one.
            let link = NewNode::symlink(&target);
            said("fill", bed.fs.create(cx, others, now.to_string().as_bytes(), &link).map(drop))?;
            size = now;
        }
    }
    Ok(())
}

fn directory(number: u64) -> String {
    format!("/dir{number}")
}

fn mount(
    cx: &mut Cx,
    device: Arc<MemoryDevice>,
    setup: &Setup,
    options: MountOptions,
) -> Result<Bed, String> {
    let queue = queue(cx, device)?;
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(64 << 20));
    // A cached name would be found without any lookup of a buffer.
    let options = MountOptions { buffer_limit_bytes: 4 << 30, name_cache: 0, ..options };
    let fs = Ext4::mount(cx, &queue, &pages, options).map_err(|error| format!("mount: {error}"))?;
    let mut names = Namespace::new(fs.clone());
    if setup.label {
        names = names.labelled();
    }
    let mut found = Vec::new();
    for number in 0..setup.dirs {
        let path = directory(number);
        let ino = said("lookup", names.stat(cx, path.as_bytes()))?.ino;
        found.push((path, ino));
    }
    Ok(Bed { fs, names, dirs: found })
}

impl Bed {
    /// Unmounts and forgets.
    pub fn end(self, cx: &mut Cx) -> Result<(), String> {
        said("unmount", self.fs.unmount(cx))
    }
}
