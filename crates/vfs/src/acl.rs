//! POSIX access control lists in their extended-attribute form.
//!
//! The wire form is what `getfattr -n system.posix_acl_access` shows on Linux: a 32-bit version
//! (2), then entries of tag (16 bits), permissions (16) and id (32), little-endian. Semantics
//! follow POSIX 1003.1e draft 17 and acl(5).

use base::Errno;
use rt::Cred;

/// The attribute with the list that rules access.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the list that new files in a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The id of entries that name nobody.
pub const NO_ID: u32 = u32::MAX;
const VERSION: u32 = 2;

/// Whom an entry is about; the numbers are those of the wire form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Tag {
    /// The owner.
    UserObj = 1,
    /// The user with the entry's id.
    User = 2,
    /// The owning group.
    GroupObj = 4,
    /// The group with the entry's id.
    Group = 8,
    /// The upper bound of all entries but owner and others.
    Mask = 16,
    /// Everybody else.
    Other = 32,
}

impl Tag {
    /// The tag of this number.
    pub fn from_number(number: u32) -> Option<Tag> {
        Some(match number {
            1 => Tag::UserObj,
            2 => Tag::User,
            4 => Tag::GroupObj,
            8 => Tag::Group,
            16 => Tag::Mask,
            32 => Tag::Other,
            _ => return None,
        })
    }

    /// Whether the entry's id says who is meant.
    pub fn has_id(self) -> bool {
        matches!(self, Tag::User | Tag::Group)
    }
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Whom it is about.
    pub tag: Tag,
    /// Permissions: read 4, write 2, execute 1.
    pub perm: u16,
    /// User or group id; [`NO_ID`] for the other tags.
    pub id: u32,
}

