//! Our mkfs makes the bytes that mkfs.xfs makes; the kernel and xfs_repair take the result.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::*;
use base::Timespec;
use testkit::{manifest, newest};
use vfs::FileSystem;
use xfs::MkfsOptions;
use xfs::format::{Kind, RawSuper, inode::RawInode, verifier};
use xfs::mkfs::{COMPAT, Plan, Surroundings, plan};

/// The options that these words of the command line make.
fn options(words: &str) -> MkfsOptions {
    edited(MkfsOptions { uuid: None, ..MkfsOptions::default() }, words)
}

fn edited(mut options: MkfsOptions, words: &str) -> MkfsOptions {
    options.edit('m', &format!("uuid={UUID}")).expect("a UUID");
    let words: Vec<&str> = words.split_whitespace().collect();
    for pair in words.chunks(2) {
        if pair[0] == "-L" {
            options.label = pair[1].to_string();
            continue;
        }
        let section = pair[0].chars().nth(1).expect("a letter");
        options.edit(section, pair[1]).unwrap_or_else(|error| panic!("{error}"));
    }
    options
}

fn make_plan(words: &str, device_bytes: u64) -> Plan {
    plan_of(&options(words), words, device_bytes)
}

fn plan_of(options: &MkfsOptions, words: &str, device_bytes: u64) -> Plan {
    let now = Timespec { sec: 1_700_000_000, nsec: 5 };
    let around = Surroundings { device_bytes, now, uuid: [0; 16], generation: 7 };
    plan(options, &around).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Everything that is written, the primary superblock first.
fn all_writes(plan: &Plan) -> Vec<(u64, Vec<u8>)> {
    let mut writes = plan.writes.clone();
    writes.insert(0, (0, plan.head.clone()));
    writes
}

/// Sets what must differ in the first inodes to one value where it is not zero, and the checksum
/// over it: times and random generations.
fn mask_times(bytes: &mut [u8], inode_size: usize) {
    for (index, slot) in bytes.chunks_exact_mut(inode_size).enumerate() {
        let raw = RawInode::view_mut(slot).expect("an inode");
        let mark = |field: &mut zerocopy::big_endian::U32| field.set(u32::from(field.get() != 0));
        mark(&mut raw.di_gen);
        if index >= 3 {
            verifier::update_crc(Kind::Inode, slot);
            continue;
        }
        raw.di_atime.set(u64::from(raw.di_atime.get() != 0));
        raw.di_mtime.set(0);
        raw.di_ctime.set(0);
        raw.di_crtime.set(0);
        verifier::update_crc(Kind::Inode, slot);
    }
}

/// Compares an image of mkfs.xfs with our plan, byte by byte but for the times and generations of
/// inodes.
fn compare(words: &str, size_mib: u64, whole: bool) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    mkfs_xfs(&image, size_mib, words);
    let plan = make_plan(words, size_mib << 20);
    same(&image, &plan, &format!("{words} of {size_mib} MiB"), whole);
}

/// The same with the newest mkfs.xfs, for a kernel and with more words.
fn compare_newest(kernel: &str, words: &str, size_mib: u64) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    let conf = newest::folder().join(format!("usr/share/xfsprogs/mkfs/lts_{kernel}.conf"));
    let conf = format!("options={}", conf.display());
    let uuid = format!("uuid={UUID}");
    let mut args = vec!["-m", &uuid];
    if kernel != "7.2" {
        args.extend(["-c", &conf]);
    }
    args.extend(words.split_whitespace());
    newest::mkfs_xfs(&image, size_mib << 20, &args);
    let options = MkfsOptions::compat(kernel).expect("a kernel");
    let plan = plan_of(&edited(options, words), words, size_mib << 20);
    same(
        &image,
        &plan,
        &format!("for {kernel} {words} of {size_mib} MiB"),
        size_mib == 300 && kernel == "7.2",
    );
}

/// Goal: the conf files that xfsprogs ships say to us what they say to mkfs.xfs. Method: byte for
/// byte, each file with the newest mkfs.xfs.
#[test]
fn files_of_options_are_those_of_mkfs_xfs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let folder = newest::folder().join("usr/share/xfsprogs/mkfs");
    let files = COMPAT[..8].iter().map(|name| folder.join(format!("lts_{name}.conf")));
    for path in files {
        let image = dir.path().join("image");
        let conf = format!("options={}", path.display());
        let uuid = format!("uuid={UUID}");
        newest::mkfs_xfs(&image, 320 << 20, &["-m", &uuid, "-c", &conf]);
        let mut options = edited(MkfsOptions::compat("7.2").expect("known"), "");
        options.edit_file(&std::fs::read_to_string(&path).expect("a file")).expect("known words");
        same(&image, &plan_of(&options, &conf, 320 << 20), &conf, false);
    }
}

