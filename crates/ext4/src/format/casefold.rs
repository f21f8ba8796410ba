//! Names without their case, for directories that ignore it.
//!
//! A name's folded form is NFD of its full case folding, without the code points that are to be
//! ignored: each code point is decomposed, folded and decomposed again by itself, and only then are
//! the combining marks put in order. Two names are one where their folded forms are equal; the hash
//! of a name is that of its folded form.
//!
//! Images name Unicode 12.1. The tables here are newer, and are read as those of 12.1: by the
//! stability policy of Unicode nothing changes for a code point once it is assigned, and what 12.1
//! does not know is left as it is.
//!
//! Source: kernel `Documentation/admin-guide/ext4`, mke2fs(8); every code point compared with
//! `debugfs dx_hash -c` (1.47.4), names with Linux 7.2.

use std::sync::LazyLock;

use caseless::Caseless;
use regex_syntax::hir::{Class, HirKind};
use unicode_normalization::UnicodeNormalization;

/// How the names of a file system are encoded (`s_encoding`): UTF-8 by Unicode 12.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Encoding {
    /// `s_encoding_flags`: names that are no UTF-8 are refused.
    pub strict: bool,
}

impl Encoding {
    /// The number of UTF-8 by Unicode 12.1.
    pub const UTF8_12_1: u16 = 1;
    /// The flag of [`Encoding::strict`].
    pub const STRICT: u16 = 1;
}

/// Code points of a property, as ranges in order.
struct Set(Vec<(char, char)>);

impl Set {
    fn of(property: &str) -> Set {
        match regex_syntax::parse(property).map(|parsed| parsed.into_kind()) {
            Ok(HirKind::Class(Class::Unicode(class))) => {
                Set(class.iter().map(|range| (range.start(), range.end())).collect())
            }
            other => unreachable!("{property} is a class of code points, not {other:?}"),
        }
    }

    fn has(&self, c: char) -> bool {
        let at = self.0.partition_point(|range| range.1 < c);
        self.0.get(at).is_some_and(|range| range.0 <= c)
    }
}

/// What Unicode 12.1 knows.
static KNOWN: LazyLock<Set> = LazyLock::new(|| Set::of(r"\p{age=12.1}"));
/// What has no part in comparisons.
static IGNORED: LazyLock<Set> = LazyLock::new(|| Set::of(r"\p{Default_Ignorable_Code_Point}"));

/// Assigned by Unicode 14, and ignored since.
const LATER_IGNORED: char = '\u{180f}';

/// The folded form of a name; `None` where it has none, for it is no UTF-8.
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    // Bytes that continue no character stay, behind ASCII: so does e2fsprogs.
    let ascii = name.first().is_some_and(u8::is_ascii) && name.iter().all(|&byte| byte < 0xc0);
    if ascii {
        return Some(name.to_ascii_lowercase());
    }
    let name = std::str::from_utf8(name).ok()?;
    let mut folded = String::with_capacity(name.len());
    // No mark passes what is left as it is.
    for part in name.split_inclusive(is_later) {
        let left = part.chars().next_back().filter(|&c| is_later(c));
        let known = &part[..part.len() - left.map_or(0, char::len_utf8)];
        folded.extend(known.chars().flat_map(fold_char).nfd().chain(left));
    }
    Some(folded.into_bytes())
}

/// Does Unicode 12.1 say nothing of the code point?
fn is_later(c: char) -> bool {
    !KNOWN.has(c) && (!IGNORED.has(c) || c == LATER_IGNORED)
}

/// The folded form of one code point.
fn fold_char(c: char) -> impl Iterator<Item = char> {
    let shown = Some(c).filter(|&c| !IGNORED.has(c)).into_iter();
    shown.nfd().default_case_fold().nfd().filter(|&c| !IGNORED.has(c))
}

/// Whether a name's folded form is this one.
pub fn folds_to(name: &[u8], folded: &[u8]) -> bool {
    if name.is_ascii() {
        return name.eq_ignore_ascii_case(folded) && name.len() == folded.len();
    }
    fold(name).is_some_and(|own| own == folded)
}

/// Whether a strict file system takes the name.
pub fn is_valid(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        let folded = fold(a.as_bytes()).expect("UTF-8");
        assert_eq!(folds_to(b.as_bytes(), &folded), fold(b.as_bytes()) == Some(folded.clone()));
        folds_to(b.as_bytes(), &folded)
    }

    /// Each pair as Linux 7.2 answered.
    #[test]
    fn names_are_the_same_where_linux_says_so() {
        for (a, b) in [
            ("Name", "nAME"),
            ("ß", "SS"),
            ("ẞ", "ss"),
            ("İ", "i\u{307}"),
            ("ς", "Σ"),
            ("ﬀ", "FF"),
            ("é", "E\u{301}"),
            ("Å", "\u{212b}"),
            ("K", "\u{212a}"),
            ("\u{390}", "\u{1fd3}"),
            ("\u{1f80}", "\u{1f88}"),
            ("a\u{ad}b", "AB"),
            ("가", "\u{1100}\u{1161}"),
            ("\u{13a0}", "\u{ab70}"),
            ("\u{10d0}", "\u{1c90}"),
            ("a\u{315}\u{300}", "a\u{300}\u{315}"),
        ] {
            assert!(same(a, b), "{a:?} {b:?}");
        }
        for (a, b) in [
            ("İ", "i"),
            // The iota below becomes a letter before marks are put in order.
            ("\u{3b1}\u{345}\u{301}", "\u{3b1}\u{301}\u{345}"),
            // Assigned by Unicode 14, with a case.
            ("\u{10570}", "\u{10597}"),
            ("\u{2c2f}", "\u{2c5f}"),
            ("\u{a7c0}", "\u{a7c1}"),
            // Assigned later: a mark, an ignored one, and one with a decomposition.
            ("a\u{1dfa}\u{300}", "a\u{300}\u{1dfa}"),
            ("a\u{180f}b", "AB"),
            ("\u{105c9}", "\u{105d2}\u{307}"),
        ] {
            assert!(!same(a, b), "{a:?} {b:?}");
        }
    }

    #[test]
    fn what_is_no_utf8_has_no_folded_form() {
        for name in
            [b"caf\xe9".as_slice(), b"\xed\xa0\x80", b"A\xc0\x80", b"\x80A", b"\xf4\x90\x80\x80"]
        {
            assert_eq!(fold(name), None, "{name:x?}");
            assert!(!is_valid(name));
        }
        assert_eq!(fold(b"A\x80B"), Some(b"a\x80b".to_vec()));
        assert!(!is_valid(b"A\x80B"));
    }
}
