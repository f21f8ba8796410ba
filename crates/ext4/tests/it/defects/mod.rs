//! One defect for every rule.

use super::common::image::Image;
use base::bitmap;
use ext4::check::Rule;
use ext4::format::casefold::Encoding;
use ext4::format::extent::{self, Extent};
use ext4::format::features::{Compat, Incompat, RoCompat};
use ext4::format::mmp::{self, Mmp};
use ext4::format::{self, GroupFlags, InodeFlags, InodeValues, RawSuper, htree, orphan, xattr};

/// Which image is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// Checksums, extents, orphan file.
    Ext4,
    /// Indirect blocks, no journal, no checksums.
    Ext2,
    /// Quota of users and groups, nothing in it.
    Quota,
    /// A value in an inode of its own.
    Values,
    /// Files and directories in their inodes.
    Inline,
    /// A file in an encrypted directory.
    Encrypt,
    /// Multi-mount protection.
    Mmp,
}

/// How to break one rule.
pub struct Defect {
    /// The rule.
    pub rule: Rule,
    /// The image to start from.
    pub base: Base,
    /// Why e2fsck has nothing to say; None where it complains.
    pub silent: Option<&'static str>,
    /// Makes the defect.
    pub make: fn(&mut Image),
}

fn on(rule: Rule, make: fn(&mut Image)) -> Defect {
    Defect { rule, base: Base::Ext4, silent: None, make }
}

fn on_ext2(rule: Rule, make: fn(&mut Image)) -> Defect {
    Defect { rule, base: Base::Ext2, silent: None, make }
}

fn on_inline(rule: Rule, make: fn(&mut Image)) -> Defect {
    Defect { rule, base: Base::Inline, silent: None, make }
}

fn silent(why: &'static str, defect: Defect) -> Defect {
    Defect { silent: Some(why), ..defect }
}

/// Every defect.
pub fn all() -> Vec<Defect> {
    let mut list = supers();
    list.extend(groups());
    list.extend(inodes());
    list.extend(extents());
    list.extend(directories());
    list.extend(trees());
    list.extend(links());
    list.extend(xattrs());
    list.extend(system());
    list.extend(quota());
    list
}

/// Marks a block as free and counts it, where its owner was taken away.
fn free_block(image: &mut Image, block: u64) {
    let (group, bit) = image.g.group_of_block(block).expect("in range");
    image.edit_block_bitmap(group, |map| assert!(bitmap::clear(map, bit as usize)));
    image.edit_desc(group, |desc| desc.free_blocks += 1);
    image.edit_super(|raw| raw.set_free_blocks(raw.free_blocks() + 1));
}

/// Lets the first extent of `small` begin elsewhere.
fn move_small(image: &mut Image, start: u64) {
    let small = image.ino("small");
    let old = image.blocks(small)[0];
    let extent = Extent { block: 0, len: 1, start, unwritten: false };
    image.edit_inode(small, |values| extent::set_extent(&mut values.block, 0, &extent));
    free_block(image, old);
}

