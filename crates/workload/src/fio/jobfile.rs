//! A whole job file: sections become jobs.

use super::error::{JobError, JobErrors, Span};
use super::job::{Direction, Job};
use super::keys::{self, KeyError};
use super::replay::Replay;
use super::text::{self, Section, Setting, Surroundings};

/// Mistakes that are reported at once.
const ERRORS_MAX: usize = 20;
/// Jobs of one file, copies included.
const JOBS_MAX: u64 = 4096;
/// Tasks of one file: copies times depth.
const TASKS_MAX: u64 = 8192;
/// Memory of all operations that may be under way at once, bytes.
const MEMORY_MAX: u64 = 8 << 30;

/// The jobs of a file, in order.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// The settings of `[global]`, as written.
    pub globals: Vec<(String, String)>,
    /// One for each other section; `numjobs` copies each are run.
    pub jobs: Vec<Job>,
    /// Notes on what was passed over.
    pub warnings: Vec<String>,
}

impl JobFile {
    /// Reads a job file without surroundings; `overrides` (`key=value`) are applied to every job
    /// after its own settings.
    ///
    /// # Errors
    /// Everything that is wrong with it, up to 20 mistakes.
    pub fn parse(text: &str, overrides: &[&str]) -> Result<JobFile, JobErrors> {
        JobFile::parse_in("job file", text, overrides, &Surroundings::default(), false)
    }

    /// As [`parse`](Self::parse), with the file's name for messages and its surroundings. With
    /// `lenient`, keys that change nothing here are passed over with a warning.
    ///
    /// # Errors
    /// Everything that is wrong with it, up to 20 mistakes.
    pub fn parse_in(
        file: &str,
        text: &str,
        overrides: &[&str],
        around: &Surroundings,
        lenient: bool,
    ) -> Result<JobFile, JobErrors> {
        let sections = text::sections(file, text, around)?;
        let overrides = overrides.iter().map(|text| text::setting(text, around)).collect();
        Builder::new(lenient, overrides, around).build(file, sections)
    }

    /// Reads a command line in fio's own manner: `--name=a --rw=read --name=b ..`; each `--name`
    /// opens a job; `--name=global`, and what stands before the first `--name`, set defaults.
    ///
    /// # Errors
    /// Everything that is wrong with it, up to 20 mistakes.
    pub fn from_arguments(
        arguments: &[&str],
        around: &Surroundings,
        lenient: bool,
    ) -> Result<JobFile, JobErrors> {
        let mut sections: Vec<Section> = Vec::new();
        for argument in arguments {
            let setting = text::setting(argument.trim_start_matches('-'), around);
            if setting.key == "name" {
                let (name, span) = (setting.value, setting.key_span);
                sections.push(Section { name, span, settings: Vec::new() });
                continue;
            }
            if sections.is_empty() {
                let (name, span) = ("global".to_owned(), setting.key_span.clone());
                sections.push(Section { name, span, settings: Vec::new() });
            }
            sections.last_mut().expect("there is one").settings.push(setting);
        }
        Builder::new(lenient, Vec::new(), around).build("command line", sections)
    }

    /// Tasks that a run has, copies included.
    pub fn tasks(&self) -> u64 {
        self.jobs.iter().map(|job| job.numjobs).sum()
    }
}

struct Builder<'a> {
    around: &'a Surroundings<'a>,
    lenient: bool,
    overrides: Vec<Setting>,
    errors: Vec<JobError>,
    warnings: Vec<String>,
}

