//! Random operations on names against maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Errno, Ino, Rng};
use ext4::Ext4;
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, RenameFlags};

use super::support::*;

/// The directories of the test by number, with their names.
struct Model {
    dirs: Vec<(Ino, BTreeMap<Vec<u8>, Node>)>,
    rng: Rng,
    /// Names that exist or may.
    pool: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node {
    ino: Ino,
    is_dir: bool,
}

impl Model {
    fn new(seed: u64, names: usize) -> Model {
        let mut rng = Rng::new(seed, 1);
        let pool = (0..names)
            .map(|number| {
                let mut name = format!("{number:x}").into_bytes();
                let long = rng.chance(0.2);
                let len = rng.below(if long { 245 } else { 20 });
                name.extend((0..len).map(|_| 0x80 + rng.below(0x80) as u8));
                name
            })
            .collect();
        Model { dirs: Vec::new(), rng, pool }
    }

    fn pick(&mut self) -> (usize, Vec<u8>) {
        let dir = self.rng.below(self.dirs.len() as u64) as usize;
        let name = self.rng.pick(&self.pool).clone();
        (dir, name)
    }

    /// An existing name of a directory, or any.
    fn pick_existing(&mut self) -> (usize, Vec<u8>) {
        let (dir, name) = self.pick();
        let names = &self.dirs[dir].1;
        let near = names.range(name.clone()..).next().or(names.iter().next());
        (dir, near.map_or(name, |(name, _)| name.clone()))
    }

    fn step(&mut self, cx: &mut Cx, fs: &dyn FileSystem) {
        match self.rng.below(10) {
            0..=3 => self.create(cx, fs, FileType::Regular),
            4 => self.create(cx, fs, FileType::Directory),
            5 => self.link(cx, fs),
            6..=7 => self.rename(cx, fs),
            8 => self.rmdir(cx, fs),
            _ => self.unlink(cx, fs),
        }
    }

    fn create(&mut self, cx: &mut Cx, fs: &dyn FileSystem, kind: FileType) {
        let (dir, name) = self.pick();
        let result = fs.create(cx, self.dirs[dir].0, &name, &NewNode::new(kind, 0o600));
        let is_dir = kind == FileType::Directory;
        let names = &mut self.dirs[dir].1;
        match result {
            Ok(attr) => {
                assert!(names.insert(name, Node { ino: attr.ino, is_dir }).is_none());
                assert_eq!(attr.nlink, if is_dir { 2 } else { 1 });
            }
            Err(errno) => assert!(errno == Errno::EEXIST && names.contains_key(&name), "{errno}"),
        }
    }

    fn link(&mut self, cx: &mut Cx, fs: &dyn FileSystem) {
        let (from, old) = self.pick_existing();
        let (to, new) = self.pick();
        let Some(&node) = self.dirs[from].1.get(&old) else { return };
        let result = fs.link(cx, node.ino, self.dirs[to].0, &new);
        match result {
            Ok(_) => {
                assert!(!node.is_dir);
                assert!(self.dirs[to].1.insert(new, node).is_none());
            }
            Err(Errno::EPERM) => assert!(node.is_dir),
            Err(errno) => assert!(errno == Errno::EEXIST && self.dirs[to].1.contains_key(&new)),
        }
    }

    fn unlink(&mut self, cx: &mut Cx, fs: &dyn FileSystem) {
        let (dir, name) = self.pick_existing();
        let result = fs.unlink(cx, self.dirs[dir].0, &name);
        let names = &mut self.dirs[dir].1;
        match (result, names.get(&name)) {
            (Ok(()), Some(node)) if !node.is_dir => {
                names.remove(&name);
            }
            (Err(Errno::EISDIR), Some(node)) if node.is_dir => {}
            (Err(Errno::ENOENT), None) => {}
            (result, node) => panic!("unlink: {result:?} for {node:?}"),
        }
    }

    /// Directories of the test itself are never in each other, so every other one is empty.
    fn rmdir(&mut self, cx: &mut Cx, fs: &dyn FileSystem) {
        let (dir, name) = self.pick_existing();
        let result = fs.rmdir(cx, self.dirs[dir].0, &name);
        let names = &mut self.dirs[dir].1;
        match (result, names.get(&name)) {
            (Ok(()), Some(node)) if node.is_dir => {
                names.remove(&name);
            }
            (Err(Errno::ENOTDIR), Some(node)) if !node.is_dir => {}
            (Err(Errno::ENOENT), None) => {}
            (result, node) => panic!("rmdir: {result:?} for {node:?}"),
        }
    }

