//! Attribute values in inodes of their own (`ea_inode`): what comes back, what is shared, what it
//! costs its owners, the kernel's images and ours for the kernel, power cuts; e2fsck judges every
//! image.

use std::sync::Arc;

use crate::support::*;
use base::{Errno, Ino, Rng};
use device::{MemoryDevice, RecordDevice};
use ext4::Ext4;
use ext4::format::quota::Kind;
use ext4::quota::Limits;
use rt::{Cred, Cx, World, WorldConfig};
use testkit::{crash, judge, manifest};
use vfs::acl::{self, Acl, Entry, NO_ID, Tag};
use vfs::{FileSystem, FileType, NewNode, OpenFlags, RenameFlags, SetAttr, XattrFlags};

const ANY: XattrFlags = XattrFlags::empty();

/// Shapes with and without a journal, checksums, extents, and of all block sizes.
const CELLS: &[Cell] = &[
    Cell::new("ext4", 4096).features("ea_inode"),
    Cell::new("ext4", 1024).features("ea_inode,quota,project").journal(1024),
    Cell::new("ext4", 2048).features("ea_inode,^has_journal"),
    Cell::new("ext4", 1024).features("ea_inode,^metadata_csum,^64bit,^orphan_file").mke2fs(),
    Cell::new("ext3", 1024).features("ea_inode"),
];

/// A value that tells its number.
fn value(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(number, 17).fill(&mut bytes);
    bytes
}

fn set(cx: &mut Cx, fs: &Ext4, ino: Ino, name: &[u8], value: &[u8]) {
    let done = fs.setxattr(cx, ino, name, value, ANY);
    done.unwrap_or_else(|errno| panic!("{} bytes: {errno}", value.len()));
}

fn judged(cx: &mut Cx, fs: &Ext4, device: &Arc<MemoryDevice>, what: &str) {
    fs.unmount(cx).unwrap_or_else(|errno| panic!("{what}: unmount: {errno}"));
    checked(cx, device, what);
    e2fsck(device, what);
}

fn free(cx: &mut Cx, fs: &Ext4) -> (u64, u64) {
    // Freed blocks come back with a commit.
    fs.sync(cx).expect("sync");
    let counts = fs.statfs(cx).expect("counts");
    (counts.inodes_free, counts.blocks_free)
}

/// Values at the limits of a block and of the format, changed and removed; equal ones take one
/// inode, and everything comes back at the end.
#[test]
fn values_of_all_sizes_come_back_and_are_shared() {
    for cell in CELLS {
        rt::testing::both(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (mut fs, _) = mount(cx, device.clone());
            let root = fs.root();
            let before = free(cx, &fs);
            let block = cell.block as usize;
            let lens = [block - 56, block - 55, block, 3 * block + 1, 65535, 65536];
            for (number, &len) in lens.iter().enumerate() {
                let (one, two) = (format!("one{number}"), format!("two{number}"));
                let (one, two) = (create(cx, &*fs, root, &one), create(cx, &*fs, root, &two));
                let start = free(cx, &fs).0;
                set(cx, &fs, one, b"user.a", &value(1, len));
                set(cx, &fs, two, b"user.a", &value(1, len));
                set(cx, &fs, two, b"trusted.b", &value(1, len));
                let inodes = start - free(cx, &fs).0;
                assert!(inodes <= 1, "equal values of {len} bytes share");
                assert!(inodes == 1 || len <= block, "{len} bytes have an inode");
            }
            let too_long = fs.setxattr(cx, root, b"user.a", &value(1, 65537), ANY);
            assert_eq!(too_long, Err(Errno::E2BIG));
            fs.unmount(cx).expect("unmount");
            checked(cx, &device, "filled");
            e2fsck(&device, "filled");
            fs = mount(cx, device.clone()).0;
            for (number, &len) in lens.iter().enumerate() {
                for name in [format!("one{number}"), format!("two{number}")] {
                    let ino = fs.lookup(cx, root, name.as_bytes()).expect("there").ino;
                    assert_eq!(fs.getxattr(cx, ino, b"user.a").expect("a value"), value(1, len));
                    // Two at once, one change, one that goes.
                    set(cx, &fs, ino, b"user.a", &value(2, len / 2));
                    set(cx, &fs, ino, b"user.c", &value(3, len));
                    set(cx, &fs, ino, b"user.a", &value(4, len));
                    fs.removexattr(cx, ino, b"user.c").expect("it was set");
                    assert_eq!(fs.getxattr(cx, ino, b"user.a").expect("a value"), value(4, len));
                    let again = fs.setxattr(cx, ino, b"user.a", b"", XattrFlags::CREATE);
                    assert_eq!(again, Err(Errno::EEXIST));
                }
            }
            for number in 0..lens.len() {
                for name in [format!("one{number}"), format!("two{number}")] {
                    fs.unlink(cx, root, name.as_bytes()).expect("the file goes");
                }
            }
            assert_eq!(free(cx, &fs), before, "{cell:?}");
            judged(cx, &fs, &device, &format!("{cell:?}"));
        });
    }
}

