//! The state that every command uses: its task, the global options, the output.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use base::{Errno, LockedBytes};
use block::Queue;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use fscrypt::{KeyRing, MasterKey};
use repair::rescue::Rescued;
use rt::Cx;

use crate::keys;
use crate::mount_arg::MountArg;
use crate::out::Out;
use crate::target::Target;
use crate::text;

/// Options that every command takes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Print JSON: one document, or one line per name
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress, no notes
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Memory for cached content, e.g. 64M
    #[arg(long, global = true, value_name = "SIZE", value_parser = text::parse_size,
          default_value = "256M", hide_default_value = false)]
    pub cache_size: u64,
    /// Bypass the host's page cache (O_DIRECT)
    #[arg(long, global = true)]
    pub direct: bool,
    /// Format of an image, instead of recognising it by content: raw, qcow2, vmdk, vhd, vhdx,
    /// vdi, android-sparse, zstd
    #[arg(long, global = true, value_name = "FORMAT")]
    pub image_format: Option<container::Format>,
    /// Show this snapshot of a qcow2 image: its name or number
    #[arg(long, global = true, value_name = "NAME")]
    pub snapshot: Option<String>,
    /// A further folder where parts of an image may lie
    #[arg(long, global = true, value_name = "DIR")]
    pub image_dir: Vec<std::path::PathBuf>,
    /// Keep blocks of images on servers in this folder
    #[arg(long, global = true, value_name = "DIR")]
    pub cache_dir: Option<std::path::PathBuf>,
    /// Write changes of an image on a server to this file; see `push`
    #[arg(long, global = true, value_name = "FILE")]
    pub overlay: Option<std::path::PathBuf>,
    /// Use s3://, gs:// and az:// without credentials
    #[arg(long, global = true)]
    pub anonymous: bool,
    /// Read what a damaged image still holds; nothing is written
    #[arg(long, global = true)]
    pub rescue: bool,
    /// With --rescue: look for ext or xfs, also below another one
    #[arg(long, global = true, value_name = "TYPE", requires = "rescue", hide = true)]
    pub rescue_type: Option<RescueType>,
    /// With --rescue: a copy of ext's superblock begins here
    #[arg(long, global = true, value_name = "BYTES", requires = "rescue", hide = true,
          value_parser = text::parse_size)]
    pub superblock: Option<u64>,
    /// With --rescue: a map file of GNU ddrescue
    #[arg(long, global = true, value_name = "FILE", requires = "rescue")]
    pub map: Option<std::path::PathBuf>,
    /// The file system begins at this byte of the target
    #[arg(long, global = true, value_name = "BYTES", value_parser = text::parse_size)]
    pub offset: Option<u64>,
    /// A file with the key of encrypted directories; `-` is standard input
    #[arg(long, global = true, value_name = "FILE",
          value_parser = OsStringValueParser::new().try_map(keys::read))]
    pub key: Vec<MasterKey>,
    /// A file with a LUKS volume's key or passphrase; or `-`
    #[arg(long, global = true, value_name = "FILE",
          value_parser = OsStringValueParser::new().try_map(keys::read_secret))]
    pub key_file: Option<LockedBytes>,
    /// The root hash of dm-verity: what does not fit it is not read
    #[arg(long, global = true, value_name = "HEX", value_parser = keys::root_hash)]
    pub root_hash: Option<keys::RootHash>,
    /// With --root-hash: the image or device of the hash tree
    #[arg(long, global = true, value_name = "TARGET", requires = "root_hash")]
    pub hash_device: Option<OsString>,
    /// With --root-hash: the tree begins at this byte of its device
    #[arg(long, global = true, value_name = "BYTES", value_parser = text::parse_size,
          requires = "root_hash")]
    pub hash_offset: Option<u64>,
    /// Mount options, with commas; `iopath help` lists them
    #[arg(
        short = 'o',
        long = "mount-options",
        global = true,
        value_name = "OPTIONS",
        value_delimiter = ','
    )]
    pub mount: Vec<MountWord>,
    /// Take * ? [ in places as ordinary characters
    #[arg(long, global = true)]
    pub no_glob: bool,
    /// Turn the sandbox off
    #[arg(long, global = true)]
    pub no_sandbox: bool,
    /// Way to the host's storage: auto, uring or psync
    #[arg(long, global = true, value_enum, default_value_t = EngineArg::Auto,
          hide_possible_values = true)]
    pub engine: EngineArg,
}

/// The engine of real devices.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineArg {
    /// io_uring where it pays, else pread and pwrite
    Auto,
    /// io_uring
    Uring,
    /// pread and pwrite
    Psync,
}

/// What a device beside that of the data holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BesideWord {
    /// The realtime section (`rtdev=TARGET`).
    Realtime,
    /// The log of XFS (`logdev=TARGET`).
    Log,
    /// The journal of ext4 (`journal_path=TARGET`).
    Journal,
}

/// One word of `-o`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MountWord {
    /// Of the file system.
    FileSystem(MountArg),
    /// Of `iopath mount`.
    Mount(String),
    /// Another device: that of a realtime section, or of a log.
    Beside(BesideWord, std::path::PathBuf),
}

impl std::str::FromStr for MountWord {
    type Err = String;