    fn rename(&mut self, cx: &mut Cx, fs: &dyn FileSystem) {
        let (from, old) = self.pick_existing();
        let (to, new) = if self.rng.chance(0.3) { self.pick_existing() } else { self.pick() };
        let flags = match self.rng.below(5) {
            0 => RenameFlags::NOREPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let result = fs.rename(cx, self.dirs[from].0, &old, self.dirs[to].0, &new, flags);
        let source = self.dirs[from].1.get(&old).copied();
        let target = self.dirs[to].1.get(&new).copied();
        let expected = match (source, target) {
            (None, _) => Err(Errno::ENOENT),
            (_, None) if flags == RenameFlags::EXCHANGE => Err(Errno::ENOENT),
            (_, Some(_)) if flags == RenameFlags::NOREPLACE => Err(Errno::EEXIST),
            (Some(a), Some(b)) if flags.is_empty() && a.is_dir && !b.is_dir => Err(Errno::ENOTDIR),
            (Some(a), Some(b)) if flags.is_empty() && !a.is_dir && b.is_dir => Err(Errno::EISDIR),
            _ => Ok(()),
        };
        assert_eq!(result, expected, "rename {source:?} to {target:?} with {flags:?}");
        let (Ok(()), Some(source)) = (result, source) else { return };
        if target.is_some_and(|target| target.ino == source.ino) {
            return;
        }
        if let (RenameFlags::EXCHANGE, Some(target)) = (flags, target) {
            self.dirs[from].1.insert(old, target);
        } else {
            self.dirs[from].1.remove(&old);
        }
        self.dirs[to].1.insert(new, source);
    }

    /// Compares every listing, and a lookup of every name of the pool.
    fn compare(&mut self, cx: &mut Cx, fs: &dyn FileSystem) {
        for (dir, names) in &self.dirs {
            let mut seen = list(cx, fs, *dir);
            seen.sort();
            let expected: Vec<_> =
                names.iter().map(|(name, node)| (name.clone(), node.ino)).collect();
            assert_eq!(seen, expected);
            for name in &self.pool {
                let seen = fs.lookup(cx, *dir, name).map(|attr| attr.ino);
                let expected = names.get(name).map(|node| node.ino).ok_or(Errno::ENOENT);
                assert_eq!(seen, expected, "{}", lossy(name));
            }
            for name in names.iter().filter(|(_, node)| node.is_dir).map(|(name, _)| name) {
                let child = fs.lookup(cx, *dir, name).expect("just found");
                let parent = fs.lookup(cx, child.ino, b"..").expect("a directory has a parent");
                assert_eq!(parent.ino, *dir);
            }
        }
    }
}

fn run(cx: &mut Cx, image: &Image, seed: u64, names: usize, steps: usize) {
    let mut model = Model::new(seed, names);
    let mut fs: Arc<Ext4> = image.mount(cx);
    for name in [b"one", b"two"] {
        let root = fs.root();
        let dir = mkdir(cx, &*fs, root, name);
        model.dirs.push((dir, BTreeMap::new()));
    }
    for step in 0..steps {
        model.step(cx, &*fs);
        if step % (steps / 3).max(1) == steps / 4 {
            model.compare(cx, &*fs);
            close(cx, fs, image);
            fs = image.mount(cx);
            model.compare(cx, &*fs);
        }
    }
    close(cx, fs, image);
}

/// Random creates, links, renames and removals in two directories, on every type of file system,
/// in virtual time.
#[test]
fn names_behave_like_maps() {
    for (number, shape) in SHAPES.iter().enumerate() {
        let image = Image::new(shape, 32);
        rt::testing::world(|cx| run(cx, &image, number as u64, 600, 3000));
    }
}

/// The same in real time with few names, so that every operation meets existing ones.
#[test]
fn few_names_behave_like_maps_in_real_time() {
    for seed in 0..6 {
        let image = Image::new(SHAPES[seed as usize % SHAPES.len()], 16);
        rt::testing::real(|cx| run(cx, &image, 100 + seed, 12, 1000));
    }
}

/// On file systems of our own mkfs too.
#[test]
fn names_behave_like_maps_on_our_file_systems() {
    for (kind, block_size) in [("ext2", 1024), ("ext3", 2048), ("ext4", 1024), ("ext4", 4096)] {
        rt::testing::world(|cx| {
            let image = Image::ours(cx, kind, block_size, 32);
            run(cx, &image, 77, 600, 2000);
        });
    }
}

/// The suite of all errno's, as far as it concerns names and attributes too.
#[test]
fn every_type_conforms() {
    for shape in SHAPES {
        let image = Image::new(shape, 32);
        rt::testing::world(|cx| {
            let fs = image.mount(cx);
            testkit::conformance::run_all(cx, &*fs);
            close(cx, fs, &image);
        });
    }
}