/// An inode of a value has no name and no number that a caller may use.
#[test]
fn the_inode_of_a_value_cannot_be_opened() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 16 << 20);
        let (mut fs, _) = mount(cx, device.clone());
        let root = fs.root();
        let file = create(cx, &*fs, root, "file");
        set(cx, &fs, file, b"user.a", &value(1, 20_000));
        for round in 0..2 {
            let hidden = (file.0 + 1..file.0 + 8).map(|ino| fs.getattr(cx, Ino(ino)));
            let hidden: Vec<_> = hidden.map(|attr| attr.map(|attr| attr.ino)).collect();
            assert!(hidden.iter().all(|attr| *attr == Err(Errno::ESTALE)), "{round}: {hidden:?}");
            fs.unmount(cx).expect("unmount");
            fs = mount(cx, device.clone()).0;
        }
        judged(cx, &fs, &device, "hidden");
    });
}

/// A value of Lustre's older form is refused by its name, not as damage, by reading, by whatever
/// would let go of it, and by the check; what lies beside it is written.
#[test]
fn the_older_form_of_lustre_is_named() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 16 << 20);
        let (fs, _) = mount(cx, device.clone());
        let root = fs.root();
        let file = create(cx, &*fs, root, "file");
        set(cx, &fs, file, b"user.a", &value(1, 20_000));
        let generation = fs.getattr(cx, file).expect("the file").generation;
        judged(cx, &fs, &device, "before");
        let image = testkit::image::write_device(&device);
        let (owner, ino) = (file.0, file.0 + 1);
        let fields = [("mtime", format!("@{owner}")), ("generation", generation.to_string())];
        let mut edit = format!("sif <{ino}> atime @7\n");
        for (field, value) in fields {
            edit += &format!("sif <{ino}> {field} {value}\n");
        }
        judge::debugfs(image.path(), true, &edit);
        let device = Arc::new(testkit::image::load(image.path()));
        let (fs, _) = mount(cx, device.clone());
        assert_eq!(fs.getxattr(cx, file, b"user.a"), Err(Errno::EOPNOTSUPP));
        let told = fs.read_error().unwrap_or_default();
        assert!(told.contains("Lustre's older form"), "{told}");
        let (root, before) = (fs.root(), free(cx, &fs));
        let refused = Err(Errno::EOPNOTSUPP);
        assert_eq!(fs.setxattr(cx, file, b"user.a", b"other", ANY), refused);
        assert_eq!(fs.setxattr(cx, file, b"user.a", &value(2, 20_000), ANY), refused);
        assert_eq!(fs.removexattr(cx, file, b"user.a"), refused);
        assert_eq!(fs.unlink(cx, root, b"file"), refused, "its last name");
        create(cx, &*fs, root, "over");
        let over = fs.rename(cx, root, b"over", root, b"file", RenameFlags::empty());
        assert_eq!(over, refused, "its last name");
        fs.link(cx, file, root, b"again").expect("a second name");
        fs.unlink(cx, root, b"file").expect("not its last name");
        set(cx, &fs, file, b"user.b", b"beside it");
        fs.removexattr(cx, file, b"user.b").expect("beside it");
        fs.unlink(cx, root, b"over").expect("a file without values");
        assert_eq!(free(cx, &fs), before);
        assert_eq!(fs.error(), None, "the rest of the mount goes on");
        fs.unmount(cx).expect("unmount");
        let queue = queue(cx, device);
        let report = ext4::check(cx, &queue, &Default::default()).expect("check runs");
        let told = format!("{:?}", report.findings);
        assert!(told.contains("Lustre's older form"), "{told}");
        assert_eq!(report.findings.len(), 1, "{told}");
    });
}

