//! Features, checksums and fields of the superblock, as tune2fs leaves them; e2fsck finds nothing.

mod support;

use std::path::Path;
use std::sync::Arc;

use block::Device;
use device::MemoryDevice;
use ext4::format::Geometry;
use ext4::format::features::Compat;
use ext4::mkfs::Span;
use repair::tune::{self, OnErrors, Reserved, TuneOptions};
use repair::volume::EditError;
use support::{Kind, by_mke2fs, manifest, queue, small_groups};
use testkit::judge;

const UUID: [u8; 16] = [0x5a; 16];
const UUID_TEXT: &str = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";

/// An image of mke2fs with one of everything.
fn image(fstype: &str, features: &str) -> Arc<MemoryDevice> {
    let file = by_mke2fs(16 << 20, features, &small_groups(fstype));
    let device = Arc::new(testkit::image::load(file.path()));
    Kind::fill(&device, 1024);
    device
}

fn change(device: &Arc<MemoryDevice>, options: &TuneOptions) -> Result<(), EditError> {
    let dir = tempfile::tempdir().expect("a directory");
    let plan = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let plan = tune::plan(cx, &queue, options, &Default::default())?;
        plan.prepare(cx, &queue, &rt::Meter::default())?;
        plan.judge(cx, &queue, &Default::default())?;
        Ok::<_, EditError>(plan.plan)
    })?;
    let device: Arc<dyn Device> = device.clone();
    support::apply(&device, &plan, dir.path());
    Ok(())
}

fn feature(name: &str) -> TuneOptions {
    TuneOptions { features: vec![name.into()], ..TuneOptions::default() }
}

/// The superblock as dumpe2fs prints it, without what time, room and checksums decide.
fn printed(image: &Path) -> Vec<String> {
    let text = judge::run_ok("dumpe2fs", &[&"-h", &image]);
    let own = [
        "Last ",
        "Free ",
        "Lifetime",
        "Checksum:",
        "Journal",
        "Overhead",
        "Total journal",
        "mmp_",
        "MMP_",
    ];
    let line = |line: &&str| !own.iter().any(|start| line.trim_start().starts_with(start));
    text.lines().filter(line).map(|line| line.trim_end().to_owned()).collect()
}

/// Does the same here and by tune2fs, and compares.
fn as_tune2fs(device: &Arc<MemoryDevice>, options: &TuneOptions, words: &[&str]) {
    // A mount that writes is refused with `read-only`.
    let closed = words.iter().any(|word| word.contains("read-only"));
    let before = manifest(device);
    assert!(before.is_some() || closed, "it is mounted");
    let theirs = testkit::image::write_device(device);
    change(device, options).unwrap_or_else(|e| panic!("{words:?}: {e}"));
    let ours = testkit::image::write_device(device);
    judge::e2fsck(ours.path()).unwrap_or_else(|text| panic!("{words:?}: {text}"));
    assert!(closed || manifest(device) == before, "{words:?}: another tree");
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"-f"];
    args.extend(words.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>));
    let path = theirs.path();
    args.push(&path);
    judge::run_ok("tune2fs", &args);
    if printed(theirs.path()).contains(&"Filesystem state:         not clean".into()) {
        // It leaves the rest to e2fsck.
        judge::run("e2fsck", &[&"-fy", &path]);
        judge::run_ok("tune2fs", &[&"-C", &"1", &path]);
    }
    assert_eq!(printed(ours.path()), printed(theirs.path()), "{words:?}");
    let orphans = [ours.path(), theirs.path()].map(orphan_file);
    assert_eq!(orphans[0], orphans[1], "{words:?}: the orphan file");
}

/// Bytes of the orphan file, as debugfs says; None without one.
fn orphan_file(image: &Path) -> Option<String> {
    let ino = geometry(&testkit::image::load(image)).orphan_file_ino;
    let request = format!("stat <{ino}>");
    let said = (ino != 0).then(|| judge::run_ok("debugfs", &[&"-R", &request, &image]))?;
    said.split_once("Size: ").map(|(_, rest)| rest.lines().next().unwrap_or_default().to_owned())
}

