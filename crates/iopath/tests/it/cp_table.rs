//! Command lines of cp(1), run by the real one between directories, and by ours into an image, out
//! of one, and inside of one: the same tree and the same exit status, or a reason, which docs/cp.md
//! gives. Needs root, and coreutils.

#![allow(clippy::disallowed_methods, reason = "the lines run in two threads")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::command::ok;
use serde_json::Value;
use testkit::judge;

const LINES: &str = include_str!("cp/lines.txt");

/// Lines, or parts of them, where ours differs, with the direction and the reason.
const REASONS: &[(&str, &[Way], &str)] = &[];

/// From where to where ours copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Into,
    OutOf,
    Inside,
}

/// What the sources, `S`, and the destination, `T`, hold.
const TREES: &str = r#"
    umask 022
    mkdir S T
    cd S
    echo one > file; echo two > exec; chmod 755 exec; echo three > secret; chmod 600 secret
    echo four > suid; chmod 4755 suid; echo five > wide; chmod 666 wide
    echo six > owned; chown 1000:1001 owned; : > empty-file
    truncate -s 300000 holes; printf x | dd of=holes bs=1 seek=100000 conv=notrunc status=none
    mkdir -p dir/sub/deep empty sticky ro setgid deep/a/b/c/d links other/dir over hards ages
    echo a > dir/a; echo b > dir/sub/b; echo c > dir/sub/deep/c; echo e > deep/a/b/c/d/e
    chmod 700 empty; echo x > sticky/x; chmod 1777 sticky; echo i > ro/inside; chmod 555 ro
    echo g > setgid/g; chgrp 1001 setgid; chmod 2775 setgid
    ln -s file link; ln -s dir dlink; ln -s nowhere dangling
    ln -s ../file links/file; ln -s ../dir links/dir; echo r > links/real
    mkdir circle; echo k > circle/k; ln -s . circle/self
    echo h > hard1; ln hard1 hard2
    echo l > hards/1; ln hards/1 hards/2; mkdir hards/sub; ln hards/1 hards/sub/3
    mkfifo -m 640 fifo; mknod null c 1 3
    echo other > other/file; echo o > other/dir/o; echo aa > other/dir/a
    echo into > over/file; mkdir over/dir; echo z > over/dir/z; echo last > over/last
    echo young > young; echo old > old; echo young > ages/young; echo old > ages/old
    mkdir owned-dir; echo q > owned-dir/q; chown -R 1000:1001 owned-dir
    echo noted > noted
    cd ../T
    echo old-file > file; chmod 640 file; echo old-exec > exec; chmod 600 exec
    mkdir -p dir over/file over/dir.d sticky hards ages e; echo old-a > dir/a; echo kept > dir/kept
    echo in-the-way > over/dir; chmod 711 sticky
    ln -s file tlink; ln -s dir tdlink; ln -s missing tdangling
    echo hard > hard1; ln hard1 hard-too; echo old-1 > hards/1
    echo now > young; echo now > old; echo now > ages/young; echo now > ages/old
    mkdir T2
    cd ..
    find S T -exec touch -h -d '2001-02-03 04:05:06.7' {} +
    touch -d '2003-01-01' S/young S/ages/young
    touch -d '2002-01-01' T/young T/old T/ages/young T/ages/old
"#;

fn shell(dir: &Path, script: &str) {
    let done = Command::new("sh").args(["-ec", script]).current_dir(dir).status();
    assert!(done.expect("sh starts").success(), "{script}");
}

/// One name of a tree in a line: type, mode, owner, names, time if it is an old one, content.
type Tree = BTreeMap<String, String>;

/// Times of today are not compared.
const LONG_AGO: i64 = 1_600_000_000_000_000_000;

fn time(nanos: i64) -> String {
    if nanos < LONG_AGO { nanos.to_string() } else { "now".into() }
}

fn on_host(top: &Path) -> Tree {
    let (mut tree, mut left) = (Tree::new(), vec![top.to_owned()]);
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).expect("it is there");
        let kind = meta.file_type();
        let (mut word, mut content) = ("file", String::new());
        if kind.is_dir() {
            word = "directory";
            left.extend(fs::read_dir(&path).expect("listed").map(|entry| entry.unwrap().path()));
        } else if kind.is_symlink() {
            word = "symlink";
            content = fs::read_link(&path).expect("a target").display().to_string();
        } else if kind.is_file() {
            content = hash(&fs::read(&path).expect("read"));
        } else if kind.is_fifo() {
            word = "fifo";
        } else {
            word = "char";
            content = meta.rdev().to_string();
        }
        let mut note = [0; 64];
        if let Ok(len) = rustix::fs::lgetxattr(&path, "user.note", &mut note[..]) {
            let _ = write!(content, " note {}", String::from_utf8_lossy(&note[..len]));
        }
        let mtime = time(meta.mtime() * 1_000_000_000 + meta.mtime_nsec());
        let names = if kind.is_dir() { 0 } else { meta.nlink() };
        let mode = if kind.is_symlink() { 0o777 } else { meta.mode() & 0o7777 };
        let (uid, gid) = (meta.uid(), meta.gid());
        let line = format!("{word} {mode:04o} {uid}:{gid} {names} {mtime} {content}");
        tree.insert(path.strip_prefix(top).expect("below").display().to_string(), line);
    }
    tree
}

