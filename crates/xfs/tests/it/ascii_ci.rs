//! Directories that ignore case (`mkfs.xfs -n version=ci`): names are kept as they were given, and
//! found in every case. Kernels of today are built without them; both `xfs_repair -n` judge their
//! hashes, and kernel 6.1 in a guest ([`testkit::guest`]).

use std::collections::BTreeMap;

use crate::support::{load, newest_mkfs_xfs, try_mount};
use crate::world::{Cell, checked, mount, repaired};
use base::{Errno, Ino, Rng};
use rt::Cx;
use testkit::manifest;
use vfs::{FileSystem, FileType, NewNode, RenameFlags};
use xfs::Xfs;

const CELLS: [Cell; 4] = [
    Cell(&[('n', "version=ci")]),
    Cell(&[('b', "size=1024"), ('n', "version=ci"), ('m', "rmapbt=1")]),
    Cell(&[('n', "version=ci,parent=1"), ('m', "rmapbt=1"), ('i', "exchange=1,nrext64=1")]),
    Cell(&[
        ('b', "size=1024"),
        ('n', "version=ci,parent=1"),
        ('i', "exchange=1"),
        ('m', "rmapbt=1"),
    ]),
];

/// Bytes of names. Those of Latin-1 only where xfsprogs 6.1 does not judge: it folds them in
/// another way.
fn letters(cell: Cell) -> &'static [u8] {
    match cell.0.iter().any(|edit| edit.1.contains("exchange=1")) {
        true => b"abcdefgXYZ-0123\xe4\xc4\xd7\xff",
        false => b"abcdefgXYZ-0123",
    }
}

/// A name in another case: letters of ASCII, and of Latin-1 byte by byte.
fn other_case(name: &[u8], rng: &mut Rng) -> Vec<u8> {
    let flip = |&byte: &u8| match byte {
        b'a'..=b'z' | 0xe0..=0xf6 | 0xf8..=0xfe => byte - 0x20,
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + 0x20,
        other => other,
    };
    name.iter().map(|byte| if rng.below(2) == 0 { flip(byte) } else { *byte }).collect()
}

fn folded(name: &[u8]) -> Vec<u8> {
    let small = |&byte: &u8| match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + 0x20,
        other => other,
    };
    name.iter().map(small).collect()
}

/// Goal: what mkfs.xfs fills from a directory is read, and found in every case. Method: directories
/// in each form, with names of ASCII, of UTF-8, and of bytes.
#[test]
fn directories_of_mkfs_xfs_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let tree = dir.path().join("tree");
    for (name, count) in [("Small", 3), ("Block", 60), ("Leaf", 300), ("Node", 3000)] {
        let place = tree.join(name);
        std::fs::create_dir_all(&place).expect("a directory");
        for n in 0..count {
            std::fs::write(place.join(format!("File-Number-{n}")), [n as u8; 9]).expect("a file");
        }
        std::fs::write(place.join("Gr\u{fc}n-\u{c4}pfel"), "utf-8").expect("a file");
    }
    for words in ["-n version=ci", "-b size=1024 -n version=ci", "-n version=ci,parent=0"] {
        let image = dir.path().join("image");
        newest_mkfs_xfs(&image, 96 << 20, &format!("{words} -p {}", tree.display()));
        let device = load(&image);
        let wanted = manifest::of_dir(&tree).expect("the tree");
        rt::testing::world(|cx| {
            checked(cx, &device).unwrap_or_else(|text| panic!("{words}: {text}"));
            let fs = try_mount(cx, device.clone()).expect("mount");
            let mut rng = Rng::new(3, 4);
            for path in wanted.keys().filter(|path| !path.is_empty()) {
                let mut at = fs.root();
                for part in other_case(path, &mut rng).split(|&byte| byte == b'/') {
                    at = fs.lookup(cx, at, part).expect("a name in another case").ino;
                }
            }
            let names = manifest::of_fs(cx, &*fs).expect("it is read");
            assert!(names.keys().eq(wanted.keys()), "{words}: names as they were given");
        });
    }
}

/// One directory: folded names, with the names as they are stored, and their inodes.
type Names = BTreeMap<Vec<u8>, (Vec<u8>, Ino)>;

fn new_name(letters: &[u8], rng: &mut Rng) -> Vec<u8> {
    let most = if rng.below(8) == 0 { 200 } else { 12 };
    let len = 1 + rng.below(most);
    (0..len).map(|_| letters[rng.below(letters.len() as u64) as usize]).collect()
}

