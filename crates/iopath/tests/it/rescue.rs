//! `--rescue`, `--map`, `--offset`: reading what is damaged, cut short or lies elsewhere.

use std::path::Path;

use testkit::judge;

use crate::command::{iopath_in as iopath, ok_in as ok};

/// Standard output and error of a command that ends so.
#[track_caller]
pub fn run(place: &Path, line: &str, code: i32) -> (String, String) {
    let output = iopath(place, line);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "iopath {line}: {out}{err}");
    (out, err)
}

/// `disk.img` with the file `one` of 4 MiB and the file `two` of 50 bytes; answers its bytes and
/// the byte where `one` begins.
fn disk(place: &Path) -> (Vec<u8>, usize) {
    ok(place, "mkfs -q -t ext4 -b 1024 --size 24M disk.img");
    std::fs::write(place.join("one"), vec![7u8; 4 << 20]).expect("a file");
    std::fs::write(place.join("two"), vec![8u8; 50]).expect("a file");
    ok(place, "cp two one disk.img:/");
    let image = std::fs::read(place.join("disk.img")).expect("the image");
    let one = image.chunks(1024).position(|block| block.iter().all(|&b| b == 7));
    (image, one.expect("the content of the file") * 1024)
}

/// Goal: an image without superblock and descriptors is listed and copied out, nothing is written,
/// and what would write is refused.
#[test]
fn an_image_without_its_start_is_read_and_not_changed() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let (mut image, _) = disk(place);
    image[..20 << 10].fill(0);
    std::fs::write(place.join("disk.img"), &image).expect("the image");
    run(place, "ls disk.img:/", 1);
    let (out, err) = run(place, "ls --rescue disk.img:/", 0);
    assert_eq!(out, "lost+found\none\ntwo\n");
    assert!(err.contains("findings put right in memory"), "{err}");
    run(place, "cp --rescue disk.img:/one back", 0);
    assert!(std::fs::read(place.join("back")).expect("the copy") == vec![7u8; 4 << 20]);
    assert!(run(place, "check --rescue disk.img", 0).0.contains("clean"));
    for line in ["cp --rescue two disk.img:/", "repair -y --rescue disk.img"] {
        let code = if line.starts_with("repair") { 8 } else { 1 };
        assert!(run(place, line, code).1.contains("--rescue only reads"), "{line}");
    }
    let refused = run(place, "mkfs -F --rescue -t ext4 --size 8M disk.img", 1).1;
    assert!(refused.contains("--rescue only reads"), "{refused}");
    for word in ["--rescue-type xfs", "--superblock 4194304"] {
        let refused = run(place, &format!("ls --rescue {word} disk.img:/"), 1).1;
        assert!(refused.contains("no superblock of"), "{refused}");
    }
    assert!(std::fs::read(place.join("disk.img")).expect("the image") == image, "it was changed");
}

/// Goal: of an image that was cut inside of a file the rest is read; the file is named with what it
/// lost, and the status says so.
#[test]
fn an_image_that_was_cut_names_the_files_that_lost_something() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let (mut image, one) = disk(place);
    image.truncate(one + (1 << 20));
    std::fs::write(place.join("disk.img"), &image).expect("the image");
    let (_, err) = run(place, "cp --rescue disk.img:/two disk.img:/one .", 1);
    assert!(err.contains("bytes of its file system are missing at the end"), "{err}");
    let lost = "disk.img:/one: 3145728 bytes could not be read and are zeros, first at 1048576";
    assert!(err.contains(lost), "{err}");
    assert!(!err.contains("/two:"), "{err}");
    assert_eq!(std::fs::read(place.join("two")).expect("the copy"), [8; 50]);
    let copy = std::fs::read(place.join("one")).expect("the copy");
    let (kept, gone) = copy.split_at(1 << 20);
    assert!(kept.iter().all(|&b| b == 7) && gone.iter().all(|&b| b == 0) && gone.len() == 3 << 20);
}

