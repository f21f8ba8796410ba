//! The prototype file of `mkfs.xfs -p`: a list of directories, files and devices.
//!
//! Source: mkfs.xfs(8), and what mkfs.xfs 7.2 makes of such files: every time is that of the build,
//! whatever the files have that content comes from, and the last `$` may be missing.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rt::Cx;
use vfs::FileType;

use super::input::Place;
use crate::copy::content::{self, Content};
use crate::copy::{Event, Keep, Meta, Outbox, Source, descend};

/// Longest symbolic link, bytes.
const TARGET_MAX: usize = 1023;

/// One line of a prototype.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    /// Its path below the root, which is empty.
    path: Vec<u8>,
    kind: FileType,
    mode: u16,
    owner: (u32, u32),
    rdev: u64,
    /// The file that its content comes from, or the target of a symbolic link.
    text: Vec<u8>,
}

/// A prototype that was read.
#[derive(Debug)]
pub struct Prototype {
    nodes: Vec<Node>,
}

/// The words of a prototype.
struct Words<'a> {
    left: Box<dyn Iterator<Item = (usize, &'a [u8])> + 'a>,
    line: usize,
}

impl<'a> Words<'a> {
    /// Comments go from a colon to the end of their line.
    fn new(text: &'a [u8]) -> Words<'a> {
        let lines = text.split(|&byte| byte == b'\n').zip(1..);
        let words = lines.flat_map(|(line, number)| {
            let end = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
            let words = line[..end].split(u8::is_ascii_whitespace);
            words.filter(|word| !word.is_empty()).map(move |word| (number, word))
        });
        Words { left: Box::new(words), line: 1 }
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let (line, word) = self.left.next()?;
        self.line = line;
        Some(word)
    }

    fn must(&mut self, what: &str) -> Result<&'a [u8]> {
        let line = self.line;
        self.next().with_context(|| format!("line {line}: {what} is missing"))
    }

    fn number(&mut self, what: &str) -> Result<u32> {
        let word = self.must(what)?;
        let number = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
        number.with_context(|| {
            format!("line {}: {what}: {} is no number", self.line, word.escape_ascii())
        })
    }

    /// Mode, owner, and what a kind has besides.
    fn node(&mut self, path: Vec<u8>) -> Result<Node> {
        let word = self.must("a mode")?;
        let wrong = || format!("line {}: {} is no mode", self.line, word.escape_ascii());
        let [kind, setuid, setgid, bits @ ..] = word else { bail!(wrong()) };
        let kind = match kind {
            b'-' => FileType::Regular,
            b'b' => FileType::BlockDevice,
            b'c' => FileType::CharDevice,
            b'd' => FileType::Directory,
            b'p' => FileType::Fifo,
            b'l' => FileType::Symlink,
            _ => bail!(wrong()),
        };
        let special = match (setuid, setgid) {
            (b'-' | b'u', b'-' | b'g') => {
                0o4000 * u16::from(*setuid == b'u') + 0o2000 * u16::from(*setgid == b'g')
            }
            _ => bail!(wrong()),
        };
        let octal = bits.len() == 3 && bits.iter().all(|bit| (b'0'..=b'7').contains(bit));
        if !octal {
            bail!(wrong());
        }
        let mode = bits.iter().fold(0, |mode, bit| mode << 3 | u16::from(bit - b'0')) | special;
        let owner = (self.number("a user")?, self.number("a group")?);
        let (mut rdev, mut text) = (0, Vec::new());
        match kind {
            FileType::Regular => text = self.must("the file with the content")?.to_vec(),
            FileType::Symlink => {
                text = self.must("the target")?.to_vec();
                if text.len() > TARGET_MAX {
                    bail!("line {}: the target has {} bytes", self.line, text.len());
                }
            }
            kind if kind.is_device() => {
                let (major, minor) = (self.number("a major")?, self.number("a minor")?);
                rdev = vfs::makedev(major, minor);
            }
            _ => {}
        }
        Ok(Node { path, kind, mode, owner, rdev, text })
    }
}

