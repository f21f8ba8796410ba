//! The kernel as a control: it mounts states of the campaign, recovers them, and shows the same
//! tree as our recovery; its checkers find nothing afterwards.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crash::explore::State;
use crash::host::HostImage;
use crash::{Disk, Judge, Kind};
use rt::{Cx, World, WorldConfig};
use vfs::FileSystem;

use super::formats::with_parents;
use super::{Round, ask_the_newest, number, setting};

/// Of the states of a workload the kernel is shown one in so many.
const SHOWN: u64 = 12;
/// ext4 refuses, or waits for seconds: kernels without quota, those before 6.19 blocks that are
/// larger than a page, and multiple mount protection. Of XFS it would forget the accounts, and
/// names without case are refused.
const NOT_MOUNTED: [&str; 4] = ["quota", "blocks of 16384", "mmp", "without case"];

/// A file as a program sees it: mode, links, size, and content or target.
type Seen = (u32, u64, u64, Vec<u8>);

/// Every path of a tree on the host.
fn tree(top: &Path) -> std::io::Result<BTreeMap<PathBuf, Seen>> {
    let mut tree = BTreeMap::new();
    let mut folders = vec![top.to_owned()];
    while let Some(dir) = folders.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            let meta = path.symlink_metadata()?;
            let (size, content) = if meta.is_dir() {
                folders.push(path.clone());
                (0, Vec::new())
            } else if meta.is_symlink() {
                (0, std::fs::read_link(&path)?.into_os_string().into_encoded_bytes())
            } else {
                (meta.len(), std::fs::read(&path)?)
            };
            let name = path.strip_prefix(top).expect("it is below").to_owned();
            tree.insert(name, (meta.mode(), meta.nlink(), size, content));
        }
    }
    // Ours is left out where it is empty.
    tree.remove(Path::new("lost+found"));
    Ok(tree)
}

/// Compares a tree that the kernel has recovered with ours.
struct Beside(Kind);

impl Beside {
    /// What our code makes of the same state, in a directory of the host.
    fn ours(&self, state: &State, dir: &Path) -> Result<(), String> {
        let medium = crash::explore::medium(state.log, state.cut);
        let medium = Arc::new(medium.map_err(|error| error.to_string())?);
        World::new(WorldConfig::default()).run("recover", |cx: &mut Cx| {
            let fs = self.0.mount(cx, medium)?;
            let done = crash::extract::extract(cx, &*fs, dir);
            fs.shutdown_hard();
            done.map_err(|error| error.to_string())
        })
    }
}

impl Judge for Beside {
    fn judge(
        &self,
        _: &mut Cx,
        _: &Arc<dyn FileSystem>,
        _: &State,
    ) -> std::result::Result<(), crash::Refusal> {
        Ok(())
    }

    fn ask(&self, kind: Kind, image: &HostImage) -> std::result::Result<(), crash::Refusal> {
        Ok(ask_the_newest(kind, image)?)
    }

    fn judge_mounted(&self, mounted: &Path, state: &State) -> Result<(), crash::Refusal> {
        let dir = mounted.with_extension("ours");
        std::fs::create_dir(&dir).map_err(|error| error.to_string())?;
        let both = self.ours(state, &dir).and_then(|()| {
            let read = |dir: &Path| tree(dir).map_err(|error| error.to_string());
            Ok((read(mounted)?, read(&dir)?))
        });
        let removed = std::fs::remove_dir_all(&dir);
        let (kernels, ours) = both?;
        removed.map_err(|error| error.to_string())?;
        let differs =
            |(path, seen): (&PathBuf, &Seen)| (ours.get(path) != Some(seen)).then(|| path.clone());
        let other = ours.keys().find(|path| !kernels.contains_key(*path)).cloned();
        match kernels.iter().find_map(differs).or(other) {
            None => Ok(()),
            Some(path) => {
                let shown = |tree: &BTreeMap<PathBuf, Seen>| {
                    tree.get(&path).map(|seen| {
                        format!("mode {:o}, {} links, {} bytes", seen.0, seen.1, seen.2)
                    })
                };
                Err(crash::Refusal::State(format!(
                    "{}: the kernel has {:?}, we have {:?}",
                    path.display(),
                    shown(&kernels),
                    shown(&ours)
                )))
            }
        }
    }
}

/// States that the kernel recovers: the same tree as ours, and its checkers are silent. A few of
/// each kind where none are asked for.
#[test]
fn the_kernel_recovers_the_same() {
    let (wanted, seed) = (number("KERNEL", 12), number("SEED", 1));
    let (begin, rounds, mut judged) = (number("ROUND", 0), number("ROUNDS", u64::MAX), 0);
    let mut next = begin;
    let parents = setting("ONLY").filter(|only| only == "parents").map(|_| with_parents());
    while judged < wanted && next - begin < rounds {
        let round = match &parents {
            Some(kinds) => Round::sampled(next, seed, kinds),
            None => Round::new(next, seed),
        };
        next += 1;
        let (name, mut test) = round.test();
        if NOT_MOUNTED.iter().any(|feature| name.contains(feature)) {
            continue;
        }
        let how = &mut test.exploration;
        // Linux refuses an ext4 whose superblock was torn (docs/fault-model.md).
        (how.disk, how.oracle, how.by_kernel, how.outside) = (Disk::Atomic(4096), None, true, 1);
        how.shard = (round.number % SHOWN, SHOWN);
        how.states_max = wanted - judged;
        let log = round.record(&test);
        let outcome = crash::explore(&log, &test.exploration, &Beside(round.kind), &mut |_| {});
        let outcome = outcome.unwrap();
        assert_eq!(outcome.findings, [], "{name}, round {}, seed {seed}", round.round);
        judged += outcome.judged;
    }
    let line = serde_json::json!({ "seed": seed, "round": begin, "next": next, "states": judged });
    println!("control {line}");
}