fn supers() -> Vec<Defect> {
    use Rule::*;
    vec![
        on(SuperMagic, |image| image.bytes[1024 + 56] ^= 1),
        on(SuperChecksum, |image| image.bytes[1024 + 0x3fc] ^= 1),
        on(SuperGeometry, |image| {
            image.edit_super(|raw| raw.s_inodes_per_group.set(raw.s_inodes_per_group.get() - 8));
        }),
        on(SuperDeviceSize, |image| {
            let len = image.bytes.len() - (1 << 20);
            image.bytes.truncate(len);
        }),
        on(SuperFeature, |image| {
            let bits = 1 << 21;
            image.edit_super(|raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() | bits));
        }),
        on(SuperReserve, |image| {
            let bits = Compat::RESIZE_INODE.bits();
            image.edit_super(|raw| raw.s_feature_compat.set(raw.s_feature_compat.get() & !bits));
        }),
        silent(
            "a reason for e2fsck to check, no fault by itself",
            on(SuperErrorState, |image| {
                image.edit_super(|raw| raw.s_state.set(raw.s_state.get() | 2));
            }),
        ),
        silent(
            "a reason for e2fsck to check, no fault by itself",
            on_ext2(SuperNotClean, |image| image.edit_super(|raw| raw.s_state.set(0))),
        ),
        silent(
            "e2fsck reads a copy only where the primary superblock is broken",
            on(SuperBackup, |image| {
                let block = image.g.group_first_block(1);
                image.block(block)[56] ^= 1;
            }),
        ),
        on_ext2(GroupUnusedFields, |image| image.edit_desc(0, |desc| desc.itable_unused = 8)),
        on_ext2(SuperUnusedFields, |image| {
            image.edit_super(|raw| raw.s_journal_uuid[7] = 1);
        }),
        on_ext2(SuperFeatureMissing, |image| {
            let small = image.ino("small");
            image.edit_inode(small, |values| values.size = 3 << 30);
            let bits = RoCompat::LARGE_FILE.bits();
            image.edit_super(|raw| {
                raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !bits);
            });
        }),
        on(SuperFreeBlocks, |image| {
            image.edit_super(|raw| raw.set_free_blocks(raw.free_blocks() + 1));
        }),
        on(SuperFreeInodes, |image| {
            image.edit_super(|raw| raw.s_free_inodes_count.set(raw.s_free_inodes_count.get() - 1));
        }),
    ]
}

fn groups() -> Vec<Defect> {
    use Rule::*;
    vec![
        on(GroupChecksum, |image| {
            let (block, offset) = image.g.desc_place(1);
            image.block(block.0)[offset + 0x1e] ^= 1;
        }),
        on(GroupPlace, |image| {
            let end = image.g.blocks_count;
            image.edit_desc(1, |desc| desc.block_bitmap = end + 5);
        }),
        on(GroupCounts, |image| image.edit_desc(1, |desc| desc.free_blocks = 9000)),
        on(MetadataOverlap, |image| {
            let last = image.g.groups_count - 1;
            let desc = image.desc(last);
            assert!(desc.flags.contains(GroupFlags::INODE_UNINIT), "its bitmap is not read");
            image.edit_desc(last, |desc| desc.inode_bitmap = desc.block_bitmap);
            free_block(image, desc.inode_bitmap);
        }),
        on(GroupFreeBlocks, |image| image.edit_desc(1, |desc| desc.free_blocks -= 1)),
        on(GroupFreeInodes, |image| image.edit_desc(0, |desc| desc.free_inodes += 1)),
        on(GroupDirectories, |image| image.edit_desc(0, |desc| desc.used_dirs += 1)),
        on(GroupUnusedInodes, |image| {
            let per_group = image.g.inodes_per_group;
            image.edit_desc(0, |desc| desc.itable_unused = per_group - 13);
        }),
        on(BlockBitmapChecksum, |image| image.edit_desc(0, |desc| desc.block_bitmap_csum ^= 1)),
        on(InodeBitmapChecksum, |image| image.edit_desc(0, |desc| desc.inode_bitmap_csum ^= 1)),
        on(BlockBitmapPadding, |image| {
            let last = image.g.groups_count - 1;
            let bits = image.g.blocks_in_group(last) as usize;
            image.edit_block_bitmap(last, |map| assert!(bitmap::clear(map, bits)));
        }),
        on(InodeBitmapPadding, |image| {
            let bits = image.g.inodes_per_group as usize;
            image.edit_inode_bitmap(0, |map| assert!(bitmap::clear(map, bits)));
        }),
        on(BlockBitmapMissing, |image| {
            let ino = image.ino("megabyte");
            let block = image.blocks(ino)[100];
            let (group, bit) = image.g.group_of_block(block).expect("in range");
            image.edit_block_bitmap(group, |map| assert!(bitmap::clear(map, bit as usize)));
        }),
        on(BlockBitmapLeaked, |image| {
            let groups = 0..image.g.groups_count;
            let uninit = GroupFlags::BLOCK_UNINIT;
            let group = groups
                .rev()
                .find(|&group| {
                    let desc = image.desc(group);
                    desc.free_blocks > 0 && !desc.flags.contains(uninit)
                })
                .expect("a group with a bitmap");
            let bits = image.g.blocks_in_group(group) as usize;
            image.edit_block_bitmap(group, |map| {
                let bit = bitmap::find_next_zero(map, 0, bits).expect("a free block");
                bitmap::set(map, bit);
            });
        }),
        on(InodeBitmapMissing, |image| {
            let ino = image.ino("small");
            let (group, index) = image.g.inode_group(base::Ino(ino.into())).expect("in range");
            image.edit_inode_bitmap(group, |map| assert!(bitmap::clear(map, index as usize)));
        }),
        on(InodeBitmapLeaked, |image| {
            let (group, index) = free_inode(image);
            image.edit_inode_bitmap(group, |map| assert!(!bitmap::set(map, index as usize)));
        }),
    ]
}