    /// # Errors
    /// A sentence with what is known.
    fn from_str(text: &str) -> Result<MountWord, String> {
        let beside = [
            ("rtdev=", BesideWord::Realtime),
            ("logdev=", BesideWord::Log),
            ("journal_path=", BesideWord::Journal),
        ];
        for (key, what) in beside {
            if let Some(path) = text.strip_prefix(key) {
                return Ok(MountWord::Beside(what, path.into()));
            }
        }
        match fuse::Options::default().set(text) {
            Ok(true) => Ok(MountWord::Mount(text.to_owned())),
            Ok(false) => text.parse().map(MountWord::FileSystem),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Options {
    /// The keys of encrypted directories that were given.
    pub fn keys(&self) -> KeyRing {
        let mut ring = KeyRing::default();
        self.key.iter().for_each(|key| ring.add(key.clone()));
        ring
    }

    /// The mount options that are the file system's.
    pub fn of_file_system(&self) -> impl Iterator<Item = MountArg> {
        self.mount.iter().filter_map(|word| match word {
            MountWord::FileSystem(option) => Some(*option),
            MountWord::Mount(_) | MountWord::Beside(..) => None,
        })
    }

    /// The device that holds this, where one is named.
    pub fn device_beside(&self, what: BesideWord) -> Option<&std::path::Path> {
        self.mount.iter().find_map(|word| match word {
            MountWord::Beside(which, path) if *which == what => Some(path.as_path()),
            _ => None,
        })
    }

    /// All devices beside that of the data.
    pub fn devices_beside(&self) -> impl Iterator<Item = &std::path::Path> {
        [BesideWord::Realtime, BesideWord::Log, BesideWord::Journal]
            .into_iter()
            .filter_map(|what| self.device_beside(what))
    }

    /// Whether a mount option that only `iopath mount` knows is given.
    pub fn of_mount_is(&self, word: &str) -> bool {
        self.mount.contains(&MountWord::Mount(word.to_owned()))
    }

    /// The first mount option that only `iopath mount` knows.
    pub fn of_mount(&self) -> Option<&str> {
        self.mount.iter().find_map(|word| match word {
            MountWord::Mount(word) => Some(word.as_str()),
            MountWord::FileSystem(_) | MountWord::Beside(..) => None,
        })
    }
}

/// A running command.
pub struct App<'c> {
    /// The task that runs it.
    pub cx: &'c mut Cx,
    /// Global options.
    pub options: Options,
    /// Standard output.
    pub out: Out,
    /// Where `iopath trace` runs the command: what keeps the queues' events.
    pub recorder: Option<Recorder>,
    /// What was opened by `--rescue`, to say at the end what could not be read.
    pub rescued: Vec<Opened>,
    /// Passphrases that were typed, by target.
    pub passphrases: Vec<(String, LockedBytes)>,
    /// The command line without the program's name.
    pub args: Vec<OsString>,
    /// The values in it.
    pub words: Vec<OsString>,
    /// What holds where the process is locked.
    pub locked: Option<sandbox::Locked>,
}

/// A file system that is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum RescueType {
    /// Ext2, ext3 or ext4.
    #[value(alias = "ext2", alias = "ext3", alias = "ext4")]
    Ext,
    /// XFS.
    Xfs,
}

/// What is looked for, as the options say it.
///
/// # Errors
/// A superblock of ext, and XFS.
pub fn format_wanted(
    kind: Option<RescueType>,
    superblock: Option<u64>,
) -> anyhow::Result<Option<repair::Format>> {
    match (kind, superblock) {
        (Some(RescueType::Xfs), Some(_)) => {
            anyhow::bail!("a superblock at another place is for ext; XFS finds its copies itself")
        }
        (Some(RescueType::Xfs), None) => Ok(Some(repair::Format::Xfs)),
        (None, None) => Ok(None),
        _ => Ok(Some(repair::Format::Ext { superblock })),
    }
}

/// A target that was opened by `--rescue`.
pub struct Opened {
    /// The target.
    pub target: Target,
    /// Its device, which knows what could not be read.
    pub rescued: Arc<Rescued>,
}

/// Keeps the queues that a command opens, with their trace events.
pub struct Recorder {
    /// Events that each queue keeps.
    pub events: usize,
    /// Targets and their queues, in the order of opening.
    pub queues: Vec<(String, Arc<Queue>)>,
}

impl Recorder {
    /// Nothing opened yet.
    pub fn new(events: usize) -> Recorder {
        Recorder { events, queues: Vec::new() }
    }
}

/// Turns an errno at a place into a message.
pub fn at(place: impl std::fmt::Display) -> impl FnOnce(Errno) -> anyhow::Error {
    move |errno| anyhow!("{place}: {}", explain(errno))
}

/// An errno in words, with what to do about it.
fn explain(errno: Errno) -> String {
    let hint = match errno {
        Errno::EUCLEAN | Errno::EBADMSG => "; `iopath check` reports what is damaged",
        Errno::ENOSPC => "; `iopath df` shows what is free",
        Errno::ENOKEY => "; `iopath encrypt show` names it, `--key FILE` gives it",
        Errno::EDQUOT => "; `iopath quota report` shows usage and limits",
        _ => "",
    };
    format!("{errno}{hint}")
}

/// The way from a host path to text.
pub fn shown(path: &std::path::Path) -> String {
    path.display().to_string()
}
