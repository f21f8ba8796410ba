//! The text of a volume group: sections, numbers, strings and lists.

use std::collections::BTreeMap;

/// Sections inside of each other.
const DEPTH_MAX: usize = 16;

/// A value of the text.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Section(Section),
}

/// Names and their values.
pub(super) type Section = BTreeMap<String, Value>;

/// Reads a text.
///
/// # Errors
/// The byte where it cannot be read on, and why.
pub(super) fn parse(text: &[u8]) -> Result<Section, String> {
    let mut reader = Reader { text, at: 0 };
    let section = reader.section(0)?;
    match reader.peek() {
        None => Ok(section),
        Some(_) => Err(reader.wrong("a bracket that closes nothing")),
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("byte {} of the text: {what}", self.at)
    }

    /// The next byte that is neither space nor in a comment.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.get(self.at)? {
                b'#' => {
                    let rest = &self.text[self.at..];
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                // A text may end with a zero.
                b' ' | b'\t' | b'\r' | b'\n' | b',' | 0 => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn word(&mut self, is_part: impl Fn(u8) -> bool) -> String {
        let rest = &self.text[self.at..];
        let len = rest.iter().position(|&b| !is_part(b)).unwrap_or(rest.len());
        self.at += len;
        String::from_utf8_lossy(&rest[..len]).into_owned()
    }

    fn section(&mut self, depth: usize) -> Result<Section, String> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("sections too deep"));
        }
        let mut section = Section::new();
        while self.peek().is_some_and(|byte| byte != b'}') {
            let name = self.word(|b| b.is_ascii_alphanumeric() || b"_-+.".contains(&b));
            if name.is_empty() {
                return Err(self.wrong("no name"));
            }
            let value = match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    let inner = self.section(depth + 1)?;
                    if self.peek() != Some(b'}') {
                        return Err(self.wrong("a section without its end"));
                    }
                    self.at += 1;
                    Value::Section(inner)
                }
                Some(b'=') => {
                    self.at += 1;
                    self.value()?
                }
                _ => return Err(self.wrong(&format!("`{name}` without a value"))),
            };
            section.insert(name, value);
        }
        Ok(section)
    }

    fn value(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some(b'[') => {
                self.at += 1;
                let mut list = Vec::new();
                while self.peek().is_some_and(|byte| byte != b']') {
                    list.push(self.scalar()?);
                }
                if self.peek().is_none() {
                    return Err(self.wrong("a list without its end"));
                }
                self.at += 1;
                Ok(Value::List(list))
            }
            _ => self.scalar(),
        }
    }

    fn scalar(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                let mut text = Vec::new();
                loop {
                    match self.text.get(self.at) {
                        None => return Err(self.wrong("a string without its end")),
                        Some(b'"') => break,
                        Some(b'\\') => {
                            text.extend(self.text.get(self.at + 1));
                            self.at += 2;
                        }
                        Some(&byte) => {
                            text.push(byte);
                            self.at += 1;
                        }
                    }
                }
                self.at += 1;
                Ok(Value::Text(String::from_utf8_lossy(&text).into_owned()))
            }
            Some(byte) if byte == b'-' || byte.is_ascii_digit() => {
                let digits = self.word(|b| b == b'-' || b == b'.' || b.is_ascii_digit());
                let number = digits.split('.').next().unwrap_or_default().parse();
                number.map(Value::Number).map_err(|_| self.wrong(&format!("the number {digits}")))
            }
            _ => Err(self.wrong("no value")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_wrong_ones_refused() {
        let text =
            b"# c\nvg {\n id = \"a\\\"b\" # x\n seqno = 3\n status = [\"READ\", \"WRITE\"]\n\
            flags = []\n}\ncontents = \"t\"\n\0";
        let all = parse(text).unwrap();
        let Value::Section(vg) = &all["vg"] else { panic!("{all:?}") };
        assert_eq!(vg["id"], Value::Text("a\"b".into()));
        assert_eq!(vg["seqno"], Value::Number(3));
        assert_eq!(vg["flags"], Value::List(vec![]));
        for wrong in
            ["a {", "a = ", "a = \"x", "a = [1", "}", "= 1", "a 1", "a = 99999999999999999999"]
        {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse("a{".repeat(100).as_bytes()).unwrap_err().contains("too deep"));
    }
}
