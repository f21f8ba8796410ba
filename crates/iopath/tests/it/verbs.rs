//! The command's manners, beside those of the real tools: what failed for users of six kinds. Needs
//! root, e2fsprogs, xfsprogs and util-linux.

#![allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::command::{bash_in, iopath, iopath_in, ok, ok_in};
use serde_json::Value;
use testkit::judge;

struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    /// A directory with an image `v.img` of this format.
    fn new(format: &str) -> Lab {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let dir = tempfile::tempdir_in(place).expect("a directory");
        let size = if format == "xfs" { "300M" } else { "20M" };
        ok_in(dir.path(), &format!("mkfs -q -t {format} --size {size} v.img"));
        Lab { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn bash(&self, script: &str) -> Output {
        bash_in(self.dir.path(), script)
    }

    fn ok(&self, line: &str) -> String {
        ok_in(self.dir.path(), line)
    }

    /// The command fails with this status; answers what it says.
    #[track_caller]
    fn fails(&self, status: i32, line: &str) -> String {
        let output = iopath_in(self.dir.path(), line);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(status), "{line}: {error}");
        error
    }
}

/// Each came as a symlink to /proc/self/fd.
#[test]
fn standard_input_and_pipes_are_copied_as_files() {
    let lab = Lab::new("ext4");
    fs::write(lab.path("big"), vec![7; 3_000_000]).expect("written");
    let done = lab.bash(
        "set -e
         echo one | iopath cp /dev/stdin v.img:/one
         echo two | iopath cp - v.img:/two
         iopath cp <(echo three) v.img:/three
         mkfifo pipe; cat big > pipe & iopath cp pipe v.img:/four; wait
         iopath cp /proc/version v.img:/version
         iopath cp v.img:/one - > out; iopath cp v.img:/two /dev/stdout | cat >> out",
    );
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for (name, content) in [("one", "one\n"), ("two", "two\n"), ("three", "three\n")] {
        assert_eq!(lab.ok(&format!("cat v.img:/{name}")), content);
    }
    assert_eq!(lab.ok("cat v.img:/four").len(), 3_000_000);
    assert_eq!(lab.ok("cat v.img:/version"), fs::read_to_string("/proc/version").expect("read"));
    assert_eq!(fs::read_to_string(lab.path("out")).expect("read"), "one\ntwo\n");
    judge::e2fsck(&lab.path("v.img")).expect("sound");
}

/// `../v.img:/f` was a path of the host for cp alone.
#[test]
fn images_in_other_directories_are_images() {
    let lab = Lab::new("ext4");
    lab.ok("touch v.img:/f");
    for dir in ["below", "a:", "a:/b"] {
        fs::create_dir(lab.path(dir)).expect("made");
    }
    ok_in(&lab.path("below"), "cp ../v.img:/f x");
    ok_in(&lab.path("below"), "cp x ../v.img:/g");
    assert!(lab.path("below/x").is_file());
    assert_eq!(lab.ok("ls v.img:/"), "f\ng\nlost+found\n");
    // What has a colon of its own stays the host's.
    fs::write(lab.path("a"), "").expect("written");
    lab.ok("cp v.img:/f ./a:/b");
    assert!(lab.path("a:/b/f").is_file());
}

/// rm(1), cat(1) and stat(1) go on behind a name that is missing; ours stopped.
#[test]
fn what_follows_a_missing_name_is_done() {
    let lab = Lab::new("ext4");
    lab.bash("touch f; echo g > g; iopath cp f g v.img:/");
    for tool in ["cat", "stat", "rm"] {
        let real = lab.bash(&format!("{tool} nope g"));
        let ours = lab.bash(&format!("iopath {tool} v.img:/nope v.img:/g"));
        assert_eq!(real.status.code(), ours.status.code(), "{tool}");
        assert_eq!(String::from_utf8_lossy(&ours.stderr).lines().count(), 1, "{tool}");
        assert!(tool == "rm" || !ours.stdout.is_empty(), "{tool}");
    }
    assert_eq!(lab.ok("ls v.img:/"), "f\nlost+found\n");
    assert_eq!(lab.bash("rm -f nope").status, lab.bash("iopath rm -f v.img:/nope").status);
    assert_eq!(lab.bash("rm -f").status, lab.bash("iopath rm -f").status);
}

