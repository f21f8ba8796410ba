//! What fs_mark prints.

use std::fmt::Write;

use base::Timespec;

use super::options::{Options, SyncMethod};
use super::run::{Calls, Iteration};
use crate::calendar::ctime;

/// The text that follows a wrong command line.
pub fn usage() -> &'static str {
    "Usage: fs_mark\n\
     \t-h <print usage and exit>\n\
     \x20\t-k <keep files after each iteration>\n\
     \x20\t-F <run until FS full>\n\
     \x20\t-S Sync Method (0:No Sync, 1:fsyncBeforeClose, 2:sync/1_fsync, 3:PostReverseFsync, \
     4:syncPostReverseFsync, 5:PostFsync, 6:syncPostFsync)\n\
     \x20\t[-D number (of subdirectories)]\n\
     \x20\t[-N number (of files in each subdirectory in Round Robin mode)]\n\
     \x20\t[-d dir1 ... -d dirN]\n\
     \x20\t[-l log_file_name]\n\
     \x20\t[-l log_file_name]\n\
     \x20\t[-L number (of iterations)]\n\
     \x20\t[-n number (of files per iteration)]\n\
     \x20\t[-p number (of total bytes file names)]\n\
     \x20\t[-r number (of random bytes in file names)]\n\
     \x20\t[-s byte_count (size in bytes of each file)]\n\
     \x20\t[-t number (of total threads)]\n\
     \x20\t[-w number (of bytes per write() syscall)]\n"
}

fn sync_line(method: SyncMethod) -> &'static str {
    match method {
        SyncMethod::None => "NO SYNC: Test does not issue sync() or fsync() calls.",
        SyncMethod::Inband => "INBAND FSYNC: fsync() per file in write loop.",
        SyncMethod::System => {
            "SYSTEM SYNC/SINGLE FSYNC: Issue sync() after main write loop and 1 file fsync() per \
             subdirectory."
        }
        SyncMethod::PostReverse => {
            "POST REVERSE: Reopen and fsync() each file in reverse order after main write loop."
        }
        SyncMethod::SyncPostReverse => {
            "SYNC POST REVERSE: Issue sync() and then reopen and fsync() each file in reverse \
             order after main write loop."
        }
        SyncMethod::Post => "POST: Reopen and fsync() each file in order after main write loop.",
        SyncMethod::SyncPost => {
            "SYNC POST: Issue sync() and then reopen and fsync() each file in order after main \
             write loop."
        }
    }
}

fn directories_line(options: &Options) -> String {
    match (options.subdirectories, options.files_per_subdirectory) {
        (0, _) => "no subdirectories used".into(),
        (count, 0) => format!(
            "Time based hash between directories across {count} subdirectories with 180 seconds \
             per subdirectory."
        ),
        (count, files) => format!(
            "Round Robin between directories across {count} subdirectories with {files} files per \
             subdirectory."
        ),
    }
}

/// The lines above the rows. `marker` stands before the last of them: the tool's log file has a
/// `#` there that its output has not.
fn header(options: &Options, now: Timespec, marker: &str) -> String {
    let mut text = String::from("\n#  fs_mark ");
    options.arguments.iter().for_each(|argument| {
        text.push(' ');
        text.push_str(argument);
        text.push(' ');
    });
    text.push('\n');
    let mut line = |content: std::fmt::Arguments| {
        writeln!(text, "#\t{content}").expect("writing to a string");
    };
    let threads = options.threads;
    line(format_args!("Version 3.3, {threads} thread(s) starting at {}", ctime(now)));
    line(format_args!("Sync method: {}", sync_line(options.sync)));
    line(format_args!("Directories:  {}", directories_line(options)));
    line(format_args!(
        "File names: {} bytes long, ({} initial bytes of time stamp with {} random bytes at end of \
         name)",
        options.name_length,
        options.stamp_length(),
        options.random_length
    ));
    line(format_args!(
        "Files info: size {} bytes, written with an IO size of {} bytes per write",
        options.file_size, options.write_size
    ));
    line(format_args!(
        "App overhead is time in microseconds spent in the test not doing file writing related \
         system calls."
    ));
    text.push_str(marker);
    if options.verbose {
        text.push_str("#\tAll system call times are reported in microseconds.\n");
    }
    text.push('\n');
    text
}

fn columns(options: &Options) -> String {
    let mut line = format!(
        "{:>6}{:>13}{:>13}{:>13}{:>17}",
        "FSUse%", "Count", "Size", "Files/sec", "App Overhead"
    );
    if options.verbose {
        for call in ["CREAT", "WRITE", "FSYNC", "SYNC", "CLOSE", "UNLINK"] {
            write!(line, "{:>27}", format!("{call} (Min/Avg/Max)")).expect("writing to a string");
        }
    }
    line.push('\n');
    line
}

/// What the tool prints before the first row: to its output, and to its log file.
pub(super) fn start(options: &Options, now: Timespec) -> (String, String) {
    let columns = columns(options);
    (header(options, now, "") + &columns, header(options, now, "#") + &columns)
}

/// The row of an iteration. The calls' times are those of this iteration, microseconds.
pub(super) fn row(options: &Options, iteration: &Iteration, calls: &Calls) -> String {
    let mut line = format!(
        "{:>6}{:>13}{:>13}{:>13.1}{:>17}",
        iteration.used_percent,
        iteration.count,
        options.file_size,
        iteration.files_per_second,
        iteration.overhead.0 / 1000
    );
    if options.verbose {
        for call in calls.all() {
            let (min, max) = (call.stats.min() / 1000, call.stats.max() / 1000);
            let mean = call.stats.mean() as u64 / 1000;
            write!(line, "{min:>9}{mean:>9}{max:>9}").expect("writing to a string");
        }
    }
    line.push('\n');
    line
}
