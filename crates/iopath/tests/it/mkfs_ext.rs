//! `iopath mkfs` of ext with the words of mke2fs, as a user gives them.

use std::path::Path;

use testkit::judge::{self, LoopMount};
use testkit::newest;

use crate::command::{iopath_in as iopath, ok_in as ok};

/// What both get in any case.
const SAME: &str = "-t ext4 -U 11223344-5566-4788-89aa-bbccddeeff01";
const SEED: &str = "hash_seed=a1a2a3a4-a5a6-47a8-89aa-abacadaeafa0";

/// Words of `-E` and other words; `-o` of mke2fs is `--creator-os`.
const WORDS: [(&str, &str); 20] = [
    ("", ""),
    ("stride=16,stripe-width=64", ""),
    ("stride=16,stripe_width=64", "-O ^flex_bg"),
    ("", "-O ^has_journal"),
    ("", "-O ^metadata_csum"),
    ("resize=5G", ""),
    ("num_backup_sb=1", "-O sparse_super2,^resize_inode"),
    ("quotatype=usrquota:prjquota", "-O quota"),
    ("mmp_update_interval=9", "-O mmp"),
    ("test_fs,packed_meta_blocks=1", ""),
    ("", "-g 8000 -G 8 -m 0.5 -e panic -M /mnt/x"),
    ("", "-T news"),
    ("", "-b -2048"),
    ("", "-o hurd"),
    ("", "-J size=8,location=20000"),
    ("", "-O fast_commit -J fast_commit_size=300"),
    ("", "-N 30000 -I 512"),
    ("desc_size=64", "-i 65536"),
    ("", "-O bigalloc -C 16384"),
    ("", "-l bad"),
];

/// What dumpe2fs says, but for times, and sums over them.
fn told(image: &Path) -> Vec<String> {
    let text = judge::run_ok("dumpe2fs", &[&image]);
    let changes = ["created:", "time:", "checked:", "Lifetime", "csum", "hecksum:", "mmp_"];
    let kept = |line: &&str| !changes.iter().any(|word| line.contains(word));
    text.lines().filter(kept).map(str::to_owned).collect()
}

/// Goal: the words of mke2fs make the same layout here, with `--compat` for both releases and their
/// own mke2fs.conf. Method: dumpe2fs of both images, bytes are compared below the command.
#[test]
fn the_words_of_mke2fs() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let [ours, theirs] = ["ours.img", "theirs.img"].map(|name| place.join(name));
    std::fs::write(place.join("bad"), "30000\n").expect("a list");
    for (extended, words) in WORDS {
        let comma = if extended.is_empty() { "" } else { "," };
        let same = format!("{SAME} -E {SEED}{comma}{extended}");
        let here = words.replace("-o ", "--creator-os ");
        for release in ["1.47.0", "1.47.4"] {
            ok(place, &format!("mkfs -q -F --compat {release} {same} {here} --size 64M ours.img"));
            let _ = std::fs::remove_file(&theirs);
            let mut command = match release {
                "1.47.0" => std::process::Command::new("/usr/sbin/mke2fs"),
                _ => newest::command("mke2fs"),
            };
            if release == "1.47.4" {
                command.env("MKE2FS_CONFIG", newest::folder().join("etc/mke2fs.conf"));
            }
            let line = format!("-q -F {same} {words} theirs.img 64M");
            let output = command.args(line.split_whitespace()).current_dir(place).output();
            let output = output.expect("mke2fs runs");
            assert!(output.status.success(), "{line}: {output:?}");
            assert_eq!(told(&ours), told(&theirs), "{release} {words} -E {extended}");
            judge::e2fsck(&ours).unwrap_or_else(|text| panic!("{release} {line}: {text}"));
        }
    }
}