/// `ls -l` shows symlinks, as ls(1) does, and one that leads nowhere is there.
#[test]
fn ls_shows_symlinks_as_ls_does() {
    let lab = Lab::new("ext4");
    fs::create_dir_all(lab.path("t/dir")).expect("made");
    fs::write(lab.path("t/dir/inside"), "").expect("written");
    symlink("dir", lab.path("t/dlink")).expect("made");
    symlink("nowhere", lab.path("t/dangling")).expect("made");
    lab.ok("cp -a t v.img:/");
    for name in ["dlink", "dangling", "dir", "dlink/", "dangling/", "missing"] {
        for options in ["", "-l ", "-d "] {
            let real = lab.bash(&format!("cd t; ls {options}{name} | grep -v total | cut -c1"));
            let ours =
                lab.bash(&format!("iopath ls {options}v.img:/t/{name} | sed s,/t/,, | cut -c1"));
            let (real, ours) = (real.stdout, ours.stdout);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_string();
            assert_eq!(text(&real), text(&ours), "ls {options}{name}");
        }
    }
    assert!(lab.bash("iopath ls -lh v.img:/t; iopath df -h v.img").status.success());
    let help = [lab.ok("help cp"), lab.ok("cp --help"), lab.ok("cp -h")];
    assert!(help.iter().all(|help| help.contains("iopath cp motd")), "{}", help[0]);
    assert!(lab.ok("mkdir --help").lines().count() <= 38, "{}", lab.ok("mkdir --help"));
}

/// The image's own names of users are shown and taken.
#[test]
fn owners_have_the_names_of_the_image() {
    let lab = Lab::new("ext4");
    let passwd = "root:x:0:0::/:\nweb:x:33:34::/:\n";
    lab.ok("mkdir v.img:/etc");
    fs::write(lab.path("passwd"), passwd).expect("written");
    fs::write(lab.path("group"), "www:x:34:\n").expect("written");
    lab.ok("cp passwd group v.img:/etc");
    lab.ok("cp --owner web: --chmod u=rw,go= passwd v.img:/kept");
    assert!(lab.ok("ls -l v.img:/kept").starts_with("-rw------- 1 web www "));
    lab.ok("mkdir -p v.img:/a/b");
    lab.ok("chown -R web:www v.img:/a");
    assert!(lab.ok("ls -ldn v.img:/a/b").contains(" 33 34 "));
    let error = lab.fails(1, "chown nobody v.img:/a");
    assert!(error.contains("/etc/passwd of v.img"), "{error}");
}

/// chmod(1) by the real one: `-R` was taken for a mode.
#[test]
fn modes_are_those_of_chmod() {
    let lab = Lab::new("ext4");
    let modes = [
        "755",
        "4711",
        "02755",
        "a+r",
        "u+rwX,go-w",
        "g=u",
        "o=g,u+s",
        "+t",
        "-x",
        "=r",
        "ug+s",
        "u=rwx,g=rx,o=",
        "a=",
        "go=u-w",
        "+X",
        "00755",
        "u+s,g+s,o+t",
        "-w",
    ];
    for mode in modes {
        fs::create_dir_all(lab.path("t/d")).expect("made");
        fs::write(lab.path("t/f"), "").expect("written");
        fs::set_permissions(lab.path("t/d"), fs::Permissions::from_mode(0o2751)).expect("set");
        fs::set_permissions(lab.path("t/f"), fs::Permissions::from_mode(0o640)).expect("set");
        lab.bash("iopath rm -rf v.img:/t; iopath cp -a t v.img:/t");
        let real = lab.bash(&format!("chmod -R -- {mode} t")).status;
        let ours = lab.bash(&format!("iopath chmod -R -- {mode} v.img:/t"));
        assert_eq!(real.code(), ours.status.code(), "{mode}: {ours:?}");
        for name in ["t", "t/d", "t/f"] {
            let stat: Value =
                serde_json::from_str(&lab.ok(&format!("stat --json v.img:/{name}"))).expect("JSON");
            let real = fs::metadata(lab.path(name)).expect("there").permissions().mode() & 0o7777;
            assert_eq!(stat["mode"], format!("{real:04o}"), "chmod -R {mode}: {name}");
        }
    }
}