/// Blocks of attributes that name values are shared, parted and freed: a value counts the blocks
/// and inodes that name it, not the files.
#[test]
fn shared_blocks_name_shared_values() {
    for cell in CELLS {
        rt::testing::both(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let root = fs.root();
            let before = free(cx, &fs);
            // Too many entries for the inode, so that most are in the block.
            let names: Vec<String> =
                (0..9).map(|n| format!("user.{n}{}", "x".repeat(40))).collect();
            let files: Vec<Ino> =
                (0..6).map(|n| create(cx, &*fs, root, &format!("f{n}"))).collect();
            for &file in &files {
                for (n, name) in names.iter().enumerate() {
                    set(cx, &fs, file, name.as_bytes(), &value(n as u64 % 3, 9000));
                }
            }
            fs.sync(cx).expect("sync");
            checked_live(cx, &device, &format!("{cell:?} shared"));
            // One leaves a shared block, one changes its own, one loses everything.
            set(cx, &fs, files[0], names[4].as_bytes(), &value(7, 9000));
            set(cx, &fs, files[0], names[5].as_bytes(), b"small");
            set(cx, &fs, files[1], names[8].as_bytes(), &value(1, 9001));
            for name in &names {
                fs.removexattr(cx, files[2], name.as_bytes()).expect("it was set");
            }
            for (n, name) in names.iter().enumerate() {
                let found = fs.getxattr(cx, files[3], name.as_bytes()).expect("a value");
                assert_eq!(found, value(n as u64 % 3, 9000));
            }
            fs.sync(cx).expect("sync");
            checked_live(cx, &device, &format!("{cell:?} parted"));
            // Open while its last name goes.
            fs.open(cx, files[4]).expect("open");
            for n in 0..files.len() {
                fs.unlink(cx, root, format!("f{n}").as_bytes()).expect("the file goes");
            }
            assert_eq!(fs.getxattr(cx, files[4], names[0].as_bytes()), Ok(value(0, 9000)));
            fs.release(cx, files[4]).expect("close");
            assert_eq!(free(cx, &fs), before, "{cell:?}");
            judged(cx, &fs, &device, &format!("{cell:?}"));
        });
    }
}

/// Lets both checks look at a synced file system that is still mounted.
fn checked_live(cx: &mut Cx, device: &Arc<MemoryDevice>, what: &str) {
    let copy = Arc::new(device.fork());
    let (fs, _) = mount(cx, copy.clone());
    judged(cx, &fs, &copy, what);
}

fn large_acl(entries: u32) -> Acl {
    let entry = |tag, perm, id| Entry { tag, perm, id };
    let mut list = vec![entry(Tag::UserObj, 7, NO_ID)];
    list.extend((0..entries).map(|n| entry(Tag::User, 4, 1000 + n)));
    list.push(entry(Tag::GroupObj, 5, NO_ID));
    list.push(entry(Tag::Mask, 7, NO_ID));
    list.push(entry(Tag::Other, 0, NO_ID));
    Acl::new(list).expect("valid")
}

