//! What tasks do: create, look up and remove names.

use std::ops::Range;

use base::Errno;
use ext4::LegacyLookups;
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, OpenFlags};

use super::bed::Bed;

/// The phases of every cell.
pub const PHASES: [&str; 3] = ["create", "lookup", "remove"];

/// What tasks do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Through paths, as mdtest, or below names, as mds-survey.
    pub by_path: bool,
    /// Directories.
    pub dirs: u64,
    /// Tasks.
    pub tasks: u64,
    /// Whose lookups the mount makes.
    pub legacy: LegacyLookups,
}

/// What one task does of a phase.
pub(super) fn operations(
    cx: &mut Cx,
    bed: &Bed,
    cell: &Cell,
    task: u64,
    numbers: Range<u64>,
    phase: usize,
) -> Result<(), String> {
    let (path, ino) = &bed.dirs[(task % cell.dirs) as usize];
    for number in numbers {
        let name = format!("file.mdtest.{task}.{number}");
        let legacy = cell.legacy != LegacyLookups::Off;
        let done = match cell.by_path {
            true => through_paths(cx, &bed.names, &format!("{path}/{name}"), phase, legacy),
            false => below_names(cx, &*bed.fs, *ino, name.as_bytes(), phase, legacy),
        };
        done.map_err(|errno| format!("{} of {}: {errno}", PHASES[phase], path))?;
    }
    Ok(())
}

fn through_paths(
    cx: &mut Cx,
    names: &vfs::Namespace,
    path: &str,
    phase: usize,
    legacy: bool,
) -> Result<(), Errno> {
    let path = path.as_bytes();
    match phase {
        0 => {
            let mut flags = OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE;
            // A create of then begins with the lookup that makes sure of the name.
            flags.set(OpenFlags::EXCL, legacy);
            names.open(cx, path, flags, 0o664)?.close(cx)
        }
        1 => names.lstat(cx, path).map(drop),
        _ => names.unlink(cx, path),
    }
}

fn below_names(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: base::Ino,
    name: &[u8],
    phase: usize,
    legacy: bool,
) -> Result<(), Errno> {
    match phase {
        0 => fs.create(cx, dir, name, &NewNode::new(FileType::Regular, 0o644)).map(drop),
        1 => fs.lookup(cx, dir, name).map(drop),
        _ => {
            // Who removes below names looks the name up before.
            if legacy {
                fs.lookup(cx, dir, name)?;
            }
            fs.unlink(cx, dir, name)
        }
    }
}
