//! Our check and xfs_repair -n agree: nothing on images of the kernel, something on each defect.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use device::MemoryDevice;

use crate::support::*;
use xfs::format::At;
use xfs::{CheckOptions, CheckReport, Rule};

fn check(image: &Path) -> CheckReport {
    let device = load(image);
    let report = check_with(&device, CheckOptions::default());
    let every = CheckOptions { every_record: true, ..CheckOptions::default() };
    assert_eq!(text_of(&report), text_of(&check_with(&device, every)), "sums say the same");
    assert_eq!(check_by_tasks(&device, 3), report, "three tasks find the same");
    report
}

/// What so many tasks find, in real time.
fn check_by_tasks(device: &Arc<MemoryDevice>, tasks: usize) -> CheckReport {
    rt::testing::real(|cx| {
        let queue = queue(cx, device.clone());
        let options = CheckOptions { tasks: Some(tasks), ..CheckOptions::default() };
        xfs::check(cx, &queue, &options).expect("the device works")
    })
}

fn check_with(device: &Arc<MemoryDevice>, options: CheckOptions) -> CheckReport {
    let device = device.clone();
    in_world(move |cx| {
        let queue = queue(cx, device);
        xfs::check(cx, &queue, &options).expect("the device works")
    })
}

fn lines(report: &CheckReport) -> impl Iterator<Item = String> + '_ {
    report.findings.iter().map(ToString::to_string)
}

/// Which rules are broken, and where, without the numbers of blocks: where memory is little, runs
/// and records are told in pieces.
fn places_of(report: &CheckReport) -> BTreeSet<(Rule, String)> {
    let place = |at: &At| match at {
        At::AgBlock(ag, _) => format!("group {ag}"),
        at => at.to_string(),
    };
    report.findings.iter().map(|found| (found.rule, place(&found.at))).collect()
}

fn text_of(report: &CheckReport) -> String {
    report.findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// An image that the kernel filled.
fn filled(dir: &Path, args: &str, block: u64) -> std::path::PathBuf {
    let image = dir.join("image");
    mkfs_xfs(&image, 112, args);
    let mount = kernel(&image);
    fill::fill(&mount.path(), fill::Scale { long_names: 700, extents: 1500, block });
    if !args.contains("reflink=0") {
        fill::share(&mount.path());
    }
    drop(mount);
    image
}

#[test]
fn images_of_the_kernel_are_clean_for_both() {
    for (args, block) in [
        ("-m rmapbt=1", 4096),
        ("-b size=1024 -m rmapbt=1 -i nrext64=1", 1024),
        ("-n size=64k -m finobt=0,inobtcount=0,reflink=0 -i sparse=0", 4096),
        ("-b size=2048 -i size=1024 -n size=8k -d agcount=7", 2048),
    ] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = filled(dir.path(), args, block);
        xfs_repair(&image).unwrap_or_else(|message| panic!("{args}: {message}"));
        let report = check(&image);
        assert!(report.is_clean(), "{args}\n{}", text_of(&report));
        assert!(report.inodes_used > 2000 && report.directories > 30, "{report:?}");
    }
}

/// Goal: a check reports how far it has come: never less than before, at the end all of it.
#[test]
fn the_stages_of_a_check_are_reported() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let device = load(&filled(dir.path(), "-m rmapbt=1", 4096));
    for tasks in [1, 4] {
        let (meter, steps) = testkit::steps::recorded();
        let options = CheckOptions { meter, tasks: Some(tasks), ..CheckOptions::default() };
        let report = rt::testing::real(|cx| {
            let queue = queue(cx, device.clone());
            xfs::check(cx, &queue, &options).expect("the device works")
        });
        assert!(report.is_clean(), "{}", text_of(&report));
        steps.assert_whole(&["groups", "inodes", "owners and names"]);
    }
}

/// A defect: its name, the commands of `xfs_db` that make it, and a rule that must be told.
type Defect = (&'static str, Vec<String>, Rule);

/// Makes one line of `xfs_db` after the other.
fn db(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| line.to_string()).collect()
}

fn defects(ino: &dyn Fn(&str) -> u64) -> Vec<Defect> {
    [group_defects(), inode_defects(ino)].concat()
}

