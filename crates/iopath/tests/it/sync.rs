//! `iopath sync` does what rsync does.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::command::{iopath, ok};
use testkit::{judge, manifest};

/// Goal: after any changes on one side the other side is the same, as after rsync, and what did not
/// differ keeps its inode. Method: a tree goes into an image, is changed in every way, and goes
/// again; rsync does the same between directories; then the way back. A judge looks at the image.
#[test]
fn what_differs_is_carried() {
    for format in ["ext4", "xfs"] {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let image = at("disk.img");
        ok(&["mkfs", "-t", format, "--size", "320M", &image]);
        tree(&dir.path().join("tree"));
        let (from, to) = (format!("{}/", at("tree")), format!("{image}:/srv"));
        ok(&["sync", &from, &to]);
        same(dir.path(), "tree", &to);
        assert_eq!(ok(&["sync", "-n", "--delete", &from, &to]), "", "nothing is left to do");

        let inode = |path: &str| {
            let text = ok(&["--json", "stat", &format!("{to}/{path}")]);
            let word = text.split("\"ino\":").nth(1).map(str::trim_start).expect("an inode");
            word.chars().take_while(char::is_ascii_digit).collect::<String>()
        };
        let (kept, mode) = (inode("d/kept"), inode("d/mode"));
        for path in ["d/kept", "d"] {
            ok(&["xattr", "set", &format!("{to}/{path}"), "user.extra", "goes"]);
        }
        change(&dir.path().join("tree"));
        let planned = ok(&["sync", "-n", "--delete", &from, &to]);
        for line in [
            "remove gone",
            "remove d/gone",
            "remove swap",
            "copy swap",
            "copy d/content",
            "change d/mode",
        ] {
            assert!(planned.lines().any(|found| found == line), "{line}: {planned}");
        }
        assert!(planned.lines().any(|found| found == "change d/kept"), "{planned}");
        ok(&["sync", &from, &to]);
        ok(&["stat", &format!("{to}/gone")]);
        ok(&["sync", "-a", "--delete", &from, &to]);
        same(dir.path(), "tree", &to);
        assert_eq!(inode("d/kept"), kept, "what differs in attributes alone is the same file");
        assert_eq!(inode("d/mode"), mode, "what differs in its mode alone is the same file");
        ok(&["check", &image]);

        // The way back, onto an older tree, as rsync does it there.
        tree(&dir.path().join("old"));
        tree(&dir.path().join("rsync"));
        ok(&["sync", "--delete", &format!("{to}/"), &at("old")]);
        let done = Command::new("rsync").args(["-aHAX", "--delete", &from, &at("rsync")]).status();
        assert!(done.expect("rsync; install it with: apt-get install -y rsync").success());
        let (ours, theirs) = (listing(&dir.path().join("old")), listing(&dir.path().join("rsync")));
        assert_eq!(manifest::diff(&ours, &theirs), "");

        // Content that differs behind the same size and time is found by --checksum alone.
        let path = dir.path().join("tree/d/kept");
        let time = path.metadata().and_then(|meta| meta.modified()).expect("a time");
        std::fs::write(&path, [b'x'; 4200]).expect("written");
        let file = std::fs::File::options().write(true).open(&path).expect("opened");
        file.set_modified(time).expect("its time");
        assert_eq!(ok(&["sync", "-n", &from, &to]), "");
        assert_eq!(ok(&["sync", "-n", "-c", &from, &to]), "copy d/kept\n");
        let json = ok(&["--json", "sync", "-c", &from, &to]);
        assert!(json.contains("\"d/kept\""), "{json}");
        same(dir.path(), "tree", &to);
        match format {
            "ext4" => judge::e2fsck(Path::new(&image)).expect("e2fsck"),
            _ => judge::xfs_repair(Path::new(&image)).expect("xfs_repair"),
        }
    }
}

/// Goal: names go into the destination as with rsync, one that is excluded is neither copied nor
/// removed, and what is no tree is refused.
#[test]
fn names_and_what_is_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let image = at("disk.img");
    ok(&["mkfs", "--size", "16M", &image]);
    tree(&dir.path().join("tree"));
    ok(&["sync", &at("tree"), &format!("{image}:/")]);
    ok(&["sync", "--delete", "--exclude", "kept", &at("tree"), &format!("{image}:/")]);
    ok(&["stat", &format!("{image}:/tree/d/kept")]);
    ok(&["stat", &format!("{image}:/lost+found")]);
    ok(&["sync", "--delete", &format!("{}/", at("tree")), &format!("{image}:/")]);
    ok(&["stat", &format!("{image}:/lost+found")]);
    for args in [
        &["sync", &at("tree"), &at("other")][..],
        &["sync", &at("none"), &format!("{image}:/")],
        &["sync", &at("tree"), &format!("{image}:/d/kept")],
        &["sync", &at("tree"), &format!("{image}:/a/b")],
        &["sync", "tree.tar:", &format!("{image}:/")],
    ] {
        let output = iopath(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.lines().count() == 1 && !error.contains("panicked"), "{args:?}: {error}");
    }
}

