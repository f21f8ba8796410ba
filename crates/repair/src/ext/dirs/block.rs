//! One block of a directory, taken apart as far as it holds together.

use ext4::Rule;
use ext4::format::dir::{
    self, Behind, DirLayout, ENCRYPTED_MIN, HEADER_LEN, Names, entries, entry_len, whole_len,
};
use ext4::format::hash::NameHash;

use super::{Name, Problem};

/// What is known of the block.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// The directory.
    pub ino: u32,
    /// It is the directory's first block.
    pub first: bool,
    /// It is the root or a node of a hash tree: what lies behind its entries are no old ones.
    pub inner: bool,
    /// Inodes of the file system.
    pub inodes: u32,
}

/// What a block holds.
#[derive(Default)]
pub struct Parsed {
    /// Its entries in use, but for `.` and `..` at the start.
    pub names: Vec<Name>,
    /// What looks like an entry in places that no entry's length leads to.
    pub weak: Vec<Name>,
    /// What `..` names, in the first block.
    pub dotdot: Option<u32>,
    /// What lies behind `.` and `..`, there.
    pub behind_dots: [Vec<u8>; 2],
}

/// The eight bytes before a name.
struct Header {
    ino: u32,
    rec_len: usize,
    name_len: usize,
    /// Without the bits that say what follows the name.
    file_type: u8,
}

fn header(data: &[u8], at: usize, names: Names) -> Option<Header> {
    let bytes = data.get(at..at + HEADER_LEN)?;
    Some(Header {
        ino: u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")),
        rec_len: whole_len(u16::from_le_bytes([bytes[4], bytes[5]]), data),
        name_len: bytes[6].into(),
        file_type: names.type_of(bytes[7]),
    })
}

/// The hashes, and what lies behind the name of the entry at `at`, in a directory that has them.
/// `None` behind: it leaves the entry.
fn beside(data: &[u8], at: usize, layout: DirLayout) -> (NameHash, Option<Vec<u8>>) {
    let data = &data[at..];
    let rest = DirLayout { block_size: data.len() as u32, checksum: false, ..layout };
    let hash = entries(data, rest).next().map_or(NameHash::default(), |entry| entry.hash);
    (hash, dir::sound_behind(data, rest, 0))
}

/// Takes a block apart; says what is wrong with it.
pub fn parse(
    data: &[u8],
    layout: DirLayout,
    bounds: Bounds,
    problems: &mut Vec<Problem>,
) -> Parsed {
    let data = &data[..layout.end().min(data.len())];
    let mut parsed = Parsed::default();
    let (mut at, mut count) = (0, 0);
    while at < data.len() {
        let sound = header(data, at, layout.names).filter(|h| {
            h.rec_len >= entry_len(1)
                && h.rec_len.is_multiple_of(4)
                && h.rec_len <= data.len() - at
                && room_of(h, layout) <= h.rec_len
        });
        let Some(head) = sound else {
            let loss = Some("names in the rest of the block".to_string());
            let detail = format!("the entry at {at} has no sound length");
            problems.push((Rule::DirEntryLength, detail, loss));
            salvage(&data[at..], layout, bounds, &mut parsed.weak);
            break;
        };
        count += 1;
        let name = &data[at + HEADER_LEN..at + HEADER_LEN + head.name_len];
        let next = data.get(at + HEADER_LEN + head.name_len).copied().unwrap_or(0);
        let (hash, behind) = beside(data, at, layout);
        if behind.is_none() {
            let text = String::from_utf8_lossy(name).into_owned();
            let loss = Some(format!("the data behind the name {text:?}"));
            let detail = format!("the data behind {text:?} leave their entry");
            problems.push((Rule::DirEntryLength, detail, loss));
        }
        let behind = behind.unwrap_or_default();
        let need = layout.need(head.name_len, Behind::of(&behind));
        let used = if head.ino == 0 { HEADER_LEN } else { need };
        let named = Named { head: &head, name, hash, names: layout.names, next, behind, need };
        if bounds.first && count <= 2 {
            dots(&named, count, bounds, &mut parsed, problems);
        } else if head.ino != 0 {
            entry(&named, bounds, &mut parsed, problems);
        }
        if !bounds.inner && head.rec_len >= used + entry_len(1) {
            salvage(&data[at + used..at + head.rec_len], layout, bounds, &mut parsed.weak);
        }
        at += head.rec_len;
    }
    parsed
}

/// An entry, with its name.
struct Named<'a> {
    head: &'a Header,
    name: &'a [u8],
    hash: NameHash,
    /// What the names of the directory are.
    names: Names,
    /// The byte behind the name.
    next: u8,
    /// What lies behind it.
    behind: Vec<u8>,
    /// The bytes that the entry needs.
    need: usize,
}

