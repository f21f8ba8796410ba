//! The command line: which commands there are, and how their outcome becomes an exit status.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use rt::Runtime;

use crate::app::{App, Options};
use crate::cmd;
use crate::confine::{self, Needs};
use crate::interrupt;
use crate::mount_helper::{self, Asked};
use crate::out::{Out, is_closed_pipe};

/// The Linux storage I/O path in user space: ext2/3/4, XFS and NFS without mounting, and its lab
#[derive(Parser)]
#[command(name = "iopath", version, after_help = AFTER)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
A TARGET is an image file or a block device, with @N for its Nth partition;
TARGET:/path is a place inside. Examples:
  iopath mkfs -t ext4 --size 64M disk.img
  iopath cp -a ./tree disk.img:/
  iopath ls -l disk.img:/tree
  iopath check disk.img

Mount options, for -o: data=ordered|writeback|journal, barrier=flush|drain|0, commit=SECONDS,
journal_io=async|sync|noidle|waited|meta, journal_yield=0|1, journal_chain=0|1,
checkpoint=lazy|flusher, readahead=SIZE, journal_path=TARGET; for xfs logbsize=32k|64k|128k|256k,
wsync, norecovery, buf_item=bitwise|contiguous|runs, dir_leaf=gaps|dense, debug_checks,
rtdev=TARGET, logdev=TARGET.

Exit status: 0 done, 1 failed, 2 wrong usage; `check`, `repair` and `undo` have those
of fsck(8).";

macro_rules! commands {
    ($($variant:ident => $module:ident,)*) => {
        #[derive(Subcommand)]
        enum Command {
            $($variant(Box<cmd::$module::Options>),)*
        }

        impl Command {
            fn run(&self, app: &mut App) -> anyhow::Result<ExitCode> {
                match self {
                    $(Command::$variant(options) => cmd::$module::run(app, options),)*
                }
            }
        }
    };
}

commands! {
    Info => info,
    Ls => ls,
    Tree => tree,
    Stat => stat,
    Cat => cat,
    Cp => cp,
    Sync => sync,
    Mkdir => mkdir,
    Mv => mv,
    Rm => rm,
    Ln => ln,
    Chattr => chattr,
    Chmod => chmod,
    Chown => chown,
    Mknod => mknod,
    Touch => touch,
    Truncate => truncate,
    Xattr => xattr,
    Df => df,
    Diff => diff,
    Disk => disk,
    Du => du,
    Find => find,
    Push => push,
    Quota => quota,
    Edit => edit,
    Encrypt => encrypt,
    Verity => verity,
    Mount => mount,
    Crash => crash,
    Serve => serve,
    Shell => shell,
    Mkfs => mkfs,
    Check => check,
    Repair => repair,
    Undo => undo,
    Undelete => undelete,
    Metadump => metadump,
    Scan => scan,
    Which => which,
    Replay => replay,
    Resize => resize,
    Tune => tune,
    Manifest => manifest,
    Machines => machines,
    Completions => completions,
    Man => man,
    Top => top,
    Bench => bench,
    Demo => demo,
    Lab => lab,
    Trace => trace,
}

/// The description of the command line, for completions and manual pages.
pub fn describe() -> clap::Command {
    Cli::command()
}

/// The values that a command line gives, of all arguments and options.
fn words_of(args: &[OsString]) -> Vec<OsString> {
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(args);
    matches.map_or_else(|_| Vec::new(), |matches| crate::confine::words(&matches))
}

/// The command that `args` name, the one below it, and so on, whatever else is wrong with them;
/// none where help is asked for.
fn names_of_commands(args: &[OsString]) -> Vec<String> {
    let Ok(matches) = Cli::command().ignore_errors(true).try_get_matches_from(args) else {
        return Vec::new();
    };
    let below = |matches: &clap::ArgMatches| matches.subcommand().map(|(_, below)| below.clone());
    std::iter::successors(Some(matches), below)
        .filter_map(|matches| matches.subcommand_name().map(str::to_string))
        .collect()
}

/// `args`, which name these `commands`, as the parser takes them.
fn prepared(args: Vec<OsString>, commands: &[String]) -> Vec<OsString> {
    match commands.first().map(String::as_str) {
        Some("lab") => cmd::lab::with_own_options(args, commands.get(1)),
        Some("find") => cmd::find::with_two_dashes(args),
        Some("bench") => cmd::bench::with_options_of_the_tool(args, commands.get(1)),
        _ => args,
    }
}