/// Goal: what a map of ddrescue calls lost reads as zeros and is named, also where the file system
/// lies behind an offset; a file that is no map is refused with its line.
#[test]
fn a_map_of_ddrescue_says_what_is_lost() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let (image, one) = disk(place);
    let moved = [vec![0x5a; 1 << 20], image].concat();
    std::fs::write(place.join("moved.img"), &moved).expect("the image");
    let (bad, end) = (one + (1 << 20) + 8192, moved.len());
    let map = format!(
        "# Mapfile. Created by GNU ddrescue version 1.27\n{bad:#x} ? 1\n0x0 {bad:#x} +\n\
         {bad:#x} 0x600 -\n{:#x} {:#x} +\n",
        bad + 0x600,
        end - bad - 0x600
    );
    std::fs::write(place.join("map"), map).expect("the map");
    assert_eq!(run(place, "cat --offset 1M moved.img:/two", 0).0, "\u{8}".repeat(50));
    let (_, err) = run(place, "cp --rescue --map map --offset 1M moved.img:/one back", 1);
    let lost = "moved.img:/one: 1536 bytes could not be read and are zeros, first at 8192";
    assert!(err.contains(lost), "{err}");
    let mut wanted = vec![7u8; 4 << 20];
    wanted[8192..8192 + 1536].fill(0);
    assert!(std::fs::read(place.join("back")).expect("the copy") == wanted);
    let (out, _) = run(place, "cat --rescue --map map --offset 1M moved.img:/two", 0);
    assert_eq!(out.len(), 50, "what is not lost is no failure");
    let err = run(place, "ls --rescue --map one moved.img", 1).1;
    assert!(err.contains("one: line 1: the current position is no number"), "{err}");
    let err = run(place, "ls --map map moved.img", 2).1;
    assert!(err.contains("--rescue"), "{err}");
    let err = run(place, "ls --offset 100 moved.img", 1).1;
    assert!(err.contains("--offset 100 is no multiple of 512"), "{err}");
    let err = run(place, "ls --offset 1G moved.img", 1).1;
    assert!(err.contains("lies behind the end at byte"), "{err}");
}

/// Goal: file systems are found where no table names them, with their label and how much of them is
/// left, and are read there. Method: an ext4 without its start and an XFS behind each other; inside
/// of the XFS lies an image of an ext2.
#[test]
fn a_scan_finds_what_no_table_names() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let (mut ext, _) = disk(place);
    ext[..20 << 10].fill(0);
    ok(place, "mkfs -q -t ext2 -L inner --size 20M inner.img");
    ok(place, "mkfs -q -t xfs -L outer --size 300M x.img");
    ok(place, "cp inner.img x.img:/");
    let xfs = std::fs::read(place.join("x.img")).expect("the image");
    let disk = [vec![0x5a; 1 << 20], ext, xfs].concat();
    std::fs::write(place.join("moved.img"), &disk).expect("the disk");
    let (out, _) = run(place, "scan moved.img", 0);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(
        lines[0].starts_with("       1048576 ext") && lines[0].contains("start is gone"),
        "{out}"
    );
    assert!(lines[0].contains(" 1 of 2 "), "{out}");
    assert!(lines[1].starts_with("      26214400 xfs") && lines[1].contains("outer"), "{out}");
    assert!(
        lines[2].contains("inner") && lines[2].contains("inside of the one at 26214400"),
        "{out}"
    );
    let (names, _) = run(place, "ls --rescue --offset 1048576 moved.img:/", 0);
    assert_eq!(names, "lost+found\none\ntwo\n");
    assert_eq!(run(place, "ls --offset 26214400 moved.img:/", 0).0, "inner.img\n");
    let (json, _) = run(place, "scan --json moved.img", 0);
    assert!(json.contains("\"start\":26214400"), "{json}");
    std::fs::write(place.join("none.img"), vec![0x5a; 1 << 20]).expect("a disk");
    assert!(run(place, "scan none.img", 1).1.contains("no superblock of ext or XFS"));
}

