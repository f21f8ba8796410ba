//! `iopath quota` on an image, with e2fsck as judge, and the metadata workloads beside it.

use std::path::Path;

use crate::command::{iopath_in as iopath, ok_in as ok};

#[track_caller]
fn refused(directory: &Path, line: &str, code: i32, part: &str) {
    let output = iopath(directory, line);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert_eq!(output.status.code(), Some(code), "iopath {line}: {text}");
    assert!(text.contains(part), "iopath {line}: `{part}` is not in\n{text}");
}

/// Goal: limits, grace periods and projects are set and shown, usage follows the files, and the
/// outside checker agrees; a wrong account is told with the status of a check.
#[test]
fn quota_is_set_shown_and_checked() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    ok(place, "mkfs -q -t ext4 -O quota,project --size 64M disk.img");
    ok(place, "mkdir disk.img:/p");
    ok(place, "quota project --inherit disk.img:/p 77");
    assert_eq!(ok(place, "quota project disk.img:/p"), "77 inherited\n");
    std::fs::write(place.join("file"), vec![1u8; 50_000]).expect("a file");
    ok(place, "cp file disk.img:/p/file");
    ok(place, "chown 1000:1000 disk.img:/p/file");
    ok(place, "quota set --kind user --id 1000 --block-hard 100 --inode-soft 5 disk.img");
    ok(place, "quota set --kind user --id 1000 --block-soft 40 disk.img");
    ok(place, "quota grace --kind user --block 3600 disk.img");
    let report = ok(place, "quota report --kind user disk.img");
    let line = report.lines().find(|line| line.starts_with("#1000")).expect("a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1], "+-", "{report}");
    assert_eq!(words[3..5], ["40", "100"], "{report}");
    let project = ok(place, "quota report --kind project --json disk.img");
    let line = project.lines().find(|line| line.contains("\"id\":77")).expect("a line");
    assert!(line.contains("\"inodes\":2"), "{line}");
    assert_eq!(ok(place, "quota check disk.img"), "");
    testkit::judge::e2fsck(&place.join("disk.img")).unwrap_or_else(|message| panic!("{message}"));
    testkit::judge::debugfs(&place.join("disk.img"), true, "sif /p/file uid 3\n");
    refused(place, "quota check disk.img", 4, "quota-usage");
    ok(place, "mkfs -q -t ext4 --size 64M plain.img");
    refused(place, "quota report plain.img", 1, "no quota is counted");
}

/// Goal: old quota files are shown, kept right by commands that count, and counted anew after one
/// that did not. Method: files of quotacheck, by way of the kernel's mount.
#[test]
fn old_files_are_shown_and_counted() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    ok(place, "mkfs -q -t ext4 --size 64M disk.img");
    let image = place.join("disk.img");
    let mounted = testkit::judge::LoopMount::new(&image, "ext4", "usrquota").expect("mounted");
    testkit::judge::run_ok("quotacheck", &[&"-F", &"vfsv1", &"-ucm", &mounted.path()]);
    drop(mounted);
    refused(place, "quota report disk.img", 1, "-o usrquota,grpquota");
    refused(place, "quota report -o grpquota disk.img", 1, "aquota.group is not in the root");
    std::fs::write(place.join("file"), vec![1u8; 50_000]).expect("a file");
    ok(place, "cp -o usrquota file disk.img:/counted");
    ok(place, "chown -o usrquota 1000 disk.img:/counted");
    ok(place, "quota set -o usrquota --kind user --id 1000 --block-hard 100 disk.img");
    let report = ok(place, "quota report -o usrquota,jqfmt=vfsv1 disk.img");
    assert!(report.lines().any(|line| line.starts_with("#1000") && line.contains(" 49 ")));
    assert_eq!(ok(place, "quota check -o usrquota disk.img"), "");
    ok(place, "cp file disk.img:/not-counted");
    ok(place, "chown 1000 disk.img:/not-counted");
    refused(place, "quota check -o usrquota disk.img", 4, "user 1000 has 50176 bytes");
    refused(place, "quota check --count disk.img", 1, "--count is for old quota files");
    ok(place, "quota check --count -o usrquota disk.img");
    assert_eq!(ok(place, "quota check -o usrquota disk.img"), "");
    testkit::judge::e2fsck(&image).unwrap_or_else(|message| panic!("{message}"));
    // A damaged tree, then a damaged header. The limits of what can be read are kept.
    ok(place, "quota set -o usrquota --kind user --id 70000 --inode-hard 9 disk.img");
    for (at, what, kept) in [(1024 + 4, "block", 2), (0, "magic", 0)] {
        let old = place.join("aquota.user");
        ok(place, "cp disk.img:/aquota.user .");
        let mut bytes = std::fs::read(&old).expect("the file");
        bytes[at..at + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
        std::fs::write(&old, bytes).expect("written");
        ok(place, "cp aquota.user disk.img:/");
        refused(place, "quota check -o usrquota disk.img", 4, "aquota.user: damaged");
        refused(place, "quota check -o usrquota disk.img", 4, what);
        ok(place, "quota check --count -o usrquota disk.img");
        assert_eq!(ok(place, "quota check -o usrquota disk.img"), "");
        let report = ok(place, "quota report -o usrquota disk.img");
        let line = report.lines().find(|line| line.starts_with("#1000 ")).expect("an account");
        assert_eq!(line.contains(" 100 "), kept > 0, "{report}");
        let mounted = testkit::judge::LoopMount::new(&image, "ext4", "usrquota").expect("mounted");
        let theirs = testkit::judge::run_ok("repquota", &[&"-un", &mounted.path()]);
        assert!(theirs.lines().any(|line| line.starts_with("#1000")), "{theirs}");
    }
    testkit::judge::e2fsck(&image).unwrap_or_else(|message| panic!("{message}"));
}

