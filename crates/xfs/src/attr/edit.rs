//! Setting and removing an attribute in a transaction, in whatever form the attributes are: in the
//! inode, in one leaf, or in a tree; the form that holds them best is the one they have afterwards.

use rt::Cx;

use super::Name;
use super::attribute::{Attribute, Held};
use super::fork::AttrEdit;
use super::leaf::FoundAttribute;
use crate::bmap::Fork;
use crate::da_btree::Leaf;
use crate::error::{Result, XfsError};
use crate::format::attr::{AttrFlags, SfAttr, attr_hash, emit_sf, parse_sf, sf_size};
use crate::format::attr_leaf::is_local;
use crate::format::hash::Case;
use crate::format::inode::ForkFormat;
use crate::format::{At, Kind};
use base::Errno;

/// Bytes of a name or a value in an inode at the most.
const SMALL: usize = 255;

/// An attribute as it lies in an inode.
fn small(attr: &Attribute) -> Option<SfAttr<'_>> {
    match &attr.value {
        Held::Local(value) if value.len() <= SMALL && attr.name.len() <= SMALL => {
            Some(SfAttr { flags: attr.flags, name: &attr.name, value })
        }
        _ => None,
    }
}

impl AttrEdit<'_> {
    /// How names in directories are compared.
    pub(super) fn case(&self) -> Case {
        self.space.geometry.features.case()
    }

    /// True if the attributes, if any, lie in the inode.
    pub(super) fn is_small(&self) -> bool {
        let attr = &self.forks.attr;
        self.core.forkoff == 0
            || attr.format == ForkFormat::Local
            || (attr.format == ForkFormat::Extents && attr.count == 0)
    }

    /// The attributes in the inode.
    fn small_list(&self) -> Result<Vec<Attribute>> {
        if self.core.forkoff == 0 || self.forks.attr.format != ForkFormat::Local {
            return Ok(Vec::new());
        }
        let list = parse_sf(&self.forks.attr.bytes, At::Inode(self.ino))?;
        let case = self.case();
        let own = |attr: &SfAttr<'_>| Attribute {
            hash: attr_hash(case, attr.flags, attr.name, Some(attr.value)),
            flags: attr.flags,
            name: attr.name.to_vec(),
            value: Held::Local(attr.value.to_vec()),
        };
        Ok(list.iter().map(own).collect())
    }

    /// Sets an attribute, or removes it (`None`); it may be there or not. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`]; a block that is wrong; the device failed.
    pub fn set(&mut self, cx: &mut Cx, name: &Name, value: Option<&[u8]>) -> Result<()> {
        if self.is_small() {
            let mut list = self.small_list()?;
            list.retain(|attr| !name.is(attr));
            let Some(value) = value else { return self.store_small(cx, &list).map(|_| ()) };
            list.push(Attribute::new(self.case(), name, Held::Local(value.to_vec())));
            if self.store_small(cx, &list)? {
                return Ok(());
            }
            list.pop();
            self.make_leaf(cx, list)?;
        }
        match value {
            Some(value) => self.put_value(cx, name, value),
            None => self.remove(cx, name),
        }
    }

    /// Puts one attribute in the place of another, in one step: one that is alone does not cost its
    /// fork in between. May park.
    ///
    /// # Errors
    /// As [`AttrEdit::set`].
    pub fn replace(&mut self, cx: &mut Cx, old: &Name, new: &Name, value: &[u8]) -> Result<()> {
        if old == new {
            return Ok(());
        }
        if !self.is_small() {
            self.set(cx, new, Some(value))?;
            return self.set(cx, old, None);
        }
        let mut list = self.small_list()?;
        list.retain(|attr| !old.is(attr) && !new.is(attr));
        list.push(Attribute::new(self.case(), new, Held::Local(value.to_vec())));
        if self.store_small(cx, &list)? {
            return Ok(());
        }
        list.pop();
        self.make_leaf(cx, list)?;
        self.put_value(cx, new, value)
    }

    /// Stores attributes in the inode. False if they have no room there; then nothing was
    /// changed.
    fn store_small(&mut self, cx: &mut Cx, list: &[Attribute]) -> Result<bool> {
        if list.is_empty() {
            self.remove_fork(cx)?;
            return Ok(true);
        }
        let small: Option<Vec<_>> = list.iter().map(small).collect();
        let Some(small) = small.filter(|small| small.len() <= SMALL) else { return Ok(false) };
        let need = sf_size(small.iter());
        if self.room() < need {
            let Some(border) = self.border_for(need) else { return Ok(false) };
            self.reset_fork();
            self.set_border(cx, border)?;
        }
        let mut bytes = vec![0; self.room()];
        emit_sf(&mut bytes, &small);
        self.forks.attr = Fork::new(ForkFormat::Local, bytes, 0);
        Ok(true)
    }

    /// Does without an attribute fork. The border stays where the data fork is a btree, and where
    /// it is that of a symbolic link in blocks, which must not have room in the inode.
    fn remove_fork(&mut self, cx: &mut Cx) -> Result<()> {
        self.reset_fork();
        let format = self.forks.data.format;
        let link = self.core.file_type() == 0xa000 && format == ForkFormat::Extents;
        if self.core.forkoff != 0 && format != ForkFormat::Btree && !link {
            self.set_border(cx, 0)?;
        }
        Ok(())
    }

    /// Moves attributes out of the inode into a leaf.
    fn make_leaf(&mut self, cx: &mut Cx, list: Vec<Attribute>) -> Result<()> {
        self.reset_fork();
        if self.core.forkoff == 0 {
            if self.border_for_blocks().is_none() {
                self.shrink_data(cx)?;
            }
            let border = self.border_for_blocks().ok_or(XfsError::Answer(Errno::ENOSPC))?;
            self.set_border(cx, border)?;
        }
        let block = self.add_blocks(cx, 1)?;
        debug_assert_eq!(block, 0, "the fork is empty");
        let leaf = self.fresh_leaf(cx, block)?;
        let mut list = list;
        list.sort_by_key(|attr| attr.hash);
        self.store_leaf(&leaf, &list);
        Ok(())
    }

    fn put_value(&mut self, cx: &mut Cx, name: &Name, value: &[u8]) -> Result<()> {
        if let Some(found) = self.find(cx, name)?
            && let Held::Remote(remote) = found.attribute().value
        {
            self.free_remote(cx, remote)?;
        }
        let held = match is_local(name.rest.len(), value.len(), self.block_size()) {
            true => Held::Local(value.to_vec()),
            false => Held::Remote(self.write_remote(cx, value)?),
        };
        self.put(cx, name, &Attribute::new(self.case(), name, held))
    }

    fn remove(&mut self, cx: &mut Cx, name: &Name) -> Result<()> {
        match self.find(cx, name)? {
            Some(found) => self.remove_found(cx, found),
            None => Ok(()),
        }
    }

    /// Removes an attribute that lies in a leaf. Of one that is incomplete, blocks of the value may
    /// be gone already.
    pub(super) fn remove_found(&mut self, cx: &mut Cx, found: FoundAttribute) -> Result<()> {
        let attr = found.attribute();
        match attr.value {
            Held::Remote(remote) if attr.flags.contains(AttrFlags::INCOMPLETE) => {
                self.free_what_is_left(cx, remote)?;
            }
            Held::Remote(remote) => self.free_remote(cx, remote)?,
            Held::Local(_) => {}
        }
        self.take(cx, found)?;
        let root = Leaf { block: 0, buf: self.read_block(cx, 0)? };
        if root.buf.kind() != Some(Kind::AttrLeaf) {
            return Ok(());
        }
        // One leaf: its attributes may fit into the inode again.
        let list = self.attributes(&root)?;
        let fits = list.iter().map(small).collect::<Option<Vec<_>>>().is_some_and(|small| {
            let need = sf_size(small.iter());
            small.len() <= SMALL && (need <= self.room() || self.border_for(need).is_some())
        });
        if list.is_empty() || fits {
            self.free_blocks(cx, 0..1, Kind::AttrLeaf)?;
            let stored = self.store_small(cx, &list)?;
            debug_assert!(stored, "it fits");
        }
        Ok(())
    }
}