/// Goal: every field has the value that tune2fs gives it. Method: all at once, by both.
#[test]
fn fields_as_tune2fs_sets_them() {
    let device = image("ext4", "");
    let options = TuneOptions {
        label: Some(b"archive".to_vec()),
        reserved: Some(Reserved::Percent(3.0)),
        reserved_owner: [Some(7), Some(8)],
        errors: Some(OnErrors::Panic),
        max_mounts: Some(33),
        mounts: Some(4),
        interval: Some(14 * 86_400),
        mount_options: ["journal_data_writeback", "nobarrier", "^acl"].map(String::from).to_vec(),
        ..TuneOptions::default()
    };
    let options_text = "journal_data_writeback,nobarrier,^acl";
    let mut words = vec!["-L", "archive", "-m", "3", "-u", "7", "-g", "8", "-e", "panic"];
    words.extend(["-c", "33", "-C", "4", "-i", "2w", "-o", options_text]);
    as_tune2fs(&device, &options, &words);
    as_tune2fs(&device, &feature("large_dir"), &["-O", "large_dir"]);
    as_tune2fs(&device, &feature("fast_commit"), &["-O", "fast_commit"]);
    as_tune2fs(&device, &feature("^fast_commit"), &["-O", "^fast_commit"]);
}

/// Goal: all checksums follow another UUID, with and without a stored seed. Method: e2fsck, and a
/// mount, which verify them.
#[test]
fn another_uuid() {
    let uuid = TuneOptions { uuid: Some(UUID), ..TuneOptions::default() };
    for features in ["orphan_file,mmp", "metadata_csum_seed", "^metadata_csum,uninit_bg"] {
        let device = image("ext4", features);
        as_tune2fs(&device, &uuid, &["-U", UUID_TEXT]);
    }
}

/// Goal: checksums are added and removed everywhere. Method: off and on again, both forms, on an
/// image with indexed and linear directories, attributes, deep maps and an orphan file.
#[test]
fn checksums_on_and_off() {
    let device = image("ext4", "orphan_file,mmp");
    as_tune2fs(&device, &feature("^metadata_csum"), &["-O", "^metadata_csum"]);
    as_tune2fs(&device, &feature("^uninit_bg"), &["-O", "^uninit_bg"]);
    as_tune2fs(&device, &feature("uninit_bg"), &["-O", "uninit_bg"]);
    as_tune2fs(&device, &feature("metadata_csum"), &["-O", "metadata_csum"]);
    as_tune2fs(&device, &feature("metadata_csum_seed"), &["-O", "metadata_csum_seed"]);
    as_tune2fs(&device, &feature("^metadata_csum_seed"), &["-O", "^metadata_csum_seed"]);
}

/// Goal: a journal goes and comes. Method: on extents and on indirect blocks.
#[test]
fn a_journal_goes_and_comes() {
    for fstype in ["ext4", "ext3"] {
        let device = image(fstype, "");
        as_tune2fs(&device, &feature("^has_journal"), &["-O", "^has_journal"]);
        as_tune2fs(&device, &feature("has_journal"), &["-j"]);
    }
}

/// Goal: changes of one inode are made together, a feature that is named twice is changed
/// once, and other names of features are known.
#[test]
fn features_change_together() {
    let several = |words: &str| {
        let features = words.split(',').map(String::from).collect();
        TuneOptions { features, ..TuneOptions::default() }
    };
    let device = image("ext4", "");
    let off = "^has_journal,^metadata_csum";
    as_tune2fs(&device, &several(off), &["-O", off]);
    // tune2fs 1.47.0 fails at this: e2fsck alone judges.
    change(&device, &several("has_journal,metadata_csum,has_journal")).expect("both");
    let on = testkit::image::write_device(&device);
    judge::e2fsck(on.path()).unwrap_or_else(|text| panic!("{text}"));
    let features = geometry(&device).features;
    assert!(features.metadata_csum() && features.compat.contains(Compat::HAS_JOURNAL));
    let device = image("ext4", "^metadata_csum");
    as_tune2fs(&device, &feature("gdt_csum"), &["-O", "uninit_bg"]);
}

