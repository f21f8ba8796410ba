//! Landlock: the files that may be opened.

use std::os::fd::AsFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use crate::{LockError, Policy};

/// The newest version whose rights are asked for; an older kernel holds those that it knows.
const NEWEST: ABI = ABI::V6;

/// The kernel's file systems of pipes, of sockets and of what else has no name (linux/magic.h).
const NAMELESS: [u64; 3] = [0x5049_5045, 0x534f_434b, 0x0904_1934];

/// Restricts this thread; returns the kernel's version of Landlock, 0 where it has none.
pub(crate) fn restrict(policy: &Policy) -> Result<u32, LockError> {
    let failed = |error| LockError::new("Landlock", error);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .map_err(failed)?;
    if !policy.network {
        rules = rules.handle_access(AccessNet::from_all(NEWEST)).map_err(failed)?;
    }
    rules = rules.scope(Scope::from_all(NEWEST)).map_err(failed)?;
    let mut rules = rules.create().map_err(failed)?;
    // Devices are asked for their size; what is written discards. The requests are filtered.
    let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let write = read | AccessFs::WriteFile | AccessFs::Truncate;
    let make = AccessFs::from_all(NEWEST) & !BitFlags::from(AccessFs::Execute);
    // What is there already, through /dev/stdout and the like.
    rules = allow_open(rules, &std::io::stdin(), write)?;
    rules = allow_open(rules, &std::io::stdout(), write)?;
    rules = allow_open(rules, &std::io::stderr(), write)?;
    let list = BitFlags::from(AccessFs::ReadDir);
    let all =
        [(&policy.list, list), (&policy.read, read), (&policy.write, write), (&policy.make, make)];
    for (paths, access) in all {
        for path in paths {
            rules = allow(rules, path, access)?;
        }
    }
    let held = rules.restrict_self().map_err(failed)?;
    Ok(match held.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            kernel_abi.map_or(effective_abi as u32, i32::unsigned_abs)
        }
        _ => 0,
    })
}

/// Allows `access` to a path; one that is not there needs no rule.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, LockError> {
    match PathFd::new(path) {
        Ok(opened) => allow_open(rules, &opened, access),
        Err(_) => Ok(rules),
    }
}

fn allow_open(
    rules: RulesetCreated,
    opened: &impl AsFd,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, LockError> {
    let failed = |error| LockError::new("Landlock", error);
    let stat = rustix::fs::fstat(opened).map_err(|error| LockError::new("fstat", error))?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    // What has no name has no place in a tree, and may be opened.
    let on = rustix::fs::fstatfs(opened).map_err(|error| LockError::new("fstatfs", error))?;
    if NAMELESS.contains(&(on.f_type as u64)) {
        return Ok(rules);
    }
    let access = match kind.is_dir() {
        true => access,
        false => access & AccessFs::from_file(NEWEST),
    };
    if access.is_empty() {
        return Ok(rules);
    }
    rules.add_rule(PathBeneath::new(opened.as_fd(), access)).map_err(failed)
}