/// A default ACL and a label beyond a block are inherited at create in one step, shared by all who
/// inherit them, and follow a chmod.
#[test]
fn large_acls_and_labels_are_inherited() {
    for cell in CELLS {
        rt::testing::both(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, device.clone());
            let root = fs.root();
            let before = free(cx, &fs);
            let list = large_acl(cell.block / 8 + 200);
            let ns = vfs::Namespace::new(fs.clone());
            let dir = mkdir(cx, &*fs, root, "dir");
            ns.setxattr(cx, b"/dir", acl::DEFAULT, &list.emit(), ANY).expect("a default ACL");
            for n in 0..5 {
                let path = format!("/dir/f{n}");
                let flags = OpenFlags::WRITE | OpenFlags::CREATE;
                let file = ns.open(cx, path.as_bytes(), flags, 0o664).expect("a file");
                file.close(cx).expect("closed");
            }
            ns.mkdir(cx, b"/dir/sub", 0o775).expect("a directory");
            let sub = ns.getxattr(cx, b"/dir/sub", acl::DEFAULT).expect("inherited");
            assert_eq!(sub, list.emit(), "{cell:?}");
            let access = ns.getxattr(cx, b"/dir/f3", acl::ACCESS).expect("inherited");
            assert_eq!(access.len(), list.emit().len());
            let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            ns.setattr(cx, b"/dir/f3", &mode, true).expect("chmod");
            let changed = ns.getxattr(cx, b"/dir/f3", acl::ACCESS).expect("there");
            let changed = Acl::parse(&changed).expect("valid").expect("there");
            assert_eq!(changed.mode_bits(), 0o600);
            // A label beside it, given with the inode.
            let label = value(9, 5000);
            let node = NewNode::new(FileType::Regular, 0o644);
            let given = [(b"security.selinux".as_slice(), label.clone())];
            let made = fs.create_with(cx, dir, b"labelled", &node, &given).expect("made");
            assert_eq!(fs.getxattr(cx, made.ino, b"security.selinux"), Ok(label));
            fs.sync(cx).expect("sync");
            checked_live(cx, &device, &format!("{cell:?}"));
            for n in 0..5 {
                fs.unlink(cx, dir, format!("f{n}").as_bytes()).expect("gone");
            }
            fs.unlink(cx, dir, b"labelled").expect("gone");
            fs.rmdir(cx, dir, b"sub").expect("gone");
            fs.rmdir(cx, root, b"dir").expect("gone");
            assert_eq!(free(cx, &fs), before, "{cell:?}");
            drop(ns);
            judged(cx, &fs, &device, &format!("{cell:?}"));
        });
    }
}

/// Every inode that names a value pays for it as if it were its own: whole blocks and an inode;
/// limits hold; a new owner takes it over; the inode of the value is nobody's.
#[test]
fn owners_pay_for_their_values() {
    for block in [1024u32, 4096] {
        let cell = Cell::new("ext4", block).features("ea_inode,quota,project").journal(1024);
        rt::testing::both(|cx| {
            let device = cell.fresh(cx, 24 << 20);
            let (mut fs, _) = mount(cx, device.clone());
            let root = fs.root();
            let usage = |cx: &mut Cx, fs: &Ext4, id: u32| {
                let report = fs.quota_report(cx, Kind::User).expect("a report");
                let entry = report.into_iter().find(|(found, _)| *found == id);
                entry.map_or((0, 0), |(_, entry)| (entry.space, entry.inodes))
            };
            let node = |uid| NewNode { uid, ..NewNode::new(FileType::Regular, 0o666) };
            let one = fs.create(cx, root, b"one", &node(1000)).expect("made").ino;
            let two = fs.create(cx, root, b"two", &node(2000)).expect("made").ino;
            let bytes = 9000u64.next_multiple_of(block.into());
            for ino in [one, two] {
                set(cx, &fs, ino, b"user.a", &value(1, 9000));
            }
            assert_eq!(usage(cx, &fs, 1000), (bytes, 2));
            assert_eq!(usage(cx, &fs, 2000), (bytes, 2));
            assert_eq!(fs.getattr(cx, one).expect("stat").blocks, bytes / 512);
            set(cx, &fs, one, b"user.b", &value(1, 9000));
            assert_eq!(usage(cx, &fs, 1000), (2 * bytes, 3));
            // Read anew, and given away.
            fs.unmount(cx).expect("unmount");
            fs = mount(cx, device.clone()).0;
            let to = SetAttr { uid: Some(3000), ..SetAttr::default() };
            fs.setattr(cx, one, &to).expect("chown");
            assert_eq!(usage(cx, &fs, 1000), (0, 0));
            assert_eq!(usage(cx, &fs, 3000), (2 * bytes, 3));
            let limits = Limits { inode_hard: 3, ..Limits::default() };
            fs.quota_set(cx, Kind::User, 3000, &limits).expect("limits");
            let before = cx.set_cred(Cred { uid: 3000, gid: 3000, ..Cred::default() });
            let refused = fs.setxattr(cx, one, b"user.c", &value(5, 9000), ANY);
            assert_eq!(refused, Err(Errno::EDQUOT));
            let changed = fs.setxattr(cx, one, b"user.b", &value(5, 9000), ANY);
            assert_eq!(changed, Ok(()), "no more than before");
            cx.set_cred(before);
            assert_eq!(usage(cx, &fs, 3000), (2 * bytes, 3));
            fs.removexattr(cx, one, b"user.a").expect("it was set");
            assert_eq!(usage(cx, &fs, 3000), (bytes, 2));
            fs.unlink(cx, root, b"one").expect("gone");
            assert_eq!(usage(cx, &fs, 3000), (0, 0));
            judged(cx, &fs, &device, &format!("blocks of {block}"));
        });
    }
}