impl<'a> Builder<'a> {
    fn new(lenient: bool, overrides: Vec<Setting>, around: &'a Surroundings) -> Builder<'a> {
        Builder { around, lenient, overrides, errors: Vec::new(), warnings: Vec::new() }
    }

    fn build(mut self, file: &str, sections: Vec<Section>) -> Result<JobFile, JobErrors> {
        let mut defaults = Job::new();
        let mut globals = Vec::new();
        let mut jobs = Vec::new();
        for section in &sections {
            if section.name == "global" {
                self.apply_all(&mut defaults, &section.settings);
                globals.append(&mut defaults.options);
                continue;
            }
            let mut job = Job { name: section.name.clone(), ..defaults.clone() };
            self.apply_all(&mut job, &section.settings);
            let overrides = std::mem::take(&mut self.overrides);
            self.apply_all(&mut job, &overrides);
            self.overrides = overrides;
            self.check(&job, section);
            self.load_replay(&mut job, section);
            jobs.push(job);
        }
        if jobs.is_empty() && self.errors.is_empty() {
            self.fail(place(file), "no jobs are defined".into(), None);
        }
        self.check_amount(file, &jobs);
        match self.errors.is_empty() {
            true => Ok(JobFile { globals, jobs, warnings: self.warnings }),
            false => Err(JobErrors(self.errors)),
        }
    }

    /// Refuses what would take tasks and memory without bounds.
    fn check_amount(&mut self, file: &str, jobs: &[Job]) {
        let copies: u64 = jobs.iter().map(|job| job.numjobs).sum();
        let tasks: u64 = jobs.iter().map(|job| job.numjobs * job.depth()).sum();
        let largest = |job: &Job| {
            let bytes = Direction::ALL.map(|direction| job.largest(direction));
            bytes.into_iter().max().unwrap_or(0)
        };
        let memory: u64 = jobs.iter().map(|job| job.numjobs * job.depth() * largest(job)).sum();
        if copies > JOBS_MAX || tasks > TASKS_MAX {
            let limits = format!("more than {JOBS_MAX} jobs, or {TASKS_MAX} with their depths");
            self.fail(place(file), limits, None);
        }
        if memory > MEMORY_MAX {
            let gib = MEMORY_MAX >> 30;
            self.fail(place(file), format!("numjobs x iodepth x bs is above {gib} GiB"), None);
        }
    }

    fn fail(&mut self, span: Span, message: String, hint: Option<String>) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(JobError { span, message, hint });
        }
    }

    fn apply_all(&mut self, job: &mut Job, settings: &[Setting]) {
        for setting in settings {
            self.apply(job, setting);
        }
    }

    fn apply(&mut self, job: &mut Job, setting: &Setting) {
        let Setting { key, value, .. } = setting;
        match keys::apply(job, key, value) {
            Ok(()) => job.options.push((key.clone(), value.clone())),
            Err(KeyError::Unknown(near)) => {
                let shown = if value.is_empty() { key.clone() } else { format!("{key}={value}") };
                let hint = near.map(|near| format!("Did you mean {near}?"));
                self.fail(setting.key_span.clone(), format!("Bad option <{shown}>"), hint);
            }
            Err(KeyError::Unsupported(true)) if self.lenient => {
                self.warnings.push(format!("{key} is passed over by the fio front end"));
            }
            Err(KeyError::Unsupported(neutral)) => {
                let message = format!("{key}: not supported by the fio front end");
                let hint = neutral.then(|| "--compat=lenient passes over it".to_string());
                self.fail(setting.key_span.clone(), message, hint);
            }
            Err(KeyError::Value(reason)) => {
                self.fail(setting.value_span.clone(), format!("{key}: `{value}` {reason}"), None);
            }
        }
    }

    /// Reads the list of operations that a job names, and makes the job fit to it.
    fn load_replay(&mut self, job: &mut Job, section: &Section) {
        let Some(name) = job.read_iolog.clone() else { return };
        let of_key = section.settings.iter().find(|setting| setting.key == "read_iolog");
        let span = of_key.map_or(&section.span, |setting| &setting.value_span).clone();
        let text = match (self.around.include)(&name) {
            Ok(text) => text,
            Err(reason) => {
                return self.fail(span, format!("read_iolog: `{name}`: {reason}"), None);
            }
        };
        match Replay::parse(&text, job.replay_redirect.as_deref()) {
            Ok(replay) => job.replay_from(replay),
            Err((line, reason)) => {
                self.fail(span, format!("read_iolog: {name}:{line}: {reason}"), None);
            }
        }
    }

    /// What several keys say together.
    fn check(&mut self, job: &Job, section: &Section) {
        if let Some((key, reason)) = keys::contradictions(job) {
            let of_key = section.settings.iter().find(|setting| setting.key == key);
            let span = of_key.map_or(&section.span, |setting| &setting.key_span).clone();
            self.fail(span, format!("{}: {key} {reason}", job.name), None);
        }
    }
}