fn hash(content: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(content).iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
}

fn in_image(image: &Path) -> Tree {
    let listed = ok(&["manifest", &format!("{}:/T", image.display())]);
    let mut tree = Tree::new();
    for line in listed.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_string();
        let number = |key: &str| line[key].as_i64().unwrap_or_default();
        let kind = text("type");
        let mut content = match kind.as_str() {
            "file" => text("sha256"),
            "symlink" => text("target"),
            "char" => number("rdev").to_string(),
            _ => String::new(),
        };
        if let Some(note) = line["xattrs"]["user.note"].as_str() {
            assert_eq!(note, "74657874");
            content.push_str(" note text");
        }
        let names = if kind == "directory" { 0 } else { number("nlink") };
        let (uid, gid, mode) = (number("uid"), number("gid"), text("mode"));
        let mtime = time(number("mtime_ns"));
        let line = format!("{kind} {mode} {uid}:{gid} {names} {mtime} {content}");
        let path = text("path").strip_prefix("/T").expect("below").trim_start_matches('/').into();
        tree.insert(path, line);
    }
    tree
}

fn run(program: &str, dir: &Path, args: &[String]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["10", program]).args(args).current_dir(dir).stdin(Stdio::null());
    command.output().expect("it starts")
}

/// A word of a line, with its trees where they are.
fn word(word: &str, sources: &str, destination: &str) -> String {
    let placed = |tree: &str, place: &str| {
        let below = word.strip_prefix(tree)?;
        (below.is_empty() || below.starts_with('/')).then(|| format!("{place}{below}"))
    };
    placed("S", sources).or_else(|| placed("T", destination)).unwrap_or(word.to_string())
}

struct Ground {
    dir: PathBuf,
    format: &'static str,
}

impl Ground {
    /// The trees on the host, in `base`, and in an image.
    fn new(dir: &Path, format: &'static str) -> Ground {
        shell(dir, "rm -rf base; mkdir base");
        shell(&dir.join("base"), TREES);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(dir.join("base/S/noted"), "user.note", b"text", flags).expect("set");
        let image = dir.join("base.img").display().to_string();
        let size = if format == "xfs" { "300M" } else { "8M" };
        ok(&["mkfs", "-F", "-t", format, "--size", size, &image]);
        let tree = |name: &str| dir.join("base").join(name).display().to_string();
        ok(&["cp", "-a", &tree("S"), &tree("T"), &format!("{image}:/")]);
        Ground { dir: dir.to_owned(), format }
    }

    /// What the real cp does: the tree and the status.
    fn real(&self, line: &str) -> (Tree, i32, String) {
        shell(&self.dir, "rm -rf T; /bin/cp -a base/T T; rm -f S; ln -s base/S S");
        let args: Vec<String> = line.split(' ').map(|w| word(w, "base/S", "T")).collect();
        let output = run("/bin/cp", &self.dir, &args);
        let error = String::from_utf8_lossy(&output.stderr).to_string();
        (on_host(&self.dir.join("T")), output.status.code().unwrap_or(99), error)
    }

    /// What ours does.
    fn ours(&self, line: &str, way: Way) -> (Tree, i32, String) {
        let image = self.dir.join("work.img");
        let (sources, destination) = match way {
            Way::Into => ("base/S", "work.img:/T"),
            Way::OutOf => ("base.img:/S", "T"),
            Way::Inside => ("work.img:/S", "work.img:/T"),
        };
        match way {
            Way::OutOf => shell(&self.dir, "rm -rf T; /bin/cp -a base/T T"),
            _ => shell(&self.dir, "/bin/cp --sparse=always base.img work.img"),
        }
        let mut args = vec!["cp".to_string()];
        args.extend(line.split(' ').map(|w| word(w, sources, destination)));
        let output = run(env!("CARGO_BIN_EXE_iopath"), &self.dir, &args);
        let error = String::from_utf8_lossy(&output.stderr).to_string();
        let tree = match way {
            Way::OutOf => on_host(&self.dir.join("T")),
            _ => in_image(&image),
        };
        let judged = args.len().is_multiple_of(2) && self.format == "ext4";
        if way == Way::Into && judged {
            judge::e2fsck(&image).expect("the image is sound");
        }
        (tree, output.status.code().unwrap_or(99), error)
    }
}