/// Where there is no room for a value, nothing changes and nothing leaks.
#[test]
fn a_full_device_refuses_a_value_whole() {
    for cell in &CELLS[..3] {
        rt::testing::both(|cx| {
            let device = cell.fresh(cx, 12 << 20);
            let (fs, _) = mount(cx, device.clone());
            let root = fs.root();
            let mut full = 0;
            for n in 0..1000u64 {
                let ino = create(cx, &*fs, root, &format!("f{n}"));
                match fs.setxattr(cx, ino, b"user.a", &value(n, 60_000), ANY) {
                    Ok(()) => assert_eq!(fs.getxattr(cx, ino, b"user.a"), Ok(value(n, 60_000))),
                    Err(Errno::ENOSPC) => {
                        assert_eq!(fs.getxattr(cx, ino, b"user.a"), Err(Errno::ENODATA));
                        full += 1;
                    }
                    Err(errno) => panic!("{errno}"),
                }
                if full > 3 {
                    break;
                }
            }
            assert!(full > 3, "the device fills");
            judged(cx, &fs, &device, &format!("{cell:?}"));
        });
    }
}

/// What the kernel wrote is read, changed, and read by the kernel again.
#[test]
fn the_kernel_and_we_read_each_others_values() {
    for args in [
        "-t ext4 -O ea_inode -b 4096",
        "-t ext4 -O ea_inode,^metadata_csum -b 1024",
        "-t ext4 -O ea_inode,^extent,^64bit -b 1024",
    ] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        judge::mke2fs(file.path(), 32 << 20, &args.split_whitespace().collect::<Vec<_>>());
        let kind = &args[3..7];
        let mount_kernel = || judge::LoopMount::new(file.path(), kind, "rw,user_xattr");
        let kernel = mount_kernel().expect("the kernel mounts");
        let script = r#"set -e
            large() { head -c $2 /dev/zero | tr '\0' $1; }
            for n in 1 2 3 4 5 6; do
                touch f$n; setfattr -n user.same -v $(large s 20000) f$n
                setfattr -n user.own -v $(large $n $((n * 3000))) f$n
                setfattr -n trusted.small -v $n f$n
            done
            mkdir d; setfattr -n user.dir -v $(large d 5000) d; cp -a f3 d/copy
        "#;
        let script = format!("cd {}; {script}", kernel.path().display());
        judge::run_ok("bash", &[&"-c", &script]);
        let theirs = manifest::of_dir(&kernel.path()).expect("the kernel's tree");
        drop(kernel);
        let device = Arc::new(testkit::image::load(file.path()));
        let ours = rt::testing::real(|cx| {
            checked(cx, &device, "the kernel's");
            let (fs, _) = mount(cx, device.clone());
            let read = manifest::of_fs(cx, &*fs).expect("the kernel's tree");
            assert_eq!(manifest::diff(&theirs, &read), "", "{args}: read");
            let root = fs.root();
            let file = |cx: &mut Cx, n: u32| {
                fs.lookup(cx, root, format!("f{n}").as_bytes()).expect("there").ino
            };
            let (one, two, three) = (file(cx, 1), file(cx, 2), file(cx, 3));
            fs.removexattr(cx, one, b"user.same").expect("it was set");
            set(cx, &fs, two, b"user.own", &value(1, 33_333));
            set(cx, &fs, three, b"user.third", &[b's'; 20_000]);
            fs.unlink(cx, root, b"f4").expect("there");
            let new = create(cx, &*fs, root, "new");
            set(cx, &fs, new, b"user.new", &value(2, 65_536));
            let ours = manifest::of_fs(cx, &*fs).expect("our tree");
            judged(cx, &fs, &device, args);
            ours
        });
        let again = testkit::image::write_device(&device);
        let kernel = judge::kernel_manifest(again.path(), kind);
        assert_eq!(manifest::diff(&ours, &kernel), "", "{args}: edited");
        // And the kernel lets go of ours.
        let kernel = judge::LoopMount::new(again.path(), kind, "rw").expect("the kernel mounts");
        let path = kernel.path().display().to_string();
        judge::run_ok("sh", &[&"-c", &format!("cd {path} && rm -r f2 f3 new d")]);
        drop(kernel);
        judge::e2fsck(again.path()).unwrap_or_else(|message| panic!("{args}: {message}"));
    }
}

