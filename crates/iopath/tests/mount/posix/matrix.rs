//! Every call on every kind of name, as root and as somebody else, in directories of several modes.

use rustix::fs::{FileType, OFlags};

use super::Pair;
use super::calls::{Call, User};

/// What a name can be.
const KINDS: &[&str] = &[
    "missing", "file", "empty", "full", "to_file", "to_dir", "dangling", "loop", "fifo", "device",
    "sticky", "setid", "private",
];
const USERS: [User; 2] = [User::Root, User::Plain];
const MODES: [u32; 3] = [0o755, 0o777, 0o1777];

/// The calls that make a name of this kind.
fn make(kind: &str, name: &str) -> Vec<Call> {
    let path = name.to_owned();
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = |mode| {
        vec![
            Call::Open { slot: 0, path: name.to_owned(), flags, mode },
            Call::Write { slot: 0, offset: 0, len: 5000, byte: 7 },
            Call::Close { slot: 0 },
        ]
    };
    let (uid, gid) = (Some(1000), Some(1000));
    let given = Call::Chown { path: path.clone(), uid, gid, follow: false };
    let link = |target: &str| vec![Call::Symlink { target: target.to_owned(), path: path.clone() }];
    match kind {
        "missing" => vec![],
        "file" => file(0o644),
        "private" => file(0o600),
        "setid" => {
            let mut calls = file(0o755);
            calls.push(given.clone());
            calls.push(Call::Chmod { path: path.clone(), mode: 0o6755 });
            calls
        }
        "empty" => vec![Call::Mkdir { path: path.clone(), mode: 0o755 }],
        "full" => vec![
            Call::Mkdir { path: path.clone(), mode: 0o777 },
            Call::Chmod { path: path.clone(), mode: 0o2777 },
            Call::Mkdir { path: format!("{name}/inside"), mode: 0o755 },
        ],
        "sticky" => vec![
            Call::Mkdir { path: path.clone(), mode: 0o777 },
            Call::Chmod { path: path.clone(), mode: 0o1777 },
            given,
        ],
        "to_file" => link("other_file"),
        "to_dir" => link("other_dir"),
        "dangling" => link("nowhere"),
        "loop" => link(name),
        "fifo" => vec![Call::Mknod { path: path.clone(), kind: FileType::Fifo, mode: 0o644 }],
        _ => vec![Call::Mknod { path: path.clone(), kind: FileType::CharacterDevice, mode: 0o666 }],
    }
}

/// The calls on one name.
fn single(name: &str) -> Vec<Call> {
    let path = || name.to_owned();
    let mut calls = Vec::new();
    let modes = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::PATH];
    let extras = [
        OFlags::empty(),
        OFlags::CREATE,
        OFlags::CREATE | OFlags::EXCL,
        OFlags::TRUNC,
        OFlags::APPEND,
        OFlags::DIRECTORY,
        OFlags::NOFOLLOW,
        OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW,
        OFlags::TMPFILE,
        OFlags::TMPFILE | OFlags::EXCL,
    ];
    for mode in modes {
        for extra in extras {
            calls.push(Call::Open { slot: 1, path: path(), flags: mode | extra, mode: 0o666 });
        }
    }
    let (slash, dot) = (format!("{name}/"), format!("{name}/."));
    for decorated in [slash, dot, format!("./{name}"), format!("{name}/x")] {
        calls.push(Call::Stat { path: decorated.clone(), follow: true });
        calls.push(Call::Unlink { path: decorated.clone() });
        calls.push(Call::Rmdir { path: decorated.clone() });
        calls.push(Call::Mkdir { path: decorated.clone(), mode: 0o777 });
        calls.push(Call::Rename { old: decorated, new: "moved".into(), flags: 0 });
    }
    calls.extend([
        Call::Mkdir { path: path(), mode: 0o1777 },
        Call::Mknod { path: path(), kind: FileType::RegularFile, mode: 0o640 },
        Call::Mknod { path: path(), kind: FileType::CharacterDevice, mode: 0o640 },
        Call::Symlink { target: "t".into(), path: path() },
        Call::Symlink { target: String::new(), path: path() },
        Call::Unlink { path: path() },
        Call::Rmdir { path: path() },
        Call::Readlink { path: path() },
        Call::Stat { path: path(), follow: true },
        Call::List { path: path() },
        Call::Utimens { path: path(), seconds: -5, nanos: 250_000_000 },
        Call::Utimens { path: path(), seconds: 1_000_000_000, nanos: 123_456_789 },
        Call::Listxattr { path: path() },
    ]);
    calls.extend(accesses(name));
    for mode in [0, 0o644, 0o4755, 0o2755, 0o2644, 0o1777] {
        calls.push(Call::Chmod { path: path(), mode });
    }
    let ids = [None, Some(0), Some(1000), Some(100)];
    for (uid, gid) in ids.iter().flat_map(|u| ids.iter().map(move |g| (*u, *g))) {
        calls.push(Call::Chown { path: path(), uid, gid, follow: uid.is_none() });
    }
    for name in ["user.a", "trusted.a", "security.a", "other.a", "user.", "a"] {
        let name = || name.to_owned();
        calls.push(Call::Setxattr { path: path(), name: name(), value: vec![1; 10], flags: 0 });
        calls.push(Call::Setxattr { path: path(), name: name(), value: vec![], flags: 2 });
        calls.push(Call::Getxattr { path: path(), name: name(), size: 100 });
        calls.push(Call::Removexattr { path: path(), name: name() });
    }
    calls
}

