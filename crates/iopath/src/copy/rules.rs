//! What a copy keeps, and what it does with existing files: the rules of cp(1).

use std::sync::Arc;

use anyhow::{Result, bail};
use base::Timespec;
use base::map::{HashMap, HashSet};
use globset::GlobSet;
use vfs::FileType;

use super::Meta;
use super::exact::Exact;
use super::selection::{Part, Selection};
use crate::text;

/// Which symlinks of a source are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Follow {
    /// None (`-P`).
    #[default]
    Never,
    /// The sources themselves (`-H`).
    Named,
    /// All (`-L`).
    Always,
}

/// What happens to a file that is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// Its content is replaced; it stays the same file.
    #[default]
    Write,
    /// It stays as it is (`-n`).
    Leave,
    /// It stays if it is as new as the source, or newer (`-u`).
    Update,
    /// It is removed first (`--remove-destination`).
    Remove,
    /// As tar(1) does: it is removed first, also for a directory.
    Archive,
}

/// What is carried over, and how.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Descend into directories (`-r`).
    pub recursive: bool,
    /// All permission bits, and ACLs.
    pub mode: bool,
    /// No permission bits: those of a file made by a program (`--no-preserve=mode`).
    pub plain: bool,
    /// Owner and group.
    pub owner: bool,
    /// Times of access and modification.
    pub times: bool,
    /// Names of one file stay names of one file.
    pub links: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// The content of files in images moves past the page cache (`--direct`).
    pub direct: bool,
    /// Symlinks.
    pub follow: Follow,
    /// Files that are there already.
    pub existing: Existing,
    /// A file that cannot be opened is removed, and made anew (`-f`).
    pub force: bool,
    /// Do not descend into directories on other file systems of the host (`-x`).
    pub one_file_system: bool,
    /// Names that are left out.
    pub exclude: Option<Arc<GlobSet>>,
    /// Paths below the root of the copy, without which all others are left out, and attributes
    /// that the source does not have are removed. With `sorted`.
    pub only: Option<Arc<Selection>>,
    /// Names of a directory come sorted by bytes, each followed by what is below it.
    pub sorted: bool,
    /// A mode as chmod(1) takes it, for what is copied.
    pub chmod: Option<Arc<str>>,
    /// Owner and group of what is copied.
    pub chown: (Option<u32>, Option<u32>),
    /// Names and attributes without content, to know what there is.
    pub names_only: bool,
    /// What else is asked for by who builds an image.
    pub exact: Option<Arc<Exact>>,
}

/// Direct I/O on images is asked for in multiples of this many bytes: every device's logical block.
pub const DIRECT_UNIT: usize = 4096;

impl Keep {
    /// Content and permission bits less the umask, of files alone.
    pub const CONTENT: Keep = Keep {
        recursive: false,
        mode: false,
        plain: false,
        owner: false,
        times: false,
        links: false,
        xattrs: false,
        direct: false,
        follow: Follow::Always,
        existing: Existing::Write,
        force: false,
        one_file_system: false,
        exclude: None,
        only: None,
        sorted: false,
        chmod: None,
        chown: (None, None),
        names_only: false,
        exact: None,
    };

    /// Everything, of trees (`-a`).
    pub const ALL: Keep = Keep {
        recursive: true,
        mode: true,
        owner: true,
        times: true,
        links: true,
        xattrs: true,
        follow: Follow::Never,
        ..Keep::CONTENT
    };

    /// Refuses a directory that is not copied without `-r`.
    ///
    /// # Errors
    /// Names `shown`.
    pub fn check_directory(&self, shown: impl FnOnce() -> String) -> Result<()> {
        match self.recursive {
            true => Ok(()),
            false => bail!("{}: is a directory; give -r or -a to copy it", shown()),
        }
    }

    /// Whether a node of this kind is read as if it were a regular file.
    pub fn as_regular(&self, kind: FileType) -> bool {
        use FileType::{BlockDevice, CharDevice, Fifo, Regular};
        match kind {
            Regular => true,
            Fifo | CharDevice | BlockDevice => !self.recursive,
            _ => false,
        }
    }

    /// Whether an attribute is carried over: ACLs belong to the mode.
    pub fn has_attribute(&self, name: &[u8]) -> bool {
        match name.starts_with(b"system.posix_acl_") {
            true => self.mode,
            false => self.xattrs,
        }
    }

    /// Whether any attribute is.
    pub fn has_attributes(&self) -> bool {
        self.mode || self.xattrs
    }

    /// Whether a path of the copy, whose root is the first `root` bytes, is left out.
    pub fn is_excluded(&self, path: &[u8], root: usize) -> bool {
        if self.exclude.is_none() && self.only.is_none() {
            return false;
        }
        let below = below(path, root);
        let left = self.only.as_ref().is_some_and(|only| only.part(below).is_none());
        !below.is_empty() && (left || self.is_root_excluded(below))
    }

