//! Feature bits of a file system on a disk: what a mount may do if one is set.
//!
//! A file system names its words in an enum that is a [`Word`], and the bits it knows in a table of
//! [`Feature`]s.

use std::fmt::Debug;

/// What an implementation may do with a file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Nothing: not even reading is right.
    Refused,
    /// Reading is right, writing would break what the feature guarantees.
    ReadOnly,
    /// Everything.
    ReadWrite,
}

/// The words of a superblock that hold feature bits.
pub trait Word: Copy + Eq + Debug + 'static {
    /// Every bit that has a name.
    const KNOWN: &'static [Feature<Self>];

    /// Stands in the names of unknown bits: the `I` of `FEATURE_I21`.
    fn letter(self) -> char;

    /// What an unknown bit in this word allows.
    fn unknown(self) -> Access;

    /// How to go on where this bit keeps a file system from being written; empty, or words that
    /// follow a sentence.
    fn advice(self, _bit: u32) -> &'static str {
        ""
    }
}

/// One known feature bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature<W> {
    /// The word it lives in.
    pub set: W,
    /// The bit's number in that word, 0..32.
    pub bit: u32,
    /// Its name, as the file system's own tools have it.
    pub name: &'static str,
    /// What a mount may do where the bit is set.
    pub access: Access,
}

/// A feature that keeps a file system from being read or written here. It is no corruption.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "feature {name} ({set:?} bit {bit}) is not supported for {}{}",
    self.wanted(),
    set.advice(*bit)
)]
pub struct Unsupported<W: Word> {
    /// Its name; `FEATURE_I21` and the like where the bit has none.
    pub name: String,
    /// The word it lives in.
    pub set: W,
    /// The bit's number in that word.
    pub bit: u32,
    /// What the feature still lets us do.
    pub access: Access,
}

impl<W: Word> Unsupported<W> {
    fn wanted(&self) -> &'static str {
        if self.access == Access::ReadOnly { "writing" } else { "reading" }
    }
}

/// Every bit that is set, in the order of the words and of the bits.
pub fn bits<W: Word, const N: usize>(words: [(W, u32); N]) -> impl Iterator<Item = (W, u32)> {
    words.into_iter().flat_map(|(set, word)| {
        (0..32).filter(move |bit| word & 1 << bit != 0).map(move |bit| (set, bit))
    })
}

fn known<W: Word>(set: W, bit: u32) -> Option<&'static Feature<W>> {
    W::KNOWN.iter().find(|feature| feature.set == set && feature.bit == bit)
}

/// The name of a bit.
pub fn name<W: Word>(set: W, bit: u32) -> String {
    match known(set, bit) {
        Some(feature) => feature.name.to_string(),
        None => format!("FEATURE_{}{bit}", set.letter()),
    }
}

/// The names of bits between spaces, `(none)` where there are none.
pub fn names<W: Word>(bits: impl Iterator<Item = (W, u32)>) -> String {
    let names: Vec<String> = bits.map(|(set, bit)| name(set, bit)).collect();
    if names.is_empty() { "(none)".to_string() } else { names.join(" ") }
}

/// What a mount may do where these bits are set, and the features that forbid more, most severe
/// first.
pub fn access<W: Word>(bits: impl Iterator<Item = (W, u32)>) -> (Access, Vec<Unsupported<W>>) {
    let allowed = |set: W, bit| known(set, bit).map_or(set.unknown(), |feature| feature.access);
    let mut reasons: Vec<_> = bits
        .map(|(set, bit)| (set, bit, allowed(set, bit)))
        .filter(|(_, _, access)| *access != Access::ReadWrite)
        .map(|(set, bit, access)| Unsupported { name: name(set, bit), set, bit, access })
        .collect();
    reasons.sort_by_key(|reason| reason.access);
    (reasons.first().map_or(Access::ReadWrite, |reason| reason.access), reasons)
}
