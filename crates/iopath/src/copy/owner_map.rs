//! Tables of owners: `--owner-map FILE`. Four kinds of lines are known, by their form:
//!
//! ```text
//! dev=fe00,ino=7,mode=104755,uid=0,gid=5,nlink=1,rdev=0    fakeroot -s
//! /dev/hda b 660 0 6 3 1 1 1 4                             genext2fs -D
//! user 1000-1999 0                                         numbers to numbers
//! system/bin/ping 0 2000 0755 capabilities=net_raw         Android's fs_config, and attributes
//! ```
//!
//! Source: what fakeroot 1.31 writes, and what genext2fs 1.5 makes of its tables.

use anyhow::{Context, Result, bail};
use base::Timespec;
use base::map::HashMap;
use rustix::fs::Stat;
use vfs::FileType;

use super::capability;
use super::{FileId, Meta};
use crate::owner::Owner;

/// Most nodes that the lines with a count may make.
const NODES_MAX: usize = 1 << 20;

/// Owners, modes, attributes and nodes of a table.
#[derive(Clone, Debug, Default)]
pub struct OwnerMap {
    /// What fakeroot noted of files of the host; where it was read, all others are root's.
    faked: Option<HashMap<FileId, Faked>>,
    users: Vec<IdMap>,
    groups: Vec<IdMap>,
    paths: HashMap<Vec<u8>, PathRule>,
    nodes: Vec<TableNode>,
}

#[derive(Clone, Copy, Debug)]
struct Faked {
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: u64,
}

/// Numbers from one to another become one number.
#[derive(Clone, Copy, Debug)]
struct IdMap {
    first: u32,
    last: u32,
    to: u32,
}

