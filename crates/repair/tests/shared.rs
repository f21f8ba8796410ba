//! Files that share blocks (`shared_blocks`, as e2fsdroid makes them): checked, resized, parted.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use base::Rng;
use device::MemoryDevice;
use ext4::CheckOptions;
use ext4::format::Geometry;
use ext4::format::features::RoCompat;
use repair::resize::{self, LayoutPlan, ResizeOptions, Size};
use repair::tune::{self, TuneOptions};
use repair::volume::EditError;
use support::{by_mke2fs, manifest, queue, read_only_manifest};
use testkit::judge;

/// Blocks of 1 KiB of each file.
const LEN: u64 = 40;

fn debugfs(image: &Path, commands: &str) -> String {
    let list = tempfile::NamedTempFile::new().expect("a file");
    fs::write(list.path(), commands).expect("commands");
    judge::run_ok("debugfs", &[&"-w", &"-f", &list.path(), &image])
}

/// The first block of a file.
fn start(image: &Path, name: &str) -> u64 {
    let text = judge::run_ok("debugfs", &[&"-R", &format!("blocks {name}"), &image]);
    text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a block")
}

/// An image with `a`, `b` of the same content on the same blocks, and `c`: its own blocks, then
/// the end of `a`. With `fragments` no more than so many blocks are free, none beside another.
fn image(features: &str, fragments: Option<u64>) -> Arc<MemoryDevice> {
    let tree = tempfile::tempdir().expect("a directory");
    let mut rng = Rng::new(1, 1);
    let mut content = |len: u64| -> Vec<u8> { (0..len).map(|_| rng.next_u64() as u8).collect() };
    let write = |name: &str, data: &[u8]| fs::write(tree.path().join(name), data).expect("a file");
    let (a, own) = (content(LEN * 1024), content(LEN / 2 * 1024));
    write("a", &a);
    write("b", &a);
    write("c", &[&own[..], &a[a.len() / 2..]].concat());
    let args = ["-t", "ext4", "-b", "1024", "-d", tree.path().to_str().expect("UTF-8")];
    // Its metadata lies in one piece, so the files do.
    let features = ["^flex_bg", features].join(",");
    let file = by_mke2fs(8 << 20, features.trim_end_matches(','), &args);
    let image = file.path();
    let [a, b, c] = ["a", "b", "c"].map(|name| start(image, name));
    let half = LEN / 2;
    let mut commands = format!("sif b block[5] {a}\nfreeb {b} {LEN}\n");
    // Two extents: the header counts them, the first is cut, the second follows.
    writeln!(commands, "sif c block[0] {:#x}", 0xf30a | 2 << 16).expect("text");
    writeln!(commands, "sif c block[4] {half}\nsif c block[6] {half}").expect("text");
    writeln!(commands, "sif c block[7] {half}\nsif c block[8] {}", a + half).expect("text");
    writeln!(commands, "freeb {} {half}\nfeature shared_blocks", c + half).expect("text");
    if let Some(free) = fragments {
        // Every second block of the rest is in use, until so many are left.
        let text = judge::run_ok("debugfs", &[&"-R", &"stats", &image]);
        let blocks = text.lines().find_map(|line| line.trim().strip_prefix("Block count:"));
        let blocks: u64 = blocks.and_then(|word| word.trim().parse().ok()).expect("a number");
        let all: Vec<u64> = (1..blocks).collect();
        let ask: String = all.iter().map(|block| format!("testb {block}\n")).collect();
        let told = debugfs(image, &(commands.clone() + &ask));
        let unused = |line: &str| line.contains("not in use");
        let mut open: Vec<u64> = told
            .lines()
            .filter(|line| unused(line))
            .map(|line| line.split_whitespace().nth(1).and_then(|w| w.parse().ok()).expect("one"))
            .collect();
        let mut kept = 0;
        open.retain(|block| {
            let keep = block % 2 == 0 && kept < free;
            kept += u64::from(keep);
            !keep
        });
        // They belong to the list of bad blocks, as everybody's judge accepts.
        let list = tempfile::NamedTempFile::new().expect("a file");
        let lines: String = open.iter().map(|block| format!("{block}\n")).collect();
        fs::write(list.path(), lines).expect("a list");
        judge::run("e2fsck", &[&"-fy", &"-l", &list.path(), &image]);
    } else {
        debugfs(image, &commands);
        // It counts what became free.
        judge::run("e2fsck", &[&"-fy", &image]);
    }
    Arc::new(testkit::image::load(image))
}

