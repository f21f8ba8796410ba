//! Names in one directory, one thread, one system call after the other and nothing else between:
//! what the file system takes, without the start and the own work of a program such as touch(1).

use crate::Result;
use std::fs::{OpenOptions, remove_file, symlink_metadata};
use std::time::Instant;

/// Does `what` to `count` names in the current directory; answers nanoseconds.
pub fn run(what: &str, count: &str) -> Result<u128> {
    let names: Vec<_> = (1..=count.parse::<u32>()?).map(|at| format!("file-{at:06}")).collect();
    let each: fn(&str) -> std::io::Result<()> = match what {
        "create" => |name| OpenOptions::new().write(true).create_new(true).open(name).map(drop),
        // stat(2). What std offers asks for the time of birth, too, which FUSE has to ask for apart.
        "stat" => |name| Ok(rustix::fs::lstat(name).map(drop)?),
        "statx" => |name| symlink_metadata(name).map(drop),
        "unlink" => |name| remove_file(name),
        other => return Err(format!("{other}: not one of create, stat, statx, unlink").into()),
    };
    let start = Instant::now();
    for name in &names {
        each(name).map_err(|error| format!("{what} {name}: {error}"))?;
    }
    Ok(start.elapsed().as_nanos())
}