/// One inode that cannot be read costs one line: `ls -l` of its directory printed nothing.
#[test]
fn an_unreadable_inode_costs_one_line() {
    for format in ["ext4", "xfs"] {
        let lab = Lab::new(format);
        lab.ok("mkdir -p v.img:/a v.img:/d/below");
        lab.ok("touch v.img:/d/bad v.img:/d/before v.img:/d/good v.img:/d/below/x v.img:/z");
        let image = lab.path("v.img");
        if format == "ext4" {
            judge::debugfs(&image, true, "clri /d/bad\n");
        } else {
            let listed = lab.ok("ls -i v.img:/d/bad");
            let inode = format!("inode {}", listed.trim().split(' ').next().expect("a number"));
            judge::run_ok(
                "xfs_db",
                &[&"-x", &"-c", &inode, &"-c", &"write -d core.magic 0", &image],
            );
        }
        for (command, kept) in [
            ("ls -l v.img:/d", vec!["?????????? ", "before", "below", "good"]),
            ("ls -lR v.img:/", vec!["?????????? ", "good", "x", "z"]),
            ("ls --json v.img:/d", vec!["cannot be read", "before", "good"]),
            ("tree v.img:/", vec!["bad [cannot be read]", "x", "good", "z"]),
            ("tree --json v.img:/", vec!["cannot be read", "good", "/z"]),
            ("manifest v.img:/", vec!["\"error\"", "/d/below/x", "/d/good", "/z"]),
        ] {
            let output = iopath_in(lab.dir.path(), command);
            let printed = String::from_utf8_lossy(&output.stdout);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{format}: {command}: {error}");
            assert_eq!(error.lines().count(), 1, "{format}: {command}: {error}");
            assert!(error.contains("/d/bad"), "{format}: {command}: {error}");
            for kept in kept {
                assert!(printed.contains(kept), "{format}: {command}: {kept}: {printed}");
            }
        }
        let json = iopath_in(lab.dir.path(), "ls --json v.img:/d");
        let error: Value = serde_json::from_slice(&json.stderr).expect("an error in JSON");
        assert!(error["error"].as_str().is_some_and(|text| text.contains("bad")), "{error}");
    }
}

/// A start of zeros was called blank, with the advice to make a file system, which mkfs then did.
#[test]
fn a_lost_start_is_not_blank() {
    for (format, how) in [("ext4", "e2fsck -b 8193 -B 1024"), ("xfs", "xfs_repair")] {
        let lab = Lab::new(format);
        lab.bash("dd if=/dev/zero of=v.img bs=1M count=1 conv=notrunc status=none");
        let info = lab.ok("info v.img");
        assert!(info.contains(how) && !info.contains("mkfs"), "{info}");
        for (command, status) in [("ls v.img", 1), ("check v.img", 8), ("cat v.img:/x", 1)] {
            let error = lab.fails(status, command);
            assert!(error.contains(how) && !error.contains("mkfs"), "{error}");
        }
        let error = lab.fails(1, "mkfs v.img");
        assert!(error.contains("--force") && error.contains("copy of a superblock"), "{error}");
        if format == "ext4" {
            // What is said is true.
            lab.bash("cp v.img copy.img; e2fsck -fy -b 8193 -B 1024 copy.img");
            assert!(judge::e2fsck(&lab.path("copy.img")).is_ok());
        }
        lab.ok("mkfs -q -F v.img");
    }
    // An image that was never one is as blank as it was.
    let lab = Lab::new("ext4");
    fs::File::create(lab.path("new.img")).and_then(|f| f.set_len(20 << 20)).expect("made");
    assert!(lab.ok("info new.img").contains("iopath mkfs"));
    lab.ok("mkfs -q new.img");
}

