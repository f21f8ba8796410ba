//! The hash of names in directories and attributes.
//!
//! Source: "XFS Algorithms and Data Structures": each byte is mixed into the number rotated left
//! by seven bits.

/// The hash of a name.
pub fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, &byte| hash.rotate_left(7) ^ u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // As `xfs_db -c "hash NAME"` prints them.
        assert_eq!(hash(b"."), 0x2e);
        assert_eq!(hash(b".."), 0x172e);
        assert_eq!(hash(b"lost+found"), 0x021a_a60c);
        assert_eq!(hash(b"abcdefghijklmnopqrstuvwxyz"), 0x5500_4ae3);
    }
}