/// What is said of one path.
#[derive(Clone, Debug, Default)]
struct PathRule {
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A node that a table makes, or changes where it is there.
#[derive(Clone, Debug)]
pub struct TableNode {
    /// Where, relative to the root.
    pub path: Vec<u8>,
    /// What.
    pub meta: Meta,
}

impl OwnerMap {
    /// Adds the lines of a table.
    ///
    /// # Errors
    /// The number of the line that is wrong, and why.
    pub fn read(&mut self, text: &[u8]) -> Result<()> {
        for (index, line) in text.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            self.line(line).with_context(|| {
                format!("line {}: `{}`", index + 1, crate::text::printable(line))
            })?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<()> {
        if line.starts_with(b"dev=") {
            return self.fakeroot(line);
        }
        let fields: Vec<&[u8]> =
            line.split(u8::is_ascii_whitespace).filter(|f| !f.is_empty()).collect();
        match fields[..] {
            [b"user", from, to] => {
                self.users.push(IdMap::parse(from, to)?);
                Ok(())
            }
            [b"group", from, to] => {
                self.groups.push(IdMap::parse(from, to)?);
                Ok(())
            }
            [path, kind, ..] if kind.len() == 1 && kind[0].is_ascii_lowercase() => {
                self.device_table(path, kind[0], &fields[2..])
            }
            [path, uid, gid, mode, ref rest @ ..] => {
                let (uid, gid, mode) = (id(uid)?, id(gid)?, octal(mode)?);
                let attributes = rest.iter().map(|word| attribute(word)).collect::<Result<_>>()?;
                self.paths.insert(relative(path), PathRule { mode, uid, gid, attributes });
                Ok(())
            }
            _ => bail!(
                "too few fields; known are lines of fakeroot, of genext2fs, `user FROM TO`, \
                 `group FROM TO` and `PATH UID GID MODE`"
            ),
        }
    }

    fn fakeroot(&mut self, line: &[u8]) -> Result<()> {
        let line = std::str::from_utf8(line).context("is no text")?;
        let field = |name: &str, radix: u32| -> Result<u64> {
            let mut pairs = line.split(',').filter_map(|pair| pair.split_once('='));
            let value = pairs.find(|(key, _)| *key == name);
            let (_, value) = value.with_context(|| format!("{name}= is missing"))?;
            u64::from_str_radix(value, radix).with_context(|| format!("{name}={value}"))
        };
        let id = FileId { device: field("dev", 16)?, ino: field("ino", 10)? };
        let small = |name, radix| -> Result<u32> { Ok(u32::try_from(field(name, radix)?)?) };
        let faked = Faked {
            mode: small("mode", 8)?,
            uid: small("uid", 10)?,
            gid: small("gid", 10)?,
            rdev: field("rdev", 10)?,
        };
        self.faked.get_or_insert_default().insert(id, faked);
        Ok(())
    }

    /// `name type mode uid gid major minor start inc count`; a dash stands for nothing.
    fn device_table(&mut self, path: &[u8], kind: u8, fields: &[&[u8]]) -> Result<()> {
        let field = |at: usize| fields.get(at).copied().unwrap_or(b"-");
        let (mode, uid, gid) = (octal(field(0))?, id(field(1))?, id(field(2))?);
        let number = |at: usize| -> Result<u32> { Ok(id(field(at))?.unwrap_or(0)) };
        let path = relative(path);
        let kind = match kind {
            b'f' => {
                let rule = PathRule { mode, uid, gid, attributes: Vec::new() };
                self.paths.insert(path, rule);
                return Ok(());
            }
            b'd' => FileType::Directory,
            b'c' => FileType::CharDevice,
            b'b' => FileType::BlockDevice,
            b'p' => FileType::Fifo,
            b's' => FileType::Socket,
            other => bail!("type `{}` is not one of d, f, c, b, p, s", char::from(other)),
        };
        let (major, minor) = (number(3)?, number(4)?);
        let (start, step, count) = (number(5)?, number(6)?, number(7)?);
        let mut add = |path: Vec<u8>, minor: u32| {
            if self.nodes.len() == NODES_MAX {
                bail!("more than {NODES_MAX} nodes");
            }
            let rdev = if kind.is_device() { vfs::makedev(major, minor) } else { 0 };
            self.nodes.push(TableNode { path, meta: node(kind, mode, Owner { uid, gid }, rdev) });
            Ok(())
        };
        // As genext2fs has it, the last number is the one below the count.
        match kind.is_device() && count > 0 {
            false => add(path, minor),
            true => (start..count).try_for_each(|number| {
                let minor = minor.wrapping_add((number - start).wrapping_mul(step));
                add([&path[..], number.to_string().as_bytes()].concat(), minor)
            }),
        }
    }

    /// What fakeroot noted about a file of the host replaces what the host says.
    pub fn fake(&self, stat: &mut Stat) {
        let Some(faked) = &self.faked else { return };
        match faked.get(&FileId { device: stat.st_dev, ino: stat.st_ino }) {
            Some(known) => {
                (stat.st_mode, stat.st_uid, stat.st_gid) = (known.mode, known.uid, known.gid);
                stat.st_rdev = known.rdev;
            }
            None => (stat.st_uid, stat.st_gid) = (0, 0),
        }
    }

    /// Changes owner and mode of a node.
    pub fn adjust(&self, path: &[u8], meta: &mut Meta) {
        let mapped = |maps: &[IdMap], id: u32| {
            let map = maps.iter().find(|map| (map.first..=map.last).contains(&id));
            map.map_or(id, |map| map.to)
        };
        meta.uid = mapped(&self.users, meta.uid);
        meta.gid = mapped(&self.groups, meta.gid);
        let Some(rule) = self.paths.get(path) else { return };
        meta.uid = rule.uid.unwrap_or(meta.uid);
        meta.gid = rule.gid.unwrap_or(meta.gid);
        meta.mode = rule.mode.unwrap_or(meta.mode);
    }

    /// Attributes that a node gets besides its own.
    pub fn attributes(&self, path: &[u8]) -> &[(Vec<u8>, Vec<u8>)] {
        self.paths.get(path).map_or(&[], |rule| &rule.attributes)
    }

    /// Nodes that are made, or changed where they are there.
    pub fn nodes(&self) -> &[TableNode] {
        &self.nodes
    }

    /// Paths that are named for what is there.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.paths.keys().map(|path| &path[..])
    }
}

impl IdMap {
    fn parse(from: &[u8], to: &[u8]) -> Result<IdMap> {
        let (first, last) = match from.iter().position(|&b| b == b'-') {
            Some(at) => (&from[..at], &from[at + 1..]),
            None => (from, from),
        };
        let number = |text: &[u8]| id(text)?.context("a number is missing");
        Ok(IdMap { first: number(first)?, last: number(last)?, to: number(to)? })
    }
}

fn node(kind: FileType, mode: Option<u16>, owner: Owner, rdev: u64) -> Meta {
    Meta {
        kind,
        mode: mode.unwrap_or(if kind == FileType::Directory { 0o755 } else { 0o644 }),
        uid: owner.uid.unwrap_or(0),
        gid: owner.gid.unwrap_or(0),
        rdev,
        size: 0,
        atime: Timespec::from_secs(0),
        mtime: Timespec::from_secs(0),
        linked: false,
        id: None,
        kept: false,
    }
}

/// A path from the root, without slashes at its ends.
fn relative(path: &[u8]) -> Vec<u8> {
    let names = path.split(|&b| b == b'/').filter(|&name| !matches!(name, b"" | b"."));
    names.collect::<Vec<_>>().join(&b'/')
}

/// A decimal number; a dash says nothing.
fn id(text: &[u8]) -> Result<Option<u32>> {
    parse(text, 10)
}

/// A mode.
fn octal(text: &[u8]) -> Result<Option<u16>> {
    let mode = parse(text, 8)?;
    match mode {
        Some(mode) if mode > 0o7777 => bail!("mode {mode:o} has more than 12 bits"),
        mode => Ok(mode.map(|mode| mode as u16)),
    }
}

fn parse(text: &[u8], radix: u32) -> Result<Option<u32>> {
    if text == b"-" {
        return Ok(None);
    }
    let word = String::from_utf8_lossy(text);
    let number = u32::from_str_radix(&word, radix);
    number.map(Some).with_context(|| format!("`{word}` is no number"))
}

/// `NAME=VALUE`: a capability set, or any attribute, whose value is text or `0x` and digits.
fn attribute(word: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let equals = word.iter().position(|&b| b == b'=');
    let equals = equals.context("an attribute is written NAME=VALUE")?;
    let (name, value) = (&word[..equals], &word[equals + 1..]);
    if name == b"capabilities" {
        let text = std::str::from_utf8(value).context("capabilities are text")?;
        return Ok((b"security.capability".to_vec(), capability::parse(text)?));
    }
    if !name.contains(&b'.') {
        bail!("`{}` is no name of an attribute, such as user.a", crate::text::printable(name));
    }
    let value = match value.strip_prefix(b"0x") {
        Some(digits) => capability::bytes_of_hex(digits)?,
        None => value.to_vec(),
    };
    Ok((name.to_vec(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> OwnerMap {
        let mut map = OwnerMap::default();
        map.read(text.as_bytes()).expect("a good table");
        map
    }

    #[test]
    fn lines_are_known_by_their_form() {
        let map = table(
            "# a table\n\nuser 1000-1999 0\ngroup 5 6\n/bin/su f 4755 0 9 - - - - -\n\
             usr/bin/ping 0 2000 0755 capabilities=net_raw user.a=0x0102\n\
             /dev d 755 1 2 - - - - -\n/dev/hda b 660 0 6 3 1 1 1 3\n",
        );
        let owner = Owner { uid: Some(1500), gid: Some(5) };
        let mut meta = node(FileType::Regular, Some(0o644), owner, 0);
        map.adjust(b"x", &mut meta);
        assert_eq!((meta.uid, meta.gid, meta.mode), (0, 6, 0o644));
        map.adjust(b"bin/su", &mut meta);
        assert_eq!((meta.uid, meta.gid, meta.mode), (0, 9, 0o4755));
        let names: Vec<&[u8]> = map.nodes().iter().map(|node| &node.path[..]).collect();
        assert_eq!(names, [b"dev" as &[u8], b"dev/hda1", b"dev/hda2"]);
        assert_eq!(map.nodes()[2].meta.rdev, vfs::makedev(3, 2));
        assert_eq!(map.attributes(b"usr/bin/ping")[1], (b"user.a".to_vec(), vec![1, 2]));
    }

    #[test]
    fn bad_lines_are_named() {
        for bad in [
            "dev=1,ino=x,mode=1,uid=0,gid=0,nlink=1,rdev=0",
            "dev=1,ino=1,uid=0,gid=0,nlink=1,rdev=0",
            "/a q 644 0 0",
            "/a f 99999 0 0",
            "user x 0",
            "alone",
            "/a 0 0 644 nonsense",
            "/a 0 0 644 capabilities=fly",
        ] {
            let error = OwnerMap::default().read(format!("\n{bad}\n").as_bytes());
            let error = format!("{:#}", error.expect_err(bad));
            assert!(error.starts_with("line 2: "), "{error}");
        }
    }
}