/// Compares an image with our plan.
fn same(image: &Path, plan: &Plan, words: &str, whole: bool) {
    let geometry = &plan.report.geometry;
    let file = std::fs::File::open(image).expect("the image opens");
    let (place, offset) = geometry.ino_place(geometry.root_ino);
    let inodes = geometry.ag_sector(place).bytes() + offset as u64;
    let mut covered = Vec::new();
    for (offset, mut ours) in all_writes(plan) {
        let mut theirs = vec![0; ours.len()];
        file.read_exact_at(&mut theirs, offset).expect("the image is long enough");
        if offset == inodes {
            mask_times(&mut ours, geometry.inode_size as usize);
            mask_times(&mut theirs, geometry.inode_size as usize);
        }
        let differs = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
        if let Some(place) = differs {
            let from = place & !15;
            panic!(
                "{words}: byte {:#x} (write at {offset:#x} + {place:#x})\n\
                 ours {:02x?}\ntheirs {:02x?}",
                offset + place as u64,
                &ours[from..from + 16],
                &theirs[from..from + 16]
            );
        }
        covered.push((offset, offset + ours.len() as u64));
    }
    if whole {
        nothing_else(image, &covered, words);
    }
}

/// Every byte that we do not write is zero in their image as well.
fn nothing_else(image: &Path, covered: &[(u64, u64)], words: &str) {
    let bytes = testkit::image::read(image);
    for (index, block) in bytes.chunks(512).enumerate() {
        let at = index as u64 * 512;
        let ours = || covered.iter().any(|&(from, to)| from <= at && at < to);
        assert!(base::page::is_zero(block) || ours(), "{words}: we leave out {at:#x}");
    }
}

/// Goal: what the newest mkfs.xfs makes by default, for each kernel, and with further options.
#[test]
fn each_kernel_gets_the_bytes_of_the_newest_mkfs_xfs() {
    for kernel in COMPAT {
        compare_newest(kernel, "", 300);
    }
    for words in [
        "-L a-label -n parent=0",
        "-i exchange=0",
        "-m autofsck=0",
        "-m autofsck=check -i size=1024",
        "-n parent=0 -i exchange=0 -m rmapbt=0",
        "-b size=1024",
        "-b size=2048 -i size=1024 -n size=64k",
        "-m reflink=0,finobt=0,inobtcount=0",
        "-i sparse=0,nrext64=0 -m bigtime=0",
        "-d agcount=7",
        "-d su=64k,sw=4",
        "-l size=100m",
        "-n version=ci",
        "-s size=4096",
    ] {
        compare_newest("7.2", words, 1024);
    }
}

/// Goal: further options, of every letter, make what the newest mkfs.xfs makes of them.
#[test]
fn options_make_the_bytes_of_the_newest_mkfs_xfs() {
    for words in [
        "-m rmapbt=0",
        "-m bigtime=0,inobtcount=0 -i nrext64=0",
        "-m reflink=0",
        "-m autofsck=repair -n size=16k",
        "-m finobt=0,inobtcount=0,rmapbt=0 -s size=2048",
        "-i sparse=0 -n size=64k",
        "-i size=1024,maxpct=50",
        "-i size=2048 -m reflink=0",
        "-i perblock=4",
        "-i maxpct=0 -n size=32k",
        "-i sparse=0 -b size=2048",
        "-b size=1024 -s size=1024",
        "-b size=2048 -n size=8k",
        "-b size=8k -l size=70m",
        "-b size=16k -l size=70m",
        "-b size=16k -d agsize=80m -l size=75m",
        "-b size=32k",
        "-b size=64k",
        "-b size=64k -d agcount=3 -n size=64k",
        "-b size=64k -m rmapbt=0,reflink=0 -i size=2048",
        "-b size=64k -s size=8k",
        "-b size=64k -l su=128k",
        "-b size=32k -s size=32k",
        "-b size=16k -s size=16k -l size=80m",
        "-l su=32k",
        "-l su=256k",
        "-l size=65m,su=64k",
        "-d agcount=2",
        "-d agcount=5 -l size=64m",
        "-d agsize=100m",
        "-d agsize=32000b",
        "-d size=410m,agcount=3 -l lazy-count=1",
        "-d su=32k,sw=2 -l su=64k",
        "-d su=64k,sw=1 -n parent=0",
        "-d sunit=256,swidth=1024",
        "-d noalign",
        "-d projinherit=7",
        "-d extszinherit=16,daxinherit=1",
        "-d cowextsize=32",
    ] {
        compare_newest("7.2", words, 555);
    }
}

