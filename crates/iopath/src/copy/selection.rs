//! The names of a tree that are copied, and how much of each: a list that takes a few bytes a name,
//! and is asked in the order in which it was made.

use std::cmp::Ordering;
use std::fmt;

use base::map::HashSet;
use rt::SpinLock;

use super::nodes::order;

/// How much of a name is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What stat(2) says and attributes: its content is there already.
    Attributes,
    /// All of it.
    All,
    /// All of it, and everything below it.
    Tree,
}

/// Names in the order of [`order`], each as the part in which it differs from the one before.
pub struct Selection {
    bytes: Vec<u8>,
    /// The name added last.
    last: Vec<u8>,
    /// Names whose turn was over when they were added.
    late: HashSet<Vec<u8>>,
    cursor: SpinLock<Cursor>,
}

impl Default for Selection {
    fn default() -> Selection {
        let cursor = SpinLock::named("cursor of a selection", Cursor::default());
        Selection { bytes: Vec::new(), last: Vec::new(), late: HashSet::default(), cursor }
    }
}

/// A name of the list.
#[derive(Default)]
struct Cursor {
    path: Vec<u8>,
    /// None before the first one.
    part: Option<Part>,
    /// Bytes of the list that have been read.
    at: usize,
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selection of {} bytes", self.bytes.len())
    }
}

impl Selection {
    /// Adds a name that follows all others.
    pub fn push(&mut self, path: &[u8], part: Part) {
        let same = self.last.iter().zip(path).take_while(|(one, two)| one == two).count();
        put(&mut self.bytes, same);
        put(&mut self.bytes, path.len() - same);
        self.bytes.push(part as u8);
        self.bytes.extend_from_slice(&path[same..]);
        self.last.truncate(same);
        self.last.extend_from_slice(&path[same..]);
    }

    /// Adds a name whose turn is over; all of it.
    pub fn push_late(&mut self, path: Vec<u8>) {
        self.late.insert(path);
    }

    /// How much of a name is copied. Names are asked for in the order of [`order`]; one twice, if
    /// need be.
    pub fn part(&self, path: &[u8]) -> Option<Part> {
        let mut cursor = self.cursor.lock_irq();
        let found = loop {
            match (cursor.part, order(&cursor.path, path)) {
                (Some(Part::Tree), _) if is_below(path, &cursor.path) => break Some(Part::All),
                (Some(part), Ordering::Equal) => break Some(part),
                (Some(_), Ordering::Greater) => break None,
                _ if cursor.at == self.bytes.len() => break None,
                _ => cursor.advance(&self.bytes),
            }
        };
        if self.late.contains(path) { Some(Part::All) } else { found }
    }

    /// All names of the list.
    pub fn each(&self, mut work: impl FnMut(&[u8])) {
        let mut cursor = Cursor::default();
        while cursor.at < self.bytes.len() {
            cursor.advance(&self.bytes);
            work(&cursor.path);
        }
    }
}

/// Whether a path is at or below another one.
pub fn is_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| above.is_empty() || rest.is_empty() || rest[0] == b'/')
}

impl Cursor {
    fn advance(&mut self, bytes: &[u8]) {
        let same = take(bytes, &mut self.at);
        let more = take(bytes, &mut self.at);
        let parts = [Part::Attributes, Part::All, Part::Tree];
        self.part = parts.into_iter().find(|part| *part as u8 == bytes[self.at]);
        let start = self.at + 1;
        self.at = start + more;
        self.path.truncate(same);
        self.path.extend_from_slice(&bytes[start..self.at]);
    }
}

/// Appends a number, seven bits a byte.
fn put(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads such a number.
fn take(bytes: &[u8], at: &mut usize) -> usize {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        number |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_their_order() {
        let mut selection = Selection::default();
        let long = [b"b/".to_vec(), vec![b'x'; 300]].concat();
        let names: [(&[u8], Part); 6] = [
            (b"", Part::Attributes),
            (b"a", Part::All),
            (b"a/b", Part::Attributes),
            (b"a!", Part::Tree),
            (b"b", Part::All),
            (&long, Part::All),
        ];
        names.iter().for_each(|(name, part)| selection.push(name, *part));
        selection.push_late(b"a/a".to_vec());
        let mut all = Vec::new();
        selection.each(|path| all.push(path.to_vec()));
        assert!(all.iter().eq(names.iter().map(|(name, _)| *name)));
        let asked: [(&[u8], Option<Part>); 12] = [
            (b"", Some(Part::Attributes)),
            (b"Z", None),
            (b"a", Some(Part::All)),
            (b"a/a", Some(Part::All)),
            (b"a/b", Some(Part::Attributes)),
            (b"a/c", None),
            (b"a!", Some(Part::All)),
            (b"a!/any/thing", Some(Part::All)),
            (b"a!b", None),
            (b"b", Some(Part::All)),
            (&long, Some(Part::All)),
            (b"c", None),
        ];
        for (path, part) in asked {
            let again = selection.part(path).map(|_| selection.part(path));
            assert_eq!(again.unwrap_or(None), part, "{path:?}");
        }
    }

    #[test]
    fn a_million_names_take_some_megabytes() {
        let mut selection = Selection::default();
        for n in 0..100_000 {
            selection.push(format!("d{:05}/f{:03}", n / 100, n % 100).as_bytes(), Part::All);
        }
        assert!(selection.bytes.len() < 600_000, "{}", selection.bytes.len());
    }
}
