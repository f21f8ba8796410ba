//! The logs of what goes on for long: levels, forms, and where the lines go.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::command::{Running, ok};

/// A server of NBD with these options, its log in a file that is its standard error, and its URL.
pub fn serve(
    folder: &Path,
    options: &[&str],
    log: &File,
    journal: Option<&str>,
) -> (Child, String) {
    let image = folder.join("a.img");
    let socket = folder.join("nbd");
    if !image.exists() {
        ok(&["mkfs", "-q", "-t", "ext4", "--size", "16M", &image.display().to_string()]);
    }
    let mut server = Command::new(env!("CARGO_BIN_EXE_iopath"));
    server.args(["serve", "nbd", "--listen"]).arg(&socket).args(options).arg(&image);
    server.stdout(Stdio::piped()).stderr(log.try_clone().expect("a second handle"));
    server.env_remove("JOURNAL_STREAM");
    if let Some(stream) = journal {
        server.env("JOURNAL_STREAM", stream);
    }
    let mut server = server.spawn().expect("it starts");
    let stdout = server.stdout.as_mut().expect("a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let told = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert!(line.contains("nbd+unix:"), "it does not serve: {line:?}: {}", told());
    (server, format!("nbd+unix:///?socket={}", socket.display()))
}

/// Ends a process by SIGTERM, and waits for it.
pub fn terminate(child: Child) {
    let mut child = Running(child);
    let pid = child.0.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().expect("kill").success());
    assert!(child.0.wait().expect("it ends").success());
}

/// What a server logs while a client lists its image.
fn log_of(options: &[&str], journal: bool) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let log = File::create(&path).expect("a log");
    let meta = log.metadata().expect("its numbers");
    let stream = format!("{}:{}", meta.dev(), meta.ino());
    let (server, url) = serve(folder.path(), options, &log, journal.then_some(&stream));
    ok(&["ls", &format!("{url}:/")]);
    terminate(server);
    std::fs::read_to_string(path).expect("the log")
}

#[test]
fn levels_choose_what_is_logged() {
    for (level, wanted) in [("error", 0), ("notice", 0), ("info", 2), ("debug", 4)] {
        let log = log_of(&["--log-level", level], false);
        let is_known = |line: &str| {
            let client = line == "client unix connects" || line == "client unix disconnects";
            client || line.contains("a.img: serving at nbd+unix://") || line.ends_with(": stopping")
        };
        // A client that has gone may not have been noticed when the server ends.
        let lines = log.lines().filter(|line| !line.ends_with(" disconnects")).count();
        assert!(log.lines().all(is_known), "{log}");
        assert!(lines == wanted || level == "debug" && lines >= 3, "{level}: {log}");
    }
    assert_eq!(log_of(&[], false), "", "notices there are none");
}

#[test]
fn json_has_an_object_for_each_line() {
    let log = log_of(&["--log-level", "info", "--log-format", "json"], false);
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let levels: Vec<_> = lines.iter().map(|line| line["level"].as_str()).collect();
    assert_eq!(levels, [Some("info"); 2], "{log}");
    let times: Vec<_> = lines.iter().map(|line| line["time_ns"].as_u64()).collect();
    assert!(times[0].is_some() && times.is_sorted(), "{log}");
    assert!(lines[1]["message"].as_str().is_some_and(|text| text.ends_with(": stopping")));
}

#[test]
fn the_journal_gets_priorities() {
    let log = log_of(&["--log-level", "info"], true);
    assert!(log.lines().count() == 2 && log.lines().all(|line| line.starts_with("<6>")), "{log}");
}
