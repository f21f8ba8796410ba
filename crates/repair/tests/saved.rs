//! What is saved: the files that a repair keeps, beside `e2fsck -fy` and `xfs_repair` on the same
//! damage. The tables in `docs/repair.md` are written by `IOPATH_BLESS=1`; `IOPATH_SEEDS=n` runs n
//! seeds of each kind.

mod support;
mod xfs_support;

use base::Rng;
use device::MemoryDevice;
use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Arc;
use support::*;
use testkit::campaign::seeds;
use testkit::manifest::{Entry, Manifest};
use xfs_support as on_xfs;

/// What became of the files of an image.
#[derive(Clone, Copy, Default, Debug)]
struct Saved {
    /// Under their name, with their content.
    kept: u64,
    /// Elsewhere (`lost+found`), with their content.
    found: u64,
    /// Under their name, with another content.
    wrong: u64,
    /// Nowhere.
    gone: u64,
}

impl AddAssign for Saved {
    fn add_assign(&mut self, other: Saved) {
        self.kept += other.kept;
        self.found += other.found;
        self.wrong += other.wrong;
        self.gone += other.gone;
    }
}

/// What makes an entry the same: type, content, target.
fn content(entry: &Entry) -> (String, Option<String>, Option<String>, u64) {
    (entry.kind.clone(), entry.sha256.clone(), entry.target.clone(), entry.rdev)
}

fn compare(before: &Manifest, after: Option<Manifest>) -> Saved {
    let after = after.unwrap_or_default();
    let all: BTreeSet<_> = after.values().map(content).collect();
    let mut saved = Saved::default();
    for (path, entry) in before.iter().filter(|(path, _)| !path.is_empty()) {
        match after.get(path) {
            Some(now) if content(now) == content(entry) => saved.kept += 1,
            now => {
                // An empty file or a directory looks like any other.
                let telling = entry.size > 0 && all.contains(&content(entry));
                match (telling, now) {
                    (true, _) => saved.found += 1,
                    (_, Some(_)) => saved.wrong += 1,
                    _ => saved.gone += 1,
                }
            }
        }
    }
    saved
}

/// The image after `e2fsck -fy`, run until it is content, three times at most.
fn e2fsck(image: &[u8]) -> Arc<MemoryDevice> {
    let file = testkit::image::write(image);
    for _ in 0..3 {
        let output = testkit::judge::run("e2fsck", &[&"-fy", &file.path()]);
        if output.status.code() == Some(0) {
            break;
        }
    }
    Arc::new(testkit::image::load(file.path()))
}

/// The image after the newest `xfs_repair`, run until `xfs_repair -n` is content, three times at
/// most; its log is given up where it must be.
fn xfs_repair(image: &[u8]) -> Arc<MemoryDevice> {
    let file = testkit::image::write(image);
    for _ in 0..3 {
        testkit::newest::run("xfs_repair", &[&"-L", &file.path()]);
        if testkit::newest::xfs_repair(file.path()).is_ok() {
            break;
        }
    }
    Arc::new(testkit::image::load(file.path()))
}

/// Images of one kind, and how they are damaged, read, and repaired by others.
struct Subject<'a> {
    name: &'static str,
    base: Arc<MemoryDevice>,
    damage: &'a dyn Fn(&mut [u8], &mut Rng) -> String,
    manifest: fn(&Arc<MemoryDevice>) -> Option<Manifest>,
    theirs: fn(&[u8]) -> Arc<MemoryDevice>,
}

/// One line of the table.
struct Row {
    name: &'static str,
    mutants: u64,
    ours: Saved,
    theirs: Saved,
    worse: u64,
}

impl Row {
    fn new(name: &'static str) -> Row {
        let none = Saved::default();
        Row { name, mutants: 0, ours: none, theirs: none, worse: 0 }
    }
}

fn row(subject: &Subject<'_>) -> Row {
    let Subject { name, base, damage, manifest, theirs } = subject;
    let before = manifest(base).expect("a sound image");
    let mut row = Row::new(name);
    for seed in seeds(6) {
        let mut rng = Rng::new(seed, 77);
        let mut image = base.snapshot();
        let what = damage(&mut image, &mut rng);
        let device = Arc::new(MemoryDevice::from_image(&image));
        let dir = tempfile::tempdir().expect("a directory");
        if let Ok(plan) = plan(&device)
            && plan.left.is_empty()
        {
            apply(&(device.clone() as _), &plan, dir.path());
        }
        let ours = compare(&before, manifest(&device));
        let theirs = compare(&before, manifest(&theirs(&image)));
        let worse = ours.kept + ours.found < theirs.kept + theirs.found || ours.kept < theirs.kept;
        if worse {
            println!("{name} seed {seed}: {what}: {ours:?}, the other {theirs:?}");
        }
        row.worse += u64::from(worse);
        row.mutants += 1;
        row.ours += ours;
        row.theirs += theirs;
    }
    row
}

