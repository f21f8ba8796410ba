//! The command walks trees of any depth, and ends on damaged images whose directories lie below
//! themselves or have two names. Needs root, e2fsprogs and xfsprogs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::command::ok;
use rustix::fs::{CWD, Mode, OFlags, openat};
use testkit::judge;

const FORMATS: [&str; 2] = ["ext4", "xfs"];

fn image(dir: &Path, format: &str) -> String {
    let image = dir.join(format!("{format}.img")).display().to_string();
    ok(&["mkfs", "-t", format, "--size", "320M", &image]);
    image
}

fn inode(image: &str, path: &str) -> u64 {
    let listed = ok(&["ls", "-id", &format!("{image}:{path}")]);
    listed.trim().split(' ').next().and_then(|ino| ino.parse().ok()).expect("a number")
}

/// An image where the directory `/a/b/name` is the one at `at`. Files come behind it.
fn damaged(dir: &Path, format: &str, name: &str, at: &str) -> (String, u64) {
    let image = image(dir, format);
    let place = |path: &str| format!("{image}:{path}");
    ok(&["mkdir", "-p", &place(&format!("/a/b/{name}")), &place("/a/c"), &place("/other")]);
    ok(&["touch", &place("/a/b/z"), &place("/a/z"), &place("/z"), &place("/other/kept")]);
    let (above, ino) = (inode(&image, "/a/b"), inode(&image, at));
    let path = Path::new(&image);
    if format == "ext4" {
        ok(&["rm", "-d", &place(&format!("/a/b/{name}"))]);
        judge::debugfs(path, true, &format!("link <{ino}> /a/b/{name}\n"));
    } else {
        let (above, entry) = (format!("inode {above}"), "u3.sfdir3.list[0].inumber.i4");
        let write = format!("write {entry} {ino}");
        judge::run_ok("xfs_db", &[&"-x", &"-c", &above, &"-c", &write, &path]);
    }
    assert_eq!(inode(&image, &format!("/a/b/{name}")), ino, "{format}: the damage is there");
    (image, ino)
}

/// The command in bounded time and memory.
fn bounded(args: &[&str]) -> Output {
    let script = "ulimit -v 4000000; ulimit -n 400; exec timeout 600 \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_iopath")]).args(args);
    command.stdin(Stdio::null()).output().expect("sh starts")
}

