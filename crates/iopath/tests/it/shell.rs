//! `iopath shell` as a script: the first commands of people who know guestfish.

#![allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::command::ok_in;
use testkit::judge::e2fsck;

fn shell(dir: &Path, script: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_iopath"))
        .args(["shell", "disk.img"])
        .env("EDITOR", "sed -i s/hello/HELLO/")
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_script_works_inside_of_an_image_and_ends_at_what_fails() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok_in(dir, "mkfs -q -t ext4 --size 8M disk.img");
    fs::write(dir.join("motd"), "hello\n").unwrap();
    let script = "# a comment\nmkdir-p /etc/conf.d\ncd etc\npwd\nput motd\nchmod 600 motd\nls\n\
                  edit motd\ncat motd\nget motd 'copy of it'\nln-s motd link\nmv motd /etc/other\n\
                  cd ..\nfind etc -name other\n-rm none\n\
                  rm-rf etc/conf.d\nls etc\ndf\nexit\nls none\n";
    let output = shell(dir, script);
    let (text, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{error}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..4], ["/etc", "conf.d", "motd", "HELLO"], "{text}{error}");
    assert!(text.contains("etc/other") && text.contains("\nlink\nother\n"), "{text}");
    assert!(error.contains("none"), "{error}");
    assert_eq!(fs::read_to_string(dir.join("copy of it")).unwrap(), "HELLO\n");
    e2fsck(&dir.join("disk.img")).unwrap();
    assert_eq!(ok_in(dir, "cat disk.img:/etc/other"), "HELLO\n");
    let output = shell(dir, "rm none\nrm -r /etc\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(ok_in(dir, "ls disk.img:/").contains("etc"), "the script went on");
    let output = shell(dir, "cd /etc/other\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ENOTDIR"));
    assert_eq!(shell(dir, "nonsense\n").status.code(), Some(2));
}