impl Prototype {
    /// Reads a prototype. `spaces`: a slash in a name stands for a space.
    ///
    /// # Errors
    /// The line that is wrong.
    pub fn parse(text: &[u8], spaces: bool) -> Result<Prototype> {
        let mut words = Words::new(text);
        words.must("a first word")?;
        words.number("a number of blocks")?;
        words.number("a number of inodes")?;
        let root = words.node(Vec::new())?;
        if root.kind != FileType::Directory {
            bail!("line {}: the root is no directory", words.line);
        }
        let (mut nodes, mut path, mut depth) = (vec![root], Vec::new(), vec![0]);
        let mut known = BTreeSet::new();
        while !depth.is_empty() {
            let word = match words.next() {
                None => break,
                Some(b"$") => {
                    path.truncate(depth.pop().expect("it is not empty"));
                    continue;
                }
                Some(word) => word,
            };
            let mut name = word.to_vec();
            if spaces {
                name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b' ');
            }
            let possible = !name.contains(&b'/') && name.len() <= vfs::NAME_MAX;
            if !possible || matches!(&name[..], b"." | b"..") {
                bail!("line {}: {} is no name", words.line, name.escape_ascii());
            }
            let before = descend(&mut path, &name);
            if !known.insert(path.clone()) {
                bail!("line {}: {} is there twice", words.line, path.escape_ascii());
            }
            let node = words.node(path.clone())?;
            match node.kind {
                FileType::Directory => depth.push(before),
                _ => path.truncate(before),
            }
            nodes.push(node);
        }
        if let Some(word) = words.next() {
            bail!("line {}: {} follows on the last $", words.line, word.escape_ascii());
        }
        Ok(Prototype { nodes })
    }

    /// Reads a prototype file.
    ///
    /// # Errors
    /// It cannot be read, or the line that is wrong.
    pub fn read(place: &Place, spaces: bool) -> Result<Prototype> {
        let text = std::fs::read(&place.path).with_context(|| place.shown.clone())?;
        Prototype::parse(&text, spaces).with_context(|| place.shown.clone())
    }
}

/// A prototype as a source.
pub struct PrototypeSource {
    prototype: Prototype,
    keep: Keep,
}

impl PrototypeSource {
    /// The nodes of a prototype.
    pub fn new(prototype: Prototype, keep: Keep) -> PrototypeSource {
        PrototypeSource { prototype, keep }
    }

    fn node(&self, cx: &mut Cx, node: &Node, out: &mut Outbox) -> Result<()> {
        let regular = node.kind == FileType::Regular;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&node.text));
        let mut file = match regular {
            true => Some(HostFile::open(path)?),
            false => None,
        };
        let size = file.as_ref().map_or(0, |file| file.size);
        let now = self.keep.exact.as_ref().and_then(|exact| exact.pin);
        let now = now.unwrap_or_else(|| cx.realtime());
        let meta = Meta {
            kind: node.kind,
            mode: node.mode,
            uid: node.owner.0,
            gid: node.owner.1,
            rdev: node.rdev,
            size,
            atime: now,
            mtime: now,
            linked: false,
            id: None,
            kept: false,
        };
        let path = out.store(&node.path);
        let target = match node.kind {
            FileType::Symlink => out.store(&node.text),
            _ => 0..0,
        };
        out.push(Event::Node { path, meta, target, xattrs: 0 });
        if let Some(file) = &mut file {
            match self.keep.names_only {
                true => drop(content::outline(cx, file, size, out)?),
                false => content::carry(cx, file, size, true, out)?,
            }
            out.push(Event::End);
        }
        out.breathe(cx)
    }
}

