//! The format against images of mke2fs and debugfs: everything parses, and emits to the same bytes.

use std::path::Path;

use crate::common::{Scratch, debugfs, dumpe2fs, field, run};
use base::Ino;
use ext4::format::{At, Geometry, GroupDesc, GroupFlags, InodeFlags, InodeValues, RawSuper};
use ext4::format::{extent, features, orphan, xattr};

/// The variants that every golden test goes over: mke2fs arguments and size.
const VARIANTS: &[(&[&str], &str)] = &[
    (&["-t", "ext2"], "8M"),
    (&["-t", "ext2", "-b", "4096", "-r", "0"], "8M"),
    (&["-t", "ext3"], "64M"),
    (&["-t", "ext3", "-O", "uninit_bg", "-b", "2048"], "64M"),
    (&["-t", "ext4"], "64M"),
    (&["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"], "64M"),
    (&["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-b", "1024"], "64M"),
    (&["-t", "ext4", "-O", "^64bit", "-b", "4096"], "256M"),
    (&["-t", "ext4", "-O", "^flex_bg,^resize_inode", "-I", "128"], "64M"),
    (&["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"], "64M"),
    (&["-t", "ext4", "-O", "sparse_super2,bigalloc"], "64M"),
    (&["-t", "ext4", "-b", "65536"], "512M"),
];

/// An image in memory.
struct Image {
    bytes: Vec<u8>,
    geometry: Geometry,
}

impl Image {
    fn open(path: &Path) -> Image {
        let bytes = testkit::image::read(path);
        let geometry = Geometry::parse(&bytes[1024..], 0).expect("a superblock of mke2fs");
        Image { bytes, geometry }
    }

    fn block(&self, block: u64) -> &[u8] {
        let size = self.geometry.block_size as usize;
        &self.bytes[block as usize * size..][..size]
    }

    fn desc_bytes(&self, group: u32) -> &[u8] {
        let (block, offset) = self.geometry.desc_place(group);
        &self.block(block.0)[offset..][..self.geometry.desc_size as usize]
    }

    fn desc(&self, group: u32) -> GroupDesc {
        GroupDesc::parse(self.desc_bytes(group), group, &self.geometry).expect("a descriptor")
    }

    fn slot(&self, ino: u32) -> &[u8] {
        let (group, index) = self.geometry.inode_group(Ino(ino.into())).expect("in range");
        let (block, offset) = self.geometry.inode_offset(index);
        let table = self.desc(group).inode_table;
        &self.block(table + block)[offset..][..self.geometry.inode_size as usize]
    }

    fn inode(&self, ino: u32) -> InodeValues {
        InodeValues::parse(self.slot(ino), Ino(ino.into()), &self.geometry).expect("an inode")
    }

    fn find(&self, path: &Path, name: &str) -> u32 {
        let image = path.to_str().expect("utf-8");
        let (_, text) = run("debugfs", &["-R", &format!("stat {name}"), image]);
        let number = text
            .split("Inode: ")
            .nth(1)
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .split_whitespace()
            .next();
        number.expect("a number").parse().expect("a number")
    }
}

/// Goal: our names of feature bits are those of dumpe2fs. Method: set each bit alone in the
/// superblock of a plain image and let dumpe2fs print it.
#[test]
fn feature_names_are_those_of_dumpe2fs() {
    let scratch = Scratch::new();
    let path = scratch.mke2fs("plain", &["-t", "ext2", "-O", "none"], "1M");
    let plain = testkit::image::read(&path);
    let sets = [
        (features::Set::Compat, 0x5c),
        (features::Set::Incompat, 0x60),
        (features::Set::RoCompat, 0x64),
    ];
    for (set, place) in sets {
        for bit in 0..32u32 {
            // dumpe2fs cannot open an image whose descriptors it reads with another size.
            if set == features::Set::Incompat && bit == 7 {
                continue;
            }
            let mut bytes = plain.clone();
            bytes[1024 + place..][..4].copy_from_slice(&(1u32 << bit).to_le_bytes());
            std::fs::write(&path, &bytes).expect("the image is written");
            let image = path.to_str().expect("utf-8");
            let (_, text) = run("dumpe2fs", &["-h", "-f", image]);
            let name = text.lines().find_map(|line| line.strip_prefix("Filesystem features:"));
            let raw = RawSuper::read(&bytes[1024..]).expect("long enough");
            assert_eq!(Some(raw.features().to_string().as_str()), name.map(str::trim), "{text}");
        }
    }
}