/// One task of [`cuts`]: sets and removes values, some of them shared with the others, on files
/// that come and go.
fn change(cx: &mut Cx, fs: &Ext4, task: u64, seed: u64) {
    let mut rng = Rng::new(seed, task);
    let dir = mkdir(cx, fs, fs.root(), &format!("d{task}"));
    for step in 0..50u64 {
        let name = format!("f{}", rng.below(6));
        let attribute = format!("user.{}", rng.below(4));
        let number = rng.below(4);
        let content = value(number, 700 + 5000 * number as usize);
        let found = fs.lookup(cx, dir, name.as_bytes());
        let result = match (rng.below(10), found) {
            (_, Err(_)) => {
                let node = NewNode { uid: task as u32, ..NewNode::new(FileType::Regular, 0o644) };
                let given = [(attribute.as_bytes(), content)];
                fs.create_with(cx, dir, name.as_bytes(), &node, &given).map(drop)
            }
            (0..=5, Ok(attr)) => fs.setxattr(cx, attr.ino, attribute.as_bytes(), &content, ANY),
            (6, Ok(attr)) => fs.removexattr(cx, attr.ino, attribute.as_bytes()),
            (7, Ok(_)) => fs.unlink(cx, dir, name.as_bytes()),
            (8, Ok(attr)) => fs.fsync(cx, attr.ino, false),
            (_, Ok(attr)) => {
                let set = SetAttr { uid: Some(rng.below(3) as u32), ..SetAttr::default() };
                fs.setattr(cx, attr.ino, &set).map(drop)
            }
        };
        match result {
            Ok(()) | Err(Errno::ENODATA | Errno::ENOSPC) => {}
            Err(errno) => panic!("step {step}: {errno}"),
        }
    }
}

/// After a power cut every attribute has one of the values that it was given, whole.
fn verify(cx: &mut Cx, fs: &Ext4) -> Result<(), String> {
    let known: Vec<Vec<u8>> =
        (0..4).map(|number| value(number, 700 + 5000 * number as usize)).collect();
    let tree = manifest::of_fs(cx, fs).map_err(|errno| format!("the tree: {errno}"))?;
    for (path, entry) in tree {
        for (name, hex) in entry.xattrs {
            let lens: Vec<usize> = known.iter().map(Vec::len).collect();
            let ino = path
                .split(|&byte| byte == b'/')
                .try_fold(fs.root(), |dir, part| fs.lookup(cx, dir, part).map(|attr| attr.ino));
            let ino = ino.map_err(|errno| errno.to_string())?;
            let found = fs.getxattr(cx, ino, name.as_bytes()).map_err(|e| e.to_string())?;
            if !known.contains(&found) {
                return Err(format!("{name}: {} hex digits, none of {lens:?} bytes", hex.len()));
            }
        }
    }
    Ok(())
}

#[test]
fn cuts() {
    for seed in seeds(3) {
        let cell = Cell::new("ext4", [1024, 4096, 1024][seed as usize % 3]);
        let features = ["ea_inode,quota,project", "ea_inode", "ea_inode,^orphan_file"];
        let cell = cell.features(features[seed as usize % 3]).journal(1024);
        let (base, log) = World::new(WorldConfig::exploring(seed)).run("crash", |cx| {
            let memory = cell.fresh(cx, 16 << 20);
            let base = memory.fork();
            let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
            let (fs, _) = mount_cached(cx, device.clone(), 2 << 20);
            let tasks: Vec<_> = (0..4)
                .map(|task| {
                    let fs = fs.clone();
                    cx.spawn("changer", move |cx| change(cx, &fs, task, seed))
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
            fs.shutdown_hard();
            (base, device.log())
        });
        let config = crate::support::campaign::config(seed, 40);
        let report = crash::explore(&config, &base, &log, |image, case| {
            let what = format!("{cell:?} IOPATH_SEED={seed}");
            let dirty = image.fork();
            rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone());
                verify(cx, &fs)?;
                fs.unmount(cx).expect("unmount after recovery");
                checked(cx, &image, &what);
                Ok::<(), String>(())
            })?;
            if case.index % 20 == 0 {
                e2fsck(&image, &what);
                let file = testkit::image::write_device(&dirty);
                judge::run("e2fsck", &[&"-E", &"journal_only", &"-fy", &file.path()]);
                judge::e2fsck(file.path()).map_err(|m| format!("e2fsck's replay: {m}"))?;
            }
            Ok(())
        });
        println!("{cell:?} seed {seed}: {report:?}");
    }
}