/// The command fails with one line, which names one of the places and the inode; answers its
/// output.
#[track_caller]
fn tells(args: &[&str], places: &[String], ino: u64) -> String {
    let output = bounded(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}: {error}", output.status);
    assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
    let told = |place: &String| error.contains(&format!("{place}: directory inode {ino} "));
    assert!(places.iter().any(told), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

/// What is on the host below a directory.
fn names(top: &Path) -> BTreeSet<PathBuf> {
    let (mut names, mut left) = (BTreeSet::new(), vec![top.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).expect("listed") {
            let entry = entry.expect("a name");
            if entry.file_type().expect("a type").is_dir() {
                left.push(entry.path());
            }
            names.insert(entry.path().strip_prefix(top).expect("below").to_owned());
        }
    }
    names
}

/// Every command that walks tells of a directory that it comes to again, and goes on with the rest.
/// All of them went round until their stack or the memory was full.
#[track_caller]
fn every_walk_ends(dir: &Path, image: &str, start: &str, told: &[&str], ino: u64) {
    let top = format!("{image}:{start}");
    let places: Vec<String> = told.iter().map(|path| format!("{image}:{path}")).collect();
    for args in [&["tree"][..], &["ls", "-R"], &["manifest"]] {
        let printed = tells(&[args, &[&top]].concat(), &places, ino);
        let files = printed.matches('z').count();
        assert!(files >= 2, "{args:?}: what comes behind the damage: {printed}");
    }
    let out = dir.join("out");
    tells(&["cp", "-a", &top, out.to_str().expect("text")], &places, ino);
    let found = names(&out);
    assert!(found.iter().filter(|path| path.ends_with("z")).count() >= 2, "{found:?}");
    judge::run_ok("rm", &[&"-rf", &out]);
    let tar = format!("{}:", dir.join("out.tar").display());
    tells(&["cp", "-a", &top, &tar], &places, ino);
    let copy = dir.join("copy.img").display().to_string();
    ok(&["mkfs", "-t", "ext4", "--size", "64M", "--force", &copy]);
    tells(&["cp", "-r", &top, &format!("{copy}:/")], &places, ino);
    judge::e2fsck(Path::new(&copy)).expect("the copy is sound");
    let checked = bounded(&["check", image]);
    assert_eq!(checked.status.code(), Some(4), "{checked:?}");
}

#[test]
fn a_directory_below_itself_is_told_once() {
    for format in FORMATS {
        for at in ["/a", "/a/b", "/"] {
            let dir = tempfile::tempdir().expect("a directory");
            let (image, ino) = damaged(dir.path(), format, "loop", at);
            every_walk_ends(dir.path(), &image, "/", &["/a/b/loop"], ino);
            // Also where the walk begins below the directory that is named.
            every_walk_ends(dir.path(), &image, "/a", &["/a/b/loop"], ino);
        }
    }
}

#[test]
fn a_directory_with_two_names_is_told_once() {
    for format in FORMATS {
        let dir = tempfile::tempdir().expect("a directory");
        let (image, ino) = damaged(dir.path(), format, "twin", "/a/c");
        // Names are sorted, but for copies, which go by inode numbers: either may come first.
        every_walk_ends(dir.path(), &image, "/", &["/a/c", "/a/b/twin"], ino);
    }
}

/// What lies above, or belongs elsewhere, is not removed through a name that should not be; the
/// rest goes.
#[test]
fn a_removal_stays_below_its_start() {
    for format in FORMATS {
        for (name, at) in [("loop", "/a"), ("loop", "/"), ("twin", "/other")] {
            let dir = tempfile::tempdir().expect("a directory");
            let (image, ino) = damaged(dir.path(), format, name, at);
            let top = format!("{image}:/a");
            tells(&["rm", "-r", &top], &[format!("{image}:/a/b/{name}")], ino);
            let left = ok(&["manifest", &format!("{image}:/z")]);
            assert!(left.contains("\"/z\""), "{left}");
            let below = ok(&["ls", &format!("{image}:/a")]);
            assert_eq!(below, "b\n", "{format}: {at}");
            assert_eq!(ok(&["ls", &format!("{image}:/other")]), "kept\n", "{format}");
        }
    }
}

const LEVELS: usize = 5000;

/// A chain of directories on the host, with a file at its end.
fn chain(tree: &Path, levels: usize) {
    fs::create_dir(tree).expect("a directory");
    let mut at = openat(CWD, tree, OFlags::RDONLY, Mode::empty()).expect("opened");
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).expect("made");
        at = openat(&at, "d", OFlags::RDONLY, Mode::empty()).expect("opened");
    }
    openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644)).expect("made");
}

/// The command succeeds in bounded time and memory; answers its output.
#[track_caller]
fn succeeds(args: &[&str]) -> Vec<u8> {
    let output = bounded(args);
    let error = String::from_utf8_lossy(&output.stderr);
    let (length, end) = (error.len(), error.len().saturating_sub(300));
    let end = error.get(end..).unwrap_or_default();
    assert!(output.status.success(), "{args:?}: {}: {length} bytes, .. {end}", output.status);
    output.stdout
}

fn lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

