//! What commands that go on for long report: one line for each event, by level, as text or JSON.
//!
//! The lines go to standard error. Where that is the journal of systemd, each begins with its
//! priority (sd-daemon(3)). A mount in the background has no standard error: its lines go to the
//! log of the system. A command that has not called [`begin`] has no log.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use serde_json::json;

/// How much an event matters.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Something was lost, or ends
    Error,
    /// It goes on, but somebody should look
    Warning,
    /// What was recovered, where metrics are
    Notice,
    /// What begins and ends
    Info,
    /// Clients that come and go
    Debug,
}

impl Level {
    /// The priority of syslog(3).
    fn priority(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warning => 4,
            Level::Notice => 5,
            Level::Info => 6,
            Level::Debug => 7,
        }
    }

    /// Its name, as in options and JSON.
    fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Notice => "notice",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// What a line looks like.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Sentences
    Text,
    /// One object for each line, with its time and level
    Json,
}

/// The options of what goes on for long.
#[derive(Args, Clone, Copy, Debug)]
#[group(skip)]
pub struct Options {
    /// Log as text or json [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    log_format: Option<Form>,
    /// Log this and what matters more: error, warning, notice, info, debug
    /// [default: notice]
    #[arg(long, value_enum, value_name = "LEVEL", hide_possible_values = true)]
    log_level: Option<Level>,
}

/// How this process logs.
struct Log {
    form: Form,
    level: Level,
    /// Standard error is the journal.
    is_journal: bool,
    /// The log of the system, where there is one.
    system: Option<UnixDatagram>,
    /// Nobody reads standard error any more.
    is_detached: AtomicBool,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// From now on this process has a log; before it is locked. With `--json` and neither option there
/// is none: errors are objects with the key `error`, as of every command. With `quiet` notes are
/// left out, unless a level is given.
pub fn begin(options: &Options, json: bool, quiet: bool) {
    if json && options.log_format.is_none() && options.log_level.is_none() {
        return;
    }
    let form = options.log_format.unwrap_or(if json { Form::Json } else { Form::Text });
    let level = options.log_level.unwrap_or(if quiet { Level::Warning } else { Level::Notice });
    let system = UnixDatagram::unbound().ok();
    let system = system.filter(|socket| socket.connect("/dev/log").is_ok());
    let is_journal = std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_stderr(&stream));
    let is_detached = AtomicBool::new(false);
    // A command that runs another one inside of it goes on with its own.
    let _begun_before = LOG.set(Log { form, level, is_journal, system, is_detached });
}

/// Whether `device:inode` is that of standard error.
fn is_stderr(stream: &str) -> bool {
    let Ok(stat) = rustix::fs::fstat(std::io::stderr().as_fd()) else { return false };
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// Whether this process has a log.
pub fn is_begun() -> bool {
    LOG.get().is_some()
}

/// From now on lines go to the log of the system, not to standard error.
pub fn detach() {
    if let Some(log) = LOG.get() {
        log.is_detached.store(true, Ordering::Release);
    }
}

/// Logs an event. False where this process has no log.
pub fn event(level: Level, text: &str) -> bool {
    let Some(log) = LOG.get() else { return false };
    if level > log.level {
        return true;
    }
    let line = match log.form {
        Form::Json => object(level, text, since_1970()),
        Form::Text => sentence(level, text),
    };
    if log.is_detached.load(Ordering::Acquire) {
        /// The facility "user".
        const USER: u8 = 1 << 3;
        let head = format!("<{}>iopath[{}]: ", USER | level.priority(), std::process::id());
        if let Some(system) = &log.system {
            let _nobody_reads = system.send(format!("{head}{line}").as_bytes());
        }
        return true;
    }
    let lines = match log.is_journal {
        true => with_priority(level, &line),
        false => format!("{line}\n"),
    };
    // In one piece: threads log beside each other.
    let _nobody_reads = std::io::stderr().write_all(lines.as_bytes());
    true
}

/// Logs that a client comes, or goes.
pub fn client(address: &str, comes: bool) {
    let what = if comes { "connects" } else { "disconnects" };
    event(Level::Debug, &format!("client {address} {what}"));
}

fn sentence(level: Level, text: &str) -> String {
    match level {
        Level::Error | Level::Warning => format!("iopath: {text}"),
        Level::Notice | Level::Info | Level::Debug => text.to_owned(),
    }
}

fn object(level: Level, text: &str, time_ns: u64) -> String {
    json!({ "time_ns": time_ns, "level": level.name(), "message": text }).to_string()
}

/// Every line with the priority before it.
fn with_priority(level: Level, lines: &str) -> String {
    let priority = level.priority();
    lines.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}

fn since_1970() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "a log has the time of the host")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_object_or_a_sentence() {
        let line = object(Level::Warning, "a \"b\"\nc", 12);
        assert_eq!(line, r#"{"level":"warning","message":"a \"b\"\nc","time_ns":12}"#);
        assert_eq!(sentence(Level::Error, "disk.img: gone"), "iopath: disk.img: gone");
        assert_eq!(sentence(Level::Info, "serving"), "serving");
    }

    #[test]
    fn the_journal_gets_the_priority_of_each_line() {
        assert_eq!(with_priority(Level::Error, "a\nb"), "<3>a\n<3>b\n");
        assert_eq!(with_priority(Level::Debug, "a"), "<7>a\n");
        assert!(!is_stderr("0:0"));
        let stat = rustix::fs::fstat(std::io::stderr().as_fd()).expect("it is open");
        assert!(is_stderr(&format!("{}:{}", stat.st_dev, stat.st_ino)));
    }

    #[test]
    fn levels_are_ordered_as_priorities_are() {
        let levels = Level::value_variants();
        assert!(levels.is_sorted() && levels.is_sorted_by_key(|level| level.priority()));
        for level in levels {
            let value = level.to_possible_value().expect("none is hidden");
            assert_eq!(value.get_name(), level.name());
        }
    }
}
