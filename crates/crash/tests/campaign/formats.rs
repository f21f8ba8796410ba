//! The kinds of file systems of the campaign: all features that decide how they lie on the disk.

use crash::{Format, Kind};
use xfs::format::dquot::QuotaFlags;

/// Kinds of ext4: the type, bytes of a block, what `-O` takes, and blocks of the journal.
const EXT4: [(ext4::FsType, u32, &str, u64); 13] = [
    (ext4::FsType::Ext4, 1024, "", 0),
    (ext4::FsType::Ext4, 4096, "", 1024),
    (ext4::FsType::Ext3, 1024, "", 0),
    (ext4::FsType::Ext4, 1024, "^metadata_csum,^64bit", 1024),
    (ext4::FsType::Ext4, 1024, "inline_data", 0),
    (ext4::FsType::Ext4, 2048, "quota,project,orphan_file", 1024),
    (ext4::FsType::Ext4, 1024, "ea_inode,large_dir,^flex_bg", 0),
    (ext4::FsType::Ext4, 1024, "meta_bg,^resize_inode", 1024),
    (ext4::FsType::Ext4, 4096, "sparse_super2,^resize_inode,inline_data", 0),
    (ext4::FsType::Ext4, 1024, "mmp,metadata_csum_seed", 0),
    (ext4::FsType::Ext4, 1024, "^extent,^huge_file", 1024),
    (ext4::FsType::Ext4, 1024, "bigalloc", 1024),
    (ext4::FsType::Ext4, 16384, "", 1024),
];

/// Kinds of XFS: a name, and what it changes.
type XfsKind = (&'static str, fn(&mut xfs::MkfsOptions));

const XFS: [XfsKind; 9] = [
    ("default", |_| {}),
    ("rmapbt", |options| options.rmapbt = true),
    ("as mkfs.xfs 7.2", |options| {
        (options.rmapbt, options.nrext64) = (true, true);
        (options.exchange, options.parent, options.newest) = (true, true, true);
    }),
    ("as of 2014", |options| {
        (options.finobt, options.reflink, options.sparse) = (false, false, false);
        (options.bigtime, options.inobtcount) = (false, false);
    }),
    ("blocks of 1 KiB, directories of 8", |options| {
        (options.block_size, options.dir_block_size) = (1024, Some(8192));
    }),
    ("metadata directories", |options| {
        (options.rmapbt, options.nrext64, options.metadir) = (true, true, true);
        (options.exchange, options.parent, options.newest) = (true, true, true);
    }),
    ("metadata directories, quota", |options| {
        (options.rmapbt, options.nrext64, options.metadir) = (true, true, true);
        (options.exchange, options.parent, options.newest) = (true, true, true);
        options.quota = counted_all();
    }),
    ("names without case", |options| {
        (options.rmapbt, options.nrext64, options.ignore_case) = (true, true, true);
        (options.exchange, options.parent, options.newest) = (true, true, true);
    }),
    ("inodes of 1 KiB", |options| (options.inode_size, options.nrext64) = (1024, true)),
];

/// Users, groups and projects are counted and held to their limits.
fn counted_all() -> QuotaFlags {
    let kinds = vfs::quota::Kind::ALL.into_iter();
    kinds.fold(QuotaFlags::empty(), |flags, kind| {
        flags | QuotaFlags::counted(kind) | QuotaFlags::enforced(kind)
    })
}

/// A kind of file system by its number, and its name.
pub fn format(kind: Kind, number: u64) -> (String, Format) {
    let uuid = Some([7; 16]);
    if kind == Kind::Xfs {
        let (name, change) = XFS[(number % XFS.len() as u64) as usize];
        let mut options = xfs::MkfsOptions { uuid, ..Default::default() };
        change(&mut options);
        return (format!("xfs, {name}"), Format::Xfs(options));
    }
    let (fstype, block, features, journal) = EXT4[(number % EXT4.len() as u64) as usize];
    let options = ext4::MkfsOptions {
        fstype,
        uuid,
        block_size: Some(block),
        features: features.into(),
        hash_seed: Some([9; 16]),
        journal_size: (journal > 0).then_some(journal * u64::from(block)),
        ..Default::default()
    };
    (format!("{fstype:?}, blocks of {block}, {features:?}"), Format::Ext4(options))
}

/// Number of kinds of a file system.
pub fn formats(kind: Kind) -> u64 {
    match kind {
        Kind::Xfs => XFS.len() as u64,
        _ => EXT4.len() as u64,
    }
}

/// All kinds of file systems.
pub fn all_formats() -> Vec<(Kind, u64)> {
    let of = |kind| (0..formats(kind)).map(move |number| (kind, number));
    [Kind::Ext4, Kind::Xfs].into_iter().flat_map(of).collect()
}

/// The kinds of XFS whose names are kept as attributes, too.
pub fn with_parents() -> Vec<(Kind, u64)> {
    let parents = |&(kind, number): &(Kind, u64)| match format(kind, number).1 {
        Format::Xfs(options) => options.parent,
        Format::Ext4(_) => false,
    };
    all_formats().into_iter().filter(parents).collect()
}
