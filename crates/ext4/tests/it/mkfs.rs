//! mkfs against mke2fs, e2fsck and the kernel.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{Scratch, assert_clean, run};
use base::Timespec;
use device::MemoryDevice;
use ext4::format::Geometry;
use ext4::format::casefold::Encoding;
use ext4::mkfs::{FsType, MkfsError, MkfsOptions, Plan, Release, Span, Surroundings, plan};
use rt::{Runtime, World, WorldConfig};
use testkit::judge::LoopMount;

pub const UUID: [u8; 16] = *b"\x11\x22\x33\x44\x55\x66\x47\x88\x89\xaa\xbb\xcc\xdd\xee\xff\x01";
pub const UUID_TEXT: &str = "11223344-5566-4788-89aa-bbccddeeff01";
const SEED: [u8; 16] = *b"\xa1\xa2\xa3\xa4\xa5\xa6\x47\xa8\x89\xaa\xab\xac\xad\xae\xaf\xa0";
pub const SEED_TEXT: &str = "a1a2a3a4-a5a6-47a8-89aa-abacadaeafa0";
pub const NOW: i64 = 1_700_000_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub fn around(bytes: u64) -> Surroundings {
    let now = Timespec { sec: NOW, nsec: 0 };
    Surroundings { device_bytes: bytes, sector: 512, now, uuid: UUID, hash_seed: SEED }
}

/// Carries a plan out on a new sparse file.
pub fn write(plan: &Plan, path: &Path, bytes: u64) {
    let _ = std::fs::remove_file(path);
    let file = OpenOptions::new().create_new(true).write(true).open(path).expect("a new file");
    file.set_len(bytes).expect("a sparse file");
    for (offset, data) in &plan.writes {
        file.write_all_at(data, *offset).expect("a write");
    }
    file.write_all_at(&plan.head, 0).expect("a write");
}

fn make(options: &MkfsOptions, path: &Path, bytes: u64) -> Result<Plan, MkfsError> {
    let plan = plan(options, &around(bytes))?;
    write(&plan, path, bytes);
    Ok(plan)
}

/// One case of the grid: type, block size, features, inode size, ratio, size.
#[derive(Clone, Copy, Debug)]
struct Case {
    fstype: FsType,
    block_size: Option<u32>,
    cluster_size: Option<u32>,
    features: &'static str,
    /// Names are UTF-8 and nothing else.
    strict: bool,
    inode_size: Option<u32>,
    ratio: Option<u32>,
    orphan_file: Option<Span>,
    size: u64,
}

impl Case {
    fn options(&self) -> MkfsOptions {
        MkfsOptions {
            fstype: self.fstype,
            size: Some(self.size),
            block_size: self.block_size,
            cluster_size: self.cluster_size,
            features: self.features.to_string(),
            inode_size: self.inode_size,
            inode_ratio: self.ratio,
            orphan_file_size: self.orphan_file,
            encoding: self.strict.then_some(Encoding { strict: true }),
            label: "grid".to_string(),
            ..MkfsOptions::default()
        }
    }

    /// The same with mke2fs, at the same time and with the same identifiers.
    fn mke2fs(&self, path: &Path, release: Release) {
        let fstype = format!("{:?}", self.fstype).to_lowercase();
        let extended = format!("hash_seed={SEED_TEXT},lazy_itable_init=0,lazy_journal_init=0");
        let strict = if self.strict { ",encoding=utf8-12.1,encoding_flags=strict" } else { "" };
        let orphan_file = match self.orphan_file {
            None => String::new(),
            Some(Span::Blocks(blocks)) => format!(",orphan_file_size={blocks}"),
            Some(Span::Bytes(bytes)) => format!(",orphan_file_size={}k", bytes / 1024),
        };
        let extended = extended + strict + &orphan_file;
        let size = format!("{}k", self.size / 1024);
        let mut args = vec!["-q", "-F", "-t", &fstype, "-U", UUID_TEXT, "-L", "grid"];
        let block_size = self.block_size.map(|size| size.to_string());
        let inode_size = self.inode_size.map(|size| size.to_string());
        let ratio = self.ratio.map(|ratio| ratio.to_string());
        let cluster = self.cluster_size.map(|size| size.to_string());
        let given = [("-b", &block_size), ("-C", &cluster), ("-I", &inode_size), ("-i", &ratio)];
        for (flag, value) in given {
            if let Some(value) = value {
                args.extend([flag, value]);
            }
        }
        if !self.features.is_empty() {
            args.extend(["-O", self.features]);
        }
        args.extend(["-E", &extended]);
        run_mke2fs(release, &args, path, &size);
    }
}

