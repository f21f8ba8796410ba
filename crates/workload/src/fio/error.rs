//! What is wrong with a job file, and where.

use std::fmt;

/// A place in a job file or on a command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// The file, or `command line`.
    pub file: String,
    /// Line from 1; 0 on a command line.
    pub line: u32,
    /// The whole line, as written.
    pub text: String,
    /// First byte in `text` that is meant.
    pub start: usize,
    /// Number of bytes that are meant, at least 1.
    pub len: usize,
}

/// One mistake in a job file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobError {
    /// Where.
    pub span: Span,
    /// What, with key and value.
    pub message: String,
    /// What may have been meant.
    pub hint: Option<String>,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { file, line, text, start, len } = &self.span;
        let column = text.get(..*start).map_or(0, |before| before.chars().count());
        match line {
            0 => writeln!(f, "{file}: {}", self.message)?,
            _ => writeln!(f, "{file}:{line}:{}: {}", column + 1, self.message)?,
        }
        let number = if *line == 0 { String::new() } else { line.to_string() };
        let marked = text.get(*start..start.saturating_add(*len));
        let marks = marked.map_or(1, |marked| marked.chars().count()).max(1);
        writeln!(f, "  {number:>4} | {}", text.trim_end())?;
        write!(f, "       | {}{}", " ".repeat(column), "^".repeat(marks))?;
        match &self.hint {
            Some(hint) => write!(f, "\n       = {hint}"),
            None => Ok(()),
        }
    }
}

/// All mistakes that were found, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobErrors(pub Vec<JobError>);

impl fmt::Display for JobErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for JobErrors {}

/// The name in `names` that is most like `name`, where one is.
pub(super) fn similar<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let limit = (name.len() / 3).clamp(1, 3);
    let near = names.map(|other| (distance(name, other), other));
    near.filter(|&(distance, _)| distance <= limit).min().map(|(_, name)| name)
}

/// Letters to change, insert or remove (Levenshtein); names above 64 bytes are like nothing.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 64 || b.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_points_at_the_value() {
        let span =
            Span { file: "a.fio".into(), line: 3, text: "bs=4q # ä".into(), start: 3, len: 2 };
        let error =
            JobError { span, message: "bs: `4q` is not a size".into(), hint: Some("so".into()) };
        let text = error.to_string();
        let expected =
            "a.fio:3:4: bs: `4q` is not a size\n     3 | bs=4q # ä\n       |    ^^\n       = so";
        assert_eq!(text, expected);
    }

    #[test]
    fn similar_names_are_found_and_others_not() {
        let names = ["rwmixread", "rwmixwrite", "bs", "iodepth"];
        assert_eq!(similar("rwmxread", names.into_iter()), Some("rwmixread"));
        assert_eq!(similar("iodpeth", names.into_iter()), Some("iodepth"));
        assert_eq!(similar("nonsense", names.into_iter()), None);
        assert_eq!(similar(&"x".repeat(4000), names.into_iter()), None);
    }
}
