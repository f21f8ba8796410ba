//! Lists of operations, `read_iolog`: versions 2 and 3 of fio's own format.
//!
//! ```text
//! fio version 3 iolog              fio version 2 iolog
//! 16 file add                      file add
//! 106 file open                    file open
//! 109 file write 0 4096            file write 0 4096
//! 140 file sync 0 0                wait 250
//! ```
//!
//! Version 3 has the time of each line in microseconds since the start, version 2 lines that wait.

use base::Nanos;

use super::job::Direction;
use super::place::Extent;

/// Operations of one list at most: each takes 48 bytes of memory.
const OPERATIONS_MAX: usize = 1 << 24;
/// Largest operation.
const BYTES_MAX: u64 = 256 << 20;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Data moves.
    Move(Direction),
    /// fsync, or fdatasync with true.
    Sync(bool),
}

/// One operation of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// When it begins, since the start.
    pub at: Nanos,
    /// What.
    pub action: Action,
    /// Number of the file.
    pub file: usize,
    /// Where.
    pub extent: Extent,
}

/// A list that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replay {
    /// The files in the order in which they are named.
    pub files: Vec<String>,
    /// The operations in order.
    pub operations: Vec<Operation>,
}

impl Replay {
    /// Reads a list; with `redirect` all operations go to that one file.
    ///
    /// # Errors
    /// The number of a line from 1, and what is wrong with it.
    pub fn parse(text: &str, redirect: Option<&str>) -> Result<Replay, (usize, String)> {
        let mut lines = text.lines().enumerate();
        let header = lines.next().map_or("", |(_, line)| line.trim());
        let timed = match header {
            "fio version 3 iolog" => true,
            "fio version 2 iolog" => false,
            _ => return Err((1, "is not `fio version 2 iolog` or 3".into())),
        };
        let mut reader = Reader { replay: Replay::default(), waited: Nanos::ZERO, redirect };
        for (number, line) in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            reader.line(timed, &words).map_err(|reason| (number + 1, reason))?;
        }
        Ok(reader.replay)
    }

    /// Bytes that each file must have.
    pub fn size(&self, file: usize) -> u64 {
        let of_file = self.operations.iter().filter(|operation| operation.file == file);
        of_file.map(|operation| operation.extent.offset + operation.extent.len).max().unwrap_or(0)
    }

    /// Does any operation move data that way?
    pub fn has(&self, direction: Direction) -> bool {
        self.operations.iter().any(|operation| operation.action == Action::Move(direction))
    }

    /// Bytes of the largest operation.
    pub fn largest(&self) -> u64 {
        self.operations.iter().map(|operation| operation.extent.len).max().unwrap_or(0)
    }
}

struct Reader<'r> {
    replay: Replay,
    waited: Nanos,
    redirect: Option<&'r str>,
}

impl Reader<'_> {
    fn line(&mut self, timed: bool, words: &[&str]) -> Result<(), String> {
        let number = |word: Option<&&str>, what: &str| {
            let word = word.ok_or_else(|| format!("has no {what}"))?;
            word.parse::<u64>().map_err(|_| format!("`{word}` is not {what}"))
        };
        let (at, words) = match (timed, words) {
            (true, [time, rest @ ..]) => {
                let time = number(Some(time), "a time in microseconds")?;
                (Nanos(time.saturating_mul(1000)), rest)
            }
            (_, ["wait", rest @ ..]) => {
                let time = number(rest.first(), "a time in microseconds")?;
                self.waited += Nanos(time.saturating_mul(1000));
                return Ok(());
            }
            _ => (self.waited, words),
        };
        let [name, action, rest @ ..] = words else {
            return Err("has no file and action".into());
        };
        let action = match *action {
            "add" | "open" | "close" => {
                self.file(name);
                return Ok(());
            }
            "read" => Action::Move(Direction::Read),
            "write" => Action::Move(Direction::Write),
            "trim" => Action::Move(Direction::Trim),
            "sync" => Action::Sync(false),
            "datasync" => Action::Sync(true),
            other => return Err(format!("`{other}` is not an action")),
        };
        let mut extent = Extent { offset: 0, len: 0 };
        if matches!(action, Action::Move(_)) {
            extent.offset = number(rest.first(), "an offset")?;
            extent.len = number(rest.get(1), "a length")?;
            let fits = extent.offset.checked_add(extent.len).is_some_and(|end| end < 1 << 62);
            if extent.len == 0 || extent.len > BYTES_MAX || !fits {
                return Err("moves no byte, more than 256 MiB, or beyond 4 EiB".into());
            }
        }
        if self.replay.operations.len() >= OPERATIONS_MAX {
            return Err(format!("is more than operation {OPERATIONS_MAX}"));
        }
        let file = self.file(name);
        self.replay.operations.push(Operation { at, action, file, extent });
        Ok(())
    }

    fn file(&mut self, name: &str) -> usize {
        let name = self.redirect.unwrap_or(name);
        let files = &mut self.replay.files;
        let known = files.iter().rposition(|file| file == name);
        known.unwrap_or_else(|| {
            files.push(name.to_owned());
            files.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVE: Action = Action::Move(Direction::Write);

    #[test]
    fn both_versions_are_read() {
        let text = "fio version 3 iolog\n16 a add\n106 a open\n109 a write 4096 512\n\
                    150 b read 0 8192\n160 a sync\n170 a close\n";
        let replay = Replay::parse(text, None).unwrap();
        assert_eq!(replay.files, ["a", "b"]);
        let first = replay.operations[0];
        let extent = Extent { offset: 4096, len: 512 };
        let expected = Operation { at: Nanos(109_000), action: MOVE, file: 0, extent };
        assert_eq!(first, expected);
        assert_eq!(replay.operations[2].action, Action::Sync(false));
        assert_eq!((replay.size(0), replay.size(1), replay.largest()), (4608, 8192, 8192));
        let text = "fio version 2 iolog\na add\nwait 250\na write 0 512\nb trim 0 512\n";
        let replay = Replay::parse(text, Some("one")).unwrap();
        assert_eq!((replay.files.len(), replay.operations[0].at), (1, Nanos(250_000)));
        assert!(replay.has(Direction::Trim) && !replay.has(Direction::Read));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("ea\0t", 1),
            ("fio version 3 iolog\nx a add", 2),
            ("fio version 3 iolog\n1 a add\n2 a jump 0 4", 3),
            ("fio version 3 iolog\n1 a write 0", 2),
            ("fio version 3 iolog\n1 a write 0 0", 2),
            ("fio version 3 iolog\n1 a write 18446744073709551615 9", 2),
            ("fio version 2 iolog\nwait", 2),
            ("fio version 2 iolog\na", 2),
        ] {
            assert_eq!(Replay::parse(text, None).map_err(|error| error.0), Err(line), "{text:?}");
        }
    }
}
