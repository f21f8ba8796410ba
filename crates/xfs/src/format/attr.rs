//! Attributes: what all forms have in common, and the small form inside the inode.

use super::hash::{Case, hash};
use super::{At, Corrupt, CorruptKind, put_u16, u16_at, u64_at};

/// Bytes of the small form's header.
pub const SF_HEADER: usize = 4;
/// Bytes of an entry of the small form without name and value.
pub const SF_ENTRY: usize = 3;

bitflags::bitflags! {
    /// Flags of an attribute: its name space, and where its value lies.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub struct AttrFlags: u8 {
        /// The value lies beside the name, not in blocks of its own.
        const LOCAL = 1;
        /// Name space `trusted` (and, under two fixed names, ACLs).
        const ROOT = 2;
        /// Name space `security`.
        const SECURE = 4;
        /// The name of a directory entry that points here.
        const PARENT = 8;
        /// Being created or removed: not there for users.
        const INCOMPLETE = 0x80;
        const _ = !0;
    }
}

/// The flags that are the name space.
pub const NAMESPACE: AttrFlags = AttrFlags::ROOT.union(AttrFlags::SECURE).union(AttrFlags::PARENT);

/// Bytes of a parent pointer's value: the directory's inode number and its generation.
pub const PARENT_VALUE: usize = 12;

/// The hash under which a tree of attributes finds one; `case` is that of names in directories. A
/// parent pointer's takes the directory's number in, so that equal names in many directories have
/// different hashes.
///
/// Source: `xfs_db -c "hash -p PARENT NAME"`.
pub fn attr_hash(case: Case, flags: AttrFlags, name: &[u8], value: Option<&[u8]>) -> u32 {
    match value.filter(|value| flags.contains(AttrFlags::PARENT) && value.len() == PARENT_VALUE) {
        Some(value) => {
            let parent = u64_at(value, 0);
            case.hash(name) ^ (parent >> 32) as u32 ^ parent as u32
        }
        None => hash(name),
    }
}

/// One attribute of the small form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SfAttr<'a> {
    /// Its name space.
    pub flags: AttrFlags,
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// The attributes in an inode's attribute fork of local form.
///
/// # Errors
/// [`CorruptKind::AttrSize`], [`CorruptKind::AttrEntry`].
pub fn parse_sf(fork: &[u8], at: At) -> Result<Vec<SfAttr<'_>>, Corrupt> {
    let too_short = CorruptKind::AttrSize { found: fork.len(), room: SF_HEADER };
    if fork.len() < SF_HEADER {
        return Err(too_short.at(at));
    }
    let (total, count) = (usize::from(u16_at(fork, 0)), fork[2]);
    if total < SF_HEADER || total > fork.len() {
        return Err(CorruptKind::AttrSize { found: total, room: fork.len() }.at(at));
    }
    let data = &fork[..total];
    let mut place = SF_HEADER;
    let mut list = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let kind = CorruptKind::AttrEntry { offset: place as u32 };
        let head = data.get(place..place + SF_ENTRY).ok_or_else(|| kind.at(at))?;
        let (name, value) = (usize::from(head[0]), usize::from(head[1]));
        let body = data.get(place + SF_ENTRY..place + SF_ENTRY + name + value);
        let body = body.filter(|_| name > 0).ok_or_else(|| kind.at(at))?;
        let (name, value) = body.split_at(name);
        list.push(SfAttr { flags: AttrFlags::from_bits_retain(head[2]), name, value });
        place += SF_ENTRY + body.len();
    }
    if place != total {
        return Err(CorruptKind::AttrSize { found: total, room: place }.at(at));
    }
    Ok(list)
}

/// Bytes of the small form of these attributes.
pub fn sf_size<'a>(list: impl Iterator<Item = &'a SfAttr<'a>>) -> usize {
    SF_HEADER + list.map(|attr| SF_ENTRY + attr.name.len() + attr.value.len()).sum::<usize>()
}

/// Writes attributes in small form and returns how many bytes they take. The rest of the fork
/// stays.
///
/// # Panics
/// If they do not fit.
pub fn emit_sf(fork: &mut [u8], list: &[SfAttr<'_>]) -> usize {
    let total = sf_size(list.iter());
    put_u16(fork, 0, total as u16);
    (fork[2], fork[3]) = (list.len() as u8, 0);
    let mut place = SF_HEADER;
    for attr in list {
        (fork[place], fork[place + 1]) = (attr.name.len() as u8, attr.value.len() as u8);
        fork[place + 2] = attr.flags.bits();
        place += SF_ENTRY;
        fork[place..][..attr.name.len()].copy_from_slice(attr.name);
        place += attr.name.len();
        fork[place..][..attr.value.len()].copy_from_slice(attr.value);
        place += attr.value.len();
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_attributes_come_back_and_damage_is_told() {
        let list = [
            SfAttr { flags: AttrFlags::empty(), name: b"one", value: b"" },
            SfAttr { flags: AttrFlags::SECURE, name: b"selinux", value: b"context" },
        ];
        let mut fork = [0xff; 64];
        let total = emit_sf(&mut fork, &list);
        assert_eq!(parse_sf(&fork, At::Block(0)).expect("valid"), list);
        for (place, value) in [(1, 3), (1, 65), (1, total as u8 + 1), (2, 3), (4, 0), (5, 99)] {
            let mut bad = fork;
            bad[place] = value;
            assert!(parse_sf(&bad, At::Block(0)).is_err(), "byte {place}");
        }
    }
}