/// Goal: the same words on XFS, which counts from the mount on that asks for it.
#[test]
fn quota_of_xfs_is_counted_set_shown_and_checked() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    ok(place, "mkfs -q -t xfs --size 320M disk.img");
    ok(place, "mkdir disk.img:/p");
    refused(place, "quota report disk.img", 1, "-o uquota,gquota,pquota");
    let report = ok(place, "quota report -o uquota,gquota,pquota disk.img");
    assert_eq!(report.matches("*** Report for").count(), 3, "{report}");
    ok(place, "quota project --inherit disk.img:/p 77");
    assert_eq!(ok(place, "quota project disk.img:/p"), "77 inherited\n");
    std::fs::write(place.join("file"), vec![1u8; 50_000]).expect("a file");
    ok(place, "cp file disk.img:/p/file");
    ok(place, "chown 1000:1000 disk.img:/p/file");
    ok(place, "quota set --kind user --id 1000 --block-hard 100 --inode-soft 5 disk.img");
    ok(place, "quota set --kind user --id 1000 --block-soft 40 disk.img");
    ok(place, "quota grace --kind user --block 3600 disk.img");
    let report = ok(place, "quota report --kind user disk.img");
    let line = report.lines().find(|line| line.starts_with("#1000")).expect("a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1], "+-", "{report}");
    assert_eq!(words[2..5], ["52", "40", "100"], "{report}");
    assert!(report.contains("Block grace time: 01:00"), "{report}");
    let project = ok(place, "quota report --kind project --json disk.img");
    let line = project.lines().find(|line| line.contains("\"id\":77")).expect("a line");
    assert!(line.contains("\"inodes\":2"), "{line}");
    assert_eq!(ok(place, "quota check disk.img"), "");
    let image = place.join("disk.img");
    testkit::judge::xfs_repair(&image).unwrap_or_else(|message| panic!("{message}"));
    let words: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&"-x", &"-c", &"dquot -u 1000", &"-c", &"write diskdq.bcount 99", &image];
    testkit::newest::run_ok("xfs_db", &words);
    refused(place, "quota check disk.img", 4, "user 1000 has 99 blocks");
    refused(place, "quota report -o noquota disk.img", 1, "no quota is counted");
}