/// The releases that are compared with.
pub const RELEASES: [Release; 2] = [Release::V1_47_0, Release::V1_47_4];

/// Runs a mke2fs on a new file: that of the host, or the newest.
pub fn run_mke2fs(release: Release, args: &[&str], path: &Path, size: &str) {
    let _ = std::fs::remove_file(path);
    run_on(release, &[args, &[path.to_str().expect("utf-8"), size]].concat());
}

/// Runs a mke2fs on a file with this content.
pub fn run_mke2fs_over(release: Release, args: &[&str], path: &Path, old: &[u8]) {
    std::fs::write(path, old).expect("a file");
    run_on(release, &[args, &[path.to_str().expect("utf-8")]].concat());
}

fn run_on(release: Release, args: &[&str]) {
    let (code, text) = match release {
        Release::V1_47_0 => run("mke2fs", args),
        Release::V1_47_4 => {
            let mut command = testkit::newest::command("mke2fs");
            command.args(args).env("E2FSPROGS_FAKE_TIME", NOW.to_string());
            let out = command.env("MKE2FS_SKIP_CHECK_MSG", "1").output().expect("it starts");
            let text = [out.stdout, out.stderr].concat();
            (out.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
        }
    };
    assert_eq!(code, 0, "{release:?} mke2fs {args:?}: {text}");
}

/// ext4 as it is by default.
const EXT4: Case = Case {
    fstype: FsType::Ext4,
    block_size: None,
    cluster_size: None,
    features: "",
    strict: false,
    inode_size: None,
    ratio: None,
    orphan_file: None,
    size: 0,
};

/// Clusters of all sizes, with last ones that are cut off.
fn clusters() -> Vec<Case> {
    let mut cases = Vec::new();
    for (block, cluster, size) in [
        (None, None, 64 * MIB),
        (None, None, GIB),
        (Some(1024), Some(2048), 300 * MIB),
        (Some(1024), Some(4096), 600 * MIB + 1024),
        (Some(2048), Some(131_072), 300 * MIB),
        (Some(4096), Some(8192), 1000 * MIB + 4096),
        (Some(4096), Some(262_144), 9 * GIB),
        (Some(4096), Some(65536), 50 * GIB),
    ] {
        let base = Case { block_size: block, features: "bigalloc", size, ..EXT4 };
        cases.push(Case { cluster_size: cluster, ..base });
        cases.push(Case {
            cluster_size: cluster,
            features: "bigalloc,orphan_file,^resize_inode",
            ..base
        });
    }
    cases
}

/// Orphan files of other sizes.
fn orphan_files() -> Vec<Case> {
    [
        (None, "orphan_file", Span::Blocks(1)),
        (None, "orphan_file", Span::Blocks(8192)),
        (Some(4096), "orphan_file", Span::Bytes(43 << 10)),
        (Some(4096), "^metadata_csum,orphan_file", Span::Bytes(1 << 20)),
        (Some(4096), "orphan_file,bigalloc", Span::Blocks(100)),
        (Some(4096), "^orphan_file", Span::Blocks(9)),
    ]
    .map(|(block_size, features, orphan_file)| {
        let orphan_file = Some(orphan_file);
        Case { block_size, features, orphan_file, size: 200 * MIB, ..EXT4 }
    })
    .to_vec()
}

fn grid() -> Vec<Case> {
    let types = [FsType::Ext2, FsType::Ext3, FsType::Ext4];
    let mut cases = Vec::new();
    let case =
        |fstype, block_size, features, size| Case { fstype, block_size, features, size, ..EXT4 };
    for fstype in types {
        for size in [MIB, 8 * MIB, 64 * MIB, GIB, 20 * GIB] {
            cases.push(case(fstype, None, "", size));
        }
        for block_size in [1024, 2048, 4096] {
            for size in [8 * MIB, 200 * MIB] {
                cases.push(case(fstype, Some(block_size), "", size));
            }
        }
    }
    for features in [
        "metadata_csum_seed,orphan_file",
        "^has_journal",
        "^metadata_csum",
        "^metadata_csum,uninit_bg",
        "^64bit",
        "^64bit,^metadata_csum,uninit_bg",
        "^flex_bg",
        "^resize_inode",
        "^resize_inode,^sparse_super",
        "^extent,^64bit",
        "^dir_index,^filetype",
        "^huge_file,^large_file,^extra_isize,^dir_nlink",
        "inline_data",
        "casefold",
        "meta_bg,^resize_inode",
        "meta_bg,^resize_inode,^64bit,^flex_bg",
        "sparse_super2",
        "sparse_super2,^sparse_super,^resize_inode",
        "stable_inodes",
        "none",
    ] {
        for size in [64 * MIB, 600 * MIB] {
            cases.push(case(FsType::Ext4, None, features, size));
        }
    }
    // Three groups of groups.
    let tables = ["meta_bg,^resize_inode", "meta_bg,^resize_inode,^64bit", "sparse_super2"];
    for features in tables.into_iter().chain(["fast_commit"]) {
        cases.push(case(FsType::Ext4, Some(1024), features, 300 * MIB));
        cases.push(case(FsType::Ext4, Some(1024), features, 16 * MIB));
    }
    // A group whose inode bitmap is full.
    let base = case(FsType::Ext4, Some(4096), "", 128 * MIB);
    cases.push(Case { ratio: Some(4096), ..base });
    for (inode_size, ratio) in [(128, 4096), (512, 8192), (1024, 65536), (256, 1024)] {
        let base = case(FsType::Ext4, None, "", 100 * MIB);
        cases.push(Case { inode_size: Some(inode_size), ratio: Some(ratio), ..base });
    }
    cases.push(Case { strict: true, ..case(FsType::Ext4, None, "", 64 * MIB) });
    cases.extend(clusters().into_iter().chain(orphan_files()));
    for block_size in [8192, 16384, 32768, 65536] {
        for (size, features) in [(64 * MIB, ""), (600 * MIB, "orphan_file"), (9 * GIB, "")] {
            cases.push(case(FsType::Ext4, Some(block_size), features, size));
        }
        cases.push(case(FsType::Ext3, Some(block_size), "", 300 * MIB));
    }
    // Last groups of every awkward length, and sizes just below and above whole groups.
    for blocks in [8192, 8193, 8194, 8300, 8800, 8900, 16385, 24700, 131_073, 140_000, 262_143] {
        cases.push(case(FsType::Ext4, Some(1024), "", blocks * 1024));
        cases.push(case(FsType::Ext3, Some(1024), "", blocks * 1024));
    }
    cases.push(case(FsType::Ext4, None, "", 300 * GIB));
    cases
}

/// What a byte that differs belongs to, where it may differ.
pub fn allowed_difference(size: u64, geometry: &Geometry, offset: u64) -> Option<&'static str> {
    let block_size = u64::from(geometry.block_size);
    let long_journal = size > 128 * GIB;
    let copy = match offset {
        1024..2048 => Some(offset - 1024),
        _ => geometry
            .group_of_block(offset / block_size)
            .filter(|&(group, block)| block == 0 && geometry.has_super(group))
            .map(|_| offset % block_size),
    };
    match copy {
        Some(0x178..0x180) => return Some("s_kbytes_written"),
        Some(0x3fc..0x400) => return Some("s_checksum"),
        Some(0x124..0x148) if long_journal => return Some("s_jnl_blocks"),
        _ => {}
    }
    let inode = (7 * 256, 8 * 256);
    if long_journal && (inode.0..inode.1).contains(&(offset % block_size)) {
        return match offset % block_size - inode.0 {
            0x40..0x64 => Some("i_block"),
            0x7c..0x7e | 0x82..0x84 => Some("i_checksum"),
            _ => None,
        };
    }
    None
}