fn carry_out(
    device: &Arc<MemoryDevice>,
    plan: impl FnOnce(&mut rt::Cx, &Arc<block::Queue>) -> Result<LayoutPlan, EditError>,
) -> Result<(), EditError> {
    let dir = tempfile::tempdir().expect("a directory");
    let plan = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let plan = plan(cx, &queue)?;
        plan.prepare(cx, &queue, &rt::Meter::default())?;
        plan.judge(cx, &queue, &Default::default())?;
        Ok::<_, EditError>(plan.plan)
    })?;
    let device: Arc<dyn block::Device> = device.clone();
    support::apply(&device, &plan, dir.path());
    Ok(())
}

fn unshare(device: &Arc<MemoryDevice>) -> Result<(), EditError> {
    let options = TuneOptions { features: vec!["^shared_blocks".into()], ..TuneOptions::default() };
    carry_out(device, |cx, queue| tune::plan(cx, queue, &options, &Default::default()))
}

fn resize(device: &Arc<MemoryDevice>, size: Size) {
    let options = ResizeOptions { size, wide: None, device_bytes: None };
    carry_out(device, |cx, queue| {
        Ok(resize::plan(cx, queue, &options, &Default::default())?.layout)
    })
    .expect("it is resized");
}

/// What the check finds.
fn findings(device: &Arc<MemoryDevice>) -> Vec<String> {
    let report = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        ext4::check(cx, &queue, &CheckOptions::default()).expect("no device fails")
    });
    report.findings.iter().map(ToString::to_string).collect()
}

fn is_shared(device: &MemoryDevice) -> bool {
    let geometry = Geometry::parse(&device.snapshot()[1024..2048], 0).expect("a superblock");
    geometry.features.ro_compat.contains(RoCompat::SHARED_BLOCKS)
}

fn judged(device: &Arc<MemoryDevice>) {
    let file = testkit::image::write_device(device);
    judge::e2fsck(file.path()).unwrap_or_else(|text| panic!("{text}"));
    assert_eq!(findings(device), [""; 0]);
}

/// Goal: files get blocks of their own and keep their content. Method: whole and partly shared
/// files, with and without checksums and journal; e2fsck and a mount that writes judge.
#[test]
fn every_file_gets_its_own_blocks() {
    for features in ["", "^has_journal,^metadata_csum,uninit_bg"] {
        let device = image(features, None);
        judged(&device);
        let before = read_only_manifest(&device).expect("it is mounted");
        unshare(&device).expect("there is room");
        assert!(!is_shared(&device));
        judged(&device);
        assert!(manifest(&device).expect("it is mounted") == before, "{features}");
    }
}

/// Goal: a copy in many pieces gets the extent tree that it needs. Method: single free blocks.
#[test]
fn copies_in_pieces_have_a_tree() {
    let device = image("^has_journal", Some(130));
    let before = read_only_manifest(&device).expect("it is mounted");
    unshare(&device).expect("there is room");
    judged(&device);
    assert!(manifest(&device).expect("it is mounted") == before);
}

/// Goal: where there is no room nothing changes, and the error says how to go on; after a resize
/// it goes. Method: fewer blocks than are shared, then a device of twice the size.
#[test]
fn without_room_it_says_how_much_is_missing() {
    let small = image("^has_journal", Some(80));
    let image = small.snapshot();
    let free = u64::from(u32::from_le_bytes(image[1036..1040].try_into().expect("four bytes")));
    let text = unshare(&small).expect_err("no room").to_string();
    // One of them is for the tree of the first copy, which is complete.
    let missing = format!("{} more free blocks", LEN + LEN / 2 + 1 - free);
    assert!(text.contains(&missing) && text.contains("iopath resize"), "{text}, {free} are free");
    assert!(small.snapshot() == image, "nothing is written");
    let device = Arc::new(MemoryDevice::new(16 << 20));
    device.load(&image);
    let before = read_only_manifest(&device).expect("it is mounted");
    resize(&device, Size::Device);
    unshare(&device).expect("now there is room");
    judged(&device);
    assert!(manifest(&device).expect("it is mounted") == before);
}

/// Goal: sharing survives a resize, and is checked on the way: a directory's block in a file is
/// found. Method: larger, as small as it can be, then one changed number.
#[test]
fn shared_files_are_resized_and_checked() {
    let small = image("^has_journal", None);
    let device = Arc::new(MemoryDevice::new(32 << 20));
    device.load(&small.snapshot());
    let before = read_only_manifest(&device).expect("it is mounted");
    for size in [Size::Device, Size::Least] {
        resize(&device, size);
        assert!(is_shared(&device));
        judged(&device);
        assert!(read_only_manifest(&device).expect("it is mounted") == before);
    }
    let file = testkit::image::write_device(&device);
    let dir = start(file.path(), "lost+found");
    debugfs(file.path(), &format!("sif b block[5] {dir}\n"));
    let found = findings(&Arc::new(testkit::image::load(file.path())));
    assert!(found.iter().any(|text| text.contains("block-claimed-twice")), "{found:?}");
}
