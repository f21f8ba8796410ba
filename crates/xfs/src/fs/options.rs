//! Mount options by the names of mount(8): `-o logbsize=256k,wsync`.

use std::str::FromStr;

use base::Nanos;
use vfs::direct::{Boundary, DirectOptions};
use vfs::quota::Kind;

use crate::log::LogOptions;
use crate::log::buf_item::walk::Variant;
use crate::quota::QuotaMode;

pub use crate::log::BesideDevice;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Write nothing at all.
    pub read_only: bool,
    /// On a read-only mount of a file system with a dirty log: read it as it lies on the disk,
    /// without what the log holds (the kernel's `norecovery`).
    pub no_recovery: bool,
    /// Bytes of metadata kept in memory.
    pub buffer_limit_bytes: u64,
    /// Inodes kept in memory.
    pub inode_cache: usize,
    /// Names kept in memory, about; 0: none.
    pub name_cache: usize,
    /// Bytes of a log record, 32 to 256 KiB (`logbsize`).
    pub log_record_bytes: u32,
    /// How buffers become regions of the log.
    pub buf_item: Variant,
    /// Each change of names is durable when its call returns (`wsync`).
    pub wsync: bool,
    /// Leaves of directories get gaps for names to come (`dir_leaf=gaps`), else they are dense as
    /// Linux makes them.
    pub leaf_gaps: bool,
    /// Leaves of directories are checked whole before and after each change, as a debug kernel does
    /// (`debug_checks`).
    pub debug_checks: bool,
    /// Who waits for another task's write of the log yields his place in the elevator to it
    /// (`log_yield=1`), as Jeff Moyer's series of 2010 has it for jbd's journal.
    pub log_yield: bool,
    /// Count and time what formatting buffers takes: [`Xfs::iop_stats`](crate::Xfs::iop_stats).
    pub iop_stats: bool,
    /// How direct I/O is done. There are no boundary marks: the rules differ in how they walk
    /// memory, and in when they send a bio.
    pub direct: DirectOptions,
    /// How long a change may wait in memory: then it is written into the log, and to its place
    /// (Linux: `fs.xfs.xfssyncd_centisecs`).
    pub write_out_interval: Nanos,
    /// Bytes of changes in the log above which the oldest go to their places, so that the memory
    /// of what they changed becomes free.
    pub dirty_max: u64,
    /// The device of the realtime section (`rtdev`). Without one, files there are not read, and
    /// nothing is written.
    pub realtime: Option<BesideDevice>,
    /// The device of an external log (`logdev`). Without one, such a file system is read as it lies
    /// on its disk, and not written.
    pub log: Option<BesideDevice>,
    /// Whose usage is counted (`uquota`, `gquota`, `pquota`, `uqnoenforce` and so on, `noquota`).
    pub quota: QuotaMode,
}

impl MountOptions {
    pub(crate) fn log_options(&self) -> LogOptions {
        LogOptions {
            variant: self.buf_item,
            record_bytes: self.log_record_bytes,
            interval: self.write_out_interval,
            dirty_max: self.dirty_max,
            background: true,
            debug_checks: self.debug_checks,
            iop_stats: self.iop_stats,
            yields: self.log_yield,
            device: self.log.clone(),
        }
    }
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: true,
            no_recovery: false,
            buffer_limit_bytes: 256 << 20,
            inode_cache: 65536,
            name_cache: 65536,
            log_record_bytes: LogOptions::default().record_bytes,
            buf_item: Variant::default(),
            wsync: false,
            leaf_gaps: true,
            debug_checks: false,
            log_yield: false,
            iop_stats: false,
            direct: DirectOptions::default(),
            write_out_interval: LogOptions::default().interval,
            dirty_max: LogOptions::default().dirty_max,
            realtime: None,
            log: None,
            quota: QuotaMode::AsBefore,
        }
    }
}

/// The names of all options.
pub const KEYS: [&str; 22] = [
    "logbsize",
    "wsync",
    "norecovery",
    "buf_item",
    "dir_leaf",
    "debug_checks",
    "log_yield",
    "quota",
    "uquota",
    "usrquota",
    "uqenforce",
    "gquota",
    "grpquota",
    "gqenforce",
    "pquota",
    "prjquota",
    "pqenforce",
    "uqnoenforce",
    "qnoenforce",
    "gqnoenforce",
    "pqnoenforce",
    "noquota",
];
/// All options in a line, for messages.
pub const KNOWN: &str = "logbsize=32k|64k|128k|256k, wsync, norecovery, \
                         buf_item=bitwise|contiguous|runs, dir_leaf=dense|gaps, debug_checks, \
                         log_yield=0|1, uquota, gquota, pquota, uqnoenforce, gqnoenforce, \
                         pqnoenforce, noquota";

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountOption {
    /// Bytes of a log record.
    LogRecordBytes(u32),
    /// Each change of names is durable when its call returns.
    Wsync,
    /// A read-only mount looks past a dirty log.
    NoRecovery,
    /// How buffers become regions of the log.
    BufItem(Variant),
    /// Leaves of directories get gaps.
    LeafGaps(bool),
    /// Leaves are checked whole before and after each change, and are dense unless an option behind
    /// this one says otherwise.
    DebugChecks,
    /// Who waits for the log yields to its writer.
    LogYield(bool),
    /// How direct I/O is done.
    Direct(Boundary),
    /// Whose usage is counted, and whether limits hold.
    Quota(Kind, bool),
    /// Nobody's usage is counted.
    NoQuota,
}