fn step(cx: &mut Cx, fs: &Xfs, dir: Ino, names: &mut Names, (letters, rng): (&[u8], &mut Rng)) {
    let pick = |names: &Names, rng: &mut Rng| {
        let at = rng.below(names.len().max(1) as u64) as usize;
        names.iter().nth(at).map(|(key, value)| (key.clone(), value.clone()))
    };
    let some = pick(names, rng);
    match (rng.below(10), some) {
        (0..=1, Some((key, (stored, _)))) => {
            fs.unlink(cx, dir, &other_case(&stored, rng)).expect("unlink in another case");
            names.remove(&key);
        }
        (2, Some((key, (stored, ino)))) => {
            let (old, new) = (other_case(&stored, rng), new_name(letters, rng));
            let result = fs.rename(cx, dir, &old, dir, &new, RenameFlags::empty());
            result.expect("rename");
            // A name that is there keeps its case; the same name is no change.
            if folded(&new) != key {
                names.remove(&key);
                let there = names.get(&folded(&new)).map(|entry| entry.0.clone());
                names.insert(folded(&new), (there.unwrap_or(new), ino));
            }
        }
        (3, Some((_, (stored, ino)))) => {
            let name = other_case(&stored, rng);
            let node = NewNode::new(FileType::Regular, 0o644);
            assert_eq!(fs.create(cx, dir, &name, &node).err(), Some(Errno::EEXIST));
            assert_eq!(fs.link(cx, ino, dir, &name).err(), Some(Errno::EEXIST));
        }
        _ => {
            let name = new_name(letters, rng);
            let node = NewNode::new(FileType::Regular, 0o644);
            match fs.create(cx, dir, &name, &node) {
                Ok(attr) => {
                    let before = names.insert(folded(&name), (name, attr.ino));
                    assert_eq!(before, None);
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::EEXIST);
                    assert!(names.contains_key(&folded(&name)));
                }
            }
        }
    }
}

/// The directory is what it should be, in every case.
fn verify(cx: &mut Cx, fs: &Xfs, dir: Ino, names: &Names, (letters, rng): (&[u8], &mut Rng)) {
    let mut listed = BTreeMap::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        listed.insert(entry.name.to_vec(), entry.ino);
        true
    })
    .expect("readdir");
    listed.retain(|name, _| name != b"." && name != b"..");
    let wanted: BTreeMap<_, _> = names.values().cloned().collect();
    assert_eq!(listed, wanted);
    for (stored, ino) in names.values() {
        let found = fs.lookup(cx, dir, &other_case(stored, rng)).expect("another case");
        assert_eq!(found.ino, *ino);
    }
    for _ in 0..20 {
        let name = new_name(letters, rng);
        let found = fs.lookup(cx, dir, &name).map(|attr| attr.ino).ok();
        assert_eq!(found, names.get(&folded(&name)).map(|entry| entry.1));
    }
}

/// Goal: every operation on names finds them in each case, and changes the name that is stored.
/// Method: random operations beside a map, with remounts; both `xfs_repair -n` and our check.
#[test]
fn names_are_found_in_every_case() {
    for (cell, seed) in CELLS.into_iter().zip(1..) {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 96 << 20);
            let mut rng = Rng::new(seed, 77);
            let mut names = Names::new();
            let mut dir = None;
            for round in 0..4 {
                let (fs, _) = mount(cx, device.clone(), 8 << 20);
                let node = NewNode::new(FileType::Directory, 0o755);
                let at = match dir {
                    Some(dir) => dir,
                    None => fs.create(cx, fs.root(), b"Names", &node).expect("mkdir").ino,
                };
                dir = Some(at);
                for _ in 0..[30, 300, 1500, 200][round] {
                    step(cx, &fs, at, &mut names, (letters(cell), &mut rng));
                }
                verify(cx, &fs, at, &names, (letters(cell), &mut rng));
                fs.unmount(cx).expect("unmount");
                checked(cx, &device).unwrap_or_else(|text| panic!("{cell:?}: {text}"));
                repaired(&device).unwrap_or_else(|text| panic!("{cell:?}: {text}"));
            }
            let (fs, _) = mount(cx, device.clone(), 8 << 20);
            while let Some((_, (stored, _))) = names.pop_first() {
                fs.unlink(cx, dir.expect("made"), &other_case(&stored, &mut rng)).expect("unlink");
            }
            fs.rmdir(cx, fs.root(), b"NAMES").expect("rmdir in another case");
            fs.unmount(cx).expect("unmount");
            checked(cx, &device).unwrap_or_else(|text| panic!("{cell:?} empty: {text}"));
            repaired(&device).unwrap_or_else(|text| panic!("{cell:?} empty: {text}"));
        });
    }
}

