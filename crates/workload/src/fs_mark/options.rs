//! The command line of fs_mark, in the manner of getopt(3).

use thiserror::Error;

/// Most threads, as in the tool.
const THREADS_MAX: u64 = 64;
/// Longest name of a file in bytes, as in the tool.
const NAME_MAX: u64 = 128;
/// Largest write in bytes: every thread keeps so much memory.
const WRITE_MAX: u64 = 256 << 20;

/// How and when files are made durable: `-S`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncMethod {
    /// 0: not at all.
    None,
    /// 1: fsync before each close.
    #[default]
    Inband,
    /// 2: one sync behind the loop, then fsync of the first file.
    System,
    /// 3: behind the loop, open and fsync each file, last first.
    PostReverse,
    /// 4: sync, then as 3.
    SyncPostReverse,
    /// 5: behind the loop, open and fsync each file in order.
    Post,
    /// 6: sync, then as 5.
    SyncPost,
}

impl SyncMethod {
    fn from_number(number: u64) -> Option<SyncMethod> {
        use SyncMethod::*;
        let all = [None, Inband, System, PostReverse, SyncPostReverse, Post, SyncPost];
        usize::try_from(number).ok().and_then(|number| all.get(number).copied())
    }

    /// Does a sync(2) follow the loop?
    pub(super) fn syncs(self) -> bool {
        matches!(self, SyncMethod::System | SyncMethod::SyncPostReverse | SyncMethod::SyncPost)
    }
}

/// Why a command line is not run. The tool prints this, then its usage, and exits with 1.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Usage {
    /// `-h`.
    #[error("usage")]
    Help,
    /// No `-d`.
    #[error("Must specify at least one directory with -d switch")]
    NoDirectory,
    /// A letter that is not an option.
    #[error("fs_mark: invalid option -- '{0}'")]
    Unknown(char),
    /// An option at the end that needs a value.
    #[error("fs_mark: option requires an argument -- '{0}'")]
    NoValue(char),
    /// A value that is not a whole number, or not in its range.
    #[error("fs_mark: option -{option}: `{value}` is not {wanted}")]
    BadNumber {
        /// The letter.
        option: char,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// Directories and threads do not fit.
    #[error(
        "Threads ({threads}) must be an even multiple the number of directories ({directories}) \
         and less than 64 "
    )]
    Threads {
        /// `-t`.
        threads: u64,
        /// Number of `-d`.
        directories: usize,
    },
    /// `-t` above 64.
    #[error("Max threads is 64")]
    TooManyThreads,
    /// `-p` above 128.
    #[error("Max filename size is 128")]
    NameTooLong,
    /// `-D` below 2.
    #[error("Number of subdirs needs to be greater than 1")]
    FewSubdirectories,
    /// `-N` without `-D`.
    #[error(
        "Must specify at more than 1 subdirectory with -D switch for -N num_per_subdir to make \
         sense"
    )]
    NoSubdirectories,
}

/// A command line of fs_mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The arguments in the order in which the tool prints them: options first, operands last.
    pub arguments: Vec<String>,
    /// `-d`: at least one.
    pub directories: Vec<String>,
    /// `-n`: files per thread and iteration, at least 1.
    pub files: u64,
    /// `-s`: bytes of a file.
    pub file_size: u64,
    /// `-w`: bytes of a write, 1 to 256 MiB.
    pub write_size: u64,
    /// `-t`: threads, 1 to 64, a multiple of the directories.
    pub threads: u64,
    /// `-L`: iterations, at least 1.
    pub iterations: u64,
    /// `-S`.
    pub sync: SyncMethod,
    /// `-D`: subdirectories of each directory, 0 for none.
    pub subdirectories: u64,
    /// `-N`: files in a subdirectory before the next one's turn; 0: 180 seconds each.
    pub files_per_subdirectory: u64,
    /// `-p`: bytes of a name, at most 128.
    pub name_length: u64,
    /// `-r`: random bytes at the end of a name, at most 128.
    pub random_length: u64,
    /// `-l`: the log file, on the host.
    pub log_file: String,
    /// `-k`, and set by `-F`: files stay.
    pub keep: bool,
    /// `-F`: iterate until the file system is full.
    pub fill: bool,
    /// `-v`: times of the calls.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            arguments: Vec::new(),
            directories: Vec::new(),
            files: 1000,
            file_size: 51_200,
            write_size: 16_384,
            threads: 1,
            iterations: 1,
            sync: SyncMethod::default(),
            subdirectories: 0,
            files_per_subdirectory: 0,
            name_length: 40,
            random_length: 24,
            log_file: "fs_log.txt".into(),
            keep: false,
            fill: false,
            verbose: false,
        }
    }
}