/// Parses `args`, which name these `commands`.
fn parse(args: Vec<OsString>, commands: &[String]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(prepared(args, commands))
}

/// The commands that have the exit statuses of fsck(8).
const FSCK: &[&str] = &["check", "repair", "undo"];

/// Whether the command has them; where the line is so wrong that none was found, its first word
/// that is a command's.
fn has_statuses_of_fsck(args: &[OsString], commands: &[String]) -> bool {
    let known = Cli::command();
    let is_command = |word: &&str| known.find_subcommand(word).is_some();
    let words = args.iter().skip(1).filter_map(|word| word.to_str());
    let name = commands.first().map(String::as_str).or_else(|| words.clone().find(is_command));
    name.is_some_and(|name| FSCK.contains(&name))
}

/// The commands that copy, and end between two files when they are interrupted.
const INTERRUPTIBLE: &[&str] = &["cp", "sync", "mkfs", "disk", "push"];

/// Runs a command line; the first argument is the program's name, which may be that of the helper
/// of mount(8).
pub fn main(args: Vec<OsString>) -> ExitCode {
    let asked = match mount_helper::asked(&args) {
        None => return run(args),
        Some(Ok(asked)) => asked,
        Some(Err(message)) => {
            eprintln!("mount.iopath: {message}");
            return ExitCode::from(mount_helper::USAGE);
        }
    };
    match asked {
        Asked::Nothing => ExitCode::SUCCESS,
        Asked::Mount(line) => match run(line) == ExitCode::SUCCESS {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(mount_helper::FAILED),
        },
        Asked::Remount { dir, flags } => match mount_helper::change(&dir, flags) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("mount.iopath: {}: remount: {error}", dir.display());
                ExitCode::from(mount_helper::FAILED)
            }
        },
    }
}

fn run(args: Vec<OsString>) -> ExitCode {
    let commands = names_of_commands(&args);
    let args = prepared(args, &commands);
    let line: Vec<OsString> = args.iter().skip(1).cloned().collect();
    let words = words_of(&args);
    let is_check = has_statuses_of_fsck(&args, &commands);
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if !asked && line.iter().any(|word| word == "--json") {
                let text = error.render().to_string();
                crate::out::problem(true, text.trim_start_matches("error: ").trim_end());
            } else {
                let _standard_streams_may_be_closed = error.print();
            }
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(if is_check { cmd::check::USAGE } else { 2 }),
            };
        }
    };
    if let (Some(word), false) = (cli.options.of_mount(), matches!(cli.command, Command::Mount(_)))
    {
        eprintln!("iopath: -o {word}: an option of `iopath mount` only");
        return ExitCode::from(if is_check { cmd::check::USAGE } else { 2 });
    }
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let options = cli.options.clone();
    let options_json = options.json;
    let out = Out::new(options.json, options.quiet);
    // What is made in images without a mode of its own gets the user's umask, as on the host.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    if INTERRUPTIBLE.iter().any(|name| commands.first().is_some_and(|first| first == name)) {
        interrupt::listen();
    }
    let result = Runtime::real(cpus).enter("iopath", |cx| {
        cx.set_cred(rt::Cred { umask: umask.bits(), ..rt::Cred::root() });
        let (rescued, passphrases, args) = (Vec::new(), Vec::new(), line);
        let (recorder, locked, work) = (None, None, confine::work_of(&commands));
        let mut app = App { cx, options, out, recorder, rescued, words, locked, args, passphrases };
        let locked = match work {
            Some(work) => {
                let mut needs = Needs::of_words(&app.words, work);
                if commands.first().is_some_and(|name| name == "resize") {
                    cmd::resize::mounted::needs(&app.words, &mut needs);
                }
                confine::enter(&mut app, needs)
            }
            None => Ok(()),
        };
        let result = locked.and_then(|()| cli.command.run(&mut app));
        let flushed = app.out.flush();
        let result = crate::losses::report(&mut app, result);
        result.and_then(|code| flushed.map(|()| code).map_err(anyhow::Error::from))
    });
    match result {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            Out::new(options_json, false).problem(format!("{error:#}"));
            ExitCode::from(match (is_check, interrupt::asked()) {
                (true, _) => cmd::check::OPERATIONAL,
                (false, true) => interrupt::STATUS,
                (false, false) => 1,
            })
        }
    }
}

