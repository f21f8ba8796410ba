//! Data behind names (`dirdata`): what writes directories anew, or moves them, keeps them.

use repair::resize::{self, ResizeOptions, Size};
use repair::tune::{self, TuneOptions};
use repair::volume::EditError;

use super::*;

/// What lies behind names; that there is much of it.
fn all(device: &MemoryDevice) -> BTreeMap<u32, Vec<data::Behind>> {
    let all = data::all(&device.snapshot());
    assert!(all.values().map(Vec::len).sum::<usize>() > 150, "there is something to keep");
    all
}

/// The directory `big`, and its blocks.
fn big(device: &Arc<MemoryDevice>) -> (u32, Vec<u64>) {
    let ino = ino_of(device, "big");
    (ino, data::blocks_of(&device.snapshot(), ino))
}

/// Repairs; what e2fsck says of the image without data.
fn repaired_with_data(device: &Arc<MemoryDevice>, what: &str) {
    let plan = plan(device).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(plan.left.is_empty() && !plan.is_clean(), "{what}: {:?}", plan.left);
    let dir = tempfile::tempdir().expect("a directory");
    apply(&(device.clone() as _), &plan, dir.path());
    judged(device, what);
}

fn judged(device: &Arc<MemoryDevice>, what: &str) {
    let again = plan(device).expect("a second plan");
    assert!(again.is_clean(), "{what}: {:?}", again.findings);
    let g = geometry(&device.snapshot());
    let mut plain = data::take(&device.snapshot());
    plain.truncate((g.blocks_count * u64::from(g.block_size)) as usize);
    testkit::judge::e2fsck(testkit::image::write(&plain).path())
        .unwrap_or_else(|text| panic!("{what}: {text}"));
}

/// Goal: a directory that is written anew keeps what lies behind its names, those of `.` and `..`
/// too. Method: the root of an index, or a checksum, is damaged; the bytes before and after.
#[test]
fn directories_written_anew_keep_the_data() {
    for name in ["dirdata-1k", "dirdata-4k"] {
        let (device, tree) = of(name);
        let before = all(&device);
        let (ino, blocks) = big(&device);
        let size = u64::from(geometry(&device.snapshot()).block_size);
        assert!(before[&ino].iter().any(|(name, _)| name == b".."), "{name}: data behind `..`");
        // The reserved word of the root, behind the data of `..`.
        for (what, at, byte) in [("root", 12 + 28, 9), ("levels", 12 + 28 + 6, 2)] {
            let device = Arc::new(device.fork());
            device.write_at(blocks[0] * size + at, &[byte]);
            repaired_with_data(&device, &format!("{name}: {what}"));
            assert!(all(&device) == before, "{name}: {what}: other data");
            assert!(manifest(&device).expect("mounted") == tree, "{name}: {what}: another tree");
        }
    }
}

/// Goal: data that leave their entry go, the name stays. Method: the byte that counts them.
#[test]
fn data_that_leave_their_entry_go() {
    let (device, tree) = of("dirdata-4k");
    let (ino, blocks) = big(&device);
    let image = device.snapshot();
    let g = geometry(&image);
    let hit = blocks[1..].iter().find_map(|block| {
        let at = *block as usize * 4096;
        let mut entries = ext4::format::dir::entries(&image[at..at + 4096], g.dir_layout());
        let hit = entries.find(|entry| !entry.behind.is_empty())?;
        Some((at + hit.offset as usize + 8 + hit.name.len() + 1, hit.name))
    });
    let (counts, hit) = hit.expect("one with data");
    device.write_at(counts as u64, &[255]);
    let mut wanted = all(&Arc::new(MemoryDevice::from_image(&image)));
    wanted.get_mut(&ino).expect("it").retain(|(name, _)| name != hit);
    repaired_with_data(&device, "a count");
    assert!(all(&device) == wanted, "the others stay");
    assert!(manifest(&device).expect("mounted") == tree, "the names stay");
}

/// Names with data, whatever the numbers of their directories are.
fn data_alone(device: &MemoryDevice) -> Vec<Vec<data::Behind>> {
    let mut list: Vec<_> = all(device).into_values().collect();
    list.sort();
    list
}

/// Goal: blocks and inodes that move take the data with them. Method: smaller, larger.
#[test]
fn resizes_keep_the_data() {
    for name in ["dirdata-1k", "dirdata-4k"] {
        let (small, tree) = of(name);
        let device = Arc::new(MemoryDevice::new(64 << 20));
        device.load(&small.snapshot());
        let before = data_alone(&device);
        for size in [Size::Bytes(40 << 20), Size::Least, Size::Bytes(60 << 20)] {
            rt::testing::world(|cx| {
                let queue = queue(cx, device.clone());
                let wanted = ResizeOptions { size, wide: None, device_bytes: None };
                let plan = resize::plan(cx, &queue, &wanted, &Default::default()).expect("a plan");
                carry_out(cx, &queue, &device, &plan.layout);
            });
            judged(&device, &format!("{name}: {size:?}"));
            assert!(data_alone(&device) == before, "{name}: {size:?}: other data");
            assert!(manifest(&device).expect("mounted") == tree, "{name}: {size:?}");
        }
    }
}

fn carry_out(
    cx: &mut rt::Cx,
    queue: &Arc<block::Queue>,
    device: &Arc<MemoryDevice>,
    plan: &resize::LayoutPlan,
) {
    plan.prepare(cx, queue, &rt::Meter::default()).expect("prepare");
    plan.judge(cx, queue, &Default::default()).expect("a sound result");
    for change in &plan.plan.changes {
        device.write_at(change.offset, &change.new);
    }
}

fn tuned(device: &Arc<MemoryDevice>, words: &str) -> Result<(), EditError> {
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let features = words.split(',').map(str::to_owned).collect();
        let options = TuneOptions { features, ..TuneOptions::default() };
        let plan = tune::plan(cx, &queue, &options, &Default::default())?;
        carry_out(cx, &queue, device, &plan);
        Ok(())
    })
}

/// Goal: a change of features keeps the data, and what cannot stand beside them is refused by name.
/// Method: checksums off and on, indexes off.
#[test]
fn features_change_beside_data() {
    let (device, tree) = of("dirdata-1k");
    let before = all(&device);
    for words in ["^metadata_csum", "metadata_csum", "^dir_index"] {
        tuned(&device, words).unwrap_or_else(|e| panic!("{words}: {e}"));
        judged(&device, words);
        assert!(all(&device) == before, "{words}: other data");
        assert!(manifest(&device).expect("mounted") == tree, "{words}: another tree");
    }
    let then = device.snapshot();
    for words in ["encrypt", "casefold", "^filetype"] {
        let refused = tuned(&device, words).expect_err("refused").to_string();
        assert!(refused.contains("dirdata"), "{words}: {refused}");
    }
    assert!(device.snapshot() == then);
}