/// Goal: the log by default is that of the newest mkfs.xfs with large blocks and without parent
/// pointers, which needs a longer one; Linux refused some of ours. Method: byte for byte, over the
/// sizes of groups where trees get a second level, sectors and stripe units, trees left out.
#[test]
fn logs_for_large_blocks_are_those_of_mkfs_xfs() {
    for (words, mib) in [
        ("-b size=64k", 600),
        ("-b size=64k", 900),
        ("-b size=64k", 2400),
        ("-b size=64k -s size=4096", 600),
        ("-b size=64k -s size=1024", 2400),
        ("-b size=64k -s size=32768", 2400),
        ("-b size=64k -l su=64k", 2400),
        ("-b size=64k -l su=256k", 900),
        ("-b size=64k -m rmapbt=0", 900),
        ("-b size=64k -m rmapbt=0 -l su=256k", 2400),
        ("-b size=64k -m reflink=0 -l su=128k", 900),
        ("-b size=32k", 330),
        ("-b size=32k", 600),
        ("-b size=32k -s size=8192", 330),
        ("-b size=32k -s size=2048", 600),
        ("-b size=32k -l su=256k", 600),
        ("-b size=32k -m rmapbt=0", 330),
        ("-b size=32k -m rmapbt=0", 600),
        ("-b size=32k -m reflink=0 -l su=128k", 600),
        ("-b size=32k -m rmapbt=0,reflink=0 -s size=16384", 600),
        ("-b size=32k -d su=64k,sw=2", 600),
    ] {
        compare_newest("7.2", &format!("{words} -n parent=0"), mib);
    }
}

/// Goal: a file system whose log lies on another device, and that log, are those of mkfs.xfs.
/// Method: byte for byte, the log whole.
#[test]
fn external_logs_are_those_of_mkfs_xfs() {
    for (words, mib, more) in [
        ("", 64, ""),
        ("-m reflink=0", 100, ",su=32k"),
        ("-b size=1024", 80, ",size=70m"),
        ("-b size=16k -d agsize=24m", 64, ""),
    ] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (image, log) = (dir.path().join("image"), dir.path().join("log"));
        std::fs::File::create(&log).and_then(|file| file.set_len(mib << 20)).expect("a file");
        let uuid = format!("uuid={UUID}");
        let theirs = format!("{words} -l logdev={}{more}", log.display());
        let mut args = vec!["-m", &uuid];
        args.extend(theirs.split_whitespace());
        newest::mkfs_xfs(&image, 320 << 20, &args);
        let ours = match more.strip_prefix(',') {
            Some(more) => format!("{words} -l {more}"),
            None => words.to_string(),
        };
        let mut options = edited(MkfsOptions::compat("7.2").expect("known"), &ours);
        options.log_device = Some(mib << 20);
        let plan = plan_of(&options, &ours, 320 << 20);
        same(&image, &plan, &theirs, true);
        let record = plan.log.expect("a log on a device of its own").record;
        let bytes = testkit::image::read(&log);
        assert!(bytes[..record.len()] == record, "{theirs}: the record");
        assert!(base::page::is_zero(&bytes[record.len()..]), "{theirs}: behind the record");
    }
}

