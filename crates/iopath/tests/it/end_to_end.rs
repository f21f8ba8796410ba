//! The built command against images of mke2fs and of our own mkfs, judged by e2fsck and by the
//! kernel's own mount. Needs root and e2fsprogs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{iopath, ok};
use testkit::judge::{self, LoopMount};
use testkit::manifest::{self, Manifest};

/// Runs the command, which must fail with this status; answers what it complained.
#[track_caller]
fn fails(status: i32, args: &[&str]) -> String {
    let output = iopath(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "iopath {}: {error}", args.join(" "));
    assert!(!error.contains("panicked"), "iopath {}: {error}", args.join(" "));
    error
}

/// Runs a tool of the host.
#[track_caller]
fn tool(program: &str, args: &[&dyn AsRef<OsStr>]) {
    judge::run_ok(program, args);
}

struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        Lab { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A tree with everything that `-a` is to keep.
    fn tree(&self) -> PathBuf {
        let tree = self.path("tree");
        fs::create_dir_all(tree.join("sub/deep/er")).unwrap();
        fs::write(tree.join("hello"), "hello\n").unwrap();
        fs::write(tree.join("empty"), "").unwrap();
        let big: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        fs::write(tree.join("sub/big"), &big).unwrap();
        let sparse = fs::File::create(tree.join("sub/sparse")).unwrap();
        sparse.set_len(50 << 20).unwrap();
        sparse.write_all_at(b"in the middle", 20 << 20).unwrap();
        fs::hard_link(tree.join("hello"), tree.join("sub/hello too")).unwrap();
        symlink("../hello", tree.join("sub/link")).unwrap();
        symlink("x".repeat(200), tree.join("sub/long link")).unwrap();
        symlink("nowhere", tree.join("dangling")).unwrap();
        fs::write(tree.join(OsStr::from_bytes(b"not utf8 \xff\\")), "odd").unwrap();
        fs::write(tree.join("n".repeat(255)), "long name").unwrap();
        let at = |name: &str| tree.join(name);
        tool("mkfifo", &[&at("fifo")]);
        tool("mknod", &[&at("null"), &"c", &"1", &"3"]);
        tool("mknod", &[&at("disk"), &"b", &"259", &"70000"]);
        tool("setfattr", &[&"-n", &"user.note", &"-v", &"kept", &at("hello")]);
        tool("setfacl", &[&"-m", &"u:1234:rwx,g:99:r", &at("sub/big")]);
        tool("setfacl", &[&"-d", &"-m", &"u:1234:rwx", &at("sub/deep")]);
        tool("chown", &[&"1000:100000", &at("sub/big")]);
        tool("chmod", &[&"4751", &at("empty")]);
        tool("chmod", &[&"3777", &at("sub/deep/er")]);
        tool("chown", &[&"-h", &"7:8", &at("dangling")]);
        for (time, name) in [("1969-12-31 23:00:00.25 UTC", "empty"), ("2040-01-02", "sub")] {
            tool("touch", &[&"-h", &"-d", &time, &at(name)]);
        }
        tree
    }
}

/// Compares trees where one has no `lost+found`, and the root differs by it.
#[track_caller]
fn assert_same(mut left: Manifest, mut right: Manifest) {
    for manifest in [&mut left, &mut right] {
        manifest.remove(&b"lost+found".to_vec());
        if let Some(root) = manifest.get_mut(&Vec::new()) {
            (root.nlink, root.mtime_ns) = (0, 0);
        }
    }
    let diff = manifest::diff(&left, &right);
    assert!(diff.is_empty(), "left and right differ:\n{diff}");
}

fn of_command(place: &str) -> Manifest {
    manifest::parse(&ok(&["manifest", place])).expect("the command prints entries")
}

