//! `iopath diff` finds what was changed, and nothing in copies by rsync, tar and the kernel.
//! Needs root, rsync, attr, acl.

use std::path::Path;
use std::process::Command;

use crate::command::{iopath_in, ok_in};
use serde_json::Value;

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let bench = Bench { dir: tempfile::tempdir_in(place).expect("a directory") };
        bench.bash(
            "mkdir -p a/dir/sub a/gone/below; echo one > a/one; echo two > a/dir/two
             ln a/one a/hard; ln -s one a/link; mknod a/null c 1 3; echo x > a/gone/below/x
             truncate -s 1M a/holes; echo end >> a/holes; setfattr -n user.k -v v a/one
             head -c 600000 /dev/urandom > a/large; setfacl -m u:5:r a/dir/two",
        );
        bench
    }

    #[track_caller]
    fn bash(&self, script: &str) {
        let mut bash = Command::new("bash");
        let output = bash.args(["-ec", script]).current_dir(self.dir.path()).output();
        let output = output.expect("bash starts");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Status and lines.
    fn diff(&self, line: &str) -> (i32, Vec<String>) {
        let output = iopath_in(self.dir.path(), &format!("diff {line}"));
        let text = String::from_utf8(output.stdout).expect("text");
        let status = output.status.code().expect("it ended");
        (status, text.lines().map(str::to_owned).collect())
    }
}

#[test]
fn equal_trees_do_not_differ() {
    let bench = Bench::new();
    let dir = bench.dir.path();
    ok_in(dir, "mkfs -q -d a e.img");
    ok_in(dir, "mkfs -q -t xfs -d a x.img");
    bench.bash(
        "tar cf a.tar --xattrs --acls --format=posix -C a .; gzip -k a.tar
                rsync -aHAX --whole-file --no-sparse a/ b/",
    );
    for line in [
        "e.img x.img",
        "a e.img",
        "x.img:/ a",
        "a.tar: e.img",
        "a.tar.gz: a",
        "a b",
        "e.img:/dir a/dir",
        "--times e.img x.img",
    ] {
        assert_eq!(bench.diff(line), (0, vec![]), "{line}");
    }
}

#[test]
fn every_change_is_one_line() {
    let bench = Bench::new();
    let dir = bench.dir.path();
    ok_in(dir, "mkfs -q -d a e.img");
    bench.bash(
        "cp -a a b; cd b; rm -r gone; chmod 640 one; chown 7:8 dir; echo 2wo > dir/two
         ln -sf two link; rm null; mknod null c 1 5; setfattr -n user.k -v w one
         dd if=/dev/urandom of=large bs=1 seek=599999 count=2 conv=notrunc status=none
         rm holes; mkdir holes; echo new > new; touch -d 2001-01-01 hard",
    );
    let (status, lines) = bench.diff("e.img b");
    assert_eq!(status, 1);
    let wanted = [
        "/dir: owner: 0:0 / 7:8",
        "/gone: only in e.img: directory",
        "/hard: attribute user.k: 0x76 / 0x77",
        "/hard: mode: 0644 / 0640",
        "/holes: type: file / directory",
        "/large: size: 600000 / 600001",
        "/link: target: one / two",
        "/new: only in b: file",
        "/null: device: 1:3 / 1:5",
        "/one: attribute user.k: 0x76 / 0x77",
        "/one: mode: 0644 / 0640",
    ];
    let (contents, others): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line.contains(": content: "));
    let mut others = others;
    others.sort();
    assert_eq!(others, wanted);
    assert_eq!(contents.len(), 1, "{contents:?}");
    assert!(contents[0].starts_with("/dir/two: content: "), "{contents:?}");
    assert_eq!(bench.diff("--no-mode --no-owner --no-xattrs --exclude holes e.img b").1.len(), 6);
    assert!(bench.diff("--times e.img b").1.iter().any(|line| line.starts_with("/one: mtime: ")));
    let json = iopath_in(dir, "diff --json e.img b");
    let lines = String::from_utf8(json.stdout).expect("text");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().any(|line| line["path"] == "/link" && line["second"] == "two"));
    // As diff(1): 2 where there is trouble.
    assert_eq!(bench.diff("e.img nope").0, 2);
    assert_eq!(bench.diff("e.img:/nope a").0, 2);
    assert_eq!(bench.diff("e.img").0, 2);
}
