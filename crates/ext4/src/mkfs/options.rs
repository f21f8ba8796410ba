//! What mkfs makes: the options of mke2fs as values.

use base::Timespec;

use crate::format::Features;
use crate::format::casefold::Encoding;

/// Bytes of the largest orphan file, as mke2fs has it.
const ORPHAN_FILE_MAX: u64 = 8 << 20;

/// Which of the three file systems: a set of default features.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FsType {
    /// No journal, no extents.
    Ext2,
    /// ext2 with a journal.
    Ext3,
    /// Journal, extents, checksums, flexible groups.
    #[default]
    Ext4,
}

impl FsType {
    /// The features that `mke2fs -t` sets by default.
    pub fn default_features(self) -> Features {
        let mut features = Features::default();
        let base = "sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr";
        let more = match self {
            FsType::Ext2 => "",
            FsType::Ext3 => "has_journal",
            FsType::Ext4 => {
                "has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize"
            }
        };
        for list in [base, more] {
            features.edit(list).expect("every name is in the table");
        }
        features
    }
}

impl std::str::FromStr for FsType {
    type Err = String;

    fn from_str(name: &str) -> Result<FsType, String> {
        match name {
            "ext2" => Ok(FsType::Ext2),
            "ext3" => Ok(FsType::Ext3),
            "ext4" => Ok(FsType::Ext4),
            other => Err(format!("unknown file system type {other}: not ext2, ext3 or ext4")),
        }
    }
}

/// The releases of e2fsprogs whose mke2fs decides differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Release {
    /// 1.47.0, of Debian 12: an orphan file of up to 512 blocks, and `BLOCK_UNINIT` in groups that
    /// hold nothing but copies of the superblock.
    V1_47_0,
    /// 1.47.4.
    #[default]
    V1_47_4,
}

/// What a type of usage of mke2fs.conf says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of space per inode.
    pub inode_ratio: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
}

impl Usage {
    /// A list of types with commas, of which later ones count more.
    ///
    /// # Errors
    /// A sentence on a type that is not known.
    pub fn of_types(list: &str) -> Result<Usage, String> {
        let mut usage = Usage { block_size: 4096, inode_ratio: 16384, inode_size: 256 };
        for name in list.split(',') {
            let (block_size, inode_ratio) = match name {
                "default" => (None, None),
                "small" => (Some(1024), Some(4096)),
                "floppy" => (Some(1024), Some(8192)),
                "big" => (None, Some(32768)),
                "huge" => (None, Some(65536)),
                "news" => (None, Some(4096)),
                "largefile" => (Some(4096), Some(1 << 20)),
                "largefile4" => (Some(4096), Some(4 << 20)),
                "hurd" => {
                    usage.inode_size = 128;
                    (Some(4096), None)
                }
                other => {
                    return Err(format!(
                        "unknown usage type {other}: not default, small, floppy, big, huge, news, \
                         largefile, largefile4 or hurd"
                    ));
                }
            };
            usage.block_size = block_size.unwrap_or(usage.block_size);
            usage.inode_ratio = inode_ratio.unwrap_or(usage.inode_ratio);
        }
        Ok(usage)
    }
}

/// A place or a length inside the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// So many blocks.
    Blocks(u64),
    /// So many bytes, rounded down to blocks.
    Bytes(u64),
}

impl Span {
    /// Blocks of this size.
    pub fn blocks(self, block_size: u32) -> u64 {
        match self {
            Span::Blocks(blocks) => blocks,
            Span::Bytes(bytes) => bytes / u64::from(block_size),
        }
    }

    /// Blocks of an orphan file. None without one, and for more than mke2fs makes.
    pub fn orphan_blocks(self, block_size: u32) -> Option<u32> {
        let blocks = self.blocks(block_size);
        let fits = (1..=ORPHAN_FILE_MAX / u64::from(block_size)).contains(&blocks);
        fits.then_some(blocks as u32)
    }
}

/// What the kernel does on an error: `s_errors`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u16)]
pub enum OnError {
    /// It goes on.
    #[default]
    Continue = 1,
    /// It mounts the file system read-only.
    RemountRo = 2,
    /// It panics.
    Panic = 3,
}

/// Systems that make ext2: `s_creator_os`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Creator {
    /// Linux.
    #[default]
    Linux = 0,
    /// The Hurd, whose inodes have 128 bytes and no features that use its fields.
    Hurd = 1,
    /// Masix.
    Masix = 2,
    /// FreeBSD.
    FreeBsd = 3,
    /// Lites.
    Lites = 4,
}

