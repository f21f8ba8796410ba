//! Reading tar archives: v7, ustar, pax and GNU headers, with the attributes that GNU tar and
//! bsdtar write as `SCHILY.xattr.` records.
//!
//! Members whose name leads out of the archive (`..`) are refused, absolute names are taken as
//! relative. What is compressed is unpacked before ([`super::decompress`]).

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Timespec;
use rt::Cx;
use vfs::FileType;

use super::content::push_stretches;
use super::picks::{Names, Picks};
use super::tar_sink::{BLOCK, shown};
use super::tar_sparse::Map;
use super::{Event, Keep, Meta, Outbox, PIECE, Source, descend};

/// Longest set of pax records that is accepted, bytes: names, targets and attributes of one member.
const RECORDS_MAX: u64 = 16 << 20;

/// An archive to copy from.
pub struct TarSource<R: Read> {
    input: R,
    /// Path that members go below in the copy.
    name: Vec<u8>,
    keep: Keep,
    /// Pax records that hold for all members.
    global: Records,
    /// Bytes read so far, for messages.
    at: u64,
    /// Members that are copied; all without.
    picks: Option<Arc<Picks>>,
    /// Members so far that are not excluded.
    members: u64,
}

pub(super) type Records = BTreeMap<Vec<u8>, Vec<u8>>;

impl<R: Read> TarSource<R> {
    /// Reads the archive from `input`; members go below `name`.
    pub fn new(input: R, name: Vec<u8>, keep: Keep) -> TarSource<R> {
        let (global, picks) = (Records::new(), None);
        TarSource { input, name, keep, global, at: 0, picks, members: 0 }
    }

    /// The same, of which only these members are copied, each under the names that they have.
    pub fn picking(self, picks: Arc<Picks>) -> TarSource<R> {
        TarSource { picks: Some(picks), ..self }
    }