/// The second copy of a GPT, alone, and beside a damaged first one, which showed as MBR.
#[test]
fn a_second_gpt_is_found() {
    let lab = Lab::new("ext4");
    let made = lab.bash(
        "truncate -s 64M disk.img
         printf 'label: gpt\\nsize=20M, name=one\\nsize=20M, name=two\\n' | sfdisk -q disk.img
         iopath mkfs -q -L here disk.img@2",
    );
    assert!(made.status.success(), "{made:?}; sfdisk: apt-get install fdisk");
    let info = lab.ok("info disk.img");
    assert!(info.contains("disk.img@2: `two` ext4, 20.0 MiB"), "{info}");
    lab.bash("dd if=/dev/zero of=disk.img bs=1 seek=600 count=8 conv=notrunc status=none");
    let info = lab.ok("info disk.img");
    assert!(info.contains("GPT") && info.contains("wrong checksum"), "{info}");
    lab.bash("dd if=/dev/zero of=disk.img bs=512 count=40 conv=notrunc status=none");
    let error = lab.fails(1, "ls disk.img");
    assert!(error.contains("second copy of a GPT") && error.contains("disk.img@2"), "{error}");
    assert!(lab.ok("info disk.img").contains("disk.img@2"));
    assert!(lab.fails(1, "mkfs disk.img").contains("--force"));
    assert_eq!(lab.ok("ls disk.img@2"), "lost+found\n");
}

/// `info` shows that the log of an XFS is dirty; what is not known is named by its word.
#[test]
fn states_and_options_are_named() {
    let lab = Lab::new("xfs");
    assert!(lab.ok("info v.img").contains("state: clean"));
    judge::run_ok("xfs_io", &[&"-c", &"help", &lab.path("v.img")]);
    let mount = judge::LoopMount::new(&lab.path("v.img"), "xfs", "").expect("mounted");
    fs::write(mount.path().join("a"), "a").expect("written");
    judge::run_ok("xfs_io", &[&"-x", &"-c", &"shutdown -f", &mount.path()]);
    drop(mount);
    let info = lab.ok("info v.img");
    assert!(info.contains("its log must be replayed"), "{info}");
    lab.ok("replay -q v.img");
    assert!(lab.ok("info v.img").contains("state: clean"));
    let error = lab.fails(2, "mkfs -F -t btrfs v.img");
    assert!(error.contains("xfs"), "{error}");
    lab.ok("mkfs -q -F -t ext4 v.img");
    let error = lab.fails(1, "ls -o norecovery v.img");
    assert!(error.contains("`norecovery`"), "{error}");
    let error = lab.fails(1, "cp nope v.img:/");
    assert!(error.contains(" nope: ") && !error.contains("nope/"), "{error}");
}

/// One shape of JSON: a file by its directory and name, a line for each machine, attributes by
/// name.
#[test]
fn json_has_one_shape() {
    let lab = Lab::new("ext4");
    lab.ok("mkdir v.img:/a");
    lab.ok("touch v.img:/a/f");
    lab.ok("xattr set v.img:/a/f user.x y");
    let one = |line: &str| serde_json::from_str::<Value>(&lab.ok(line)).expect("JSON");
    let listed = one("ls --json v.img:/a/f");
    assert_eq!((&listed["directory"], &listed["name"]), (&"/a".into(), &"f".into()));
    assert_eq!(one("stat --json v.img:/a/f")["xattrs"]["user.x"], "79");
    assert_eq!(one("df --json v.img")["format"], "ext4");
    for line in lab.ok("machines --json").lines() {
        assert!(serde_json::from_str::<Value>(line).expect("JSON")["name"].is_string());
    }
    let error = lab.fails(1, "ls --json nope.img");
    assert!(serde_json::from_str::<Value>(&error).expect("JSON")["error"].is_string());
    ok(&["man", "-q", &lab.path("man").display().to_string()]);
    let page = fs::read_to_string(lab.path("man/iopath-mkdir.1")).expect("a page");
    assert!(page.contains("cache\\-size"), "{page}");
    assert!(!lab.path("man/iopath-help.1").exists());
}