    /// Whether the content of a file at a path of the copy stays as it is.
    pub fn is_kept(&self, path: &[u8], root: usize) -> bool {
        let part = self.only.as_ref().and_then(|only| only.part(below(path, root)));
        part == Some(Part::Attributes)
    }

    /// Whether a node loses this attribute that it has, where it gets those of the source.
    pub fn takes_away(&self, name: &[u8]) -> bool {
        self.only.is_some() && self.has_attribute(name)
    }

    /// Whether the root of a copy is left out by its name.
    pub fn is_root_excluded(&self, name: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let Some(set) = &self.exclude else { return false };
        let matches = |bytes: &[u8]| set.is_match(std::ffi::OsStr::from_bytes(bytes));
        !name.is_empty() && (matches(name) || matches(super::split(name).1))
    }

    /// Whether a further name of a file is one only if the first was copied: a file that was left
    /// as it is gets no names of another.
    pub fn links_late(&self) -> bool {
        self.links && matches!(self.existing, Existing::Leave | Existing::Update)
    }

    /// What the node at a path of the copy is to be, by `--owner`, `--chmod` and `--owner-map`.
    ///
    /// # Errors
    /// The mode is none.
    pub fn adjust(&self, path: &[u8], meta: &Meta) -> Result<Meta> {
        let mut meta = *meta;
        meta.uid = self.chown.0.unwrap_or(meta.uid);
        meta.gid = self.chown.1.unwrap_or(meta.gid);
        if let (Some(mode), true) = (&self.chmod, meta.kind != FileType::Symlink) {
            let directory = meta.kind == FileType::Directory;
            let changed = text::parse_mode(mode, meta.mode, directory, 0);
            meta.mode = changed.map_err(|text| anyhow::anyhow!(text))?;
        }
        if let Some(exact) = &self.exact {
            exact.adjust(path, &mut meta);
        }
        Ok(meta)
    }

    /// The mode that a new node has without its mode being kept, less the umask.
    pub fn mode_at_creation(&self, meta: &Meta) -> u16 {
        let links = self.exact.as_ref().is_some_and(|exact| exact.link_modes);
        match meta.kind {
            FileType::Symlink if !links => 0o777,
            _ if self.mode || self.chmod.is_some() => meta.mode,
            FileType::Directory if self.plain => 0o777,
            _ if self.plain => 0o666,
            FileType::Directory => meta.mode & 0o1777,
            _ => meta.mode & 0o777,
        }
    }
}

/// A path of a copy below its root, which is the first `root` bytes.
fn below(path: &[u8], root: usize) -> &[u8] {
    let below = path.get(root..).unwrap_or_default();
    below.strip_prefix(b"/").unwrap_or(below)
}

/// A file of a device, or of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId {
    /// The device, or a number for the image.
    pub device: u64,
    /// The inode.
    pub ino: u64,
}

/// What stands where a node is to go.
#[derive(Clone, Copy, Debug)]
pub struct Old {
    /// Its type.
    pub kind: FileType,
    /// Its names.
    pub nlink: u64,
    /// Modification time.
    pub mtime: Timespec,
    /// Which file it is.
    pub id: FileId,
}

/// What to do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Both are directories: go on below.
    Merge,
    /// Write into the file that is there.
    Write,
    /// Remove it first.
    Replace,
    /// Leave it, which is no error.
    Skip,
    /// Leave it, with these words.
    Refuse(&'static str),
}

/// What one command has made so far, for what it must not write over or through.
#[derive(Debug, Default)]
pub struct Made {
    /// Files that were sources by name.
    named: HashSet<FileId>,
    /// Symlinks.
    symlinks: HashSet<FileId>,
    /// Files that were copied, by device and number of the source, where names come as nodes
    /// ([`Keep::links_late`]).
    pub copied: HashMap<FileId, Vec<u8>>,
}

impl Made {
    /// Notes a node that has been made: of a source itself, if `named`.
    pub fn note(&mut self, kind: FileType, named: bool, id: FileId) {
        if kind == FileType::Symlink {
            self.symlinks.insert(id);
        }
        if named && kind != FileType::Directory {
            self.named.insert(id);
        }
    }
}