/// A valid list: owner, users, owning group, groups, mask (if there are users or groups), others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// A list of these entries.
    ///
    /// # Errors
    /// `EINVAL`: wrong order, a missing or doubled obligatory entry, no mask though one is needed,
    /// permissions above 7.
    pub fn new(entries: Vec<Entry>) -> Result<Acl, Errno> {
        let mut allowed_from = 0;
        let mut needs_mask = false;
        let mut seen = [0usize; 6];
        for entry in &entries {
            let rank = (entry.tag as u16).trailing_zeros() as usize;
            if rank < allowed_from || entry.perm > 7 {
                return Err(Errno::EINVAL);
            }
            let named = entry.tag.has_id();
            if named && entry.id == NO_ID {
                return Err(Errno::EINVAL);
            }
            needs_mask |= named;
            seen[rank] += 1;
            allowed_from = if named { rank } else { rank + 1 };
        }
        let complete = seen[0] == 1 && seen[2] == 1 && seen[5] == 1;
        if !complete || (needs_mask && seen[4] == 0) {
            return Err(Errno::EINVAL);
        }
        Ok(Acl { entries })
    }

    /// The list that says the same as these mode bits.
    pub fn from_mode(mode: u16) -> Acl {
        let entry = |tag, perm| Entry { tag, perm: perm & 7, id: NO_ID };
        Acl {
            entries: vec![
                entry(Tag::UserObj, mode >> 6),
                entry(Tag::GroupObj, mode >> 3),
                entry(Tag::Other, mode),
            ],
        }
    }

    /// Reads the wire form. An attribute of four bytes is the empty list: `None`.
    ///
    /// # Errors
    /// `EINVAL` bad length, tag or list ([`Acl::new`]); `EOPNOTSUPP` another version.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>, Errno> {
        let (head, body) = value.split_at_checked(4).ok_or(Errno::EINVAL)?;
        if u32_at(head, 0) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if body.is_empty() {
            return Ok(None);
        }
        if body.len() % 8 != 0 {
            return Err(Errno::EINVAL);
        }
        let mut entries = Vec::with_capacity(body.len() / 8);
        for raw in body.chunks_exact(8) {
            let tag = u16::from_le_bytes([raw[0], raw[1]]);
            let tag = Tag::from_number(u32::from(tag)).ok_or(Errno::EINVAL)?;
            let id = if tag.has_id() { u32_at(raw, 4) } else { NO_ID };
            entries.push(Entry { tag, perm: u16::from_le_bytes([raw[2], raw[3]]), id });
        }
        Acl::new(entries).map(Some)
    }

    /// Writes the wire form.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + 8 * self.entries.len());
        out.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.entries {
            out.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            out.extend_from_slice(&entry.perm.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// The entries in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Do mode bits alone say the same? (Then the list is not stored.)
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// The nine mode bits that go with this list; the group bits show the mask where there is one.
    pub fn mode_bits(&self) -> u16 {
        self.perm(Tag::UserObj) << 6 | self.group_class() << 3 | self.perm(Tag::Other)
    }

    /// chmod of a file that has this list: owner, mask (or owning group) and others change.
    pub fn chmod(&mut self, mode: u16) {
        let group = if self.has_mask() { Tag::Mask } else { Tag::GroupObj };
        for entry in &mut self.entries {
            match entry.tag {
                Tag::UserObj => entry.perm = mode >> 6 & 7,
                Tag::Other => entry.perm = mode & 7,
                tag if tag == group => entry.perm = mode >> 3 & 7,
                _ => {}
            }
        }
    }

    /// What a file created with `mode` gets from this default list: its access list, whose
    /// [`mode_bits`](Self::mode_bits) are the mode. The umask plays no part.
    pub fn inherit(&self, mode: u16) -> Acl {
        let mut acl = self.clone();
        acl.chmod(self.mode_bits() & mode);
        acl
    }

    /// Does the list grant all of `want` (read 4, write 2, execute 1) to these credentials, for a
    /// file of this owner and group? Capabilities are not considered.
    pub fn permits(&self, cred: &Cred, uid: u32, gid: u32, want: u16) -> bool {
        if cred.uid == uid {
            return self.perm(Tag::UserObj) & want == want;
        }
        let mask = if self.has_mask() { self.perm(Tag::Mask) } else { 7 };
        let user = self.entries.iter().find(|e| e.tag == Tag::User && e.id == cred.uid);
        if let Some(entry) = user {
            return entry.perm & mask & want == want;
        }
        let mut member = false;
        for entry in &self.entries {
            let group = match entry.tag {
                Tag::GroupObj => gid,
                Tag::Group => entry.id,
                _ => continue,
            };
            if cred.gid == group || cred.groups.contains(&group) {
                member = true;
                if entry.perm & mask & want == want {
                    return true;
                }
            }
        }
        !member && self.perm(Tag::Other) & want == want
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|e| e.tag == Tag::Mask)
    }

    fn group_class(&self) -> u16 {
        self.perm(if self.has_mask() { Tag::Mask } else { Tag::GroupObj })
    }

    fn perm(&self, tag: Tag) -> u16 {
        self.entries.iter().find(|e| e.tag == tag).map_or(0, |e| e.perm)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: Tag, perm: u16, id: u32) -> Entry {
        Entry { tag, perm, id }
    }

    /// `u::rw-, u:1000:rwx, g::r--, g:50:-w-, m::rw-, o::---`
    fn sample() -> Acl {
        Acl::new(vec![
            entry(Tag::UserObj, 6, NO_ID),
            entry(Tag::User, 7, 1000),
            entry(Tag::GroupObj, 4, NO_ID),
            entry(Tag::Group, 2, 50),
            entry(Tag::Mask, 6, NO_ID),
            entry(Tag::Other, 0, NO_ID),
        ])
        .unwrap()
    }

    fn cred(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        Cred { uid, gid, groups: groups.into(), umask: 0o022 }
    }

    #[test]
    fn the_wire_form_goes_round() {
        let acl = sample();
        assert_eq!(Acl::parse(&acl.emit()).unwrap(), Some(acl));
        assert_eq!(Acl::parse(&2u32.to_le_bytes()), Ok(None));
    }

    #[test]
    fn malformed_lists_are_refused() {
        assert_eq!(Acl::parse(b""), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&1u32.to_le_bytes()), Err(Errno::EOPNOTSUPP));
        let good = sample().emit();
        for cut in 5..good.len() {
            assert_eq!(Acl::parse(&good[..cut]), Err(Errno::EINVAL), "cut at {cut}");
        }
        let mut entries = sample().entries;
        entries.swap(0, 1);
        assert_eq!(Acl::new(entries), Err(Errno::EINVAL));
        let mut entries = sample().entries;
        entries.remove(4);
        assert_eq!(Acl::new(entries), Err(Errno::EINVAL), "users but no mask");
        let mut entries = sample().entries;
        entries[0].perm = 8;
        assert_eq!(Acl::new(entries), Err(Errno::EINVAL));
    }

    #[test]
    fn mode_and_list_follow_each_other() {
        assert_eq!(sample().mode_bits(), 0o660);
        assert_eq!(Acl::from_mode(0o754).mode_bits(), 0o754);
        assert!(Acl::from_mode(0o754).is_minimal());
        let mut acl = sample();
        acl.chmod(0o741);
        assert_eq!(acl.mode_bits(), 0o741);
        assert_eq!(acl.entries[2].perm, 4, "the owning group keeps its entry; the mask changed");
        assert_eq!(sample().inherit(0o640).mode_bits(), 0o640);
        assert_eq!(sample().inherit(0o777).mode_bits(), 0o660);
    }

    #[test]
    fn entries_are_consulted_in_the_order_of_the_standard() {
        let acl = sample();
        assert!(acl.permits(&cred(1, 1, &[]), 1, 9, 6), "owner");
        assert!(!acl.permits(&cred(1, 9, &[50]), 1, 9, 1), "the owner gets no more than his entry");
        assert!(acl.permits(&cred(1000, 1, &[]), 1, 9, 6), "named user");
        assert!(!acl.permits(&cred(1000, 1, &[]), 1, 9, 1), "masked");
        assert!(acl.permits(&cred(2, 9, &[]), 1, 9, 4), "owning group");
        assert!(acl.permits(&cred(2, 3, &[50]), 1, 9, 2), "named group");
        assert!(!acl.permits(&cred(2, 9, &[50]), 1, 9, 6), "no single group entry grants both");
        assert!(!acl.permits(&cred(2, 3, &[]), 1, 9, 4), "others");
    }
}
