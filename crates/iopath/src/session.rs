//! Opening a target: device, partition, format, mount; and leaving it clean.

use std::fmt;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use base::Errno;
use ext4::Ext4;
use image::format::Mounting;
use vfs::{Attr, FileSystem, Namespace, SetAttr};
use xfs::Xfs;
use xfs::mount::options::BesideDevice;

use crate::app::{App, BesideWord, at};
use crate::mount_arg::{INODES_OF_A_READER, apply_ext, apply_xfs};
use crate::storage::{Known, Storage};
use crate::target::{Target, TargetPath};
use crate::{nfs_target, text};

/// A mounted target.
pub struct Session {
    /// What was mounted.
    pub target: Target,
    /// Its file system.
    pub fs: Arc<dyn FileSystem>,
    /// The same, seen through paths.
    pub names: Namespace,
    /// The same, where it is ext2, ext3 or ext4 that [`mount`] mounted.
    pub ext: Option<Arc<Ext4>>,
    /// The same, where it is XFS that [`mount`] mounted.
    pub xfs: Option<Arc<Xfs>>,
}

impl Session {
    /// A session on a file system that is mounted already.
    pub fn on(target: Target, fs: Arc<dyn FileSystem>) -> Session {
        Session { target, names: Namespace::new(fs.clone()), fs, ext: None, xfs: None }
    }

    /// What the mount replayed from a journal, in words; none where it had not to.
    pub fn replayed(&self) -> Option<String> {
        let ext = self.ext.as_ref().and_then(|fs| fs.recovery());
        let xfs = self.xfs.as_ref().and_then(|fs| fs.recovery());
        ext.map(ToString::to_string).or_else(|| xfs.map(ToString::to_string))
    }

    /// The attributes of what a path names; a final symlink is followed if `follow`.
    ///
    /// # Errors
    /// Names the place.
    pub fn find(&self, app: &mut App, path: &[u8], follow: bool) -> Result<Attr> {
        let found = match follow {
            true => self.names.stat(app.cx, path),
            false => self.names.lstat(app.cx, path),
        };
        found.map_err(at(self.place(path)))
    }

    /// How many names lie below a directory, where that is all of the file system: about as many as
    /// inodes are in use.
    pub fn names_below(&self, app: &mut App, top: &Attr) -> Option<u64> {
        let of = self.fs.statfs(app.cx).ok().filter(|_| top.ino == self.fs.root());
        of.map(|of| of.inodes.saturating_sub(of.inodes_free))
    }

    /// Sets attributes as chmod(2), chown(2), truncate(2) and utimensat(2) may.
    ///
    /// # Errors
    /// `EPERM` where the inode is immutable or append-only; those of the file system.
    pub fn set(&self, app: &mut App, attr: &Attr, set: &SetAttr) -> Result<(), Errno> {
        let set = vfs::permission::may_set(app.cx.cred(), attr, set)?;
        self.fs.setattr(app.cx, attr.ino, &set).map(drop)
    }

    /// The place of a path, for messages.
    pub fn place(&self, path: &[u8]) -> String {
        format!("{}:{}", self.target, text::escape(path))
    }
}

/// Mounts a target, runs `work` on it and unmounts, also where `work` fails.
///
/// # Errors
/// Those of opening, of `work`, of unmounting, whichever comes first.
pub fn with<T>(
    app: &mut App,
    target: &Target,
    write: bool,
    work: impl FnOnce(&mut App, &Session) -> Result<T>,
) -> Result<T> {
    let session = open(app, target, write)?;
    let result = work(app, &session);
    let closed = close(app, session);
    let value = result?;
    closed?;
    Ok(value)
}

/// Mounts the target of a place and runs `work` there.
///
/// # Errors
/// As [`with`].
pub fn with_place<T>(
    app: &mut App,
    place: &TargetPath,
    write: bool,
    work: impl FnOnce(&mut App, &Session) -> Result<T>,
) -> Result<T> {
    with(app, &place.target, write, work)
}

/// Mounts a target.
///
/// # Errors
/// The device cannot be opened, the format is another one, the file system is damaged or uses a
/// feature that is not supported.
pub fn open(app: &mut App, target: &Target, write: bool) -> Result<Session> {
    if let Some(fs) = nfs_target::mount(app, target, write)? {
        return Ok(Session::on(target.clone(), fs));
    }
    let storage = Storage::open_to_use(app, target, write)?;
    mount(app, &storage, write)
}

/// Mounts what is on an open storage.
///
/// # Errors
/// As [`open`].
pub fn mount(app: &mut App, storage: &Storage, write: bool) -> Result<Session> {
    let target = storage.target.clone();
    Ok(match storage.must_be_known(app)? {
        Known::Ext => {
            let fs = mount_ext(app, storage, write)?;
            Session { ext: Some(fs.clone()), ..Session::on(target, fs) }
        }
        Known::Xfs => {
            let fs = mount_xfs(app, storage, write)?;
            Session { xfs: Some(fs.clone()), ..Session::on(target, fs) }
        }
    })
}

/// What mounts of a command may do and take.
fn mounting(app: &App, storage: &Storage, write: bool) -> Mounting {
    let inode_cache = (!write).then_some(INODES_OF_A_READER);
    let is_far = storage.target.remote_url().is_some();
    Mounting { write, cache_size: app.options.cache_size, inode_cache, is_far }
}

