//! The hash of names in directories and attributes.
//!
//! Source: "XFS Algorithms and Data Structures": each byte is mixed into the number rotated left
//! by seven bits.

/// The hash of a name where case matters.
pub fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, &byte| hash.rotate_left(7) ^ u32::from(byte))
}

/// How the names of directories are compared.
///
/// Without regard to case (`mkfs.xfs -n version=ci`), the capital letters of Latin-1 are taken as
/// the small ones, byte by byte, in the names of directories and of parent pointers. Names are kept
/// as they were given. Source: `xfs_db -c "hash -d NAME"` over all bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Case {
    /// Bytes must be equal.
    #[default]
    Matters,
    /// Letters may differ in case.
    Ignored,
}

fn small(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + 0x20,
        other => other,
    }
}

impl Case {
    /// The hash of a name.
    pub fn hash(self, name: &[u8]) -> u32 {
        let mix = |hash: u32, byte: u8| hash.rotate_left(7) ^ u32::from(byte);
        match self {
            Case::Matters => hash(name),
            Case::Ignored => name.iter().fold(0, |hash, &byte| mix(hash, small(byte))),
        }
    }

    /// Whether two names are one.
    pub fn same(self, one: &[u8], two: &[u8]) -> bool {
        let alike = |(one, two): (&u8, &u8)| small(*one) == small(*two);
        match self {
            Case::Matters => one == two,
            Case::Ignored => one.len() == two.len() && one.iter().zip(two).all(alike),
        }
    }

    /// A name as all that are the same have it.
    pub fn fold(self, name: &[u8]) -> std::borrow::Cow<'_, [u8]> {
        match self {
            Case::Matters => name.into(),
            Case::Ignored => name.iter().copied().map(small).collect::<Vec<_>>().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_ignored_as_xfs_db_does() {
        // As `xfs_db -c "hash -d NAME"` prints them with `version=ci`.
        let case = Case::Ignored;
        assert_eq!((case.hash(b"Hello"), case.hash(b"hello")), (0x8cbb_3669, 0x8cbb_3669));
        assert_eq!(hash(b"Hello"), 0x8cbb_366b);
        assert!(case.same(b"HE\xc4\xd7", b"he\xe4\xd7") && !case.same(b"\xd7", b"\xf7"));
        assert!(!case.same(b"a", b"ab") && !Case::Matters.same(b"a", b"A"));
        assert_eq!(&*case.fold(b"ReadMe"), b"readme");
    }

    #[test]
    fn known_answers() {
        // As `xfs_db -c "hash NAME"` prints them.
        assert_eq!(hash(b"."), 0x2e);
        assert_eq!(hash(b".."), 0x172e);
        assert_eq!(hash(b"lost+found"), 0x021a_a60c);
        assert_eq!(hash(b"abcdefghijklmnopqrstuvwxyz"), 0x5500_4ae3);
    }
}