/// A deleted inode among those that were in use: group and index.
fn free_inode(image: &mut Image) -> (u32, u32) {
    for group in 0..image.g.groups_count {
        let desc = image.desc(group);
        let end = (image.g.inodes_per_group - desc.itable_unused) as usize;
        let map = image.block(desc.inode_bitmap);
        let bit = bitmap::find_next_zero(map, 0, end);
        if let Some(bit) = bit.filter(|_| !desc.flags.contains(GroupFlags::INODE_UNINIT)) {
            return (group, bit as u32);
        }
    }
    panic!("no inode was deleted");
}

fn inodes() -> Vec<Defect> {
    use Rule::*;
    vec![
        on(BlockClaimedTwice, |image| {
            let other = image.ino("megabyte");
            let block = image.blocks(other)[100];
            move_small(image, block);
        }),
        on(BlockIsMetadata, |image| {
            let table = image.desc(0).inode_table;
            move_small(image, table + 30);
        }),
        on(InodeChecksum, |image| {
            let ino = image.ino("empty");
            image.slot(ino)[0x7c] ^= 1;
        }),
        on(InodeExtraSize, |image| {
            let ino = image.ino("empty");
            image.edit_slot(ino, |slot| slot[0x80] = 200);
        }),
        on(InodeMode, |image| {
            let ino = image.ino("empty");
            image.edit_inode(ino, |values| values.mode = 0x3000 | 0o644);
        }),
        on(InodeFlags, |image| {
            let ino = image.ino("empty");
            image.edit_inode(ino, |values| values.flags |= format::InodeFlags::INDEX);
        }),
        on(InodeSize, |image| {
            let ino = image.ino("megabyte");
            image.edit_inode(ino, |values| values.size = 1000);
        }),
        on_inline(InodeInline, |image| {
            let ino = image.ino("small");
            image.edit_slot(ino, |slot| {
                let at = slot.windows(4).position(|name| name == b"data").expect("the attribute");
                slot[at] = b'x';
            });
        }),
        on(InodeBlocks, |image| {
            let ino = image.ino("small");
            image.edit_inode(ino, |values| values.blocks += 2);
        }),
        on(InodeDtime, |image| {
            let ino = image.ino("small");
            image.edit_inode(ino, |values| values.dtime = 1_600_000_000);
        }),
        on(InodeSymlink, |image| {
            let ino = image.ino("fast");
            image.edit_inode(ino, |values| values.size = 4);
        }),
        on(InodeUnusedFields, |image| {
            let ino = image.ino("small");
            image.edit_slot(ino, |slot| slot[0x70] = 1);
        }),
        on_ext2(InodeUnusedFields, |image| {
            let ino = image.ino("small");
            image.edit_slot(ino, |slot| slot[0x76] = 1);
        }),
        on(InodeSpecial, |image| {
            let ino = image.ino("null");
            image.edit_inode(ino, |values| values.size = 5);
        }),
    ]
}

