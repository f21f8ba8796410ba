//! I/O priorities: what ionice(1) sets for a task.

use std::fmt;
use std::str::FromStr;

/// The class of an I/O priority, the more urgent the smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum IoClass {
    /// Served before everybody else, always.
    RealTime,
    /// Everybody without another wish.
    #[default]
    BestEffort,
    /// Served when nobody else wants to be.
    Idle,
}

/// An I/O priority: a class and, inside it, a level from 0 (most) to 7 (least).
///
/// The smaller one is the more urgent one. Source: ioprio_set(2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoPriority {
    class: IoClass,
    level: u8,
}

impl IoPriority {
    /// Levels of a class.
    pub const LEVELS: u8 = 8;

    /// A priority; `None` where `level` is above 7. The idle class knows no levels: its level
    /// is always 7.
    pub const fn new(class: IoClass, level: u8) -> Option<IoPriority> {
        match class {
            _ if level >= IoPriority::LEVELS => None,
            IoClass::Idle => Some(IoPriority { class, level: 7 }),
            _ => Some(IoPriority { class, level }),
        }
    }

    /// The class.
    pub const fn class(self) -> IoClass {
        self.class
    }

    /// The level inside the class, 0 to 7.
    pub const fn level(self) -> u8 {
        self.level
    }
}

impl Default for IoPriority {
    /// Best effort, level 4: a task that never asked.
    fn default() -> IoPriority {
        IoPriority { class: IoClass::BestEffort, level: 4 }
    }
}

impl fmt::Display for IoPriority {
    /// `rt/0`, `be/4`, `idle`: as iotop(8) prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            IoClass::RealTime => write!(f, "rt/{}", self.level),
            IoClass::BestEffort => write!(f, "be/{}", self.level),
            IoClass::Idle => f.write_str("idle"),
        }
    }
}

impl fmt::Debug for IoPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no I/O priority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseIoPriorityError(String);

impl fmt::Display for ParseIoPriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no I/O priority (rt/0..rt/7, be/0..be/7 or idle)", self.0)
    }
}

impl std::error::Error for ParseIoPriorityError {}

impl FromStr for IoPriority {
    type Err = ParseIoPriorityError;

    fn from_str(text: &str) -> Result<IoPriority, ParseIoPriorityError> {
        let priority = match text.split_once('/') {
            None if text == "idle" => IoPriority::new(IoClass::Idle, 7),
            Some(("rt", level)) => {
                level.parse().ok().and_then(|n| IoPriority::new(IoClass::RealTime, n))
            }
            Some(("be", level)) => {
                level.parse().ok().and_then(|n| IoPriority::new(IoClass::BestEffort, n))
            }
            _ => None,
        };
        priority.ok_or_else(|| ParseIoPriorityError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_read_as_they_are_printed_and_order_by_urgency() {
        for text in ["rt/0", "be/4", "be/7", "idle"] {
            assert_eq!(text.parse::<IoPriority>().unwrap().to_string(), text);
        }
        for text in ["", "rt", "rt/8", "be/-1", "idle/7", "none"] {
            assert!(text.parse::<IoPriority>().is_err(), "{text}");
        }
        let order: Vec<IoPriority> =
            ["rt/7", "be/0", "be/4", "idle"].iter().map(|text| text.parse().unwrap()).collect();
        assert!(order.is_sorted());
        assert_eq!(IoPriority::default(), order[2]);
    }
}
