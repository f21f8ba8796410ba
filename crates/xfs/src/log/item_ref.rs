//! A log item of any type.

use std::sync::Arc;

use super::dquot_item::DquotItem;
use super::inode_item::InodeItem;
use super::item::ItemCore;
use crate::buf::Buf;
use crate::trans::intent::IntentItem;

/// A reference to an item of any type.
#[derive(Clone)]
pub(crate) enum Item {
    Buf(Arc<Buf>),
    Inode(Arc<InodeItem>),
    /// A record of quota.
    Dquot(Arc<DquotItem>),
    /// An intent, or what is only logged once: a done item, an inode chunk's creation.
    Intent(Arc<IntentItem>),
}

impl Item {
    pub fn core(&self) -> &ItemCore {
        match self {
            Item::Buf(buf) => &buf.core,
            Item::Inode(inode) => inode.core(),
            Item::Dquot(dquot) => &dquot.core,
            Item::Intent(intent) => &intent.core,
        }
    }
}
