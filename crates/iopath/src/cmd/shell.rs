//! `shell`: a line editor over the commands, for one image.
//!
//! This process opens no image: each line is a copy of the command, in its sandbox, with the
//! options of this one. So nothing is held open between two lines.

mod complete;
mod line;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};

use crate::app::App;
use crate::target::TargetPath;
use complete::Places;
use line::{Action, Line};

/// Work inside an image with short commands: ls, cd, cat, get, put, edit ..
#[derive(Args)]
#[command(after_help = "\
Paths are those of the image; `get` and `put` copy out of it and into it. Tab completes commands
and paths. `help` lists the commands; their options are those of `iopath COMMAND`. Lines that do
not come from a terminal are a script: it ends at the first one that fails, with its status; a
dash in front of a line lets it fail.

Examples:
  iopath shell disk.img
  iopath shell --key-file key disk.img@2@vg/root
  printf 'cd /etc\\nput motd\\nchmod 644 motd\\n' | iopath shell disk.img")]
pub struct Options {
    /// Image or device: TARGET, or TARGET:/path to begin there
    #[arg(value_name = "TARGET")]
    target: OsString,
}

/// What a session knows.
pub struct Session {
    /// The target as it was written.
    target: String,
    /// Where relative paths begin: an absolute path of the image.
    folder: String,
    /// The global options of this command line.
    options: Vec<OsString>,
}

impl Session {
    /// A place as the commands take it.
    fn place(&self, path: &str) -> String {
        format!("{}:{}", self.target, line::join(&self.folder, path))
    }

    /// A copy of the command with these words.
    fn command(&self, words: &[String]) -> Command {
        let program = std::env::current_exe().unwrap_or_else(|_| "iopath".into());
        let mut command = Command::new(program);
        command.args(&self.options).args(words);
        command
    }

    /// Whether a path is a directory; an error of the command is printed.
    fn is_directory(&self, path: &str) -> bool {
        // The root of a directory below a name that is none is an error.
        let place = format!("{}/.", self.place(path).trim_end_matches('/'));
        let words = ["--quiet", "--no-glob", "stat", &place].map(str::to_owned);
        let output = self.command(&words).output();
        match output {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                eprint!("{}", String::from_utf8_lossy(&output.stderr));
                false
            }
            Err(error) => {
                eprintln!("iopath: {error}");
                false
            }
        }
    }
}

/// Runs `shell`.
///
/// # Errors
/// The target is none, its name is no text, or the terminal failed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let place = TargetPath::parse(&options.target)?;
    let text = |what: &OsStr| what.to_str().map(str::to_owned);
    let target = text(OsStr::new(&place.target.to_string())).context("a name that is no text")?;
    let folder = String::from_utf8(place.path).context("a path that is no text")?;
    let stdin = |path: &OsString| path == "-";
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    if given.iter().any(stdin) {
        bail!("standard input holds the lines of the shell: give a file in place of `-`");
    }
    let own = [OsStr::new("shell"), &options.target];
    let options = given.into_iter().filter(|word| !own.contains(&word.as_os_str())).collect();
    let mut session = Session { target, folder: line::join("/", &folder), options };
    if !session.is_directory("") {
        return Ok(ExitCode::FAILURE);
    }
    let interactive = std::io::stdin().is_terminal();
    let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true);
    let mut editor = Editor::<Places, DefaultHistory>::with_config(config.build())?;
    loop {
        let prompt = match interactive {
            true => format!("{}:{}> ", session.target, session.folder),
            false => String::new(),
        };
        editor.set_helper(Some(Places::of(&session)));
        let read = match editor.readline(&prompt) {
            Ok(read) => read,
            // An interrupt drops the line, as in every shell.
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error.into()),
        };
        match carry_out(app, &mut session, &read)? {
            Outcome::Done => {}
            Outcome::Quit => return Ok(ExitCode::SUCCESS),
            Outcome::Failed(code) if !interactive => return Ok(ExitCode::from(code)),
            Outcome::Failed(_) => {}
        }
    }
}

enum Outcome {
    Done,
    Failed(u8),
    Quit,
}

/// Carries a line out.
fn carry_out(app: &mut App, session: &mut Session, text: &str) -> Result<Outcome> {
    let (text, may_fail) = match text.trim().strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text.trim(), false),
    };
    let parsed = Line::parse(text, &|path| session.place(path));
    let failed = |code| if may_fail { Outcome::Done } else { Outcome::Failed(code) };
    let action = match parsed {
        Ok(line) => line.action,
        Err(message) => {
            eprintln!("iopath: {message}");
            return Ok(failed(2));
        }
    };
    Ok(match action {
        Action::Nothing => Outcome::Done,
        Action::Quit => Outcome::Quit,
        Action::Print(text) => {
            app.out.line(text)?;
            app.out.flush()?;
            Outcome::Done
        }
        Action::Where => {
            app.out.line(&session.folder)?;
            app.out.flush()?;
            Outcome::Done
        }
        Action::Folder(path) => match session.is_directory(&path) {
            true => {
                session.folder = line::join(&session.folder, &path);
                Outcome::Done
            }
            false => failed(1),
        },
        Action::HostFolder(path) => match std::env::set_current_dir(&path) {
            Ok(()) => Outcome::Done,
            Err(error) => {
                eprintln!("iopath: {path}: {error}");
                failed(1)
            }
        },
        Action::Run(words) => {
            let status = session.command(&words).status().context("cannot start iopath")?;
            match status.code() {
                Some(0) => Outcome::Done,
                code => failed(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
            }
        }
    })
}