/// Goal: a file system of one group without its first MiB is no blank disk: `info` names what is
/// left, and `mkfs` refuses to overwrite it. Where only the journal still has the superblock, it is
/// read and repaired by that.
#[test]
fn a_group_without_its_start_is_not_blank() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    for (fstype, zeroed) in [("ext2", 1 << 20), ("ext4", 64 << 10), ("ext4", 1 << 20)] {
        ok(place, &format!("mkfs -q -F -t {fstype} -b 4096 -N 16384 --size 64M one.img"));
        ok(place, "mkdir one.img:/dir");
        for n in 0..20 {
            std::fs::write(place.join("f"), [n; 5000]).expect("a file");
            ok(place, &format!("cp f one.img:/dir/f{n}"));
            ok(place, &format!("mkdir one.img:/dir/d{n}"));
        }
        let mut image = std::fs::read(place.join("one.img")).expect("the image");
        image[..zeroed].fill(0);
        std::fs::write(place.join("one.img"), &image).expect("the image");
        let (told, _) = run(place, "info one.img", 0);
        assert!(told.contains("of ext2, ext3 or ext4"), "{fstype}: {told}");
        assert!(!told.contains("make a file system"), "{fstype}: {told}");
        let (_, refused) = run(place, "mkfs -t xfs --size 300M one.img", 1);
        assert!(refused.contains("--force"), "{fstype}: {refused}");
        assert!(std::fs::read(place.join("one.img")).expect("the image") == image, "{fstype}");
        if zeroed < 1 << 20 {
            assert!(told.contains("in a journal"), "{told}");
            let (line, _) = run(place, "scan one.img", 0);
            assert!(line.contains("a journal has a copy"), "{line}");
            run(place, "repair -y one.img", 1);
            judge::run_ok("e2fsck", &[&"-fn", &place.join("one.img")]);
            let (found, _) = run(place, "find one.img:/ -name f19", 0);
            let kept = run(place, &format!("cat {}", found.trim()), 0).0;
            assert_eq!(kept, "\u{13}".repeat(5000));
        }
    }
}