/// Runs another command inside of one, with its own options. Wrong usage is printed and answered
/// with its status.
///
/// # Errors
/// Those of the command.
pub fn run_inside(app: &mut App, args: &[OsString]) -> anyhow::Result<ExitCode> {
    let line = std::iter::once(OsString::from("iopath")).chain(args.iter().cloned());
    let line: Vec<OsString> = line.collect();
    let commands = names_of_commands(&line);
    let cli = match parse(line, &commands) {
        Ok(cli) => cli,
        Err(error) => {
            let _standard_streams_may_be_closed = error.print();
            return Ok(ExitCode::from(error.exit_code() as u8));
        }
    };
    app.out.flush()?;
    let out = Out::new(cli.options.json, cli.options.quiet);
    let outer = std::mem::replace(&mut app.options, cli.options.clone());
    let outer_out = std::mem::replace(&mut app.out, out);
    let result = cli.command.run(app);
    let flushed = app.out.flush();
    app.options = outer;
    app.out = outer_out;
    match result {
        Err(error)
            if matches!(cli.command, Command::Check(_) | Command::Repair(_) | Command::Undo(_)) =>
        {
            // It has the statuses of fsck(8).
            eprintln!("iopath: {error:#}");
            Ok(ExitCode::from(cmd::check::OPERATIONAL))
        }
        result => result.and_then(|code| flushed.map(|()| code).map_err(anyhow::Error::from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        describe().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for command in describe().get_subcommands() {
            let help = command.get_after_help().map(|text| text.to_string()).unwrap_or_default();
            assert!(help.contains("iopath "), "{} shows no example", command.get_name());
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_follows_a_tool_is_the_tools() {
        for (line, wanted) in [
            ("iopath bench fio --direct=1 --name=a", "iopath bench fio -- --direct=1 --name=a"),
            ("iopath -q bench --fs ext3 fs_mark -d a", "iopath -q bench --fs ext3 fs_mark -- -d a"),
            ("iopath --cache-size 1G bench fio -a", "iopath --cache-size 1G bench fio -- -a"),
            ("iopath bench fio a.fio", "iopath bench fio a.fio"),
        ] {
            let commands = names_of_commands(&words(line));
            let parsed = parse(words(line), &commands).map(|_| ());
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            let args = cmd::bench::with_options_of_the_tool(words(line), commands.get(1));
            assert_eq!(args, words(wanted));
        }
    }

    #[test]
    fn commands_are_known_beside_mistakes() {
        for (line, wanted) in [
            ("iopath --cache-size 1G check --nonsense", vec!["check"]),
            ("iopath bench fio --help", vec![]),
            ("iopath cp bench fio -r", vec!["cp"]),
            ("iopath lab run --json a.json", vec!["lab", "run"]),
            ("iopath", vec![]),
        ] {
            assert_eq!(names_of_commands(&words(line)), wanted, "{line}");
        }
    }

    /// Goal: no command that reads a stranger's image is forgotten. What is not locked by
    /// `work_of` locks itself, or is on the list of docs/sandbox.md.
    #[test]
    fn every_command_is_locked_or_has_a_reason_not_to_be() {
        const BY_ITSELF: [&str; 4] = ["cp", "sync", "mount", "serve"];
        const NOT_LOCKED: [&str; 7] = ["mkfs", "disk", "undo", "bench", "lab", "demo", "crash"];
        const OPENS_NO_IMAGE: [&str; 8] =
            ["edit", "shell", "trace", "machines", "completions", "man", "help", "top"];
        for command in Cli::command().get_subcommands() {
            let name = command.get_name().to_owned();
            let others = [&BY_ITSELF[..], &NOT_LOCKED, &OPENS_NO_IMAGE];
            let is_other = others.iter().any(|list| list.contains(&name.as_str()));
            let locked = confine::work_of(std::slice::from_ref(&name)).is_some();
            assert!(locked != is_other, "{name}: locked {locked}, on a list {is_other}");
        }
    }
}