/// What differs, in lines; empty where nothing does.
fn differences(real: &(Tree, i32, String), ours: &(Tree, i32, String)) -> String {
    let mut text = String::new();
    if real.1 != ours.1 {
        let _ = writeln!(text, "  status: cp {}, ours {}", real.1, ours.1);
    }
    let names: std::collections::BTreeSet<_> = real.0.keys().chain(ours.0.keys()).collect();
    for name in names {
        let (theirs, own) = (real.0.get(name), ours.0.get(name));
        if theirs != own {
            let shown = |line: Option<&String>| line.cloned().unwrap_or("nothing".into());
            let _ = writeln!(text, "  {name}: cp {}\n  {name}: us {}", shown(theirs), shown(own));
        }
    }
    if !text.is_empty() {
        let _ = writeln!(text, "  cp says: {}  ours says: {}", real.2, ours.2);
    }
    text
}

fn reason(line: &str, way: Way) -> Option<&'static str> {
    let fits = |row: &&(&str, &[Way], &'static str)| row.0 == line && row.1.contains(&way);
    REASONS.iter().find(fits).map(|row| row.2)
}

/// A line with its number, the status of the real cp, and what is wrong with ours.
type Done = (usize, String, i32, String);

/// Runs one of `step` lines in these directions, in two threads, the last direction less often.
fn table(format: &'static str, ways: &[Way], step: usize) -> Vec<Done> {
    let halves = [0, 1].map(|half| {
        let ways = ways.to_vec();
        std::thread::spawn(move || {
            let memory = Path::new("/dev/shm");
            let place = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
            let dir = tempfile::tempdir_in(place).expect("a directory");
            let ground = Ground::new(dir.path(), format);
            let lines = LINES.lines().enumerate().skip(half * step).step_by(2 * step);
            lines.map(|(at, line)| one_line(&ground, &ways, at, line)).collect::<Vec<Done>>()
        })
    });
    let mut done = halves.map(|half| half.join().expect("it ends")).concat();
    done.sort();
    done
}

fn one_line(ground: &Ground, ways: &[Way], at: usize, line: &str) -> Done {
    let real = ground.real(line);
    let mut wrong = String::new();
    for &way in ways.iter().filter(|way| **way != Way::Inside || at.is_multiple_of(3)) {
        let found = differences(&real, &ground.ours(line, way));
        match reason(line, way) {
            None if found.is_empty() => {}
            None => wrong.push_str(&format!("{way:?}: cp {line}\n{found}")),
            Some(_) if found.is_empty() => {
                wrong.push_str(&format!("{way:?}: cp {line}: no difference left\n"));
            }
            Some(_) => {}
        }
    }
    (at, line.to_string(), real.1, wrong)
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cp.md");

const HEAD: &str = "\
# `iopath cp` beside cp(1)

Where `iopath cp` does what cp(1) of coreutils 9.1 does, and where it does not.

Each line below is run by the real cp between the directories `S` and `T`, and by ours with `T` in
an image, with `S` in an image, and with both in one. The tree and the exit status must be the same.
The test is `cargo test -p iopath --test iopath_it cp_table::`; this page is its output
(`IOPATH_BLESS=1`), its trees are in `tests/it/cp_table.rs`.

";

const OTHERWISE: &str = "
Otherwise than cp(1):

- Archives are unpacked as tar(1) does: what is in the way is removed first.
- A directory is refused before it is copied into itself, not after.
- A pipe or a device in an image cannot be read: with `-r` it is copied as what it is, without it is
  refused.
- Files in an image that are made without `-p` or `-a` belong to root, and follow the umask and the
  directory's default ACL and set-group-ID bit.
- `-b`, `-i`, `-l`, `-s`, `-v`, `--parents`, `--sparse` and `-Z` are not supported.
- `--exclude`, `--owner`, `--chmod`, `--tar` and wildcards inside images are additions.

## The lines

```
";

/// The page: what is said about the table, each line with its status, and what differs.
fn page(done: &[Done]) -> String {
    let mut page = String::from(HEAD);
    let _ = write!(page, "{} lines, ", done.len());
    page.push_str(match REASONS {
        [] => "none of which differs.\n",
        _ => "all the same but these:\n\n| line | reason |\n| --- | --- |\n",
    });
    for (line, _, reason) in REASONS {
        let _ = writeln!(page, "| `cp {line}` | {reason} |");
    }
    page.push_str(OTHERWISE);
    for (_, line, status, _) in done {
        let failed = if *status == 0 { "" } else { "    # fails" };
        let _ = writeln!(page, "cp {line}{failed}");
    }
    page + "```\n"
}

#[test]
fn lines_do_as_cp_on_ext4() {
    let done = table("ext4", &[Way::Into, Way::OutOf, Way::Inside], 1);
    assert!(done.len() >= 150);
    let wrong: String = done.iter().map(|line| &line.3[..]).collect();
    assert!(wrong.is_empty(), "{wrong}");
    let page = page(&done);
    if std::env::var_os("IOPATH_BLESS").is_some() {
        fs::write(PAGE, &page).expect("written");
    }
    let kept = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(kept == page, "docs/cp.md is another one: IOPATH_BLESS=1 writes it");
}

#[test]
fn lines_do_as_cp_on_xfs() {
    let done = table("xfs", &[Way::Into], 3);
    let wrong: String = done.iter().map(|line| &line.3[..]).collect();
    assert!(wrong.is_empty(), "{wrong}");
}
