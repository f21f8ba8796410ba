//! Directories: listing, cookies, link counts, many names.

use std::collections::BTreeMap;

use base::{Errno, Ino};

use super::{Entry, Env};

pub const CASES: &[Entry] = &[
    ("dirs::dots_come_first", dots_first),
    ("dirs::a_listing_goes_on_behind_a_cookie", cookies),
    ("dirs::a_listing_survives_changes", changes_while_listing),
    ("dirs::many_names_of_all_lengths", many_names),
    ("dirs::subdirectories_count_as_links", link_counts),
    ("dirs::names_come_back_after_mass_removal", mass_removal),
];

fn dots_first(env: &mut Env) {
    let dir = env.dir;
    let sub = env.mkdir(dir, "sub");
    env.file(sub, "file");
    let list = env.list(sub);
    assert_eq!((&list[0].0[..], list[0].1), (b"." as &[u8], sub));
    assert_eq!((&list[1].0[..], list[1].1), (b".." as &[u8], dir));
    assert_eq!(&list[2].0[..], b"file");
    assert_eq!(list.len(), 3);
    let file = env.look(sub, "file").ino;
    env.err(Errno::ENOTDIR, "readdir of a file", |fs, cx| fs.readdir(cx, file, 0, &mut |_| true));
}

/// Lists `at_once` entries per call; returns how often each name came.
fn list_in_steps(env: &mut Env, dir: Ino, at_once: usize) -> BTreeMap<Vec<u8>, u32> {
    let mut seen = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let mut count = 0;
        env.ok("readdir", |fs, cx| {
            fs.readdir(cx, dir, cookie, &mut |entry| {
                if count == at_once {
                    return false;
                }
                count += 1;
                cookie = entry.cookie;
                assert_ne!(cookie, 0, "a cookie of 0 would begin anew");
                *seen.entry(entry.name.to_vec()).or_default() += 1;
                true
            })
        });
        if count == 0 {
            return seen;
        }
        assert!(seen.len() < 100_000, "the listing never ends");
    }
}

fn cookies(env: &mut Env) {
    let dir = env.dir;
    for i in 0..300 {
        env.file(dir, &format!("name-{i}"));
    }
    for at_once in [1, 7, 100] {
        let seen = list_in_steps(env, dir, at_once);
        assert_eq!(seen.len(), 302, "{} at once", at_once);
        assert!(seen.values().all(|&n| n == 1), "{at_once} at once: a name came twice");
    }
}

fn changes_while_listing(env: &mut Env) {
    let dir = env.dir;
    for i in 0..400 {
        env.file(dir, &format!("old-{i}"));
    }
    let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let (mut cookie, mut round) = (0, 0);
    loop {
        let mut count = 0;
        env.ok("readdir", |fs, cx| {
            fs.readdir(cx, dir, cookie, &mut |entry| {
                if count == 20 {
                    return false;
                }
                count += 1;
                cookie = entry.cookie;
                *seen.entry(entry.name.to_vec()).or_default() += 1;
                true
            })
        });
        if count == 0 {
            break;
        }
        // Odd names stay; of the even ones some go, and new ones come.
        let victim = format!("old-{}", 2 * round);
        env.ok("unlink", |fs, cx| fs.unlink(cx, dir, victim.as_bytes()));
        for i in 0..if round < 15 { 10 } else { 0 } {
            env.file(dir, &format!("a new and rather long name {round} {i}"));
        }
        round += 1;
        assert!(round < 100, "the listing never ends");
    }
    for i in (1..400).step_by(2) {
        let name = format!("old-{i}");
        assert_eq!(seen.get(name.as_bytes()), Some(&1), "{name} must come exactly once");
    }
}

fn many_names(env: &mut Env) {
    let dir = env.dir;
    let name = |i: usize| format!("{i:04}{}", "x".repeat(i % 252));
    let mut inos = Vec::new();
    for i in 0..2000 {
        inos.push(env.file(dir, &name(i)));
    }
    for (i, &ino) in inos.iter().enumerate() {
        assert_eq!(env.look(dir, &name(i)).ino, ino);
    }
    for i in (0..2000).step_by(3) {
        env.ok("unlink", |fs, cx| fs.unlink(cx, dir, name(i).as_bytes()));
    }
    for (i, &ino) in inos.iter().enumerate() {
        if i % 3 == 0 {
            env.err(Errno::ENOENT, "lookup", |fs, cx| fs.lookup(cx, dir, name(i).as_bytes()));
        } else {
            assert_eq!(env.look(dir, &name(i)).ino, ino);
        }
    }
    assert_eq!(env.names(dir).len(), 1333);
}

fn link_counts(env: &mut Env) {
    let dir = env.dir;
    for i in 0..50 {
        env.mkdir(dir, &format!("d{i}"));
        assert_eq!(env.attr(dir).nlink, 3 + i);
    }
    for i in 0..50 {
        env.ok("rmdir", |fs, cx| fs.rmdir(cx, dir, format!("d{i}").as_bytes()));
    }
    assert_eq!(env.attr(dir).nlink, 2);
}

fn mass_removal(env: &mut Env) {
    let dir = env.dir;
    for round in 0..3 {
        for i in 0..500 {
            env.file(dir, &format!("round-{round}-file-{i}"));
        }
        assert_eq!(env.names(dir).len(), 500);
        env.empty(dir);
        assert_eq!(env.list(dir).len(), 2);
    }
}