/// One task of [`inherited_lists_and_labels_may_be_cut_anywhere`].
fn make_heirs(cx: &mut Cx, fs: &Arc<Ext4>, task: u64) {
    let ns = vfs::Namespace::new(fs.clone()).labelled();
    cx.set_cred(Cred { uid: task as u32, ..Cred::root() });
    for n in 0..40u64 {
        let path = |n: u64| format!("/d/{task}.{n}").into_bytes();
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let file = ns.open(cx, &path(n), flags, 0o664).expect("a file");
        if n % 7 == 6 {
            file.fsync(cx).expect("fsync");
        }
        file.close(cx).expect("closed");
        if n % 3 == 2 {
            ns.unlink(cx, &path(n - 1)).expect("gone");
        }
    }
}

/// The list and the label of a directory come to a file in the handle that makes it: no power cut
/// shows one without them, and what shares their blocks is counted, and charged, right.
#[test]
fn inherited_lists_and_labels_may_be_cut_anywhere() {
    let label = b"unconfined_u:object_r:user_home_t:s0\0";
    let list = large_acl(40);
    for seed in seeds(2) {
        let features = ["quota,project", "ea_inode,quota"][seed as usize % 2];
        let cell = Cell::new("ext4", [1024, 4096][seed as usize % 2]).features(features);
        let (base, log) = World::new(WorldConfig::exploring(seed)).run("crash", |cx| {
            let memory = cell.journal(1024).fresh(cx, 16 << 20);
            let (fs, _) = mount(cx, memory.clone());
            let dir = mkdir(cx, &*fs, fs.root(), "d");
            fs.setattr(cx, dir, &SetAttr { mode: Some(0o777), ..SetAttr::default() })
                .expect("mode");
            set(cx, &fs, dir, acl::DEFAULT, &list.emit());
            set(cx, &fs, dir, b"security.selinux", label);
            fs.unmount(cx).expect("unmount");
            let base = memory.fork();
            let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
            let (fs, _) = mount_cached(cx, device.clone(), 2 << 20);
            let tasks: Vec<_> = (1..4)
                .map(|task| {
                    let fs = fs.clone();
                    cx.spawn("maker", move |cx| make_heirs(cx, &fs, task))
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
            fs.shutdown_hard();
            (base, device.log())
        });
        let mut heirs = 0;
        let config = crate::support::campaign::config(seed, 30);
        crash::explore(&config, &base, &log, |image, case| {
            let what = format!("{cell:?} IOPATH_SEED={seed}");
            heirs += rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone());
                let dir = fs.lookup(cx, fs.root(), b"d").expect("the directory").ino;
                let tree = manifest::of_fs(cx, &*fs).expect("the tree");
                let files: Vec<_> =
                    tree.keys().filter_map(|path| path.strip_prefix(b"d/")).collect();
                for name in &files {
                    let ino = fs.lookup(cx, dir, name).expect("a file").ino;
                    let access = fs.getxattr(cx, ino, acl::ACCESS).expect("a list");
                    let access = Acl::parse(&access).expect("valid").expect("there");
                    assert_eq!(access.mode_bits(), 0o664 & list.mode_bits(), "{what}");
                    let found = fs.getxattr(cx, ino, b"security.selinux").expect("a label");
                    assert_eq!(found, label, "{what}");
                }
                fs.unmount(cx).expect("unmount after recovery");
                checked(cx, &image, &what);
                files.len()
            });
            if case.index % 20 == 0 {
                e2fsck(&image, &what);
            }
            Ok(())
        });
        assert!(heirs > 100, "{heirs} files in all cuts");
    }
}
