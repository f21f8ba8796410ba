//! The sandbox of a command: it may open what its command line names, and little else.
//!
//! A command is locked before it opens an image. The files that it may open follow from its
//! arguments, which come from the user. The content of an image cannot add to them, except for the
//! parts of a container, which must lie in its folder or in one that the user has allowed.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::parser::ValueSource;
use container::Source;
use sandbox::{CapabilitySet, Policy};

use crate::app::{App, EngineArg};
use crate::target::{self, Target};

/// What of the kernel every command may look at: who has a file locked, sizes and marks of devices.
const KERNEL: [&str; 6] =
    ["/proc", "/sys/block", "/sys/class", "/sys/dev", "/sys/devices", "/dev/urandom"];
/// What a name server, TLS and the settings of stores need, for images on servers.
const SERVERS: [&str; 5] = ["/etc", "/usr/lib", "/usr/share", "/run", "/var/lib/ca-certificates"];
/// Variables that name files of theirs.
const SERVER_FILES: [&str; 6] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// What a command does with what it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// It reads.
    Look,
    /// It reads and writes images.
    Change,
    /// It also makes files beside them: undo files, files that were found.
    Make,
}

/// What the commands do that name nothing but images; none where a command locks itself, or
/// parses nothing of strangers.
pub fn work_of(commands: &[String]) -> Option<Work> {
    Some(match commands.first()?.as_str() {
        "info" | "ls" | "tree" | "stat" | "cat" | "df" | "du" | "find" | "manifest" | "check"
        | "diff" | "scan" | "which" => Work::Look,
        "mkdir" | "mv" | "rm" | "ln" | "chmod" | "chown" | "mknod" | "touch" | "truncate"
        | "xattr" | "chattr" | "encrypt" | "verity" | "quota" | "replay" => Work::Change,
        "repair" | "resize" | "tune" | "undelete" | "push" | "metadump" => Work::Make,
        _ => return None,
    })
}

/// The values that the user has given, of all arguments and options.
pub fn words(matches: &clap::ArgMatches) -> Vec<OsString> {
    let mut words = Vec::new();
    for id in matches.ids() {
        let given = matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        if let (true, Ok(Some(values))) = (given, matches.try_get_raw(id.as_str())) {
            words.extend(values.map(OsStr::to_owned));
        }
    }
    if let Some((_, below)) = matches.subcommand() {
        words.extend(self::words(below));
    }
    words
}

/// What a command needs of the host.
#[derive(Default)]
pub struct Needs {
    policy: Policy,
}

impl Needs {
    /// What the words of a command line name, for this work.
    pub fn of_words(words: &[OsString], work: Work) -> Needs {
        let mut needs = Needs::default();
        words.iter().for_each(|word| needs.word(word, work));
        needs
    }

    /// A word that may name an image, a place in one, or a file.
    pub fn word(&mut self, word: &OsStr, work: Work) {
        // The value of `-J`: a device, or the tag of one, that is looked for on all.
        if let Some(device) = word.to_str().and_then(|word| word.strip_prefix("device=")) {
            if device.starts_with("UUID=") || device.starts_with("LABEL=") {
                let devices = crate::journal_arg::block_devices();
                return devices.into_iter().flatten().for_each(|path| self.file(&path, work));
            }
            return self.word(OsStr::new(device), work);
        }
        let part = target::split(word).map_or(word, |(part, _)| part);
        let parsed = Target::parse(part).ok();
        if parsed.as_ref().is_some_and(target::Target::is_on_server) {
            self.policy.network = true;
            return;
        }
        let target = parsed.map(|target| target.path);
        for path in [Some(PathBuf::from(word)), target].into_iter().flatten() {
            for path in target::members(&path) {
                self.file(&path, work);
            }
        }
    }

    fn file(&mut self, path: &Path, work: Work) {
        match work {
            Work::Look => self.read(path),
            Work::Change => self.write(path),
            Work::Make => {
                self.write(path);
                let is_device =
                    path.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
                // What is made for a device is made in the working directory.
                self.make(if is_device { Path::new(".") } else { folder_of(path) });
                self.copies_out();
            }
        }
        // The parts of a container lie beside it. Its first bytes are compared here, no more.
        let look = container::FileSource::look(path, None).ok();
        let is_container = look
            .filter(|look| look.size() > 0)
            .is_some_and(|look| container::recognise(&look).is_ok_and(|format| format.is_some()));
        if is_container {
            self.read(folder_of(&path.canonicalize().unwrap_or_else(|_| path.to_owned())));
        }
    }