fn extents() -> Vec<Defect> {
    use Rule::*;
    vec![
        on(ExtentHeader, |image| edit_node(image, |data| data[0] ^= 1)),
        on(ExtentChecksum, |image| {
            let ino = image.ino("sparse");
            let block = image.extent_block(ino);
            let tail = image.block(block).len() - 4;
            image.block(block)[tail] ^= 1;
        }),
        on(ExtentOrder, |image| edit_node(image, |data| data.copy_within(12..16, 24))),
        on(ExtentPlace, |image| edit_node(image, |data| data[12 + 8..12 + 10].fill(0xff))),
        on(ExtentParent, |image| edit_node(image, |data| data[24] += 1)),
        on_ext2(IndirectPlace, |image| {
            let ino = image.ino("megabyte");
            image.edit_inode(ino, |values| values.block[12..16].fill(0x7f));
        }),
    ]
}

/// Changes the first node below the root of `sparse`, which holds pointers.
fn edit_node(image: &mut Image, edit: impl FnOnce(&mut [u8])) {
    let ino = image.ino("sparse");
    let block = image.extent_block(ino);
    image.edit_extent_block(ino, block, edit);
}

fn directories() -> Vec<Defect> {
    use Rule::*;
    vec![
        silent(
            "Linux looks at the inode",
            on(DirEntryUntyped, |image| {
                let (_, logical, offset) = image.find(2, "small");
                image.edit_dir(2, logical, |data| data[offset + 7] = 0);
            }),
        ),
        on_ext2(DirHole, |image| {
            let ino = image.ino("big");
            let old = image.blocks(ino)[5];
            image.edit_inode(ino, |values| {
                values.block[20..24].fill(0);
                values.blocks -= 2;
            });
            free_block(image, old);
        }),
        on(DirEntryLength, |image| edit_entry(image, "deep", "linked", |entry| entry[4] = 7)),
        on(DirEntryName, |image| edit_entry(image, "deep", "linked", |entry| entry[10] = b'/')),
        on(DirEntryInode, |image| {
            edit_entry(image, "deep", "linked", |entry| entry[0..4].copy_from_slice(&[8, 0, 0, 0]))
        }),
        on(DirEntryUnused, |image| {
            let (group, index) = free_inode(image);
            let ino = group * image.g.inodes_per_group + index + 1;
            edit_entry(image, "deep", "linked", |entry| {
                entry[0..4].copy_from_slice(&ino.to_le_bytes());
            });
        }),
        on(DirEntryType, |image| edit_entry(image, "deep", "linked", |entry| entry[7] = 2)),
        on(DirEntryType, |image| edit_entry(image, "deep", ".", |entry| entry[7] = 1)),
        on(DirEntryType, |image| edit_entry(image, "deep/er", "..", |entry| entry[7] = 7)),
        on(DirDot, |image| edit_entry(image, "deep", ".", |entry| entry[0] = 2)),
        on(DirDotdot, |image| {
            edit_entry(image, "deep/er", "..", |entry| entry[0..4].copy_from_slice(&[2, 0, 0, 0]));
        }),
        on(DirTail, |image| {
            let ino = image.ino("deep");
            image.edit_dir(ino, 0, |data| {
                let end = data.len();
                data[end - 5] = 0;
            });
        }),
        on(DirChecksum, |image| {
            let ino = image.ino("deep");
            let block = image.blocks(ino)[0];
            let end = image.block(block).len();
            image.block(block)[end - 1] ^= 1;
        }),
        on(DirDuplicate, |image| edit_entry(image, "", "attr2", |entry| entry[12] = b'1')),
    ]
}

/// Changes an entry of a linear directory.
fn edit_entry(image: &mut Image, dir: &str, name: &str, edit: impl FnOnce(&mut [u8])) {
    let dir = image.ino(dir);
    let (_, logical, offset) = image.find(dir, name);
    image.edit_dir(dir, logical, |data| edit(&mut data[offset..]));
}