/// A tree that is much deeper than there are descriptors or stack: in, out, and gone. Without the
/// sandbox: the kernel's Landlock looks at every directory above at each open, which makes the time
/// of the host's side grow with the square of the depth.
#[test]
fn a_tree_of_5000_levels() {
    let dir = tempfile::tempdir().expect("a directory");
    let tree = dir.path().join("tree");
    chain(&tree, LEVELS);
    let text = |path: &Path| path.display().to_string();
    for format in FORMATS {
        let image = image(dir.path(), format);
        let top = format!("{image}:/tree");
        succeeds(&["--no-sandbox", "cp", "-a", &text(&tree), &format!("{image}:/")]);
        assert_eq!(lines(&succeeds(&["manifest", &top])), LEVELS + 2, "{format}");
        assert_eq!(lines(&succeeds(&["tree", &top])), LEVELS + 4, "{format}");
        assert_eq!(lines(&succeeds(&["find", &top])), LEVELS + 2, "{format}");
        assert_eq!(lines(&succeeds(&["du", &top])), LEVELS + 1, "{format}");
        assert!(lines(&succeeds(&["ls", "-R", &top])) > 2 * LEVELS, "{format}");
        let out = dir.path().join("out");
        succeeds(&["--no-sandbox", "cp", "-a", &top, &text(&out)]);
        let found = judge::run_ok("find", &[&out, &"-name", &"file", &"-printf", &"%d"]);
        assert_eq!(found.trim(), (LEVELS + 1).to_string(), "{format}");
        judge::run_ok("rm", &[&"-rf", &out]);
        let tar = format!("{}:", text(&dir.path().join("out.tar")));
        succeeds(&["--no-sandbox", "cp", "-a", &top, &tar]);
        succeeds(&["rm", "-r", &top]);
        succeeds(&["--no-sandbox", "cp", "-a", &tar, &format!("{image}:/")]);
        succeeds(&["check", &image]);
        assert_eq!(lines(&succeeds(&["manifest", &top])), LEVELS + 2, "{format}");
    }
    judge::run_ok("rm", &[&"-rf", &tree]);
}

/// A tree of many levels, in memory that does not grow with the sum of its paths: in, counted,
/// checked, planned for repair, out again, into another image, gone. Listings, whose output is all
/// of its paths, are tried at 5,000 levels. The long run, by `IOPATH_LEVELS=100000`: where that sum
/// is 10 GB. The sandbox is on up to 1,000 levels.
#[test]
fn a_tree_deeper_than_its_paths_fit_into_memory() {
    let levels = std::env::var("IOPATH_LEVELS").ok();
    let levels = levels.map_or(1_000, |text| text.parse().expect("a number"));
    let copies = |from: &str, to: &str| {
        let sandbox: &[&str] = if levels > 1000 { &["--no-sandbox"] } else { &[] };
        succeeds(&[sandbox, &["cp", "-a", from, to]].concat())
    };
    // Its own removal would go down by the stack, if a test fails.
    let dir = std::mem::ManuallyDrop::new(tempfile::tempdir().expect("a directory"));
    let tree = dir.path().join("tree");
    chain(&tree, levels);
    let text = |path: &Path| path.display().to_string();
    let images = FORMATS.map(|format| {
        let image = dir.path().join(format!("{format}.img")).display().to_string();
        let inodes = (levels + 1000).to_string();
        let small: &[&str] = if format == "ext4" { &["-b", "1024", "-N", &inodes] } else { &[] };
        let args = [&["mkfs", "-t", format, "--size", "640M"][..], small, &[&image]].concat();
        ok(&args);
        image
    });
    for (format, image, other) in
        [("ext4", &images[0], &images[1]), ("xfs", &images[1], &images[0])]
    {
        let top = format!("{image}:/tree");
        copies(&text(&tree), &format!("{image}:/"));
        assert_eq!(lines(&succeeds(&["du", "-s", &top])), 1, "{format}");
        let found = succeeds(&["find", &top, "-type", "f"]);
        let path = found.rsplit(|&byte| byte == b':').next().expect("a place");
        let depth = path.iter().filter(|&&byte| byte == b'/').count();
        assert_eq!(depth, levels + 2, "{format}");
        succeeds(&["check", image]);
        succeeds(&["repair", "-n", image]);
        if format == "xfs" {
            succeeds(&["rm", "-r", &format!("{other}:/tree")]);
            copies(&top, &format!("{other}:/"));
            let out = dir.path().join("out");
            copies(&top, &text(&out));
            judge::run_ok("rm", &[&"-rf", &out]);
            succeeds(&["rm", "-r", &top]);
        }
    }
    for image in &images {
        succeeds(&["check", image]);
    }
    judge::run_ok("rm", &[&"-rf", &dir.path()]);
}