/// What the guest does with each disk: looks for names in another case, makes and moves names,
/// tries those that are there, and cuts its log off.
const JOB: &str = "modprobe xfs
for disk in a b; do
  mount /dev/vd$disk /mnt || { echo REFUSED $disk; continue; }
  cd /mnt/nAmEs
  LOOK
  echo LISTED $disk $(ls -1 | wc -l)
  i=0; while [ $i -lt 400 ]; do echo $i >Kernel-Name-$i; i=$((i+1)); done
  for i in $(seq 0 2 398); do mv kERNEL-nAME-$i Moved-$i; rm kernel-NAME-$((i+1)); done
  i=0; while [ $i -lt 400 ]; do mkdir mOVED-$i 2>/dev/null && echo TWICE $i; i=$((i+20)); done
  xfs_io -x -c 'shutdown -f' /mnt; cd /; umount /mnt
done
";

/// Goal: a kernel that knows such directories recovers our log, and finds our names in every case;
/// we find its names. Method: kernel 6.1 in a guest; letters of ASCII and of Latin-1; afterwards
/// our check finds nothing, and `xfs_repair -n` where it folds as the kernel does.
#[test]
fn a_kernel_in_a_guest_finds_names_in_every_case() {
    if !testkit::guest::is_there() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut paths, mut look, mut counts) = (Vec::new(), String::new(), Vec::new());
    let letters = b"abcdefgXYZ-0123\xe4\xc4\xd7\xff";
    for (cell, disk) in CELLS.into_iter().zip(["a", "b"]) {
        let (image, names) = rt::testing::world(|cx| {
            let device = cell.fresh(cx, 96 << 20);
            let (fs, _) = mount(cx, device.clone(), 8 << 20);
            let node = NewNode::new(FileType::Directory, 0o755);
            let at = fs.create(cx, fs.root(), b"Names", &node).expect("mkdir").ino;
            let (mut rng, mut names) = (Rng::new(5, 5), Names::new());
            for _ in 0..900 {
                step(cx, &fs, at, &mut names, (letters, &mut rng));
            }
            fs.sync(cx).expect("sync");
            let image = device.snapshot();
            fs.shutdown_hard();
            (image, names)
        });
        let mut rng = Rng::new(6, 6);
        let octal = |name: Vec<u8>| name.iter().map(|byte| format!("\\{byte:03o}")).collect();
        let lines = names.values().map(|(stored, _)| {
            let name: String = octal(other_case(stored, &mut rng));
            format!(
                "[ $disk != {disk} ] || [ -e \"$(printf '{name}')\" ] || echo MISSED '{name}'\n"
            )
        });
        look.extend(lines);
        counts.push(names.len());
        let path = dir.path().join(disk);
        std::fs::write(&path, image).expect("written");
        paths.push(path);
    }
    let text = testkit::guest::run_stable(&JOB.replace("LOOK", &look), &paths).expect("a guest");
    for word in ["REFUSED", "MISSED", "TWICE"] {
        assert!(!text.contains(word), "{text}");
    }
    for ((path, disk), count) in paths.iter().zip(["a", "b"]).zip(counts) {
        assert!(text.contains(&format!("LISTED {disk} {count}\n")), "{count} names: {text}");
        rt::testing::world(|cx| {
            let device = load(path);
            let (fs, _) = mount(cx, device.clone(), 8 << 20);
            assert!(fs.recovery().is_some(), "its log was not clean");
            let at = fs.lookup(cx, fs.root(), b"NAMES").expect("there").ino;
            for n in 0..400 {
                let name = format!("mOvEd-{n}");
                assert_eq!(fs.lookup(cx, at, name.as_bytes()).is_ok(), n % 2 == 0, "{name}");
            }
            fs.unmount(cx).expect("unmount");
            checked(cx, &device).unwrap_or_else(|text| panic!("{disk}: {text}"));
        });
    }
}
