//! The attributes of inodes: what can be read of them.

use base::Ino;
use block::DeviceError;
use xfs::format::attr::{AttrFlags, PARENT_VALUE, parse_sf};
use xfs::format::attr_leaf::{AttrLeaf, LEAF_ENTRY, LEAF_HEADER, Value};
use xfs::format::inode::{ForkFormat, fork_ranges};
use xfs::format::{At, Kind, remote};

use super::Fs;
use super::forks::Fork;

/// An attribute.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attribute {
    /// Its name space.
    pub flags: AttrFlags,
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl Attribute {
    /// True for a parent pointer.
    pub fn is_parent(&self) -> bool {
        self.flags.contains(AttrFlags::PARENT)
    }

    /// The parent pointer of a name in a directory.
    pub fn parent(dir: Ino, generation: u32, name: &[u8]) -> Attribute {
        let mut value = dir.0.to_be_bytes().to_vec();
        value.extend(generation.to_be_bytes());
        Attribute { flags: AttrFlags::PARENT, name: name.to_vec(), value }
    }

    /// The directory and the generation that a parent pointer names.
    pub fn directory(&self) -> Option<(Ino, u32)> {
        let value: [u8; PARENT_VALUE] = self.value[..].try_into().ok()?;
        let (dir, generation) = value.split_at(8);
        let dir = u64::from_be_bytes(dir.try_into().expect("eight bytes"));
        let generation = u32::from_be_bytes(generation.try_into().expect("four bytes"));
        let possible = !self.name.is_empty() && !self.name.iter().any(|b| matches!(b, 0 | b'/'));
        (self.is_parent() && possible).then_some((Ino(dir), generation))
    }
}

/// What was read of an inode's attributes.
#[derive(Default)]
pub struct Attributes {
    /// Those that are sound.
    pub list: Vec<Attribute>,
    /// How many could not be read, as far as that can be seen.
    pub lost: u32,
}

impl Fs<'_> {
    /// Reads the attributes of an inode; values in blocks of their own only where they are asked
    /// for.
    pub fn read_attributes(&mut self, ino: Ino, values: bool) -> Result<Attributes, DeviceError> {
        let mut found = Attributes::default();
        let inode = &self.inodes[&ino.0];
        let (format, forkoff) = (inode.core.attr_format, inode.core.forkoff);
        if forkoff == 0 {
            return Ok(found);
        }
        if format == ForkFormat::Local {
            let slot = self.slot(ino)?;
            let (_, range) = fork_ranges(forkoff, slot.len());
            small(&slot[range], ino, &mut found);
        } else {
            let fork = inode.attr.clone();
            for extent in &fork.extents {
                for offset in extent.offset..extent.end() {
                    self.read_attr_block(ino, &fork, offset, values, &mut found)?;
                }
            }
        }
        found.list.sort();
        let all = found.list.len();
        // No program can name these.
        found.list.retain(|attr| attr.is_parent() || !attr.name.contains(&0));
        found.list.dedup_by(|a, b| a.flags == b.flags && a.name == b.name && !a.is_parent());
        found.list.dedup();
        found.lost += (all - found.list.len()) as u32;
        Ok(found)
    }

    /// Takes the attributes of a block, if it is a leaf.
    fn read_attr_block(
        &mut self,
        ino: Ino,
        fork: &Fork,
        offset: u64,
        values: bool,
        found: &mut Attributes,
    ) -> Result<(), DeviceError> {
        let Some(runs) = fork.runs(offset, 1) else { return Ok(()) };
        let at = At::InodeBlock(ino, offset);
        let kinds = [Kind::AttrLeaf, Kind::DaNode, Kind::AttrRemote];
        let data = match self.meta(&runs, &kinds, ino.0, at)? {
            Some((Kind::AttrLeaf, data)) => data,
            Some(_) => return Ok(()),
            None => {
                let data = self.read_runs(&runs)?;
                found.lost += 1;
                if Kind::recognise(&data) != Some(Kind::AttrLeaf) {
                    return Ok(());
                }
                data
            }
        };
        let Some(data) = readable(data, at, found) else { return Ok(()) };
        let leaf = AttrLeaf::parse(&data, at).expect("just made so");
        for attr in leaf.iter().filter(|attr| !attr.flags.contains(AttrFlags::INCOMPLETE)) {
            let value = match attr.value {
                Value::Local(value) => Some(value.to_vec()),
                Value::Remote { .. } if !values => Some(Vec::new()),
                Value::Remote { block, len } => self.remote_value(ino, fork, block, len)?,
            };
            match value {
                Some(value) => {
                    let (flags, name) = (attr.flags, attr.name.to_vec());
                    found.list.push(Attribute { flags, name, value });
                }
                None => found.lost += 1,
            }
        }
        Ok(())
    }

    fn remote_value(
        &mut self,
        ino: Ino,
        fork: &Fork,
        block: u32,
        len: u32,
    ) -> Result<Option<Vec<u8>>, DeviceError> {
        let (mut value, mut offset) = (Vec::new(), u64::from(block));
        while value.len() < len as usize {
            let Some(runs) = fork.runs(offset, 1) else { return Ok(None) };
            let at = At::InodeBlock(ino, offset);
            let read = self.meta(&runs, &[Kind::AttrRemote], ino.0, at)?;
            let Some((_, data)) = read else { return Ok(None) };
            let range = value.len() as u64..u64::from(len);
            let Ok(piece) = remote::piece(&data, range, &self.g, at) else { return Ok(None) };
            if piece.is_empty() || value.len() + piece.len() > len as usize {
                return Ok(None);
            }
            value.extend_from_slice(piece);
            offset += 1;
        }
        Ok(Some(value))
    }
}

