//! Encrypted directories beside the kernel: either reads what the other wrote, with the key and
//! without it. Where the kernel has no cipher for a policy, it is compared with ours only.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::support::recovered::shell;
use crate::support::*;
use base::{Errno, Ino};
use device::MemoryDevice;
use ext4::{Ext4, MountOptions};
use fscrypt::{IvMethod, KeyName, KeyRing, MasterKey, Mode, Policy};
use rt::Cx;
use testkit::judge::{self, LoopMount};
use vfs::{FileSystem, FileType, NewNode, RenameFlags};

const CELL: Cell = Cell::new("ext4", 4096).features("encrypt,stable_inodes");

fn key(first: u8) -> MasterKey {
    MasterKey::new((0..64).map(|n| first.wrapping_add(n)).collect()).expect("64 bytes")
}

pub fn mount_with(cx: &mut Cx, device: &Arc<MemoryDevice>, keys: &[MasterKey]) -> Arc<Ext4> {
    let queue = queue(cx, device.clone());
    let mut ring = KeyRing::default();
    keys.iter().for_each(|key| ring.add(key.clone()));
    let options = MountOptions { keys: ring, ..MountOptions::default() };
    Ext4::mount_alone(cx, &queue, cache::PageCacheConfig::default(), options).expect("mount")
}

/// The lengths of names: around a block of the cipher, around 149 bytes, and the longest.
const NAMES: [usize; 12] = [1, 3, 15, 16, 17, 31, 32, 100, 148, 149, 200, 255];

fn name_of(len: usize) -> String {
    format!("{len:03}").chars().chain(std::iter::repeat('n')).take(len).collect()
}

fn content_of(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    pattern(n, 0, &mut bytes);
    bytes
}

/// The tree that each side writes: names of all lengths, files around the sizes of blocks and
/// pages, a sparse one, one that was cut, targets of all lengths, a directory with a tree of
/// hashes below one that inherits the policy.
fn write_ours(cx: &mut Cx, fs: &Ext4, dir: Ino) {
    for (n, len) in NAMES.into_iter().enumerate() {
        let ino = create(cx, fs, dir, &name_of(len));
        let bytes = content_of(n as u64, [0, 1, 4095, 4096, 4097, 70_000][n % 6]);
        fs.write(cx, ino, 0, &bytes).expect("write");
        let link =
            NewNode { target: Some(&content_text(len)), ..NewNode::new(FileType::Symlink, 0o777) };
        fs.create(cx, dir, format!("link{len}").as_bytes(), &link).expect("symlink");
    }
    let sparse = create(cx, fs, dir, "sparse");
    fs.write(cx, sparse, 1 << 20, &content_of(90, 5000)).expect("write");
    let cut = create(cx, fs, dir, "cut");
    fs.write(cx, cut, 0, &content_of(91, 20_000)).expect("write");
    fs.sync(cx).expect("sync");
    fs.setattr(cx, cut, &vfs::SetAttr { size: Some(9000), ..Default::default() }).expect("cut");
    let below = mkdir(cx, fs, dir, "below");
    for n in 0..600 {
        create(cx, fs, below, &format!("a file with a longer name {n}"));
    }
    fs.create(cx, dir, b"pipe", &NewNode::new(FileType::Fifo, 0o600)).expect("fifo");
    fs.sync(cx).expect("sync");
}

fn content_text(len: usize) -> Vec<u8> {
    (0..len).map(|n| b'a' + (n % 26) as u8).collect()
}

/// What a directory holds: contents, targets, and names below.
type Seen = BTreeMap<Vec<u8>, Vec<u8>>;

