//! Attributes of an inode: well-formed, found by their hash, values that can be read.

use base::Ino;
use block::DeviceError;

use super::da_tree::DaTree;
use super::inodes::Subject;
use super::{Checker, Rule};
use crate::format::attr::{AttrFlags, attr_hash, parse_sf};
use crate::format::attr_leaf::{AttrLeaf, Value};
use crate::format::extent::Extent;
use crate::format::inode::ForkFormat;
use crate::format::{At, Kind, remote};

impl Checker<'_> {
    /// Checks the attributes of an inode.
    pub(super) fn attributes(&mut self, subject: &Subject) -> Result<(), DeviceError> {
        let core = &subject.core;
        if core.forkoff == 0 {
            return Ok(());
        }
        if core.attr_format == ForkFormat::Local {
            let bytes = subject.forks.attr.bytes.clone();
            let parsed = parse_sf(&bytes, subject.at());
            for attr in self.keep(parsed.map_err(Into::into))?.unwrap_or_default() {
                self.parent_attribute(subject.ino, attr.flags, attr.name, Some(attr.value));
                self.attribute_name(subject.at(), attr.flags, attr.name);
            }
            return Ok(());
        }
        let Some(list) = subject.attr.clone().filter(|list| !list.is_empty()) else {
            return Ok(());
        };
        let (kinds, rule) = (&[Kind::AttrLeaf, Kind::DaNode], Rule::Attribute);
        let tree = DaTree { ino: subject.ino, extents: &list, count: 1, kinds, rule };
        let mut values = Vec::new();
        self.walk_da(&tree, 0, &mut |checker, (block, _, data)| {
            let at = At::InodeBlock(subject.ino, *block);
            match AttrLeaf::parse(data, at) {
                Err(corrupt) => {
                    let text = corrupt.kind.to_string();
                    checker.findings.add(Rule::Attribute, corrupt.at, text);
                    None
                }
                Ok(leaf) => checker.leaf(&leaf, subject.ino, at, &mut values),
            }
        })?;
        for (block, len) in values {
            self.remote_value(subject, &list, u64::from(block), u64::from(len))?;
        }
        Ok(())
    }

    /// What the header says of the area of names and values.
    fn leaf_space(&mut self, leaf: &AttrLeaf<'_>, at: At) {
        if let Some((base, size)) = leaf.free_conflict() {
            let text = format!("{size} free bytes at {base} lie over entries, or twice");
            self.findings.add(Rule::Attribute, at, text);
        }
        let (used, first, stored) = (leaf.used(), leaf.first(), leaf.space());
        // Where something was removed there may be a gap before the first name.
        let from = if stored.first == 0 { 1 << 16 } else { usize::from(stored.first) };
        if stored.used != used || !first.contains(&from) {
            let (found, end) = (stored.used, first.end());
            let text = format!("{found} bytes from {from} on should be {used}, from {end} on");
            self.findings.add(Rule::Attribute, at, text);
        }
    }

    /// Checks a leaf's attributes; returns its highest hash.
    fn leaf(
        &mut self,
        leaf: &AttrLeaf<'_>,
        ino: Ino,
        at: At,
        values: &mut Vec<(u32, u32)>,
    ) -> Option<u32> {
        self.leaf_space(leaf, at);
        for attr in leaf.iter() {
            let value = match attr.value {
                Value::Local(value) => Some(value),
                Value::Remote { .. } => None,
            };
            self.parent_attribute(ino, attr.flags, attr.name, value);
            self.attribute_name(at, attr.flags, attr.name);
            if attr.hash != attr_hash(self.geometry().features.case(), attr.flags, attr.name, value)
            {
                let name = attr.name.escape_ascii();
                let text = format!("attribute \"{name}\" has hash {:#010x}", attr.hash);
                self.findings.add(Rule::Attribute, at, text);
            }
            if let Value::Remote { block, len } = attr.value
                && !attr.flags.contains(AttrFlags::INCOMPLETE)
            {
                values.push((block, len));
            }
        }
        // An empty leaf is left behind where attributes are being made.
        leaf.len().checked_sub(1).map_or(Some(0), |last| Some(leaf.hash(last)))
    }

    /// A program names an attribute by a string.
    fn attribute_name(&mut self, at: At, flags: AttrFlags, name: &[u8]) {
        if !flags.contains(AttrFlags::PARENT) && name.contains(&0) {
            let text = format!("attribute \"{}\": a zero byte in a name", name.escape_ascii());
            self.findings.add(Rule::Attribute, at, text);
        }
    }

    fn remote_value(
        &mut self,
        subject: &Subject,
        list: &[Extent],
        mut block: u64,
        len: u64,
    ) -> Result<(), DeviceError> {
        let mut read = 0;
        while read < len {
            let found = self.fork_block(subject.ino, list, block, 1, &[Kind::AttrRemote])?;
            let Some((_, data)) = found else { return Ok(()) };
            let at = At::InodeBlock(subject.ino, block);
            let piece = remote::piece(&data, read..len, &self.geometry(), at);
            let piece = piece.map(|piece| piece.len() as u64);
            let Some(bytes) = self.keep(piece.map_err(Into::into))? else { return Ok(()) };
            if bytes == 0 || read + bytes > len {
                let text = format!("piece of {bytes} bytes in a value of {len}");
                self.findings.add(Rule::Attribute, at, text);
                return Ok(());
            }
            (read, block) = (read + bytes, block + 1);
        }
        Ok(())
    }
}
