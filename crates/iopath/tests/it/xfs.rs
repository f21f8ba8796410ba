//! The built command writes XFS: images of our own mkfs, changed by every command, judged by
//! xfs_repair and by the kernel's mount. Needs root and xfsprogs.

use std::os::unix::fs::symlink;

use crate::command::{iopath, iopath_in, ok, ok_in};
use testkit::judge::{self, LoopMount};
use testkit::{manifest, newest};

#[track_caller]
fn fails(args: &[&str]) -> String {
    let output = iopath(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !error.contains("panicked"), "{args:?}: {error}");
    error
}

/// Goal: each command changes an XFS image as it changes ext4, and leaves it clean. Method: a tree
/// goes in, every command changes something, the judges look; the tree comes out again.
#[test]
fn every_command_writes_xfs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = |name: &str| dir.path().join(name).display().to_string();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub/deep")).expect("directories");
    for n in 0..300 {
        std::fs::write(tree.join(format!("sub/file-{n}")), vec![n as u8; n * 40]).expect("a file");
    }
    symlink("sub/file-1", tree.join("link")).expect("a link");
    let image = text("disk.img");
    ok(&["mkfs", "-t", "xfs", "--size", "320M", "-n", "size=16k", "-m", "rmapbt=1", &image]);
    let at = |path: &str| format!("{image}:{path}");
    ok(&["cp", "-a", &text("tree"), &at("/tree")]);
    ok(&["mkdir", &at("/new")]);
    ok(&["mv", &at("/tree/sub/file-299"), &at("/new/moved")]);
    ok(&["ln", &at("/new/moved"), &at("/new/hard")]);
    ok(&["ln", "-s", "moved", &at("/new/soft")]);
    ok(&["rm", &at("/tree/sub/file-298")]);
    ok(&["rm", "-r", &at("/tree/sub/deep")]);
    ok(&["chmod", "600", &at("/new/moved")]);
    ok(&["touch", &at("/new/touched")]);
    ok(&["truncate", "--size", "100", &at("/new/moved")]);
    ok(&["-o", "logbsize=256k,wsync", "mkdir", &at("/new/synchronous")]);
    let error = fails(&["mv", "--exchange", "--content", &at("/new/moved"), ":/new/touched"]);
    assert!(error.contains("not supported"), "{error}");
    let error = fails(&["-o", "data=journal", "mkdir", &at("/refused")]);
    assert!(error.contains("is for ext2, ext3 and ext4"), "{error}");
    let error = fails(&["-o", "logbsize=48k", "mkdir", &at("/refused")]);
    assert!(error.contains("logbsize is 32k"), "{error}");
    ok(&["check", &image]);
    judge::xfs_repair(dir.path().join("disk.img").as_path()).expect("xfs_repair");
    ok(&["cp", "-a", &at("/"), &text("out")]);
    let ours = manifest::of_dir(&dir.path().join("out")).expect("what came out");
    let kernel = LoopMount::new(&dir.path().join("disk.img"), "xfs", "ro").expect("a mount");
    let theirs = manifest::of_dir(&kernel.path()).expect("the kernel reads");
    let diff = manifest::diff(&ours, &theirs);
    assert!(diff.is_empty(), "{diff}");
    assert_eq!(theirs[&b"new/moved"[..]].size, 100);
}

/// Goal: two files exchange their content by the command, and keep their names and owners.
#[test]
fn contents_are_exchanged() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("disk.img").display().to_string();
    for (name, size) in [("a", 300_000), ("b", 10)] {
        std::fs::write(dir.path().join(name), vec![name.as_bytes()[0]; size]).expect("a file");
    }
    ok(&["mkfs", "-q", "-t", "xfs", "--compat", "7.2", "--size", "320M", &image]);
    let at = |path: &str| format!("{image}:{path}");
    for name in ["a", "b"] {
        let from = dir.path().join(name).display().to_string();
        ok(&["cp", &from, &at(&format!("/{name}"))]);
    }
    ok(&["chmod", "600", &at("/a")]);
    ok(&["mv", "--exchange", "--content", &at("/a"), ":/b"]);
    assert_eq!(ok(&["cat", &at("/a")]), "b".repeat(10));
    assert_eq!(ok(&["cat", &at("/b")]), "a".repeat(300_000));
    assert!(ok(&["stat", &at("/a")]).contains("0600"));
    ok(&["check", &image]);
    judge::xfs_repair(dir.path().join("disk.img").as_path()).expect("xfs_repair");
}