/// The part of a manifest below a directory, with that as its root.
fn below(manifest: Manifest, dir: &str) -> Manifest {
    let strip = |path: Vec<u8>| {
        let rest = path.strip_prefix(dir.as_bytes())?;
        Some(rest.strip_prefix(b"/").unwrap_or(rest).to_vec())
    };
    manifest.into_iter().filter_map(|(path, entry)| Some((strip(path)?, entry))).collect()
}

/// Puts the tree into images of every type and block size, and compares what the kernel and the
/// command itself read with what the host has.
#[test]
fn a_tree_goes_in_whole_and_the_kernel_agrees() {
    let lab = Lab::new();
    let tree = lab.tree();
    let want = manifest::of_dir(&tree).unwrap();
    let (image, name) = (lab.path("a.img"), lab.text("a.img"));
    for kind in ["ext2", "ext3", "ext4"] {
        for block in ["1024", "4096"] {
            ok(&["mkfs", "-q", "-F", "-t", kind, "-b", block, "--size", "48M", &name]);
            ok(&["cp", "-a", &format!("{}/.", tree.display()), &format!("{name}:/")]);
            judge::e2fsck(&image).unwrap();
            assert_same(want.clone(), judge::kernel_manifest(&image, kind));
            assert_same(want.clone(), of_command(&name));
        }
    }
}

/// Reads what mke2fs and the kernel wrote, edits it, and lets both look at it again.
#[test]
fn images_of_mke2fs_are_read_and_edited() {
    let lab = Lab::new();
    let tree = lab.tree();
    let (image, name) = (lab.path("b.img"), lab.text("b.img"));
    for kind in ["ext2", "ext3", "ext4"] {
        judge::mke2fs(&image, 48 << 20, &["-t", kind]);
        {
            let mount = LoopMount::new(&image, kind, "rw").unwrap();
            tool("cp", &[&"-a", &tree.join("."), &mount.path()]);
        }
        let want = manifest::of_dir(&tree).unwrap();
        assert_same(want.clone(), of_command(&name));
        let out = lab.path("out");
        ok(&["cp", "-a", &format!("{name}:/"), &out.display().to_string()]);
        assert_same(want, manifest::of_dir(&out).unwrap());
        fs::remove_dir_all(&out).unwrap();

        let at = |path: &str| format!("{name}:{path}");
        ok(&["rm", "-r", &at("/sub/deep"), &at("/null")]);
        ok(&["mkdir", "-p", "-m", "700", &at("/new/dir")]);
        ok(&["mv", &at("/hello"), ":/new/dir/moved"]);
        ok(&["ln", &at("/new/dir/moved"), ":/again"]);
        ok(&["ln", "-s", "new/dir", &at("/short")]);
        ok(&["chmod", "u=rw,go=", &at("/again")]);
        ok(&["chown", "12:34", &at("/again")]);
        ok(&["touch", "-d", "1000000000.000000001", &at("/again")]);
        ok(&["truncate", "-s", "1000", &at("/sub/big")]);
        ok(&["xattr", "set", &at("/again"), "user.more", "text"]);
        judge::e2fsck(&image).unwrap();
        assert_same(of_command(&name), judge::kernel_manifest(&image, kind));
        assert_eq!(ok(&["cat", &at("/short/moved")]), "hello\n");
        assert_eq!(ok(&["xattr", "get", &at("/again"), "user.more"]), "text");
        let line = ok(&["ls", "-l", &at("/again")]);
        assert!(line.starts_with("-rw------- 3 12 34 6 2001-09-09 01:46 "), "{line}");
    }
}

