//! The owner of a block: the data of a file, a directory, or a part of the file system itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::Ino;
use ext4::format::{Geometry, GroupDesc};
use rt::{Cx, World, WorldConfig};
use vfs::FileSystem;

use crate::log::LogError;
use crate::medium::Medium;
use crate::recover::Kind;
use crate::tree::names;

/// Bytes of a medium, by their owners.
#[derive(Default)]
pub(super) struct Owners {
    /// From the first byte of an extent: the byte behind it, its owner, and the byte of the owner
    /// that lies there.
    extents: BTreeMap<u64, (u64, String, Option<u64>)>,
}

impl Owners {
    /// Those of a file system as it is after recovery; none where it does not mount.
    pub(super) fn of(kind: Kind, medium: Arc<Medium>) -> Result<Owners, LogError> {
        let mut owners = Owners::default();
        if kind == Kind::Ext4 {
            owners.ext4(&medium)?;
        }
        World::new(WorldConfig::default()).run("owners", |cx| {
            if let Ok(fs) = kind.mount(cx, medium.clone()) {
                owners.walk(cx, &*fs, kind);
                fs.shutdown_hard();
            }
        });
        Ok(owners)
    }

    /// What these bytes are.
    pub(super) fn name(&self, bytes: &Range<u64>) -> Option<String> {
        let (&first, (end, name, at)) = self.extents.range(..=bytes.start).next_back()?;
        if bytes.start >= *end {
            return None;
        }
        Some(match at {
            Some(at) => {
                let from = at + (bytes.start - first);
                format!("{name} bytes {from}..{}", from + (bytes.end - bytes.start))
            }
            None => name.clone(),
        })
    }

    fn put(&mut self, bytes: Range<u64>, name: String, at: Option<u64>) {
        self.extents.insert(bytes.start, (bytes.end, name, at));
    }

    fn walk(&mut self, cx: &mut Cx, fs: &dyn FileSystem, kind: Kind) {
        if kind == Kind::Ext4 {
            self.file(cx, fs, Ino(8), "the journal", true);
        }
        let mut folders = vec![(String::new(), fs.root())];
        while let Some((path, dir)) = folders.pop() {
            let shown = if path.is_empty() { "/" } else { &path };
            self.file(cx, fs, dir, &format!("directory block of {shown}"), false);
            let Ok(names) = names(cx, fs, dir) else { continue };
            for name in names {
                let child = format!("{path}/{}", String::from_utf8_lossy(&name));
                match fs.lookup(cx, dir, &name) {
                    Ok(attr) if attr.is_dir() => folders.push((child, attr.ino)),
                    Ok(attr) => self.file(cx, fs, attr.ino, &format!("data of {child}"), true),
                    Err(_) => {}
                }
            }
        }
    }

    fn file(&mut self, cx: &mut Cx, fs: &dyn FileSystem, ino: Ino, name: &str, counted: bool) {
        for map in fs.fiemap(cx, ino, 0, u64::MAX >> 1).unwrap_or_default() {
            if let Some(sector) = map.place() {
                self.put(
                    sector.bytes()..sector.bytes() + map.len,
                    name.to_owned(),
                    counted.then_some(map.offset),
                );
            }
        }
    }

    /// The parts of ext4 that lie where they lie.
    fn ext4(&mut self, medium: &Medium) -> Result<(), LogError> {
        let start = medium.bytes(1024, 1024)?;
        let Ok(geometry) = Geometry::parse(&start, 0) else { return Ok(()) };
        let block = u64::from(geometry.block_size);
        self.put(0..block.max(2048), "the superblock".into(), None);
        let descs = u64::from(geometry.first_data_block + 1) * block;
        let len = u64::from(geometry.desc_blocks) * block;
        self.put(descs..descs + len, "group descriptors".into(), None);
        let table = medium.bytes(descs, len as usize)?;
        let size = geometry.desc_size as usize;
        for (group, bytes) in table.chunks_exact(size).enumerate() {
            if group as u32 >= geometry.groups_count {
                break;
            }
            let desc = GroupDesc::read(bytes);
            let named = |what: &str| format!("{what} of group {group}");
            let blocks = |first: u64, count: u64| first * block..(first + count) * block;
            self.put(blocks(desc.block_bitmap, 1), named("block bitmap"), None);
            self.put(blocks(desc.inode_bitmap, 1), named("inode bitmap"), None);
            let table = blocks(desc.inode_table, u64::from(geometry.itable_blocks));
            self.put(table, named("inode table"), Some(0));
        }
        Ok(())
    }
}

/// What a block says about itself: blocks of a journal, and all of XFS's metadata.
pub(super) fn by_content(kind: Kind, start: u64, bytes: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let magic = word(0)?;
    if kind == Kind::Ext4 {
        let sequence = word(8)?;
        let what = match (magic, word(4)?) {
            (0xc03b_3998, 1) => "journal descriptor",
            (0xc03b_3998, 2) => "commit record",
            (0xc03b_3998, 3 | 4) => return Some("the journal's superblock".into()),
            (0xc03b_3998, 5) => "journal revokes",
            _ => return None,
        };
        return Some(format!("{what} {sequence}"));
    }
    if kind != Kind::Xfs {
        return None;
    }
    let name = match bytes.get(..4)? {
        b"XFSB" if start == 0 => "the superblock",
        b"XFSB" => "a copy of the superblock",
        b"XAGF" => "free space header (AGF)",
        b"XAGI" => "inode header (AGI)",
        b"XAFL" => "free list (AGFL)",
        b"AB3B" | b"AB3C" => "free space btree",
        b"IAB3" | b"FIB3" => "inode btree",
        b"BMA3" => "extent btree",
        b"R3FC" | b"RMB3" => "reverse map or reference count btree",
        b"XDB3" | b"XDD3" | b"XDF3" => "directory block",
        b"XARM" => "attribute value",
        [0xfe, 0xed, 0xba, 0xbe] => return Some(format!("log record, cycle {}", word(4)?)),
        [b'I', b'N', _, _] => "inodes",
        _ => return None,
    };
    Some(name.into())
}
