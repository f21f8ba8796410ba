//! The command line of mdtest.

use thiserror::Error;

/// The most tasks.
const TASKS_MAX: u64 = 4096;

/// Why a command line is not run.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Usage {
    /// `-h`.
    #[error("usage")]
    Help,
    /// An option of the tool that this front end has not.
    #[error("option {0} is not supported by the mdtest front end")]
    Unsupported(String),
    /// Not an option.
    #[error("Error invalid argument: {0}")]
    Unknown(String),
    /// An option without its value.
    #[error("Error argument {0} requires a value")]
    NoValue(String),
    /// A value that is not in range.
    #[error("option {option}: `{value}` is not {wanted}")]
    BadValue {
        /// The option.
        option: String,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// Options that exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
}

/// A command line of mdtest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The arguments as given, without those that name the number of tasks.
    pub arguments: Vec<String>,
    /// Tasks, 1 to 4096.
    pub tasks: u64,
    /// `-d`: the directory, or several, of which task N uses the N-th.
    pub directories: Vec<String>,
    /// `-n`: items of each task.
    pub items: u64,
    /// `-I`: items of each task in each directory; 0 where `-n` counts.
    pub items_per_directory: u64,
    /// `-z`: levels of the tree below its root.
    pub depth: u32,
    /// `-b`: subdirectories of each directory of the tree.
    pub branch: u64,
    /// `-L`: items in the leaves of the tree only.
    pub leaves_only: bool,
    /// `-i`: iterations.
    pub iterations: u64,
    /// Work on directories (not `-F`).
    pub directories_too: bool,
    /// Work on files (not `-D`).
    pub files_too: bool,
    /// `-C`, `-T`, `-E`, `-r`, `-U`; all where none is given.
    pub create: bool,
    /// `-T`.
    pub stat: bool,
    /// `-E`.
    pub read: bool,
    /// `-r`.
    pub remove: bool,
    /// `-U`.
    pub rename: bool,
    /// `-w`: bytes written to each file.
    pub write_bytes: u64,
    /// `-e`: bytes read of each file.
    pub read_bytes: u64,
    /// `-y`: fsync behind each write.
    pub fsync: bool,
    /// `-Y`: sync behind each phase.
    pub sync_phase: bool,
    /// `-u`: each task in a tree of its own.
    pub unique: bool,
    /// `-N`: a task stats what the task so many ranks on has made.
    pub stride: u64,
    /// `-R`: in random order.
    pub random: bool,
    /// `-p`: seconds before each iteration.
    pub delay: u64,
    /// `-P`: rates and times.
    pub times_too: bool,
    /// `-Z`: times only.
    pub times_only: bool,
    /// `--prefill`, which the tool has not: files that lie in each directory of items before the
    /// first phase; made and removed outside of the times.
    pub prefill: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            arguments: Vec::new(),
            tasks: 1,
            directories: vec!["./out".into()],
            items: 0,
            items_per_directory: 0,
            depth: 0,
            branch: 1,
            leaves_only: false,
            iterations: 1,
            directories_too: true,
            files_too: true,
            create: false,
            stat: false,
            read: false,
            remove: false,
            rename: false,
            write_bytes: 0,
            read_bytes: 0,
            fsync: false,
            sync_phase: false,
            unique: false,
            stride: 0,
            random: false,
            delay: 0,
            times_too: false,
            times_only: false,
            prefill: 0,
        }
    }
}

/// Options of the tool that this front end refuses.
const REFUSED: &[&str] = &[
    "-t",
    "-c",
    "-S",
    "-W",
    "-x",
    "-f",
    "-l",
    "-s",
    "-X",
    "-G",
    "--verify-read",
    "--verify-write",
    "--dataPacketType",
    "--print-all-procs",
    "--showRankStatistics",
    "--run-cmd-before-phase",
    "--run-cmd-after-phase",
    "--saveRankPerformanceDetails",
    "--savePerOpDataCSV",
    "--posix.odirect",
    "--warningAsErrors",
];