/// Archives go in and out, read and written by GNU tar too.
#[test]
fn archives_keep_everything() {
    let lab = Lab::new();
    let tree = lab.tree();
    let want = manifest::of_dir(&tree).unwrap();
    let (image, name) = (lab.path("c.img"), lab.text("c.img"));
    ok(&["mkfs", "-q", "--size", "64M", &name]);
    let tar = lab.text("gnu.tar");
    for format in ["--format=posix", "--format=gnu"] {
        let mut args: Vec<OsString> = vec![format.into(), "-Scf".into(), tar.clone().into()];
        if format == "--format=posix" {
            args.extend(["--xattrs".into(), "--xattrs-include=*".into()]);
        }
        args.extend(["-C".into(), tree.clone().into(), ".".into()]);
        let args: Vec<&dyn AsRef<OsStr>> = args.iter().map(|arg| arg as _).collect();
        tool("tar", &args);
        let place = format!("{name}:/{}", &format[9..]);
        ok(&["mkdir", &place]);
        ok(&["cp", "-a", &format!("{tar}:"), &place]);
    }
    judge::e2fsck(&image).unwrap();
    assert_same(want.clone(), below(of_command(&format!("{name}:/posix")), "posix"));
    for format in ["posix", "gnu"] {
        let place = format!("{name}:/{format}/sub/sparse");
        let stat: serde_json::Value =
            serde_json::from_str(&ok(&["stat", "--json", &place])).unwrap();
        assert!(stat["blocks"].as_u64() < Some(100), "{format}: holes stay holes: {stat}");
        assert_eq!(ok(&["cat", &place]).trim_matches('\0'), "in the middle");
    }

    let ours = lab.text("ours.tar");
    ok(&["cp", "-a", &format!("{name}:/posix/"), &format!("{ours}:")]);
    let out = lab.path("from-tar");
    fs::create_dir(&out).unwrap();
    tool("tar", &[&"--xattrs", &"--xattrs-include=*", &"-C", &out, &"-xpf", &ours]);
    assert_same(want, manifest::of_dir(&out.join("posix")).unwrap());
    let whole = iopath(&["cp", "-a", &format!("{name}:/gnu/sub"), "-"]);
    assert!(whole.status.success() && whole.stdout.len() > 3_000_000);
}

/// Copies from image to image, single files, into directories, and over what exists.
#[test]
fn copies_land_where_cp_would_put_them() {
    let lab = Lab::new();
    let tree = lab.tree().display().to_string();
    let (one, two) = (lab.text("one.img"), lab.text("two.img"));
    ok(&["mkfs", "-q", "--size", "48M", &one]);
    ok(&["mkfs", "-q", "-t", "ext2", "--size", "48M", &two]);
    ok(&["cp", "-a", &tree, &format!("{one}:/")]);
    ok(&["cp", "-a", &tree, &format!("{one}:/renamed")]);
    ok(&["cp", "-a", &tree, &format!("{one}:/renamed")]);
    assert_eq!(ok(&["ls", &one]), "lost+found\nrenamed\ntree\n");
    assert!(ok(&["ls", &format!("{one}:/renamed")]).contains("tree\n"));
    ok(&["cp", "-a", &format!("{one}:/tree"), &format!("{two}:/")]);
    let (left, right) = (below(of_command(&one), "tree"), below(of_command(&two), "tree"));
    assert!(left.len() > 15, "{} names", left.len());
    assert_eq!(manifest::diff(&left, &right), "");
    ok(&["cp", &format!("{tree}/hello"), &format!("{two}:/tree/sub/big")]);
    assert_eq!(ok(&["cat", &format!("{two}:/tree/sub/big")]), "hello\n");
    ok(&["cp", &format!("{two}:/tree/hello"), &lab.text("single")]);
    assert_eq!(fs::read_to_string(lab.path("single")).unwrap(), "hello\n");
    let error = fails(1, &["cp", &tree, &format!("{two}:/")]);
    assert!(error.contains("-r or -a"), "{error}");
    let error = fails(1, &["cp", &format!("{two}:/"), &lab.text("not made")]);
    assert!(error.contains("-r or -a") && !lab.path("not made").exists(), "{error}");
    for (from, to) in [("/", "/tree/sub"), ("/tree", "/"), ("/tree", "/tree/sub/new")] {
        let error = fails(1, &["cp", "-a", &format!("{two}:{from}"), &format!("{two}:{to}")]);
        assert!(error.contains("itself") || error.contains("the same"), "{error}");
    }
    ok(&["cp", "-a", &format!("{two}:/tree/sub"), &format!("{two}:/copy")]);
    let error = fails(1, &["cp", "-a", &tree, &format!("{two}:/missing/place")]);
    assert!(error.contains("mkdir -p"), "{error}");
    judge::e2fsck(Path::new(&one)).unwrap();
    judge::e2fsck(Path::new(&two)).unwrap();
}

