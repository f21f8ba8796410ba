//! Changes of ordinary attributes that the log announces and does not hold.
//!
//! A kernel that logs attributes changes one in several transactions. It marks what is half done as
//! incomplete: an attribute whose value is not yet written, or is being given back. So whatever has
//! the name goes, in either state, before the new value comes.

use base::Ino;
use rt::Cx;

use super::Name;
use super::fork::AttrEdit;
use crate::alloc::Space;
use crate::bmap::Forks;
use crate::error::Result;
use crate::format::attr::{AttrFlags, NAMESPACE};
use crate::trans::Trans;
use crate::trans::intent::AttributeChange;
use crate::uncached::UncachedInode;

/// Changes an attribute as an intent in the log asks for; the caller stores and logs the inode.
///
/// # Errors
/// As any change of attributes.
pub(crate) fn recover_attribute(
    cx: &mut Cx,
    space: &Space,
    trans: &mut Trans,
    inode: &mut UncachedInode,
    forks: &mut Forks,
    change: &AttributeChange,
) -> Result<()> {
    let ino: Ino = inode.ino;
    let core = &mut inode.core;
    let name = Name::new(change.space, &change.name);
    let mut edit = AttrEdit { space, trans, ino, core, forks };
    edit.remove_incomplete(cx, &name)?;
    edit.set(cx, &name, change.value.as_deref())
}

impl AttrEdit<'_> {
    /// Removes what is half done under a name.
    fn remove_incomplete(&mut self, cx: &mut Cx, name: &Name) -> Result<()> {
        while !self.is_small() {
            let found = self.find_where(cx, name, |attr| {
                attr.flags.contains(AttrFlags::INCOMPLETE)
                    && attr.flags & NAMESPACE == name.space
                    && attr.name == name.rest
            })?;
            match found {
                Some(found) => self.remove_found(cx, found)?,
                None => break,
            }
        }
        Ok(())
    }
}
