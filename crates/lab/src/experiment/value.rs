//! Values with a syntax of their own: sizes, ranges of seeds, names of cells, expressions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes, written with its unit: `64 KiB`, `4GiB`, `512 B`, `10 MB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let wrong =
            || format!("`{text}` is no size: a number with B, KiB, MiB, GiB, TiB, kB, MB, GB");
        let end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = (&text[..end], text[end..].trim());
        let factor: u64 = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number
            .checked_mul(factor)
            .map(ByteSize)
            .ok_or_else(|| format!("`{text}` is beyond 2^64 bytes"))
    }
}

/// Seeds `first..=last`, written `1..5`, or `3` for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeedRange {
    /// The first seed.
    pub first: u64,
    /// The last seed, included.
    pub last: u64,
}

impl SeedRange {
    /// The seeds.
    pub fn iter(self) -> impl Iterator<Item = u64> + Clone {
        self.first..=self.last
    }
}

impl FromStr for SeedRange {
    type Err = String;

    fn from_str(text: &str) -> Result<SeedRange, String> {
        let wrong = || format!("`{text}` is no range of seeds: write 1..5, or one number");
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
        if last < first {
            return Err(format!("`{text}` is an empty range of seeds"));
        }
        if last - first >= 10_000 {
            return Err(format!("`{text}` are more than 10000 seeds"));
        }
        Ok(SeedRange { first, last })
    }
}

/// The name of a cell: `variant.case.metric`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CellName {
    /// The variant.
    pub variant: String,
    /// The case.
    pub case: String,
    /// The metric.
    pub metric: String,
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.variant, self.case, self.metric)
    }
}

impl FromStr for CellName {
    type Err = String;

    fn from_str(text: &str) -> Result<CellName, String> {
        match text.trim().split('.').collect::<Vec<_>>().as_slice() {
            [variant, case, metric] => Ok(CellName {
                variant: (*variant).to_owned(),
                case: (*case).to_owned(),
                metric: (*metric).to_owned(),
            }),
            _ => Err(format!("`{}` is no cell: write variant.case.metric", text.trim())),
        }
    }
}

/// A cell, or two of them and what is made of both. `a|b.case.metric` is the largest of several
/// variants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expression {
    /// The first.
    pub first: CellName,
    /// The second, and how it is taken.
    pub second: Option<(Operator, CellName)>,
}

/// What is made of two cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// Their ratio.
    Ratio,
    /// Their difference.
    Difference,
}

impl Operator {
    fn sign(self) -> &'static str {
        match self {
            Operator::Ratio => " / ",
            Operator::Difference => " - ",
        }
    }
}

impl CellName {
    /// The same of each of its variants.
    pub fn each(&self) -> impl Iterator<Item = CellName> {
        let one = |variant: &str| CellName { variant: variant.to_owned(), ..self.clone() };
        self.variant.split('|').map(one)
    }

    /// The same of a case where it says `*`.
    fn of_case(&self, case: &str) -> CellName {
        let case = if self.case == "*" { case } else { &self.case };
        CellName { case: case.to_owned(), ..self.clone() }
    }
}

impl Expression {
    /// The cells in it.
    pub fn cells(&self) -> impl Iterator<Item = CellName> {
        let second = self.second.iter().map(|(_, cell)| cell);
        std::iter::once(&self.first).chain(second).flat_map(CellName::each)
    }

    /// Whether it is about several cases.
    pub fn has_star(&self) -> bool {
        self.cells().any(|cell| cell.case == "*")
    }

    /// The same of one case.
    pub fn of_case(&self, case: &str) -> Expression {
        let second = self.second.as_ref().map(|(how, cell)| (*how, cell.of_case(case)));
        Expression { first: self.first.of_case(case), second }
    }

    /// Its value, where `cell` has those of its cells.
    pub fn value(&self, cell: &dyn Fn(&CellName) -> Option<f64>) -> Option<f64> {
        self.value_of(cell, cell)
    }

    /// The same where the second cell is looked up elsewhere.
    pub fn value_of(
        &self,
        first: &dyn Fn(&CellName) -> Option<f64>,
        second: &dyn Fn(&CellName) -> Option<f64>,
    ) -> Option<f64> {
        let most = |cell: &dyn Fn(&CellName) -> Option<f64>, name: &CellName| {
            name.each().filter_map(|one| cell(&one)).reduce(f64::max)
        };
        let (one, other) = (most(first, &self.first)?, &self.second);
        match other {
            None => Some(one),
            Some((Operator::Ratio, name)) => Some(one / most(second, name)?),
            Some((Operator::Difference, name)) => Some(one - most(second, name)?),
        }
    }
}

impl FromStr for Expression {
    type Err = String;

    fn from_str(text: &str) -> Result<Expression, String> {
        let of = |how: Operator, sign: &str| Some((how, text.split_once(sign)?));
        // Names may have a `-` of their own.
        let ratio = of(Operator::Ratio, "/");
        match ratio.or_else(|| of(Operator::Difference, " - ")) {
            None => Ok(Expression { first: text.parse()?, second: None }),
            Some((how, (first, second))) => {
                Ok(Expression { first: first.parse()?, second: Some((how, second.parse()?)) })
            }
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.second.iter().try_for_each(|(how, second)| write!(f, "{}{second}", how.sign()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let fits = |&&(_, shift): &&(&str, u32)| self.0 > 0 && self.0.trailing_zeros() >= shift;
        match units.iter().find(fits) {
            Some((unit, shift)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl fmt::Display for SeedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}..{}", self.first, self.last),
        }
    }
}

/// Serde by the texts above.
macro_rules! as_text {
    ($($name:ident)*) => {
        $(impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
                into.collect_str(self)
            }
        })*
    };
}

as_text!(ByteSize SeedRange CellName Expression);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_they_are_written() {
        for text in ["64 KiB", "4 GiB", "1 B", "1000 B"] {
            assert_eq!(text.parse::<ByteSize>().map(|size| size.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("10MB".parse(), Ok(ByteSize(10_000_000)));
        assert_eq!("1..5".parse::<SeedRange>().map(|range| range.iter().count()), Ok(5));
        assert_eq!("7".parse(), Ok(SeedRange { first: 7, last: 7 }));
        let ratio: Expression = "a.b.c / d.e.f".parse().unwrap();
        assert_eq!((ratio.to_string().as_str(), ratio.cells().count()), ("a.b.c / d.e.f", 2));
        let least: Expression = "a.*.c - d|e.*.c".parse().unwrap();
        let value = |name: &CellName| match name.to_string().as_str() {
            "a.x.c" => Some(7.0),
            "d.x.c" => Some(3.0),
            "e.x.c" => Some(5.0),
            _ => None,
        };
        assert_eq!((least.has_star(), least.of_case("x").value(&value)), (true, Some(2.0)));
        assert_eq!(least.of_case("y").value(&value), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let size = |text: &str| text.parse::<ByteSize>().unwrap_err();
        assert!(size("64").contains("`64` is no size"), "{}", size("64"));
        assert!(size("64 parsecs").contains("`64 parsecs`"));
        assert!(size("99999999999999999999 B").contains("no size"));
        assert!(size("99999999999 TiB").contains("beyond 2^64"));
        assert!("5..1".parse::<SeedRange>().unwrap_err().contains("empty"));
        assert!("1..99999".parse::<SeedRange>().unwrap_err().contains("10000"));
        assert!("a.b".parse::<Expression>().unwrap_err().contains("variant.case.metric"));
    }
}
