//! The variables of mds-survey.

use thiserror::Error;

/// The variables that are known.
pub const VARIABLES: &[&str] = &[
    "thrlo",
    "thrhi",
    "dir_count",
    "file_count",
    "stripe_count",
    "tests_str",
    "start_number",
    "targets",
    "layer",
    "rslt_loc",
    "rslt",
];

const THREADS_MAX: u64 = 4096;

/// One test of the survey.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Test {
    Create,
    Lookup,
    GetAttr,
    SetXattr,
    Destroy,
}

impl Test {
    /// The script's name.
    pub fn name(self) -> &'static str {
        match self {
            Test::Create => "create",
            Test::Lookup => "lookup",
            Test::GetAttr => "md_getattr",
            Test::SetXattr => "setxattr",
            Test::Destroy => "destroy",
        }
    }

    fn parse(name: &str) -> Option<Test> {
        let all = [Test::Create, Test::Lookup, Test::GetAttr, Test::SetXattr, Test::Destroy];
        all.into_iter().find(|test| test.name() == name)
    }
}

/// Where the operations enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// Paths and permissions above the file system.
    Mdd,
    /// The file system's own operations.
    Osd,
}

/// Why the survey does not run.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Usage {
    /// The order of the tests.
    #[error("First test must be 'create', and last test must be 'destroy'")]
    Order,
    /// A test that there is not.
    #[error("Invalid test: {0}")]
    Test(String),
    /// Not `name=value` with a known name.
    #[error("`{0}` is not one of {names}=..", names = VARIABLES.join("=.., "))]
    Unknown(String),
    /// A value out of its range.
    #[error("{name}=`{value}` is not {wanted}")]
    Value {
        /// The variable.
        name: String,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
}

/// The settings of a survey.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Fewest threads.
    pub threads_low: u64,
    /// Most threads; every doubling between is a point.
    pub threads_high: u64,
    /// Directories; those many threads at least.
    pub directories: u64,
    /// Files over all threads.
    pub files: u64,
    /// Number of the first file.
    pub start_number: u64,
    /// What is done, in order.
    pub tests: Vec<Test>,
    /// Where it enters.
    pub layer: Layer,
    /// Where files of results go, on the host; none without it.
    pub result_place: Option<String>,
    /// Prefix of the files of results.
    pub result_name: Option<String>,
}

impl Options {
    /// Reads `name=value` settings; later ones win.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse<S: AsRef<str>>(settings: &[S]) -> Result<Options, Usage> {
        let mut options = Options {
            threads_low: 4,
            threads_high: 32,
            directories: 0,
            files: 100_000,
            start_number: 2,
            tests: parse_tests("create lookup md_getattr setxattr destroy")?,
            layer: Layer::Mdd,
            result_place: None,
            result_name: None,
        };
        for setting in settings.iter().map(AsRef::as_ref) {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| Usage::Unknown(setting.into()))?;
            options.set(name, value)?;
        }
        if options.directories == 0 {
            options.directories = options.threads_low;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Usage> {
        let wrong = |wanted| Usage::Value { name: name.into(), value: value.into(), wanted };
        let number = |range: std::ops::RangeInclusive<u64>, wanted| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| wrong(wanted))
        };
        match name {
            "thrlo" => self.threads_low = number(1..=THREADS_MAX, "a number of threads")?,
            "thrhi" => self.threads_high = number(1..=THREADS_MAX, "a number of threads")?,
            "dir_count" => self.directories = number(1..=1 << 20, "a number of directories")?,
            "file_count" => self.files = number(1..=1 << 32, "a number of files")?,
            "start_number" => self.start_number = number(0..=1 << 40, "a number")?,
            "stripe_count" => drop(number(0..=0, "0: there are no objects of data")?),
            "targets" if value.is_empty() => {}
            "targets" => return Err(wrong("empty: there is one server, our path")),
            "tests_str" => self.tests = parse_tests(value)?,
            "layer" => {
                self.layer = match value {
                    "mdd" => Layer::Mdd,
                    "osd" => Layer::Osd,
                    _ => return Err(wrong("mdd or osd")),
                }
            }
            "rslt_loc" => self.result_place = Some(value.into()),
            "rslt" => self.result_name = Some(value.into()),
            _ => return Err(Usage::Unknown(format!("{name}={value}"))),
        }
        Ok(())
    }

    /// The numbers of threads that are tried: those with too few for the directories are not.
    pub fn points(&self) -> Vec<u64> {
        let doubling = std::iter::successors(Some(self.threads_low), |threads| Some(threads * 2));
        let range = doubling.take_while(|threads| *threads <= self.threads_high);
        range.filter(|threads| *threads >= self.directories).collect()
    }
}

fn parse_tests(text: &str) -> Result<Vec<Test>, Usage> {
    let parse = |name| Test::parse(name).ok_or_else(|| Usage::Test(String::from(name)));
    let tests = text.split_whitespace().map(parse).collect::<Result<Vec<Test>, Usage>>()?;
    match (tests.first(), tests.last()) {
        (Some(Test::Create), Some(Test::Destroy)) => Ok(tests),
        _ => Err(Usage::Order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_script() {
        let options = Options::parse::<&str>(&[]).unwrap();
        assert_eq!(options.points(), [4, 8, 16, 32]);
        assert_eq!((options.directories, options.files, options.start_number), (4, 100_000, 2));
        let options = Options::parse(&["thrlo=1", "thrhi=16", "dir_count=4"]).unwrap();
        assert_eq!(options.points(), [4, 8, 16], "points with too few threads are left out");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |text: &str| Options::parse(&[text]);
        assert_eq!(parse("tests_str=lookup destroy"), Err(Usage::Order));
        assert_eq!(parse("tests_str=create lookup"), Err(Usage::Order));
        assert_eq!(parse("tests_str=create fly destroy"), Err(Usage::Test("fly".into())));
        assert_eq!(parse("thread=3"), Err(Usage::Unknown("thread=3".into())));
        assert_eq!(parse("-n"), Err(Usage::Unknown("-n".into())));
        for bad in ["thrlo=0", "file_count=many", "stripe_count=1", "layer=ost", "targets=lustre"] {
            assert!(matches!(parse(bad), Err(Usage::Value { .. })), "{bad}");
        }
    }
}