fn see_ours(cx: &mut Cx, fs: &Ext4, dir: Ino, path: &[u8], seen: &mut Seen) {
    let mut list = Vec::new();
    let emit = &mut |entry: vfs::DirEntry| {
        list.push(entry.name.to_vec());
        true
    };
    fs.readdir(cx, dir, 0, emit).expect("readdir");
    for name in list.into_iter().filter(|name| name != b"." && name != b"..") {
        let attr = fs.lookup(cx, dir, &name).expect("lookup");
        let path = [path, b"/", &name].concat();
        let content = match attr.kind {
            FileType::Symlink => {
                let target = fs.readlink(cx, attr.ino).expect("readlink");
                assert_eq!(attr.size, target.len() as u64, "the size of a link is its target's");
                target
            }
            FileType::Regular => {
                let mut bytes = vec![0; attr.size as usize];
                match fs.open(cx, attr.ino) {
                    Err(Errno::ENOKEY) => b"ENOKEY".to_vec(),
                    opened => {
                        opened.expect("open");
                        let read = fs.read(cx, attr.ino, 0, &mut bytes).expect("read");
                        assert_eq!(read, bytes.len());
                        fs.release(cx, attr.ino).expect("release");
                        bytes
                    }
                }
            }
            FileType::Directory => {
                see_ours(cx, fs, attr.ino, &path, seen);
                Vec::new()
            }
            _ => Vec::new(),
        };
        seen.insert(path, content);
    }
}

fn see_kernels(dir: &Path, seen: &mut Seen, top: &Path) {
    use std::os::unix::ffi::OsStrExt;
    for entry in std::fs::read_dir(dir).expect("the kernel lists it") {
        let path = entry.expect("an entry").path();
        let meta = path.symlink_metadata().expect("stat");
        let content = if meta.is_symlink() {
            let target = path.read_link().expect("readlink");
            assert_eq!(meta.len(), target.as_os_str().len() as u64);
            target.as_os_str().as_bytes().to_vec()
        } else if meta.is_dir() {
            see_kernels(&path, seen, top);
            Vec::new()
        } else if meta.is_file() {
            match std::fs::read(&path) {
                Err(error) if error.raw_os_error() == Some(Errno::ENOKEY.0) => b"ENOKEY".to_vec(),
                read => read.expect("the kernel reads it"),
            }
        } else {
            Vec::new()
        };
        let name = path.strip_prefix(top).expect("below").as_os_str().as_bytes();
        seen.insert([b"/", name].concat(), content);
    }
}

fn xfs_io(command: &str, path: &Path, input: &[u8]) -> String {
    let mut child = Command::new("xfs_io")
        .args(["-c", command])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("xfs_io runs: apt-get install xfsprogs");
    child.stdin.take().expect("piped").write_all(input).expect("it takes the key");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{command}: {text}{errors}");
    text
}

fn add_key(mount: &Path, first: u8, policy: &Policy) {
    let key: Vec<u8> = (0..64).map(|n| first.wrapping_add(n)).collect();
    let command = match policy.key {
        KeyName::Descriptor(_) => format!("add_enckey -d {}", policy.key),
        KeyName::Identifier(_) => "add_enckey".to_string(),
    };
    let said = xfs_io(&command, mount, &key);
    assert!(said.contains(&policy.key.to_string()), "{said}");
}

/// The policies that the kernel here has ciphers for.
fn policies() -> Vec<(&'static str, Policy)> {
    let key = key(0);
    let two = Policy::new(key.identifier());
    let one = Policy { key: KeyName::Descriptor(key.descriptor()), padding: 4, ..two };
    vec![
        ("v1", one),
        ("v2", two),
        ("lblk64", Policy { iv: IvMethod::InoLblk64, padding: 16, ..two }),
        ("lblk32", Policy { iv: IvMethod::InoLblk32, padding: 8, ..two }),
    ]
}

fn set_policy(dir: &Path, policy: &Policy) {
    let version = if matches!(policy.key, KeyName::Descriptor(_)) { 1 } else { 2 };
    let iv = match policy.iv {
        IvMethod::PerFileKey => 0,
        IvMethod::DirectKey => 4,
        IvMethod::InoLblk64 => 8,
        IvMethod::InoLblk32 => 16,
    };
    let flags = (policy.padding.trailing_zeros() - 2) | iv;
    let (contents, names) = (policy.contents as u8, policy.names as u8);
    let command =
        format!("set_encpolicy -c {contents} -n {names} -f {flags} -v {version} {}", policy.key);
    xfs_io(&command, dir, b"");
}

fn sorted(mut seen: Seen) -> Seen {
    seen.retain(|name, _| name != b"/lost+found");
    seen
}

fn assert_same(ours: Seen, kernels: Seen, what: &str) {
    let (ours, kernels) = (sorted(ours), sorted(kernels));
    let names = |seen: &Seen| seen.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours).len(), names(&kernels).len(), "{what}: as many names");
    for (name, content) in &ours {
        let name_text = String::from_utf8_lossy(name);
        let theirs = kernels.get(name);
        let theirs = theirs.unwrap_or_else(|| panic!("{what}: the kernel has no {name_text}"));
        assert!(content == theirs, "{what}: {name_text} differs");
    }
}

