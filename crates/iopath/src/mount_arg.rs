//! Mount options of the command line, for either format.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

/// Inodes that a command which only reads keeps in memory: it passes each of them once or twice,
/// soon after another, and memory that is used again is cheaper than new memory.
pub(crate) const INODES_OF_A_READER: usize = 1024;

/// A mount option, known by the name that mount(8) has for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountArg {
    /// For ext2, ext3 and ext4.
    Ext(ext4::mount::options::MountOption),
    /// For XFS.
    Xfs(xfs::mount::options::MountOption),
}

impl FromStr for MountArg {
    type Err = String;

    /// # Errors
    /// A sentence with what is known.
    fn from_str(text: &str) -> Result<MountArg, String> {
        let key = text.split('=').next().unwrap_or_default();
        if xfs::mount::options::KEYS.contains(&key) {
            return text.parse().map(MountArg::Xfs);
        }
        let known = text.parse().map(MountArg::Ext);
        known.map_err(|message| match message.contains("is not known") {
            true => format!("{message}; for xfs {}", xfs::mount::options::KNOWN),
            false => message,
        })
    }
}

impl fmt::Display for MountArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountArg::Ext(option) => write!(f, "`{}`", word(&format!("{option:?}"))),
            MountArg::Xfs(option) => write!(f, "`{}`", word(&format!("{option:?}"))),
        }
    }
}

/// The word of an option: without its value, in small letters.
fn word(name: &str) -> String {
    name.split('(').next().unwrap_or_default().to_lowercase()
}

/// Puts options into those of an ext2, ext3 or ext4 mount.
///
/// # Errors
/// One that is for another format.
pub fn apply_ext(
    args: impl Iterator<Item = MountArg>,
    options: &mut ext4::MountOptions,
) -> Result<()> {
    for arg in args {
        match arg {
            MountArg::Ext(option) => option.apply(options),
            MountArg::Xfs(option) => match of_both(option) {
                Some(option) => option.apply(options),
                None => bail!("mount option {arg} is for xfs"),
            },
        }
    }
    Ok(())
}

/// What an option of XFS means for the old quota files of ext2, ext3 and ext4.
fn of_both(option: xfs::mount::options::MountOption) -> Option<ext4::mount::options::MountOption> {
    use ext4::mount::options::MountOption as Ext;
    use xfs::mount::options::MountOption as Xfs;
    let whose = match option {
        Xfs::Quota(vfs::quota::Kind::User, true) => 0,
        Xfs::Quota(vfs::quota::Kind::Group, true) => 1,
        _ => return None,
    };
    let name = ext4::QuotaName::new(ext4::QuotaName::USUAL[whose]);
    Some(Ext::QuotaFile(whose, name))
}

/// Puts options into those of an XFS mount.
///
/// # Errors
/// One that is for another format.
pub fn apply_xfs(
    args: impl Iterator<Item = MountArg>,
    options: &mut xfs::MountOptions,
) -> Result<()> {
    for arg in args {
        match arg {
            MountArg::Xfs(option) => option.apply(options),
            MountArg::Ext(ext4::mount::options::MountOption::DirectBoundary(rule)) => {
                options.direct.boundary = rule;
            }
            other => bail!("mount option {other} is for ext2, ext3 and ext4"),
        }
    }
    Ok(())
}
