//! Inodes of XFS itself, of the realtime section and of quota; records of the log; and fields of
//! inodes, judged as xfs_repair judges them.

#[path = "xfs_system/log.rs"]
mod log;
#[path = "xfs_system/lsn.rs"]
mod lsn;
#[path = "xfs_system/section.rs"]
mod section;
mod support;
mod xfs_support;

use std::sync::Arc;

use base::Ino;
use device::MemoryDevice;
use repair::Plan;
use support::{apply, plan};
use testkit::content::{create, mkdir};
use vfs::{FileSystem, FileType, NewNode};
use xfs::format::ag::RawAgi;
use xfs::format::dquot::{Kind as Whose, RECORD_SIZE};
use xfs::format::inode::RawInode;
use xfs::format::{AgHeader, Kind as Block, RawSuper, verifier};
use xfs_support::{KINDS, Kind, accounts, change_slot, geometry, manifest};

/// Where the data fork begins in an inode.
const FORK: usize = 176;

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).expect("a known kind")
}

/// Repairs an image in one run; xfs_repair finds nothing, a second repair neither.
#[track_caller]
fn repaired(device: &Arc<MemoryDevice>) -> Plan {
    let planned = plan(device).expect("a plan");
    assert_eq!(planned.left, [""; 0], "{:#?}", planned.findings);
    assert!(!planned.findings.is_empty(), "the damage is seen");
    let dir = tempfile::tempdir().expect("a directory");
    apply(&(device.clone() as _), &planned, dir.path());
    let file = testkit::image::write_device(device);
    testkit::judge::xfs_repair(file.path()).expect("sound");
    assert!(plan(device).expect("a plan").is_clean(), "a second repair finds nothing");
    planned
}

