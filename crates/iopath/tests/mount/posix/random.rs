//! Random sequences of calls on a few names and open files.

use rustix::fs::{FileType, OFlags};

use super::Pair;
use super::calls::{Call, SLOTS, User};
use base::Rng;

const CALLS: usize = 60;

/// Runs the sequences of all seeds.
pub fn run(pair: &mut Pair) {
    let seeds = match std::env::var("IOPATH_SEEDS") {
        Ok(text) => text.parse().expect("IOPATH_SEEDS is a number"),
        Err(_) => 40,
    };
    for seed in 0..seeds {
        let mut rng = Rng::new(seed, 8);
        let mut calls: Vec<(User, Call)> = Vec::new();
        pair.ours.enter("random", 0o777);
        pair.kernel.enter("random", 0o777);
        let before = pair.differences.len();
        for step in 0..CALLS {
            let plain = rng.below(4) == 0 && !pair.root_alone;
            let user = if plain { User::Plain } else { User::Root };
            let call = call(&mut rng);
            if is_known(&calls, &call) {
                continue;
            }
            let told = calls.clone();
            let history = move || {
                let lines = told.iter().map(|(user, call)| format!("  {user:?} {call:?}\n"));
                format!("seed {seed}, after\n{}", lines.collect::<String>())
            };
            pair.call(user, &call, &history);
            calls.push((user, call));
            // Looking changes what is cached, so some sequences are looked at only at their end.
            if step + 1 == CALLS || (seed % 2 == 0 && step % 3 == 0) {
                let told = calls.clone();
                pair.compare(&|| format!("seed {seed}, after {:#?}\n", told));
            }
            if pair.differences.len() > before {
                break; // What follows would only repeat it.
            }
        }
        pair.ours.leave();
        pair.kernel.leave();
    }
}

/// Preallocated space that was read, as comparing the trees does, is data to the kernel's own mount
/// for as long as it is cached: `docs/mount.md`.
fn is_known(before: &[(User, Call)], call: &Call) -> bool {
    let preallocates = |(_, call): &(User, Call)| matches!(call, Call::Fallocate { .. });
    matches!(call, Call::Seek { .. }) && before.iter().any(preallocates)
}

fn path(rng: &mut Rng) -> String {
    const PATHS: &[&str] = &[
        "a", "a", "b", "b", "c", "d", "d", "e", "d/a", "d/a", "d/b", "d/e", "d/e/a", "e/a", "e/b",
        "s", "s/a", "l", ".", "..", "d/.", "d/..", "a/", "d/", "a/b", "./a", "d/../b", "",
    ];
    match rng.below(40) {
        0 => "n".repeat(255),
        1 => "n".repeat(256),
        n => PATHS[n as usize % PATHS.len()].to_owned(),
    }
}

/// As [`path`], but none that would move or remove the world's own directory.
fn below(rng: &mut Rng) -> String {
    let path = path(rng);
    if path.is_empty() { ".".to_owned() } else { path }
}

fn call(rng: &mut Rng) -> Call {
    let pick = rng.below(100);
    match pick {
        0..50 => name_call(rng, pick),
        50..92 => file_call(rng, pick - 50),
        _ => xattr_call(rng),
    }
}