/// Wildcards inside images, as sh(1) expands them.
#[test]
fn wildcards_are_expanded_inside_images() {
    let lab = Lab::new("ext4");
    lab.bash("mkdir -p t/log t/.hid; touch t/log/a.gz t/log/b.gz t/log/.c.gz t/log/d t/.hid/e.gz");
    lab.ok("cp -a t v.img:/");
    fs::create_dir(lab.path("out")).expect("made");
    lab.ok("cp v.img:/t/log/*.gz out");
    let mut names: Vec<_> =
        fs::read_dir(lab.path("out")).expect("listed").map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.gz", "b.gz"]);
    lab.ok("rm v.img:/t/*/?.gz");
    assert_eq!(lab.ok("ls -a v.img:/t/log"), ".c.gz\nd\n");
    lab.ok("cp -r --exclude *.gz --exclude log/d t v.img:/new");
    assert_eq!(lab.ok("ls -aR v.img:/new"), "/new:\n.hid\nlog\n\n/new/.hid:\n\n/new/log:\n");
    assert!(!iopath(&["rm", &format!("{}:/x*", lab.path("v.img").display())]).status.success());
}

/// du(1) and find(1) by the real ones, on the kernel's mount of the image.
#[test]
fn du_and_find_are_those_of_the_kernel() {
    let lab = Lab::new("ext4");
    lab.bash(
        "mkdir -p t/a/b t/c; yes | head -c 70000 > t/a/b/y; echo s > t/a/S.Conf; touch t/c/e
         ln t/a/b/y t/a/b/again; ln -s a t/link; truncate -s 1M t/c/holes
         touch -d '-5 days' t/c/e",
    );
    lab.ok("cp -a t v.img:/");
    lab.ok("mknod -m 640 v.img:/t/null c 1 3");
    lab.ok("mknod v.img:/t/pipe p");
    let mount = judge::LoopMount::new(&lab.path("v.img"), "ext4", "ro").expect("mounted");
    let top = mount.path().display().to_string();
    let sorted = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace("v.img:", "").replace(&top, "");
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    // The image is in use by the loop device: ours reads a copy.
    lab.bash("cp v.img w.img; mv w.img v.img");
    for options in ["", "-s", "-a", "-b"] {
        // Of two names of one file, du prints the one that the directory lists first: the kernel
        // lists by the hash of the name, whose seed is random.
        let one_name = "sed s,/b/again$,/b/y,";
        let real = lab.bash(&format!("du {options} {top}/t | {one_name}"));
        let ours = lab.bash(&format!("iopath du {options} v.img:/t | {one_name}"));
        assert_eq!(sorted(&real.stdout), sorted(&ours.stdout), "du {options}");
    }
    for tests in [
        "",
        "-name '*y*'",
        "-iname s.c*",
        "-type f",
        "-type d",
        "-type l",
        "-type c",
        "-type p",
        "-size +10k",
        "-size -2k",
        "-size 137",
        "-mtime +3",
        "-mtime -1",
        "-maxdepth 1",
        "-maxdepth 0",
        "-type f -size +1 -name 'h*'",
        "-print0",
    ] {
        let real = lab.bash(&format!("find {top}/t {tests} | tr '\\0' '\\n'"));
        let ours = lab.bash(&format!("iopath find v.img:/t {tests} | tr '\\0' '\\n'"));
        assert!(ours.status.success(), "find {tests}");
        assert_eq!(sorted(&real.stdout), sorted(&ours.stdout), "find {tests}");
    }
}

