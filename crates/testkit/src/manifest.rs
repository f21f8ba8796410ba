//! One entry per name of a tree: what two file systems must agree on.
//!
//! Three sources give the same entries: a [`FileSystem`] ([`of_fs`]), a directory of the host, such
//! as a kernel mount ([`of_dir`]), and the output of `iopath manifest` ([`parse`]).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use base::{Errno, Ino};
use rt::Cx;
use serde_json::Value;
use sha2::{Digest, Sha256};
use vfs::{FileSystem, FileType};

/// What a manifest says about a name. Sizes of directories are left out: they are the format's
/// affair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// `file`, `directory`, .. ([`FileType::word`]).
    pub kind: String,
    /// Permission bits, `0..=0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes, 0 for directories.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Number of names.
    pub nlink: u64,
    /// Device number as stat(2) gives it.
    pub rdev: u64,
    /// Extended attributes: name and value, hexadecimal.
    pub xattrs: BTreeMap<String, String>,
    /// Target of a symlink, hexadecimal.
    pub target: Option<String>,
    /// SHA-256 of a regular file's content, hexadecimal.
    pub sha256: Option<String>,
}

/// Path (bytes, without leading slash, empty for the root) to entry.
pub type Manifest = BTreeMap<Vec<u8>, Entry>;

/// Lists a file system.
///
/// # Errors
/// The first error of any operation; `EFBIG` where a file has more than 16 GiB to be read.
pub fn of_fs(cx: &mut Cx, fs: &dyn FileSystem) -> Result<Manifest, Errno> {
    let mut manifest = Manifest::new();
    walk_fs(cx, fs, fs.root(), Vec::new(), &mut manifest)?;
    Ok(manifest)
}

/// Largest file whose content is read, bytes: damaged images have files of exabytes that are holes.
const CONTENT_MAX: u64 = 16 << 30;

fn walk_fs(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    ino: Ino,
    path: Vec<u8>,
    out: &mut Manifest,
) -> Result<(), Errno> {
    let attr = fs.getattr(cx, ino)?;
    let mut entry = Entry {
        kind: attr.kind.word().into(),
        mode: attr.mode.into(),
        uid: attr.uid,
        gid: attr.gid,
        size: if attr.is_dir() { 0 } else { attr.size },
        mtime_ns: attr.mtime.as_nanos(),
        nlink: attr.nlink.into(),
        rdev: attr.rdev,
        ..Entry::default()
    };
    for name in fs.listxattr(cx, ino)? {
        let value = fs.getxattr(cx, ino, &name)?;
        entry.xattrs.insert(String::from_utf8_lossy(&name).into_owned(), hex(&value));
    }
    match attr.kind {
        FileType::Symlink => entry.target = Some(hex(&fs.readlink(cx, ino)?)),
        FileType::Regular if attr.size > CONTENT_MAX => return Err(Errno::EFBIG),
        FileType::Regular => entry.sha256 = Some(sha256_fs(cx, fs, ino)?),
        _ => {}
    }
    out.insert(path.clone(), entry);
    if !attr.is_dir() {
        return Ok(());
    }
    let mut children = Vec::new();
    fs.readdir(cx, ino, 0, &mut |child| {
        if child.name != b"." && child.name != b".." {
            children.push((child.name.to_vec(), child.ino));
        }
        true
    })?;
    for (name, child) in children {
        walk_fs(cx, fs, child, join(&path, &name), out)?;
    }
    Ok(())
}

fn sha256_fs(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino) -> Result<String, Errno> {
    let (mut hash, mut offset, mut buf) = (Sha256::new(), 0, vec![0; 128 << 10]);
    loop {
        let count = fs.read(cx, ino, offset, &mut buf)?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buf[..count]);
        offset += count as u64;
    }
}

/// Lists a directory of the host.
///
/// # Errors
/// The first error of any call.
pub fn of_dir(root: &Path) -> io::Result<Manifest> {
    let mut manifest = Manifest::new();
    walk_dir(root, Vec::new(), &mut manifest)?;
    Ok(manifest)
}