/// A damage of an inode, with its name.
type Damage = (&'static str, fn(&mut RawInode));

/// A change of an inode.
type Change = Box<dyn Fn(&mut RawInode)>;

/// Every flag alone, and hints of all sizes.
fn changes(half_a_group: u32) -> Vec<(String, Change)> {
    let mut all: Vec<(String, Change)> = Vec::new();
    for bit in 0..16 {
        let change = move |raw: &mut RawInode| raw.di_flags.set(raw.di_flags.get() | 1 << bit);
        all.push((format!("flag {bit}"), Box::new(change)));
    }
    for bit in 0..3 {
        let change = move |raw: &mut RawInode| raw.di_flags2.set(raw.di_flags2.get() | 1 << bit);
        all.push((format!("second flag {bit}"), Box::new(change)));
    }
    for hint in [1, half_a_group, half_a_group + 1, u32::MAX] {
        for flag in [0x800, 0x1000] {
            let change = move |raw: &mut RawInode| {
                raw.di_flags.set(flag);
                raw.di_extsize.set(hint);
            };
            all.push((format!("hint {hint}, flag {flag:#x}"), Box::new(change)));
        }
        let change = move |raw: &mut RawInode| {
            raw.di_flags2.set(raw.di_flags2.get() | 4);
            raw.di_cowextsize.set(hint);
        };
        all.push((format!("hint of CoW {hint}"), Box::new(change)));
    }
    all
}

/// Each flag and hint on each type of inode: whether it may be there is for both the same, and the
/// repair takes away what may not.
#[test]
fn flags_and_hints_are_judged_as_xfs_repair_does() {
    let (base, inos) = kind("xfs-4k").image_with(|cx, fs| {
        let root = fs.root();
        let link = NewNode { target: Some(b"there"), ..NewNode::new(FileType::Symlink, 0o777) };
        let link = fs.create(cx, root, b"link", &link).expect("symlink").ino;
        let fifo = NewNode::new(FileType::Fifo, 0o600);
        let fifo = fs.create(cx, root, b"fifo", &fifo).expect("fifo").ino;
        [create(cx, fs, root, "file"), mkdir(cx, fs, root, "directory"), link, fifo]
    });
    let g = geometry(&base.snapshot()).expect("sound");
    let mut wrong = 0;
    for ino in inos {
        for (what, change) in changes(g.ag_blocks / 2) {
            let device = Arc::new(base.fork());
            change_slot(&device, ino, |slot| change(RawInode::view_mut(slot).expect("a core")));
            let file = testkit::image::write_device(&device);
            let sound = testkit::judge::xfs_repair(file.path()).is_ok();
            let planned = plan(&device).expect("a plan");
            assert_eq!(planned.is_clean(), sound, "inode {ino}: {what}: {:?}", planned.findings);
            if !sound {
                wrong += 1;
                let planned = repaired(&device);
                assert!(planned.findings.iter().all(|finding| finding.safe), "{what}");
                assert_eq!(manifest(&device), manifest(&base), "{what}");
            }
        }
    }
    assert!(wrong > 40, "{wrong}");
}

/// The files of a realtime section that is not there: each damaged in every way, and both gone with
/// the root directory. lost+found does not take their places.
#[test]
fn files_of_no_realtime_section_are_made_anew() {
    for name in ["xfs-4k", "xfs-parent-1k"] {
        let base = kind(name).image();
        let g = geometry(&base.snapshot()).expect("sound");
        let before = manifest(&base);
        let damages: [Damage; 5] = [
            ("size", |raw| raw.di_size.set(5)),
            ("free", |raw| raw.di_mode.set(0)),
            ("directory", |raw| raw.di_mode.set(0o40_755)),
            ("device", |raw| raw.di_mode.set(0o20_644)),
            ("links", |raw| raw.di_nlink.set(2)),
        ];
        for ino in g.realtime_inos {
            for (what, damage) in damages {
                let device = Arc::new(base.fork());
                change_slot(&device, ino, |slot| damage(RawInode::view_mut(slot).expect("a core")));
                repaired(&device);
                assert_eq!(manifest(&device), before, "{name}: {what} of inode {ino}");
            }
        }
        let (place, _) = g.ino_place(g.root_ino);
        let chunk = vec![0; (g.chunks.blocks * g.block_size) as usize];
        base.write_at(g.linear(place) * u64::from(g.block_size), &chunk);
        repaired(&base);
        let after = manifest(&base).expect("it is mounted");
        assert!(after.contains_key(&b"lost+found"[..]), "{after:?}");
    }
}

/// The superblock of an image.
fn raw(device: &MemoryDevice) -> RawSuper {
    *RawSuper::view(&device.snapshot()[..512]).expect("a sector")
}

/// Where the first block of the records of a kind lies, in bytes.
fn records_at(device: &MemoryDevice, whose: Whose) -> u64 {
    let image = device.snapshot();
    let g = geometry(&image).expect("sound");
    let magic = |at: usize| image[at..at + 2] == *b"DQ" && image[at + 4..at + 8] == [0; 4];
    let of = |at: usize| xfs::format::dquot::kind_of(image[at + 3]) == Some(whose);
    let block = g.block_size as usize;
    let mut blocks = (0..image.len()).step_by(block).skip(8);
    let log = g.sector(g.log_start).bytes() as usize;
    let log = log..log + g.log_blocks as usize * block;
    blocks.find(|&at| !log.contains(&at) && magic(at) && of(at)).expect("records") as u64
}

/// Records of quota: wrong bytes are put right, what cannot be read loses its own limits only, a
/// superblock that has forgotten them finds them, and the mount counts what is wrong.
#[test]
fn records_of_quota_are_repaired() {
    for name in ["xfs-quota-4k", "xfs-quota-1k"] {
        let base = kind(name).image();
        let before = accounts(&base);
        assert!(before.iter().all(|list| list.len() >= 31), "{before:?}");
        // One byte of a limit.
        let device = Arc::new(base.fork());
        let at = records_at(&device, Whose::Group) + 3 * RECORD_SIZE as u64 + 14;
        device.write_at(at, &[0x77]);
        assert!(repaired(&device).findings.iter().all(|finding| finding.safe));
        assert_eq!(accounts(&device), before, "{name}: a byte");
        // A record of others.
        let device = Arc::new(base.fork());
        let at = records_at(&device, Whose::User) + 5 * RECORD_SIZE as u64;
        device.write_at(at, &[0x5a; RECORD_SIZE]);
        assert!(repaired(&device).findings.iter().any(|finding| finding.loss.is_some()));
        let mut wanted = before.clone();
        wanted[0].retain(|account| account.id != 5);
        assert_eq!(accounts(&device), wanted, "{name}: a record");
        // The inode is gone: the kind has no limits, others keep theirs.
        let device = Arc::new(base.fork());
        let ino = Ino(raw(&device).quota_ino(Whose::Project).expect("an inode"));
        change_slot(&device, ino, |slot| slot[2..4].fill(0));
        assert!(repaired(&device).findings.iter().any(|finding| finding.loss.is_some()));
        let after = accounts(&device);
        assert_eq!((&after[0], &after[1]), (&before[0], &before[1]), "{name}: an inode");
        assert!(after[2].iter().all(|account| account.entry.block_hard == 0), "{after:?}");
    }
}

/// What the superblock says of quota: lost, another file's, or of usage that is not there.
#[test]
fn a_superblock_finds_its_quota_again() {
    let base = kind("xfs-quota-4k").image();
    let (before, tree) = (accounts(&base), manifest(&base));
    let edit = |change: &dyn Fn(&mut RawSuper)| {
        let device = Arc::new(base.fork());
        let mut sector = device.snapshot()[..512].to_vec();
        change(RawSuper::view_mut(&mut sector).expect("a sector"));
        verifier::update_crc(Block::Super, &mut sector);
        device.write_at(0, &sector);
        device
    };
    let device = Arc::new(base.fork());
    device.write_at(0, &[0; 512]);
    repaired(&device);
    let found = (accounts(&device), manifest(&device));
    assert_eq!(found, (before.clone(), tree.clone()), "zeroed");
    let copy = Arc::new(base.fork());
    let file = rt::testing::world(|cx| {
        let fs = xfs_support::mount(cx, copy).expect("it is mounted");
        fs.lookup(cx, fs.root(), b"large").expect("a file").ino.0
    });
    let device = edit(&|raw| raw.set_quota_ino(Whose::User, file));
    repaired(&device);
    assert_eq!(manifest(&device), tree, "the content of a file is not taken for records");
    assert_eq!(accounts(&device), before, "another file's");
    let device = edit(&|raw| raw.sb_gquotino = raw.sb_uquotino);
    repaired(&device);
    assert_eq!((accounts(&device), manifest(&device)), (before.clone(), tree.clone()), "twice");
    // Usage alone is light damage: the next mount counts.
    let device = Arc::new(base.fork());
    let at = records_at(&device, Whose::User);
    let mut record = device.snapshot()[at as usize..][..RECORD_SIZE].to_vec();
    record[47] ^= 1;
    xfs::format::dquot::update_crc(&mut record);
    device.write_at(at, &record);
    repaired(&device);
    assert_eq!(accounts(&device), before, "usage");
}

/// Inodes of the metadata directory, each damaged in every way: what it is follows from its name,
/// limits of quota stay, and xfs_repair sees the same damage.
#[test]
fn the_metadata_directory_is_repaired() {
    let changes: [Damage; 17] = [
        ("free", |raw| raw.di_mode.set(0)),
        ("mode", |raw| raw.di_mode.set(raw.di_mode.get() | 0o755)),
        ("what it holds", |raw| raw.di_onlink.set(0)),
        ("project quota", |raw| raw.di_onlink.set(4)),
        ("no such type", |raw| raw.di_onlink.set(77)),
        ("owner", |raw| raw.di_uid.set(5)),
        ("group", |raw| raw.di_gid.set(5)),
        ("links", |raw| raw.di_nlink.set(9)),
        ("immutable", |raw| raw.di_flags.set(raw.di_flags.get() & !8)),
        ("all flags", |raw| raw.di_flags.set(0)),
        ("bitmap", |raw| raw.di_flags.set(raw.di_flags.get() | 4)),
        ("append", |raw| raw.di_flags.set(raw.di_flags.get() | 0x10)),
        ("dax", |raw| raw.di_flags2.set(raw.di_flags2.get() | 1)),
        ("reflink", |raw| raw.di_flags2.set(raw.di_flags2.get() | 2)),
        ("metadata", |raw| raw.di_flags2.set(raw.di_flags2.get() ^ 32)),
        ("generation", |raw| raw.di_gen.set(raw.di_gen.get() ^ 7)),
        ("version", |raw| raw.di_version = 0),
    ];
    let base = kind("xfs-metadir-1k").image();
    let (before, tree) = (accounts(&base), manifest(&base));
    let g = geometry(&base.snapshot()).expect("sound");
    let root = g.metadata_root.expect("a metadata directory");
    // Quota's directory and its files follow the root; the sixth is a user's.
    let inos = [0, 1, 3, 5].map(|index| Ino(root.0 + index));
    for ino in inos {
        for (what, change) in changes {
            let device = Arc::new(base.fork());
            change_slot(&device, ino, |slot| change(RawInode::view_mut(slot).expect("a core")));
            let file = testkit::image::write_device(&device);
            let sound = testkit::judge::xfs_repair(file.path()).is_ok();
            let planned = plan(&device).expect("a plan");
            let found = &planned.findings;
            assert_eq!(planned.is_clean(), sound, "{what} of {ino}: {found:?}");
            if sound {
                continue;
            }
            repaired(&device);
            let kept = manifest(&device) == tree;
            assert!(kept || ino.0 == root.0 + 5, "{what} of {ino}");
            if what != "free" && what != "version" && ino.0 < root.0 + 5 {
                assert_eq!(accounts(&device), before, "{what} of {ino}");
            }
        }
    }
}

/// A block of 64 KiB holds two chunks. Where the first one is made anew, so is the other: the
/// newest xfs_repair reads the block as one.
#[test]
fn the_first_inodes_come_back_in_whole_blocks() {
    let kind = kind("xfs-64k");
    let image = kind.image().snapshot();
    let g = geometry(&image).expect("sound");
    let place = g.linear(g.ino_place(g.root_ino).0) * u64::from(g.block_size);
    let device = Arc::new(MemoryDevice::from_image(&image));
    device.write_at(place, &vec![0; g.block_size as usize]);
    let planned = repaired(&device);
    assert!(planned.findings.iter().any(|found| found.rule == "inode-chunk"), "{planned:#?}");
}

/// A list of unlinked inodes that begins at an inode that is free, in use, of no group, or at
/// none: named, and emptied.
#[test]
fn lists_of_unlinked_inodes_are_emptied() {
    let (base, file) = kind("xfs-4k").image_with(|cx, fs| create(cx, fs, fs.root(), "in use"));
    let g = geometry(&base.snapshot()).expect("sound");
    let before = manifest(&base).expect("sound");
    let per_group = g.ino_join(xfs::format::AgInode { ag: 1, agino: 0 }).0 as u32;
    let free = g.root_ino.0 as u32 + 60;
    for agino in [free, file.0 as u32, per_group + 131, u32::MAX - 1] {
        let device = Arc::new(base.fork());
        let at = g.header_sector(0, AgHeader::Agi).bytes();
        let mut sector = device.snapshot()[at as usize..][..g.sector_size as usize].to_vec();
        let agi = RawAgi::view_mut(&mut sector).expect("a sector");
        agi.agi_unlinked[agino as usize % 64].set(agino);
        verifier::update_crc(Block::Agi, &mut sector);
        device.write_at(at, &sector);
        let planned = repaired(&device);
        let rules: Vec<_> = planned.findings.iter().map(|found| found.rule).collect();
        assert!(rules.contains(&"unlinked-list") && planned.is_safe(), "{agino}: {planned:#?}");
        assert_eq!(manifest(&device).expect("mounted"), before, "{agino}");
    }
}