/// What may not be removed or written was removed and written below the top, and the status was 0.
/// Method: a file and a directory with flags, in the way of `rm -r`, `sync --delete`, `sync` and
/// `cp`; the host's chattr and rm are the measure.
#[test]
fn flags_are_in_the_way() {
    for format in ["ext4", "xfs"] {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let image = at("disk.img");
        ok(&["mkfs", "-t", format, "--size", "320M", &image]);
        for name in ["d/fixed", "d/free", "log/inside", "shut/inside"] {
            let path = dir.path().join("tree").join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, name).expect("written");
        }
        let (from, to) = (format!("{}/", at("tree")), format!("{image}:/t"));
        ok(&["sync", &from, &to]);
        let place = |name: &str| format!("{to}/{name}");
        flag(&image, format, "/t/d/fixed", 'i');
        flag(&image, format, "/t/log", 'a');
        flag(&image, format, "/t/shut", 'i');

        let refused = |args: &[&str], what: &[&str]| {
            let output = iopath(args);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{format} {args:?}: {error}");
            for what in what {
                assert!(error.contains(what) && error.contains("EPERM"), "{args:?}: {error}");
            }
        };
        let new = at("new");
        std::fs::write(&new, "new").expect("written");
        refused(&["cp", &new, &place("d/fixed")], &["fixed"]);
        refused(&["cp", &new, &place("shut/")], &["shut/new"]);
        let over = ["cp", "--remove-destination", &place("shut/inside"), &place("log/")];
        refused(&over, &["log/inside"]);
        ok(&["cp", &new, &place("log/more")]);
        std::fs::write(dir.path().join("tree/d/fixed"), "changed").expect("written");
        refused(&["sync", &from, &to], &["d/fixed"]);
        std::fs::create_dir(dir.path().join("none")).expect("made");
        let (none, all) = (format!("{}/", at("none")), ["d/fixed", "log/inside", "shut/inside"]);
        refused(&["sync", "--delete", &none, &to], &all);
        refused(&["rm", "-r", &to], &all);
        for (name, content) in [("d/fixed", "d/fixed"), ("log/inside", "log/inside")] {
            assert_eq!(ok(&["cat", &place(name)]), content);
        }
        assert!(!iopath(&["stat", &place("d/free")]).status.success(), "what may go is gone");
        ok(&["check", &image]);
    }
}

/// Gives something in an image a flag, as chattr(1) does.
fn flag(image: &str, format: &str, path: &str, flag: char) {
    if format == "xfs" {
        let change = format!("+{flag}");
        drop(ok(&["chattr", &change, &format!("{image}:{path}")]));
        return;
    }
    // Extents, besides the flag.
    let flags = 0x8_0000 | if flag == 'i' { 0x10 } else { 0x20 };
    let request = format!("sif {path} flags {flags:#x}");
    judge::debugfs(Path::new(image), true, &format!("{request}\n"));
}

fn tree(top: &Path) {
    std::fs::create_dir_all(top.join("d/gone/below")).expect("made");
    std::fs::create_dir_all(top.join("swap/below")).expect("made");
    for name in ["d/kept", "d/content", "d/mode", "gone", "d/gone/below/file", "first"] {
        std::fs::write(top.join(name), name.repeat(700)).expect("written");
    }
    std::fs::hard_link(top.join("first"), top.join("d/second")).expect("linked");
    symlink("d/kept", top.join("link")).expect("linked");
    // rsync takes times of one second for the same: all are old, until something changes.
    judge::run_ok("find", &[&top, &"-exec", &"touch", &"-h", &"-d", &"@1000000", &"{}", &"+"]);
    let names = ["d/kept", "d/content", "d/mode", "gone", "d/gone/below/file", "first"];
    for (seconds, name) in (1_000_000..).zip(names) {
        let file = std::fs::File::options().write(true).open(top.join(name)).expect("opened");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        file.set_modified(time).expect("its time");
    }
}

/// Changes a tree in every way that a copy has to follow.
fn change(top: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::remove_dir_all(top.join("d/gone")).expect("removed");
    std::fs::remove_file(top.join("gone")).expect("removed");
    std::fs::remove_dir_all(top.join("swap")).expect("removed");
    std::fs::write(top.join("swap"), "a file now").expect("written");
    std::fs::write(top.join("d/content"), "new").expect("written");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(top.join("d/mode"), mode).expect("its mode");
    std::fs::remove_file(top.join("link")).expect("removed");
    symlink("d/mode", top.join("link")).expect("linked");
    std::fs::hard_link(top.join("first"), top.join("d/third")).expect("linked");
    std::fs::create_dir(top.join("new")).expect("made");
    std::fs::write(top.join("new/file"), vec![7; 100_000]).expect("written");
    let changed = ["-newermt", "@1500000", "-exec", "touch", "-h", "-d", "@1600000", "{}", "+"];
    let arguments = changed.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>);
    judge::run_ok("find", &std::iter::once(&top as _).chain(arguments).collect::<Vec<_>>());
}

fn listing(path: &Path) -> manifest::Manifest {
    manifest::of_dir(path).expect("a tree")
}

/// The tree in the image is that of the host, with its links.
fn same(dir: &Path, name: &str, place: &str) {
    let out = dir.join("out");
    let _ = std::fs::remove_dir_all(&out);
    ok(&["cp", "-aT", place, &out.display().to_string()]);
    let difference = manifest::diff(&listing(&out), &listing(&dir.join(name)));
    assert_eq!(difference, "", "{place}");
    let meta = |path: &str| out.join(path).metadata().expect("metadata");
    assert_eq!(meta("first").ino(), meta("d/second").ino(), "two names of one file");
}
