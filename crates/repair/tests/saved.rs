//! What is saved: the files that a repair keeps, beside `e2fsck -fy` on the same damage. The table
//! in `docs/repair.md` is written by `IOPATH_BLESS=1`; `IOPATH_SEEDS=n` runs n seeds of each kind.

mod support;

use base::Rng;
use device::MemoryDevice;
use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Arc;
use support::*;
use testkit::campaign::seeds;
use testkit::manifest::{Entry, Manifest};

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
    let file = testkit::judge::write_sparse(image);
    for _ in 0..3 {
        let output = testkit::judge::run("e2fsck", &[&"-fy", &file.path()]);
        if output.status.code() == Some(0) {
            break;
        }
    }
    Arc::new(MemoryDevice::from_image(&std::fs::read(file.path()).expect("the image")))
}

/// One line of the table.
struct Row {
    name: &'static str,
    mutants: u64,
    ours: Saved,
    theirs: Saved,
    worse: u64,
}

fn row(kind: &Kind) -> Row {
    let base = kind.image();
    let before = manifest(&base).expect("a sound image");
    let blocks = metadata(&base, kind.block.into());
    let mut row = Row {
        name: kind.name,
        mutants: 0,
        ours: Saved::default(),
        theirs: Saved::default(),
        worse: 0,
    };
    for seed in seeds(6) {
        let mut rng = Rng::new(seed, 77);
        let mut image = base.snapshot();
        let what = damage(&mut image, &blocks, kind.block.into(), &mut rng);
        let device = Arc::new(MemoryDevice::from_image(&image));
        let dir = tempfile::tempdir().expect("a directory");
        if let Ok(plan) = plan(&device)
            && plan.left.is_empty()
        {
            apply(&(device.clone() as _), &plan, dir.path());
        }
        let ours = compare(&before, manifest(&device));
        let theirs = compare(&before, manifest(&e2fsck(&image)));
        let worse = ours.kept + ours.found < theirs.kept + theirs.found || ours.kept < theirs.kept;
        if worse {
            println!("{} seed {seed}: {what}: {ours:?}, e2fsck {theirs:?}", kind.name);
        }
        row.worse += u64::from(worse);
        row.mutants += 1;
        row.ours += ours;
        row.theirs += theirs;
    }
    row
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| images | mutants | under their name: iopath, e2fsck | elsewhere | wrong content | gone \
         | mutants in which e2fsck saves more |\n| --- | --- | --- | --- | --- | --- | --- |\n",
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

/// Goal: ours keeps at least as many files as e2fsck in the sum. Method: the same damage for both,
/// then every file of the sound image is looked for.
#[test]
fn a_repair_saves_as_much_as_e2fsck() {
    let only = std::env::var("IOPATH_KIND").ok();
    let wanted = |kind: &&Kind| only.as_ref().is_none_or(|name| name == kind.name);
    let mut rows: Vec<Row> = KINDS.iter().filter(wanted).map(row).collect();
    let mut sum =
        Row { name: "all", mutants: 0, ours: Saved::default(), theirs: Saved::default(), worse: 0 };
    for row in &rows {
        sum.mutants += row.mutants;
        sum.ours += row.ours;
        sum.theirs += row.theirs;
        sum.worse += row.worse;
    }
    let (ours, theirs) = (sum.ours, sum.theirs);
    rows.push(sum);
    let text = table(&rows);
    println!("{text}");
    if std::env::var_os("IOPATH_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/repair.md");
        let page = std::fs::read_to_string(&path).expect("docs/repair.md");
        let (head, rest) = page.split_once("<!-- saved -->\n").expect("the first mark");
        let (_, tail) = rest.split_once("<!-- end -->\n").expect("the second mark");
        let page = format!("{head}<!-- saved -->\n{text}<!-- end -->\n{tail}");
        std::fs::write(&path, page).expect("docs/repair.md is written");
    }
    assert!(ours.kept >= theirs.kept, "{ours:?}, e2fsck {theirs:?}");
}
