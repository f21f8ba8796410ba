//! `iopath edit` runs an editor on a file in an image.

use std::process::{Command, Output};

use crate::command::ok;
use testkit::judge;

fn edit(editor: &str, place: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
    command
        .args(["--cache-size", "32M", "edit", place, "--engine", "psync"])
        .env("EDITOR", editor)
        .env_remove("VISUAL");
    command.output().expect("the command starts")
}

/// Goal: what an editor changes is in the image, in the same file with its mode; what it does not
/// change, or fails at, changes nothing. Method: sed, true, false and rm as editors.
#[test]
fn a_file_is_edited_in_its_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("disk.img");
    let place = format!("{}:/etc/a file", image.display());
    let text = dir.path().join("text").display().to_string();
    std::fs::write(&text, "quiet splash\n").expect("written");
    ok(&["mkfs", "--size", "16M", &image.display().to_string()]);
    ok(&["mkdir", &format!("{}:/etc", image.display())]);
    ok(&["cp", &text, &place]);
    ok(&["chmod", "640", &place]);
    let stat = |what: &str| {
        let text = ok(&["stat", &place]);
        text.split_once(what).expect("a word").1.split_whitespace().next().map(str::to_owned)
    };
    let (inode, mode) = (stat("Inode: "), stat("Mode: "));
    assert!(edit("sed -i s/quiet/loud/", &place).status.success());
    assert_eq!(ok(&["cat", &place]), "loud splash\n");
    assert_eq!((stat("Inode: "), stat("Mode: ")), (inode, mode));

    let before = std::fs::read(&image).expect("the image");
    let output = edit("true", &place);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && error.contains("nothing has changed"), "{error}");
    for (editor, what) in [("false", "nothing was written"), ("rm", "the file stays")] {
        let output = edit(editor, &place);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(what), "{error}");
    }
    assert!(std::fs::read(&image).expect("the image") == before, "nothing is written");

    let new = format!("{}:/etc/new", image.display());
    assert!(edit("printf made >", &new).status.success());
    assert_eq!(ok(&["cat", &new]), "made");
    // A name with wildcard characters is that name, though it matches another one.
    let odd = format!("{}:/etc/n[e]w", image.display());
    assert!(edit("printf odd >", &odd).status.success());
    assert_eq!(ok(&["cat", &new]), "made");
    assert_eq!(ok(&["--no-glob", "cat", &odd]), "odd");
    for (place, what) in [("/etc", "no place"), (":/", "iopath"), ("disk.img:/", "no file")] {
        let output = edit("true", place);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(what), "{place}: {error}");
    }
    // What cannot go back is kept.
    let full = format!("{}:/none/below", image.display());
    let output = edit("printf kept >", &full);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let kept = error.trim().rsplit(' ').next().expect("a path");
    assert_eq!(std::fs::read_to_string(kept).expect("what is kept"), "kept", "{error}");
    std::fs::remove_dir_all(std::path::Path::new(kept).parent().expect("a folder")).expect("gone");
    judge::e2fsck(&image).expect("e2fsck");
}