#[test]
fn features_and_sizes_make_the_same_bytes_as_mkfs_xfs() {
    for words in [
        "-L a-label",
        "-m rmapbt=1",
        "-m finobt=0,inobtcount=0,reflink=0",
        "-m bigtime=0,inobtcount=0 -i nrext64=1",
        "-i sparse=0 -n size=64k",
        "-i size=1024,maxpct=50",
        "-i size=2048 -m rmapbt=1,reflink=0",
        "-b size=1024",
        "-b size=2048 -m rmapbt=1 -n size=8k",
        "-s size=4096",
        "-b size=1024 -s size=1024",
        "-l size=20m",
        "-l su=32k -m rmapbt=1",
        "-l su=256k",
        "-d agcount=7 -l size=32m",
        "-d agcount=1",
        "-d agcount=2",
    ] {
        compare(words, 333, true);
    }
    for words in [
        "-d agsize=20m -l size=16m",
        "-d agsize=32000b",
        "-i perblock=4",
        "-d projinherit=7",
        "-d extszinherit=16,daxinherit=1",
        "-d cowextsize=32,rtinherit=1",
        "-i maxpct=0 -n size=32k",
        "-i sparse=0 -b size=2048",
        "-m finobt=0,inobtcount=0,rmapbt=1 -s size=2048",
        "-d size=310m,agcount=3 -l lazy-count=1",
        "-d su=32k,sw=2 -l su=64k,size=24m",
    ] {
        compare(words, 333, true);
    }
    // Where the log fills its group but for a few blocks mkfs.xfs leaves that group's free list
    // empty, which the kernel fills at the first chance; ours is filled. Hence a larger size.
    compare("-d su=64k,sw=4", 640, true);
}

#[test]
fn sizes_and_stripes_make_the_same_bytes_as_mkfs_xfs() {
    for (words, size_mib) in [
        ("-L x", 300),
        ("-L x", 1023),
        ("-d su=64k,sw=1", 555),
        ("-d su=256k,sw=8", 3 << 10),
        ("-d su=256k,sw=8", (9 << 10) + 3),
        ("-d su=128k,sw=3", 777),
        ("-d su=1m,sw=5", 100 << 10),
        ("-d su=64k,sw=4", 600 << 10),
        ("-m rmapbt=1", 300 << 10),
        ("-L x", 2 << 20),
        ("-L x", (4 << 20) + 9),
        ("-d su=64k,sw=4", 5 << 20),
    ] {
        compare(words, size_mib, false);
    }
}

#[test]
fn equal_plans_are_equal_and_times_and_labels_arrive() {
    let (one, two) = (make_plan("-L volume", 1 << 30), make_plan("-L volume", 1 << 30));
    assert_eq!(all_writes(&one), all_writes(&two));
    assert_eq!(RawSuper::view(&one.head).expect("a superblock").label(), b"volume");
}

#[test]
fn impossible_options_are_refused_by_name() {
    let refused = |words: &str, size_mib: u64| {
        let around = Surroundings {
            device_bytes: size_mib << 20,
            now: Timespec::from_secs(0),
            uuid: [0; 16],
            generation: 7,
        };
        plan(&options(words), &around).expect_err(words).to_string()
    };
    assert!(refused("-L x", 299).contains("300 MiB"));
    assert!(refused("-b size=131072", 400).contains("a block of 131072"));
    assert!(refused("-i size=4096", 400).contains("an inode of 4096"));
    assert!(refused("-n size=2048", 400).contains("a directory block"));
    assert!(refused("-d agcount=100", 400).contains("allocation groups"));
    assert!(refused("-l size=1m", 400).contains("a log of 256 blocks"));
    assert!(refused("-l size=200m", 400).contains("a log of"));
    assert!(refused("-d su=1000,sw=2", 400).contains("stripe unit"));
    assert!(refused("-m finobt=0", 400).contains("inobtcount needs finobt"));
    assert!(refused("-L thirteen-byte", 400).contains("12 bytes"));
    assert!(refused("-d size=500m", 400).contains("are asked for"));
    let groups = "-m metadir=1 -i exchange=1 -r size=64g,rgcount=8192";
    assert!(refused(groups, 4000).contains("8192 realtime groups are too many"));
}

#[test]
fn the_kernel_fills_what_we_made_and_xfs_repair_finds_nothing() {
    for words in ["-m rmapbt=1 -i nrext64=1", "-b size=1024 -n size=4096 -l su=32k", "-d agcount=3"]
    {
        let options = options(words);
        let device = in_world(move |cx| {
            let device = std::sync::Arc::new(device::MemoryDevice::new(320 << 20));
            let queue = queue(cx, device.clone());
            xfs::mkfs(cx, &queue, &options).expect("mkfs");
            let fs = try_mount(cx, device.clone()).expect("we mount it");
            assert_eq!(manifest::of_fs(cx, &*fs).expect("readable").len(), 1);
            fs.unmount(cx).expect("unmount");
            device
        });
        let file = testkit::image::write_device(&device);
        let image = file.path();
        xfs_repair(image).unwrap_or_else(|message| panic!("{words}: {message}"));
        let mount = kernel(image);
        let block = if words.contains("1024") { 1024 } else { 4096 };
        fill::fill(&mount.path(), fill::Scale { long_names: 500, extents: 300, block });
        drop(mount);
        xfs_repair(image).unwrap_or_else(|message| panic!("{words}: {message}"));
        assert!(kernel_tree(image).len() > 2000);
    }
}