fn kernel_sees(image: &Path, keys: &[(u8, Policy)]) -> Seen {
    let mount = LoopMount::new(image, "ext4", "rw").expect("the kernel mounts it");
    keys.iter().for_each(|(first, policy)| add_key(&mount.path(), *first, policy));
    let mut seen = Seen::new();
    see_kernels(&mount.path(), &mut seen, &mount.path());
    seen
}

fn we_see(cx: &mut Cx, device: &Arc<MemoryDevice>, keys: &[MasterKey]) -> Seen {
    let fs = mount_with(cx, device, keys);
    let mut seen = Seen::new();
    see_ours(cx, &fs, fs.root(), b"", &mut seen);
    fs.unmount(cx).expect("unmount");
    seen
}

#[test]
fn the_kernel_reads_what_we_encrypt() {
    beside_the_kernel(CELL);
}

/// What is encrypted leaves the inode, and never lies there again.
#[test]
fn the_kernel_reads_what_we_encrypt_beside_inline_data() {
    beside_the_kernel(CELL.features("encrypt,stable_inodes,inline_data"));
}

fn beside_the_kernel(cell: Cell) {
    let device = rt::testing::world(|cx| {
        let device = cell.fresh(cx, 64 << 20);
        let fs = mount_with(cx, &device, &[key(0)]);
        for (name, policy) in policies() {
            let dir = mkdir(cx, &*fs, fs.root(), name);
            fs.encrypt_directory(cx, dir, policy).expect("a policy");
            write_ours(cx, &fs, dir);
        }
        fs.unmount(cx).expect("unmount");
        device
    });
    let file = testkit::image::write_device(&device);
    judge::e2fsck(file.path()).expect("sound");
    let keys: Vec<_> = policies().into_iter().map(|(_, policy)| (0, policy)).collect();
    // One of version 2 and one of version 1.
    let keys = [keys[0], keys[1]];
    for (ours, theirs) in [(&[key(0)][..], &keys[..]), (&[], &[])] {
        let seen = rt::testing::world(|cx| we_see(cx, &device, ours));
        assert!(seen.len() > 600 * 4, "{} names", seen.len());
        assert_same(seen, kernel_sees(file.path(), theirs), &format!("{} keys", ours.len()));
    }
    let findings = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        ext4::check(cx, &queue, &Default::default()).expect("check").findings
    });
    assert!(findings.is_empty(), "{findings:?}");
}

const SCRIPT: &str = "\
    for len in 1 3 15 16 17 31 32 100 148 149 200 255; do \
      name=$(printf '%0*d' $len $len); \
      head -c $((len * 300)) /dev/urandom > $name; ln -s $name link$len; done; \
    dd if=/dev/urandom of=sparse bs=5000 count=1 seek=300 2>/dev/null; \
    dd if=/dev/urandom of=cut bs=20000 count=1 2>/dev/null; sync -f .; truncate -s 9000 cut; \
    mkdir below; for n in $(seq 600); do echo $n > \"below/a file with a longer name $n\"; done; \
    mkfifo pipe";