impl Options {
    /// Reads the arguments, without the name of the program. Values may be `-n 5`, `-n5`, `-n=5`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse<S: AsRef<str>>(arguments: &[S]) -> Result<Options, Usage> {
        let mut options = Options::default();
        let mut rest = arguments.iter().map(AsRef::as_ref);
        while let Some(argument) = rest.next() {
            let task_count = argument.starts_with("--tasks") || argument.starts_with("-np");
            if !task_count {
                options.arguments.push(argument.to_owned());
            }
            let (name, joined) = split(argument)?;
            if REFUSED.contains(&name) {
                return Err(Usage::Unsupported(name.into()));
            }
            if options.flag(name) {
                match joined {
                    Some(value) => return Err(Usage::Unknown(format!("{name}{value}"))),
                    None => continue,
                }
            }
            let value = match joined {
                Some(value) => value.to_owned(),
                None => {
                    let next = rest.next().ok_or_else(|| Usage::NoValue(name.into()))?;
                    if !task_count {
                        options.arguments.push(next.to_owned());
                    }
                    next.to_owned()
                }
            };
            options.value(name, &value)?;
        }
        options.check()
    }

    /// Sets an option without a value; false for others.
    fn flag(&mut self, name: &str) -> bool {
        match name {
            "-F" => self.directories_too = false,
            "-D" => self.files_too = false,
            "-C" => self.create = true,
            "-T" => self.stat = true,
            "-E" => self.read = true,
            "-r" => self.remove = true,
            "-U" => self.rename = true,
            "-L" => self.leaves_only = true,
            "-y" => self.fsync = true,
            "-Y" => self.sync_phase = true,
            "-u" => self.unique = true,
            "-R" => self.random = true,
            "-P" => self.times_too = true,
            "-Z" => self.times_only = true,
            // Nothing here waits for a barrier of its own, and nothing more is reported.
            "-B" | "-v" => {}
            _ => return false,
        }
        true
    }

    fn value(&mut self, name: &str, value: &str) -> Result<(), Usage> {
        let wrong = |wanted| Usage::BadValue { option: name.into(), value: value.into(), wanted };
        let number = || value.parse::<u64>().map_err(|_| wrong("a whole number"));
        match name {
            "-n" => self.items = number()?,
            "-I" => self.items_per_directory = number()?,
            "-z" => {
                let depth = number()?;
                self.depth =
                    u32::try_from(depth).ok().filter(|&z| z <= 64).ok_or(wrong("0..=64"))?;
            }
            "-b" => self.branch = number()?.max(1),
            "-i" => self.iterations = number()?.max(1),
            "-w" => self.write_bytes = number()?,
            "-e" => self.read_bytes = number()?,
            "-N" => self.stride = number()?,
            "-p" => self.delay = number()?,
            "--prefill" => self.prefill = number()?,
            // The seed of the runtime is the seed.
            "-V" | "--random-seed" => drop(number()?),
            "-d" => self.directories = value.split('@').map(str::to_owned).collect(),
            "-a" if value == "POSIX" => {}
            "-a" => return Err(Usage::Unsupported(format!("-a {value}"))),
            "--tasks" | "-np" => {
                let tasks = number()?;
                let fits = (1..=TASKS_MAX).contains(&tasks);
                self.tasks = if fits { tasks } else { return Err(wrong("in 1..=4096")) };
            }
            _ => return Err(Usage::Unknown(name.into())),
        }
        Ok(())
    }

    fn check(mut self) -> Result<Options, Usage> {
        if !self.directories_too && !self.files_too {
            (self.directories_too, self.files_too) = (true, true);
        }
        let any = self.create || self.stat || self.read || self.remove || self.rename;
        if !any {
            (self.create, self.stat, self.read) = (true, true, true);
            (self.remove, self.rename) = (true, true);
        }
        if self.items > 0 && self.items_per_directory > 0 && self.unique && self.depth > 0 {
            return Err(Usage::Conflict("only specify the number of items or items per directory"));
        }
        if self.leaves_only && self.depth == 0 {
            self.leaves_only = false;
        }
        if self.tree_size().is_none() {
            return Err(Usage::Conflict("-z and -b make more than 2^32 directories"));
        }
        Ok(self)
    }

    /// Directories of a tree; `None` above 2^32.
    pub(super) fn tree_size(&self) -> Option<u64> {
        let mut level = 1u64;
        let mut sum = 1u64;
        for _ in 0..self.depth {
            level = level.checked_mul(self.branch)?;
            sum = sum.checked_add(level).filter(|&sum| sum < 1 << 32)?;
        }
        Some(sum)
    }

    /// The first directory of a tree that holds items, and how many do.
    pub(super) fn holders(&self) -> (u64, u64) {
        let all = self.tree_size().unwrap_or(1);
        match self.leaves_only {
            true => {
                let leaves = self.branch.pow(self.depth);
                (all - leaves, leaves)
            }
            false => (0, all),
        }
    }

    /// Items of each task in each directory that holds some.
    pub(super) fn per_directory(&self) -> u64 {
        let (_, holders) = self.holders();
        if self.items_per_directory > 0 { self.items_per_directory } else { self.items / holders }
    }

    /// Items of each task.
    pub fn items_of_a_task(&self) -> u64 {
        self.per_directory() * self.holders().1
    }
}