/// Goal: `which` and `stat -e` agree on each extent of each file, and `which` and debugfs on who
/// holds every 97th block of an ext4.
#[test]
fn which_names_the_holder_of_a_place() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    std::fs::create_dir(place.join("d")).expect("a directory");
    for n in 0..40u32 {
        std::fs::write(place.join(format!("d/f{n}")), vec![n as u8 + 1; 3000 * n as usize + 1])
            .expect("a file");
    }
    ok(place, "mkfs -q -t ext4 -b 1024 --size 24M disk.img");
    ok(place, "mkfs -q -t xfs --size 300M x.img");
    for image in ["disk.img", "x.img"] {
        ok(place, &format!("cp -r d {image}:/"));
        for n in [0, 1, 20, 39] {
            let stat = ok(place, &format!("stat -e --json {image}:/d/f{n}"));
            let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
            let extents = stat["extents"].as_array().expect("extents");
            assert!(!extents.is_empty(), "{stat}");
            for extent in extents {
                let (at, from) = (&extent["physical"], &extent["offset"]);
                let line = format!("which --bytes {image} {at}");
                let wanted = format!("content of /d/f{n}, from its byte {from} on\n");
                assert!(run(place, &line, 0).0.ends_with(&wanted), "{line}: not {wanted}");
            }
        }
    }
    ok(place, "mkfs -q -t ext4 -O inline_data --size 24M inline.img");
    ok(place, "cp d/f0 inline.img:/");
    let stat = ok(place, "stat -e --json inline.img:/f0");
    assert!(stat.contains(r#""physical":null,"state":"inline""#), "{stat}");
    assert!(ok(place, "stat -e inline.img:/f0").contains("device - length 1 inline"));
    let blocks: Vec<String> =
        (1..24 << 10).step_by(97).map(|block: u32| block.to_string()).collect();
    let ours = run(place, &format!("which --json disk.img {}", blocks.join(" ")), 0).0;
    let request = format!("icheck {}", blocks.join(" "));
    let theirs =
        testkit::judge::run("debugfs", &[&"-R", &request.as_str(), &place.join("disk.img")]).stdout;
    let theirs = String::from_utf8_lossy(&theirs).into_owned();
    let (mut owned, lines) = (0, theirs.lines().skip(1));
    for (line, ours) in lines.zip(ours.lines()) {
        let ours: serde_json::Value = serde_json::from_str(ours).expect("JSON");
        let (block, ino) = line.split_once('\t').expect("block and inode");
        assert_eq!(ours["place"], block);
        if ino == "7" {
            // The room for descriptors belongs to an inode for debugfs.
            continue;
        }
        let holder = &ours["holders"][0]["ino"];
        assert_eq!(holder.as_u64(), ino.parse().ok(), "block {block}: {line}: {ours}");
        owned += u32::from(holder.is_u64());
    }
    assert!(owned > 20, "{owned} blocks of files");
    assert!(run(place, "which disk.img 99999999", 1).1.contains("lies behind the end"));
    assert!(run(place, "which disk.img one", 1).1.contains("`one` is no number"));
}

/// Goal: a tree that the kernel removed comes back whole, with its names, modes and times, from
/// ext4 and ext3: small files, a directory with a hash tree, a file with an extent tree or indirect
/// blocks. The image is not written. What was overwritten since is named, and is no silent success.
#[test]
fn what_was_removed_is_listed_and_copied_out() {
    for fstype in ["ext4", "ext3"] {
        let bed = tempfile::tempdir().expect("a directory");
        let place = bed.path();
        let sh = |script: &str| {
            let mut bash = std::process::Command::new("bash");
            let done = bash.args(["-ec", script]).current_dir(place).output().expect("bash");
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "{fstype}: {script}: {text}");
        };
        let mounted = |script: &str| {
            let mount = testkit::judge::LoopMount::new(&place.join("disk.img"), fstype, "rw");
            let mount = mount.expect("the kernel mounts it");
            sh(&format!("mnt={}\n{script}", mount.path().display()));
        };
        sh(&format!("mke2fs -q -F -t {fstype} disk.img 96M"));
        mounted(
            "mkdir -p $mnt/tree/deep/er && chmod 751 $mnt/tree/deep
            for n in $(seq 1 600); do head -c $((n * 13)) /dev/urandom > $mnt/tree/name-$n; done
            echo hidden > $mnt/tree/deep/er/file && chmod 640 $mnt/tree/deep/er/file
            ln -s ../name-1 $mnt/tree/deep/link && touch -d 2020-02-02 $mnt/tree/deep/er/file
            for n in $(seq 0 599); do printf %04096d $n
            done | dd of=$mnt/tree/holes bs=4096 status=none
            for n in $(seq 0 2 599); do fallocate -p -o $((n * 4096)) -l 4096 $mnt/tree/holes; done
            cp -a $mnt/tree kept",
        );
        mounted("rm -r $mnt/tree");
        sh("cp disk.img after.img");
        let (list, _) = run(place, "undelete disk.img", 0);
        assert_eq!(list.lines().count(), 600 + 6, "{fstype}: {list}");
        assert!(list.lines().all(|line| line.starts_with("100% ")), "{fstype}: {list}");
        let (_, err) = run(place, "undelete disk.img --to back", 0);
        assert!(err.contains("606 restored, 0 in part"), "{fstype}: {err}");
        sh("diff -r --no-dereference kept back/tree && cmp disk.img after.img
            test $(stat -c %a%Y back/tree/deep/er/file) = $(stat -c %a%Y kept/deep/er/file)");
        let (one, _) = run(place, "undelete disk.img tree/deep", 0);
        assert_eq!(one.lines().count(), 4, "{fstype}: {one}");
        let (one, err) = run(place, "undelete disk.img tree/deep /tree/none", 1);
        assert_eq!(one.lines().count(), 4, "{fstype}: {one}");
        assert_eq!(err, "iopath: /tree/none: nothing that was removed was found there\n");
        run(place, "undelete disk.img --to nothing /tree/none", 1);
        mounted("head -c 90M /dev/urandom > $mnt/new || true");
        let (_, err) = run(place, "undelete disk.img --to worse", 1);
        assert!(err.contains("blocks are lost: zeros"), "{fstype}: {err}");
    }
    let bed = tempfile::tempdir().expect("a directory");
    ok(bed.path(), "mkfs -q -t ext4 --size 20M disk.img");
    assert!(run(bed.path(), "undelete disk.img", 0).1.contains("nothing that was removed"));
}

/// Goal: a tree that the kernel removed from XFS comes back with its names and content, also where
/// the log has no older copy of its inodes: sizes are those of whole blocks then, and say so.
#[test]
fn what_was_removed_from_xfs_is_listed_and_copied_out() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let sh = |script: &str| {
        let mut bash = std::process::Command::new("bash");
        let done = bash.args(["-ec", script]).current_dir(place).output().expect("bash");
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{script}: {text}");
    };
    let mounted = |script: &str| {
        let mount = testkit::judge::LoopMount::new(&place.join("disk.img"), "xfs", "rw");
        let mount = mount.expect("the kernel mounts it");
        sh(&format!("mnt={}\n{script}", mount.path().display()));
    };
    sh("truncate -s 320M disk.img && mkfs.xfs -q -f disk.img");
    std::fs::create_dir_all(place.join("kept/deep")).expect("directories");
    let small = (1..=400).map(|n| (format!("name-{n}"), n * 13));
    let large = (1..=60).map(|n| (format!("deep/large-{n}"), 70000));
    for (number, (name, len)) in (0..).zip(small.chain(large)) {
        let mut bytes = vec![0; len];
        testkit::content::pattern(number, 0, &mut bytes);
        std::fs::write(place.join("kept").join(name), bytes).expect("a file");
    }
    sh("chmod 640 kept/name-7 && ln -s ../name-1 kept/deep/link");
    mounted("cp -a kept $mnt/tree && echo stays > $mnt/other");
    // Below a directory that stays, and lies in its inode.
    mounted("mkdir $mnt/home && cp -a kept/deep $mnt/home/deep");
    mounted("rm -r $mnt/tree $mnt/home/deep");
    let before = testkit::image::read(&place.join("disk.img"));
    let (list, _) = run(place, "undelete disk.img", 0);
    let named = list.lines().filter(|line| line.contains("/tree/")).count();
    assert!(named >= 461, "{named} names: {list}");
    assert!(list.lines().all(|line| line.starts_with("100% ")), "{list}");
    run(place, "undelete disk.img --to back /tree", 0);
    assert!(before == testkit::image::read(&place.join("disk.img")), "it was written");
    run(place, "undelete disk.img --to back /home/deep", 0);
    sh("diff -r --no-dereference kept/deep back/home/deep
        diff -r --no-dereference kept back/tree
        test $(stat -c %a%Y back/tree/name-7) = $(stat -c %a%Y kept/name-7)");
    // An empty log knows nothing: of freed inodes the size is that of their blocks.
    sh("start=$(xfs_db -r -c 'sb 0' -c 'print logstart' disk.img | sed 's/.*= //')
        blocks=$(xfs_db -r -c 'sb 0' -c 'print logblocks' disk.img | sed 's/.*= //')
        sector=$(xfs_db -r -c \"convert fsblock $start daddr\" disk.img | sed 's/.*(//; s/).*//')
        fallocate -p -o $((sector * 512)) -l $((blocks * 4096)) disk.img");
    let (list, _) = run(place, "undelete disk.img", 0);
    let guessed = list.lines().filter(|line| line.contains(" ~")).count();
    assert!((20..400).contains(&guessed), "{guessed}: {list}");
    run(place, "undelete disk.img --to rough", 0);
    sh("for n in $(seq 1 60); do
            cmp -n 70000 kept/deep/large-$n rough/*/deep/large-$n
        done");
}