/// Goal: superblocks parse to what dumpe2fs prints.
#[test]
fn superblocks_mean_what_dumpe2fs_says() {
    let scratch = Scratch::new();
    for (args, size) in VARIANTS {
        let path = scratch.mke2fs("image", args, size);
        let image = Image::open(&path);
        let lines = dumpe2fs(&path);
        let g = &image.geometry;
        let says = |name: &str, ours: u64| {
            if let Some(text) = field(&lines, name) {
                let number = text.split_whitespace().next().unwrap_or("");
                assert_eq!(number, ours.to_string(), "{args:?} {name}");
            }
        };
        if field(&lines, "Filesystem revision #").is_some_and(|rev| rev.starts_with('1')) {
            let names = field(&lines, "Filesystem features").expect("always there");
            assert_eq!(g.features.to_string(), names);
        }
        says("Inode count", g.inodes_count.into());
        says("Block count", g.blocks_count);
        says("First block", g.first_data_block.into());
        says("Block size", g.block_size.into());
        says("Group descriptor size", g.desc_size.into());
        says("Reserved GDT blocks", g.reserved_gdt_blocks.into());
        says("Blocks per group", g.blocks_per_group.into());
        says("Inodes per group", g.inodes_per_group.into());
        says("Inode blocks per group", g.itable_blocks.into());
        says("Inode size", g.inode_size.into());
        says("First inode", g.first_ino.into());
        says("Orphan file inode", g.orphan_file_ino.into());
        let (_, text) = run("dumpe2fs", &[path.to_str().expect("utf-8")]);
        for group in 0..g.groups_count {
            let head = format!("Group {group}: (Blocks ");
            let rest = text.split(head.as_str()).nth(1).expect("each group");
            let section = rest.split("\n\n").next().expect("not empty");
            let section = section.split("\nGroup ").next().expect("not empty");
            let backup = section.contains("superblock at");
            assert_eq!(backup, g.has_super(group), "{args:?} group {group}: {section}");
        }
    }
}

/// Goal: descriptors and bitmaps of mke2fs pass every check and emit to the same bytes.
#[test]
fn descriptors_and_bitmaps_of_mke2fs_round_trip() {
    let scratch = Scratch::new();
    for (args, size) in VARIANTS {
        let path = scratch.mke2fs("image", args, size);
        println!("mke2fs {args:?} {size}");
        let image = Image::open(&path);
        let g = &image.geometry;
        for group in 0..g.groups_count {
            let desc = image.desc(group);
            let mut bytes = image.desc_bytes(group).to_vec();
            desc.emit(&mut bytes, group, g);
            assert_eq!(bytes, image.desc_bytes(group), "{args:?} group {group}");
            let map = image.block(desc.block_bitmap);
            if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                let mut init = vec![0; map.len()];
                g.init_block_bitmap(group, &desc, &mut init);
                let free = base::bitmap::count_zeros(&init, g.clusters_in_group(group) as usize);
                assert_eq!(free, desc.free_blocks as usize, "{args:?} group {group}");
            } else {
                desc.check_block_bitmap(map, group, g).expect("its checksum");
                let free = base::bitmap::count_zeros(map, g.clusters_in_group(group) as usize);
                assert_eq!(free, desc.free_blocks as usize, "{args:?} group {group}");
            }
            if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                let map = image.block(desc.inode_bitmap);
                desc.check_inode_bitmap(map, group, g).expect("its checksum");
            }
        }
    }
}

