//! What the engine makes of the boundary mark of a run.
//!
//! The mark says that the map of the next block lies in another metadata block, which usually lies
//! right behind this run on the device: ext3's `get_block` sets it where a run reaches the last
//! pointer of a table. The rules are those that the thread "[PATCH] avoid too many boundaries in
//! DIO" (Chris Mason, David Chinner, Andrew Morton, 2006-11-10) compares, what Linux did about it
//! in 2013 (Jan Kara, "direct-io: fix boundary block handling"), and ours.

use std::fmt;
use std::str::FromStr;

/// When a bio under construction is sent off because of a mark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Boundary {
    /// Linux 2.6.19: every piece of a marked run carries the mark, and the bio goes before the
    /// piece's predecessor is added. So each bio holds one page.
    EveryPiece,
    /// The first patch of the thread: the first piece of a run carries its mark.
    FirstPiece,
    /// The first attempt at the second patch: the last piece carries the mark, but the bio goes
    /// before the last piece is in it.
    LastPieceEarly,
    /// The second patch: the last piece carries the mark, and the bio goes with it; but where the
    /// bio before has to be sent on the way, the mark is lost.
    LastPiece,
    /// Linux since 2013: as the second patch, and the mark is never lost.
    AfterAdd,
    /// The mark is ignored, as the first mail considers.
    None,
    /// Ours: the mark begins to read the next metadata block where that is not in memory, one plug
    /// collects the bios of a call, and bios end where the device would cut them.
    #[default]
    Prefetch,
}

impl Boundary {
    /// Every rule, by age.
    pub const ALL: [Boundary; 7] = [
        Boundary::EveryPiece,
        Boundary::FirstPiece,
        Boundary::LastPieceEarly,
        Boundary::LastPiece,
        Boundary::AfterAdd,
        Boundary::None,
        Boundary::Prefetch,
    ];

    /// Its name in mount options.
    pub const fn name(self) -> &'static str {
        match self {
            Boundary::EveryPiece => "every-piece",
            Boundary::FirstPiece => "first-piece",
            Boundary::LastPieceEarly => "last-piece-early",
            Boundary::LastPiece => "last-piece",
            Boundary::AfterAdd => "after-add",
            Boundary::None => "none",
            Boundary::Prefetch => "prefetch",
        }
    }

    /// True for ours: pieces as large as the memory allows, one plug a call, bios that end at the
    /// device's chunks. The others walk the memory page by page and send each bio at once.
    pub const fn is_modern(self) -> bool {
        matches!(self, Boundary::Prefetch)
    }

    /// Whether this piece of a marked run carries the mark.
    pub(super) fn takes(self, first: bool, last: bool) -> bool {
        match self {
            Boundary::EveryPiece => true,
            Boundary::FirstPiece => first,
            Boundary::LastPieceEarly | Boundary::LastPiece | Boundary::AfterAdd => last,
            Boundary::None | Boundary::Prefetch => false,
        }
    }

    /// Whether the piece with the mark is added before the bio goes.
    pub(super) fn adds_first(self) -> bool {
        matches!(self, Boundary::LastPiece | Boundary::AfterAdd)
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Boundary {
    type Err = String;

    /// # Errors
    /// A sentence with the names that are known.
    fn from_str(text: &str) -> Result<Boundary, String> {
        Boundary::ALL.into_iter().find(|rule| rule.name() == text).ok_or_else(|| {
            let known = Boundary::ALL.map(Boundary::name).join("|");
            format!("`{text}` is no rule for boundaries: known are {known}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_known_by_its_name() {
        for rule in Boundary::ALL {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        let message = "sometimes".parse::<Boundary>().expect_err("not known");
        assert!(message.contains("every-piece|first-piece"), "{message}");
    }
}