/// Files of one directory go to the groups, and one of them into the section all the same.
fn choose_section(option: &str, root: &str, content: &str) {
    let [folder, file, other] = ["in", "in/rt", "in/group"].map(|path| format!("{root}{path}"));
    let on = |words: &[&str]| ok(&[&["-o", option], words].concat());
    on(&["mkdir", &folder]);
    assert!(on(&["stat", &folder]).contains("Realtime: files made here"));
    on(&["chattr", "rtinherit=0", &folder]);
    on(&["touch", &file, &other]);
    assert!(!on(&["stat", &folder]).contains("Realtime"), "{folder}");
    assert!(!on(&["stat", &file]).contains("Realtime"), "{file}");
    on(&["chattr", "realtime=1", &file]);
    assert!(on(&["stat", &file]).contains("Realtime: content"), "{file}");
    assert!(on(&["--json", "stat", &file]).contains("\"realtime\":true"), "{file}");
    for path in [&file, &other] {
        on(&["cp", content, path]);
    }
    for (words, what) in [
        (["chattr", "realtime=0", &file], "Invalid argument"),
        (["chattr", "realtime=1", &other], "Invalid argument"),
        (["chattr", "rtinherit=1", &file], "a file"),
        (["chattr", "realtime=1", &folder], "a directory"),
        (["chattr", "rtinherit=2", &folder], "neither 0 nor 1"),
        (["chattr", "extsize=4k,rtinherit=1", &folder], "Invalid argument"),
    ] {
        let error = fails(&[&["-o", option], &words[..]].concat());
        assert!(error.contains(what), "{words:?}: {error}");
    }
    on(&["chattr", "-R", "rtinherit=1", &folder]);
    on(&["chattr", "extsize=56k", &folder]);
    assert!(on(&["stat", &folder]).contains("Realtime: files made here"));
    assert!(on(&["stat", &folder]).contains("Extent size: 57344"));
    on(&["rm", "-r", &folder]);
}

/// Goal: a realtime section by the command: made, filled, read back; it is named where it is
/// missing. Then another size, label and UUID. Method: a tree goes in and comes out; xfs_repair of
/// the host knows the section.
#[test]
fn a_section_another_size_and_another_label() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = |name: &str| dir.path().join(name).display().to_string();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(&tree).expect("a directory");
    for n in 0..40u8 {
        std::fs::write(tree.join(format!("file-{n}")), vec![n; usize::from(n) * 5000])
            .expect("a file");
    }
    let (image, section) = (text("disk.img"), text("section.img"));
    std::fs::File::create(&section).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let words = format!("rtdev={section},extsize=28k");
    ok(&["mkfs", "-t", "xfs", "--size", "320M", "-d", "rtinherit=1", "-r", &words, &image]);
    let option = format!("rtdev={section}");
    let root = format!("{image}:/");
    let error = fails(&["cp", "-a", &text("tree"), &root]);
    assert!(error.contains("realtime"), "{error}");
    ok(&["-o", &option, "cp", "-a", &text("tree"), &root]);
    choose_section(&option, &root, &text("tree/file-3"));
    assert!(ok(&["info", &image]).contains("extent_blocks"), "info");
    ok(&["check", &image]);
    let output = judge::run("xfs_repair", &[&"-n", &"-r", &section, &image]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ok(&["-o", &option, "cp", "-a", &format!("{image}:/tree"), &text("out")]);
    let (ours, theirs) = (manifest::of_dir(&dir.path().join("out")), manifest::of_dir(&tree));
    let diff = manifest::diff(&ours.expect("what came out"), &theirs.expect("what went in"));
    assert!(diff.is_empty(), "{diff}");

    let plain = text("plain.img");
    ok(&["mkfs", "-t", "xfs", "--size", "320M", &plain]);
    ok(&["cp", "-a", &text("tree"), &format!("{plain}:/")]);
    let place = format!("{plain}:/tree/file-3");
    ok(&["chattr", "+ia", &place]);
    let error = fails(&["chmod", "600", &place]);
    assert!(error.contains("not permitted"), "{error}");
    ok(&["chattr", "-ia", &place]);
    ok(&["chmod", "644", &place]);
    assert!(ok(&["resize", &plain, "500M"]).contains("320"), "resize");
    assert_eq!(std::fs::metadata(&plain).expect("the image").len(), 500 << 20);
    ok(&["tune", "-L", "archive", "-U", "random", &plain]);
    assert!(ok(&["info", &plain]).contains("archive"), "info");
    ok(&["check", &plain]);
    judge::xfs_repair(dir.path().join("plain.img").as_path()).expect("xfs_repair");
    ok(&["resize", &plain, "330M"]);
    judge::xfs_repair(dir.path().join("plain.img").as_path()).expect("xfs_repair");
    let error = fails(&["resize", &plain, "80M"]);
    assert!(error.contains("log lies behind"), "{error}");
    let least = ok(&["resize", "-P", &plain]);
    let size = least.split(" at the least").next().expect("the target and a size").to_owned();
    let shrunk = ok(&["resize", "-M", &plain]);
    assert!(shrunk.starts_with(&format!("{size}, ")), "{least}{shrunk}");
    judge::xfs_repair(dir.path().join("plain.img").as_path()).expect("xfs_repair");
    let error = fails(&["tune", &plain]);
    assert!(error.contains("nothing to change"), "{error}");
    let kernel = LoopMount::new(&dir.path().join("plain.img"), "xfs", "rw");
    let kernel = kernel.expect("the kernel mounts it");
    let theirs = manifest::of_dir(&kernel.path().join("tree")).expect("the kernel reads");
    let ours = manifest::of_dir(&tree).expect("what went in");
    assert!(manifest::diff(&ours, &theirs).is_empty());
}