/// Goal: features come that are a bit and a field, and multi-mount protection with its block, which
/// is free afterwards. Method: beside tune2fs, with checksums and without, in clusters too.
#[test]
fn features_of_single_fields_come() {
    for features in ["", "^metadata_csum", "bigalloc"] {
        let device = image("ext4", features);
        as_tune2fs(&device, &feature("casefold"), &["-O", "casefold"]);
        as_tune2fs(&device, &feature("verity"), &["-O", "verity"]);
        as_tune2fs(&device, &feature("mmp"), &["-O", "mmp"]);
        let raw = || ext4::format::RawSuper::read(&device.snapshot()[1024..2048]).expect("1 KiB");
        assert_ne!(raw().s_mmp_block.get(), 0);
        if features != "bigalloc" {
            as_tune2fs(&device, &feature("^metadata_csum"), &["-O", "^metadata_csum"]);
        }
        as_tune2fs(&device, &feature("^mmp"), &["-O", "^mmp"]);
        assert_eq!(raw().s_mmp_block.get(), 0);
    }
}

/// Goal: features go that tune2fs clears, and come back. Method: beside tune2fs, one after the
/// other, with checksums and without. For `filetype` it asks for a run of e2fsck, which both judges
/// do not need here.
#[test]
fn features_of_a_bit_go_and_come() {
    for features in ["casefold", "^metadata_csum", "inline_data", "inline_data,^metadata_csum"] {
        let device = image("ext4", features);
        if features == "casefold" {
            as_tune2fs(&device, &feature("^casefold"), &["-O", "^casefold"]);
        }
        for name in ["dir_index", "large_file", "huge_file", "dir_nlink", "filetype"] {
            let off = format!("^{name}");
            as_tune2fs(&device, &feature(&off), &["-O", &off]);
            as_tune2fs(&device, &feature(name), &["-O", name]);
        }
        as_tune2fs(&device, &feature("read-only"), &["-O", "read-only"]);
        assert!(manifest(&device).is_none(), "no mount writes");
        as_tune2fs(&device, &feature("^read-only"), &["-O", "^read-only"]);
        assert!(manifest(&device).is_some());
    }
}

/// Goal: a feature that a directory asks for stays. Method: beside tune2fs, with its flag.
#[test]
fn features_in_use_stay() {
    let device = image("ext4", "casefold");
    let file = testkit::image::write_device(&device);
    judge::debugfs(file.path(), true, "mkdir folded\nset_inode_field folded flags 0x40080000\n");
    let device = Arc::new(testkit::image::load(file.path()));
    let text = change(&device, &feature("^casefold")).expect_err("refused").to_string();
    assert!(text.contains("casefold cannot be cleared"), "{text}");
    let theirs = judge::run("tune2fs", &[&"-O", &"^casefold", &file.path()]);
    let said = String::from_utf8_lossy(&theirs.stderr).into_owned();
    assert!(said.contains("casefold feature can't be cleared"), "{said}");
}

/// Goal: quota files come with what everybody uses, and go. Method: one kind after the other, on an
/// image with owners, attributes and values in inodes of their own; e2fsck counts too.
#[test]
fn quota_comes_and_goes() {
    for features in ["", "ea_inode,bigalloc"] {
        let device = image("ext4", features);
        for word in ["quota", "project", "^project", "^quota", "project", "^project"] {
            as_tune2fs(&device, &feature(word), &["-O", word]);
        }
        as_tune2fs(&device, &feature("project"), &["-O", "project"]);
        as_tune2fs(&device, &feature("^quota"), &["-O", "^quota"]);
    }
    let old = image("ext3", "^dir_index");
    as_tune2fs(&old, &feature("quota"), &["-O", "quota"]);
    let small = image("ext2", "");
    let text = change(&small, &feature("project")).err().map(|error| error.to_string());
    assert!(text.is_none_or(|text| text.contains("inodes of 256 bytes")));
}