/// Somebody who is not root gets everything but owners and devices. As with cp(1) a device that
/// cannot be made is a failure.
#[test]
fn without_root_owners_and_devices_are_left_out() {
    use std::os::unix::process::CommandExt;
    let lab = Lab::new();
    let tree = lab.tree().display().to_string();
    let (image, name) = (lab.path("user.img"), lab.text("user.img"));
    ok(&["mkfs", "-q", "--size", "48M", &name]);
    ok(&["cp", "-a", &format!("{tree}/."), &format!("{name}:/")]);
    let home = lab.path("home");
    fs::create_dir(&home).unwrap();
    for path in [&home, &image] {
        tool("chown", &[&"65534:65534", path]);
    }
    tool("chmod", &[&"755", &lab.dir.path()]);
    // The binary may lie where others cannot go. A process of its own copies it: what this one has
    // open for writing, another thread's new process has open for a moment, too (ETXTBSY).
    let binary = lab.path("iopath");
    tool("cp", &[&env!("CARGO_BIN_EXE_iopath"), &binary]);
    let output = Command::new(&binary)
        .args(["cp", "-a", &format!("{name}:/sub"), &format!("{name}:/empty")])
        .args([&format!("{name}:/null"), &home.display().to_string()])
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let device = "home/null: Operation not permitted";
    assert!(error.contains("owners") && error.contains(device), "{error}");
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(home.join("empty")).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (65534, 0o751), "no set-user-id for another");
    assert_eq!(fs::read(home.join("sub/big")).unwrap().len(), 3_000_000);
    assert!(!home.join("null").exists());
}

/// A full image says so and stays consistent.
#[test]
fn a_full_image_says_so_and_stays_consistent() {
    let lab = Lab::new();
    let tree = lab.tree();
    let (image, name) = (lab.path("small.img"), lab.text("small.img"));
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "2M", "-O", "^has_journal", &name]);
    let error = fails(1, &["cp", "-a", &tree.display().to_string(), &format!("{name}:/")]);
    assert!(error.contains("ENOSPC") && error.contains("iopath df"), "{error}");
    judge::e2fsck(&image).unwrap();
}

/// What cannot be read is named, everything else is copied, and the status tells of it.
#[test]
fn a_copy_goes_on_behind_a_damaged_file() {
    let lab = Lab::new();
    let (image, name) = (lab.path("damaged.img"), lab.text("damaged.img"));
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "8M", &name]);
    let tree = lab.path("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    for file in ["a", "bad", "c", "below/d"] {
        fs::write(tree.join(file), file).unwrap();
    }
    ok(&["cp", "-r", &format!("{}/.", tree.display()), &format!("{name}:/")]);
    judge::debugfs(&image, true, "clri bad\n");
    let out = lab.path("out");
    // A directory stands where a file belongs.
    fs::create_dir_all(out.join("c/in the way")).unwrap();
    let out_name = out.display().to_string();
    let error = fails(1, &["cp", "-r", &format!("{name}:/."), &out_name]);
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(lines.iter().any(|line| line.contains(":/bad: ")), "{error}");
    assert!(lines.iter().any(|line| line.contains("out/c")), "{error}");
    assert_eq!(fs::read_to_string(out.join("a")).unwrap(), "a");
    assert_eq!(fs::read_to_string(out.join("below/d")).unwrap(), "below/d");
    // A source that is not there, beside one that is.
    let missing = lab.path("missing").display().to_string();
    let there = tree.join("a").display().to_string();
    let error = fails(1, &["cp", &missing, &there, &format!("{name}:/below")]);
    assert!(error.contains("missing") && error.lines().count() == 1, "{error}");
    assert_eq!(ok(&["cat", &format!("{name}:/below/a")]), "a");
}