/// Goal: `mkfs` takes its time from `SOURCE_DATE_EPOCH` also where nothing is copied, and equal
/// UUIDs make equal images. Method: ext4 twice; XFS beside mkfs.xfs 7.2 with `DETERMINISTIC_SEED`,
/// byte by byte without exception.
#[test]
fn an_image_has_the_time_of_the_environment() {
    let bed = tempfile::tempdir().expect("a directory");
    let uuid = "11111111-2222-3333-4444-555555555555";
    let epoch = "1700000000";
    let make = |name: &str, words: &str, epoch: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_iopath"));
        command.current_dir(bed.path()).env("SOURCE_DATE_EPOCH", epoch);
        let line = format!("mkfs -q -U {uuid} {words} {name}");
        command.args(line.split_whitespace()).output().expect("it runs")
    };
    let bytes = |name: &str| std::fs::read(bed.path().join(name)).expect("an image");
    for name in ["one.img", "two.img"] {
        assert!(make(name, "--size 32M", epoch).status.success(), "{name}");
    }
    assert!(bytes("one.img") == bytes("two.img"), "ext4");
    assert!(make("two.img", "-F --size 32M", "1600000000").status.success());
    assert!(bytes("one.img") != bytes("two.img"), "another time");
    let theirs = bed.path().join("theirs.img");
    std::fs::File::create(&theirs).and_then(|file| file.set_len(320 << 20)).expect("a file");
    let mut mkfs = newest::command("mkfs.xfs");
    mkfs.env("SOURCE_DATE_EPOCH", epoch).env("DETERMINISTIC_SEED", "1");
    mkfs.args(["-q", "-m", &format!("uuid={uuid}")]).arg(&theirs);
    assert!(mkfs.status().expect("it runs").success());
    assert!(make("ours.img", "-t xfs --compat 7.2 --size 320M", epoch).status.success());
    assert!(bytes("ours.img") == bytes("theirs.img"), "xfs");
    let wrong = make("w.img", "--size 32M", "yesterday");
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && text.contains("not seconds since 1970"), "{text}");
}

