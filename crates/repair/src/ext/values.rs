//! Values of attributes in inodes of their own (`ea_inode`). The hash of a value stands in its
//! inode and in the entry that names it: with its content three witnesses.

use std::collections::BTreeMap;

use base::Timespec;
use block::DeviceError;
use ext4::Rule;
use ext4::format::xattr::{self, LargeValue, VALUE_MAX, Xattr, XattrArea};
use ext4::format::{FileKind, InodeFlags};

use super::Fs;
use crate::restore;

/// An inode that holds a value.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    size: u64,
    hash: u32,
    /// Entries that name it, of which areas.
    found: u64,
    /// It is what its hash says.
    sound: bool,
    /// It has Lustre's older form, which has no hash.
    older: bool,
}

/// An entry that names a value: its inode, its name, the value.
type ValueEntry = (u32, Vec<u8>, LargeValue);

/// Does an entry of a name fit a value of this hash?
fn fits(name: &[u8], large: &LargeValue, hash: u32) -> bool {
    [xattr::hash_large(name, hash), xattr::hash_large_signed(name, hash)].contains(&large.hash)
}

impl Fs<'_> {
    /// Reads all values, and settles what each is by its three witnesses.
    ///
    /// # Errors
    /// The device's.
    pub fn read_values(&mut self) -> Result<(), DeviceError> {
        self.large.clear();
        if !self.large_values() {
            return Ok(());
        }
        let mut entries = self.value_entries()?;
        let holds = |inode: &super::Inode| inode.flags.contains(InodeFlags::EA_INODE);
        let holders = self.inodes.iter().filter(|(_, inode)| holds(inode));
        let named = entries.keys().copied().chain(holders.map(|(&ino, _)| ino));
        for ino in named.collect::<std::collections::BTreeSet<u32>>() {
            if self.inodes.get(&ino).is_some_and(|inode| inode.kind == FileKind::Regular) {
                self.settle_value(ino, &entries.remove(&ino).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// The entries that name inodes, by those.
    fn value_entries(&mut self) -> Result<BTreeMap<u32, Vec<ValueEntry>>, DeviceError> {
        let mut all: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        let mut blocks = std::collections::BTreeSet::new();
        for ino in self.inodes.keys().copied().collect::<Vec<u32>>() {
            let mut lists = Vec::new();
            let slot = self.slot(ino)?;
            if let Some(area) = self.area_inside(&slot) {
                lists.push(self.entries(&slot[area..], XattrArea::Inode));
            }
            let block = self.inodes[&ino].acl;
            if block != 0 && blocks.insert(block) {
                let content = self.view.read(block)?;
                lists.push(self.entries(&content, XattrArea::Block));
            }
            for xattr in lists.into_iter().flatten() {
                if let Some(large) = xattr.large {
                    all.entry(large.ino).or_default().push((ino, xattr.name, large));
                }
            }
        }
        Ok(all)
    }

    fn entries(&self, area: &[u8], place: XattrArea) -> Vec<Xattr> {
        let entries = xattr::entries(area, place, true).into_iter().flatten();
        entries.map_while(Result::ok).map(|entry| Xattr::of(&entry)).collect()
    }

    /// Settles one value that these entries name.
    fn settle_value(&mut self, ino: u32, entries: &[ValueEntry]) -> Result<(), DeviceError> {
        let at = Self::at(ino);
        self.settle_size(ino, entries)?;
        let values = self.values(ino)?;
        let content = self.value_content(ino, values.size)?;
        let computed = content.as_deref().map(|content| self.hash(content));
        let witness = |hash: u32| entries.iter().any(|(_, name, large)| fits(name, large, hash));
        if !self.inodes[&ino].flags.contains(InodeFlags::EA_INODE) {
            let whole = |(_, name, large): &ValueEntry| {
                let same = u64::from(large.size) == values.size;
                same && computed.is_some_and(|hash| fits(name, large, hash))
            };
            if !entries.iter().any(whole) {
                return Ok(());
            }
            let act = "say that it is the value of an attribute";
            if self.safe(Rule::XattrInode, at, "an attribute names it by its content", act) {
                self.inodes.get_mut(&ino).expect("in use").flags |= InodeFlags::EA_INODE;
                self.edit(ino, |values| values.flags |= InodeFlags::EA_INODE)?;
            }
        }
        self.inodes.get_mut(&ino).expect("in use").nameless = true;
        let (mut hash, mut sound) = (values.atime.sec as u32, false);
        let owned = entries.iter().any(|(owner, ..)| values.mtime.sec as u32 == *owner);
        let older = owned && !witness(hash);
        if older {
            sound = true;
        } else if let (Some(content), Some(found)) = (content, computed) {
            sound = found == hash;
            if !sound && witness(found) && !witness(hash) {
                let detail = format!("hash {hash:#x}, its content and its entry have {found:#x}");
                sound = self.safe(Rule::XattrInode, at, detail, "store that");
                if sound {
                    hash = found;
                    self.edit(ino, |values| values.atime = stamp(hash))?;
                }
            } else if !sound
                && let Some((place, bits)) = restore::change_of(content.len(), found ^ hash)
            {
                let act = "put it right by the hash";
                sound = self.safe(Rule::XattrInode, at, "a place of it does not fit its hash", act);
                if sound {
                    self.change_value(ino, place, bits)?;
                }
            }
        }
        self.large.insert(ino, Value { size: values.size, hash, found: 0, sound, older });
        Ok(())
    }

    fn hash(&self, content: &[u8]) -> u32 {
        xattr::value_hash(&self.g.checksums, content)
    }

    /// Of two sizes, that of the inode and that of an entry, the hash knows the right one.
    fn settle_size(&mut self, ino: u32, entries: &[ValueEntry]) -> Result<(), DeviceError> {
        let values = self.values(ino)?;
        let (found, hash) = (values.size, values.atime.sec as u32);
        let mut right = [false; 2];
        for (_, _, large) in entries.iter().filter(|entry| u64::from(entry.2.size) != found) {
            let wanted = u64::from(large.size);
            for (size, right) in [found, wanted].into_iter().zip(&mut right) {
                let content = self.value_content(ino, size)?;
                *right = content.is_some_and(|content| self.hash(&content) == hash);
            }
            let detail = format!("{found} bytes, the hash is that of {wanted}");
            if right == [false, true]
                && self.safe(Rule::XattrInode, Self::at(ino), detail, "store that")
            {
                return self.edit(ino, |values| values.size = wanted);
            }
        }
        Ok(())
    }

    /// The content of a value, if its blocks hold it.
    fn value_content(&mut self, ino: u32, size: u64) -> Result<Option<Vec<u8>>, DeviceError> {
        let map = &self.inodes[&ino].map;
        let count = size.div_ceil(u64::from(self.g.block_size));
        let whole = map.end() == count && map.runs.iter().map(|run| run.len).sum::<u64>() == count;
        if !whole || size > VALUE_MAX.into() || size == 0 {
            return Ok(None);
        }
        let mut content = Vec::new();
        for run in map.runs.clone() {
            for block in run.start..run.start + run.len {
                content.extend(self.view.read(block)?);
            }
        }
        content.truncate(size as usize);
        Ok(Some(content))
    }

    fn change_value(&mut self, ino: u32, place: usize, bits: u8) -> Result<(), DeviceError> {
        let (block, at) =
            (place as u64 / u64::from(self.g.block_size), place % self.g.block_size as usize);
        let run = self.inodes[&ino]
            .map
            .runs
            .iter()
            .find(|run| (run.logical..run.logical + run.len).contains(&block));
        let run = *run.expect("the content was read");
        let device = run.start + (block - run.logical);
        let mut content = self.view.read(device)?;
        content[at] ^= bits;
        self.view.write(device, &content);
        Ok(())
    }

    /// What an entry should say of its value; None where there is none.
    pub fn large_of(&self, name: &[u8], large: LargeValue) -> Option<LargeValue> {
        let value = self.large.get(&large.ino).filter(|value| value.sound)?;
        let (sized, hashed) = (u64::from(large.size) == value.size, fits(name, &large, value.hash));
        let size = value.size as u32;
        if value.older {
            return Some(large);
        }
        match (sized, hashed) {
            (true, true) => Some(large),
            (false, true) => Some(LargeValue { size, ..large }),
            (true, false) => {
                Some(LargeValue { hash: xattr::hash_large(name, value.hash), ..large })
            }
            (false, false) => None,
        }
    }

    /// Takes note of the values that an area names.
    pub fn count_values(&mut self, list: &[Xattr]) {
        for large in list.iter().filter_map(|xattr| xattr.large) {
            if let Some(value) = self.large.get_mut(&large.ino) {
                value.found += 1;
            }
        }
    }

    /// Values count the entries that name them; one that none names becomes a file.
    ///
    /// # Errors
    /// The device's.
    pub fn value_references(&mut self) -> Result<(), DeviceError> {
        for (ino, value) in std::mem::take(&mut self.large) {
            let (at, stored) = (Self::at(ino), self.values(ino)?.references());
            if value.older {
                continue;
            }
            if self.inodes[&ino].links > 1 {
                let detail = format!("{} links", self.inodes[&ino].links);
                let act = "store one";
                if self.safe(Rule::XattrInodeReferences, at, detail, act) {
                    self.inodes.get_mut(&ino).expect("in use").links = 1;
                    self.edit(ino, |values| values.links = 1)?;
                }
            }
            if value.found == 0 {
                if self.inodes[&ino].weak || self.values(ino)?.links == 0 {
                    continue;
                }
                let detail = match value.sound {
                    true => "the value of an attribute, and none names it",
                    false => "the value of an attribute, and its content is another",
                };
                let act = "make it a file in lost+found";
                if self.lossy(Rule::XattrInode, at, detail, act, "the attribute") {
                    self.value_becomes_file(ino)?;
                }
            } else if stored != value.found {
                let detail = format!("{stored} references, counted {}", value.found);
                if self.safe(Rule::XattrInodeReferences, at, detail, "store that") {
                    self.edit(ino, |values| values.set_references(value.found))?;
                }
            }
        }
        Ok(())
    }

    fn value_becomes_file(&mut self, ino: u32) -> Result<(), DeviceError> {
        let now = Timespec { sec: i64::from(self.view.now()), nsec: 0 };
        let inode = self.inodes.get_mut(&ino).expect("in use");
        inode.flags -= InodeFlags::EA_INODE;
        inode.nameless = false;
        self.edit(ino, |values| {
            values.flags -= InodeFlags::EA_INODE;
            values.set_references(0);
            (values.atime, values.ctime, values.mtime) = (now, now, now);
            values.mode = 0x8000 | 0o600;
        })
    }
}

/// A time that is a hash.
fn stamp(hash: u32) -> Timespec {
    Timespec { sec: i64::from(hash as i32), nsec: 0 }
}
