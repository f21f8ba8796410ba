//! Output: text or JSON on standard output, progress and notes on standard error.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rt::Meter;
use serde_json::Value;

use crate::log::{self, Level};

/// As [`Out::problem`], from any thread.
pub fn problem(json: bool, text: &str) {
    if log::event(Level::Error, text) {
        return;
    }
    match json {
        true => eprintln!("{}", serde_json::json!({ "error": text })),
        false => eprintln!("iopath: {text}"),
    }
}

/// Standard output, buffered, and what the user asked it to look like.
pub struct Out {
    /// `--json`.
    pub json: bool,
    quiet: bool,
    stdout: BufWriter<io::Stdout>,
}

impl Out {
    /// Output as text, or as JSON; `quiet` drops progress and notes.
    pub fn new(json: bool, quiet: bool) -> Out {
        Out { json, quiet, stdout: BufWriter::with_capacity(64 << 10, io::stdout()) }
    }

    /// One line of text.
    ///
    /// # Errors
    /// Writing failed.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    /// One JSON document on one line.
    ///
    /// # Errors
    /// Writing failed.
    pub fn document(&mut self, value: &Value) -> io::Result<()> {
        self.line(value.to_string())
    }

    /// Bytes as they are.
    ///
    /// # Errors
    /// Writing failed.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdout.write_all(bytes)
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// Writing failed.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }

    /// A note on standard error, unless `--quiet` or JSON.
    pub fn note(&self, text: impl AsRef<str>) {
        if log::event(Level::Notice, text.as_ref()) {
            return;
        }
        if !self.quiet && !self.json {
            eprintln!("{}", text.as_ref());
        }
    }

    /// Something went wrong: a line on standard error, with JSON an object with the key `error`.
    pub fn problem(&self, text: impl AsRef<str>) {
        problem(self.json, text.as_ref());
    }

    /// A display of progress: shown on a terminal only.
    pub fn progress(&self, verb: &'static str) -> Progress {
        let shown = io::stderr().is_terminal() && !self.quiet && !self.json;
        let bar = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if shown {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("{spinner} {prefix} {msg} [{elapsed}]");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_prefix(verb);
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Progress { bar, names: 0, bytes: 0, names_in_all: None }
    }

    /// As [`Out::progress`] of what prints lines meanwhile: not where they go to a terminal, too.
    /// Where it is known how many names there are, it shows the part that is done, the rate, and
    /// how long the rest takes.
    pub fn progress_of_names(&self, verb: &'static str, names: Option<u64>) -> Progress {
        let mut progress = match io::stdout().is_terminal() {
            true => Progress::hidden(),
            false => self.progress(verb),
        };
        progress.names_in_all = names;
        progress
    }

    /// As [`Out::progress`], where it is known how many bytes there are: shows the part that is
    /// done, the rate, and how long the rest takes at this rate.
    pub fn progress_of(&self, verb: &'static str, bytes: u64) -> Progress {
        let progress = self.progress(verb);
        progress.expect(bytes);
        progress
    }
}

/// Counts names and bytes that are done.
pub struct Progress {
    bar: ProgressBar,
    names: u64,
    bytes: u64,
    names_in_all: Option<u64>,
}

impl Progress {
    /// One that nobody sees.
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden(), names: 0, bytes: 0, names_in_all: None }
    }

    /// Somebody sees it.
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Names and bytes up to now.
    pub fn so_far(&self) -> (u64, u64) {
        (self.names, self.bytes)
    }

    /// From now on it is known how many bytes there are in all.
    pub fn expect(&self, bytes: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let template = "{spinner} {prefix} {msg} {percent}% of {total_bytes}, \
                        {binary_bytes_per_sec}, {eta} left [{elapsed}]";
        let style = ProgressStyle::with_template(template);
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        self.bar.set_length(bytes);
        self.bar.set_position(self.bytes);
    }

    /// More is done.
    pub fn add(&mut self, names: u64, bytes: u64) {
        self.names += names;
        self.bytes += bytes;
        if !self.bar.is_hidden() {
            let size = crate::text::size(self.bytes);
            let rate = self.names as f64 / self.bar.elapsed().as_secs_f64().max(0.001);
            let message = match self.names {
                0 => size,
                names => format!("{names} names, {rate:.0}/s, {size}"),
            };
            if let Some(all) = self.names_in_all {
                let part = self.names as f64 / all.max(1) as f64;
                return count(&self.bar, format!("{message} of {all} names"), part.min(1.0));
            }
            self.bar.set_message(message);
            if self.bar.length().is_some() {
                self.bar.set_position(self.bytes);
            }
        }
    }

    /// Shows `message`, and how long the rest takes where the part `done`, of 1, took that long.
    pub fn count(&self, message: String, done: f64) {
        count(&self.bar, message, done);
    }

    /// Shows what it counts as [`Progress::count`] does; counts nothing where nobody sees it.
    pub fn meter(&self) -> Meter {
        if self.bar.is_hidden() {
            return Meter::default();
        }
        let bar = self.bar.clone();
        Meter::new(move |step| count(&bar, step.what.to_owned(), step.part()))
    }

    /// Takes the display away while `work` uses the terminal.
    pub fn beside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }

    /// Takes the display away; returns names and bytes.
    pub fn finish(self) -> (u64, u64) {
        self.bar.finish_and_clear();
        (self.names, self.bytes)
    }
}

fn count(bar: &ProgressBar, message: String, done: f64) {
    const STEPS: f64 = 1000.0;
    if bar.is_hidden() {
        return;
    }
    bar.set_message(message);
    if bar.length().is_none() {
        let template = "{spinner} {prefix} {msg}, {percent}%, {eta} left [{elapsed}]";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_length(STEPS as u64);
    }
    bar.set_position((done * STEPS) as u64);
}

/// The reader of our output went away, as `head` does: no failure of ours.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