/// A file of holes stays one through an archive, with GNU tar at the other end in both ways.
#[test]
fn holes_pass_through_archives() {
    let lab = Lab::new();
    let (name, tar) = (lab.text("holes.img"), lab.path("holes.tar"));
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "16M", &name]);
    let tree = lab.path("tree");
    fs::create_dir_all(&tree).unwrap();
    for (file, size, places) in [
        ("middle", 300 << 20, &[5_000_000u64, 200_000_000][..]),
        ("end", 50_000_001, &[50_000_000]),
        ("nothing", 77_777, &[]),
    ] {
        let file = fs::File::create(tree.join(file)).unwrap();
        file.set_len(size).unwrap();
        places.iter().for_each(|&at| file.write_all_at(b"x", at).unwrap());
    }
    ok(&["cp", "-a", &format!("{}/.", tree.display()), &format!("{name}:/")]);
    ok(&["cp", "-a", &format!("{name}:/"), &format!("{}:", tar.display())]);
    assert!(fs::metadata(&tar).unwrap().len() < 200_000);
    let (out, back) = (lab.path("out"), lab.path("back.tar"));
    fs::create_dir_all(&out).unwrap();
    tool("tar", &[&"-xf", &tar, &"-C", &out]);
    tool("tar", &[&"--sparse", &"--format=pax", &"-cf", &back, &"-C", &out, &"."]);
    let again = lab.text("again.img");
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "16M", &again]);
    ok(&["cp", "-a", &format!("{}:", back.display()), &format!("{again}:/")]);
    for file in ["middle", "end", "nothing"] {
        tool("cmp", &[&tree.join(file), &out.join(file)]);
        let blocks = fs::metadata(out.join(file)).unwrap().blocks();
        assert!(blocks < 1000, "tar unpacks {file} with {blocks} sectors");
    }
    assert_eq!(ok(&["manifest", &again]), ok(&["manifest", &name]));
}

/// Partitions are found by number and edited in place.
#[test]
fn partitions_are_targets() {
    let lab = Lab::new();
    let (image, name) = (lab.path("disk.img"), lab.text("disk.img"));
    fs::File::create(&image).unwrap().set_len(40 << 20).unwrap();
    // An MBR with two partitions, from 1 MiB and 20 MiB, of 16 MiB each.
    let mut mbr = [0u8; 512];
    for (slot, start) in [(446, 2048u32), (462, 40960)] {
        mbr[slot + 4] = 0x83;
        mbr[slot + 8..slot + 12].copy_from_slice(&start.to_le_bytes());
        mbr[slot + 12..slot + 16].copy_from_slice(&32768u32.to_le_bytes());
    }
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::OpenOptions::new().write(true).open(&image).unwrap().write_all_at(&mbr, 0).unwrap();
    let error = fails(1, &["ls", &name]);
    assert!(error.contains("MBR") && error.contains("@1"), "{error}");
    ok(&["mkfs", "-q", "-t", "ext3", &format!("{name}@2")]);
    ok(&["mkdir", &format!("{name}@2:/here")]);
    assert!(ok(&["ls", &format!("{name}@2")]).contains("here"));
    assert!(ok(&["info", &name]).contains("MBR"));
    let error = fails(1, &["ls", &format!("{name}@7")]);
    assert!(error.contains('7'), "{error}");
    let second = lab.path("second.img");
    let bytes = fs::read(&image).unwrap();
    fs::write(&second, &bytes[20 << 20..36 << 20]).unwrap();
    judge::e2fsck(&second).unwrap();
}