    /// A file, or a folder and all below, is read.
    pub fn read(&mut self, path: impl Into<PathBuf>) {
        self.policy.read.push(path.into());
    }

    /// The names of a folder, and below, are listed.
    pub fn list(&mut self, folder: impl Into<PathBuf>) {
        self.policy.list.push(folder.into());
    }

    /// A file is written.
    pub fn write(&mut self, path: impl Into<PathBuf>) {
        self.policy.write.push(path.into());
    }

    /// Names are made and removed in a folder and all below.
    pub fn make(&mut self, folder: impl Into<PathBuf>) {
        self.policy.make.push(folder.into());
    }

    /// Owners, modes, times and attributes of the host's files are set.
    pub fn copies_out(&mut self) {
        self.policy.writes_host_files = true;
    }
}

/// The folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks this process, unless the user wants it otherwise or it is locked already. Call it before
/// an image is opened.
///
/// # Errors
/// The kernel refuses what it has.
pub fn enter(app: &mut App, needs: Needs) -> Result<()> {
    // What runs inside of another command has that one's rights.
    if app.options.no_sandbox || app.locked.is_some() || app.recorder.is_some() {
        return Ok(());
    }
    let mut policy = needs.policy;
    // A second device of an image is written by the commands that write something.
    for device in app.options.devices_beside() {
        let looks = policy.write.is_empty() && policy.make.is_empty();
        let list = if looks { &mut policy.read } else { &mut policy.write };
        list.push(device.to_owned());
    }
    policy.read.extend(KERNEL.map(PathBuf::from));
    policy.write.push("/dev/null".into());
    // Files of options: maps, keys, lists.
    policy.read.extend(app.words.iter().map(PathBuf::from));
    policy.read.extend(app.options.image_dir.iter().cloned());
    policy.read.extend(app.options.map.iter().cloned());
    // A folder that is not there cannot be named.
    if let Some(folder) = &app.options.cache_dir {
        let _ = std::fs::create_dir_all(folder);
        policy.make.push(folder.clone());
    }
    // It is made by the first command that writes.
    if let Some(file) = &app.options.overlay {
        policy.make.push(folder_of(file).to_owned());
    }
    if policy.network {
        policy.read.extend(SERVERS.map(PathBuf::from));
        policy.read.extend(SERVER_FILES.iter().filter_map(std::env::var_os).map(PathBuf::from));
        policy.read.extend(std::env::home_dir().map(|home| home.join(".config/gcloud")));
    }
    let uring = app.options.engine == EngineArg::Uring || app.options.direct;
    policy.rings = uring || app.options.of_mount_is("io_uring");
    policy.capabilities = Some(capabilities(&policy));
    policy.memory_bytes = Some(memory(app.options.cache_size));
    let locked = sandbox::lock(&policy);
    let advice = "locking this process (--no-sandbox goes without)";
    app.locked = Some(locked.context(advice)?);
    Ok(())
}

/// What root keeps: to open what the user names, and to write files as they are.
fn capabilities(policy: &Policy) -> CapabilitySet {
    let mut kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    if policy.writes_host_files {
        kept |= CapabilitySet::CHOWN
            | CapabilitySet::FOWNER
            | CapabilitySet::FSETID
            | CapabilitySet::MKNOD
            | CapabilitySet::SETFCAP
            | CapabilitySet::LINUX_IMMUTABLE
            // Attributes whose names begin with `trusted.`.
            | CapabilitySet::SYS_ADMIN;
    }
    if policy.network {
        kept |= CapabilitySet::NET_BIND_SERVICE;
    }
    kept
}

/// Bytes of private memory: three quarters of the host's, and never too few for the caches.
fn memory(cache_bytes: u64) -> u64 {
    let host = rustix::system::sysinfo();
    let bytes = host.totalram.saturating_mul(host.mem_unit.into());
    (bytes / 4 * 3).max((4 << 30) + 4 * cache_bytes)
}

/// From here on nothing is opened any more.
///
/// # Errors
/// The kernel refuses the filter.
pub fn settle(app: &App) -> Result<()> {
    match &app.locked {
        Some(locked) => locked.settle().context("locking this process"),
        None => Ok(()),
    }
}
