//! The command line.

use thiserror::Error;

/// What the command line asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Make the files.
    Prepare,
    /// Work on them.
    Run,
    /// Remove them.
    Cleanup,
}

/// The version that a command line is written for: `--test=fileio` (0.4) or `fileio` (1.0).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// 0.4.12.
    Old,
    /// 1.0.20.
    New,
}

/// The order of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Sequential write.
    SeqWr,
    /// Sequential rewrite.
    SeqRewr,
    /// Sequential read.
    SeqRd,
    /// Random read.
    RndRd,
    /// Random write.
    RndWr,
    /// Random read and write.
    RndRw,
}

impl Mode {
    /// Names on the command line and in the output.
    pub(super) const ALL: [(&'static str, &'static str, Mode); 6] = [
        ("seqwr", "sequential write (creation)", Mode::SeqWr),
        ("seqrewr", "sequential rewrite", Mode::SeqRewr),
        ("seqrd", "sequential read", Mode::SeqRd),
        ("rndrd", "random read", Mode::RndRd),
        ("rndwr", "random write", Mode::RndWr),
        ("rndrw", "random r/w", Mode::RndRw),
    ];

    /// One of the three random ones.
    pub fn is_random(self) -> bool {
        matches!(self, Mode::RndRd | Mode::RndWr | Mode::RndRw)
    }
}

/// How files are opened beside what the test needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extra {
    /// Nothing.
    None,
    /// O_SYNC.
    Sync,
    /// O_DSYNC.
    Dsync,
    /// O_DIRECT.
    Direct,
}

/// A command line.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// What to do.
    pub command: Command,
    /// Whose output.
    pub dialect: Dialect,
    /// `--file-num`.
    pub files: u64,
    /// `--file-block-size`, bytes.
    pub block_size: u64,
    /// `--file-total-size`, bytes.
    pub total_size: u64,
    /// `--file-test-mode`.
    pub mode: Mode,
    /// `--file-extra-flags`.
    pub extra: Extra,
    /// `--file-fsync-freq`: all files are made durable after so many requests; 0 never.
    pub fsync_freq: u64,
    /// `--file-fsync-all`.
    pub fsync_all: bool,
    /// `--file-fsync-end`.
    pub fsync_end: bool,
    /// `--file-fsync-mode=fdatasync`.
    pub fdatasync: bool,
    /// `--file-rw-ratio`.
    pub rw_ratio: f64,
    /// `--num-threads`, `--threads`.
    pub threads: u64,
    /// `--max-requests`, `--events`; 0 without bound.
    pub requests: u64,
    /// `--max-time`, `--time`, seconds; 0 without bound.
    pub seconds: u64,
    /// `--rand-seed`; 0: the seed of the run.
    pub seed: u64,
    /// Names of version 0.4 on a command line of 1.0, with those that it wants instead.
    pub deprecated: Vec<(&'static str, &'static str)>,
}

/// What is wrong with a command line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Usage {
    /// `--help`, or nothing at all.
    #[error("sysbench fileio [OPTIONS] prepare|run|cleanup")]
    Help,
    /// An option that there is not, or not here.
    #[error("invalid option: {0}")]
    Unknown(String),
    /// A value that is wrong.
    #[error("invalid value for {option}: {value}; wanted: {wanted}")]
    Value {
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// No command.
    #[error("Missing required command: prepare, run or cleanup")]
    NoCommand,
    /// No test mode.
    #[error("Missing required argument: --file-test-mode")]
    NoMode,
    /// Files that are no whole number of blocks, or empty.
    #[error(
        "{total} bytes in {files} files with blocks of {block}: no file has a block of its own"
    )]
    Sizes {
        /// Total size.
        total: u64,
        /// Files.
        files: u64,
        /// Block size.
        block: u64,
    },
}

/// Most threads and files that are taken.
const MANY: u64 = 65_536;

