//! Attributes set and removed at random beside maps in memory, through every form up and down, on
//! inodes whose other fork has every form; xfs_repair and the kernel have the last word.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use base::{Errno, Ino, Rng};
use block::Queue;
use cache::{PageCache, PageCacheConfig};
use rt::Cx;
use testkit::judge::{self, LoopMount};
use testkit::manifest;
use vfs::{FileSystem, FileType, SetAttr, XattrFlags};

use crate::format::inode::ForkFormat;
use crate::log_common::{Volume, mkfs, real, repair, scratch};
use crate::{MountOptions, Xfs};

/// The attributes that an inode should have.
type Wanted = BTreeMap<Vec<u8>, Vec<u8>>;

fn mount(cx: &mut Cx, image: &Path) -> Arc<Xfs> {
    let queue = Volume::open(cx, image).queue;
    mount_queue(cx, &queue)
}

fn mount_queue(cx: &mut Cx, queue: &Arc<Queue>) -> Arc<Xfs> {
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    Xfs::mount(cx, queue, &pages, options).expect("mounted")
}

/// Inodes with data forks of all forms, made by the kernel; returns their numbers by name.
fn targets(image: &Path) -> BTreeMap<&'static str, Ino> {
    let mount = LoopMount::new(image, "xfs", "rw").expect("mounted");
    let root = mount.path();
    fs::write(root.join("empty"), "").expect("written");
    for (name, extents) in [("list", 3u64), ("full-list", 20), ("btree", 90)] {
        let file = fs::File::create(root.join(name)).expect("created");
        for extent in 0..extents {
            file.write_all_at(&[7; 4096], extent * 12288).expect("written");
        }
        file.sync_all().expect("synced");
    }
    judge::run_ok("mknod", &[&root.join("device"), &"c", &"1", &"3"]);
    symlink("t".repeat(40), root.join("link")).expect("a link");
    fs::create_dir(root.join("directory")).expect("a directory");
    for number in 0..5 {
        fs::write(root.join(format!("directory/file-{number}")), "").expect("written");
    }
    symlink("t".repeat(330), root.join("long-link")).expect("a link");
    fs::create_dir(root.join("full")).expect("a directory");
    for number in 0..17 {
        fs::write(root.join(format!("full/name-{number:05}")), "").expect("written");
    }
    let names =
        ["empty", "list", "full-list", "btree", "device", "link", "long-link", "directory", "full"];
    let ino = |name: &str| Ino(fs::symlink_metadata(root.join(name)).expect("there").ino());
    names.into_iter().map(|name| (name, ino(name))).collect()
}

/// The forms of an attribute fork, from the least to the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Form {
    None,
    /// A fork without any attribute.
    Empty,
    Small,
    Leaf,
    Extents,
    Btree,
}

struct Model {
    fs: Arc<Xfs>,
    wanted: BTreeMap<Ino, Wanted>,
    /// The form of each inode's attributes.
    form: BTreeMap<Ino, Form>,
    /// Which forms became which.
    ways: BTreeSet<(Form, Form)>,
    rng: Rng,
}

impl Model {
    fn value(&mut self) -> Vec<u8> {
        let most = match self.rng.below(40) {
            0..=19 => 40,
            20..=31 => 250,
            32..=36 => 900,
            37..=38 => 5000,
            _ => 65536,
        };
        let (len, byte) = (self.rng.below(most + 1) as usize, self.rng.below(256) as u8);
        (0..len).map(|index| byte.wrapping_add((index / 7) as u8)).collect()
    }

    fn name(&mut self, cx: &mut Cx, ino: Ino, names: u64) -> Vec<u8> {
        let number = self.rng.below(names);
        // The kernel shows no user's attributes of devices and links.
        let kind = self.fs.getattr(cx, ino).expect("an inode").kind;
        let plain = matches!(kind, FileType::Regular | FileType::Directory);
        let spaces = if plain { ["user", "trusted", "security"] } else { ["trusted"; 3] };
        let space = spaces[(number % 3) as usize];
        let fill = "n".repeat((number * 7 % 90) as usize);
        format!("{space}.{fill}{number}").into_bytes()
    }