/// Errors name what is wrong and what to do, with the exit status of the conventions.
#[test]
fn errors_are_told_in_one_line() {
    let lab = Lab::new();
    let name = lab.text("x.img");
    fails(2, &["ls"]);
    fails(2, &["nonsense"]);
    fails(2, &["mkfs", "-t", "ntfs", "--size", "1M", &name]);
    fails(16, &["check"]);
    fails(16, &["check", "--nonsense", "x"]);
    fails(8, &["check", &lab.text("missing.img")]);
    let error = fails(1, &["ls", &lab.text("missing.img")]);
    assert!(error.contains("missing.img") && error.lines().count() == 1, "{error}");
    fs::write(&name, vec![0; 1 << 20]).unwrap();
    let error = fails(1, &["ls", &name]);
    assert!(error.contains("blank") && error.contains("mkfs"), "{error}");
    let mut xfs = vec![0; 1 << 20];
    xfs[..4].copy_from_slice(b"XFSB");
    fs::write(&name, xfs).unwrap();
    let error = fails(1, &["ls", &name]);
    assert!(error.contains("superblock of group 0: version 0"), "{error}");
    let error = fails(1, &["mkfs", "--size", "8M", &name]);
    assert!(error.contains("xfs") && error.contains("--force"), "{error}");
    ok(&["mkfs", "-q", "-F", "--size", "8M", &name]);
    let error = fails(1, &["cat", &format!("{name}:/none")]);
    assert!(error.contains("x.img:/none: ENOENT"), "{error}");
    fails(1, &["cat", &format!("{name}:/")]);
    let error = fails(1, &["ls", "nbd://host/x"]);
    assert!(error.contains("nbd://"), "{error}");
    let error = fails(1, &["mv", &format!("{name}:/a"), "other.img:/b"]);
    assert!(error.contains("another image"), "{error}");
}

/// The check agrees with e2fsck about good and damaged images, and tells by its exit status.
#[test]
fn a_check_finds_damage() {
    let lab = Lab::new();
    let tree = lab.tree().display().to_string();
    let (image, name) = (lab.path("d.img"), lab.text("d.img"));
    for kind in ["ext2", "ext3", "ext4"] {
        ok(&["mkfs", "-q", "-F", "-t", kind, "--size", "48M", &name]);
        ok(&["cp", "-a", &tree, &format!("{name}:/")]);
        assert!(ok(&["check", &name]).contains("clean"));
        judge::debugfs(&image, true, "set_inode_field /tree/sub links_count 9\n");
        assert!(judge::e2fsck(&image).is_err());
        let output = iopath(&["check", &name]);
        assert_eq!(output.status.code(), Some(4), "errors are left");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("9") && text.contains("1 finding"), "{text}");
        let json = iopath(&["check", "--json", &name]);
        let last = String::from_utf8(json.stdout).unwrap();
        let last: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
        assert_eq!(last["clean"], false);
    }
}

/// JSON comes out as documents, completions and manual pages as files.
#[test]
fn json_completions_and_manuals() {
    let lab = Lab::new();
    let name = lab.text("j.img");
    let report: serde_json::Value =
        serde_json::from_str(&ok(&["mkfs", "--json", "--size", "16M", &name])).unwrap();
    assert_eq!(report["size"], 16 << 20);
    ok(&["touch", &format!("{name}:/a")]);
    for command in ["ls", "tree", "df", "info", "stat", "manifest"] {
        let text = ok(&[command, "--json", &name]);
        for line in text.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
        assert!(!text.is_empty());
    }
    assert!(ok(&["completions", "bash"]).contains("iopath"));
    ok(&["man", "-q", &lab.text("man")]);
    let page = fs::read_to_string(lab.path("man/iopath-cp.1")).unwrap();
    assert!(page.contains("archive") && lab.path("man/iopath.1").exists());
}