/// Where a leaf of attributes has its three free ranges.
const FREE_MAP: std::ops::Range<usize> = 64..76;

/// The leaf with as many of its entries as can be read.
fn readable(mut data: Vec<u8>, at: At, found: &mut Attributes) -> Option<Vec<u8>> {
    let count = usize::from(u16::from_be_bytes([data[56], data[57]]));
    let count = count.min((data.len() - LEAF_HEADER) / LEAF_ENTRY);
    let entries: Vec<Vec<u8>> =
        data[LEAF_HEADER..].chunks(LEAF_ENTRY).take(count).map(<[u8]>::to_vec).collect();
    // A hint where there is room; the leaf is written anew.
    data[FREE_MAP].fill(0);
    if AttrLeaf::parse(&data, at).is_ok() {
        return Some(data);
    }
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for entry in entries {
        let mut list = kept.clone();
        list.push(entry);
        list.sort();
        put_entries(&mut data, &list);
        if AttrLeaf::parse(&data, at).is_ok() {
            kept = list;
        } else {
            found.lost += 1;
        }
    }
    put_entries(&mut data, &kept);
    AttrLeaf::parse(&data, at).is_ok().then_some(data)
}

fn put_entries(data: &mut [u8], list: &[Vec<u8>]) {
    data[56..58].copy_from_slice(&(list.len() as u16).to_be_bytes());
    for (slot, entry) in data[LEAF_HEADER..].chunks_mut(LEAF_ENTRY).zip(list) {
        slot.copy_from_slice(entry);
    }
}

/// The attributes inside an inode: all of them, or those in front of the first damage.
fn small(fork: &[u8], ino: Ino, found: &mut Attributes) {
    let own = |attr: &xfs::format::attr::SfAttr<'_>| Attribute {
        flags: attr.flags,
        name: attr.name.to_vec(),
        value: attr.value.to_vec(),
    };
    if let Ok(list) = parse_sf(fork, At::Inode(ino)) {
        found.list.extend(list.iter().map(own));
        return;
    }
    found.lost += 1;
    if fork.len() < 4 {
        return;
    }
    let mut at = 4;
    for _ in 0..fork[2].max(1) {
        let Some(&[name, value, flags]) = fork.get(at..at + 3) else { break };
        let (name, value) = (usize::from(name), usize::from(value));
        let Some(body) = fork.get(at + 3..at + 3 + name + value).filter(|_| name > 0) else {
            break;
        };
        found.list.push(Attribute {
            flags: AttrFlags::from_bits_retain(flags),
            name: body[..name].to_vec(),
            value: body[name..].to_vec(),
        });
        at += 3 + name + value;
    }
}