/// The error of a mount, with what to do where the file system is damaged.
fn refused(target: &Target, damaged: bool, error: impl fmt::Display) -> anyhow::Error {
    match damaged {
        true => anyhow!("{target}: {error}; `iopath check {target}` reports what is damaged"),
        false => anyhow!("{target}: {error}"),
    }
}

/// Mounts ext2, ext3 or ext4 on an open storage.
///
/// # Errors
/// As [`open`].
pub fn mount_ext(app: &mut App, storage: &Storage, write: bool) -> Result<Arc<Ext4>> {
    mount_ext_with(app, storage, write, |_| ())
}

/// As [`mount_ext`], with options that are changed.
///
/// # Errors
/// The same.
pub fn mount_ext_with(
    app: &mut App,
    storage: &Storage,
    write: bool,
    change: impl FnOnce(&mut ext4::MountOptions),
) -> Result<Arc<Ext4>> {
    let mut options =
        ext4::MountOptions { keys: app.options.keys(), ..ext4::MountOptions::default() };
    apply_ext(app.options.of_file_system(), &mut options)?;
    change(&mut options);
    let of_xfs = [BesideWord::Realtime, BesideWord::Log];
    if of_xfs.into_iter().any(|what| app.options.device_beside(what).is_some()) {
        bail!("{}: mount options `rtdev` and `logdev` are for xfs", storage.target);
    }
    options.journal = journal_beside(app, write)?;
    if storage.is_cut() {
        let what = format!("{}: a repair, resize or tune was cut", storage.target);
        let hint = "run it again, or take it back with iopath undo";
        match write {
            true => bail!("{what}; {hint} before anything else is written"),
            false => app.out.note(format!("{what}: this is what it left; {hint}")),
        }
    }
    let fs = mounting(app, storage, write).ext(app.cx, &storage.queue, options);
    let target = &storage.target;
    fs.map_err(|error| match error {
        ext4::MountError::Journal(_)
            if app.options.device_beside(BesideWord::Journal).is_none() =>
        {
            anyhow!("{target}: {error}; `-o journal_path=DEVICE` names the device of a journal")
        }
        error => refused(target, matches!(error, ext4::MountError::Corrupt(_)), error),
    })
}

/// The device of an external journal, where the options name it.
///
/// # Errors
/// It cannot be opened.
pub fn journal_beside(app: &mut App, write: bool) -> Result<Option<ext4::JournalDevice>> {
    let device = open_beside(app, BesideWord::Journal, write)?;
    Ok(device.map(|device| ext4::JournalDevice(device.0)))
}

/// Another device, where the options name it.
///
/// # Errors
/// It cannot be opened.
pub fn open_beside(app: &mut App, what: BesideWord, write: bool) -> Result<Option<BesideDevice>> {
    let Some(path) = app.options.device_beside(what) else { return Ok(None) };
    let beside = Target::parse(path.as_os_str())?;
    Ok(Some(BesideDevice(Storage::open(app, &beside, write)?.queue)))
}

/// Mounts XFS on an open storage.
///
/// # Errors
/// As [`open`].
pub fn mount_xfs(app: &mut App, storage: &Storage, write: bool) -> Result<Arc<Xfs>> {
    if app.options.device_beside(BesideWord::Journal).is_some() {
        bail!("{}: the mount option `journal_path` is for ext4", storage.target);
    }
    let mut options = xfs::MountOptions::default();
    apply_xfs(app.options.of_file_system(), &mut options)?;
    options.realtime = open_beside(app, BesideWord::Realtime, write)?;
    options.log = open_beside(app, BesideWord::Log, write)?;
    let fs = mounting(app, storage, write).xfs(app.cx, &storage.queue, options);
    let target = &storage.target;
    fs.map_err(|error| match error {
        xfs::MountError::Log(_) if !write => {
            anyhow!("{target}: {error}; `-o norecovery` reads what is there without the log")
        }
        error => refused(target, matches!(error, xfs::MountError::Corrupt(_)), error),
    })
}

/// Writes everything out and leaves the file system clean.
///
/// # Errors
/// Writing failed; the image needs its journal replayed.
pub fn close(app: &mut App, session: Session) -> Result<()> {
    let done = session.fs.unmount(app.cx);
    let (target, lost) = (&session.target, session.fs.lost());
    if let Some(missing) = session.ext.as_ref().and_then(|fs| fs.missing_key()) {
        match app.options.key.is_empty() {
            true => app.out.note(format!("{target}: {missing}")),
            false => app.out.problem(format!("{target}: {missing}")),
        }
    }
    if lost.first.is_some() {
        app.out.problem(format!("{target}: {lost}"));
    }
    done.map_err(|errno| match lost.first {
        _ if target.nfs_url().is_some() => {
            anyhow!("{target}: writing to the server failed: {errno}")
        }
        // What is lost is lost; the image is clean.
        Some((_, why)) if why == errno => anyhow!("{target}: not all was written: {errno}"),
        _ => anyhow!("{target}: writing out failed: {errno}; run `iopath replay` on it"),
    })
}
