//! `iopath repair` and `iopath undo` as a user runs them: exit statuses, the plan, the undo file.

use std::path::Path;

use crate::command::{bash_in, iopath_in as iopath, ok_in as ok};

#[track_caller]
fn run(place: &Path, line: &str, code: i32) -> String {
    let output = iopath(place, line);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(code), "iopath {line}: {text}");
    text
}

/// An image whose superblock and a part of whose first directory are gone.
fn damaged(place: &Path) -> Vec<u8> {
    ok(place, "mkfs -q -t ext4 -b 1024 --size 24M disk.img");
    std::fs::write(place.join("file"), vec![7u8; 50_000]).expect("a file");
    ok(place, "cp file disk.img:/file");
    let path = place.join("disk.img");
    let mut image = std::fs::read(&path).expect("the image");
    image[1024..2048].fill(0);
    std::fs::write(&path, &image).expect("the image");
    image
}

/// Goal: the plan of a dry run writes nothing, a repair leaves a clean image and an undo file, and
/// undo gives the damaged image back. Method: an image without its superblock, e2fsck as judge.
#[test]
fn a_repair_is_planned_done_and_undone() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = damaged(place);
    let read = || std::fs::read(place.join("disk.img")).expect("the image");
    let plan = run(place, "repair -n disk.img", 4);
    assert!(plan.contains("super-magic: superblock in block 0"), "{plan}");
    assert!(plan.contains("restore it from the copy in block 8193"), "{plan}");
    assert!(read() == image, "a dry run writes nothing");
    assert!(!place.join("disk.img.undo").exists());
    assert!(run(place, "repair disk.img", 16).contains("nobody to ask"));
    run(place, "--offset -1 repair -n disk.img", 16);
    let refused = run(place, "repair -n -t xfs disk.img", 8);
    assert!(refused.contains("no superblock of XFS was found"), "{refused}");
    let done = run(place, "repair -y disk.img", 1);
    assert!(done.contains("to undo: iopath undo disk.img.undo"), "{done}");
    testkit::judge::e2fsck(&place.join("disk.img")).unwrap_or_else(|text| panic!("{text}"));
    ok(place, "cp disk.img:/file back");
    assert_eq!(std::fs::read(place.join("back")).expect("a file"), vec![7u8; 50_000]);
    assert!(run(place, "repair -y disk.img", 0).contains("clean"));
    assert!(run(place, "undo disk.img.undo", 0).contains("as before the change"));
    assert!(read() == image, "byte for byte");
    assert!(run(place, "undo disk.img.undo", 8).contains("undone before"));
    let second = run(place, "repair --json -y disk.img", 1);
    assert!(second.contains("\"rule\":\"super-magic\""), "{second}");
    assert!(place.join("disk.img.undo.2").exists());
}

/// Goal: the same for XFS. Method: an image without its first superblock and AGF, xfs_repair as
/// judge; a superblock that asks for a repair.
#[test]
fn a_repair_of_xfs_is_planned_done_and_undone() {
    let bed = tempfile::tempdir().expect("a directory");
    let (place, path) = (bed.path(), bed.path().join("x.img"));
    ok(place, "mkfs -q -t xfs --size 300M x.img");
    std::fs::write(place.join("file"), vec![7u8; 50_000]).expect("a file");
    ok(place, "cp file x.img:/file");
    let mut image = std::fs::read(&path).expect("the image");
    image[..1024].fill(0);
    std::fs::write(&path, &image).expect("the image");
    let plan = run(place, "repair -n x.img", 4);
    assert!(plan.contains("superblock of group 0: cannot be read: take a copy"), "{plan}");
    let done = run(place, "repair -y x.img", 1);
    assert!(done.contains("to undo: iopath undo x.img.undo"), "{done}");
    testkit::judge::xfs_repair(&path).unwrap_or_else(|text| panic!("{text}"));
    ok(place, "cp x.img:/file back");
    assert_eq!(std::fs::read(place.join("back")).expect("a file"), vec![7u8; 50_000]);
    assert!(run(place, "repair -y x.img", 0).contains("clean"));
    assert!(run(place, "undo x.img.undo", 0).contains("as before the change"));
    assert!(std::fs::read(&path).expect("the image") == image, "byte for byte");
}