    fn step(&mut self, cx: &mut Cx, ino: Ino, (names, growing): (u64, bool)) {
        let name = self.name(cx, ino, names);
        let set = self.rng.below(10) < if growing { 8 } else { 2 };
        let known = self.wanted.entry(ino).or_default();
        if set {
            let there = known.contains_key(&name);
            let flags = match self.rng.below(4) {
                0 => XattrFlags::CREATE,
                1 => XattrFlags::REPLACE,
                _ => XattrFlags::empty(),
            };
            let value = self.value();
            let result = self.fs.setxattr(cx, ino, &name, &value, flags);
            let expected = match (flags, there) {
                (XattrFlags::CREATE, true) => Err(Errno::EEXIST),
                (XattrFlags::REPLACE, false) => Err(Errno::ENODATA),
                _ => Ok(()),
            };
            assert_eq!(result, expected, "{ino} {}: {:?}", name.escape_ascii(), self.fs.error());
            if result.is_ok() {
                self.wanted.entry(ino).or_default().insert(name, value);
            }
        } else {
            // One that is there, if there is one behind the name.
            let next = known.range(name.clone()..).next().map(|row| row.0.clone());
            let name = next.unwrap_or(name);
            let expected = known.remove(&name).map(|_| ()).ok_or(Errno::ENODATA);
            let result = self.fs.removexattr(cx, ino, &name);
            assert_eq!(result, expected, "{ino} {}: {:?}", name.escape_ascii(), self.fs.error());
        }
        self.note_form(cx, ino);
    }

    fn note_form(&mut self, cx: &mut Cx, ino: Ino) {
        let inode = self.fs.iget(cx, ino).expect("an inode");
        let forkoff = inode.with(cx, |state| state.core.forkoff);
        let forks = inode.forks.read(cx);
        let blocks: u32 = forks.attr.extents.iter().flatten().map(|extent| extent.count).sum();
        let form = match (forkoff, forks.attr.format) {
            (0, _) => Form::None,
            (_, ForkFormat::Local) => Form::Small,
            (_, ForkFormat::Extents) if blocks == 0 => Form::Empty,
            (_, ForkFormat::Extents) if blocks == 1 => Form::Leaf,
            (_, ForkFormat::Extents) => Form::Extents,
            _ => Form::Btree,
        };
        let before = self.form.insert(ino, form).unwrap_or(Form::None);
        self.ways.insert((before, form));
    }

    /// Everything goes, and with it the forks.
    fn empty(&mut self, cx: &mut Cx, inos: &[Ino]) {
        for (ino, wanted) in std::mem::take(&mut self.wanted) {
            for name in wanted.keys() {
                self.fs.removexattr(cx, ino, name).expect("removed");
                self.note_form(cx, ino);
            }
        }
        for &ino in inos {
            let inode = self.fs.iget(cx, ino).expect("an inode");
            let left = inode.extents(cx, super::Which::Attr, |list| list.len()).expect("a list");
            assert_eq!(left, 0, "{ino} keeps blocks");
        }
    }

    fn agree(&self, cx: &mut Cx) {
        for (&ino, wanted) in &self.wanted {
            let mut names = self.fs.listxattr(cx, ino).expect("a list");
            names.sort();
            let all: Vec<_> = wanted.keys().cloned().collect();
            assert_eq!(names, all, "{ino}");
            for (name, value) in wanted {
                let found = self.fs.getxattr(cx, ino, name).expect("a value");
                assert!(&found == value, "{ino} {}", name.escape_ascii());
            }
        }
    }

