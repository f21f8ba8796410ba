//! What the arguments of the command name: images, places inside them, host paths, archives.
//!
//! ```text
//! disk.img            a target: an image file or a block device
//! https://host/d.img  an image on a server; also http://, s3://, gs://, az://
//! nfs://host/export   an export of an NFS server (?mountport=..&nfsport=.., and client options)
//! disk.img@2          its second partition (@0: the whole of it, where a name ends like that)
//! a.img,b.img         the members of an MD array
//! disk.img@vg/lv      a logical volume of LVM2; also a.img,b.img@vg/lv
//! stripe:64K,a,b      a stripe of chunks of 64 KiB over images or devices
//! disk.img:/etc/motd  a place inside
//! :/etc/motd          a place inside the target named before (mv, ln)
//! tree.tar:           an archive; -: or -  archive on standard input or output
//! ./odd:/name         a host path, whatever it contains (cp only)
//! ```

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use anyhow::{Result, bail};

/// An image file or device, or a partition of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Path on the host.
    pub path: PathBuf,
    /// Partition, from 1; `None`: the whole device.
    pub partition: Option<u32>,
    /// What of the volumes on it is meant.
    pub layer: Layer,
}

/// What of the volumes on a device is meant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Layer {
    /// What can be opened.
    #[default]
    Any,
    /// The device itself, as a member of an array or of a volume group.
    Member,
    /// A logical volume of LVM2.
    Logical {
        /// Its group.
        group: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path.display(), self.part())
    }
}

impl Target {
    /// What follows the path: which partition or volume is meant.
    fn part(&self) -> String {
        let partition = self.partition.map_or(String::new(), |index| format!("@{index}"));
        match &self.layer {
            Layer::Logical { group, name } => format!("{partition}@{group}/{name}"),
            Layer::Any | Layer::Member => partition,
        }
    }

    /// The argument that names it, byte for byte.
    pub fn to_arg(&self) -> OsString {
        let mut arg = self.path.clone().into_os_string();
        arg.push(self.part());
        arg
    }

    /// The address of an NFS export, where the target is one.
    pub fn nfs_url(&self) -> Option<&str> {
        self.path.to_str().filter(|path| path.starts_with("nfs://"))
    }

    /// Whether it is reached through a network.
    pub fn is_on_server(&self) -> bool {
        let path = self.path.as_os_str().as_bytes();
        let nbd = path.starts_with(b"nbd://") || path.starts_with(b"nbd+unix://");
        nbd || self.nfs_url().is_some() || self.remote_url().is_some()
    }

    /// The address of an image on a server, where the target is one.
    pub fn remote_url(&self) -> Option<&str> {
        self.path.to_str().filter(|path| is_remote(path.as_bytes()))
    }

    /// What /proc/mounts shows of its mount: a path from the root, where it is one of the host.
    pub fn source(&self) -> String {
        match self.path.canonicalize() {
            Ok(path) => Target { path, ..self.clone() }.to_string(),
            Err(_) => self.to_string(),
        }
    }

    /// Reads `PATH`, `PATH@N`, `nfs://..` or `https://..`.
    ///
    /// # Errors
    /// An empty path, or a scheme that is not supported.
    pub fn parse(arg: &OsStr) -> Result<Target> {
        let bytes = arg.as_bytes();
        if crate::sim::is_sim(arg) {
            bail!(
                "{}: a modelled machine lives in virtual time and ends with its command, so it \
                 holds nothing to look at; it is a target for `iopath bench`",
                arg.display()
            );
        }
        let nbd = bytes.starts_with(b"nbd://") || bytes.starts_with(b"nbd+unix://");
        if let Some(url) = bytes.strip_prefix(b"nfs://") {
            if url.is_empty() {
                bail!("`{}` names no server", arg.display());
            }
            let path = PathBuf::from(arg);
            return Ok(Target { path, partition: None, layer: Layer::Any });
        }
        if let (Some(at), false) = (find(bytes, b"://"), nbd || is_remote(bytes)) {
            let scheme = String::from_utf8_lossy(&bytes[..at]);
            bail!(
                "{}: targets of the kind `{scheme}://` are not supported; \
                 give an image file or a block device",
                arg.display()
            );
        }
        if let Some((below, layer)) = logical(arg) {
            return Ok(Target { layer, ..Target::parse(below)? });
        }
        let (path, partition) = split_partition(arg);
        if path.is_empty() {
            bail!("`{}` names no image", arg.display());
        }
        Ok(Target { path: path.into(), partition, layer: Layer::Any })
    }
}