impl Options {
    /// Reads the arguments, without the name of the program.
    ///
    /// # Errors
    /// The first thing that is wrong; `-h` is [`Usage::Help`].
    pub fn parse<S: AsRef<str>>(arguments: &[S]) -> Result<Options, Usage> {
        let mut options = Options::default();
        let mut operands = Vec::new();
        let mut rest = arguments.iter().map(AsRef::as_ref);
        while let Some(argument) = rest.next() {
            let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty())
            else {
                operands.push(argument.to_owned());
                continue;
            };
            options.arguments.push(argument.to_owned());
            if letters == "-" {
                operands.extend(rest.by_ref().map(str::to_owned));
                break;
            }
            options.letters(letters, &mut rest)?;
        }
        options.arguments.append(&mut operands);
        options.check()
    }

    /// Reads the letters of one argument; the value may follow in the same or in the next one.
    fn letters<'a>(
        &mut self,
        letters: &'a str,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), Usage> {
        for (at, letter) in letters.char_indices() {
            match letter {
                'h' => return Err(Usage::Help),
                'k' => self.keep = true,
                'F' => self.fill = true,
                'v' => self.verbose = true,
                'd' | 'D' | 'l' | 'L' | 'n' | 'N' | 'p' | 'r' | 's' | 'S' | 't' | 'w' => {
                    let joined = &letters[at + letter.len_utf8()..];
                    let value = if joined.is_empty() {
                        let next = rest.next().ok_or(Usage::NoValue(letter))?;
                        self.arguments.push(next.to_owned());
                        next
                    } else {
                        joined
                    };
                    return self.value(letter, value);
                }
                _ => return Err(Usage::Unknown(letter)),
            }
        }
        Ok(())
    }

    fn value(&mut self, letter: char, value: &str) -> Result<(), Usage> {
        let wrong = |wanted| Usage::BadNumber { option: letter, value: value.to_owned(), wanted };
        let number = || value.parse::<u64>().map_err(|_| wrong("a whole number"));
        let positive = || match number()? {
            0 => Err(wrong("a number above 0")),
            number => Ok(number),
        };
        match letter {
            'd' => self.directories.push(value.to_owned()),
            'l' => self.log_file = value.to_owned(),
            'n' => self.files = positive()?,
            's' => self.file_size = number()?,
            'w' if number()? > WRITE_MAX => return Err(wrong("at most 268435456")),
            'w' => self.write_size = positive()?,
            't' => self.threads = number()?.max(1),
            'L' => self.iterations = number()?.max(1),
            'D' => self.subdirectories = number()?,
            'N' => self.files_per_subdirectory = number()?,
            'p' => self.name_length = number()?,
            'r' => self.random_length = number()?,
            _ => {
                let method = SyncMethod::from_number(number()?);
                self.sync = method.ok_or_else(|| wrong("a sync method, 0 to 6"))?;
            }
        }
        match letter {
            'D' if self.subdirectories < 2 => Err(Usage::FewSubdirectories),
            't' if self.threads > THREADS_MAX => Err(Usage::TooManyThreads),
            'p' if self.name_length > NAME_MAX => Err(Usage::NameTooLong),
            'r' if self.random_length > NAME_MAX => Err(Usage::NameTooLong),
            _ => Ok(()),
        }
    }

    fn check(mut self) -> Result<Options, Usage> {
        if self.directories.is_empty() {
            return Err(Usage::NoDirectory);
        }
        if self.files_per_subdirectory > 0 && self.subdirectories == 0 {
            return Err(Usage::NoSubdirectories);
        }
        let directories = self.directories.len();
        if self.threads == 1 {
            self.threads = directories as u64;
        }
        if !self.threads.is_multiple_of(directories as u64) || self.threads > THREADS_MAX {
            return Err(Usage::Threads { threads: self.threads, directories });
        }
        self.keep |= self.fill;
        Ok(self)
    }

    /// Bytes at the start of a name that show the time; negative where the random part is longer
    /// than the name, which is how the tool prints it.
    pub(super) fn stamp_length(&self) -> i64 {
        self.name_length as i64 - self.random_length as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Usage> {
        Options::parse(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_of_the_cfq_thread() {
        let line = "-S 1 -D 10000 -N 100000 -d /mnt/test/fs_mark -s 65536 -t 1 -w 4096 -F";
        let options = parse(line).unwrap();
        assert_eq!(options.sync, SyncMethod::Inband);
        assert_eq!((options.subdirectories, options.files_per_subdirectory), (10_000, 100_000));
        assert_eq!((options.file_size, options.write_size), (65_536, 4096));
        assert_eq!((options.threads, options.files), (1, 1000));
        assert!(options.fill && options.keep);
        assert_eq!(options.directories, ["/mnt/test/fs_mark"]);
    }

    #[test]
    fn letters_may_be_joined_and_operands_go_last() {
        let options = parse("-kvn5 file -d a -- -x").unwrap();
        assert!(options.keep && options.verbose && options.files == 5);
        assert_eq!(options.arguments.join(" "), "-kvn5 -d a -- file -x");
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse("-kh"), Err(Usage::Help));
        assert_eq!(parse(""), Err(Usage::NoDirectory));
        assert_eq!(parse("-n 3"), Err(Usage::NoDirectory));
        assert_eq!(parse("-d a -Z"), Err(Usage::Unknown('Z')));
        assert_eq!(parse("-d"), Err(Usage::NoValue('d')));
        assert_eq!(parse("-d a -t 65"), Err(Usage::TooManyThreads));
        assert_eq!(parse("-d a -D 1"), Err(Usage::FewSubdirectories));
        assert_eq!(parse("-d a -N 4"), Err(Usage::NoSubdirectories));
        assert_eq!(parse("-d a -p 129"), Err(Usage::NameTooLong));
        let threads = Usage::Threads { threads: 3, directories: 2 };
        assert_eq!(parse("-d a -d b -t 3"), Err(threads));
        for bad in
            ["-n 4k", "-n 0", "-w 0", "-w 268435457", "-s -1", "-S 7", "-n 99999999999999999999"]
        {
            let error = parse(&format!("-d a {bad}")).unwrap_err();
            assert!(matches!(error, Usage::BadNumber { .. }), "{bad}: {error}");
        }
    }

    #[test]
    fn each_directory_has_a_thread_of_its_own() {
        assert_eq!(parse("-d a -d b").unwrap().threads, 2);
        assert_eq!(parse("-d a -d b -t 4").unwrap().threads, 4);
        assert_eq!(parse("-d a -t 0").unwrap().threads, 1);
    }
}
