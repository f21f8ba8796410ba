//! The command line.

use thiserror::Error;

use super::validate;

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

/// How files are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoMode {
    /// read and write.
    Sync,
    /// Several requests of a thread at once.
    Async,
    /// Through mappings.
    Mmap,
}

impl IoMode {
    /// Names on the command line and in the output.
    pub(super) const ALL: [(&'static str, &'static str, IoMode); 3] = [
        ("sync", "synchronous", IoMode::Sync),
        ("async", "asynchronous", IoMode::Async),
        ("mmap", "fast mmaped", IoMode::Mmap),
    ];
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
    /// `--file-io-mode`.
    pub io_mode: IoMode,
    /// `--file-async-backlog`: requests of a thread under way in that mode.
    pub backlog: u64,
    /// `--file-merged-requests`: so many blocks are one request of a sequential test; 0: one.
    pub merged: u64,
    /// `--rate`, `--tx-rate`: requests a second, at random times; 0 as fast as can be.
    pub rate: u64,
    /// `--report-interval`, seconds; 0 none.
    pub report_interval: u64,
    /// `--report-checkpoints`, seconds, rising.
    pub checkpoints: Vec<u64>,
    /// `--percentile`; 0 for none.
    pub percentile: u32,
    /// `--histogram`.
    pub histogram: bool,
    /// `--validate`: blocks have checksums, which reads check.
    pub validate: bool,
    /// `--verbosity`: below 3 nothing but errors is printed.
    pub verbosity: u8,
    /// `--rand-seed`; 0: the seed of the run.
    pub seed: u64,
    /// Names of version 0.4 on a command line of 1.0, with those that it wants instead.
    pub deprecated: Vec<(&'static str, &'static str)>,
}

/// What `--help` prints.
const HELP: &str = "\
Usage:
  sysbench [options]... fileio prepare|run|cleanup

General options (and their names in version 0.4):
  --threads=N (--num-threads)     number of threads [1]
  --events=N (--max-requests)     limit of the number of requests [0; with --test=fileio 10000]
  --time=N (--max-time)           limit of the time in seconds [10; with --test=fileio 0]
  --rate=N (--tx-rate)            average requests a second; 0 as fast as can be [0]
  --report-interval=N             report intermediate results every N seconds [0]
  --report-checkpoints=[LIST,...] report full results and begin anew after so many seconds []
  --percentile=N                  which percentile of latencies is reported, 1 to 100; 0 none [95]
  --histogram[=on|off]            draw a histogram of latencies [off]
  --validate[=on|off]             blocks have checksums, which reads check [off]
  --rand-seed=N                   seed of random numbers; 0: the run's own [0]
  --verbosity=N                   5 - debug, 0 - only critical messages [3]
  --config-file=FILENAME          file with further options, one name=value in a line
Without effect: --debug, --forced-shutdown, --thread-stack-size, --rand-type, --rand-spec-iter,
  --rand-spec-pct, --rand-spec-res, --rand-pareto-h

fileio options:
  --file-num=N                    number of files [128]
  --file-block-size=N             size of a request [16384]
  --file-total-size=SIZE          size of all files [2G]
  --file-test-mode=STRING         seqwr, seqrewr, seqrd, rndrd, rndwr, rndrw
  --file-io-mode=STRING           sync, async, mmap [sync]
  --file-async-backlog=N          requests of a thread under way in mode async [128]
  --file-extra-flags=STRING       sync, dsync, direct []
  --file-fsync-freq=N             fsync of all files after so many requests; 0 never [100]
  --file-fsync-all[=on|off]       fsync after each write [off]
  --file-fsync-end[=on|off]       fsync of all files at the end [on]
  --file-fsync-mode=STRING        fsync, fdatasync [fsync]
  --file-merged-requests=N        so many blocks are one request of a sequential test [0]
  --file-rw-ratio=N               reads by writes in the combined test [1.5]";

/// What is wrong with a command line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Usage {
    /// `--help`, or nothing at all.
    #[error("{HELP}")]
    Help,
    /// `--version`.
    #[error("sysbench 1.0.20 (iopath)")]
    Version,
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

/// An option as it was given.
struct Given<'a> {
    name: &'a str,
    value: &'a str,
}