fn name_call(rng: &mut Rng, pick: u64) -> Call {
    let mode = [0o777, 0o700, 0o1777, 0o2775, 0o555, 0o644][rng.below(6) as usize];
    match pick {
        0..7 => Call::Mkdir { path: path(rng), mode },
        7..10 => {
            let kinds = [FileType::Fifo, FileType::RegularFile, FileType::CharacterDevice];
            Call::Mknod { path: path(rng), kind: kinds[rng.below(3) as usize], mode }
        }
        10..14 => Call::Symlink { target: path(rng), path: path(rng) },
        14..18 => Call::Link { old: path(rng), new: path(rng), follow: rng.below(2) == 0 },
        18 => Call::LinkOpen { slot: rng.below(SLOTS as u64) as usize, new: path(rng) },
        19..24 => Call::Unlink { path: path(rng) },
        24..27 => Call::Rmdir { path: below(rng) },
        27..36 => {
            let flags = [0, 0, 0, 1, 2, 2][rng.below(6) as usize];
            Call::Rename { old: below(rng), new: path(rng), flags }
        }
        36..38 => Call::Readlink { path: path(rng) },
        38..41 => Call::Stat { path: path(rng), follow: rng.below(2) == 0 },
        41..43 => Call::Access { path: path(rng), mode: rng.below(8) as u8 },
        43..45 => Call::Chmod { path: path(rng), mode },
        45..47 => {
            let id = |rng: &mut Rng| [None, Some(0), Some(1000), Some(100)][rng.below(4) as usize];
            let (uid, gid) = (id(rng), id(rng));
            Call::Chown { path: path(rng), uid, gid, follow: rng.below(2) == 0 }
        }
        47..49 => {
            let seconds = [-1000, 0, 1_000_000_000][rng.below(3) as usize];
            Call::Utimens { path: path(rng), seconds, nanos: 1_000 * rng.below(999) as i64 }
        }
        _ => Call::List { path: path(rng) },
    }
}

fn file_call(rng: &mut Rng, pick: u64) -> Call {
    let slot = rng.below(SLOTS as u64) as usize;
    let offset = [0, 1, 511, 4096, 5000, 65_536, 70_001][rng.below(7) as usize];
    let len = [0, 1, 100, 4095, 4096, 10_000, 66_000][rng.below(7) as usize];
    match pick {
        0..12 => {
            let access = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR][rng.below(3) as usize];
            let mut flags = access;
            for (flag, one_in) in [
                (OFlags::CREATE, 2),
                (OFlags::EXCL, 6),
                (OFlags::TRUNC, 4),
                (OFlags::APPEND, 5),
                (OFlags::NOFOLLOW, 6),
                (OFlags::DIRECTORY, 12),
            ] {
                flags.set(flag, rng.below(one_in) == 0);
            }
            // The kernel refuses this pair before it asks a file system.
            if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
                flags.remove(OFlags::DIRECTORY);
            }
            // A file without a name, in most cases where it can be one.
            if rng.below(5) == 0 {
                let flags = OFlags::TMPFILE | access | flags & OFlags::EXCL;
                let dir = if rng.below(3) == 0 { path(rng) } else { ".".into() };
                return Call::Open { slot, path: dir, flags, mode: 0o640 };
            }
            Call::Open { slot, path: path(rng), flags, mode: 0o666 }
        }
        12..14 => Call::Close { slot },
        14..19 => Call::Read { slot, offset, len },
        19..26 => Call::Write { slot, offset, len, byte: rng.below(256) as u8 },
        26..29 => Call::Append { slot, len, byte: rng.below(256) as u8 },
        29..32 => Call::Truncate { slot, len: offset + rng.below(3) },
        32..35 => {
            let mode = [0, 1, 2, 3, 0x10, 0x11][rng.below(6) as usize];
            Call::Fallocate { slot, mode, offset, len: len as u64 }
        }
        35..37 => {
            let to = rng.below(SLOTS as u64) as usize;
            Call::CopyRange { from: slot, to, offset_in: offset, offset_out: 100_000, len }
        }
        37..38 => Call::Fsync { slot },
        38..39 => Call::NameMax,
        39..41 => Call::Seek { slot, hole: rng.below(2) == 0, offset },
        _ => Call::Fstat { slot },
    }
}

fn xattr_call(rng: &mut Rng) -> Call {
    let names = ["user.a", "user.b", "trusted.a", "security.a", "user.", "none.a"];
    let name = names[rng.below(names.len() as u64) as usize].to_owned();
    let path = path(rng);
    match rng.below(5) {
        0 | 1 => {
            let value = vec![rng.below(256) as u8; [0, 1, 60, 800, 3000][rng.below(5) as usize]];
            Call::Setxattr { path, name, value, flags: [0, 0, 1, 2][rng.below(4) as usize] }
        }
        2 => Call::Getxattr { path, name, size: [0, 10, 4000][rng.below(3) as usize] },
        3 => Call::Listxattr { path },
        _ => Call::Removexattr { path, name },
    }
}