/// Goal: the command that a repair prints undoes it, wherever the file system begins in the image,
/// and whatever bytes the image's name has.
#[test]
fn the_command_that_undoes_a_repair_is_printed_whole() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = damaged(place);
    let moved = [vec![0; 1 << 20], image].concat();
    std::fs::write(place.join("moved.img"), &moved).expect("an image");
    let done = run(place, "--offset 1048576 repair -y moved.img", 1);
    assert!(done.contains("to undo: iopath undo --offset 1048576 moved.img.undo"), "{done}");
    assert!(run(place, "undo --offset 1048576 moved.img.undo", 0).contains("as before"));
    assert!(std::fs::read(place.join("moved.img")).expect("the image") == moved, "as before");
    let line =
        r"mv disk.img $'n\xffme.img' && iopath repair -y $'n\xffme.img'; iopath undo n*.undo";
    let output = bash_in(place, line);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("as before the change"), "{text}");
}

/// Goal: the image is found beside its undo file from anywhere, and must be named where it has
/// another name by now.
#[test]
fn an_undo_file_finds_its_image() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = &bed.path().join("inner");
    std::fs::create_dir(place).expect("a directory");
    let image = damaged(place);
    run(place, "repair -y disk.img", 1);
    run(bed.path(), "undo inner/disk.img.undo", 0);
    assert!(std::fs::read(place.join("disk.img")).expect("the image") == image);
    run(place, "repair -y disk.img", 1);
    std::fs::rename(place.join("disk.img"), place.join("other.img")).expect("a new name");
    let lost = run(bed.path(), "undo inner/disk.img.undo.2", 8);
    assert!(lost.contains("name the image: iopath undo inner/disk.img.undo.2 TARGET"), "{lost}");
    run(bed.path(), "undo inner/disk.img.undo.2 inner/other.img", 0);
    assert!(std::fs::read(place.join("other.img")).expect("the image") == image);
}

/// Goal: what cannot be done is named, and nothing is changed. Method: an undo file where there
/// is no room for one, an image without any superblock.
#[test]
fn what_cannot_be_repaired_is_named() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = damaged(place);
    let full = run(place, "repair -y --undo-file /dev/full disk.img", 8);
    assert!(full.contains("nothing was changed"), "{full}");
    let lost = run(place, "repair -y --undo-file none/undo disk.img", 8);
    assert!(lost.contains("none/undo: nothing was changed"), "{lost}");
    assert!(std::fs::read(place.join("disk.img")).expect("the image") == image);
    std::fs::write(place.join("empty.img"), vec![0; 1 << 20]).expect("an image");
    assert!(run(place, "repair -n empty.img", 8).contains("no superblock"));
}

/// An image with these files, whose links and slots debugfs changes.
fn changed(place: &Path, commands: &str) -> Vec<u8> {
    ok(place, "mkfs -q -F -t ext4 -b 1024 --size 24M disk.img");
    for name in ["one", "two", "three", "four"] {
        std::fs::write(place.join(name), name).expect("a file");
        ok(place, &format!("cp {name} disk.img:/"));
    }
    testkit::judge::debugfs(&place.join("disk.img"), true, commands);
    std::fs::read(place.join("disk.img")).expect("the image")
}

const LINKS: &str = "sif /one links_count 9\nsif /two links_count 9\n";