impl Given<'_> {
    fn wrong(&self, wanted: &str) -> Usage {
        Usage::Value {
            option: format!("--{}", self.name),
            value: self.value.to_owned(),
            wanted: wanted.to_owned(),
        }
    }

    fn number(&self) -> Result<u64, Usage> {
        self.value.parse().map_err(|_| self.wrong("a whole number"))
    }

    fn up_to(&self, most: u64) -> Result<u64, Usage> {
        let number = self.number()?;
        if number > most { Err(self.wrong(&format!("0 to {most}"))) } else { Ok(number) }
    }

    fn count(&self) -> Result<u64, Usage> {
        match self.number()? {
            count @ 1..=MANY => Ok(count),
            _ => Err(self.wrong("1 to 65536")),
        }
    }

    fn size(&self) -> Result<u64, Usage> {
        base::unit::parse_size(self.value).map_err(|_| self.wrong("a size, as 2K or 1G"))
    }

    fn switch(&self) -> Result<bool, Usage> {
        match self.value {
            "on" | "yes" | "1" | "true" => Ok(true),
            "off" | "no" | "0" | "false" => Ok(false),
            _ => Err(self.wrong("on or off")),
        }
    }

    /// What stands for the value in a table of names.
    fn one_of<T: Copy>(&self, known: &[(&str, &str, T)]) -> Result<T, Usage> {
        let found = known.iter().find(|(name, ..)| *name == self.value);
        found.map(|found| found.2).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, ..)| *name).collect();
            self.wrong(&names.join(", "))
        })
    }
}

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
            io_mode: IoMode::Sync,
            backlog: 128,
            merged: 0,
            rate: 0,
            report_interval: 0,
            checkpoints: Vec::new(),
            percentile: 95,
            histogram: false,
            validate: false,
            verbosity: 3,
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
        let help = ["--help", "--help=on", "help"];
        if words.is_empty() || words.iter().any(|word| help.contains(word)) {
            return Err(Usage::Help);
        }
        if words.iter().any(|word| ["--version", "--version=on"].contains(word)) {
            return Err(Usage::Version);
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
        let renamed = [
            ("num-threads", "threads"),
            ("max-requests", "events"),
            ("max-time", "time"),
            ("tx-rate", "rate"),
        ];
        let Some(&(old, new)) = renamed.iter().find(|(old, _)| *old == name) else { return name };
        // The tool says nothing of a bound that is none.
        if value != "0" {
            self.deprecated.push((old, new));
        }
        new
    }

    /// Takes an option that was `given` by one name and is called `name` in version 1.0.
    fn set(&mut self, given: &str, name: &str, value: &str) -> Result<(), Usage> {
        let given = Given { name: given, value };
        match name {
            "file-num" => self.files = given.count()?,
            "file-block-size" => self.block_size = given.size()?,
            "file-total-size" => self.total_size = given.size()?,
            "file-test-mode" => self.mode = given.one_of(&Mode::ALL)?,
            "file-io-mode" => self.io_mode = given.one_of(&IoMode::ALL)?,
            "file-async-backlog" => self.backlog = given.count()?,
            "file-merged-requests" => self.merged = given.number()?,
            "file-extra-flags" => {
                self.extra = match value {
                    "" | "none" => Extra::None,
                    "sync" => Extra::Sync,
                    "dsync" => Extra::Dsync,
                    "direct" => Extra::Direct,
                    _ => return Err(given.wrong("none, sync, dsync or direct")),
                }
            }
            "file-fsync-freq" => self.fsync_freq = given.number()?,
            "file-fsync-all" => self.fsync_all = given.switch()?,
            "file-fsync-end" => self.fsync_end = given.switch()?,
            "file-fsync-mode" => {
                let modes = [("fsync", "", false), ("fdatasync", "", true)];
                self.fdatasync = given.one_of(&modes)?;
            }
            "file-rw-ratio" => match value.parse::<f64>() {
                Ok(ratio) if ratio >= 0.0 && ratio.is_finite() => self.rw_ratio = ratio,
                _ => return Err(given.wrong("a number from 0")),
            },
            _ => return self.set_general(name, &given),
        }
        Ok(())
    }

    /// Takes an option of all the tool's tests.
    fn set_general(&mut self, name: &str, given: &Given<'_>) -> Result<(), Usage> {
        match name {
            "test" => given.one_of(&[("fileio", "", ())])?,
            "threads" => self.threads = given.count()?,
            "events" => self.requests = given.number()?,
            "time" => self.seconds = given.number()?,
            "rate" => self.rate = given.number()?,
            "report-interval" => self.report_interval = given.number()?,
            "report-checkpoints" => {
                let times: Option<Vec<u64>> =
                    given.value.split(',').map(|time| time.parse().ok()).collect();
                let times = times.filter(|times| times.is_sorted() && times[0] > 0);
                self.checkpoints = times.ok_or_else(|| given.wrong("rising numbers of seconds"))?;
            }
            "percentile" => self.percentile = given.up_to(100)? as u32,
            "histogram" => self.histogram = given.switch()?,
            "validate" => self.validate = given.switch()?,
            "verbosity" => self.verbosity = given.up_to(5)? as u8,
            "rand-seed" => self.seed = given.number()?,
            "rand-type" => {
                let types = ["uniform", "gaussian", "special", "pareto"];
                given.one_of(&types.map(|name| (name, "", ())))?;
            }
            "rand-spec-iter" | "rand-spec-pct" | "rand-spec-res" => drop(given.number()?),
            "rand-pareto-h" => {
                given.value.parse::<f64>().map_err(|_| given.wrong("a number"))?;
            }
            "thread-stack-size" => drop(given.size()?),
            "forced-shutdown" if given.value == "off" => {}
            "forced-shutdown" => drop(given.number()?),
            "debug" => drop(given.switch()?),
            _ => return Err(Usage::Unknown(format!("--{}", given.name))),
        }
        Ok(())
    }

    /// Bytes of one request.
    pub(super) fn request_max(&self) -> u64 {
        match self.mode.is_random() {
            true => self.block_size,
            false => self.block_size * self.merged.max(1),
        }
    }

    fn check(self) -> Result<Options, Usage> {
        let (total, files, block) = (self.total_size, self.files, self.block_size);
        let most = block.checked_mul(self.merged.max(1)).is_none_or(|most| most > 64 << 20);
        if block == 0 || self.file_size() < block || most {
            return Err(Usage::Sizes { total, files, block });
        }
        if self.validate && block < validate::TRAILER as u64 {
            return Err(Usage::Value {
                option: "--file-block-size".to_owned(),
                value: block.to_string(),
                wanted: format!("with --validate {} bytes or more", validate::TRAILER),
            });
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
    fn every_option_of_the_tool_is_taken() {
        let general = "--threads=2 --events=5 --time=3 --forced-shutdown=off --rate=7 \
                       --thread-stack-size=64K --report-interval=1 --report-checkpoints=1,2 \
                       --debug=off --validate=on --rand-type=pareto --rand-spec-iter=12 \
                       --rand-spec-pct=1 --rand-spec-res=75 --rand-seed=3 --rand-pareto-h=0.2 \
                       --verbosity=4 --percentile=99 --histogram";
        let files = "--file-num=2 --file-block-size=4K --file-total-size=1M \
                     --file-test-mode=seqrd --file-io-mode=mmap --file-async-backlog=4 \
                     --file-extra-flags=direct --file-fsync-freq=9 --file-fsync-all=off \
                     --file-fsync-end=off --file-fsync-mode=fdatasync --file-merged-requests=4 \
                     --file-rw-ratio=2";
        let options = parse(&format!("{general} {files} fileio run")).unwrap();
        assert_eq!((options.rate, options.report_interval, options.percentile), (7, 1, 99));
        assert_eq!(options.checkpoints, [1, 2]);
        assert!(options.validate && options.histogram && options.io_mode == IoMode::Mmap);
        assert_eq!((options.backlog, options.merged, options.request_max()), (4, 4, 16384));
        for (old, new) in [
            ("--num-threads=3", "--threads=3"),
            ("--max-requests=30", "--events=30"),
            ("--max-time=4", "--time=4"),
            ("--tx-rate=5", "--rate=5"),
        ] {
            let line = |option: &str| format!("fileio --file-test-mode=rndrd {option} run");
            let (old, new) = (parse(&line(old)).unwrap(), parse(&line(new)).unwrap());
            assert_eq!(old.deprecated.len(), 1);
            assert_eq!(Options { deprecated: Vec::new(), ..old }, new);
        }
        assert_eq!(parse("--version"), Err(Usage::Version));
        assert_eq!(parse("fileio help"), Err(Usage::Help));
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
            "--file-io-mode=fast",
            "--rand-type=odd",
            "--percentile=101",
            "--verbosity=6",
            "--report-checkpoints=3,2",
            "--report-checkpoints=",
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