    /// The names that the next member goes by: none if it is left out, `Some(None)` if its own.
    fn pick(&mut self, left_out: bool, link: bool) -> Option<Option<Names>> {
        if left_out {
            return None;
        }
        self.members += 1;
        let Some(picks) = &self.picks else { return Some(None) };
        // Links come with the node that they are names of.
        picks.names(self.members - 1).filter(|_| !link).map(|names| Some(names.clone()))
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<()> {
        self.input
            .read_exact(buf)
            .with_context(|| format!("the archive ends in the middle, after byte {}", self.at))?;
        self.at += buf.len() as u64;
        Ok(())
    }

    fn read_padded(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > RECORDS_MAX {
            bail!("byte {} of the archive: a header of {size} bytes is too large", self.at);
        }
        let mut data = vec![0; (size as usize).next_multiple_of(BLOCK)];
        self.read(&mut data)?;
        data.truncate(size as usize);
        Ok(data)
    }

    fn member(&mut self, cx: &mut Cx, raw: Raw, own: Records, out: &mut Outbox) -> Result<()> {
        let mut records = self.global.clone();
        records.extend(own);
        let field = |key: &str| records.get(key.as_bytes());
        let path = field("GNU.sparse.name").or(field("path"));
        let path = path.unwrap_or(&raw.path);
        let path = self.place(path)?;
        let target = field("linkpath").unwrap_or(&raw.target);
        let number = |key, plain| match field(key).map(|value| String::from_utf8_lossy(value)) {
            Some(text) => text.trim().parse::<u64>().with_context(|| format!("pax {key}: {text}")),
            None => Ok(plain),
        };
        let size = number("size", raw.size)?;
        i64::try_from(size).with_context(|| format!("{}: {size} bytes", shown(&path)))?;
        let id = |key, plain| {
            let id = number(key, plain)?;
            u32::try_from(id).with_context(|| format!("{}: {key} {id} is too large", shown(&path)))
        };
        let left_out = self.keep.is_excluded(&path, self.name.len());
        let picked = self.pick(left_out, raw.kind == b'1');
        if raw.kind == b'1' {
            if picked.is_none() {
                return self.skip(size);
            }
            let to = self.place(target)?;
            let (path, to) = (out.store(&path), out.store(&to));
            out.push(Event::Link { path, to });
            self.skip(size)?;
            return out.breathe(cx);
        }
        let kind = kind_of(raw.kind, &path)?;
        let (map, stored) = match kind {
            FileType::Regular => self.map(&raw, &records, size).with_context(|| shown(&path))?,
            _ => (Map::default(), size),
        };
        let Some(names) = picked else { return self.skip(stored) };
        let path = names.as_ref().map_or(&path[..], |names| &names[0]);
        let mtime = field("mtime").map_or(Ok(raw.mtime), |value| time(value))?;
        let meta = Meta {
            kind,
            mode: raw.mode,
            uid: id("uid", raw.uid)?,
            gid: id("gid", raw.gid)?,
            rdev: if kind.is_device() { raw.rdev } else { 0 },
            size: map.size,
            atime: field("atime").map_or(Ok(mtime), |value| time(value))?,
            mtime,
            linked: self.keep.links && kind != FileType::Directory,
            id: None,
            kept: false,
        };
        let node_path = out.store(path);
        let target = if kind == FileType::Symlink { out.store(target) } else { 0..0 };
        let wanted = |pair: &(&[u8], &[u8])| self.keep.has_attribute(pair.0);
        let xattrs: Vec<_> = records.iter().filter_map(attribute).filter(wanted).collect();
        out.push(Event::Node { path: node_path, meta, target, xattrs: xattrs.len() as u32 });
        for (name, value) in xattrs {
            let (name, value) = (out.store(name), out.store(value));
            out.push(Event::Xattr { name, value });
        }
        match kind {
            FileType::Regular if self.keep.names_only => self.outline(&map, stored, out)?,
            FileType::Regular => {
                self.content(cx, &map, stored, out).with_context(|| shown(path))?;
            }
            _ => self.skip(stored)?,
        }
        names.iter().for_each(|names| push_links(names, out));
        out.breathe(cx)
    }

    /// Says where a file has content, and passes over that.
    fn outline(&mut self, map: &Map, stored: u64, out: &mut Outbox) -> Result<()> {
        let runs: Vec<_> = map.stretches.iter().map(|&(at, len)| at..at + len).collect();
        push_stretches(&runs, out);
        self.skip(stored)
    }

    /// Where the content of a regular file belongs, and how many bytes of it are stored; reads what
    /// of the map lies between header and content.
    fn map(&mut self, raw: &Raw, records: &Records, stored: u64) -> Result<(Map, u64)> {
        let text = |key: &str| records.get(key.as_bytes()).map(|v| String::from_utf8_lossy(v));
        let size = text("GNU.sparse.realsize").or(text("GNU.sparse.size"));
        let size = size.map(|text| text.parse::<u64>().context("GNU.sparse size")).transpose()?;
        if raw.kind == b'S' {
            let mut map = raw.sparse.clone();
            let mut more = raw.sparse_goes_on;
            while more {
                let mut block = [0; BLOCK];
                self.read(&mut block)?;
                map.add_old(&block[..504], number)?;
                more = block[504] != 0;
            }
            // A stretch of no bytes only marks where the file ends.
            map.stretches.retain(|&(_, len)| len > 0);
            return Ok((map.check(stored)?, stored));
        }
        if let (Some(list), Some(size)) = (text("GNU.sparse.map"), size) {
            return Ok((Map::parse_list(&list, size)?.check(stored)?, stored));
        }
        if let (Some("1"), Some(size)) = (text("GNU.sparse.major").as_deref(), size) {
            let (map, taken) = Map::read_lines(size, |buf| self.read(buf))?;
            let stored = stored.checked_sub(taken).context("sparse map: longer than the member")?;
            return Ok((map.check(stored)?, stored));
        }
        if records.keys().any(|key| key.starts_with(b"GNU.sparse")) {
            bail!("a sparse member of an unknown version");
        }
        Ok((Map { size: stored, stretches: vec![(0, stored)] }, stored))
    }

    fn content(&mut self, cx: &mut Cx, map: &Map, stored: u64, out: &mut Outbox) -> Result<()> {
        for &(start, len) in &map.stretches {
            let (mut offset, end) = (start, start + len);
            while offset < end {
                let want = (end - offset).min(PIECE as u64) as usize;
                let data = out.store_with(want, |buf| self.read(buf).map(|()| buf.len()))?;
                out.push(Event::Data { offset, data });
                offset += want as u64;
                out.breathe(cx)?;
            }
        }
        let mut pad = [0; BLOCK];
        self.read(&mut pad[..(stored.next_multiple_of(BLOCK as u64) - stored) as usize])?;
        out.push(Event::End);
        Ok(())
    }

    fn skip(&mut self, size: u64) -> Result<()> {
        let mut left = size.next_multiple_of(BLOCK as u64);
        let mut buf = [0; 8 << 10];
        while left > 0 {
            let part = left.min(buf.len() as u64) as usize;
            self.read(&mut buf[..part])?;
            left -= part as u64;
        }
        Ok(())
    }

    /// The path of a member in the copy: relative, without `.`, never upwards.
    fn place(&self, member: &[u8]) -> Result<Vec<u8>> {
        let mut path = self.name.clone();
        for name in member.split(|&b| b == b'/') {
            match name {
                b"" | b"." => {}
                b".." => bail!("the archive holds `{}`, which leads out of it", shown(member)),
                name => {
                    descend(&mut path, name);
                }
            }
        }
        Ok(path)
    }
}

impl<R: Read + Send> Source for TarSource<R> {
    fn run(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        let mut own = Records::new();
        loop {
            let mut block = [0; BLOCK];
            // Some writers leave the two blocks of zeros at the end out.
            let first = self.input.read(&mut block[..1]).context("reading the archive")?;
            if first == 0 {
                return Ok(());
            }
            self.at += 1;
            self.read(&mut block[1..])?;
            if block.iter().all(|&b| b == 0) {
                return Ok(());
            }
            let raw = Raw::parse(&block)
                .with_context(|| format!("byte {} of the archive", self.at - BLOCK as u64))?;
            match raw.kind {
                b'x' => own.extend(parse_records(&self.read_padded(raw.size)?)?),
                b'g' => {
                    let records = parse_records(&self.read_padded(raw.size)?)?;
                    self.global.extend(records);
                }
                // GNU: the name or target of the next member, NUL at the end.
                b'L' | b'K' => {
                    let mut text = self.read_padded(raw.size)?;
                    text.truncate(text.iter().position(|&b| b == 0).unwrap_or(text.len()));
                    let key: &[u8] = if raw.kind == b'L' { b"path" } else { b"linkpath" };
                    own.insert(key.to_vec(), text);
                }
                _ => {
                    let own = std::mem::take(&mut own);
                    self.member(cx, raw, own, out)?;
                }
            }
        }
    }
}

/// The fields of a header.
pub(super) struct Raw {
    pub(super) path: Vec<u8>,
    mode: u16,
    uid: u64,
    gid: u64,
    pub(super) size: u64,
    mtime: Timespec,
    pub(super) kind: u8,
    pub(super) target: Vec<u8>,
    rdev: u64,
    /// Type `S`: the size of the file and the first entries of its map.
    sparse: Map,
    /// Blocks with more entries follow.
    sparse_goes_on: bool,
}

impl Raw {
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Raw> {
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, &b)| if (148..156).contains(&at) { 32 } else { u64::from(b) })
            .sum();
        let stored = number(&block[148..156])?;
        if sum != stored {
            bail!("not a tar header: checksum {stored:o}, computed {sum:o}");
        }
        let text = |from: usize, len: usize| {
            let field = &block[from..from + len];
            field[..field.iter().position(|&b| b == 0).unwrap_or(len)].to_vec()
        };
        let mut path = text(0, 100);
        // GNU's own format uses the room of the prefix for other things.
        let prefix = if &block[257..263] == b"ustar\0" { text(345, 155) } else { Vec::new() };
        if !prefix.is_empty() {
            path = [&prefix[..], b"/", &path[..]].concat();
        }
        let (major, minor) = (number(&block[329..337])?, number(&block[337..345])?);
        let mut sparse = Map::default();
        if block[156] == b'S' {
            sparse.size = number(&block[483..495])?;
            sparse.add_old(&block[386..482], number)?;
        }
        Ok(Raw {
            path,
            mode: (number(&block[100..108])? & 0o7777) as u16,
            uid: number(&block[108..116])?,
            gid: number(&block[116..124])?,
            size: number(&block[124..136])?,
            mtime: Timespec { sec: number(&block[136..148])? as i64, nsec: 0 },
            kind: block[156],
            target: text(157, 100),
            rdev: vfs::makedev(major as u32, minor as u32),
            sparse,
            sparse_goes_on: block[156] == b'S' && block[482] != 0,
        })
    }
}