impl Keep {
    /// What cp(1) does about `old`, what stands where a node is to go, or about what it leads to,
    /// where it is a symlink: `led`. The node is a source itself, if `named`.
    pub fn step(
        &self,
        meta: &Meta,
        named: bool,
        old: &Old,
        led: impl FnOnce() -> Option<Old>,
        made: &Made,
    ) -> Step {
        let (regular, directory) = (self.as_regular(meta.kind), meta.kind == FileType::Directory);
        if self.existing == Existing::Archive {
            return match (directory, old.kind == FileType::Directory) {
                (true, true) => Step::Merge,
                (false, true) => Step::Refuse("is a directory, which is not replaced"),
                (_, false) => Step::Replace,
            };
        }
        let through =
            old.kind == FileType::Symlink && regular && !matches!(self.existing, Existing::Remove);
        let Some(found) = (if through { led() } else { Some(*old) }) else {
            return Step::Refuse("not writing through a dangling symlink");
        };
        let kept = match self.existing {
            Existing::Leave => true,
            Existing::Update => found.mtime >= meta.mtime,
            _ => false,
        };
        match (directory, found.kind == FileType::Directory) {
            (false, _) if kept => return Step::Skip,
            (true, true) => return Step::Merge,
            (true, false) => {
                return Step::Refuse("cannot overwrite a non-directory with a directory");
            }
            (false, true) => {
                return Step::Refuse("cannot overwrite a directory with a non-directory");
            }
            (false, false) => {}
        }
        if named && made.named.contains(&old.id) {
            return Step::Refuse("will not overwrite what was just made");
        }
        if through && made.symlinks.contains(&old.id) {
            return Step::Refuse("will not write through a symlink that was just made");
        }
        let special = self.follow == Follow::Never && !regular;
        let shared = self.links && found.nlink > 1;
        match () {
            () if special || shared || self.existing == Existing::Remove => Step::Replace,
            () if regular => Step::Write,
            () => Step::Refuse("exists"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NINE: FileId = FileId { device: 0, ino: 9 };

    fn meta(kind: FileType) -> Meta {
        let time = Timespec { sec: 5, nsec: 0 };
        let (mode, size, rdev) = (0o644, 0, 0);
        Meta {
            kind,
            mode,
            uid: 0,
            gid: 0,
            rdev,
            size,
            atime: time,
            mtime: time,
            linked: false,
            id: None,
            kept: false,
        }
    }

    fn old(kind: FileType, nlink: u64, sec: i64) -> Old {
        Old { kind, nlink, mtime: Timespec { sec, nsec: 0 }, id: NINE }
    }

    #[test]
    fn files_are_written_into_and_directories_kept() {
        use FileType::{Directory, Fifo, Regular, Symlink};
        let (plain, all) = (Keep { recursive: true, ..Keep::CONTENT }, Keep::ALL);
        let archive = Keep { existing: Existing::Archive, ..Keep::ALL };
        let update = Keep { existing: Existing::Update, ..Keep::CONTENT };
        let refused = |step| matches!(step, Step::Refuse(_));
        let made = Made::default();
        let ask = |keep: &Keep, kind, old: Old, led: Option<Old>| {
            keep.step(&meta(kind), false, &old, || led, &made)
        };
        let file = old(Regular, 1, 0);
        assert_eq!(ask(&plain, Regular, file, None), Step::Write);
        assert_eq!(ask(&all, Regular, old(Regular, 2, 0), None), Step::Replace);
        assert_eq!(ask(&archive, Regular, file, None), Step::Replace);
        assert_eq!(ask(&archive, Directory, file, None), Step::Replace);
        assert!(refused(ask(&all, Directory, file, None)));
        assert!(refused(ask(&all, Regular, old(Directory, 2, 0), None)));
        assert_eq!(ask(&all, Directory, old(Directory, 2, 0), None), Step::Merge);
        assert_eq!(ask(&all, Fifo, file, None), Step::Replace);
        assert_eq!(ask(&update, Regular, old(Regular, 1, 5), None), Step::Skip);
        assert_eq!(ask(&update, Regular, old(Regular, 1, 4), None), Step::Write);
        let link = old(Symlink, 1, 0);
        assert!(refused(ask(&plain, Regular, link, None)));
        assert_eq!(ask(&plain, Regular, link, Some(file)), Step::Write);
        assert!(refused(ask(&plain, Directory, link, None)));
    }

    #[test]
    fn nothing_is_written_through_what_was_just_made() {
        use FileType::{Regular, Symlink};
        let mut made = Made::default();
        made.note(Symlink, false, NINE);
        let keep = Keep { recursive: true, ..Keep::CONTENT };
        let (link, file) = (old(Symlink, 1, 0), old(Regular, 1, 0));
        let step = keep.step(&meta(Regular), false, &link, || Some(file), &made);
        assert!(matches!(step, Step::Refuse(_)), "{step:?}");
        made.note(Regular, true, NINE);
        let step = keep.step(&meta(Regular), true, &file, || None, &made);
        assert!(matches!(step, Step::Refuse(_)), "{step:?}");
        assert_eq!(keep.step(&meta(Regular), false, &file, || None, &made), Step::Write);
    }
}
