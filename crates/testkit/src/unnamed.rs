//! Files without names (`O_TMPFILE`) for tests of power cuts: made, written, named, synced, closed
//! and removed in one directory, with what must be there after a cut.

use std::collections::BTreeMap;

use base::{Ino, Rng};
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode};

use crate::content::pattern;

/// Largest content, bytes.
const SIZE_MAX: u64 = 40_000;
/// Files that are open without a name at once.
const OPEN_MAX: usize = 12;

/// The names of the directory, each with the number of its file.
pub type Names = BTreeMap<String, u64>;

/// A file: its number, which determines its content, its bytes, its inode.
#[derive(Clone, Copy)]
struct File {
    number: u64,
    len: u64,
    ino: Ino,
}

/// What a run did.
pub struct History {
    /// The names after each step, the first before all.
    pub names: Vec<Names>,
    /// Of files that were made durable: the step after which they were, and their bytes.
    durable: BTreeMap<u64, (usize, u64)>,
    /// Inodes in use before the first.
    used: u64,
}

/// Inodes in use.
fn used(cx: &mut Cx, fs: &dyn FileSystem) -> u64 {
    let stat = fs.statfs(cx).expect("statfs");
    stat.inodes - stat.inodes_free
}

/// Goes through `steps` steps in the directory `dir`; `mark` is called with the number of a step
/// whose names are durable from then on.
pub fn run(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: Ino,
    (seed, steps): (u64, usize),
    mark: impl Fn(u64),
) -> History {
    let mut rng = Rng::new(seed, 501);
    let history =
        History { names: vec![Names::new()], durable: BTreeMap::new(), used: used(cx, fs) };
    let (mut history, mut now) = (history, Names::new());
    let (mut open, mut named) = (Vec::<File>::new(), Vec::<File>::new());
    let mut removed = Vec::<File>::new();
    for step in 1..=steps {
        let mut durable = false;
        match rng.below(10) {
            0..=3 if open.len() < OPEN_MAX => open.push(make(cx, fs, dir, &mut rng, step as u64)),
            4..=6 if !open.is_empty() => {
                let file = open.swap_remove(rng.below(open.len() as u64) as usize);
                let name = format!("n{}", file.number);
                fs.link(cx, file.ino, dir, name.as_bytes()).expect("the first name");
                now.insert(name, file.number);
                if rng.below(2) == 0 {
                    fs.fsync(cx, file.ino, false).expect("fsync");
                    history.durable.insert(file.number, (step, file.len));
                    durable = true;
                }
                fs.release(cx, file.ino).expect("close");
                named.push(file);
            }
            7 if !open.is_empty() || !removed.is_empty() => {
                let from = if removed.is_empty() { &mut open } else { &mut removed };
                let file = from.swap_remove(rng.below(from.len() as u64) as usize);
                fs.release(cx, file.ino).expect("the last close");
            }
            8 if !named.is_empty() => {
                let file = named.swap_remove(rng.below(named.len() as u64) as usize);
                let name = format!("n{}", file.number);
                // A name that goes while its file is open leaves one without, for good.
                fs.open(cx, file.ino).expect("open");
                fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
                now.remove(&name);
                removed.push(file);
            }
            9 if rng.below(3) == 0 => {
                fs.sync(cx).expect("sync");
                for file in &named {
                    history.durable.entry(file.number).or_insert((step, file.len));
                }
                durable = true;
            }
            _ => {}
        }
        history.names.push(now.clone());
        if durable {
            mark(step as u64);
        }
    }
    history
}

fn make(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, rng: &mut Rng, number: u64) -> File {
    let node = NewNode::new(FileType::Regular, 0o600);
    let ino = fs.create_unnamed(cx, dir, &node, &[]).expect("a file without a name").ino;
    let len = rng.below(SIZE_MAX);
    let mut bytes = vec![0; len as usize];
    pattern(number, 0, &mut bytes);
    let written = fs.write(cx, ino, 0, &bytes).expect("write");
    assert_eq!(written as u64, len);
    if rng.below(4) == 0 {
        // It is durable, but nothing leads to it.
        fs.fsync(cx, ino, false).expect("fsync without a name");
    }
    File { number, len, ino }
}

/// Compares what was recovered with what was promised up to the step `promised`: the names of some
/// step from there on, the contents that were made durable, and no inode besides.
///
/// # Errors
/// What differs.
pub fn verify(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: Ino,
    history: &History,
    promised: u64,
) -> Result<(), String> {
    let mut found = Vec::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
        true
    })
    .map_err(|errno| format!("readdir: {errno}"))?;
    found.retain(|(name, _)| name != "." && name != "..");
    let of = |name: &str| name.strip_prefix('n').and_then(|number| number.parse().ok());
    let names: Names =
        found.iter().map(|(name, _)| (name.clone(), of(name).unwrap_or(u64::MAX))).collect();
    if !history.names[promised as usize..].contains(&names) {
        return Err(format!("the names {:?} are none of the states", names.keys()));
    }
    for (name, ino) in &found {
        let attr = fs.getattr(cx, *ino).map_err(|errno| format!("{name}: {errno}"))?;
        if attr.nlink != 1 {
            return Err(format!("{name} has {} links", attr.nlink));
        }
        let number = names[name];
        let Some(&(step, len)) = history.durable.get(&number) else { continue };
        if step as u64 > promised {
            continue;
        }
        let (mut bytes, mut expected) = (vec![0; len as usize + 1], vec![0; len as usize]);
        pattern(number, 0, &mut expected);
        let count = fs.read(cx, *ino, 0, &mut bytes).map_err(|errno| format!("{name}: {errno}"))?;
        if bytes[..count] != expected {
            return Err(format!("{name} has {count} bytes that are not its {len}"));
        }
    }
    match (used(cx, fs), history.used + names.len() as u64) {
        (now, expected) if now == expected => Ok(()),
        (now, expected) => Err(format!("{now} inodes are in use, not {expected}")),
    }
}
