//! Intents of ordinary attributes without their done items are finished as Linux finishes them.
//!
//! Linux writes such intents only if it was built for debugging and a knob is turned (`larp`), but
//! every one of today recovers them. So the records here are written by hand behind the log of an
//! image that the kernel made, and the host's kernel says what is to come of them. It refuses what
//! the superblock's bit does not allow, and what is not well-formed; so do we.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::log_common::cut::KernelLog;
use crate::log_common::replayed::{compare, ours, tree};
use crate::log_common::{copy, mkfs, repair, scratch};
use testkit::judge::{self, LoopMount};
use testkit::newest;

const SET: u32 = 1;
const REMOVE: u32 = 2;
const REPLACE: u32 = 3;
const USER: u32 = 0;
const ROOT: u32 = 2;
const SECURE: u32 = 4;

/// An intent as a kernel logs it.
#[derive(Clone, Copy)]
struct Attri<'a> {
    ino: u64,
    operation: u32,
    space: u32,
    name: &'a [u8],
    value: &'a [u8],
}

impl Attri<'_> {
    fn set(ino: u64) -> Attri<'static> {
        Attri { ino, operation: SET, space: USER, name: b"new", value: b"value" }
    }

    fn item(&self, id: u64) -> Vec<Vec<u8>> {
        let padded = |part: &[u8]| {
            let mut part = part.to_vec();
            part.resize(part.len().next_multiple_of(4), 0);
            part
        };
        let mut regions = vec![Vec::new(), padded(self.name)];
        if !self.value.is_empty() {
            regions.push(padded(self.value));
        }
        let kinds = [0x1246u16.to_le_bytes(), (regions.len() as u16).to_le_bytes(), [0; 2], [0; 2]];
        let numbers = [id.to_le_bytes(), self.ino.to_le_bytes()].concat();
        let lengths = [self.name.len() as u32, self.value.len() as u32];
        let [name, value] = lengths.map(u32::to_le_bytes);
        let words = [self.operation.to_le_bytes(), name, value, self.space.to_le_bytes()].concat();
        regions[0] = [kinds.concat(), numbers, words].concat();
        regions
    }
}

fn done(id: u64) -> Vec<Vec<u8>> {
    let kind = [0x1247u16.to_le_bytes(), 1u16.to_le_bytes(), [0; 2], [0; 2]].concat();
    vec![[kind, id.to_le_bytes().to_vec()].concat()]
}

fn xfs_db(image: &Path, commands: &[&str]) {
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"-x"];
    for command in commands {
        all.push(&"-c");
        all.push(command);
    }
    all.push(&image);
    newest::run_ok("xfs_db", &all);
}

/// Files whose attributes lie nowhere, in the inode, in a leaf, in a tree, and with values in
/// blocks of their own; the superblock allows intents.
const FILES: [&str; 6] = ["none", "inode", "leaf", "tree", "large", "alone"];

struct World {
    image: PathBuf,
    inodes: Vec<u64>,
}

fn world(dir: &Path, newest_one: bool, words: &[&str]) -> World {
    let image = match newest_one {
        true => dir.join("world.img"),
        false => mkfs(dir, "world.img", 320 << 20, words),
    };
    if newest_one {
        newest::mkfs_xfs(&image, 320 << 20, words);
    }
    let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
    let mut inodes = Vec::new();
    for file in FILES {
        let path = mount.path().join(file);
        File::create(&path).expect("created");
        inodes.push(fs::metadata(&path).expect("metadata").ino());
        let set = |name: &str, size: usize| {
            let value = "v".repeat(size);
            judge::run_ok("setfattr", &[&"-n", &name, &"-v", &value, &path]);
        };
        match file {
            "inode" => set("user.old", 20),
            "alone" => set("user.old", 300),
            "leaf" => (0..3).for_each(|n| set(&format!("user.{}", ["old", "a", "b"][n]), 250)),
            "tree" => {
                set("user.old", 60);
                (0..200).for_each(|number| set(&format!("user.name {number}"), 100));
            }
            "large" => {
                ["user.old", "trusted.old", "user.b"].iter().for_each(|name| set(name, 30_000))
            }
            _ => {}
        }
    }
    drop(mount);
    World { image, inodes }
}