fn table(rows: &[Row], other: &str) -> String {
    let mut text = format!(
        "| images | mutants | under their name: iopath, {other} | elsewhere | wrong content | gone \
         | mutants in which {other} saves more |\n| --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let Row { name, mutants, ours, theirs, worse } = row;
        text += &format!(
            "| {name} | {mutants} | {}, {} | {}, {} | {}, {} | {}, {} | {worse} |\n",
            ours.kept,
            theirs.kept,
            ours.found,
            theirs.found,
            ours.wrong,
            theirs.wrong,
            ours.gone,
            theirs.gone,
        );
    }
    text
}

/// Adds the sum to some rows, prints the table and puts it between the marks of the page, if that
/// is wanted.
fn publish(mut rows: Vec<Row>, other: &str, marks: [&str; 2]) -> (Saved, Saved) {
    let mut sum = Row::new("all");
    for row in &rows {
        sum.mutants += row.mutants;
        sum.ours += row.ours;
        sum.theirs += row.theirs;
        sum.worse += row.worse;
    }
    let both = (sum.ours, sum.theirs);
    rows.push(sum);
    let text = table(&rows, other);
    println!("{text}");
    if std::env::var_os("IOPATH_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/repair.md");
        let page = std::fs::read_to_string(&path).expect("docs/repair.md");
        let [first, second] = marks;
        let (head, rest) = page.split_once(first).expect("the first mark");
        let (_, tail) = rest.split_once(second).expect("the second mark");
        let page = format!("{head}{first}{text}{second}{tail}");
        std::fs::write(&path, page).expect("docs/repair.md is written");
    }
    both
}

/// `IOPATH_KIND` names one kind.
fn wanted(name: &str) -> bool {
    std::env::var("IOPATH_KIND").ok().is_none_or(|only| only == name)
}

/// Goal: ours keeps at least as many files as e2fsck in the sum. Method: the same damage for both,
/// then every file of the sound image is looked for.
#[test]
fn a_repair_saves_as_much_as_e2fsck() {
    let mut rows = Vec::new();
    // The other features only in a campaign.
    let campaign = std::env::var_os("IOPATH_SEEDS").is_some();
    let features = FEATURES.iter().filter(|_| campaign);
    for kind in KINDS.iter().chain(features).filter(|kind| wanted(kind.name)) {
        let base = kind.image();
        let blocks = metadata(&base, kind.block.into());
        let damage =
            |image: &mut [u8], rng: &mut Rng| damage(image, &blocks, kind.block.into(), rng);
        let (name, theirs) = (kind.name, e2fsck as fn(&[u8]) -> _);
        rows.push(row(&Subject { name, base, damage: &damage, manifest, theirs }));
    }
    let marks = ["<!-- saved -->\n", "<!-- end -->\n"];
    let (ours, theirs) = publish(rows, "e2fsck", marks);
    assert!(ours.kept >= theirs.kept, "{ours:?}, e2fsck {theirs:?}");
}

/// The same for XFS.
#[test]
fn a_repair_saves_as_much_as_xfs_repair() {
    let mut rows = Vec::new();
    for kind in on_xfs::KINDS.iter().filter(|kind| wanted(kind.name)) {
        let base = kind.image();
        let blocks = on_xfs::metadata(&base);
        let g = on_xfs::geometry(&base.snapshot()).expect("a sound image");
        let damage = |image: &mut [u8], rng: &mut Rng| on_xfs::damage(image, &blocks, &g, rng);
        let (name, manifest) = (kind.name, on_xfs::manifest as fn(&_) -> _);
        let theirs = xfs_repair as fn(&[u8]) -> _;
        rows.push(row(&Subject { name, base, damage: &damage, manifest, theirs }));
    }
    let marks = ["<!-- saved xfs -->\n", "<!-- end xfs -->\n"];
    let (ours, theirs) = publish(rows, "xfs_repair", marks);
    assert!(ours.kept >= theirs.kept, "{ours:?}, xfs_repair {theirs:?}");
}