/// Bytes that an entry needs.
fn room_of(head: &Header, layout: DirLayout) -> usize {
    match head.ino {
        0 => entry_len(head.name_len),
        _ => layout.entry_len(head.name_len),
    }
}

/// One of the first two entries.
fn dots(
    named: &Named<'_>,
    count: u32,
    bounds: Bounds,
    parsed: &mut Parsed,
    problems: &mut Vec<Problem>,
) {
    let (head, name) = (named.head, named.name);
    let (rule, wanted): (Rule, &[u8]) = match count {
        1 => (Rule::DirDot, b"."),
        _ => (Rule::DirDotdot, b".."),
    };
    let right = name == wanted && head.ino != 0 && (count == 2 || head.ino == bounds.ino);
    if count == 2 && name == wanted {
        parsed.dotdot = Some(head.ino);
    }
    if right {
        parsed.behind_dots[count as usize - 1] = named.behind.clone();
        let placed = count == 2 || head.rec_len == named.need;
        if !placed {
            problems.push((rule, "`.` takes too much room".into(), None));
        }
        if named.next != 0 {
            let detail = format!("{:#04x} behind the name of entry {count}", named.next);
            problems.push((rule, detail, None));
        }
        return;
    }
    let text = String::from_utf8_lossy(name);
    let detail = format!("entry {count} is {text:?}, inode {}", head.ino);
    // The block may be another directory's.
    let other = name == b"." && (1..=bounds.inodes).contains(&head.ino);
    let loss = other.then(|| format!("the names of both, if the block is inode {}'s", head.ino));
    problems.push((rule, detail, loss));
    if name != b"." && name != b".." && head.ino != 0 {
        entry(named, bounds, parsed, problems);
    }
}

/// An entry in use.
fn entry(named: &Named<'_>, bounds: Bounds, parsed: &mut Parsed, problems: &mut Vec<Problem>) {
    let Named { head, name, hash, names, .. } = *named;
    let behind = named.behind.clone();
    let text = String::from_utf8_lossy(name).into_owned();
    if head.ino > bounds.inodes {
        let loss = Some(format!("the name {text:?}"));
        let detail = format!("{text:?} names inode {}", head.ino);
        problems.push((Rule::DirEntryInode, detail, loss));
        return;
    }
    let mut kept = name.to_vec();
    if names.is_encrypted() {
        if name.len() < ENCRYPTED_MIN {
            let loss = Some("an encrypted name".to_string());
            let detail = format!("{} bytes are no encrypted name", name.len());
            problems.push((Rule::DirEntryName, detail, loss));
            return;
        }
    } else if name.is_empty() || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        let loss = Some("a part of the name".to_string());
        problems.push((Rule::DirEntryName, format!("the name {text:?}"), loss));
        kept.iter_mut().filter(|byte| **byte == b'/' || **byte == 0).for_each(|byte| *byte = b'.');
        if kept.is_empty() || kept == b"." || kept == b".." {
            kept = format!("#{}", head.ino).into_bytes();
        }
    }
    parsed.names.push(Name { name: kept, ino: head.ino, file_type: head.file_type, hash, behind });
}

/// Looks for entries at every place where one could begin.
fn salvage(data: &[u8], layout: DirLayout, bounds: Bounds, weak: &mut Vec<Name>) {
    let mut at = 0;
    while at + entry_len(1) <= data.len() {
        let found = header(data, at, layout.names).filter(|h| {
            h.ino != 0
                && h.ino <= bounds.inodes
                && (1..=7).contains(&h.file_type)
                && h.name_len > 0
                && h.rec_len >= layout.entry_len(h.name_len)
                && h.rec_len.is_multiple_of(4)
                && at + HEADER_LEN + h.name_len <= data.len()
        });
        let name = found.as_ref().map(|h| &data[at + HEADER_LEN..at + HEADER_LEN + h.name_len]);
        let likely = |name: &&[u8]| {
            if layout.names.is_encrypted() {
                return name.len() >= ENCRYPTED_MIN;
            }
            let text = !name.iter().any(|&byte| byte < 0x20 || byte == b'/' || byte == 0x7f);
            text && *name != b"." && *name != b".."
        };
        match (found, name.filter(likely)) {
            (Some(head), Some(name)) => {
                let file_type = head.file_type;
                let (hash, behind) = beside(data, at, layout);
                let behind = behind.unwrap_or_default();
                at += layout.need(head.name_len, Behind::of(&behind));
                weak.push(Name { name: name.to_vec(), ino: head.ino, file_type, hash, behind });
            }
            _ => at += 4,
        }
    }
}
