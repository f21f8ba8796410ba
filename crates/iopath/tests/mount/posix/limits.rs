//! Calls at the limits of the formats: attributes of all sizes, until there is no room for more;
//! writes and lengths at the end of the largest file.

use std::collections::BTreeSet;

use rustix::fs::OFlags;

use super::Pair;
use super::calls::{Call, User};

/// The errors that were told.
type Told = BTreeSet<String>;

/// Runs a call as root on both.
fn root(pair: &mut Pair, told: &mut Told, case: &str, call: &Call) {
    let answer = pair.call(User::Root, call, &|| format!("{case}: "));
    if answer.starts_with("error") {
        told.insert(answer);
    }
}

fn made(path: &str) -> [Call; 2] {
    let flags = OFlags::CREATE | OFlags::RDWR;
    [Call::Open { slot: 0, path: path.to_owned(), flags, mode: 0o644 }, Call::Close { slot: 0 }]
}

/// Attributes of sizes around the borders of their forms, alone and beside another one.
pub fn attributes(pair: &mut Pair) -> Told {
    let mut told = Told::new();
    let around = |at: usize| at.saturating_sub(3)..=at + 3;
    let sizes = (0..3).chain(50..110).chain(around(255)).chain(around(256));
    let sizes = sizes.chain(around(900)).chain(900..1030).chain(around(2048));
    let sizes = sizes.chain(3900..4100).chain(around(8192)).chain(around(65_534));
    let path = || "f".to_owned();
    let set = |name: &str, len: usize, flags| {
        let value = (0..len).map(|at| (at * 7 + len) as u8).collect();
        Call::Setxattr { path: path(), name: name.to_owned(), value, flags }
    };
    let get = |name: &str, size| Call::Getxattr { path: path(), name: name.to_owned(), size };
    for len in sizes {
        let case = format!("an attribute of {len} bytes");
        pair.ours.enter("attributes", 0o755);
        pair.kernel.enter("attributes", 0o755);
        let calls = made("f").into_iter().chain([
            set("user.a", len, 1),
            get("user.a", 0),
            get("user.a", len.saturating_sub(1).max(1)),
            get("user.a", len),
            get("user.a", 70_000),
            set("trusted.b", 20, 1),
            set("user.a", len, 1),
            set("user.a", len / 2, 2),
            set("user.a", len + 1, 2),
            Call::Listxattr { path: path() },
        ]);
        calls.for_each(|call| root(pair, &mut told, &case, &call));
        pair.compare(&|| format!("{case}: "));
        pair.ours.leave();
        pair.kernel.leave();
    }
    for len in (1..=4).chain(245..=256) {
        let case = format!("an attribute's name of {len} characters");
        pair.ours.enter("names", 0o755);
        pair.kernel.enter("names", 0o755);
        let name = format!("user.{}", "n".repeat(len));
        let gone = Call::Removexattr { path: path(), name: name.clone() };
        let calls = made("f").into_iter().chain([set(&name, 3, 0), get(&name, 100), gone]);
        calls.for_each(|call| root(pair, &mut told, &case, &call));
        pair.ours.leave();
        pair.kernel.leave();
    }
    told
}

/// Attributes of one file until there is no room, or their names fill no list any more.
pub fn many_attributes(pair: &mut Pair) -> Told {
    let mut told = Told::new();
    for (len, count) in [(0, 400), (30, 300), (200, 120), (1000, 60)] {
        pair.ours.enter("many", 0o755);
        pair.kernel.enter("many", 0o755);
        let case = format!("attributes of {len} bytes");
        made("f").iter().for_each(|call| root(pair, &mut told, &case, call));
        for number in 0..count {
            let (path, name) = ("f".to_owned(), format!("user.name{number:03}"));
            let value = vec![number as u8; len];
            root(pair, &mut told, &case, &Call::Setxattr { path, name, value, flags: 1 });
            root(pair, &mut told, &case, &Call::Listxattr { path: "f".to_owned() });
        }
        pair.compare(&|| format!("{case}: "));
        for number in (0..count).step_by(3) {
            let (path, name) = ("f".to_owned(), format!("user.name{number:03}"));
            root(pair, &mut told, &case, &Call::Removexattr { path, name });
        }
        pair.compare(&|| format!("{case}, some of them removed: "));
        pair.ours.leave();
        pair.kernel.leave();
    }
    told
}

/// Lengths, and writes that are synced before write(2) returns, around the powers of two at which
/// formats end.
pub fn largest_file(pair: &mut Pair) -> Told {
    let mut told = Told::new();
    let file = |flags| Call::Open { slot: 1, path: "f".to_owned(), flags, mode: 0o644 };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::SYNC;
    for shift in [31, 32, 40, 41, 42, 43, 44, 52, 60, 62, 63] {
        for at in [(1_u64 << shift) - 4097, (1 << shift) - 4096, (1 << shift) - 1025]
            .into_iter()
            .chain([(1 << shift) - 1024, (1 << shift) - 2, (1 << shift) - 1, 1 << shift])
        {
            let case = format!("at {at}, below 2 to the {shift}th");
            pair.ours.enter("largest", 0o755);
            pair.kernel.enter("largest", 0o755);
            let calls = [
                file(flags),
                Call::Truncate { slot: 1, len: at },
                Call::Fstat { slot: 1 },
                Call::Truncate { slot: 1, len: 0 },
                Call::Fallocate { slot: 1, mode: 1, offset: at, len: 1 },
                Call::Truncate { slot: 1, len: 0 },
                Call::Write { slot: 1, offset: at, len: 1, byte: 7 },
            ];
            calls.iter().for_each(|call| root(pair, &mut told, &case, call));
            pair.ours.leave();
            pair.kernel.leave();
        }
    }
    told
}