/// `mkfs` wrote sectors of 512 bytes to a device whose sectors have 4 KiB, which refused them.
#[test]
fn sectors_are_no_smaller_than_those_of_the_device() {
    let info = block::DeviceInfo::plain((320 << 20) / 512);
    let info = block::DeviceInfo { logical_block: 4096, physical_block: 4096, ..info };
    let device = std::sync::Arc::new(device::MemoryDevice::with_info(info));
    let disk = device.clone();
    in_world(move |cx| {
        let queue = queue(cx, disk);
        let report = xfs::mkfs(cx, &queue, &options("")).expect("mkfs");
        assert_eq!(report.geometry.sector_size, 4096);
    });
    let image = testkit::image::write_device(&device);
    xfs_repair(image.path()).expect("xfs_repair finds nothing");
}

/// A file of so many bytes beside an image, for a realtime section.
fn section(dir: &Path, mib: u64) -> String {
    let path = dir.join("section");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(mib << 20).expect("the file takes its size");
    path.display().to_string()
}

/// Goal: a realtime section of the old form is that of mkfs.xfs, of 6.1 and of the newest: numbers,
/// bitmap, summary, both inodes. Method: sections whose bitmap fits before the root's chunk and
/// behind it only, extents of one block and of more, small blocks, the root's defaults.
#[test]
fn realtime_sections_are_those_of_mkfs_xfs() {
    let cases = [
        ("-d rtinherit=1", 128, ""),
        ("-d agcount=2", 8192, "extsize=4k"),
        ("-i size=1024 -d rtinherit=1,extszinherit=14", 200, "extsize=28k"),
        ("-b size=1024 -m inobtcount=0", 700, "extsize=64k"),
    ];
    for (words, mib, extent) in cases {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = dir.path().join("image");
        let path = section(dir.path(), mib);
        let comma = if extent.is_empty() { "" } else { "," };
        let theirs = format!("{words} -r rtdev={path}{comma}{extent}");
        let ours = format!("{words} -r size={}{comma}{extent}", mib << 20);
        mkfs_xfs(&image, 300, &theirs);
        same(&image, &make_plan(&ours, 300 << 20), &ours, true);
        let uuid = format!("uuid={UUID}");
        let mut args = vec!["-m", &uuid];
        args.extend(theirs.split_whitespace());
        newest::mkfs_xfs(&image, 300 << 20, &args);
        let newest = edited(MkfsOptions::compat("7.2").expect("known"), &ours);
        same(&image, &plan_of(&newest, &ours, 300 << 20), &format!("7.2: {ours}"), true);
    }
}

/// Goal: the metadata directory, and realtime sections in groups, are those of the newest mkfs.xfs.
/// Method: byte for byte, with its generations and times made fixed ones: every default of the
/// size, names in the inode and in a block, trees left out, small blocks, odd last groups.
#[test]
fn metadata_directories_are_those_of_mkfs_xfs() {
    let cases: &[(&str, u64, &str)] = &[
        ("", 0, ""),
        ("-n parent=0 -m rmapbt=0,reflink=0", 0, "extsize=28k"),
        ("-m uquota,pqnoenforce -b size=1024", 0, ""),
        ("-m gquota -l size=64m -d agcount=3", 64, ""),
        ("", 100, ""),
        ("-d agcount=2", 300, "rgcount=2"),
        ("-d rtinherit=1", 300, "rgcount=3"),
        ("-n parent=0", 1024, "rgcount=3"),
        ("-d agcount=3", 1100, ""),
        ("-m rmapbt=0", 2048, "rgsize=300m"),
        ("-m reflink=0 -i size=1024", 3072, "extsize=64k"),
        ("-b size=1024", 300, "rgcount=5"),
        ("-i size=2048 -m finobt=0,inobtcount=0", 2047, "rgcount=15"),
        ("-m bigtime=0 -i nrext64=0,sparse=0", 777, "rgcount=12,extsize=28k"),
        ("-s size=4096", 5 << 10, "rgcount=7"),
        ("", 65 << 10, ""),
    ];
    for &case in cases {
        same_with_section(case);
    }
}