impl Options {
    fn new(dialect: Dialect) -> Options {
        let old = dialect == Dialect::Old;
        Options {
            command: Command::Run,
            dialect,
            files: 128,
            block_size: 16384,
            total_size: 2 << 30,
            mode: Mode::RndRw,
            extra: Extra::None,
            fsync_freq: 100,
            fsync_all: false,
            fsync_end: true,
            fdatasync: false,
            rw_ratio: 1.5,
            threads: 1,
            requests: if old { 10_000 } else { 0 },
            seconds: if old { 0 } else { 10 },
            seed: 0,
            deprecated: Vec::new(),
        }
    }

    /// Reads the arguments, without the name of the program.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse<S: AsRef<str>>(arguments: &[S]) -> Result<Options, Usage> {
        let words: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        if words.is_empty() || words.contains(&"--help") {
            return Err(Usage::Help);
        }
        let old = words.iter().any(|word| word.starts_with("--test"));
        let mut options = Options::new(if old { Dialect::Old } else { Dialect::New });
        let (mut command, mut mode) = (None, false);
        for word in words {
            let Some(name) = word.strip_prefix("--") else {
                command = match word {
                    "fileio" => command,
                    "prepare" => Some(Command::Prepare),
                    "run" => Some(Command::Run),
                    "cleanup" => Some(Command::Cleanup),
                    _ => return Err(Usage::Unknown(word.to_owned())),
                };
                continue;
            };
            let (name, value) = name.split_once('=').unwrap_or((name, "on"));
            mode |= name == "file-test-mode";
            let today = options.rename(name, value);
            options.set(name, today, value)?;
        }
        options.command = command.ok_or(Usage::NoCommand)?;
        if options.command == Command::Run && !mode {
            return Err(Usage::NoMode);
        }
        options.check()
    }

    /// Notes a name of version 0.4, and answers that of 1.0.
    fn rename<'n>(&mut self, name: &'n str, value: &str) -> &'n str {
        let renamed =
            [("num-threads", "threads"), ("max-requests", "events"), ("max-time", "time")];
        let Some(&(old, new)) = renamed.iter().find(|(old, _)| *old == name) else { return name };
        // The tool says nothing of a bound that is none.
        if value != "0" {
            self.deprecated.push((old, new));
        }
        new
    }

    /// Takes an option that was `given` by one name and is called `name` in version 1.0.
    fn set(&mut self, given: &str, name: &str, value: &str) -> Result<(), Usage> {
        let wrong = |wanted: &str| Usage::Value {
            option: format!("--{given}"),
            value: value.to_owned(),
            wanted: wanted.to_owned(),
        };
        let number = || value.parse::<u64>().map_err(|_| wrong("a whole number"));
        let count = || match number()? {
            n @ 1..=MANY => Ok(n),
            _ => Err(wrong("1 to 65536")),
        };
        let size = || base::unit::parse_size(value).map_err(|_| wrong("a size, as 2K or 1G"));
        let switch = || match value {
            "on" | "yes" | "1" | "true" => Ok(true),
            "off" | "no" | "0" | "false" => Ok(false),
            _ => Err(wrong("on or off")),
        };
        let one_of = |known: &[&str]| match known.contains(&value) {
            true => Ok(()),
            false => Err(wrong(&known.join(", "))),
        };
        match name {
            "test" => one_of(&["fileio"])?,
            "file-num" => self.files = count()?,
            "file-block-size" => self.block_size = size()?,
            "file-total-size" => self.total_size = size()?,
            "file-test-mode" => {
                let known = Mode::ALL.map(|(name, ..)| name);
                one_of(&known)?;
                let found = Mode::ALL.iter().find(|(name, ..)| *name == value);
                self.mode = found.expect("just looked at").2;
            }
            "file-io-mode" => one_of(&["sync"])?,
            "file-extra-flags" => {
                self.extra = match value {
                    "" | "none" => Extra::None,
                    "sync" => Extra::Sync,
                    "dsync" => Extra::Dsync,
                    "direct" => Extra::Direct,
                    _ => return Err(wrong("none, sync, dsync or direct")),
                }
            }
            "file-fsync-freq" => self.fsync_freq = number()?,
            "file-fsync-all" => self.fsync_all = switch()?,
            "file-fsync-end" => self.fsync_end = switch()?,
            "file-fsync-mode" => {
                one_of(&["fsync", "fdatasync"])?;
                self.fdatasync = value == "fdatasync";
            }
            "file-rw-ratio" => match value.parse::<f64>() {
                Ok(ratio) if ratio >= 0.0 && ratio.is_finite() => self.rw_ratio = ratio,
                _ => return Err(wrong("a number from 0")),
            },
            "threads" => self.threads = count()?,
            "events" => self.requests = number()?,
            "time" => self.seconds = number()?,
            "rand-seed" => self.seed = number()?,
            "rand-type" => one_of(&["uniform"])?,
            "verbosity" | "percentile" => {
                one_of(if name == "percentile" {
                    &["95"]
                } else {
                    &["0", "1", "2", "3", "4", "5"]
                })?;
            }
            _ => return Err(Usage::Unknown(format!("--{given}"))),
        }
        Ok(())
    }

    fn check(self) -> Result<Options, Usage> {
        let (total, files, block) = (self.total_size, self.files, self.block_size);
        if block == 0 || self.file_size() < block || block > 64 << 20 {
            return Err(Usage::Sizes { total, files, block });
        }
        Ok(self)
    }

    /// Bytes of each file.
    pub fn file_size(&self) -> u64 {
        self.total_size / self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Usage> {
        Options::parse(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_of_the_nfs_thread() {
        let line = "--num-threads=16 --max-requests=100000 --test=fileio --file-block-size=2K \
                    --file-total-size=200M --file-test-mode=rndrw --file-fsync-freq=0 \
                    --file-rw-ratio=0.5 run";
        let options = parse(line).unwrap();
        assert_eq!(options.dialect, Dialect::Old);
        assert_eq!((options.threads, options.requests, options.seconds), (16, 100_000, 0));
        assert_eq!((options.block_size, options.total_size), (2048, 200 << 20));
        assert_eq!((options.files, options.file_size()), (128, 1_638_400));
        assert_eq!((options.mode, options.rw_ratio), (Mode::RndRw, 0.5));
        assert!(options.fsync_end && options.fsync_freq == 0);
    }

    #[test]
    fn the_newer_command_line_has_other_defaults() {
        let options = parse("fileio --threads=4 --file-test-mode=seqrd run").unwrap();
        assert_eq!(options.dialect, Dialect::New);
        assert_eq!((options.requests, options.seconds, options.threads), (0, 10, 4));
        assert_eq!(parse("fileio prepare").unwrap().command, Command::Prepare);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse(""), Err(Usage::Help));
        assert_eq!(parse("fileio"), Err(Usage::NoCommand));
        assert_eq!(parse("fileio run"), Err(Usage::NoMode));
        assert_eq!(parse("fileio --colour=red run"), Err(Usage::Unknown("--colour".into())));
        for bad in [
            "--threads=0",
            "--max-requests=x",
            "--file-num=x",
            "--file-test-mode=up",
            "--file-io-mode=async",
            "--rand-type=special",
            "--file-rw-ratio=-1",
            "--file-block-size=1Q",
        ] {
            let error = parse(&format!("fileio {bad} run")).unwrap_err();
            assert!(matches!(error, Usage::Value { .. }), "{bad}: {error}");
            let option = bad.split('=').next().expect("a name");
            assert!(error.to_string().contains(option), "{bad}: {error}");
        }
        let error = parse("fileio --file-test-mode=rndrd --file-total-size=1K run").unwrap_err();
        assert!(matches!(error, Usage::Sizes { .. }));
    }
}