/// The prefix of a stripe: `stripe:CHUNK,PATH,PATH,..`.
pub const STRIPE: &str = "stripe:";

/// The files of a path: those of a stripe, else itself.
pub fn members(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let list = path.to_str().and_then(|text| text.strip_prefix(STRIPE)?.split_once(','));
    let several = path.to_str().filter(|text| text.contains(',') && !path.exists());
    match (list, several) {
        (Some((_, members)), _) => members.split(',').map(Into::into).collect(),
        (None, Some(members)) => {
            let parsed =
                members.split(',').filter_map(|member| Target::parse(member.as_ref()).ok());
            parsed.map(|member| member.path).collect()
        }
        (None, None) => vec![path.to_owned()],
    }
}

/// Splits `PATH@NUMBER`; the number 0 is no partition.
pub fn split_partition(arg: &OsStr) -> (&OsStr, Option<u32>) {
    let bytes = arg.as_bytes();
    let Some(at) = bytes.iter().rposition(|&b| b == b'@') else { return (arg, None) };
    let digits = std::str::from_utf8(&bytes[at + 1..]).unwrap_or_default();
    match (digits.bytes().all(|b| b.is_ascii_digit()), digits.parse()) {
        (true, Ok(number)) => {
            (OsStr::from_bytes(&bytes[..at]), Some(number).filter(|&number| number > 0))
        }
        _ => (arg, None),
    }
}

/// Splits `TARGET@GROUP/NAME`: there is no file of that name, and one of the name before the sign.
fn logical(arg: &OsStr) -> Option<(&OsStr, Layer)> {
    let bytes = arg.as_bytes();
    let at = bytes.iter().rposition(|&b| b == b'@')?;
    let (group, name) = std::str::from_utf8(&bytes[at + 1..]).ok()?.split_once('/')?;
    let is_name = |text: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"+_.-".contains(&b);
        !text.is_empty() && text.bytes().all(known)
    };
    let below = OsStr::from_bytes(&bytes[..at]);
    let files = || -> Option<bool> {
        let path = Target::parse(below).ok()?.path;
        let first = members(&path).into_iter().next()?;
        Some(first.metadata().is_ok_and(|meta| !meta.is_dir()))
    };
    let found = is_name(group) && is_name(name) && !std::path::Path::new(arg).exists();
    if !found || files() != Some(true) {
        return None;
    }
    Some((below, Layer::Logical { group: group.to_owned(), name: name.to_owned() }))
}

/// A place inside a target: an absolute path, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetPath {
    /// Image or device.
    pub target: Target,
    /// Absolute path inside.
    pub path: Vec<u8>,
}

impl fmt::Display for TargetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.target, String::from_utf8_lossy(&self.path))
    }
}

impl TargetPath {
    /// Reads `TARGET:/path`, or `TARGET` alone for its root.
    ///
    /// # Errors
    /// Those of [`Target::parse`].
    pub fn parse(arg: &OsStr) -> Result<TargetPath> {
        match split(arg) {
            Some((target, path)) => Ok(TargetPath { target: Target::parse(target)?, path }),
            None => Ok(TargetPath { target: Target::parse(arg)?, path: b"/".to_vec() }),
        }
    }