/// Goal: `chattr` sets the units in which XFS gives out space, `stat` shows them, and the kernel
/// knows them. Method: a directory, a file in it, xfs_db; ext4 and wrong units are refused.
#[test]
fn units_of_extents_are_set_and_shown() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    ok_in(place, "mkfs -q -t xfs --size 320M a.img");
    ok_in(place, "mkdir a.img:/vm");
    ok_in(place, "chattr extsize=1M,cowextsize=128k a.img:/vm");
    ok_in(place, "touch a.img:/vm/disk");
    let shown = ok_in(place, "stat a.img:/vm/disk");
    assert!(shown.contains("Extent size: 1048576"), "{shown}");
    assert!(shown.contains("Extent size of copies: 131072"), "{shown}");
    let document = ok_in(place, "stat --json a.img:/vm/disk");
    assert!(document.contains("\"cow_extent_size\":131072"), "{document}");
    ok_in(place, "chattr extsize=0 a.img:/vm/disk");
    assert!(!ok_in(place, "stat a.img:/vm/disk").contains("Extent size: "), "taken back");
    let image = place.join("a.img");
    judge::xfs_repair(&image).expect("xfs_repair finds nothing");
    let kernel = LoopMount::new(&image, "xfs", "ro,norecovery").expect("mounted");
    let said =
        judge::run("xfs_io", &[&"-c", &"extsize", &"-c", &"cowextsize", &kernel.path().join("vm")]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("[1048576]") && said.contains("[131072]"), "{said}");
    drop(kernel);
    ok_in(place, "mkfs -q --size 32M e.img");
    for (line, text) in [
        ("chattr extsize=1000 a.img:/vm", "Invalid argument"),
        ("chattr extsize=1M e.img:/", "not supported"),
        ("chattr extsize=all a.img:/vm", "not a size"),
    ] {
        let failed = iopath_in(place, line);
        let found = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && found.contains(text), "{line}: {found}");
    }
}

/// Goal: a prototype file gives the tree that mkfs.xfs 7.2 makes of it, and a directory itself.
/// Method: both images as the kernel shows them; times are those of the making.
#[test]
fn a_prototype_makes_the_tree_of_mkfs_xfs() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let content = place.join("content");
    std::fs::write(&content, vec![7; 70_000]).expect("a file");
    let sparse = std::fs::File::create(place.join("sparse")).expect("a file");
    sparse.set_len(1 << 20).expect("a hole");
    let proto = format!(
        "boot\n4872 110\nd--777 3 1\nusr d--755 3 1\nsh -u-755 3 1 {content}\nken d-g750 6 1\n$\n\
         b0 b--644 3 1 0 7\nc0 c--644 3 1 1 3\nfifo p--644 3 1\nslink l--644 3 1 /a/link\n\
         odd lug751 6 7 /b\n\
         : a comment\n$\na/b ---600 0 0 {sparse}\nempty ---644 9 10 {empty}\n$\n",
        content = content.display(),
        sparse = place.join("sparse").display(),
        empty = place.join("nothing").display(),
    );
    std::fs::write(place.join("nothing"), "").expect("a file");
    std::fs::write(place.join("proto"), proto).expect("a file");
    let line =
        "mkfs -q -t xfs --compat 7.2 -p file=proto,slashes_are_spaces=1 --size 320M ours.img";
    ok_in(place, line);
    let words = format!("file={},slashes_are_spaces=1", place.join("proto").display());
    newest::mkfs_xfs(&place.join("theirs.img"), 320 << 20, &["-p", &words]);
    let tree = |name: &str| {
        let mut tree = judge::kernel_manifest(&place.join(name), "xfs");
        for entry in tree.values_mut() {
            entry.mtime_ns = 0;
            entry.xattrs.clear();
        }
        tree
    };
    assert_eq!(manifest::diff(&tree("theirs.img"), &tree("ours.img")), "");
    judge::xfs_repair(&place.join("ours.img")).expect("xfs_repair finds nothing");
    let directory = place.join("tree");
    std::fs::create_dir_all(directory.join("below")).expect("a directory");
    std::fs::write(directory.join("below/file"), "content").expect("a file");
    ok_in(place, "mkfs -q -t xfs -p tree --size 320M tree.img");
    let kernel = judge::kernel_manifest(&place.join("tree.img"), "xfs");
    let wanted = manifest::of_dir(&directory).expect("the tree");
    assert_eq!(manifest::diff(&wanted, &kernel), "");
    std::fs::write(place.join("wrong"), "boot\n1 1\nd--755 0 0\nx q--644 0 0\n").expect("a file");
    for (line, text) in [
        ("mkfs -t xfs -p wrong --size 320M w.img", "line 4: q--644 is no mode"),
        ("mkfs -t ext4 -p proto --size 32M w.img", "-p is for xfs"),
        ("mkfs -t xfs -p proto,other=1 --size 320M w.img", "other=1"),
    ] {
        let failed = iopath_in(place, line);
        let found = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && found.contains(text), "{line}: {found}");
    }
}
