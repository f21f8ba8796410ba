//! A line of the shell: its words, and the command that they become.

/// What a line asks for.
#[derive(PartialEq, Eq, Debug)]
pub enum Action {
    /// An empty line or a comment.
    Nothing,
    /// The end.
    Quit,
    /// A text.
    Print(String),
    /// The folder that relative paths begin in.
    Where,
    /// Another folder of the image.
    Folder(String),
    /// Another folder of the host.
    HostFolder(String),
    /// A command line.
    Run(Vec<String>),
}

/// A line that was understood.
pub struct Line {
    /// What it asks for.
    pub action: Action,
}

/// What the words behind a verb are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Places in the image.
    Places,
    /// As places, the folder where there is none.
    PlacesOrHere,
    /// A word, then places: a mode, an owner.
    WordAndPlaces,
    /// Nothing: the target is meant.
    Target,
    /// Places, then a path of the host, the current folder where there is one word.
    Out,
    /// Paths of the host, then a place, the current folder where there is one word.
    In,
    /// Nothing, or what the shell does by itself.
    Own,
}

/// Verb, the command with its options, what follows it, what it does.
pub type Verb = (&'static str, &'static [&'static str], Takes, &'static str);

/// The verbs, with those that users of guestfish know.
pub const VERBS: &[Verb] = &[
    ("ls", &["ls"], Takes::PlacesOrHere, "list names"),
    ("ll", &["ls", "-l"], Takes::PlacesOrHere, "list names with their attributes"),
    ("tree", &["tree"], Takes::PlacesOrHere, "list names and all below"),
    ("find", &["find"], Takes::PlacesOrHere, "find names"),
    ("cat", &["cat"], Takes::Places, "print files"),
    ("stat", &["stat"], Takes::Places, "print attributes"),
    ("du", &["du"], Takes::PlacesOrHere, "print space used"),
    ("df", &["df"], Takes::Target, "print free space"),
    ("info", &["info"], Takes::Target, "print what the target holds"),
    ("check", &["check"], Takes::Target, "check the file system"),
    ("cd", &[], Takes::Own, "change the folder of the image"),
    ("pwd", &[], Takes::Own, "print the folder of the image"),
    ("lcd", &[], Takes::Own, "change the folder of the host"),
    ("get", &["cp", "-a"], Takes::Out, "copy to the host: get PATH.. [HOST-PATH]"),
    ("copy-out", &["cp", "-a"], Takes::Out, "as get"),
    ("download", &["cp"], Takes::Out, "copy one file to the host"),
    ("put", &["cp", "-a"], Takes::In, "copy from the host: put HOST-PATH.. [PATH]"),
    ("copy-in", &["cp", "-a"], Takes::In, "as put"),
    ("upload", &["cp"], Takes::In, "copy one file from the host"),
    ("cp", &["cp"], Takes::Places, "copy inside the image"),
    ("mv", &["mv"], Takes::Places, "rename"),
    ("rm", &["rm"], Takes::Places, "remove"),
    ("rm-rf", &["rm", "-rf"], Takes::Places, "remove trees"),
    ("mkdir", &["mkdir"], Takes::Places, "make directories"),
    ("mkdir-p", &["mkdir", "-p"], Takes::Places, "make directories and those above"),
    ("ln", &["ln"], Takes::Places, "make a further name"),
    ("ln-s", &["ln", "-s"], Takes::WordAndPlaces, "make a symbolic link: ln-s TEXT PATH"),
    ("touch", &["touch"], Takes::Places, "set times, make empty files"),
    ("chmod", &["chmod"], Takes::WordAndPlaces, "set modes"),
    ("chown", &["chown"], Takes::WordAndPlaces, "set owners"),
    ("edit", &["edit"], Takes::Places, "edit a file"),
    ("help", &[], Takes::Own, "print this list"),
    ("exit", &[], Takes::Own, "end; also quit, or Ctrl-D"),
    ("quit", &[], Takes::Own, "end"),
];

/// The absolute path that `path` is in `folder`, without `.` and `..`.
pub fn join(folder: &str, path: &str) -> String {
    let whole = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{folder}/{path}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    // A slash at the end says that a directory is meant.
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

impl Line {
    /// Reads a line; `place` makes a place of a path.
    ///
    /// # Errors
    /// A sentence.
    pub fn parse(text: &str, place: &dyn Fn(&str) -> String) -> Result<Line, String> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(Line { action: Action::Nothing });
        }
        let words = shlex::split(text).ok_or("a quotation mark without its end")?;
        let Some((verb, words)) = words.split_first() else {
            return Ok(Line { action: Action::Nothing });
        };
        let known = VERBS.iter().find(|(name, ..)| name == verb);
        let Some(&(name, command, takes, _)) = known else {
            return Err(format!("unknown command `{verb}`; `help` lists them"));
        };
        let action = match takes {
            Takes::Own => own(name, words)?,
            _ => Action::Run(command_line(name, command, takes, words, place)?),
        };
        Ok(Line { action })
    }
}