/// Goal: the directory of the files of realtime groups in every form (one block, a leaf, a tree),
/// with a block map in a tree, and reverse maps of two and three levels, are those of the newest
/// mkfs.xfs, which needs some of them from 31 groups on; more than 30 were refused. Method: numbers
/// of groups at each threshold.
#[test]
fn many_realtime_groups_are_those_of_mkfs_xfs() {
    let counts = [30, 31, 32, 33, 62, 80, 100, 125, 126, 127, 190, 300, 1000];
    for count in counts {
        same_with_section(("", 5 << 10, &format!("rgcount={count}")));
    }
    for (words, count) in [
        ("-m rmapbt=0", 200),
        ("-m reflink=0", 21),
        ("-m reflink=0 -n parent=0", 400),
        ("-b size=1024", 512),
        ("-b size=1024 -n size=16k", 256),
        ("-n size=8k -i size=1024", 700),
        ("-d agcount=2", 600),
        ("-n version=ci -s size=4096", 333),
    ] {
        same_with_section((words, 5 << 10, &format!("rgcount={count}")));
    }
}

/// Compares an image with a realtime section of so many MiB, 0 for none, with that of the newest
/// mkfs.xfs: words, and those of `-r`.
fn same_with_section((words, mib, more): (&str, u64, &str)) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(300 << 20)).expect("a file");
    let mut theirs = format!("-m metadir=1,uuid={UUID} {words}");
    let mut ours = format!("-m metadir=1 {words}");
    if mib > 0 {
        let comma = if more.is_empty() { "" } else { "," };
        theirs += &format!(" -r rtdev={}{comma}{more}", section(dir.path(), mib));
        ours += &format!(" -r size={}{comma}{more}", mib << 20);
    } else if !more.is_empty() {
        theirs += &format!(" -r {more}");
        ours += &format!(" -r {more}");
    }
    let mut command = newest::command("mkfs.xfs");
    command.env("DETERMINISTIC_SEED", "1").env("SOURCE_DATE_EPOCH", "1700000000");
    let args = separate(&theirs);
    let output = command.args(["-q", "-f"]).args(args).arg(&image).output().expect("runs");
    assert!(output.status.success(), "{theirs}: {}", text(&output));
    let options = edited(MkfsOptions::compat("7.2").expect("known"), &ours);
    let plan =
        plan(&options, &deterministic(300)).unwrap_or_else(|error| panic!("{ours}: {error}"));
    same(&image, &plan, &ours, ["rgcount=2", "rgcount=300"].contains(&more));
    if mib > 0 {
        let block = plan.realtime.expect("a section in groups has a first block");
        let theirs = std::fs::File::open(dir.path().join("section")).expect("a file");
        let mut bytes = vec![0; block.len()];
        theirs.read_exact_at(&mut bytes, 0).expect("long enough");
        assert!(bytes == block, "{ours}: the first block of the section");
    }
}

/// An image of ours with a section of so many MiB in groups: both files.
pub fn with_groups(dir: &Path, words: &str, mib: u64, groups: u32) -> [PathBuf; 2] {
    let section = PathBuf::from(section(dir, mib));
    let words = format!("-m metadir=1 {words} -r size={},rgcount={groups}", mib << 20);
    let options = edited(MkfsOptions::compat("7.2").expect("known"), &words);
    let plan =
        plan(&options, &deterministic(300)).unwrap_or_else(|error| panic!("{words}: {error}"));
    let image = dir.join("image");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(300 << 20).expect("the file takes its size");
    for (offset, bytes) in
        plan.writes.iter().map(|(at, bytes)| (*at, bytes)).chain([(0, &plan.head)])
    {
        file.write_all_at(bytes, offset).expect("written");
    }
    let first = plan.realtime.expect("a section in groups has a first block");
    let file = std::fs::OpenOptions::new().write(true).open(&section).expect("the section opens");
    file.write_all_at(&first, 0).expect("written");
    [image, section]
}

/// Time and generations as mkfs.xfs takes them from `SOURCE_DATE_EPOCH` and `DETERMINISTIC_SEED`.
fn deterministic(mib: u64) -> Surroundings {
    let (now, generation) = (Timespec::from_secs(1_700_000_000), 0x5345_4544);
    Surroundings { device_bytes: mib << 20, now, uuid: [0; 16], generation }
}