impl MountOption {
    /// Puts the option into those of a mount.
    pub fn apply(self, options: &mut MountOptions) {
        match self {
            MountOption::LogRecordBytes(bytes) => options.log_record_bytes = bytes,
            MountOption::Wsync => options.wsync = true,
            MountOption::NoRecovery => options.no_recovery = true,
            MountOption::BufItem(variant) => options.buf_item = variant,
            MountOption::LeafGaps(gaps) => options.leaf_gaps = gaps,
            MountOption::DebugChecks => {
                // A check goes through all of a leaf, and gaps make it longer.
                (options.debug_checks, options.leaf_gaps) = (true, false);
            }
            MountOption::LogYield(yields) => options.log_yield = yields,
            MountOption::Direct(rule) => options.direct.boundary = rule,
            MountOption::Quota(kind, enforced) => {
                let mut kinds = match options.quota {
                    QuotaMode::Count(kinds) => kinds,
                    QuotaMode::AsBefore | QuotaMode::Off => [None; 3],
                };
                kinds[kind as usize] = Some(enforced);
                options.quota = QuotaMode::Count(kinds);
            }
            MountOption::NoQuota => options.quota = QuotaMode::Off,
        }
    }
}

impl FromStr for MountOption {
    type Err = String;

    /// # Errors
    /// A sentence with what is known.
    fn from_str(text: &str) -> Result<MountOption, String> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        match (key, value) {
            ("wsync", "") => Ok(MountOption::Wsync),
            ("norecovery", "") => Ok(MountOption::NoRecovery),
            ("logbsize", _) => match base::unit::parse_size(value) {
                Ok(bytes @ (0x8000 | 0x1_0000 | 0x2_0000 | 0x4_0000)) => {
                    Ok(MountOption::LogRecordBytes(bytes as u32))
                }
                _ => Err(format!("`{text}`: logbsize is 32k, 64k, 128k or 256k")),
            },
            ("quota" | "uquota" | "usrquota" | "uqenforce", "") => {
                Ok(MountOption::Quota(Kind::User, true))
            }
            ("gquota" | "grpquota" | "gqenforce", "") => Ok(MountOption::Quota(Kind::Group, true)),
            ("pquota" | "prjquota" | "pqenforce", "") => {
                Ok(MountOption::Quota(Kind::Project, true))
            }
            ("uqnoenforce" | "qnoenforce", "") => Ok(MountOption::Quota(Kind::User, false)),
            ("gqnoenforce", "") => Ok(MountOption::Quota(Kind::Group, false)),
            ("pqnoenforce", "") => Ok(MountOption::Quota(Kind::Project, false)),
            ("noquota", "") => Ok(MountOption::NoQuota),
            ("dio_boundary", _) => value.parse().map(MountOption::Direct),
            ("buf_item", "bitwise") => Ok(MountOption::BufItem(Variant::Bitwise)),
            ("buf_item", "contiguous") => Ok(MountOption::BufItem(Variant::Contiguous)),
            ("buf_item", "runs") => Ok(MountOption::BufItem(Variant::Runs)),
            ("buf_item", _) => Err(format!("`{text}`: known are buf_item=bitwise|contiguous|runs")),
            ("dir_leaf", "dense") => Ok(MountOption::LeafGaps(false)),
            ("dir_leaf", "gaps") => Ok(MountOption::LeafGaps(true)),
            ("dir_leaf", _) => Err(format!("`{text}`: known are dir_leaf=dense|gaps")),
            ("debug_checks", "") => Ok(MountOption::DebugChecks),
            ("log_yield", "0" | "1") => Ok(MountOption::LogYield(value == "1")),
            ("log_yield", _) => Err(format!("`{text}`: known are log_yield=0|1")),
            _ => Err(format!("`{text}` is not known; there are {KNOWN}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_mean_what_mount_says_and_unknown_ones_are_answered() {
        let mut options = MountOptions::default();
        for text in ["logbsize=256k", "wsync", "norecovery", "buf_item=bitwise"] {
            text.parse::<MountOption>().expect("known").apply(&mut options);
        }
        assert_eq!((options.log_record_bytes, options.wsync), (256 << 10, true));
        assert_eq!((options.no_recovery, options.buf_item), (true, Variant::Bitwise));
        for (text, gaps) in [("debug_checks", false), ("dir_leaf=gaps", true)] {
            text.parse::<MountOption>().expect("known").apply(&mut options);
            assert_eq!((options.debug_checks, options.leaf_gaps), (true, gaps));
        }
        for text in [
            "logbsize=48k",
            "logbsize",
            "wsync=1",
            "buf_item=fast",
            "dir_leaf=x",
            "log_yield=2",
            "barrier",
            "",
        ] {
            let message = text.parse::<MountOption>().expect_err("refused");
            assert!(message.contains(&format!("`{text}`")), "{message}");
        }
    }
}