fn walk_dir(at: &Path, path: Vec<u8>, out: &mut Manifest) -> io::Result<()> {
    let meta = fs::symlink_metadata(at)?;
    let kind = FileType::from_mode(meta.mode()).ok_or(io::ErrorKind::InvalidData)?;
    let mut entry = Entry {
        kind: kind.word().into(),
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        size: if meta.is_dir() { 0 } else { meta.size() },
        mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        nlink: meta.nlink(),
        rdev: if meta.file_type().is_block_device() || meta.file_type().is_char_device() {
            meta.rdev()
        } else {
            0
        },
        xattrs: host_xattrs(at)?,
        ..Entry::default()
    };
    if meta.is_symlink() {
        entry.target = Some(hex(fs::read_link(at)?.as_os_str().as_bytes()));
    }
    if meta.is_file() {
        let (mut hash, mut file, mut buf) =
            (Sha256::new(), fs::File::open(at)?, vec![0; 128 << 10]);
        loop {
            let count = file.read(&mut buf)?;
            if count == 0 {
                break;
            }
            hash.update(&buf[..count]);
        }
        entry.sha256 = Some(hex(&hash.finalize()));
    }
    out.insert(path.clone(), entry);
    if meta.is_dir() {
        for child in fs::read_dir(at)? {
            let name = child?.file_name().into_vec();
            walk_dir(&at.join(std::ffi::OsStr::from_bytes(&name)), join(&path, &name), out)?;
        }
    }
    Ok(())
}

fn host_xattrs(at: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut names = vec![0u8; 64 << 10];
    let mut value = vec![0u8; 64 << 10];
    let len = match rustix::fs::llistxattr(at, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let mut out = BTreeMap::new();
    for name in names[..len].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let len = rustix::fs::lgetxattr(at, name, &mut value[..])?;
        out.insert(String::from_utf8_lossy(name).into_owned(), hex(&value[..len]));
    }
    Ok(out)
}

/// Reads the output of `iopath manifest`.
///
/// # Errors
/// A sentence that names the line, where it is not what it should be.
pub fn parse(text: &str) -> Result<Manifest, String> {
    let mut manifest = Manifest::new();
    for (index, line) in text.lines().enumerate() {
        let entry = parse_line(line).ok_or(format!("line {}: not an entry: {line}", index + 1))?;
        manifest.insert(entry.0, entry.1);
    }
    Ok(manifest)
}

fn parse_line(line: &str) -> Option<(Vec<u8>, Entry)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let number = |key: &str| value[key].as_u64();
    let path = unescape(value["path"].as_str()?)?;
    let mut xattrs = BTreeMap::new();
    for (name, bytes) in value["xattrs"].as_object()? {
        xattrs.insert(name.clone(), bytes.as_str()?.to_string());
    }
    let entry = Entry {
        kind: value["type"].as_str()?.into(),
        mode: u32::from_str_radix(value["mode"].as_str()?, 8).ok()?,
        uid: number("uid")? as u32,
        gid: number("gid")? as u32,
        size: number("size")?,
        mtime_ns: value["mtime_ns"].as_number()?.as_i128()?,
        nlink: number("nlink")?,
        rdev: number("rdev")?,
        xattrs,
        target: match value["target"].as_str() {
            Some(target) => Some(hex(&unescape(target)?)),
            None => None,
        },
        sha256: value["sha256"].as_str().map(str::to_string),
    };
    let path = path.strip_prefix(b"/").unwrap_or(&path).to_vec();
    Some((path, entry))
}

/// `\\` is a backslash, `\xHH` a byte that is not UTF-8.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            out.push(byte);
        } else if tail.first() == Some(&b'\\') {
            out.push(b'\\');
            rest = &tail[1..];
        } else {
            let digits = std::str::from_utf8(tail.get(1..3)?).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[3..];
        }
    }
    Some(out)
}

/// The differences of two manifests, one line each, at most twenty; empty if they are equal.
pub fn diff(left: &Manifest, right: &Manifest) -> String {
    let mut out = String::new();
    let paths: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let mut count = 0;
    for path in paths {
        let (l, r) = (left.get(path), right.get(path));
        if l == r {
            continue;
        }
        count += 1;
        if count <= 20 {
            let path = String::from_utf8_lossy(path);
            let _ = writeln!(out, "/{path}:\n  left  {l:?}\n  right {r:?}");
        }
    }
    if count > 20 {
        let _ = writeln!(out, "and {} more", count - 20);
    }
    out
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_command_is_read() {
        let line = r#"{"path":"/a\\xff\\\\","type":"symlink","mode":"0777","uid":1,"gid":2,
            "size":3,"mtime_ns":-5,"nlink":1,"rdev":0,"xattrs":{"user.a":"00ff"},"target":"x"}"#;
        let line = line.replace('\n', "");
        let manifest = parse(&line).unwrap();
        let entry = &manifest[&b"a\xff\\".to_vec()];
        assert_eq!((entry.mode, entry.mtime_ns), (0o777, -5));
        assert_eq!(entry.target.as_deref(), Some("78"));
        assert_eq!(entry.xattrs["user.a"], "00ff");
        assert!(parse("{}").is_err());
    }

    #[test]
    fn differences_are_named() {
        let one = Manifest::from([(b"a".to_vec(), Entry::default())]);
        assert_eq!(diff(&one, &one), "");
        assert!(diff(&one, &Manifest::new()).contains("/a:"));
    }
}