/// The words of one command line, those of `-m` put together, which mkfs.xfs takes only once.
fn separate(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (metadata, others): (Vec<_>, Vec<_>) = words.chunks(2).partition(|pair| pair[0] == "-m");
    let metadata: Vec<&str> = metadata.iter().map(|pair| pair[1]).collect();
    let others = others.concat().into_iter().map(str::to_string);
    ["-m".to_string(), metadata.join(",")].into_iter().chain(others).collect()
}

/// Goal: blocks of 8 and 16 KiB are those of mkfs.xfs.
#[test]
fn large_blocks_are_those_of_mkfs_xfs() {
    for words in ["-b size=8k -l size=20m", "-b size=16k -l size=20m"] {
        compare(words, 300, true);
    }
}

/// Goal: any options that both take make the same bytes, and what mkfs.xfs makes we make. Method:
/// random words of every letter; `IOPATH_SEEDS` for more of them.
#[test]
fn random_options_make_the_bytes_of_mkfs_xfs() {
    let words: [(char, &[&str]); 21] = [
        ('b', &["size=1024", "size=2048", "size=8k", "size=16k", "size=32k", "size=64k"]),
        ('s', &["size=1k", "size=2k", "size=4k"]),
        ('i', &["size=1024", "size=2048", "perblock=8"]),
        ('i', &["maxpct=0", "maxpct=7", "maxpct=100"]),
        ('i', &["sparse=0"]),
        ('i', &["nrext64=0"]),
        ('i', &["exchange=0"]),
        ('n', &["size=8k", "size=16k", "size=64k"]),
        ('n', &["parent=0"]),
        ('n', &["version=ci"]),
        ('m', &["rmapbt=0"]),
        ('m', &["reflink=0"]),
        ('m', &["bigtime=0"]),
        ('m', &["inobtcount=0", "finobt=0,inobtcount=0"]),
        ('m', &["metadir=1", "metadir=1,uquota=1", "metadir=1,uqnoenforce=1,pquota=1"]),
        ('m', &["autofsck=0", "autofsck=check", "autofsck=optimize"]),
        ('l', &["size=65m", "size=90m", "size=128m"]),
        ('l', &["su=32k", "su=64k", "su=256k", "sunit=8"]),
        ('d', &["agcount=1", "agcount=3", "agcount=9", "agsize=100m", "agsize=131072k"]),
        ('d', &["su=32k,sw=2", "su=64k,sw=3", "su=256k,sw=8", "sunit=128,swidth=256"]),
        ('d', &["cowextsize=16", "extszinherit=8", "projinherit=9", "daxinherit=1"]),
    ];
    let (mut same_bytes, mut wrong) = (0, Vec::new());
    for seed in 0..24 * crate::world::seed_count(1) {
        let mut rng = base::Rng::new(seed, 21);
        let chosen = words.iter().filter(|_| rng.chance(0.2)).collect::<Vec<_>>();
        let pick = |(letter, list): &&(char, &[&str])| {
            format!("-{letter} {}", list[rng.below(list.len() as u64) as usize])
        };
        let text = chosen.iter().map(pick).collect::<Vec<_>>().join(" ");
        let mib = 600 + rng.below(900);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = dir.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("a file");
        let mut command = newest::command("mkfs.xfs");
        command.env("DETERMINISTIC_SEED", "1").env("SOURCE_DATE_EPOCH", "1700000000");
        let args = separate(&format!("-m uuid={UUID} {text}"));
        let output = command.args(["-q", "-f"]).args(args).arg(&image).output().expect("runs");
        // The least log of mkfs.xfs is not ours there.
        let other_log = text.contains("parent=0") && text.contains("-b size=32k")
            || text.contains("parent=0") && text.contains("-b size=64k");
        if !output.status.success() || other_log {
            continue;
        }
        let done = std::panic::catch_unwind(|| {
            let options = edited(MkfsOptions::compat("7.2").expect("known"), &text);
            let plan = plan(&options, &deterministic(mib)).map_err(|error| error.to_string());
            same(&image, &plan.expect("ours"), &text, false);
        });
        match done {
            Ok(()) => same_bytes += 1,
            Err(_) => wrong.push(format!("{mib} MiB {text}")),
        }
    }
    println!("{same_bytes} the same");
    assert_eq!(wrong, Vec::<String>::new());
    assert!(same_bytes > 8);
}