/// Goal: what only says something, what begins elsewhere, and what only replaces superblocks.
#[test]
fn dry_runs_offsets_and_superblocks() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    let image = place.join("disk.img");
    let said = ok(place, "mkfs -n --size 64M none.img");
    assert!(!place.join("none.img").exists());
    assert!(said.contains("8193, 24577, 40961, 57345"), "{said}");
    let said = ok(place, "mkfs --size 64M -n none.img");
    assert!(said.contains("8193, 24577, 40961, 57345"), "{said}");

    // Behind a mebibyte of something else, which stays.
    std::fs::write(&image, vec![0x5a; 40 << 20]).expect("a disk");
    ok(place, "mkfs -q -F -b 1024 -E offset=1048576 --size 32M disk.img");
    let bytes = std::fs::read(&image).expect("the disk");
    assert_eq!(bytes.len(), 40 << 20);
    assert!(bytes[..1 << 20].iter().all(|&byte| byte == 0x5a));
    assert!(bytes[33 << 20..].iter().all(|&byte| byte == 0x5a));
    let inside = place.join("inside.img");
    std::fs::write(&inside, &bytes[1 << 20..33 << 20]).expect("the file system");
    judge::e2fsck(&inside).unwrap_or_else(|text| panic!("{text}"));
    ok(place, "ls --offset 1M disk.img:/");

    for (word, wanted) in [("clear", "UUID:          <none>"), ("time", "-1")] {
        ok(place, &format!("mkfs -q -F -U {word} --size 24M disk.img"));
        let told = judge::run_ok("dumpe2fs", &[&"-h", &image]);
        let line = told.lines().find(|line| line.starts_with("Filesystem UUID:"));
        assert!(line.is_some_and(|line| line.contains(wanted)), "{word}: {line:?}");
    }

    // Superblocks are lost, their copies too: -S and e2fsck bring the files back. Checksums would
    // need the old UUID.
    let words = "-t ext4 -b 1024 -O ^has_journal,^metadata_csum";
    ok(place, &format!("mkfs -q -F {words} --size 24M disk.img"));
    std::fs::write(place.join("file"), vec![7; 50_000]).expect("a file");
    ok(place, "cp file disk.img:/file");
    let mut bytes = std::fs::read(&image).expect("the image");
    for block in [1, 8193] {
        bytes[block << 10..(block + 2) << 10].fill(0xee);
    }
    std::fs::write(&image, &bytes).expect("the image");
    ok(place, &format!("mkfs -q -F -S {words} disk.img"));
    let _ = judge::run("e2fsck", &[&"-fy", &image]);
    judge::e2fsck(&image).unwrap_or_else(|text| panic!("{text}"));
    let mount = LoopMount::new(&image, "ext4", "ro").expect("the kernel mounts it");
    assert_eq!(std::fs::read(mount.path().join("file")).expect("a file"), vec![7; 50_000]);
}

/// Goal: what makes no sense is refused by name, with what to do instead.
#[test]
fn words_that_are_refused() {
    let bed = tempfile::tempdir().expect("a directory");
    for (line, part) in [
        ("mkfs -z undo --size 24M x.img", "-z: mkfs keeps no undo file"),
        ("mkfs -r 0 --size 24M x.img", "-E revision=0"),
        ("mkfs -c list --size 24M x.img", "-l FILE"),
        ("mkfs -E desc_size=128 --size 24M x.img", "64 bytes with 64bit"),
        ("mkfs -E quotatype=all --size 24M x.img", "usrquota, grpquota, prjquota"),
        ("mkfs -E num_backup_sb=3 --size 24M x.img", "3 copies of the superblock"),
        ("mkfs -E resize=1000 --size 24M x.img", "descriptors for 1000 blocks"),
        ("mkfs -G 3 --size 24M x.img", "3 groups of a flexible group"),
        ("mkfs -g 8001 --size 24M x.img", "groups of 8001 blocks"),
        ("mkfs -J location=99999 --size 24M x.img", "cannot begin at block 99999"),
        ("mkfs -O mmp -E mmp_update_interval=301 --size 24M x.img", "301 s"),
        ("mkfs --compat 1.46.0 --size 24M x.img", "not 1.47.0 or 1.47.4"),
        ("mkfs -n -S -d . --size 24M x.img", "-d goes with neither -S nor -n"),
        ("mkfs -t xfs -g 8000 --size 400M x.img", "options for ext only"),
    ] {
        let output = iopath(bed.path(), line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(part), "{line}: {text}");
    }
}