/// The image with an unfinished log, which the superblock allows to hold intents of attributes.
fn with_log(dir: &Path, world: &World, records: &[Vec<Vec<Vec<u8>>>]) -> PathBuf {
    let image = dir.join("dirty.img");
    copy(&world.image, &image);
    xfs_db(&image, &["sb 0", "write features_log_incompat 1"]);
    records.iter().for_each(|items| KernelLog::append(&image, items));
    image
}

/// Goal: attributes in each form are set, replaced and removed as the kernel does it, with values
/// of all sizes; there or gone, nothing between. Method: one log with an intent for each file.
#[test]
fn announced_attributes_are_changed_as_the_kernel_changes_them() {
    let large = vec![b'L'; 40_000];
    let whole = vec![b'W'; 65_536];
    let long = [b'n'; 247];
    let forms: [(u32, u32, &[u8], &[u8]); 12] = [
        (SET, USER, b"new", b"value"),
        (SET, USER, b"new", &large),
        (SET, ROOT, &long, b""),
        (SET, USER, b"old", b"other"),
        (REPLACE, USER, b"old", &large),
        (REPLACE, USER, b"old", b""),
        (REPLACE, USER, b"new", &[7; 250]),
        (REPLACE, ROOT, b"old", b"small again"),
        (REMOVE, USER, b"old", b""),
        (REMOVE, ROOT, b"old", b""),
        (REMOVE, SECURE, b"nobody has it", b""),
        (SET, SECURE, b"new", &whole),
    ];
    for (newest_one, words) in [(true, &[][..]), (true, &["-b", "size=1024"]), (false, &[])] {
        let dir = scratch();
        let world = world(dir.path(), newest_one, words);
        let before = tree(&world.image);
        for (operation, space, name, value) in forms {
            let intent = |ino| Attri { ino, operation, space, name, value };
            // Such values fill a record with a few of them.
            let inodes = if value.len() > 50_000 { &world.inodes[2..5] } else { &world.inodes[..] };
            let items: Vec<_> = inodes.iter().map(|&ino| intent(ino).item(ino)).collect();
            let image = with_log(dir.path(), &world, &[items]);
            let report = compare(dir.path(), &image);
            assert_eq!(report.intents, inodes.len() as u64);
            let changed = tree(&image) != before;
            assert_eq!(changed, space != SECURE || operation == SET, "{operation} {space}");
            if newest_one {
                newest::xfs_repair(&image).expect("the newest xfs_repair is silent");
            }
        }
    }
}

/// Goal: wherever a chain of intents is cut, the attribute has the value of the last one that is
/// open; those with a done item are not carried out.
#[test]
fn the_open_intent_of_a_chain_decides() {
    let dir = scratch();
    let world = world(dir.path(), true, &[]);
    let inodes = &world.inodes;
    let step = |id: u64| -> Vec<Vec<u8>> {
        let value = vec![b'a' + id as u8; 10 << id];
        let ino = inodes[id as usize % inodes.len()];
        Attri { value: &value, operation: REPLACE, name: b"old", ..Attri::set(ino) }.item(id)
    };
    let mut records: Vec<Vec<Vec<Vec<u8>>>> = vec![vec![step(0)]];
    for id in 1..10 {
        records.push(vec![done(id - 1), step(id)]);
    }
    records.push(vec![done(9)]);
    for count in 1..=records.len() {
        let image = with_log(dir.path(), &world, &records[..count]);
        let report = compare(dir.path(), &image);
        assert_eq!(report.intents, u64::from(count < records.len()));
    }
}

