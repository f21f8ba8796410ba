//! The checks of a rename in every file system, with the errors in the order of
//! [`crate::FileSystem::rename`].

use base::{Errno, Ino};

use crate::{RenameFlags, check_name};

/// Checks the flags and the two names alone.
///
/// # Errors
/// `EINVAL` flags that are unknown or contradict each other; `EBUSY` `.` or `..`; those of
/// [`check_name`].
pub fn check_call(old_name: &[u8], new_name: &[u8], flags: RenameFlags) -> Result<(), Errno> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if !RenameFlags::all().contains(flags) || exchange && flags != RenameFlags::EXCHANGE {
        return Err(Errno::EINVAL);
    }
    if [old_name, new_name].iter().any(|name| matches!(*name, b"." | b"..")) {
        return Err(Errno::EBUSY);
    }
    check_name(old_name)?;
    check_name(new_name)
}

/// One of the two directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// That of the old name.
    Old,
    /// That of the new name.
    New,
}

/// A directory and all directories above it, itself first.
#[derive(Clone, Copy, Debug)]
pub struct Above<'a>(pub &'a [Ino]);

/// Which of two directories is locked first: the one that is above the other, else the one with the
/// lower number. (Source: kernel `Documentation/filesystems/directory-locking`.)
pub fn first_locked(old: Above<'_>, new: Above<'_>) -> Side {
    let (old_dir, new_dir) = (old.0[0], new.0[0]);
    let old_first = new.0.contains(&old_dir) || !old.0.contains(&new_dir) && old_dir < new_dir;
    if old_first { Side::Old } else { Side::New }
}

/// What was found under the two names, whose directories are locked.
#[derive(Clone, Copy, Debug)]
pub struct RenameEntries<'a> {
    /// The inode of the old name, and whether it is a directory.
    pub source: (Ino, bool),
    /// That of the new name, if there is one.
    pub target: Option<(Ino, bool)>,
    /// The directories above the old and the new name; empty where both are in the same.
    pub above: (Above<'a>, Above<'a>),
}

impl RenameEntries<'_> {
    /// Checks what was found. Returns the directory, if any, that has a subdirectory more
    /// afterwards.
    ///
    /// # Errors
    /// `ENOENT` nothing to exchange with; `EEXIST`; `EINVAL` a directory would come into itself;
    /// `ENOTEMPTY` the target holds the source; `ENOTDIR`, `EISDIR` the types differ.
    pub fn check(&self, flags: RenameFlags) -> Result<Option<Side>, Errno> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let (source, source_is_dir) = self.source;
        let (above_old, above_new) = self.above;
        let crossing = !above_old.0.is_empty();
        match self.target {
            None if exchange => return Err(Errno::ENOENT),
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST),
            _ => {}
        }
        if above_new.0.contains(&source) {
            return Err(Errno::EINVAL);
        }
        let Some((target, target_is_dir)) = self.target else {
            return Ok((crossing && source_is_dir).then_some(Side::New));
        };
        if above_old.0.contains(&target) {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        match (exchange, source_is_dir, target_is_dir) {
            (false, true, false) => Err(Errno::ENOTDIR),
            (false, false, true) => Err(Errno::EISDIR),
            (true, true, false) if crossing => Ok(Some(Side::New)),
            (true, false, true) if crossing => Ok(Some(Side::Old)),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Ino = Ino(2);
    const UPPER: Ino = Ino(20);
    const LOWER: Ino = Ino(10);
    const OTHER: Ino = Ino(30);

    #[test]
    fn the_upper_directory_is_locked_first_then_the_lower_number() {
        let (upper, lower, other) = ([UPPER, ROOT], [LOWER, UPPER, ROOT], [OTHER, ROOT]);
        assert_eq!(first_locked(Above(&upper), Above(&lower)), Side::Old);
        assert_eq!(first_locked(Above(&lower), Above(&upper)), Side::New);
        assert_eq!(first_locked(Above(&upper), Above(&other)), Side::Old);
        assert_eq!(first_locked(Above(&other), Above(&upper)), Side::New);
    }

    /// The answer for a rename from `LOWER`, which lies in `UPPER`, to `OTHER`.
    fn across(
        source: (Ino, bool),
        target: Option<(Ino, bool)>,
        flags: RenameFlags,
    ) -> Result<Option<Side>, Errno> {
        let above = (Above(&[LOWER, UPPER, ROOT]), Above(&[OTHER, ROOT]));
        RenameEntries { source, target, above }.check(flags)
    }

    #[test]
    fn types_loops_and_flags_are_checked_in_order() {
        let (none, exchange) = (RenameFlags::empty(), RenameFlags::EXCHANGE);
        let (file, dir) = ((Ino(50), false), (Ino(51), true));
        assert_eq!(across(file, None, none), Ok(None));
        assert_eq!(across(dir, None, none), Ok(Some(Side::New)));
        assert_eq!(across(file, None, exchange), Err(Errno::ENOENT));
        assert_eq!(across(file, Some(dir), RenameFlags::NOREPLACE), Err(Errno::EEXIST));
        assert_eq!(across((OTHER, true), None, none), Err(Errno::EINVAL));
        assert_eq!(across(file, Some((UPPER, true)), none), Err(Errno::ENOTEMPTY));
        assert_eq!(across(file, Some((UPPER, true)), exchange), Err(Errno::EINVAL));
        assert_eq!(across(file, Some(dir), none), Err(Errno::EISDIR));
        assert_eq!(across(dir, Some(file), none), Err(Errno::ENOTDIR));
        assert_eq!(across(dir, Some(file), exchange), Ok(Some(Side::New)));
        assert_eq!(across(file, Some(dir), exchange), Ok(Some(Side::Old)));
        assert_eq!(across(dir, Some(dir), exchange), Ok(None));
    }

    #[test]
    fn dots_and_unknown_flags_are_refused() {
        let (no, swap) = (RenameFlags::NOREPLACE, RenameFlags::EXCHANGE);
        let white = RenameFlags::WHITEOUT;
        for bad in [no | swap, swap | white, RenameFlags::from_bits_retain(8)] {
            assert_eq!(check_call(b"a", b"b", bad), Err(Errno::EINVAL));
        }
        assert_eq!(check_call(b"a", b"b", no | white), Ok(()));
        assert_eq!(check_call(b"a", b"..", RenameFlags::empty()), Err(Errno::EBUSY));
        assert_eq!(check_call(b"a", b"b", RenameFlags::EXCHANGE), Ok(()));
    }
}
