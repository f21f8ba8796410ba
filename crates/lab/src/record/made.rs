//! What made a record: the build of the program, the modelled machine, the host.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::digest::digest;

/// A build of the program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Build {
    /// Version of the crate.
    pub version: String,
    /// The commit; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// Files were changed since the commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dirty: bool,
    /// Digest of the program's file: two dirty builds have two; empty where it is not
    /// known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
}

impl Default for Build {
    /// Only the version is known.
    fn default() -> Build {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Build { version, commit: String::new(), dirty: false, program: String::new() }
    }
}

impl Build {
    /// The build of the program in `file`, at a commit as `git describe --always --dirty` says it.
    /// Reads the file; where it cannot be read there is no digest.
    pub fn of(commit: &str, file: Option<&Path>) -> Build {
        let bare = commit.strip_suffix("-dirty");
        let bytes = file.and_then(|file| std::fs::read(file).ok());
        Build {
            commit: bare.unwrap_or(commit).to_owned(),
            dirty: bare.is_some(),
            program: bytes.map(|all| format!("{:016x}", digest(&all))).unwrap_or_default(),
            ..Build::default()
        }
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "iopath {}", self.version)?;
        if !self.commit.is_empty() {
            write!(f, ", commit {}{}", self.commit, if self.dirty { " with changes" } else { "" })?;
        }
        match self.program.get(..8) {
            Some(start) => write!(f, ", program {start}"),
            None => Ok(()),
        }
    }
}

/// What made a record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Made {
    /// The build.
    pub build: Build,
    /// Digest of the modelled machine's profile; empty where none is modelled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The host: processors and kernel.
    pub host: String,
}

/// The host in words: its processors and its kernel, without its name.
pub fn host() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("an unknown processor", |(_, name)| name.trim());
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    format!("{cpus} x {model}, {} {release}", system.sysname().to_string_lossy())
}
