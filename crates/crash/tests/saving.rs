//! Eight ways in which programs save a file: what a power cut leaves of it on ext4 and XFS, as a
//! table that is kept here and in `docs/crash.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crash::explore::State;
use crash::{Crash, Fs, Judge, Kind, Limits, Result};
use rt::{Cx, SpinLock};
use vfs::{FileSystem, Namespace};

const OLD: [u8; 9000] = [b'o'; 9000];
const NEW: [u8; 9000] = [b'n'; 9000];

/// A way to save: its name, and what it does.
type Way = (&'static str, fn(&mut Fs) -> Result<()>);

const WAYS: [Way; 8] = [
    ("truncate, write", |fs| fs.write("/f", &NEW)),
    ("truncate, write, fsync", |fs| {
        fs.write("/f", &NEW)?;
        fs.fsync("/f")
    }),
    ("temp, rename", |fs| {
        fs.write("/t", &NEW)?;
        fs.rename("/t", "/f")
    }),
    ("temp, rename, fsync of the directory", |fs| {
        fs.write("/t", &NEW)?;
        fs.rename("/t", "/f")?;
        fs.fsync("/")
    }),
    ("temp, fsync, rename", |fs| {
        fs.write("/t", &NEW)?;
        fs.fsync("/t")?;
        fs.rename("/t", "/f")
    }),
    ("temp, fsync, rename, fsync of the directory", |fs| {
        fs.write("/t", &NEW)?;
        fs.fsync("/t")?;
        fs.rename("/t", "/f")?;
        fs.fsync("/")
    }),
    ("rename to backup, write, fsync", |fs| {
        fs.rename("/f", "/f~")?;
        fs.write("/f", &NEW)?;
        fs.fsync("/f")
    }),
    ("temp, fsync, link to backup, rename", |fs| {
        fs.write("/t", &NEW)?;
        fs.fsync("/t")?;
        fs.link("/f", "/f~")?;
        fs.rename("/t", "/f")
    }),
];

/// Notes what `/f` is in each state: after the save returned, or before.
#[derive(Default)]
struct Seen {
    during: SpinSet,
    after: SpinSet,
}

#[derive(Default)]
struct SpinSet(Option<Arc<SpinLock<BTreeSet<&'static str>>>>);

impl SpinSet {
    fn new() -> SpinSet {
        SpinSet(Some(Arc::new(SpinLock::new(BTreeSet::new()))))
    }

    fn add(&self, what: &'static str) {
        self.0.as_ref().unwrap().lock_irq().insert(what);
    }

    fn text(&self) -> String {
        let seen = self.0.as_ref().unwrap().lock_irq().clone();
        seen.into_iter().collect::<Vec<_>>().join(", ")
    }
}

fn content(cx: &mut Cx, fs: &Arc<dyn FileSystem>) -> &'static str {
    let names = Namespace::new(fs.clone());
    let Ok(attr) = names.stat(cx, b"/f") else { return "missing" };
    let mut bytes = vec![0; attr.size as usize];
    let read = fs.read(cx, attr.ino, 0, &mut bytes).expect("it can be read");
    match &bytes[..read] {
        [] => "empty",
        bytes if bytes.iter().all(|byte| *byte == 0) => "zeros",
        bytes if *bytes == OLD => "old",
        bytes if *bytes == NEW => "new",
        _ => "part",
    }
}

impl Judge for Seen {
    fn judge(
        &self,
        cx: &mut Cx,
        fs: &Arc<dyn FileSystem>,
        state: &State,
    ) -> std::result::Result<(), crash::Refusal> {
        let marks = state.marks();
        if marks.contains(&"ready") {
            let saved = marks.contains(&"saved");
            if saved { &self.after } else { &self.during }.add(content(cx, fs));
        }
        Ok(())
    }
}

fn row(kind: Kind, save: fn(&mut Fs) -> Result<()>) -> [String; 2] {
    let limits = Limits { all_subsets: 4, samples: 6, singles: 16 };
    let test = Crash::on(kind).limits(limits);
    let log = test.record(|fs| {
        fs.write("/f", &OLD)?;
        fs.fsync("/f")?;
        fs.fsync("/")?;
        fs.mark("ready");
        save(fs)?;
        fs.mark("saved");
        // Time passes, and everything is written out by itself.
        fs.sleep_ms(120_000);
        Ok(())
    });
    let seen = Seen { during: SpinSet::new(), after: SpinSet::new() };
    let outcome = crash::explore(&log, &test.exploration, &seen, &mut |_| {}).unwrap();
    assert_eq!(outcome.wrong, 0, "{:?}", outcome.findings);
    [seen.during.text(), seen.after.text()]
}

#[test]
fn what_a_power_cut_leaves_of_a_saved_file() {
    let mut table = String::new();
    for (name, save) in WAYS {
        for kind in [Kind::Ext4, Kind::Xfs] {
            let [during, after] = row(kind, save);
            table.push_str(&format!("| {name} | {kind} | {during} | {after} |\n"));
        }
    }
    println!("{table}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/crash.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&table), "docs/crash.md has another table; ours is\n{table}");
}