    fn remount(&mut self, cx: &mut Cx, image: &Path) {
        self.fs.unmount(cx).expect("unmounted");
        repair(image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
        let queue = self.fs.queue().clone();
        self.fs = mount_queue(cx, &queue);
        self.agree(cx);
    }
}

/// What the kernel shows of the attributes.
fn kernel_agrees(
    image: &Path,
    names: &BTreeMap<&'static str, Ino>,
    wanted: &BTreeMap<Ino, Wanted>,
) {
    let mount = LoopMount::new(image, "xfs", "ro").expect("the kernel mounts");
    let tree = manifest::of_dir(&mount.path()).expect("the kernel reads the whole tree");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (name, ino) in names {
        let found = &tree[name.as_bytes()].xattrs;
        let none = Wanted::new();
        let mut all = BTreeMap::new();
        for (name, value) in wanted.get(ino).unwrap_or(&none) {
            all.insert(String::from_utf8_lossy(name).into_owned(), hex(value));
        }
        assert!(*found == all, "{name}: the kernel has {} of {}", found.len(), all.len());
    }
}

fn churn(args: &[&str], seed: u64, steps: u32) -> BTreeSet<(Form, Form)> {
    let dir = scratch();
    let image = mkfs(dir.path(), "attrs", 320 << 20, args);
    let names = targets(&image);
    let inos: Vec<Ino> = names.values().copied().collect();
    let (ways, wanted) = real(|cx| {
        let fs = mount(cx, &image);
        let (wanted, form, rng) = (BTreeMap::new(), BTreeMap::new(), Rng::new(seed, 1));
        let mut model = Model { fs, wanted, form, ways: BTreeSet::new(), rng };
        for phase in 0..4 {
            for step in 0..steps {
                let ino = inos[model.rng.below(inos.len() as u64) as usize];
                let pool = [4, 60][phase / 2];
                model.step(cx, ino, (pool, phase % 2 == 0));
                if step % 200 == 199 {
                    model.agree(cx);
                }
            }
            model.remount(cx, &image);
        }
        model.empty(cx, &inos);
        // Once more, from trees of blocks, and a few for the kernel to see.
        for (steps, pool) in [(steps / 2, 60), (steps / 10, 20)] {
            for _ in 0..steps {
                let ino = inos[model.rng.below(inos.len() as u64) as usize];
                model.step(cx, ino, (pool, true));
            }
            if pool == 60 {
                model.remount(cx, &image);
                model.empty(cx, &inos);
            }
        }
        model.fs.unmount(cx).expect("unmounted");
        (model.ways, model.wanted)
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
    kernel_agrees(&image, &names, &wanted);
    ways
}

#[test]
fn attributes_go_through_all_forms_and_the_kernel_agrees() {
    let sets: [&[&str]; 3] = [
        &["-b", "size=1024", "-m", "rmapbt=1,reflink=1"],
        &["-i", "size=1024"],
        &["-b", "size=2048", "-i", "nrext64=1", "-m", "rmapbt=0"],
    ];
    let mut ways = BTreeSet::new();
    for (seed, args) in sets.into_iter().enumerate() {
        ways.extend(churn(args, seed as u64, 500));
    }
    for form in [Form::None, Form::Empty, Form::Small, Form::Leaf] {
        let left = ways.iter().any(|way| way.0 == form && way.1 > form);
        assert!(left, "{form:?} was not left on the way up: {ways:?}");
    }
    for form in [Form::Small, Form::Leaf, Form::Extents, Form::Btree] {
        let left = ways.iter().any(|way| way.0 == form && way.1 < form);
        assert!(left, "{form:?} was not left on the way down: {ways:?}");
    }
}

/// So many attributes that nodes have nodes above them, and back to none.
#[test]
fn thousands_of_attributes_come_and_go() {
    let dir = scratch();
    let image = mkfs(dir.path(), "many", 320 << 20, &["-b", "size=1024", "-m", "rmapbt=1"]);
    let names = targets(&image);
    let ino = names["list"];
    let name = |number: u32| format!("user.a-name-that-takes-its-room-{number:05}").into_bytes();
    let wanted = real(|cx| {
        let fs = mount(cx, &image);
        let mut wanted = Wanted::new();
        for number in 0..3000u32 {
            // Names of one hash among them: all that differ in one place alike.
            let value = vec![number as u8; 20 + number as usize % 50];
            fs.setxattr(cx, ino, &name(number), &value, XattrFlags::CREATE).expect("set");
            wanted.insert(name(number), value);
        }
        let blocks = fs.getattr(cx, ino).expect("an inode").blocks;
        for number in (0..3000).filter(|number| number % 10 != 3) {
            fs.removexattr(cx, ino, &name(number)).expect("removed");
            wanted.remove(&name(number));
        }
        assert!(
            fs.getattr(cx, ino).expect("an inode").blocks < blocks / 3,
            "leaves were not joined"
        );
        fs.unmount(cx).expect("unmounted");
        wanted
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
    kernel_agrees(&image, &names, &BTreeMap::from([(ino, wanted.clone())]));
    real(|cx| {
        let fs = mount(cx, &image);
        for name in wanted.keys() {
            fs.removexattr(cx, ino, name).expect("removed");
        }
        fs.unmount(cx).expect("unmounted");
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
    kernel_agrees(&image, &names, &BTreeMap::new());
}

/// ACLs set the mode and follow it; the kernel reads them.
#[test]
fn access_lists_and_the_mode_are_in_step() {
    let dir = scratch();
    let image = mkfs(dir.path(), "acl", 320 << 20, &["-m", "rmapbt=1"]);
    let names = targets(&image);
    let (file, folder) = (names["empty"], names["directory"]);
    real(|cx| {
        let fs = mount(cx, &image);
        let acl = |text: &[(u16, u16, u32)]| {
            let mut wire = 2u32.to_le_bytes().to_vec();
            for (tag, perm, id) in text {
                wire.extend_from_slice(&tag.to_le_bytes());
                wire.extend_from_slice(&perm.to_le_bytes());
                wire.extend_from_slice(&id.to_le_bytes());
            }
            wire
        };
        let no = u32::MAX;
        let list = acl(&[(1, 6, no), (2, 7, 1000), (4, 4, no), (16, 5, no), (32, 0, no)]);
        let none = XattrFlags::empty();
        fs.setxattr(cx, file, vfs::acl::ACCESS, &list, none).expect("set");
        assert_eq!(fs.getattr(cx, file).expect("an inode").mode, 0o650);
        assert_eq!(fs.setxattr(cx, file, vfs::acl::DEFAULT, &list, none), Err(Errno::EACCES));
        let set = SetAttr { mode: Some(0o604), ..SetAttr::default() };
        fs.setattr(cx, file, &set).expect("a mode");
        let after = acl(&[(1, 6, no), (2, 7, 1000), (4, 4, no), (16, 0, no), (32, 4, no)]);
        assert_eq!(fs.getxattr(cx, file, vfs::acl::ACCESS), Ok(after));
        fs.setxattr(cx, folder, vfs::acl::DEFAULT, &list, none).expect("set");
        let link = names["link"];
        assert_eq!(fs.setxattr(cx, link, vfs::acl::ACCESS, &list, none), Err(Errno::EOPNOTSUPP));
        fs.unmount(cx).expect("unmounted");
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
    let mount = LoopMount::new(&image, "xfs", "ro").expect("the kernel mounts");
    let said = judge::run_ok("getfacl", &[&"-cn", &mount.path().join("empty")]);
    assert!(said.contains("user:1000:rwx") && said.contains("mask::---"), "{said}");
    let said = judge::run_ok("getfacl", &[&"-cn", &mount.path().join("directory")]);
    assert!(said.contains("default:user:1000:rwx"), "{said}");
}