/// Goal: inodes become longer, and keep what they have: with attributes inside, in deep maps, where
/// tables have to move and files give way. Method: tune2fs where it can (it refuses `flex_bg`, and
/// damages inodes of 128 bytes with checksums), else e2fsck and the tree.
#[test]
fn inodes_become_longer() {
    let longer = |bytes| TuneOptions { inode_size: Some(bytes), ..TuneOptions::default() };
    for (features, sizes) in
        [("^flex_bg", &[512, 1024][..]), ("^flex_bg,^metadata_csum,^uninit_bg", &[512])]
    {
        let device = image("ext4", features);
        for &size in sizes {
            as_tune2fs(&device, &longer(size), &["-I", &size.to_string()]);
        }
    }
    for (fstype, features, sizes) in [
        ("ext4", "inline_data,quota,orphan_file,mmp", &[512, 1024][..]),
        ("ext4", "ea_inode,bigalloc", &[1024]),
        ("ext4", "meta_bg,^resize_inode", &[512]),
        ("ext3", "", &[512]),
    ] {
        let device = image(fstype, features);
        for &size in sizes {
            let before = manifest(&device).expect("it is mounted");
            change(&device, &longer(size)).unwrap_or_else(|e| panic!("{features}: {e}"));
            assert_eq!(geometry(&device).inode_size, size);
            let file = testkit::image::write_device(&device);
            judge::e2fsck(file.path()).unwrap_or_else(|text| panic!("{features}: {text}"));
            assert!(manifest(&device).expect("it is mounted") == before, "{features}: a tree");
        }
    }
    let device = image("ext4", "");
    let error = |options: &TuneOptions| change(&device, options).expect_err("refused").to_string();
    assert!(error(&longer(128)).contains("only larger powers of two"));
    assert!(error(&longer(2048)).contains("only larger powers of two"));
    let both = TuneOptions { inode_size: Some(512), ..feature("^metadata_csum") };
    assert!(error(&both).contains("one after the other"));
}

/// Goal: inodes of 128 bytes become longer. Method: as above; afterwards new files have extra
/// fields, old ones keep their times.
#[test]
fn short_inodes_become_longer() {
    for features in ["", "^metadata_csum,uninit_bg"] {
        let file =
            by_mke2fs(16 << 20, features, &[&small_groups("ext4")[..], &["-I", "128"]].concat());
        let device = Arc::new(testkit::image::load(file.path()));
        Kind::fill(&device, 1024);
        let before = manifest(&device).expect("it is mounted");
        let longer = TuneOptions { inode_size: Some(256), ..TuneOptions::default() };
        change(&device, &longer).unwrap_or_else(|e| panic!("{features}: {e}"));
        let file = testkit::image::write_device(&device);
        judge::e2fsck(file.path()).unwrap_or_else(|text| panic!("{features}: {text}"));
        assert!(manifest(&device).expect("it is mounted") == before, "{features}: a tree");
    }
}

/// Goal: the words of `-Q`, one kind and several at once. Method: the same by tune2fs.
#[test]
fn kinds_of_quota_as_tune2fs_takes_them() {
    let kinds = |words: &str| TuneOptions {
        quota: words.split(',').map(String::from).collect(),
        ..TuneOptions::default()
    };
    let device = image("ext4", "");
    for words in [
        "usrquota",
        "grp",
        "^usrquota",
        "prjquota",
        "^grpquota",
        "^prjquota",
        "usrquota,^grpquota,prjquota",
        "^usr,^prj",
        "usrquota,^usrquota",
    ] {
        as_tune2fs(&device, &kinds(words), &["-Q", words]);
    }
    as_tune2fs(&device, &feature("quota"), &["-O", "quota"]);
    let both = TuneOptions { features: vec!["project".into()], ..kinds("^usrquota") };
    as_tune2fs(&device, &both, &["-Q", "^usrquota", "-O", "project"]);
    let none = TuneOptions { features: vec!["^quota".into()], ..kinds("usrquota") };
    as_tune2fs(&device, &none, &["-Q", "usrquota", "-O", "^quota"]);
    let refused = change(&device, &kinds("users")).expect_err("no such kind");
    assert!(refused.to_string().contains("usrquota, grpquota or prjquota"), "{refused}");
}

/// Goal: an orphan file of another size. Method: a new one, and one in place of the one before;
/// blocks and bytes; tune2fs does the same.
#[test]
fn orphan_files_have_the_size_that_is_wanted() {
    let of = |size| TuneOptions { orphan_file_size: Some(size), ..TuneOptions::default() };
    let device = image("ext4", "^orphan_file");
    let first = of(Span::Bytes(40 << 10));
    change(&device, &first).expect_err("there is none");
    let first = TuneOptions { features: vec!["orphan_file".into()], ..first };
    as_tune2fs(&device, &first, &["-O", "orphan_file", "-E", "orphan_file_size=40k"]);
    for (size, word) in [(Span::Bytes(80 << 10), "80k"), (Span::Blocks(3), "3")] {
        as_tune2fs(&device, &of(size), &["-E", &format!("orphan_file_size={word}")]);
    }
    change(&device, &of(Span::Blocks(9000))).expect_err("more than 8 MiB");
}

