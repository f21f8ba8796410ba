//! Images of ours that a kernel in a guest reads and changes, and that we read again: what the
//! kernel of this machine has not. See [`testkit::guest`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::casefold_encrypt::key;
use crate::encrypt::mount_with;
use crate::support::*;
use base::Ino;
use device::MemoryDevice;
use ext4::format::InodeFlags;
use ext4::format::casefold::Encoding;
use ext4::format::verity::{HashAlg, VerityParams};
use ext4::{Ext4, MkfsOptions};
use fscrypt::{IvMethod, Mode, Policy};
use rt::Cx;
use sha2::{Digest, Sha256};
use testkit::guest;
use vfs::{FileSystem, FileType, NewNode};

/// Each is one disk of the guest.
const CELLS: [Cell; 11] = [
    Cell::new("ext4", 4096).features("casefold,encrypt,verity,inline_data"),
    Cell::new("ext4", 1024).features("casefold,orphan_file"),
    Cell::new("ext4", 1024).features("verity,fast_commit"),
    Cell::new("ext4", 4096).clusters(16),
    Cell::new("ext4", 1024).clusters(64),
    Cell::new("ext4", 8192).features("verity"),
    Cell::new("ext4", 16384),
    Cell::new("ext4", 32768),
    Cell::new("ext4", 65536).features("verity,casefold"),
    Cell::new("ext4", 4096).features("encrypt,stable_inodes"),
    Cell::new("ext4", 1024).features("encrypt,stable_inodes"),
];

/// The policies of the disks with `stable_inodes`, beside those that the kernel of this machine
/// judges: its kernel has no HCTR2.
fn policies() -> Vec<(String, Policy)> {
    let usual = Policy::new(key().identifier());
    let adiantum = Policy { contents: Mode::Adiantum, names: Mode::Adiantum, ..usual };
    let essiv = Policy { contents: Mode::Aes128Cbc, names: Mode::Aes128Cts, ..usual };
    let ivs = [
        ("file", IvMethod::PerFileKey),
        ("direct", IvMethod::DirectKey),
        ("64", IvMethod::InoLblk64),
        ("32", IvMethod::InoLblk32),
    ];
    let mut list = Vec::new();
    for (name, policy) in [("xts", usual), ("adiantum", adiantum), ("essiv", essiv)] {
        for (iv_name, iv) in ivs {
            list.push((format!("{name}-{iv_name}"), Policy { iv, padding: 4, ..policy }));
        }
        let units = Policy { data_unit_bits: Some(9), ..policy };
        list.push((format!("{name}-units"), units));
    }
    list.retain(|(_, policy)| policy.check().is_ok());
    list
}