/// Goal: inodes of debugfs pass every check and emit to the same bytes: files, directories, links,
/// devices, attributes, extent trees, the journal and the orphan file.
#[test]
fn inodes_of_debugfs_round_trip() {
    let scratch = Scratch::new();
    let host = scratch.path("sparse");
    let file = std::fs::File::create(&host).expect("a file");
    for index in 0..200u64 {
        use std::os::unix::fs::FileExt;
        file.write_all_at(&[1; 4096], index * 65536).expect("a write");
    }
    drop(file);
    let host = host.to_str().expect("utf-8").to_string();
    let long = "l".repeat(100);
    let value = "v".repeat(300);
    for (args, size) in VARIANTS {
        let path = scratch.mke2fs("image", args, size);
        if args.contains(&"-r") {
            continue;
        }
        let commands = format!(
            "write {host} sparse\nmkdir dir\nsymlink fast short\nsymlink slow {long}\n\
             mknod null c 1 3\nmknod big b 259 7000\nea_set sparse user.long {value}\n\
             ea_set dir user.short 1\nset_inode_field sparse uid 100000\n\
             set_inode_field dir mtime @0x123456789\n"
        );
        println!("mke2fs {args:?} {size}");
        let text = debugfs(&path, &commands);
        assert!(!text.contains("Could not") && !text.contains("not found"), "{text}");
        let image = Image::open(&path);
        let g = &image.geometry;
        // The inode behind the last one was never used: zeroes, which parse.
        assert_eq!(image.inode(image.find(&path, "big") + 1).mode, 0);
        for ino in 1..=image.find(&path, "big") {
            let slot = image.slot(ino);
            let values = image.inode(ino);
            let mut again = slot.to_vec();
            values.emit(&mut again, Ino(ino.into()), g);
            assert_eq!(again, slot, "{args:?} inode {ino} {values:?}");
        }
        let sparse = image.inode(image.find(&path, "sparse"));
        assert_eq!((sparse.uid, sparse.size), (100_000, 199 * 65536 + 4096));
        assert_eq!(image.inode(image.find(&path, "null")).device(), 0x103);
        let big = image.inode(image.find(&path, "big"));
        let mut again = big;
        again.set_device(big.device());
        assert_eq!(again.block, big.block);
        let fast = image.inode(image.find(&path, "fast"));
        assert!(fast.is_fast_symlink() && &fast.block[..5] == b"short");
        assert!(!image.inode(image.find(&path, "slow")).is_fast_symlink());
        if g.inode_size > 128 {
            let mtime = image.inode(image.find(&path, "dir")).mtime;
            assert_eq!(mtime.sec, 0x1_2345_6789, "{args:?}");
        }
        check_extents(&image, image.find(&path, "sparse"));
        check_xattrs(&image, sparse.file_acl);
        check_orphan_file(&image);
    }
}

fn check_extents(image: &Image, ino: u32) {
    let values = image.inode(ino);
    let g = &image.geometry;
    if !values.flags.contains(InodeFlags::EXTENTS) || g.block_size > 4096 {
        return;
    }
    let seed = g.checksums.inode_seed(Ino(ino.into()), values.generation);
    let at = At::Inode(Ino(ino.into()));
    let root = extent::Node::parse(&values.block, None, at).expect("a root");
    assert!(root.depth() > 0, "200 extents need a block");
    let mut count = 0;
    let mut todo: Vec<(u64, u16)> =
        root.indexes().map(|pointer| (pointer.leaf, root.depth() - 1)).collect();
    while let Some((block, depth)) = todo.pop() {
        let data = image.block(block);
        let node = extent::Node::parse_block(data, depth, seed, g, at).expect("a node");
        assert_eq!(node.max(), usize::from(extent::block_max(g.block_size)));
        if depth > 0 {
            todo.extend(node.indexes().map(|pointer| (pointer.leaf, depth - 1)));
            continue;
        }
        let mut again = data.to_vec();
        for (index, extent) in node.extents().enumerate() {
            extent::set_extent(&mut again, index, &extent);
            count += 1;
        }
        seed_if(g.checksums.metadata, || seed.set_extent_block(&mut again));
        assert_eq!(again, data);
    }
    assert!(count >= 200, "{count} extents");
}

fn seed_if(enabled: bool, set: impl FnOnce()) {
    if enabled {
        set();
    }
}

fn check_xattrs(image: &Image, block: u64) {
    let g = &image.geometry;
    assert_ne!(block, 0, "an attribute of 300 bytes needs a block");
    let data = image.block(block);
    if g.checksums.metadata {
        let seed = g.checksums;
        assert_eq!(
            seed.xattr_block(block, data),
            u32::from_le_bytes(data[16..20].try_into().unwrap())
        );
    }
    let list: Vec<_> =
        xattr::entries(data, xattr::XattrArea::Block, false).expect("a block").collect();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].as_ref().expect("an entry").value.len(), 300);
}

fn check_orphan_file(image: &Image) {
    let g = &image.geometry;
    if g.orphan_file_ino == 0 {
        return;
    }
    let ino = Ino(g.orphan_file_ino.into());
    let values = image.inode(g.orphan_file_ino);
    let seed = g.checksums.inode_seed(ino, values.generation);
    let root = extent::Node::parse(&values.block, Some(0), At::Inode(ino)).expect("a root");
    for run in root.extents() {
        for block in run.start..run.start + u64::from(run.len) {
            orphan::check(image.block(block), block, seed, g, At::Device(block)).expect("a block");
        }
    }
}