#[test]
fn we_read_what_the_kernel_encrypts_and_go_on() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    judge::mke2fs(file.path(), 64 << 20, &["-t", "ext4", "-O", "encrypt,stable_inodes"]);
    {
        let mount = LoopMount::new(file.path(), "ext4", "rw").expect("the kernel mounts it");
        for (name, policy) in policies() {
            let dir = mount.path().join(name);
            std::fs::create_dir(&dir).expect("mkdir");
            add_key(&mount.path(), 0, &policy);
            set_policy(&dir, &policy);
            shell(&dir, SCRIPT);
        }
    }
    let device = Arc::new(testkit::image::load(file.path()));
    let keys: Vec<_> = policies().into_iter().map(|(_, policy)| (0, policy)).collect();
    for (ours, theirs) in [(&[key(0)][..], &keys[..2]), (&[], &[])] {
        let seen = rt::testing::world(|cx| we_see(cx, &device, ours));
        assert_same(seen, kernel_sees(file.path(), theirs), &format!("{} keys", ours.len()));
    }
    // We change what the kernel wrote; it reads that.
    rt::testing::world(|cx| {
        let fs = mount_with(cx, &device, &[key(0)]);
        for (name, _) in policies() {
            let dir = fs.lookup(cx, fs.root(), name.as_bytes()).expect("lookup").ino;
            let sparse = fs.lookup(cx, dir, b"sparse").expect("lookup").ino;
            fs.write(cx, sparse, 4000, &content_of(5, 9000)).expect("write");
            let below = fs.lookup(cx, dir, b"below").expect("lookup").ino;
            fs.rename(cx, dir, b"cut", below, b"moved", RenameFlags::empty()).expect("rename");
            fs.unlink(cx, below, b"a file with a longer name 17").expect("unlink");
            let cut = fs.lookup(cx, below, b"moved").expect("lookup").ino;
            fs.link(cx, cut, dir, b"another name of it").expect("link");
        }
        fs.unmount(cx).expect("unmount");
    });
    let after = testkit::image::write_device(&device);
    judge::e2fsck(after.path()).expect("sound");
    let seen = rt::testing::world(|cx| we_see(cx, &device, &[key(0)]));
    assert_same(seen, kernel_sees(after.path(), &keys[..2]), "after our changes");
}

/// Without the key names can be removed, long ones too; nothing can be made, and nothing is read.
#[test]
fn without_the_key_names_are_removed_and_nothing_is_made() {
    let device = rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 32 << 20);
        let fs = mount_with(cx, &device, &[key(0)]);
        let dir = mkdir(cx, &*fs, fs.root(), "dir");
        fs.encrypt_directory(cx, dir, Policy::new(key(0).identifier())).expect("a policy");
        write_ours(cx, &fs, dir);
        fs.unmount(cx).expect("unmount");
        let fs = mount_with(cx, &device, &[key(9)]);
        let (root, node) = (fs.root(), NewNode::new(FileType::Regular, 0o600));
        let dir = fs.lookup(cx, root, b"dir").expect("lookup").ino;
        assert_eq!(fs.lookup(cx, dir, b"sparse").err(), Some(Errno::ENOENT));
        assert_eq!(fs.create(cx, dir, b"new", &node).err(), Some(Errno::ENOKEY));
        assert_eq!(
            fs.encrypt_directory(cx, dir, Policy::new(key(0).identifier())),
            Err(Errno::ENOKEY)
        );
        let plain = create(cx, &*fs, root, "plain");
        assert_eq!(fs.link(cx, plain, dir, b"new").err(), Some(Errno::ENOKEY));
        let note = fs.read_error().expect("a note");
        assert!(note.contains("8699c2c53707405da5aba5ae4d8583c0"), "{note}");
        remove_all(cx, &fs, dir);
        fs.rmdir(cx, root, b"dir").expect("rmdir");
        fs.unmount(cx).expect("unmount");
        device
    });
    judge::e2fsck(testkit::image::write_device(&device).path()).expect("sound");
}

fn remove_all(cx: &mut Cx, fs: &Ext4, dir: Ino) {
    let mut list = Vec::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        list.push((entry.name.to_vec(), entry.kind));
        true
    })
    .expect("readdir");
    for (name, kind) in list.into_iter().filter(|(name, _)| name != b"." && name != b"..") {
        let ino = fs.lookup(cx, dir, &name).expect("lookup").ino;
        match kind {
            Some(FileType::Directory) => {
                remove_all(cx, fs, ino);
                fs.rmdir(cx, dir, &name).expect("rmdir");
            }
            _ => {
                if kind == Some(FileType::Regular) {
                    assert_eq!(fs.open(cx, ino).err(), Some(Errno::ENOKEY));
                    let mut byte = [0];
                    let read = fs.read(cx, ino, 0, &mut byte);
                    assert!(matches!(read, Ok(0) | Err(Errno::ENOKEY)), "{read:?}");
                    assert!(fs.write(cx, ino, 0, b"x").is_err());
                }
                fs.unlink(cx, dir, &name).expect("unlink");
            }
        }
    }
}