impl Source for PrototypeSource {
    fn run(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        for node in &self.prototype.nodes {
            let prefix = 0;
            if self.keep.is_excluded(&node.path, prefix) {
                continue;
            }
            let done = self.node(cx, node, out);
            out.go_on(done)?;
        }
        Ok(())
    }
}

/// A file that content comes from.
struct HostFile {
    file: File,
    path: PathBuf,
    size: u64,
}

impl HostFile {
    fn open(path: PathBuf) -> Result<HostFile> {
        let opened = || {
            let file = File::open(&path)?;
            let meta = file.metadata()?;
            Ok::<_, std::io::Error>((file, meta))
        };
        let (file, meta) = opened().with_context(|| path.display().to_string())?;
        if !meta.is_file() {
            bail!("{}: is no regular file", path.display());
        }
        Ok(HostFile { file, size: meta.len(), path })
    }
}

impl Content for HostFile {
    fn next_data(&mut self, _cx: &mut Cx, offset: u64) -> Result<Option<std::ops::Range<u64>>> {
        let seek = |from| rustix::fs::seek(&self.file, from);
        let found = match seek(rustix::fs::SeekFrom::Data(offset)) {
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            other => other.and_then(|start| Ok(start..seek(rustix::fs::SeekFrom::Hole(start))?)),
        };
        found.map(Some).with_context(|| self.path.display().to_string())
    }

    fn read(&mut self, _cx: &mut Cx, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let read = self.file.read_at(buf, offset);
        read.with_context(|| self.path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &[u8] = b"/stand/diskboot\n4872 110\nd--777 3 1\nusr d--777 3 1\n\
        sh ---755 3 1 /bin/sh\nken d--755 6 1\n$\nb0 b--644 3 1 0 7\nc0 cu-644 3 1 1 3\n\
        fifo p-g644 3 1\nslink l--644 3 1 /a/symbolic/link\n: a comment $ here\n$\n$\n";

    #[test]
    fn the_example_of_the_manual_page_is_read() {
        let nodes = Prototype::parse(EXAMPLE, false).expect("it is right").nodes;
        let paths: Vec<&str> =
            nodes.iter().map(|node| std::str::from_utf8(&node.path).expect("text")).collect();
        let wanted = ["", "usr", "usr/sh", "usr/ken", "usr/b0", "usr/c0", "usr/fifo", "usr/slink"];
        assert_eq!(paths, wanted);
        assert_eq!((nodes[5].mode, nodes[5].rdev), (0o4644, vfs::makedev(1, 3)));
        assert_eq!((nodes[6].mode, nodes[3].owner), (0o2644, (6, 1)));
        assert_eq!(nodes[7].text, b"/a/symbolic/link");
    }

    #[test]
    fn wrong_lines_are_named() {
        let wrong = |lines: &str| {
            let text = format!("boot\n1 1\n{lines}");
            Prototype::parse(text.as_bytes(), false).expect_err("wrong").to_string()
        };
        assert!(wrong("---755 0 0 /bin/sh").contains("line 3: the root is no directory"));
        assert!(wrong("d--755 0 0\nx q--755 0 0").contains("line 4: q--755 is no mode"));
        assert!(wrong("d--755 0 0\nx ---855 0 0").contains("---855"));
        assert!(wrong("d--755 0 0\nx ---755 a 0 y").contains("a is no number"));
        assert!(wrong("d--755 0 0\na/b p--755 0 0").contains("a/b is no name"));
        assert!(wrong("d--755 0 0\nx p--755 0 0\nx p--755 0 0").contains("twice"));
        assert!(wrong("d--755 0 0\n$\nx").contains("follows on the last $"));
        assert!(wrong("d--755 0 0\nx ---755 0 0").contains("the file with the content"));
        let spaces = b"boot\n1 1\nd--755 0 0\na/b p--755 0 0\n";
        let nodes = Prototype::parse(spaces, true).expect("a name with a space").nodes;
        assert_eq!(nodes[1].path, b"a b");
    }
}