/// The byte ranges in which two files differ; holes are skipped.
pub fn differences(a: &Path, b: &Path) -> Vec<u64> {
    let (a, b) = (File::open(a).expect("a file"), File::open(b).expect("a file"));
    // mke2fs cuts a new file to the blocks that it uses, which the superblocks compare.
    let len = |file: &File| file.metadata().expect("metadata").len();
    let len = len(&a).min(len(&b));
    let (mut left, mut right) = (vec![0; 65536], vec![0; 65536]);
    let mut found = Vec::new();
    let mut at = 0;
    while at < len && found.len() < 1000 {
        let next = |file: &File| {
            let data = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at));
            data.unwrap_or(len)
        };
        at = next(&a).min(next(&b)) & !0xffff;
        if at >= len {
            break;
        }
        let part = (len - at).min(65536) as usize;
        a.read_exact_at(&mut left[..part], at).expect("a read");
        b.read_exact_at(&mut right[..part], at).expect("a read");
        if left[..part] != right[..part] {
            found.extend((0..part).filter(|&i| left[i] != right[i]).map(|i| at + i as u64));
        }
        at += part as u64;
    }
    found
}

/// Goal: our images are those of mke2fs, byte by byte, but for what is listed here. Method: same
/// options, UUID, hash seed and time; compare all bytes; e2fsck judges ours as well.
///
/// Differences: `s_kbytes_written` of the superblocks (mke2fs counts its own writes), and with it
/// their checksums. Where the journal has more than four extents (above 128 GiB), mke2fs leaves the
/// old entries behind the root's only one, in inode 8 and in its copy in the superblocks.
#[test]
fn images_are_those_of_mke2fs() {
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.path("ours"), scratch.path("theirs"));
    let mut wrong = Vec::new();
    let each = |case: Case| RELEASES.map(|release| (case, release));
    for (case, release) in grid().into_iter().flat_map(each) {
        let options = MkfsOptions { release, ..case.options() };
        let made = make(&options, &ours, case.size).unwrap_or_else(|e| panic!("{case:?} {e}"));
        case.mke2fs(&theirs, release);
        let bytes = differences(&ours, &theirs);
        let block = u64::from(made.report.block_size);
        let geometry = Geometry::parse(&made.head[1024..], 0).expect("a sound superblock");
        let allowed = |offset: &u64| allowed_difference(case.size, &geometry, *offset).is_none();
        let other: Vec<u64> = bytes.into_iter().filter(allowed).collect();
        let (code, text) = crate::common::e2fsck(&ours);
        if !other.is_empty() || code != 0 {
            let list: Vec<String> = other
                .iter()
                .take(12)
                .map(|offset| format!("{}+{:#x}", offset / block, offset % block))
                .collect();
            wrong.push(format!(
                "{release:?} {case:?}: {} bytes at {list:?}; e2fsck {code}: {text}",
                other.len()
            ));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

/// Goal: e2fsck finds nothing to say about options that mke2fs has no equal for.
#[test]
fn own_options_are_clean() {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    let base = MkfsOptions::default();
    for options in [
        MkfsOptions { root_owner: (1000, 100_000), root_mode: 0o1777, ..base.clone() },
        MkfsOptions { inodes_count: Some(20_000), ..base.clone() },
        MkfsOptions { inodes_count: Some(1), ..base.clone() },
        MkfsOptions { journal_size: Some(16 * MIB), reserved_percent: 0.5, ..base.clone() },
    ] {
        make(&options, &path, 100 * MIB).expect("possible options");
        assert_clean(&path, &format!("{options:?}"));
    }
}

/// Goal: every impossible option is refused with its own error, before anything is planned.
#[test]
fn impossible_options_are_refused() {
    let base = MkfsOptions::default();
    let try_it = |options: MkfsOptions, bytes: u64| plan(&options, &around(bytes)).map(|_| ());
    let refused = |options: MkfsOptions| try_it(options, 64 * MIB).expect_err("refused");
    let features = |text: &str| MkfsOptions { features: text.to_string(), ..base.clone() };
    assert!(matches!(refused(features("dirdata")), MkfsError::Feature(name) if name == "dirdata"));
    let clusters = |features: &str, size| MkfsOptions {
        features: features.to_string(),
        cluster_size: Some(size),
        ..base.clone()
    };
    assert!(matches!(
        refused(clusters("bigalloc,^extent,^64bit", 16384)),
        MkfsError::FeatureConflict(_)
    ));
    assert!(matches!(refused(clusters("", 16384)), MkfsError::FeatureConflict(_)));
    for size in [1024, 5000, 1 << 30] {
        assert!(matches!(
            refused(clusters("bigalloc", size)),
            MkfsError::ClusterSize { size: found, block_size: 1024 } if found == size
        ));
    }
    let orphan_file =
        |size| MkfsOptions { orphan_file_size: Some(size), ..features("orphan_file") };
    for size in
        [Span::Blocks(0), Span::Bytes(1000), Span::Blocks(8193), Span::Bytes((8 << 20) + 1024)]
    {
        assert!(matches!(refused(orphan_file(size)), MkfsError::OrphanFileSize), "{size:?}");
    }
    assert!(matches!(refused(features("nonsense")), MkfsError::UnknownFeature(_)));
    assert!(matches!(
        refused(features("metadata_csum_seed,^metadata_csum")),
        MkfsError::FeatureConflict(_)
    ));
    assert!(matches!(
        refused(MkfsOptions { block_size: Some(3000), ..base.clone() }),
        MkfsError::BlockSize(3000)
    ));
    assert!(matches!(
        refused(MkfsOptions { inode_size: Some(2048), ..base.clone() }),
        MkfsError::InodeSize(2048)
    ));
    assert!(matches!(
        refused(MkfsOptions { journal_size: Some(MIB / 2), ..base.clone() }),
        MkfsError::JournalSize { .. }
    ));
    assert!(matches!(
        refused(MkfsOptions { inodes_count: Some(u32::MAX), ..base.clone() }),
        MkfsError::TooManyInodes { .. }
    ));
    assert!(matches!(
        refused(MkfsOptions { label: "seventeen letters".to_string(), ..base.clone() }),
        MkfsError::Label(_)
    ));
    assert!(matches!(
        refused(MkfsOptions { size: Some(GIB), ..base.clone() }),
        MkfsError::DeviceSize { .. }
    ));
    assert!(matches!(try_it(base.clone(), 40 * 1024), Err(MkfsError::TooSmall { .. })));
    for bytes in (40..1500u64).map(|kib| kib * 1024) {
        let _ = try_it(base.clone(), bytes);
        let _ = try_it(MkfsOptions { fstype: FsType::Ext2, ..base.clone() }, bytes);
    }
}

/// Goal: the kernel mounts what we make, and its changes leave it clean.
#[test]
fn the_kernel_mounts_and_writes_our_images() {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    let cases = [
        (FsType::Ext2, "", 16 * MIB),
        (FsType::Ext3, "", 64 * MIB),
        (FsType::Ext4, "", 64 * MIB),
        (FsType::Ext4, "metadata_csum_seed,orphan_file", GIB),
        (FsType::Ext4, "^metadata_csum,uninit_bg", 64 * MIB),
        (FsType::Ext4, "^flex_bg,^64bit", 200 * MIB),
        (FsType::Ext4, "", 20 * GIB),
    ];
    for (fstype, features, size) in cases {
        let options = MkfsOptions { fstype, features: features.to_string(), ..Default::default() };
        make(&options, &path, size).expect("possible options");
        let kind = format!("{fstype:?}").to_lowercase();
        let mount = LoopMount::new(&path, &kind, "rw").expect("the kernel mounts it");
        // Entries hold the directory open, and with it the mount: count them and let go.
        let names = std::fs::read_dir(mount.path()).expect("a root").count();
        assert_eq!(names, 1, "only lost+found");
        for index in 0..50 {
            let dir = mount.path().join(format!("d{index}"));
            std::fs::create_dir(&dir).expect("a directory");
            std::fs::write(dir.join("file"), vec![index; 100_000]).expect("a file");
        }
        drop(mount);
        assert_clean(&path, &format!("{fstype:?} {features} after the kernel wrote"));
    }
}

/// Goal: `mkfs` on a queue writes what its plan says, in few requests, and twice the same in
/// virtual time.
#[test]
fn mkfs_through_the_queue_is_the_plan() {
    let scratch = Scratch::new();
    let run_once = || {
        let mut world = World::new(WorldConfig { seed: 5, ..Default::default() });
        let runtime = world.runtime();
        let device = std::sync::Arc::new(MemoryDevice::new(64 * MIB));
        device.write_at(3 * MIB, &vec![0xaa; 4 * MIB as usize]);
        let disk: std::sync::Arc<dyn block::Device> = device.clone();
        let report = world.run("mkfs", move |cx| {
            let queue = block::Queue::new(&runtime, disk, block::QueueConfig::default());
            let queue = queue.expect("a queue");
            let report = ext4::mkfs(cx, &queue, &MkfsOptions::default()).expect("a file system");
            let stats = queue.stats();
            assert!(stats.writes < 60, "{} writes", stats.writes);
            report
        });
        (report, device.snapshot())
    };
    let (report, image) = run_once();
    assert_eq!(report.journal_blocks, 4096);
    assert_eq!(run_once().1, image, "a world repeats itself");
    let path = scratch.path("image");
    std::fs::write(&path, image).expect("a file");
    assert_clean(&path, "mkfs over old data");
}

/// `mkfs` chose blocks of 1 KiB for a small device with sectors of 4 KiB, which then refused the
/// writes.
#[test]
fn no_block_is_smaller_than_a_sector_of_the_device() {
    let mut world = World::new(WorldConfig::default());
    let runtime = world.runtime();
    let info = block::DeviceInfo::plain(64 * MIB / 512);
    let info = block::DeviceInfo { logical_block: 4096, physical_block: 4096, ..info };
    let device = std::sync::Arc::new(MemoryDevice::with_info(info));
    let disk: std::sync::Arc<dyn block::Device> = device.clone();
    world.run("mkfs", move |cx| {
        let queue = block::Queue::new(&runtime, disk, block::QueueConfig::default());
        let queue = queue.expect("a queue");
        let small = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
        let error = ext4::mkfs(cx, &queue, &small).expect_err("a block within a sector");
        let words = "blocks of 1024 bytes are smaller than the device's sectors of 4096";
        assert_eq!(error.to_string(), words);
        assert_eq!(queue.stats().writes, 0);
        let report = ext4::mkfs(cx, &queue, &MkfsOptions::default()).expect("a file system");
        assert_eq!(report.block_size, 4096);
    });
    assert_clean(testkit::image::write_device(&device).path(), "mkfs on sectors of 4 KiB");
}

/// Goal: planning costs little. Prints the CPU time of 1 GiB (threshold: a bench's business).
#[test]
fn planning_a_gibibyte_is_quick() {
    let runtime = Runtime::real(1);
    let start = runtime.now();
    for _ in 0..10 {
        plan(&MkfsOptions::default(), &around(GIB)).expect("possible");
    }
    let each = (runtime.now().0 - start.0) / 10;
    println!("planning 1 GiB: {} us", each / 1000);
}