/// What the shell does by itself.
fn own(name: &str, words: &[String]) -> Result<Action, String> {
    let one = || words.first().cloned();
    Ok(match name {
        "cd" => Action::Folder(one().unwrap_or_else(|| "/".to_owned())),
        "lcd" => Action::HostFolder(one().ok_or("lcd: to which folder?")?),
        "pwd" => Action::Where,
        "help" => {
            let line = |(name, _, _, what): &Verb| format!("  {name:<10} {what}");
            Action::Print(VERBS.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        _ => Action::Quit,
    })
}

fn command_line(
    name: &str,
    command: &[&str],
    takes: Takes,
    words: &[String],
    place: &dyn Fn(&str) -> String,
) -> Result<Vec<String>, String> {
    let is_option = |word: &&String| word.starts_with('-') && word.len() > 1;
    // A mode may begin with a dash: `chmod -w file`.
    let options = words.iter().take_while(is_option).count();
    let (options, rest) = words.split_at(options);
    let mut line: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    line.extend(options.iter().cloned());
    let missing = || format!("{name}: of what?");
    let last = rest.len().saturating_sub(1);
    let places = |words: &[String]| words.iter().map(|word| place(word)).collect::<Vec<_>>();
    match takes {
        Takes::Target | Takes::Own => line.push(place("/").trim_end_matches(":/").to_owned()),
        Takes::PlacesOrHere if rest.is_empty() => line.push(place("")),
        // Tests of find follow its places.
        Takes::PlacesOrHere if name == "find" => {
            let count = rest.iter().take_while(|word| !word.starts_with('-')).count();
            line.extend(places(&rest[..count.max(1).min(rest.len())]));
            line.extend(rest[count.max(1).min(rest.len())..].iter().cloned());
        }
        _ if rest.is_empty() => return Err(missing()),
        Takes::Places | Takes::PlacesOrHere => line.extend(places(rest)),
        Takes::WordAndPlaces if rest.len() < 2 => return Err(missing()),
        Takes::WordAndPlaces => {
            line.push(rest[0].clone());
            line.extend(places(&rest[1..]));
        }
        Takes::Out if last == 0 => line.extend([place(&rest[0]), ".".to_owned()]),
        Takes::Out => {
            line.extend(places(&rest[..last]));
            line.push(host(&rest[last]));
        }
        Takes::In if last == 0 => line.extend([host(&rest[0]), place("./")]),
        Takes::In => {
            line.extend(rest[..last].iter().map(|word| host(word)));
            line.push(place(&rest[last]));
        }
    }
    Ok(line)
}

/// A path of the host that no command takes for a place.
fn host(path: &str) -> String {
    match path.starts_with(['/', '.']) {
        true => path.to_owned(),
        false => format!("./{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> String {
        let line = Line::parse(text, &|path| format!("d.img:{}", join("/etc", path)));
        match line.map(|line| line.action) {
            Ok(Action::Run(words)) => words.join(" "),
            other => format!("{:?}", other.map_err(|error| format!("error: {error}"))),
        }
    }

    #[test]
    fn lines_become_commands() {
        for (text, wanted) in [
            ("ls", "ls d.img:/etc"),
            ("ll -a ../var/./log", "ls -l -a d.img:/var/log"),
            ("get motd", "cp -a d.img:/etc/motd ."),
            ("get a 'b c' out", "cp -a d.img:/etc/a d.img:/etc/b c ./out"),
            ("put x", "cp -a ./x d.img:/etc/"),
            ("put x:/y /srv/", "cp -a ./x:/y d.img:/srv/"),
            ("chmod 644 motd", "chmod 644 d.img:/etc/motd"),
            ("ln-s ../x y", "ln -s ../x d.img:/etc/y"),
            ("df", "df d.img"),
            ("find . -name x", "find d.img:/etc -name x"),
            ("rm-rf /tmp/x", "rm -rf d.img:/tmp/x"),
        ] {
            assert_eq!(run(text), wanted, "{text}");
        }
        assert!(run("nonsense").contains("unknown command"));
        assert!(run("cat").contains("of what"));
        assert!(run("cat 'x").contains("quotation mark"));
        assert_eq!(run("# x"), "Ok(Nothing)");
        assert_eq!(run("cd"), "Ok(Folder(\"/\"))");
    }
}