/// Takes `-n5`, `-n=5` and `--name=5` apart.
fn split(argument: &str) -> Result<(&str, Option<&str>), Usage> {
    if argument == "-h" || argument == "--help" {
        return Err(Usage::Help);
    }
    if let Some(value) = argument.strip_prefix("-np=") {
        return Ok(("-np", Some(value)));
    }
    if argument == "-np" {
        return Ok((argument, None));
    }
    if argument.starts_with("--") {
        return Ok(match argument.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (argument, None),
        });
    }
    let letters = argument.strip_prefix('-').filter(|rest| rest.is_ascii() && !rest.is_empty());
    let Some(letters) = letters else { return Err(Usage::Unknown(argument.into())) };
    let (name, value) = argument.split_at(2);
    let value = value.strip_prefix('=').unwrap_or(value);
    Ok((name, (letters.len() > 1).then_some(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Usage> {
        Options::parse(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn values_may_be_joined_and_none_of_the_phases_means_all() {
        let options = parse("-n 5 -z2 -b=3 -F -d a@b --tasks 4").unwrap();
        assert_eq!((options.items, options.depth, options.branch, options.tasks), (5, 2, 3, 4));
        assert!(options.create && options.stat && options.read && options.remove);
        assert!(!options.directories_too && options.files_too);
        assert_eq!(options.directories, ["a", "b"]);
        assert_eq!(options.arguments.join(" "), "-n 5 -z2 -b=3 -F -d a@b");
        let options = parse("-np 2 -n 3 -C -T").unwrap();
        assert!(options.create && options.stat && !options.remove && options.tasks == 2);
        assert_eq!(parse("--prefill=100000 -n 3").unwrap().prefill, 100_000);
    }

    #[test]
    fn trees_are_counted_as_the_tool_counts_them() {
        let options = parse("-z 2 -b 3 -I 10 -L").unwrap();
        assert_eq!((options.tree_size(), options.holders()), (Some(13), (4, 9)));
        assert_eq!(options.items_of_a_task(), 90);
        assert_eq!(parse("-z 1 -b 2 -n 31").unwrap().items_of_a_task(), 30);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse("-h"), Err(Usage::Help));
        assert_eq!(parse("-c -n 3"), Err(Usage::Unsupported("-c".into())));
        assert_eq!(parse("-a DUMMY"), Err(Usage::Unsupported("-a DUMMY".into())));
        assert_eq!(parse("-q"), Err(Usage::NoValue("-q".into())));
        assert_eq!(parse("-q 3"), Err(Usage::Unknown("-q".into())));
        assert_eq!(parse("file"), Err(Usage::Unknown("file".into())));
        assert_eq!(parse("-n"), Err(Usage::NoValue("-n".into())));
        assert!(matches!(parse("-n 4k"), Err(Usage::BadValue { .. })));
        assert!(matches!(parse("--tasks 0"), Err(Usage::BadValue { .. })));
        assert!(matches!(parse("-z 40 -b 9"), Err(Usage::Conflict(_))));
    }
}