/// Every question of access(2).
fn accesses(name: &str) -> impl Iterator<Item = Call> {
    (0..8).map(move |mode| Call::Access { path: name.to_owned(), mode })
}

/// What root may do to nodes of all kinds with and without permission bits.
pub fn access(pair: &mut Pair) {
    let path = || "node".to_owned();
    pair.ours.enter("access", 0o755);
    pair.kernel.enter("access", 0o755);
    let mut calls = Vec::new();
    for mode in [0, 0o644, 0o100, 0o611, 0o001] {
        for kind in [FileType::RegularFile, FileType::Fifo, FileType::CharacterDevice] {
            calls.push(Call::Mknod { path: path(), kind, mode });
            calls.extend(accesses("node"));
            calls.push(Call::Unlink { path: path() });
        }
        calls.push(Call::Mkdir { path: path(), mode });
        calls.extend(accesses("node"));
        calls.push(Call::Rmdir { path: path() });
    }
    for call in &calls {
        pair.call(User::Root, call, &String::new);
    }
    pair.ours.leave();
    pair.kernel.leave();
}

/// The calls on two names.
fn double(a: &str, b: &str) -> Vec<Call> {
    let (old, new) = (a.to_owned(), b.to_owned());
    let mut calls = vec![
        Call::Link { old: old.clone(), new: new.clone(), follow: false },
        Call::Link { old: old.clone(), new: new.clone(), follow: true },
        Call::Rename { old: old.clone(), new: format!("{b}/in"), flags: 0 },
        Call::Rename { old: old.clone(), new: format!("{b}/"), flags: 0 },
    ];
    for flags in [0, 1, 2, 3, 8] {
        calls.push(Call::Rename { old: old.clone(), new: new.clone(), flags });
    }
    calls
}

/// Runs all cases.
pub fn run(pair: &mut Pair) {
    let mut case = 0;
    for (index, kind) in KINDS.iter().enumerate() {
        for call in single("x") {
            one(pair, &mut case, &[(kind, "x")], &call);
        }
        // A third of the pairs in each direction meet every kind with every other.
        for second in KINDS.iter().skip(index % 2).step_by(2) {
            for call in double("x", "y") {
                one(pair, &mut case, &[(kind, "x"), (second, "y")], &call);
            }
        }
    }
}

/// One call in a fresh directory that holds these names; the user and the directory's mode go
/// round.
fn one(pair: &mut Pair, case: &mut usize, names: &[(&&str, &str)], call: &Call) {
    *case += 1;
    let user = USERS[(*case + *case / 6) % 2];
    let mode = MODES[*case % 3];
    for world in [&mut pair.ours, &mut pair.kernel] {
        world.enter("case", mode);
        let others = make("file", "other_file").into_iter().chain(make("empty", "other_dir"));
        let calls = others.chain(names.iter().flat_map(|(kind, name)| make(kind, name)));
        for call in calls {
            let answer = world.run(User::Root, &call);
            assert!(!answer.starts_with("error"), "{call:?}: {answer}");
        }
    }
    let shown = call.clone();
    let kinds: Vec<_> = names.iter().map(|(kind, _)| **kind).collect();
    let history = move || format!("in a directory {mode:o} with {kinds:?}: {user:?} {shown:?}: ");
    pair.call(user, call, &history);
    pair.compare(&history);
    pair.ours.leave();
    pair.kernel.leave();
}