fn group_defects() -> Vec<Defect> {
    vec![
        ("free blocks", db(&["agf 0", "write -d freeblks 5"]), Rule::GroupCount),
        ("longest", db(&["agf 1", "write -d longest 9"]), Rule::GroupCount),
        ("tree blocks", db(&["agf 1", "write -d btreeblks 9"]), Rule::GroupCount),
        ("free list", db(&["agf 0", "write -d flcount 9"]), Rule::FreeList),
        ("free list place", db(&["agf 0", "write -d flfirst 100"]), Rule::FreeList),
        ("group length", db(&["agf 2", "write -d length 77"]), Rule::GroupHeader),
        ("rmap blocks", db(&["agf 0", "write -d rmapblocks 7"]), Rule::GroupCount),
        (
            "free extent",
            db(&["agf 1", "addr bnoroot", "write -d recs[1].blockcount 3000"]),
            Rule::FreeBySize,
        ),
        (
            "free in use",
            db(&["agf 1", "addr bnoroot", "write -d recs[1].startblock 5"]),
            Rule::FreeInUse,
        ),
        ("inodes", db(&["agi 0", "write -d count 640"]), Rule::GroupCount),
        ("free inodes", db(&["agi 0", "write -d freecount 1"]), Rule::GroupCount),
        ("unlinked", db(&["agi 0", "write -d unlinked[3] 131"]), Rule::UnlinkedList),
        (
            "chunk mask",
            db(&["agi 0", "addr root", "write -d recs[1].free 0xff00000000000000"]),
            Rule::InodeChunk,
        ),
        (
            "chunk in the free tree",
            db(&["agi 0", "addr free_root", "write -d recs[1].freecount 2"]),
            Rule::FreeInodeBtree,
        ),
        (
            "reference count",
            db(&["agf 0", "addr refcntroot", "write -d recs[1].refcount 5"]),
            Rule::ReferenceCount,
        ),
        (
            "no reference",
            db(&["agf 0", "addr refcntroot", "write -d recs[1].refcount 1"]),
            Rule::ReferenceCount,
        ),
        ("icount", db(&["sb 0", "write -d icount 7"]), Rule::SuperCount),
        ("fdblocks", db(&["sb 0", "write -d fdblocks 7"]), Rule::SuperCount),
    ]
}

fn inode_defects(ino: &dyn Fn(&str) -> u64) -> Vec<Defect> {
    let of =
        |name: &str, write: &str| vec![format!("inode {}", ino(name)), format!("write -d {write}")];
    vec![
        ("links", of("hard-1", "core.nlinkv2 9"), Rule::LinkCount),
        ("shared unmarked", of("shared", "v3.reflink 0"), Rule::ReferenceCount),
        ("mode", of("file-511", "core.mode 0"), Rule::InodeUse),
        ("blocks", of("file-4096", "core.nblocks 3"), Rule::InodeBlocks),
        ("extents", of("file-4096", "core.nextents 0"), Rule::InodeBlocks),
        ("place of data", of("file-4096", "u3.bmx[0].startblock 3"), Rule::DoubleUse),
        ("format", of("file-4096", "core.format 1"), Rule::Inode),
        ("size of a FIFO", of("fifo", "core.size 9"), Rule::Inode),
        ("key of a root", of("fragmented", "u3.bmbt.keys[1].startoff 5"), Rule::BtreeOrder),
        ("small directory", of("dir-of-3", "core.size 9"), Rule::DirectoryEntry),
        (
            "name's inode",
            of("dir-of-3", "u3.sfdir3.list[0].inumber.i4 99999999"),
            Rule::DirectoryEntry,
        ),
        ("parent", of("dir-of-3", "u3.sfdir3.hdr.parent.i4 200"), Rule::DirectoryDots),
        (
            "name in a block",
            vec![
                format!("inode {}", ino("dir-of-60")),
                "dblock 0".into(),
                "write -d bu[4].namelen 200".into(),
            ],
            Rule::DirectoryBlock,
        ),
        (
            "index of a block",
            vec![
                format!("inode {}", ino("dir-of-60")),
                "dblock 0".into(),
                "write -d bleaf[3].hashval 7".into(),
            ],
            Rule::DirectoryIndex,
        ),
        (
            "room of a block",
            vec![
                format!("inode {}", ino("dir-of-400")),
                "dblock 0".into(),
                "write -d dhdr.bestfree[0].length 8".into(),
            ],
            Rule::DirectoryFree,
        ),
        (
            "attribute's hash",
            vec![
                format!("inode {}", ino("attrs-leaf")),
                "ablock 0".into(),
                "write -d entries[1].hashval 0x7fffffff".into(),
            ],
            Rule::Attribute,
        ),
    ]
}