/// Goal: limits of a realtime section are set and shown by words of their own, and kept apart from
/// those of the data device; a file system without sections refuses them.
#[test]
fn quota_of_a_realtime_section_is_set_and_shown() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    std::fs::File::create(place.join("rt.img")).expect("a file").set_len(64 << 20).expect("size");
    let made = "mkfs -q -t xfs --compat 7.2 --size 320M -m metadir=1 -d rtinherit=1 \
                -r rtdev=rt.img,rgsize=16m disk.img";
    ok(place, made);
    std::fs::write(place.join("file"), vec![1u8; 50_000]).expect("a file");
    ok(place, "quota report -o rtdev=rt.img,uquota disk.img");
    ok(place, "cp -o rtdev=rt.img file disk.img:/file");
    ok(place, "chown -o rtdev=rt.img 1000:1000 disk.img:/file");
    let set = "quota set -o rtdev=rt.img --kind user --id 1000 --realtime-soft 40 disk.img";
    ok(place, set);
    ok(place, &set.replace("soft 40", "hard 100"));
    ok(place, "quota grace -o rtdev=rt.img --kind user --realtime 7200 disk.img");
    let report = ok(place, "quota report -o rtdev=rt.img disk.img");
    let behind = report.split_once("Realtime section; grace time: 02:00").expect(&report).1;
    let line = behind.lines().find(|line| line.starts_with("#1000")).expect(&report);
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..5], ["+", "52", "40", "100"], "{report}");
    let json = ok(place, "quota report -o rtdev=rt.img --json disk.img");
    let line = json.lines().find(|line| line.contains("\"id\":1000")).expect("a line");
    assert!(line.contains("\"realtime_bytes\":53248"), "{line}");
    assert!(line.contains("\"bytes\":0"), "{line}");
    let (data, section) = (place.join("disk.img"), place.join("rt.img"));
    let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-n", &"-r", &section, &data];
    testkit::newest::run_ok("xfs_repair", &args);
    ok(place, "mkfs -q -t ext4 -O quota --size 64M ext4.img");
    let set = "quota set --kind user --id 1 --realtime-hard 9 ext4.img";
    refused(place, set, 1, "not supported");
}

/// The second line of a survey has the script's form: every test in turn with its rate and the
/// smallest and the largest one, each of at least seven columns and with two decimals.
#[track_caller]
fn survey_line(text: &str, head: &str) {
    let line = text.lines().nth(1).unwrap_or_default();
    let mut rest = line.strip_prefix(head).unwrap_or_else(|| panic!("{text}"));
    for test in ["create", "lookup", "md_getattr", "setxattr", "destroy"] {
        rest = rest.strip_prefix(test).unwrap_or_else(|| panic!("{test}: {text}"));
        for (before, after) in [(" ", " "), ("[ ", ","), (" ", "] ")] {
            rest = rest.strip_prefix(before).unwrap_or_else(|| panic!("{test}: {text}"));
            let blanks = rest.len() - rest.trim_start().len();
            let width = rest[blanks..].find(after).unwrap_or_else(|| panic!("{test}: {text}"));
            let (number, behind) = rest.split_at(blanks + width);
            let value: f64 = number.trim().parse().unwrap_or_else(|_| panic!("{number}: {text}"));
            assert_eq!(number, format!("{value:7.2}"), "{text}");
            rest = &behind[after.len()..];
        }
    }
    assert_eq!(rest, "", "{text}");
}

/// Goal: the front ends of the metadata workloads reach an image and a machine.
#[test]
fn mdtest_and_mds_survey_run_from_the_command() {
    let bed = tempfile::tempdir().expect("a directory");
    let place = bed.path();
    ok(place, "mkfs -q -t ext4 -O quota --size 64M disk.img");
    let text = ok(place, "bench mdtest --tasks 2 -n 30 --prefill 200 -d disk.img:/md");
    assert!(text.contains("   File removal "), "{text}");
    let line = "bench --target disk.img mds-survey thrlo=2 thrhi=2 dir_count=1 file_count=60";
    let text = ok(place, line);
    survey_line(&text, "mdt 1 file      60 dir    1 thr    2 ");
    let line = "bench --target disk.img mds-survey thrlo=2 thrhi=4 dir_count=2 file_count=80 \
                layer=osd rslt_loc=. rslt=survey";
    let text = ok(place, line);
    assert_eq!(text.lines().count(), 3, "{text}");
    let summary = std::fs::read_to_string(place.join("survey.summary")).expect("a summary");
    assert_eq!(summary, text);
    refused(place, "bench mds-survey thrlo=1", 1, "on our path");
    refused(place, "bench mdtest -c -d x", 1, "option -c is not supported");
    ok(place, "check disk.img");
    testkit::judge::e2fsck(&place.join("disk.img")).unwrap_or_else(|message| panic!("{message}"));
}