/// What the guest does with each disk.
const JOB: &str = "modprobe -q ext4
for m in xts cts cbc essiv adiantum aes aesni_intel; do modprobe -q $m; done
sums() { find . -type f | xargs sha256sum | sed \"s/^/$1 $n /;s/  / /\"; }
for d in /dev/vd?; do
  n=${d#/dev/vd}
  mount -t ext4 $d /mnt || { echo REFUSED $n; continue; }
  cd /mnt
  head -c 64 /dev/zero | tr '\\0' K | xfs_io -c add_enckey /mnt >/dev/null 2>&1
  sums OURS
  for f in sealed-*; do [ -e $f ] && echo MEASURE $n $(fsverity measure $f); done
  [ -e sealed-1024 ] && echo x >>sealed-1024 && echo CHANGED $n
  [ -d Fold ] && cat Fold/GRÖSSE-17 && mv Fold/grösse-18 Fold/Neu && rm Fold/GRÖSSE-19
  [ -d Fold ] && mkdir Fold/Unten && echo u >Fold/unten/Ä
  [ -d Secret ] && cat secret/GRÖSSE-17 && rm Secret/GRÖSSE-19 && echo u >Secret/Ä
  for c in Cipher/*; do
    [ -e $c ] || continue
    echo LINK $n $c $(readlink $c/link)
    cp many/name-7 $c/a-name-of-the-kernel; echo more >>$c/grows; mv $c/moves $c/moved
    rm $c/name-200-*; ln -s of-the-kernel $c/new
  done
  rm many/name-3*; mkdir many/kernel
  i=0; while [ $i -lt 200 ]; do
    echo kernel $i >many/kernel/a-name-that-is-long-enough-$i; i=$((i+1)); done
  cp big many/kernel/copy
  xfs_io -c 'fpunch 200000 500000' -c 'pwrite -S 0x77 1000 9000' -c 'truncate 2500000' big
  sync; sums KERNEL; cd /; umount /mnt; e2fsck -fn $d >/tmp/fsck 2>&1; echo FSCK $n $?
done
";

fn content(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    pattern(n, 0, &mut bytes);
    bytes
}

fn put(cx: &mut Cx, fs: &Ext4, dir: Ino, name: &str, bytes: &[u8]) -> Ino {
    let ino = create(cx, fs, dir, name);
    fs.write(cx, ino, 0, bytes).expect("write");
    ino
}

/// Fills a disk of ours; the digests of its files with verity.
fn fill(cx: &mut Cx, fs: &Ext4, cell: &Cell) -> BTreeMap<String, String> {
    let (root, mut digests) = (fs.root(), BTreeMap::new());
    put(cx, fs, root, "big", &content(1, 3_000_000));
    let sparse = put(cx, fs, root, "sparse", &content(2, 10_000));
    fs.write(cx, sparse, 20 << 20, &content(3, 70_000)).expect("write");
    let many = mkdir(cx, fs, root, "many");
    for n in 0..700 {
        put(cx, fs, many, &format!("name-{n}"), &content(n, (n as usize * 37) % 5000));
    }
    let has = |feature| cell.features.contains(feature);
    let mut folding = Vec::new();
    if has("casefold") {
        folding.push(mkdir(cx, fs, root, "Fold"));
    }
    if has("encrypt") && !has("stable_inodes") {
        let dir = mkdir(cx, fs, root, "Secret");
        fs.encrypt_directory(cx, dir, Policy::new(key().identifier())).expect("a policy");
        folding.push(dir);
    }
    for dir in folding {
        let flags = fs.getattr(cx, dir).expect("attributes").flags;
        assert_ne!(flags & InodeFlags::CASEFOLD.bits(), 0);
        for n in 0..300 {
            put(cx, fs, dir, &format!("Größe-{n}"), format!("{n}\n").as_bytes());
        }
    }
    if has("stable_inodes") {
        let top = mkdir(cx, fs, root, "Cipher");
        for (name, policy) in policies() {
            let dir = mkdir(cx, fs, top, &name);
            fs.encrypt_directory(cx, dir, policy).expect(&name);
            for len in [10, 15, 16, 17, 33, 200, 255] {
                let name = format!("name-{len}-{:n<255}", "");
                put(cx, fs, dir, &name[..len], &content(len as u64, 70_000));
            }
            put(cx, fs, dir, "grows", &content(4, 1000));
            put(cx, fs, dir, "moves", &content(5, 5000));
            let target = format!("target-of-{name}");
            fs.create(cx, dir, b"link", &NewNode::symlink(target.as_bytes())).expect("a link");
        }
    }
    // The kernel's pages, and its trees, have at most 4 KiB.
    for block_size in [1024, 2048, 4096].into_iter().filter(|size| *size <= cell.block) {
        if has("verity") {
            let name = format!("sealed-{block_size}");
            let ino = put(cx, fs, root, &name, &content(u64::from(block_size), 900_000));
            let salt = vec![7; block_size as usize / 256];
            let params = VerityParams { alg: HashAlg::Sha256, block_size, salt };
            let made = fs.enable_verity(cx, ino, &params, b"").expect("verity");
            digests.insert(name, made.digest_text());
        }
    }
    digests
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every regular file: its path and the sum of its content.
fn sums(cx: &mut Cx, fs: &Ext4, dir: Ino, path: &str, found: &mut BTreeMap<String, String>) {
    let mut list = Vec::new();
    let emit = &mut |entry: vfs::DirEntry| {
        list.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    };
    fs.readdir(cx, dir, 0, emit).expect("readdir");
    for name in list.into_iter().filter(|name| name != "." && name != "..") {
        let attr = fs.lookup(cx, dir, name.as_bytes()).expect("lookup");
        let path = format!("{path}/{name}");
        if attr.kind == FileType::Directory {
            sums(cx, fs, attr.ino, &path, found);
        } else if attr.kind == FileType::Regular {
            let mut bytes = vec![0; attr.size as usize];
            let read = fs.read(cx, attr.ino, 0, &mut bytes).expect("read");
            assert_eq!(read, bytes.len(), "{path}");
            found.insert(path, hex(&Sha256::digest(&bytes)));
        }
    }
}

fn all_sums(cx: &mut Cx, fs: &Ext4) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    sums(cx, fs, fs.root(), ".", &mut found);
    found
}

/// The lines of the guest for disk `disk`: path and sum.
fn said(text: &str, who: &str, disk: char) -> BTreeMap<String, String> {
    let prefix = format!("{who} {disk} ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    pairs.map(|(sum, path)| (path.to_owned(), sum.to_owned())).collect()
}

/// The links that the kernel has made in encrypted directories.
fn kernel_links(cx: &mut Cx, fs: &Ext4, cell: &Cell) {
    if !cell.features.contains("stable_inodes") {
        return;
    }
    let top = fs.lookup(cx, fs.root(), b"Cipher").expect("there").ino;
    for (name, _) in policies() {
        let dir = fs.lookup(cx, top, name.as_bytes()).expect("there").ino;
        let link = fs.lookup(cx, dir, b"new").expect(&name).ino;
        assert_eq!(fs.readlink(cx, link).expect(&name), b"of-the-kernel", "{name}");
    }
}

fn fresh(cx: &mut Cx, cell: &Cell) -> Arc<MemoryDevice> {
    if !cell.features.contains("orphan_file") {
        return cell.fresh(cx, 192 << 20);
    }
    // Strict, and the root folds as elsewhere.
    let device = Arc::new(MemoryDevice::new(192 << 20));
    let options = MkfsOptions {
        block_size: Some(cell.block),
        encoding: Some(Encoding { strict: true }),
        features: cell.features.to_owned(),
        ..MkfsOptions::default()
    };
    let queue = queue(cx, device.clone());
    ext4::mkfs(cx, &queue, &options).expect("mkfs");
    fold_root(cx, &device);
    device
}

/// Goal: kernel 7.2 mounts what ours wrote, reads the same, changes it, and leaves an image that we
/// read as it does; its e2fsck and our check find nothing.
#[test]
fn a_kernel_in_a_guest_reads_and_changes_what_we_wrote() {
    if !guest::is_there() {
        return;
    }
    let (mut ours, mut disks) = (Vec::new(), Vec::new());
    for cell in &CELLS {
        let (device, found, digests) = rt::testing::world(|cx| {
            let device = fresh(cx, cell);
            let fs = mount_with(cx, &device, &[key()]);
            let digests = fill(cx, &fs, cell);
            let found = all_sums(cx, &fs);
            fs.unmount(cx).expect("unmount");
            (device, found, digests)
        });
        disks.push(testkit::image::write_device(&device));
        ours.push((found, digests));
    }
    let paths: Vec<_> = disks.iter().map(|disk| disk.path().to_owned()).collect();
    let text = guest::run(JOB, &paths).expect("a guest");
    for ((cell, disk), (index, (found, digests))) in
        CELLS.iter().zip(&paths).zip(ours.into_iter().enumerate())
    {
        let letter = char::from(b'a' + index as u8);
        assert!(!text.contains(&format!("REFUSED {letter}")), "{cell:?}: {text}");
        let read = said(&text, "OURS", letter);
        assert_eq!(read, found, "{cell:?}: the kernel reads what we wrote");
        for (name, digest) in digests {
            assert!(text.contains(&format!("MEASURE {letter} {digest} {name}")), "{name}: {text}");
        }
        assert!(!text.contains(&format!("CHANGED {letter}")), "{cell:?}: a file with verity");
        assert!(text.contains(&format!("FSCK {letter} 0")), "{cell:?}: {text}");
        if cell.features.contains("stable_inodes") {
            for (name, _) in policies() {
                let link = format!("LINK {letter} Cipher/{name} target-of-{name}");
                assert!(text.contains(&link), "{cell:?}, {link}: {text}");
            }
        }
        let theirs = said(&text, "KERNEL", letter);
        assert!(theirs.len() > 700, "{cell:?}: {} files", theirs.len());
        let device = Arc::new(testkit::image::load(disk));
        rt::testing::world(|cx| {
            let fs = mount_with(cx, &device, &[key()]);
            assert_eq!(all_sums(cx, &fs), theirs, "{cell:?}: we read what the kernel wrote");
            kernel_links(cx, &fs, cell);
            fs.unmount(cx).expect("unmount");
            checked(cx, &device, &format!("{cell:?}"));
        });
    }
}