/// A policy is for an empty directory, and for everything below it.
#[test]
fn policies_are_kept_apart() {
    rt::testing::world(|cx| {
        let device = CELL.fresh(cx, 32 << 20);
        let fs = mount_with(cx, &device, &[key(0), key(9)]);
        let root = fs.root();
        let (one, two) = (Policy::new(key(0).identifier()), Policy::new(key(9).identifier()));
        let (a, b) = (mkdir(cx, &*fs, root, "a"), mkdir(cx, &*fs, root, "b"));
        fs.encrypt_directory(cx, a, one).expect("a policy");
        fs.encrypt_directory(cx, a, one).expect("the same policy again");
        assert_eq!(fs.encrypt_directory(cx, a, two), Err(Errno::EEXIST));
        fs.encrypt_directory(cx, b, two).expect("a policy");
        assert_eq!(fs.encrypt_directory(cx, root, one), Err(Errno::EINVAL));
        let file = create(cx, &*fs, a, "file");
        let plain = create(cx, &*fs, root, "plain");
        assert_eq!(fs.encrypt_directory(cx, plain, one), Err(Errno::ENOTDIR));
        let full = mkdir(cx, &*fs, root, "full");
        create(cx, &*fs, full, "file");
        assert_eq!(fs.encrypt_directory(cx, full, one), Err(Errno::ENOTEMPTY));
        let wrong = Policy { contents: Mode::Adiantum, ..one };
        assert_eq!(fs.encrypt_directory(cx, full, wrong), Err(Errno::EINVAL));
        assert_eq!(fs.link(cx, plain, a, b"plain").err(), Some(Errno::EXDEV));
        assert_eq!(fs.link(cx, file, b, b"file").err(), Some(Errno::EXDEV));
        fs.link(cx, file, root, b"out").expect("out of an encrypted directory");
        let none = RenameFlags::empty();
        assert_eq!(fs.rename(cx, root, b"plain", a, b"plain", none), Err(Errno::EXDEV));
        assert_eq!(fs.rename(cx, a, b"file", b, b"file", none), Err(Errno::EXDEV));
        let swapped = fs.rename(cx, a, b"file", root, b"plain", RenameFlags::EXCHANGE);
        assert_eq!(swapped, Err(Errno::EXDEV));
        let long =
            NewNode { target: Some(&[b't'; 4094]), ..NewNode::new(FileType::Symlink, 0o777) };
        assert_eq!(fs.create(cx, a, b"link", &long).err(), Some(Errno::ENAMETOOLONG));
        let long = NewNode { target: Some(&[b't'; 4093]), ..long };
        let link = fs.create(cx, a, b"link", &long).expect("symlink");
        assert_eq!((link.size, fs.readlink(cx, link.ino).unwrap().len()), (4093, 4093));
        let names = fs.listxattr(cx, file).expect("listxattr");
        assert!(names.is_empty(), "the context is not shown: {names:?}");
        fs.unmount(cx).expect("unmount");
    });
}

/// The other ciphers, and data units smaller than blocks: what is written is read by another mount.
#[test]
fn every_cipher_survives_a_mount() {
    rt::testing::world(|cx| {
        let two = Policy::new(key(0).identifier());
        let adiantum = Policy { contents: Mode::Adiantum, names: Mode::Adiantum, ..two };
        let policies = [
            adiantum,
            Policy { iv: IvMethod::DirectKey, ..adiantum },
            Policy { contents: Mode::Aes128Cbc, names: Mode::Aes128Cts, ..two },
            Policy { names: Mode::Aes256Hctr2, ..two },
            Policy { data_unit_bits: Some(9), ..two },
        ];
        let device = CELL.fresh(cx, 64 << 20);
        let fs = mount_with(cx, &device, &[key(0)]);
        for (n, policy) in policies.into_iter().enumerate() {
            let dir = mkdir(cx, &*fs, fs.root(), &format!("dir{n}"));
            fs.encrypt_directory(cx, dir, policy).expect("a policy");
            write_ours(cx, &fs, dir);
        }
        fs.unmount(cx).expect("unmount");
        let seen = we_see(cx, &device, &[key(0)]);
        for n in 0..policies.len() {
            let at = |name: &str| seen.get(format!("/dir{n}/{name}").as_bytes());
            assert_eq!(at(&name_of(255)), Some(&content_of(11, 70_000)), "dir{n}");
            assert_eq!(at("link200"), Some(&content_text(200)));
            assert_eq!(at("cut"), Some(&content_of(91, 20_000)[..9000].to_vec()));
        }
    });
}