fn trees() -> Vec<Defect> {
    use Rule::*;
    vec![
        on(HtreeRoot, |image| edit_tree(image, |data| data[24 + 5] = 7)),
        on(HtreeNode, |image| {
            let ino = image.ino("big");
            let root = image.blocks(ino)[0];
            assert_eq!(image.block(root)[24 + 6], 1, "the tree has two levels");
            let node = htree::Node::new(image.block(root), htree::ROOT_ARRAY).block(0);
            image.edit_htree(ino, node as usize, |data| data[10..12].fill(0));
        }),
        on(HtreeChecksum, |image| {
            let ino = image.ino("big");
            let root = image.blocks(ino)[0];
            let end = image.block(root).len();
            image.block(root)[end - 1] ^= 1;
        }),
        on(HtreeOrder, |image| {
            let ino = image.ino("big");
            let root = image.blocks(ino)[0];
            let node = htree::Node::new(image.block(root), htree::ROOT_ARRAY).block(0);
            image.edit_htree(ino, node as usize, |data| {
                let (from, to) = (htree::NODE_ARRAY + 8, htree::NODE_ARRAY + 16);
                for byte in 0..4 {
                    data.swap(from + byte, to + byte);
                }
            });
        }),
        on(HtreeBlocks, |image| {
            let ino = image.ino("big");
            let root = image.blocks(ino)[0];
            let node = htree::Node::new(image.block(root), htree::ROOT_ARRAY).block(0);
            image.edit_htree(ino, node as usize, |data| {
                data.copy_within(
                    htree::NODE_ARRAY + 4..htree::NODE_ARRAY + 8,
                    htree::NODE_ARRAY + 12,
                );
            });
        }),
        on(HtreeHash, |image| {
            edit_entry(image, "big", "a-rather-long-name-00005", |entry| {
                entry[8 + 19..8 + 24].copy_from_slice(b"99999");
            });
        }),
    ]
}

fn edit_tree(image: &mut Image, edit: impl FnOnce(&mut [u8])) {
    let ino = image.ino("big");
    image.edit_htree(ino, 0, edit);
}

fn links() -> Vec<Defect> {
    use Rule::*;
    vec![
        on(DirTwoParents, |image| {
            let (small, er) = (image.ino("small"), image.ino("deep/er"));
            edit_entry(image, "deep", "linked", |entry| {
                entry[0..4].copy_from_slice(&er.to_le_bytes());
                entry[7] = 2;
            });
            image.edit_inode(small, |values| values.links = 1);
        }),
        on(DirUnconnected, |image| {
            let deep = image.ino("deep");
            edit_entry(image, "deep", "er", |entry| entry[0..4].fill(0));
            image.edit_inode(deep, |values| values.links -= 1);
        }),
        on(InodeUnconnected, |image| edit_entry(image, "", "sparse", |entry| entry[0..4].fill(0))),
        on(InodeLinks, |image| {
            let ino = image.ino("small");
            image.edit_inode(ino, |values| values.links = 3);
        }),
        on(RootMissing, |image| {
            image.edit_inode(2, |values| values.mode = 0x8000 | 0o755);
            image.edit_desc(0, |desc| desc.used_dirs -= 1);
        }),
    ]
}

/// Changes the attribute block of `lonely` and sets its checksum.
fn edit_xattr(image: &mut Image, edit: impl FnOnce(&mut [u8])) {
    let ino = image.ino("lonely");
    let block = image.inode(ino).file_acl;
    let sums = image.g.checksums;
    let data = image.block(block);
    edit(data);
    xattr::set_checksum(&sums, block, data);
}