/// A number: octal digits, or GNU's binary form marked by the first bit.
fn number(field: &[u8]) -> Result<u64> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let start = if negative { u64::MAX } else { 0 };
        let first = u64::from(field[0] & 0x7f) | if negative { !0x7f } else { 0 };
        let rest = field[1..].iter().fold(start & first | first, |n, &b| n << 8 | u64::from(b));
        return Ok(rest);
    }
    let digits = field.iter().filter(|b| !matches!(b, 0 | b' '));
    digits.copied().try_fold(0u64, |n, b| match b {
        b'0'..=b'7' => {
            n.checked_mul(8).map(|n| n + u64::from(b - b'0')).context("number too large")
        }
        _ => bail!("`{}` is not an octal number", shown(field)),
    })
}

/// Splits pax records: `LENGTH KEY=VALUE\n`, where the length counts all of it.
pub(super) fn parse_records(mut data: &[u8]) -> Result<Records> {
    let mut records = Records::new();
    while !data.is_empty() {
        let bad = || format!("bad pax record `{}`", shown(&data[..data.len().min(40)]));
        let space = data.iter().position(|&b| b == b' ').with_context(bad)?;
        let len = std::str::from_utf8(&data[..space]).ok().and_then(|text| text.parse().ok());
        let len: usize = len.with_context(bad)?;
        if len <= space + 1 || len > data.len() || data[len - 1] != b'\n' {
            bail!(bad());
        }
        let pair = &data[space + 1..len - 1];
        let equals = pair.iter().position(|&b| b == b'=').with_context(bad)?;
        records.insert(pair[..equals].to_vec(), pair[equals + 1..].to_vec());
        data = &data[len..];
    }
    Ok(records)
}

