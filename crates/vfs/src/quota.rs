//! Quota as an administrator sees it, of every file system that counts: usage, limits, grace
//! periods, projects.

use base::{Errno, Ino};
use rt::Cx;

/// Seconds for which a soft limit may be exceeded, unless the file system says otherwise: a week.
pub const GRACE_DEFAULT: u32 = 604_800;
/// Bytes of the unit of block limits.
pub const LIMIT_UNIT: u64 = 1024;

/// Whose usage is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// By owner.
    User,
    /// By group.
    Group,
    /// By project.
    Project,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

    /// `user`, `group` or `project`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Group => "group",
            Kind::Project => "project",
        }
    }
}

/// Usage and limits of one id. A limit of 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dqblk {
    /// Inodes that can never be exceeded.
    pub inode_hard: u64,
    /// Inodes that can be exceeded for a while.
    pub inode_soft: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Space that can never be exceeded, in KiB.
    pub block_hard: u64,
    /// Space that can be exceeded for a while, in KiB.
    pub block_soft: u64,
    /// Space in use, in bytes.
    pub space: u64,
    /// When the grace of the space ends, in seconds since 1970; 0 within the soft limit.
    pub block_time: u64,
    /// The same of the inodes.
    pub inode_time: u64,
    /// Space in a realtime section that can never be exceeded, in KiB.
    pub realtime_hard: u64,
    /// Space in a realtime section that can be exceeded for a while, in KiB.
    pub realtime_soft: u64,
    /// Space in use in a realtime section, in bytes; `space` does not have it.
    pub realtime: u64,
    /// When the grace of the space in a realtime section ends.
    pub realtime_time: u64,
}

/// What an id may use. 0 is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// KiB that can be exceeded for the grace period.
    pub block_soft: u64,
    /// KiB that can never be exceeded.
    pub block_hard: u64,
    /// Inodes that can be exceeded for the grace period.
    pub inode_soft: u64,
    /// Inodes that can never be exceeded.
    pub inode_hard: u64,
    /// KiB of a realtime section that can be exceeded for the grace period.
    pub realtime_soft: u64,
    /// KiB of a realtime section that can never be exceeded.
    pub realtime_hard: u64,
}

/// How long soft limits may be exceeded, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grace {
    /// Of space.
    pub blocks: u32,
    /// Of inodes.
    pub inodes: u32,
    /// Of space in a realtime section; 0 where the file system knows none.
    pub realtime: u32,
}

/// The project of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Project {
    /// Its number; 0 for none.
    pub id: u32,
    /// What is made in the directory belongs to it too.
    pub inherit: bool,
}

/// Usage and limits of one id, with its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Account {
    /// Number of the user, group or project.
    pub id: u32,
    /// What it uses and may use.
    pub entry: Dqblk,
}

/// The quota of a mounted file system.
pub trait Quota {
    /// The kinds that are counted.
    fn kinds(&self) -> Vec<Kind>;

    /// Usage and limits of every id that has an entry, ids rising. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EUCLEAN`, `EIO`.
    fn report(&self, cx: &mut Cx, kind: Kind) -> Result<Vec<Account>, Errno>;

    /// Sets the limits of an id. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EOPNOTSUPP` limits of a realtime section where the file
    /// system knows none; `EROFS`, `EUCLEAN`, `EIO`.
    fn set_limits(&self, cx: &mut Cx, kind: Kind, id: u32, limits: &Limits) -> Result<(), Errno>;

    /// How long soft limits of this kind may be exceeded. May park.
    ///
    /// # Errors
    /// `ESRCH` this kind is not counted; `EUCLEAN`, `EIO`.
    fn grace(&self, cx: &mut Cx, kind: Kind) -> Result<Grace, Errno>;

    /// Sets how long soft limits of this kind may be exceeded; periods under way stay. May park.
    ///
    /// # Errors
    /// As [`Quota::set_limits`].
    fn set_grace(&self, cx: &mut Cx, kind: Kind, grace: Grace) -> Result<(), Errno>;

    /// The project of an inode. May park.
    ///
    /// # Errors
    /// `ESTALE`, `EUCLEAN`, `EIO`.
    fn project(&self, cx: &mut Cx, ino: Ino) -> Result<Project, Errno>;

    /// Gives an inode to a project. Only directories let new entries inherit it. May park.
    ///
    /// # Errors
    /// `EOPNOTSUPP` inodes have no project; `EDQUOT`, `EROFS`, `ESTALE`, `EUCLEAN`, `EIO`.
    fn set_project(&self, cx: &mut Cx, ino: Ino, project: Project) -> Result<(), Errno>;
}