/// Goal: the orphan file comes and goes. Method: with checksums and without.
#[test]
fn the_orphan_file_comes_and_goes() {
    for features in ["^orphan_file", "^metadata_csum,^orphan_file"] {
        let device = image("ext4", features);
        as_tune2fs(&device, &feature("orphan_file"), &["-O", "orphan_file"]);
        as_tune2fs(&device, &feature("^orphan_file"), &["-O", "^orphan_file"]);
    }
}

/// Goal: the blocks that were kept for descriptors are free afterwards. Method: tune2fs, which
/// leaves that to e2fsck, does the same.
#[test]
fn the_reserve_of_descriptors_goes() {
    for features in ["resize_inode", "resize_inode,^metadata_csum,^uninit_bg"] {
        let device = image("ext4", features);
        let theirs = testkit::image::write_device(&device);
        let before = manifest(&device).expect("it is mounted");
        change(&device, &feature("^resize_inode")).expect("changed");
        let ours = testkit::image::write_device(&device);
        judge::e2fsck(ours.path()).unwrap_or_else(|text| panic!("{text}"));
        assert!(manifest(&device).expect("it is mounted") == before, "another tree");
        let path = theirs.path();
        judge::run_ok("tune2fs", &[&"-f", &"-O", &"^resize_inode", &path]);
        judge::run("e2fsck", &[&"-fy", &path]);
        // That of e2fsck is a check, which begins a new count.
        let same = |image: &Path| {
            let lines = printed(image).into_iter();
            lines.filter(|line| !line.starts_with("Mount count")).collect::<Vec<_>>()
        };
        assert_eq!(same(ours.path()), same(path));
        let free = |image: &Path| {
            let text = judge::run_ok("dumpe2fs", &[&"-h", &image]);
            text.lines().find(|line| line.starts_with("Free blocks")).map(str::to_owned)
        };
        assert_eq!(free(ours.path()), free(path));
        let text = change(&device, &feature("resize_inode")).expect_err("refused").to_string();
        assert!(text.contains("resize_inode cannot be set"), "{text}");
    }
}

fn geometry(device: &MemoryDevice) -> Geometry {
    Geometry::parse(&device.snapshot()[1024..2048], 0).expect("a sound superblock")
}

/// Goal: what is not done is refused by name. Method: one of each reason.
#[test]
fn what_is_not_done_is_named() {
    let device = image("ext4", "stable_inodes");
    let before = device.snapshot();
    let refused =
        |options: &TuneOptions| change(&device, options).expect_err("refused").to_string();
    assert!(refused(&feature("bigalloc")).contains("bigalloc cannot be set"));
    assert!(refused(&feature("nonsense")).contains("no feature is named nonsense"));
    let uuid = TuneOptions { uuid: Some(UUID), ..TuneOptions::default() };
    assert!(refused(&uuid).contains("stable_inodes forbids"));
    let values = image("ext4", "ea_inode,^metadata_csum");
    let seed = change(&values, &uuid).expect_err("refused").to_string();
    assert!(seed.contains("with ea_inode the seed of checksums stays"), "{seed}");
    let beside = image("ext4", "^metadata_csum");
    // s_journal_inum and s_journal_dev: the journal is another device's.
    beside.write_at(1024 + 0xe0, &[0, 0, 0, 0, 1, 7, 0, 0]);
    let text = change(&beside, &uuid).expect_err("refused").to_string();
    assert!(text.contains("its journal lies on another device"), "{text}");
    let label = TuneOptions { label: Some(vec![b'x'; 17]), ..TuneOptions::default() };
    assert!(refused(&label).contains("16 bytes"));
    let journal = TuneOptions { journal_bytes: Some(8 << 20), ..TuneOptions::default() };
    assert!(refused(&journal).contains("has a journal"));
    assert!(device.snapshot() == before, "nothing is written");
}
