//! POSIX ACLs: the form on the disk is a count and entries of twelve bytes, big-endian.

use base::Errno;
use vfs::acl::{ACCESS, Acl, DEFAULT, Entry, NO_ID, Tag};

use crate::format::{put_u16, put_u32, u16_at, u32_at};

/// Bytes of an entry.
const ENTRY: usize = 12;
/// The names under which ACLs are stored.
const NAMES: [(&[u8], &[u8]); 2] = [(ACCESS, b"SGI_ACL_FILE"), (DEFAULT, b"SGI_ACL_DEFAULT")];

/// The stored name of an ACL attribute.
pub(super) fn disk_name(shown: &[u8]) -> Option<&'static [u8]> {
    NAMES.iter().find(|row| row.0 == shown).map(|row| row.1)
}

/// The shown name of a stored ACL.
pub(super) fn shown_name(stored: &[u8]) -> Option<&'static [u8]> {
    NAMES.iter().find(|row| row.1 == stored).map(|row| row.0)
}

/// Reads the disk form.
///
/// # Errors
/// `EUCLEAN` for a malformed one, as the kernel answers.
pub(super) fn from_disk(bytes: &[u8]) -> Result<Acl, Errno> {
    if bytes.len() < 4 || (bytes.len() - 4) / ENTRY < u32_at(bytes, 0) as usize {
        return Err(Errno::EFSCORRUPTED);
    }
    let count = u32_at(bytes, 0) as usize;
    let mut entries = Vec::with_capacity(count);
    for raw in bytes[4..].chunks_exact(ENTRY).take(count) {
        let tag = Tag::from_number(u32_at(raw, 0)).ok_or(Errno::EFSCORRUPTED)?;
        let id = if tag.has_id() { u32_at(raw, 4) } else { NO_ID };
        entries.push(Entry { tag, perm: u16_at(raw, 8), id });
    }
    Acl::new(entries)
}

/// Writes the disk form.
pub(super) fn to_disk(acl: &Acl) -> Vec<u8> {
    let mut bytes = vec![0; 4 + ENTRY * acl.entries().len()];
    put_u32(&mut bytes, 0, acl.entries().len() as u32);
    for (entry, raw) in acl.entries().iter().zip(bytes[4..].chunks_exact_mut(ENTRY)) {
        put_u32(raw, 0, entry.tag as u32);
        put_u32(raw, 4, entry.id);
        put_u16(raw, 8, entry.perm);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_form_is_read_and_a_wrong_count_is_told() {
        let mut bytes = vec![0, 0, 0, 3];
        for (tag, perm) in [(1u32, 7u16), (4, 5), (32, 4)] {
            bytes.extend_from_slice(&tag.to_be_bytes());
            bytes.extend_from_slice(&u32::MAX.to_be_bytes());
            bytes.extend_from_slice(&perm.to_be_bytes());
            bytes.extend_from_slice(&[0, 0]);
        }
        let acl = from_disk(&bytes).expect("valid");
        assert_eq!((acl.mode_bits(), to_disk(&acl)), (0o754, bytes.clone()));
        bytes[3] = 4;
        assert_eq!(from_disk(&bytes), Err(Errno::EFSCORRUPTED));
        assert_eq!(disk_name(b"system.posix_acl_default"), Some(&b"SGI_ACL_DEFAULT"[..]));
    }
}