/// A copy that is killed leaves an image that reads, checks and replays clean.
#[test]
fn a_killed_copy_leaves_an_image_that_recovers() {
    let lab = Lab::new();
    let (image, name) = (lab.path("killed.img"), lab.text("killed.img"));
    let many = lab.path("many");
    for dir in 0..20 {
        let dir = many.join(format!("dir-{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..100 {
            fs::write(dir.join(format!("file-{file}")), vec![file as u8; 9000]).unwrap();
        }
    }
    for wait in [20, 60, 120, 250] {
        ok(&["mkfs", "-q", "-F", "--size", "64M", &name]);
        let mut copy = Command::new(env!("CARGO_BIN_EXE_iopath"))
            .args(["--cache-size", "2M", "cp", "-a"])
            .args([&many.display().to_string(), &format!("{name}:/")])
            .spawn()
            .unwrap();
        // How far the copy comes does not matter: every place must be good.
        #[expect(clippy::disallowed_methods, reason = "the outer edge: a real process is killed")]
        std::thread::sleep(std::time::Duration::from_millis(wait));
        let _it_may_be_done = copy.kill();
        copy.wait().unwrap();
        ok(&["ls", "-R", &name]);
        ok(&["check", &name]);
        ok(&["replay", &name]);
        judge::e2fsck(&image).unwrap();
        assert_same(of_command(&name), judge::kernel_manifest(&image, "ext4"));
    }
}

/// A dirty image of the kernel (its file copied while mounted) is replayed to what the kernel
/// wrote.
#[test]
fn a_dirty_image_is_replayed() {
    let lab = Lab::new();
    let (image, copy) = (lab.path("live.img"), lab.path("dirty.img"));
    judge::mke2fs(&image, 48 << 20, &["-t", "ext4"]);
    {
        let mount = LoopMount::new(&image, "ext4", "rw").unwrap();
        for i in 0..100 {
            fs::write(mount.path().join(format!("file-{i}")), vec![i as u8; 5000]).unwrap();
        }
        tool("sync", &[&"-f", &mount.path()]);
        fs::copy(&image, &copy).unwrap();
    }
    let dirty = copy.display().to_string();
    ok(&["replay", &dirty]);
    judge::e2fsck(&copy).unwrap();
    assert_same(of_command(&dirty), judge::kernel_manifest(&image, "ext4"));
}

/// Mount options reach the file system: data goes through the journal, where there is one; what is
/// not known is refused with what is.
#[test]
fn mount_options_are_those_of_mount() {
    let lab = Lab::new();
    fs::write(lab.path("data"), vec![7; 300_000]).unwrap();
    let (data, image) = (lab.text("data"), lab.text("a.img"));
    ok(&["mkfs", "-q", "-t", "ext4", "--size", "32M", &image]);
    for mode in ["data=journal", "data=writeback,barrier=0", "data=ordered,commit=30"] {
        ok(&["-o", mode, "cp", &data, &format!("{image}:/{}", mode.len())]);
        judge::e2fsck(&lab.path("a.img")).unwrap();
    }
    assert_eq!(ok(&["cat", &format!("{image}:/12")]).into_bytes(), vec![7; 300_000]);
    let message = fails(2, &["ls", "-o", "data=fast", &image]);
    assert!(message.contains("data=ordered|writeback|journal"), "{message}");
    let message = fails(2, &["-o", "nosuch", "ls", &image]);
    assert!(message.contains("commit=SECONDS"), "{message}");
    let message = fails(2, &["-o", "noatime", "ls", &image]);
    assert!(message.contains("iopath mount"), "{message}");
    let plain = lab.text("b.img");
    ok(&["mkfs", "-q", "-t", "ext2", "--size", "8M", &plain]);
    let message = fails(1, &["-o", "data=journal", "cp", &data, &format!("{plain}:/")]);
    assert!(message.contains("without a journal"), "{message}");
}