/// What to make. `Default` is what `mke2fs -t ext4` makes of the whole device.
#[derive(Clone, PartialEq, Debug)]
pub struct MkfsOptions {
    /// Which default features.
    pub fstype: FsType,
    /// Bytes of the file system; None for the whole device.
    pub size: Option<u64>,
    /// Bytes per block: a power of two from 1024 to 65,536; None for 1024 below 512 MiB, else 4096,
    /// and no less than a sector of the device.
    pub block_size: Option<u32>,
    /// The least block size where none is named.
    pub block_size_min: u32,
    /// What it is used for; None for what its size says.
    pub usage: Option<Usage>,
    /// Bytes per cluster with bigalloc, a power of two from 2 to 32,768 blocks; None for 16 blocks.
    pub cluster_size: Option<u32>,
    /// Bytes per inode, a power of two from 128 to the block size; None for 256.
    pub inode_size: Option<u32>,
    /// Bytes of space per inode, 1024..=67,108,864; None for the default of the size.
    pub inode_ratio: Option<u32>,
    /// Number of inodes (rounded up to whole table blocks); overrules the ratio.
    pub inodes_count: Option<u32>,
    /// Changes to the default features as `mke2fs -O` takes them: `^has_journal,orphan_file`.
    pub features: String,
    /// How names are encoded with `casefold`; sets that feature. None for UTF-8 that is not strict.
    pub encoding: Option<Encoding>,
    /// Volume name, at most 16 bytes.
    pub label: String,
    /// Where it was mounted last: the first 64 bytes count.
    pub last_mounted: String,
    /// UUID; None for a random one.
    pub uuid: Option<[u8; 16]>,
    /// The time of all time stamps; None for now.
    pub now: Option<Timespec>,
    /// Seed of directory hashes; None for a random one.
    pub hash_seed: Option<[u8; 16]>,
    /// Bytes of the journal; None for the default of the size.
    pub journal_size: Option<u64>,
    /// Where the journal begins, at the latest; None for the place of mke2fs.
    pub journal_place: Option<Span>,
    /// Bytes for fast commits behind the journal; None for 1/64 of the journal.
    pub fast_commit_size: Option<u64>,
    /// Size of the orphan file; None for the default of the size.
    pub orphan_file_size: Option<Span>,
    /// The device of the journal, with blocks of the same size. The file system is entered into it
    /// when it is made: [`JournalDevice::enter`](crate::JournalDevice::enter).
    pub external_journal: Option<ExternalJournal>,
    /// Share of the blocks that only root may use, in percent, 0..=50.
    pub reserved_percent: f64,
    /// Blocks of a group, a multiple of 8; clusters with bigalloc; None for all that a bitmap has.
    pub blocks_per_group: Option<u32>,
    /// Groups whose tables lie together with `flex_bg`, a power of two; None for 16.
    pub groups_per_flex: Option<u32>,
    /// All tables and the journal at the start, with `flex_bg`.
    pub packed_meta_blocks: bool,
    /// How far the descriptors can grow in place; None for 1,024 times the size.
    pub resize_limit: Option<Span>,
    /// Copies of the superblock with `sparse_super2`, 0..=2.
    pub backup_supers: u8,
    /// Blocks of one disk of an array before the next one's; 0 for no array.
    pub stride: u16,
    /// Blocks of a stripe over all disks with data; 0 for no array.
    pub stripe_width: u32,
    /// Kinds of quota files with `quota`: users, groups, projects; None for users and groups, and
    /// projects where the feature `project` is set.
    pub quota_kinds: Option<[bool; 3]>,
    /// Seconds between two updates of multi-mount protection, up to 300; 0 for 5.
    pub mmp_interval: u16,
    /// What the kernel does on an error.
    pub errors: OnError,
    /// The system that is said to have made it.
    pub creator: Creator,
    /// May be mounted by experimental code.
    pub test_fs: bool,
    /// The format of before 1995: no features, inodes of 128 bytes.
    pub revision_0: bool,
    /// Blocks that are broken, in any order; those beyond the end do not count.
    pub bad_blocks: Vec<u64>,
    /// Only superblocks and descriptors, over a file system whose own are lost.
    pub super_only: bool,
    /// Whose decisions.
    pub release: Release,
    /// ext4 has the features of the mke2fs.conf of 1.47.4, too: `metadata_csum_seed`, and
    /// `orphan_file` where there is a journal.
    pub newest_features: bool,
    /// The attribute `security.selinux` of the root directory.
    pub root_selinux: Option<String>,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Permissions of the root directory.
    pub root_mode: u16,
    /// Make `/lost+found`.
    pub lost_and_found: bool,
    /// The device is known to read as zeroes (a new sparse file): nothing needs to be zeroed.
    pub assume_zeroes: bool,
}

impl MkfsOptions {
    /// What `mke2fs -t ext4` makes of the whole device.
    const USUAL: MkfsOptions = MkfsOptions {
        fstype: FsType::Ext4,
        size: None,
        block_size: None,
        block_size_min: 1024,
        usage: None,
        cluster_size: None,
        inode_size: None,
        inode_ratio: None,
        inodes_count: None,
        features: String::new(),
        encoding: None,
        label: String::new(),
        last_mounted: String::new(),
        uuid: None,
        now: None,
        hash_seed: None,
        journal_size: None,
        journal_place: None,
        fast_commit_size: None,
        orphan_file_size: None,
        external_journal: None,
        reserved_percent: 5.0,
        blocks_per_group: None,
        groups_per_flex: None,
        packed_meta_blocks: false,
        resize_limit: None,
        backup_supers: 2,
        stride: 0,
        stripe_width: 0,
        quota_kinds: None,
        mmp_interval: 0,
        errors: OnError::Continue,
        creator: Creator::Linux,
        test_fs: false,
        revision_0: false,
        bad_blocks: Vec::new(),
        super_only: false,
        release: Release::V1_47_4,
        newest_features: false,
        root_selinux: None,
        root_owner: (0, 0),
        root_mode: 0o755,
        lost_and_found: true,
        assume_zeroes: false,
    };
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions::USUAL
    }
}

/// The external journal of a file system that is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExternalJournal {
    /// UUID of the journal.
    pub uuid: [u8; 16],
    /// Bytes of a block.
    pub block_size: u32,
    /// The number of the device, as Linux encodes it in 32 bits; 0 where it has none.
    pub number: u32,
}
