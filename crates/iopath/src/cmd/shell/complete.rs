//! What the tab key completes: verbs, paths of the image, paths of the host.

use std::process::{Command, Stdio};

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::Session;
use super::line::{Takes, VERBS, join};

/// Completes for one session, in the folder where it is.
pub struct Places {
    target: String,
    folder: String,
    options: Vec<std::ffi::OsString>,
    host: FilenameCompleter,
}

impl Places {
    /// For a session as it is now.
    pub fn of(session: &Session) -> Places {
        Places {
            target: session.target.clone(),
            folder: session.folder.clone(),
            options: session.options.clone(),
            host: FilenameCompleter::new(),
        }
    }

    /// The names of a directory of the image, those of directories with a slash.
    fn names(&self, directory: &str) -> Vec<String> {
        let program = std::env::current_exe().unwrap_or_else(|_| "iopath".into());
        let place = format!("{}:{}", self.target, join(&self.folder, directory));
        let mut command = Command::new(program);
        command.args(&self.options).args(["--json", "--quiet", "--no-glob", "ls", "-a", &place]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        let entries = text.split(|&b| b == b'\n').filter_map(|line| {
            let entry: serde_json::Value = serde_json::from_slice(line).ok()?;
            let name = entry["name"].as_str()?.to_owned();
            let end = if entry["type"] == "directory" { "/" } else { "" };
            (name != "." && name != "..").then(|| format!("{name}{end}"))
        });
        entries.collect()
    }

    fn in_image(&self, word: &str) -> Vec<Pair> {
        let (directory, begin) = match word.rfind('/') {
            Some(at) => word.split_at(at + 1),
            None => ("", word),
        };
        let names = self.names(directory).into_iter().filter(|name| name.starts_with(begin));
        let pair = |name: String| Pair {
            replacement: format!("{directory}{}", name.replace(' ', "\\ ")),
            display: name,
        };
        names.map(pair).collect()
    }
}

impl Completer for Places {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let begun = &line[..pos];
        let start = begun.rfind(' ').map_or(0, |at| at + 1);
        let word = &begun[start..];
        if start == 0 {
            let names = VERBS.iter().map(|(name, ..)| *name).filter(|name| name.starts_with(word));
            let pair = |name: &str| Pair { display: name.into(), replacement: format!("{name} ") };
            return Ok((0, names.map(pair).collect()));
        }
        let verb = begun.split(' ').next().unwrap_or_default();
        let takes = VERBS.iter().find(|(name, ..)| *name == verb).map(|(_, _, takes, _)| *takes);
        let is_first = begun.split_whitespace().count() <= 1 + usize::from(!word.is_empty());
        let on_host = match takes {
            Some(Takes::In) => is_first,
            Some(Takes::Out) => !is_first,
            _ => verb == "lcd",
        };
        match on_host {
            true => self.host.complete(line, pos, context),
            false => Ok((start, self.in_image(word))),
        }
    }
}

impl Hinter for Places {
    type Hint = String;
}

impl Highlighter for Places {}

impl Validator for Places {}

impl Helper for Places {}