/// Goal: `-p` repairs what is safe, and changes nothing where a name would be lost. Every name that
/// is dropped of a directory is in the plan, not only the first.
#[test]
fn preen_repairs_only_what_is_safe() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    changed(place, LINKS);
    let done = run(place, "repair -p disk.img", 1);
    assert!(done.contains("9 links, counted 1"), "{done}");
    testkit::judge::e2fsck(&place.join("disk.img")).unwrap_or_else(|text| panic!("{text}"));
    let image = changed(place, &format!("{LINKS}clri /three\nclri /four\n"));
    let refused = run(place, "repair -p disk.img", 4);
    assert!(refused.contains("nothing written: not all of it is safe"), "{refused}");
    assert!(std::fs::read(place.join("disk.img")).expect("the image") == image);
    let plan = run(place, "repair -n disk.img", 4);
    assert!(plan.contains("lost: the name \"three\", the name \"four\""), "{plan}");
    run(place, "repair -y disk.img", 1);
    testkit::judge::e2fsck(&place.join("disk.img")).unwrap_or_else(|text| panic!("{text}"));
}

/// Goal: more memory than is allowed is not taken: what needs it is refused, the need named, and
/// nothing written; on XFS a check finds the same with little. Method: images with damage of both
/// formats, and light damage, whose repair needs what a check needs.
#[test]
fn memory_is_bounded_by_a_setting() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = changed(place, "sif /three mode 0170644\n");
    assert!(run(place, "check --memory 1k disk.img", 8).contains("takes about"));
    run(place, "check --memory 1M disk.img", 4);
    let refused = run(place, "repair -y --memory 1k disk.img", 8);
    assert!(refused.contains("the repair takes about"), "{refused}");
    assert!(std::fs::read(place.join("disk.img")).expect("the image") == image);
    run(place, "repair -y --memory 64M disk.img", 1);
    changed(place, LINKS);
    run(place, "repair -y --memory 1k disk.img", 1);

    let path = place.join("x.img");
    ok(place, "mkfs -q -t xfs --size 300M x.img");
    ok(place, "cp one two three x.img:/");
    let commands = ["sb 0", "addr rootino", "write -d u3.sfdir3.list[1].inumber.i4 150"];
    let [sb, root, write] = commands;
    testkit::judge::run("xfs_db", &[&"-x", &"-c", &sb, &"-c", &root, &"-c", &write, &path]);
    let image = std::fs::read(&path).expect("the image");
    let found = run(place, "check x.img", 4);
    assert!(found.contains("a name points at inode 150"), "{found}");
    assert!(found.contains("no name points here"), "{found}");
    assert_eq!(run(place, "check --memory 1 x.img", 4), found);
    let refused = run(place, "repair -y --memory 1k x.img", 8);
    assert!(refused.contains("the repair takes about"), "{refused}");
    assert!(std::fs::read(&path).expect("the image") == image);
    run(place, "repair -y --memory 64M x.img", 1);
    testkit::judge::xfs_repair(&path).unwrap_or_else(|text| panic!("{text}"));
}

/// Goal: on a terminal each finding is asked for; what is declined stays as it is, the rest is
/// done, and the exit status says that errors are left.
#[test]
fn what_is_declined_on_a_terminal_stays() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    changed(place, LINKS);
    let answer = |answers: &str| {
        let command = format!("{} repair disk.img", env!("CARGO_BIN_EXE_iopath"));
        bash_in(place, &format!("printf '{answers}' | script -qefc '{command}' /dev/null"))
    };
    let output = answer("n\\ny\\n");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert_eq!(text.matches("store the count? [y/N]").count(), 2, "{text}");
    assert_eq!(text.matches("(declined)").count(), 1, "{text}");
    let links = |name| testkit::judge::debugfs(&place.join("disk.img"), false, name);
    assert!(links("stat /one").contains("Links: 9") && links("stat /two").contains("Links: 1"));
    let all = answer("y\\n");
    assert_eq!(all.status.code(), Some(1), "{}", String::from_utf8_lossy(&all.stdout));
    testkit::judge::e2fsck(&place.join("disk.img")).unwrap_or_else(|text| panic!("{text}"));
}