/// The further names of a node.
fn push_links(names: &Names, out: &mut Outbox) {
    for name in &names[1..] {
        let (to, path) = (out.store(&names[0]), out.store(name));
        out.push(Event::Link { path, to });
    }
}

/// The type that a header names.
fn kind_of(letter: u8, path: &[u8]) -> Result<FileType> {
    Ok(match letter {
        b'0' | b'7' | 0 if path.ends_with(b"/") => FileType::Directory,
        b'0' | b'7' | b'S' | 0 => FileType::Regular,
        b'2' => FileType::Symlink,
        b'3' => FileType::CharDevice,
        b'4' => FileType::BlockDevice,
        b'5' => FileType::Directory,
        b'6' => FileType::Fifo,
        other => bail!("{}: member of unknown type `{}`", shown(path), char::from(other)),
    })
}

fn attribute<'r>((key, value): (&'r Vec<u8>, &'r Vec<u8>)) -> Option<(&'r [u8], &'r [u8])> {
    Some((key.strip_prefix(b"SCHILY.xattr.")?, value))
}

/// A pax time: decimal seconds with an optional fraction and sign.
fn time(text: &[u8]) -> Result<Timespec> {
    let text = String::from_utf8_lossy(text);
    let bad = || format!("`{text}` is not a time");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, &text[..]),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: i64 = whole.parse().with_context(bad)?;
    let nine: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: i64 = nine.parse().with_context(bad)?;
    let total = i128::from(sign) * (i128::from(whole) * 1_000_000_000 + i128::from(nanos));
    let sec = i64::try_from(total.div_euclid(1_000_000_000)).with_context(bad)?;
    Ok(Timespec { sec, nsec: total.rem_euclid(1_000_000_000) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0").unwrap(), 0o644);
        assert_eq!(number(b"   644 \0").unwrap(), 0o644);
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 1, 2]).unwrap(), 258);
        assert_eq!(number(&[0xff; 12]).unwrap() as i64, -1);
        assert!(number(b"000x").is_err());
    }

    #[test]
    fn times_have_fractions_and_signs() {
        assert_eq!(time(b"12.5").unwrap(), Timespec { sec: 12, nsec: 500_000_000 });
        assert_eq!(time(b"-0.000000001").unwrap(), Timespec { sec: -1, nsec: 999_999_999 });
        assert_eq!(time(b"7").unwrap(), Timespec { sec: 7, nsec: 0 });
        assert!(time(b"x").is_err());
    }

    #[test]
    fn records_may_hold_line_feeds() {
        let records = parse_records(b"11 a=1\n2\nb\n7 c=de\n").unwrap();
        assert_eq!(records[&b"a".to_vec()], b"1\n2\nb");
        assert_eq!(records[&b"c".to_vec()], b"de");
        for bad in [b"x a=b\n" as &[u8], b"5 a=b\n", b"99 a=b\n", b"4 ab\n", b"0 "] {
            assert!(parse_records(bad).is_err(), "{bad:?}");
        }
    }
}