    /// Reads a further place of a command that works on one target: `TARGET:/path` or `:/path`.
    ///
    /// # Errors
    /// Another target than `first`, or no path.
    pub fn parse_next(arg: &OsStr, first: &Target) -> Result<TargetPath> {
        if arg.as_bytes().starts_with(b":/") {
            return Ok(TargetPath { target: first.clone(), path: arg.as_bytes()[1..].to_vec() });
        }
        let Some((target, path)) = split(arg) else {
            bail!(
                "`{}` is not a place inside an image; write {first}:/path or :/path",
                arg.display()
            );
        };
        let target = Target::parse(target)?;
        if target != *first {
            bail!("{target} is another image than {first}; use `iopath cp` between images");
        }
        Ok(TargetPath { target, path })
    }
}

/// One side of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// A path of the host.
    Host(PathBuf),
    /// A place inside an image.
    Image(TargetPath),
    /// A tar archive; `None` is standard input or output.
    Archive(Option<PathBuf>),
    /// The content of one file on standard input or output.
    Standard,
}

impl Side {
    /// Reads a source or destination of `cp`. With `tar`, host paths are archives; so is `-`, with
    /// `tree`, and else the content of one file.
    ///
    /// A path that begins with `./` or `../` is one of the host, whatever it contains, unless there
    /// is an image of that name and no directory whose name ends with the colon.
    ///
    /// # Errors
    /// Those of [`Target::parse`].
    pub fn parse(arg: &OsStr, tar: bool, tree: bool) -> Result<Side> {
        let bytes = arg.as_bytes();
        if bytes == b"-" || bytes == b"-:" {
            return Ok(match tar || tree || bytes == b"-:" {
                true => Side::Archive(None),
                false => Side::Standard,
            });
        }
        let relative = bytes.starts_with(b"./") || bytes.starts_with(b"../");
        if !relative
            && let Some(path) = bytes.strip_suffix(b":")
            && ARCHIVES.iter().any(|ending| path.ends_with(ending))
        {
            let path = PathBuf::from(OsString::from_vec(path.to_vec()));
            return Ok(Side::Archive(Some(path)));
        }
        if let Some((target, path)) = split(arg) {
            let parsed = Target::parse(target)?;
            if !relative || is_image(&parsed, target) {
                return Ok(Side::Image(TargetPath { target: parsed, path }));
            }
        }
        let path = PathBuf::from(arg);
        Ok(if tar { Side::Archive(Some(path)) } else { Side::Host(path) })
    }
}

/// How names of archives end.
const ARCHIVES: [&[u8]; 6] = [b".tar", b".tar.gz", b".tgz", b".tar.zst", b".tar.xz", b".txz"];

/// Whether the host has a file or device for a target, and no directory by its name and a colon.
fn is_image(target: &Target, written: &OsStr) -> bool {
    let mut colon = written.to_owned();
    colon.push(":");
    let image = target.path.metadata().is_ok_and(|meta| !meta.is_dir());
    image && !std::path::Path::new(&colon).is_dir()
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Side::Host(path) => write!(f, "{}", path.display()),
            Side::Image(place) => write!(f, "{place}"),
            Side::Archive(Some(path)) => write!(f, "{}:", path.display()),
            Side::Archive(None) | Side::Standard => write!(f, "-"),
        }
    }
}

/// Splits `TARGET:/path` at the first `:/` that is not part of `://`; `TARGET:` is `TARGET:/`.
pub(crate) fn split(arg: &OsStr) -> Option<(&OsStr, Vec<u8>)> {
    let bytes = arg.as_bytes();
    let mut from = 0;
    while let Some(at) = find(&bytes[from..], b":/").map(|at| at + from) {
        let scheme = bytes.get(at + 2) == Some(&b'/') && is_scheme(&bytes[..at]);
        if !scheme {
            return (at > 0).then(|| (OsStr::from_bytes(&bytes[..at]), bytes[at + 1..].to_vec()));
        }
        from = at + 3;
    }
    let target = bytes.strip_suffix(b":").filter(|target| !target.is_empty())?;
    Some((OsStr::from_bytes(target), b"/".to_vec()))
}