/// Goal: a terminal sees how far a check or a plan has come, and how long the rest takes; with `-q`
/// and `--json`, and where there is no terminal, nobody does.
#[test]
fn a_terminal_sees_the_time_left() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    for kind in ["ext4", "xfs"] {
        ok(place, &format!("mkfs -q -F -t {kind} --size 400M disk.img"));
        let shown = |line: &str| {
            let command = format!("{} {line}", env!("CARGO_BIN_EXE_iopath"));
            let output = bash_in(place, &format!("TERM=xterm script -qefc '{command}' /dev/null"));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && text.contains("clean"), "{line}: {text}");
            text
        };
        for (line, verb) in [("check disk.img", "checking"), ("repair -y disk.img", "repair plan:")]
        {
            let text = shown(line);
            assert!(text.contains(verb) && text.contains("%, "), "{text}");
            assert!(text.contains(" left ["), "{line}: {text}");
            for option in ["-q", "--json"] {
                let text = shown(&format!("{option} {line}"));
                assert!(!text.contains(verb) && !text.contains(" left ["), "{text}");
            }
            assert!(!run(place, line, 0).contains(verb), "there is no terminal");
        }
    }
}

/// Goal: what others use is refused, and of what can only be read there is a plan. Method: a repair
/// that waits for an answer, then a second one; a mount by the kernel; a loop device that is
/// read-only.
#[test]
fn what_others_use_and_what_is_read_only_is_not_changed() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = changed(place, LINKS);
    let read = || std::fs::read(place.join("disk.img")).expect("the image");
    let ours = env!("CARGO_BIN_EXE_iopath");
    let second = bash_in(
        place,
        &format!(
            "mkfifo answers; exec 3<> answers
            script -qefc '{ours} repair disk.img' asked.log < answers > /dev/null &
            until grep -q y/N asked.log; do sleep 0.05; done
            {ours} repair -y disk.img 2>&1; echo status $?; printf 'n\\nn\\n' >&3; wait"
        ),
    );
    let text = String::from_utf8_lossy(&second.stdout).into_owned();
    assert!(text.contains("in use by") && text.contains("status 8"), "{text}");
    assert!(read() == image, "it was changed");
    let device = bash_in(place, "losetup -r -f --show disk.img");
    let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
    let plan = run(place, &format!("repair -y {device}"), 4);
    testkit::judge::run_ok("losetup", &[&"-d", &device]);
    assert!(plan.contains("nothing written: it can only be read"), "{plan}");
    assert!(read() == image && std::fs::read_dir(place).is_ok_and(|mut all| all.all(not_undo)));
    let mount = testkit::judge::LoopMount::new(&place.join("disk.img"), "ext4", "ro");
    let _mount = mount.expect("the kernel mounts it");
    assert!(run(place, "repair -y disk.img", 8).contains("in use by the kernel"));
}

fn not_undo(entry: std::io::Result<std::fs::DirEntry>) -> bool {
    !entry.expect("a name").file_name().to_string_lossy().contains("undo")
}

/// Goal: what a cut repair of ext left is not written to: the undo file would fit no more. Reading
/// says so. Method: the mark of a cut in the superblock; whoever takes the error back takes that.
#[test]
fn what_a_cut_repair_left_is_not_written_to() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    ok(place, "mkfs -q -t ext4 -O ^metadata_csum -b 1024 --size 24M disk.img");
    std::fs::write(place.join("file"), "content").expect("a file");
    let path = place.join("disk.img");
    let mut image = std::fs::read(&path).expect("the image");
    let [state, text] = [1024 + 0x3a, 1024 + 0x1e0];
    image[state] |= 2;
    image[text..text + 30].copy_from_slice(b"iopath repair 0123456789abcdef");
    std::fs::write(&path, &image).expect("the image");
    let refused = run(place, "cp file disk.img:/", 1);
    assert!(refused.contains("a repair, resize or tune was cut; run it again"), "{refused}");
    assert!(std::fs::read(&path).expect("the image") == image, "it was changed");
    let listed = run(place, "ls disk.img:/", 0);
    assert!(listed.contains("lost+found") && listed.contains("this is what it left"), "{listed}");
    testkit::judge::run("e2fsck", &[&"-fy", &path]);
    ok(place, "cp file disk.img:/");
}