fn place(file: &str) -> Span {
    Span { file: file.into(), line: 0, text: String::new(), start: 0, len: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globals_add_up_and_overrides_win() {
        let text = "[global]\nbs=8k\n[a]\nsize=1m\n[global]\nrw=write\n[b]\nsize=2m\nbs=16k\n";
        let file = JobFile::parse(text, &["iodepth=2"]).unwrap();
        assert_eq!((file.jobs[0].bs[0].0, file.jobs[0].pattern.name), (8192, "read"));
        assert_eq!((file.jobs[1].bs[0].0, file.jobs[1].pattern.name), (16384, "write"));
        assert_eq!((file.jobs[0].iodepth, file.jobs[1].iodepth), (2, 2));
        assert_eq!(file.globals.len(), 2);
        assert_eq!(file.jobs[1].options.len(), 3);
    }

    #[test]
    fn errors_name_file_line_key_and_value() {
        let text = "[a]\nsize=1m\nrwmxread=3\nbs=4q\nlatency_target=3\ncpus_allowed=1\n";
        let around = Surroundings::default();
        let errors = JobFile::parse_in("x.fio", text, &[], &around, false).unwrap_err();
        let text = errors.to_string();
        for part in [
            "x.fio:3:1: Bad option <rwmxread=3>",
            "Did you mean rwmixread?",
            "x.fio:4:4: bs: `4q` is not a size",
            "       |    ^^",
            "x.fio:5:1: latency_target: not supported by the fio front end",
            "x.fio:6:1: cpus_allowed: not supported by the fio front end",
        ] {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
        let lenient = "[a]\nsize=1m\ncpus_allowed=1\n";
        let file = JobFile::parse_in("x.fio", lenient, &[], &around, true).unwrap();
        assert_eq!(file.warnings, ["cpus_allowed is passed over by the fio front end"]);
    }

    #[test]
    fn contradictions_are_told() {
        for (text, part) in [
            ("[a]\nrw=read\n", "size is missing"),
            ("[a]\nsize=1m\ntime_based\n", "x.fio:3:1: a: time_based needs a runtime"),
            ("[a]\nsize=1m\nverify=crc32c\nbs=64\n", "128 bytes"),
            ("[global]\nbs=4k\n", "no jobs are defined"),
            ("", "no jobs are defined"),
            ("[a]\nsize=1m\nnumjobs=4096\n[b]\nsize=1m\n", "more than 4096 jobs"),
            ("[a]\nsize=1m\nnumjobs=99\niodepth=99\nioengine=libaio\n", "or 8192 with"),
            ("[a]\nsize=1g\nbs=256m\nnumjobs=40\n", "above 8 GiB"),
        ] {
            let around = Surroundings::default();
            let errors = JobFile::parse_in("x.fio", text, &[], &around, false).unwrap_err();
            assert!(errors.to_string().contains(part), "{errors}");
        }
    }

    #[test]
    fn a_command_line_is_the_same_language() {
        let arguments = ["--name=global", "--bs=8k", "--name=a", "--size=1m", "--time_based=0"];
        let around = Surroundings::default();
        let file = JobFile::from_arguments(&arguments, &around, false).unwrap();
        assert_eq!((file.jobs[0].name.as_str(), file.jobs[0].bs[0].0), ("a", 8192));
        let arguments = ["--bs=16k", "--name=a", "--size=1m", "--name=b", "--size=1m"];
        let file = JobFile::from_arguments(&arguments, &around, false).unwrap();
        assert!(file.jobs.iter().all(|job| job.bs[0].0 == 16384) && file.jobs.len() == 2);
        let error = JobFile::from_arguments(&["--bs=4k"], &around, false).unwrap_err();
        assert!(error.to_string().contains("no jobs are defined"));
    }
}