/// A tree is copied into an encrypted directory and out again by its key; without it names are
/// listed in their no-key form and removed, and the error says how to go on.
#[test]
fn an_encrypted_directory_is_used_with_its_key_and_emptied_without() {
    let lab = Lab::new("ext4");
    fs::write(lab.path("k"), [7; 64]).expect("a key");
    fs::write(lab.path("short"), [7; 15]).expect("no key");
    fs::create_dir(lab.path("tree")).expect("a directory");
    fs::write(lab.path("tree/a name"), "content").expect("a file");
    symlink("a name", lab.path("tree/link")).expect("a link");
    lab.ok("mkfs -q -t ext4 -O encrypt --size 20M e.img");
    lab.ok("mkdir e.img:/s v.img:/s");
    let id = lab.ok("encrypt id --key k");
    let id = id.split(' ').next().expect("an identifier").to_string();
    assert_eq!(id.len(), 32);
    lab.ok("encrypt set --key k e.img:/s");
    let policy: Value =
        serde_json::from_str(&lab.ok("encrypt show --json e.img:/s")).expect("JSON");
    assert_eq!((policy["key"].as_str(), policy["padding"].as_u64()), (Some(&*id), Some(32)));
    lab.ok("cp -a --key k tree e.img:/s/");
    lab.ok("cp -a --key k e.img:/s/tree back");
    let same = lab.bash("diff -r tree back && [ -L back/link ]");
    assert!(same.status.success(), "{same:?}");
    judge::e2fsck(&lab.path("e.img")).expect("sound");
    // Every command said that a key on standard input had no bytes: the line was parsed twice.
    let piped = lab.bash("iopath ls --key - e.img:/s < k");
    assert_eq!(piped.stdout, b"tree\n", "{piped:?}");

    // The kernel's payload of the same key, in either order of bytes; a wrong length.
    let key = fs::read(lab.path("k")).expect("the key");
    let payload = |size: [u8; 4]| [&[0; 4], &key[..], &vec![0; 64 - key.len()], &size].concat();
    let size = key.len() as u32;
    for size in [size.to_le_bytes(), size.to_be_bytes()] {
        fs::write(lab.path("payload"), payload(size)).expect("a payload");
        assert_eq!(lab.ok("ls --key payload e.img:/s"), "tree\n");
    }
    for size in [15u32, 65] {
        fs::write(lab.path("payload"), payload(size.to_le_bytes())).expect("a payload");
        let error = lab.fails(2, "ls --key payload e.img:/s");
        assert!(error.contains("payload") && error.contains(&size.to_string()), "{error}");
    }

    let top = lab.ok("ls e.img:/s");
    assert!(!top.contains("tree") && top.trim().len() > 20, "{top}");
    let error = lab.fails(1, "cat e.img:/s/tree");
    assert!(error.contains("ENOENT"), "{error}");
    let inside = format!("e.img:/s/{}", top.trim());
    let names = lab.ok(&format!("find {inside} -type f"));
    let error = lab.fails(1, &format!("cat e.img:{}", names.trim().trim_start_matches("e.img:")));
    assert!(error.contains("ENOKEY") && error.contains("--key FILE"), "{error}");
    // Whoever gives another key is told which one it is, and which one it has to be.
    fs::write(lab.path("other"), [8; 64]).expect("a key");
    let other = lab.ok("encrypt id --key other");
    let other = other.split(' ').next().expect("an identifier");
    let error = lab.fails(1, "cat --key other e.img:/s/tree");
    assert!(error.contains(&id) && error.contains(other) && error.contains("ENOENT"), "{error}");
    let error = lab.fails(1, "mkdir --key other e.img:/s/new");
    assert!(error.contains(&id) && error.contains(other) && error.contains("ENOKEY"), "{error}");
    let error = lab.fails(1, "cat e.img:/s/tree");
    assert!(error.contains(&id) && error.contains("no key was given"), "{error}");
    lab.ok(&format!("rm -r {inside}"));
    assert_eq!(lab.ok("ls e.img:/s"), "");

    assert!(lab.fails(2, "ls --key short e.img:/").contains("15 bytes"));
    assert!(lab.fails(2, "ls --key nowhere e.img:/").contains("nowhere"));
    lab.fails(1, "encrypt show e.img:/");
    let error = lab.fails(1, "encrypt set --key k v.img:/s");
    assert!(error.contains("ENOTSUP") || error.contains("EOPNOTSUPP"), "{error}");
    judge::e2fsck(&lab.path("e.img")).expect("sound");
}

/// `manifest`, `du`, `find` and `chmod -R` counted names on a terminal, if at all, and did not say
/// how many there are nor how long the rest takes.
#[test]
fn a_walk_through_an_image_shows_how_long_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for number in 0..10_000 {
        let folder = dir.join(format!("tree/{}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&folder).unwrap();
        }
        fs::write(folder.join(number.to_string()), "x").unwrap();
    }
    ok_in(dir, "mkfs -q -t ext4 -d tree p.img");
    for words in ["manifest", "du -s"] {
        let line = format!(
            "for n in 1 2 3; do {} {words} p.img: > out; done",
            env!("CARGO_BIN_EXE_iopath")
        );
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(dir).env("TERM", "xterm");
        let output = script.stdin(Stdio::null()).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{shown}");
        let says = |line: &str| line.contains(" of 101") && line.contains(" left [");
        assert!(shown.split('\r').any(says), "{words}: {shown}");
    }
}
