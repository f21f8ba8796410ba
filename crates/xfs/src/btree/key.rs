//! What orders the records of each kind of tree, and the keys that nodes hold.

use std::ops::RangeInclusive;

use crate::buf::BufOps;
use crate::format::record::{Rmap, RmapKey};
use crate::format::{Kind, u32_at, u64_at};

use super::node::Layout;

/// The order of records of one tree; only the first words are used by most kinds.
pub(crate) type Order = [u64; 3];

/// Bytes of the longest keys of a child: two of the reverse mapping tree.
pub(crate) const KEYS_MAX: usize = 40;

macro_rules! ops_of {
    ($($kind:ident),*) => {
        /// How buffers of a kind of tree are read.
        pub(crate) fn ops(kind: Kind) -> &'static BufOps {
            match kind {
                $(Kind::$kind => {
                    static OPS: BufOps = BufOps {
                        name: "btree block",
                        kinds: &[Kind::$kind],
                        check: None,
                        unmapped: false,
                    };
                    &OPS
                })*
                _ => panic!("{kind:?} is no btree"),
            }
        }
    };
}
ops_of!(
    FreeByBlock,
    FreeBySize,
    Inobt,
    Finobt,
    Rmap,
    Refcount,
    Bmap,
    RealtimeRmap,
    RealtimeRefcount
);

/// The order of a record.
pub(crate) fn record_order(kind: Kind, record: &[u8]) -> Order {
    match kind {
        Kind::FreeBySize => [u64::from(u32_at(record, 4)), u64::from(u32_at(record, 0)), 0],
        Kind::Rmap | Kind::RealtimeRmap => rmap_order(Rmap::read(record).key()),
        Kind::Bmap => [u64_at(record, 0) >> 9 & ((1 << 54) - 1), 0, 0],
        _ => [u64::from(u32_at(record, 0)), 0, 0],
    }
}

/// The order of a reverse mapping's key.
pub(crate) fn rmap_order(key: RmapKey) -> Order {
    [u64::from(key.start), key.owner, key.offset]
}

/// The order of an entry: a record of a leaf, or the lowest key of a child.
pub(crate) fn order(kind: Kind, level: u16, entry: &[u8]) -> Order {
    match kind {
        _ if level == 0 => record_order(kind, entry),
        Kind::FreeBySize => [u64::from(u32_at(entry, 4)), u64::from(u32_at(entry, 0)), 0],
        Kind::Rmap | Kind::RealtimeRmap => rmap_order(RmapKey::read(entry)),
        Kind::Bmap => [u64_at(entry, 0), 0, 0],
        _ => [u64::from(u32_at(entry, 0)), 0, 0],
    }
}

/// Writes the lowest key of a record.
fn put_low(kind: Kind, record: &[u8], key: &mut [u8]) {
    match kind {
        Kind::Rmap | Kind::RealtimeRmap => Rmap::read(record).key().write(key),
        Kind::Bmap => key[..8].copy_from_slice(&record_order(kind, record)[0].to_be_bytes()),
        Kind::FreeByBlock | Kind::FreeBySize => key[..8].copy_from_slice(&record[..8]),
        _ => key[..4].copy_from_slice(&record[..4]),
    }
}

/// The keys that a parent holds for a block: the lowest, and where ranges overlap the highest.
pub(crate) fn of_block(kind: Kind, layout: &Layout, data: &[u8]) -> [u8; KEYS_MAX] {
    let mut keys = [0; KEYS_MAX];
    let shape = layout.shape;
    let len = layout.len(data);
    if len == 0 {
        return keys;
    }
    let first = layout.entry(data, 0);
    if layout.level == 0 {
        put_low(kind, first, &mut keys);
    } else {
        keys[..shape.key].copy_from_slice(&first[..shape.key]);
    }
    if shape.keys == 2 {
        let high = (0..len).map(|index| {
            let entry = layout.entry(data, index);
            match layout.level {
                0 => Rmap::read(entry).high_key(),
                _ => RmapKey::read(&entry[shape.key..]),
            }
        });
        let high = high.max_by_key(|&key| rmap_order(key)).expect("the block is not empty");
        high.write(&mut keys[shape.key..]);
    }
    keys
}

/// The blocks that an entry of the reverse map reaches.
pub(crate) fn reach(layout: &Layout, entry: &[u8]) -> RangeInclusive<u32> {
    if layout.level > 0 {
        return u32_at(entry, 0)..=u32_at(entry, layout.shape.key);
    }
    let record = Rmap::read(entry);
    record.start..=record.high_key().start
}