fn xattrs() -> Vec<Defect> {
    use Rule::*;
    vec![
        on(XattrPlace, |image| {
            let ino = image.ino("lonely");
            let end = image.g.blocks_count;
            image.edit_inode(ino, |values| values.file_acl = end + 1);
        }),
        on(XattrHeader, |image| edit_xattr(image, |data| data[8] = 2)),
        on(XattrChecksum, |image| {
            let ino = image.ino("lonely");
            let block = image.inode(ino).file_acl;
            image.block(block)[16] ^= 1;
        }),
        on(XattrEntry, |image| edit_xattr(image, |data| data[34..36].fill(0xf0))),
        on(XattrHash, |image| edit_xattr(image, |data| data[32 + 12] ^= 1)),
        silent(
            "e2fsck does not look into ACLs",
            on(XattrAcl, |image| {
                edit_xattr(image, |data| data[32 + 1] = 2);
            }),
        ),
        Defect {
            base: Base::Encrypt,
            ..on(EncryptionContext, |image| {
                let ino = image.ino("lonely");
                image.edit_inode(ino, |values| values.flags |= format::InodeFlags::ENCRYPT);
            })
        },
        Defect {
            base: Base::Encrypt,
            ..on(EncryptionPolicy, |image| {
                let ino = file_with(image, format::InodeFlags::ENCRYPT);
                image.edit_inode(ino, |values| values.flags -= format::InodeFlags::ENCRYPT);
            })
        },
        on(XattrReferences, |image| edit_xattr(image, |data| xattr::set_refcount(data, 2))),
        silent(
            "e2fsck compares what the inode says of its content, not the content",
            Defect {
                base: Base::Values,
                ..on(XattrInode, |image| {
                    let ino = value_inode(image);
                    let block = image.blocks(ino)[0];
                    image.block(block)[5] ^= 1;
                })
            },
        ),
        Defect {
            base: Base::Values,
            ..on(XattrInodeReferences, |image| {
                let ino = value_inode(image);
                image.edit_inode(ino, |values| values.set_references(2));
            })
        },
    ]
}

/// The inode that holds a value.
fn value_inode(image: &mut Image) -> u32 {
    file_with(image, InodeFlags::EA_INODE)
}

/// The first regular file with a flag.
fn file_with(image: &mut Image, flag: InodeFlags) -> u32 {
    let is = |values: InodeValues| values.mode & 0xf000 == 0x8000 && values.flags.contains(flag);
    let mut inos = image.g.first_ino..image.g.inodes_count;
    inos.find(|&ino| is(image.inode(ino))).expect("there is one")
}

fn system() -> Vec<Defect> {
    use Rule::*;
    vec![
        silent(
            "e2fsck follows the orphan list only where it may write",
            on(OrphanList, |image| image.edit_super(|raw| raw.s_last_orphan.set(5_000_000))),
        ),
        on(OrphanInodes, |image| {
            let (group, index) = free_inode(image);
            let ino = group * image.g.inodes_per_group + index + 1;
            image.edit_inode(ino, |values| {
                values.mode = 0x8000 | 0o600;
                (values.dtime, values.size, values.blocks) = (0, 0, 0);
            });
            image.edit_inode_bitmap(group, |map| assert!(!bitmap::set(map, index as usize)));
            image.edit_desc(group, |desc| desc.free_inodes -= 1);
            image.edit_super(|raw| {
                raw.s_last_orphan.set(ino);
                raw.s_free_inodes_count.set(raw.s_free_inodes_count.get() - 1);
            });
        }),
        on(OrphanFileMagic, |image| {
            edit_orphan_file(image, |data| {
                let end = data.len();
                data[end - 8] ^= 1;
            })
        }),
        on(OrphanFileChecksum, |image| {
            edit_orphan_file(image, |data| {
                let end = data.len();
                data[end - 1] ^= 1;
            })
        }),
        on(OrphanPresentFlag, |image| {
            let bits = RoCompat::ORPHAN_PRESENT.bits();
            image.edit_super(|raw| {
                raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | bits)
            });
        }),
        on(ResizeInode, |image| {
            let values = image.inode(7);
            let dind = u32::from_le_bytes(values.block[52..56].try_into().expect("four bytes"));
            image.block(dind.into())[8] ^= 1;
        }),
        on(JournalInode, |image| image.edit_inode(8, |values| values.mode = 0)),
        on(JournalSuper, |image| {
            let block = image.blocks(8)[0];
            image.block(block)[0] ^= 1;
        }),
        on(JournalNeedsRecovery, |image| {
            let bits = Incompat::RECOVER.bits();
            image.edit_super(|raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() | bits));
        }),
        on(JournalError, |image| {
            let block = image.blocks(8)[0];
            let data = image.block(block);
            let mut journal = jbd2::format::Superblock::parse(data).expect("a sound journal");
            journal.errno = 5;
            journal.emit(data);
        }),
    ]
}