/// Goal: what the kernel left half done, which is marked as incomplete, is finished: a value that
/// is being given back, of which blocks may be gone, and an attribute that waits for its value.
#[test]
fn what_is_marked_as_incomplete_is_finished() {
    let dir = scratch();
    let world = world(dir.path(), true, &[]);
    let (tree, large) = (world.inodes[3], world.inodes[4]);
    let inode = format!("inode {large}");
    let mark = ["entries[0].incomplete 1", "entries[1].incomplete 1", "entries[2].incomplete 1"]
        .map(|field| format!("write {field}"));
    let commands = [&inode[..], "ablock 0", &mark[0], &mark[1], &mark[2]];
    // Blocks that are gone: the values were longer once.
    let longer = [0, 1, 2].map(|index| format!("write nvlist[{index}].valuelen 60000"));
    for gone in [false, true] {
        for (operation, value) in [(REMOVE, &b""[..]), (REPLACE, b"short"), (SET, &[9; 20_000])] {
            let intent = |ino, space, name| Attri { ino, operation, space, name, value };
            let items = [
                intent(large, USER, b"old").item(1),
                intent(large, ROOT, b"old").item(2),
                intent(large, USER, b"b").item(3),
                intent(tree, USER, b"old").item(4),
            ];
            let image = with_log(dir.path(), &world, &[items.to_vec()]);
            xfs_db(&image, &commands);
            if gone {
                // One of them has nothing behind it.
                xfs_db(&image, &[&inode, "ablock 0", &longer[2]]);
            }
            compare(dir.path(), &image);
            // It says so, and takes no offence.
            let output = newest::run("xfs_repair", &[&"-n", &image]);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !text.contains("INCOMPLETE"), "{text}");
        }
    }
}

/// Goal: what Linux refuses is refused with one error, and the image stays as it is.
#[test]
fn intents_that_linux_refuses_are_refused() {
    let dir = scratch();
    let world = world(dir.path(), true, &[]);
    let good = Attri::set(world.inodes[1]);
    let refused = |what: &str, allowed: bool, item: Vec<Vec<u8>>| {
        let image = with_log(dir.path(), &world, &[vec![item]]);
        if !allowed {
            xfs_db(&image, &["sb 0", "write features_log_incompat 0"]);
        }
        let before = fs::read(&image).expect("read");
        let error = ours(&image).expect_err(what).to_string();
        assert!(error.starts_with("transaction 0x77: "), "{what}: {error}");
        assert!(fs::read(&image).expect("read") == before, "{what}: the image has changed");
        assert!(LoopMount::new(&image, "xfs", "rw").is_err(), "{what}: Linux takes it");
    };
    let long = [b'n'; 256];
    refused("no bit", false, good.item(1));
    for (what, intent) in [
        ("two spaces", Attri { space: ROOT | SECURE, ..good }),
        ("a local one", Attri { space: 1, ..good }),
        ("no operation", Attri { operation: 0, ..good }),
        ("a flag", Attri { operation: SET | 0x100, ..good }),
        ("of a pointer", Attri { space: 8, value: b"twelve bytes", ..good }),
        ("a value to remove", Attri { operation: REMOVE, ..good }),
        ("no name", Attri { name: b"", ..good }),
        ("a long name", Attri { name: &long, ..good }),
        ("a zero byte", Attri { name: b"a\0b", ..good }),
        ("a long value", Attri { value: &[1; 65_540], ..good }),
    ] {
        refused(what, true, intent.item(1));
    }
    let mut bare = good.item(1);
    bare[1].truncate(3);
    refused("without padding", true, bare);
    let mut more = good.item(1);
    more.push(vec![0; 4]);
    more[0][2] += 1;
    refused("a region more", true, more);
    // Linux takes this one, and stops at the attribute that it writes.
    let image = with_log(dir.path(), &world, &[vec![Attri { space: 0x80, ..good }.item(1)]]);
    ours(&image).expect_err("incomplete");
    let image = with_log(dir.path(), &world, &[vec![good.item(1)]]);
    ours(&image).expect("the good one");
    repair(&image).expect("clean");
}