/// Makes each defect alone in a copy of an image and asks both judges.
#[test]
fn each_defect_is_found_by_both_and_by_its_rule() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = filled(dir.path(), "-m rmapbt=1 -d agcount=4", 4096);
    let device = load(&image);
    let numbers = in_world(move |cx| {
        use vfs::FileSystem;
        let fs = try_mount(cx, device).expect("the image mounts");
        let mut numbers = std::collections::BTreeMap::new();
        fs.readdir(cx, fs.root(), 0, &mut |entry| {
            numbers.insert(entry.name.escape_ascii().to_string(), entry.ino.0);
            true
        })
        .expect("the root can be listed");
        numbers
    });
    let (mut missed, mut silent) = (Vec::new(), Vec::new());
    for (name, commands, rule) in defects(&|name| numbers[name]) {
        let copy = dir.path().join("copy");
        std::fs::copy(&image, &copy).expect("copy");
        let mut args = vec!["-x"];
        for command in &commands {
            args.extend(["-c", command.as_str()]);
        }
        let output = tool("xfs_db", &args, &copy);
        let report = check(&copy);
        let little = CheckOptions { memory: 0, ..CheckOptions::default() };
        let little = check_with(&load(&copy), little);
        // A group's first difference is told in each window.
        let all: BTreeSet<String> = lines(&little).collect();
        let missing: Vec<String> = lines(&report).filter(|line| !all.contains(line)).collect();
        assert!(
            missing.is_empty() && places_of(&report) == places_of(&little),
            "{name}: {missing:?}"
        );
        if report.is_clean() || !report.findings.iter().any(|finding| finding.rule == rule) {
            missed.push(format!("{name}: wanted {rule}\n{}{}", text_of(&report), text(&output)));
        }
        if xfs_repair(&copy).is_ok() {
            silent.push(name);
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(silent.len() <= 3, "xfs_repair finds nothing in {silent:?}");
}

/// Flips bits all over the metadata: the check and the mount end, with findings or without.
#[test]
fn damaged_images_never_panic_hang_or_take_all_memory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = filled(dir.path(), "-b size=1024 -m rmapbt=1 -d agcount=4", 1024);
    let bytes = std::fs::read(&image).expect("the image can be read");
    // Blocks of metadata, by their magic numbers.
    let places: Vec<usize> = (0..bytes.len() / 512)
        .map(|sector| sector * 512)
        .filter(|&at| xfs::format::Kind::recognise(&bytes[at..at + 512]).is_some())
        .collect();
    assert!(places.len() > 1000, "{} blocks of metadata", places.len());
    let mut random = base::Rng::new(7, 0);
    for round in 0..16u64 {
        let device = device::MemoryDevice::from_image(&bytes);
        let device = std::sync::Arc::new(device);
        let mut changes = Vec::new();
        for _ in 0..6 {
            let at = places[(random.next_u64() % places.len() as u64) as usize];
            let kind = xfs::format::Kind::recognise(&bytes[at..]).expect("chosen by it");
            let size = match kind {
                xfs::format::Kind::DirBlock
                | xfs::format::Kind::DirData
                | xfs::format::Kind::DirLeaf1
                | xfs::format::Kind::DirLeafN
                | xfs::format::Kind::DirFree => 4096,
                xfs::format::Kind::Super
                | xfs::format::Kind::Agf
                | xfs::format::Kind::Agi
                | xfs::format::Kind::Agfl
                | xfs::format::Kind::Inode => 512,
                _ => 1024,
            };
            let Some(block) = bytes.get(at..at + size) else { continue };
            let mut block = block.to_vec();
            let place = (random.next_u64() % size as u64) as usize;
            block[place] = random.next_u64() as u8;
            // Most changes keep the checksum right, so that what is behind it is looked at.
            if round % 4 != 0 {
                xfs::format::verifier::update_crc(kind, &mut block);
            }
            changes.push((at, block));
        }
        let disk = device.clone();
        let found = in_world(move |cx| {
            let queue = queue(cx, disk);
            for (at, block) in changes {
                let page = base::Page::from_slice(&block);
                let sector = base::Sector(at as u64 / 512);
                queue.write(cx, sector, page, block::BioFlags::empty()).expect("memory");
            }
            let mut check = |memory, every_record| {
                let options = CheckOptions { memory, every_record, ..CheckOptions::default() };
                xfs::check(cx, &queue, &options).expect("the device works")
            };
            let [sums, records, little] =
                [(512 << 20, false), (512 << 20, true), (0, false)].map(|(m, e)| check(m, e));
            assert_eq!(sums, records, "round {round}");
            assert_eq!(places_of(&sums), places_of(&little), "round {round}");
            sums
        });
        assert_eq!(found, check_by_tasks(&device, 4), "round {round}: four tasks");
        in_world(move |cx| {
            use vfs::FileSystem;
            if let Ok(fs) = try_mount(cx, device) {
                let _ = testkit::manifest::of_fs(cx, &*fs);
                fs.unmount(cx).expect("unmount");
            }
        });
    }
}