/// Changes the first block of the orphan file.
fn edit_orphan_file(image: &mut Image, edit: impl FnOnce(&mut [u8])) {
    let ino = image.g.orphan_file_ino;
    let block = image.blocks(ino)[0];
    assert_eq!(orphan::slot(image.block(block), 0), 0, "no orphans");
    edit(image.block(block));
}

fn quota() -> Vec<Defect> {
    const USERS: u32 = 3;
    let on_quota = |rule, make| Defect { base: Base::Quota, ..on(rule, make) };
    vec![
        Defect {
            base: Base::Mmp,
            ..on(Rule::MmpBlock, |image| {
                let raw = ext4::format::RawSuper::read(&image.bytes[1024..]).expect("long enough");
                image.block(raw.s_mmp_block.get())[1020] ^= 1;
            })
        },
        Defect {
            base: Base::Mmp,
            ..on(Rule::MmpCheck, |image| {
                let raw = ext4::format::RawSuper::read(&image.bytes[1024..]).expect("long enough");
                let sums =
                    format::Geometry::parse(&image.bytes[1024..2048], 0).expect("sound").checksums;
                let block = image.block(raw.s_mmp_block.get());
                let seed = sums.metadata.then_some(sums.seed);
                let found = Mmp::parse(block, seed).expect("sound");
                Mmp { sequence: mmp::FSCK, ..found }.emit(block, seed);
            })
        },
        silent(
            "e2fsck reads no descriptors",
            on(Rule::Verity, |image| {
                image.edit_super(|raw| {
                    let bits = raw.s_feature_ro_compat.get() | RoCompat::VERITY.bits();
                    raw.s_feature_ro_compat.set(bits);
                });
                let small = image.ino("small");
                image.edit_inode(small, |values| values.flags |= InodeFlags::VERITY);
            }),
        ),
        on(Rule::DirNameEncoding, |image| {
            let casefold = |raw: &mut RawSuper| {
                let bits = raw.s_feature_incompat.get() | Incompat::CASEFOLD.bits();
                raw.s_feature_incompat.set(bits);
                raw.s_encoding.set(Encoding::UTF8_12_1);
                raw.s_encoding_flags.set(Encoding::STRICT);
                raw.set_checksum();
            };
            image.edit_super(casefold);
            for copy in [1, 3] {
                let block = image.g.group_first_block(copy);
                casefold(RawSuper::view_mut(image.block(block)).expect("a copy"));
            }
            let deep = image.ino("deep");
            image.edit_inode(deep, |values| values.flags |= InodeFlags::CASEFOLD);
            edit_entry(image, "deep", "linked", |entry| entry[8] = 0xff);
        }),
        Defect {
            base: Base::Quota,
            ..on(Rule::QuotaInode, |image| image.edit_super(|raw| raw.s_usr_quota_inum.set(0)))
        },
        silent(
            "e2fsck 1.47.0 passes over a quota file with another magic number",
            on_quota(Rule::QuotaFile, |image| {
                let header = image.blocks(USERS)[0];
                image.block(header)[0] ^= 1;
            }),
        ),
        on_quota(Rule::QuotaUsage, |image| {
            // The last block has the only entry, that of root, behind its own header.
            let entries = *image.blocks(USERS).last().expect("the file has blocks");
            let (entry, inodes) = (16, 24);
            image.block(entries)[entry + inodes] += 1;
        }),
    ]
}