fn is_scheme(word: &[u8]) -> bool {
    [b"nbd" as &[u8], b"nbd+unix", b"nfs", b"sim"].contains(&word) || REMOTE.contains(&word)
}

/// Schemes of images on servers.
const REMOTE: [&[u8]; 5] = [b"http", b"https", b"s3", b"gs", b"az"];

fn is_remote(address: &[u8]) -> bool {
    find(address, b"://").is_some_and(|at| REMOTE.contains(&&address[..at]))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str, partition: Option<u32>) -> Target {
        Target { path: path.into(), partition, layer: Layer::Any }
    }

    fn image(path: &str, partition: Option<u32>, inside: &str) -> Side {
        Side::Image(TargetPath { target: target(path, partition), path: inside.into() })
    }

    #[test]
    fn targets_name_partitions() {
        for (text, path, partition) in [
            ("disk.img", "disk.img", None),
            ("disk.img@2", "disk.img", Some(2)),
            ("/dev/sdb@12", "/dev/sdb", Some(12)),
            ("mail@host", "mail@host", None),
            ("disk.img@2@0", "disk.img@2", None),
        ] {
            assert_eq!(Target::parse(text.as_ref()).unwrap(), target(path, partition), "{text}");
        }
        assert!(Target::parse("".as_ref()).is_err());
        assert!(Target::parse("@1".as_ref()).is_err());
        let error = Target::parse("ftp://host/x".as_ref()).unwrap_err().to_string();
        assert!(error.contains("ftp://"), "{error}");
        let nbd = Target::parse("nbd://host/x@1".as_ref()).unwrap();
        assert_eq!(nbd, target("nbd://host/x", Some(1)));
    }

    #[test]
    fn sides_of_a_copy_are_told_apart() {
        for (text, side) in [
            ("disk.img:/etc", image("disk.img", None, "/etc")),
            ("/tmp/disk.img@3:/a:/b", image("/tmp/disk.img", Some(3), "/a:/b")),
            ("disk.img:", image("disk.img", None, "/")),
            ("a:b", Side::Host("a:b".into())),
            ("./a:/b", Side::Host("./a:/b".into())),
            ("stripe:64K,/a.img,/b.img:/c", image("stripe:64K,/a.img,/b.img", None, "/c")),
            ("../a:/b", Side::Host("../a:/b".into())),
            ("tree.tar", Side::Host("tree.tar".into())),
            ("tree.tar:", Side::Archive(Some("tree.tar".into()))),
            ("-:", Side::Archive(None)),
            ("-", Side::Standard),
            ("dir/", Side::Host("dir/".into())),
        ] {
            assert_eq!(Side::parse(text.as_ref(), false, false).unwrap(), side, "{text}");
        }
        let tar = Side::parse("a.tgz".as_ref(), true, false).unwrap();
        assert_eq!(tar, Side::Archive(Some("a.tgz".into())));
        let nbd = Side::parse("nbd://host/x:/etc".as_ref(), false, false).unwrap();
        assert_eq!(nbd, image("nbd://host/x", None, "/etc"));
        let web = Side::parse("http://h:80/d.img?x=1@2:/etc".as_ref(), false, false).unwrap();
        assert_eq!(web, image("http://h:80/d.img?x=1", Some(2), "/etc"));
        let nfs = Side::parse("nfs://host:2049/e?mountport=7:/a".as_ref(), false, false).unwrap();
        assert_eq!(nfs, image("nfs://host:2049/e?mountport=7", None, "/a"));
    }

    #[test]
    fn later_places_belong_to_the_first_target() {
        let first = target("disk.img", None);
        let place = TargetPath::parse_next(":/b".as_ref(), &first).unwrap();
        assert_eq!(place, TargetPath { target: first.clone(), path: b"/b".to_vec() });
        assert!(TargetPath::parse_next("disk.img:/b".as_ref(), &first).is_ok());
        assert!(TargetPath::parse_next("other.img:/b".as_ref(), &first).is_err());
        assert!(TargetPath::parse_next("/b".as_ref(), &first).is_err());
    }
}
