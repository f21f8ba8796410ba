//! Reads of encrypted files beside `openssl speed -evp aes-256-xts`, both by one thread with pieces
//! of 1 MiB, in turns. Run with `cargo bench -p iopath-ext4 --bench encrypt` on an idle machine;
//! the ordinary tests run it with a tiny size. Rates are those of the CPU time, so that a busy
//! machine adds little.

#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::process::Command;
use std::sync::Arc;

use base::{Ino, Page};
use block::{Queue, QueueConfig};
use cache::PageCacheConfig;
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, MountOptions};
use fscrypt::{Context, FileKey, FsIds, KeyRing, MasterKey, Mode, NONCE_SIZE, Policy};
use rt::{Cx, Runtime};
use vfs::{FileSystem, FileType, NewNode};

const PIECE: usize = 1 << 20;
const PAGE: usize = 4096;

fn key() -> MasterKey {
    MasterKey::new((0..64).collect()).expect("64 bytes")
}

fn queue(cx: &Cx, device: &Arc<MemoryDevice>) -> Arc<Queue> {
    Queue::new(cx.runtime(), device.clone(), QueueConfig::default()).expect("queue")
}

/// Mounts with an empty cache that has room for all.
fn mount(cx: &mut Cx, device: &Arc<MemoryDevice>, bytes: usize) -> Arc<Ext4> {
    let queue = queue(cx, device);
    let mut keys = KeyRing::default();
    keys.add(key());
    let options = MountOptions { keys, ..MountOptions::default() };
    let pages = PageCacheConfig::with_limit(2 * bytes as u64 + (64 << 20));
    Ext4::mount_alone(cx, &queue, pages, options).expect("mount")
}

/// A directory with a file of so many bytes; encrypted with a policy.
fn file(cx: &mut Cx, fs: &Ext4, name: &str, policy: Option<Policy>, bytes: usize) {
    let root = fs.root();
    let dir = NewNode::new(FileType::Directory, 0o755);
    let dir = fs.create(cx, root, name.as_bytes(), &dir).expect("a directory").ino;
    if let Some(policy) = policy {
        fs.encrypt_directory(cx, dir, policy).expect("a policy");
    }
    let node = NewNode::new(FileType::Regular, 0o644);
    let ino = fs.create(cx, dir, b"file", &node).expect("a file").ino;
    let piece: Vec<u8> = (0..PIECE).map(|n| (n * 7 + n / 251) as u8).collect();
    for at in (0..bytes).step_by(PIECE) {
        fs.write(cx, ino, at as u64, &piece).expect("written");
    }
    fs.fsync(cx, ino, false).expect("synced");
}

/// CPU seconds that this process has used.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes in a CPU second of reading the file from the device, in pieces.
fn read_rate(cx: &mut Cx, device: &Arc<MemoryDevice>, name: &str, bytes: usize) -> f64 {
    let fs = mount(cx, device, bytes);
    let dir = fs.lookup(cx, fs.root(), name.as_bytes()).expect("there").ino;
    let ino: Ino = fs.lookup(cx, dir, b"file").expect("there").ino;
    fs.open(cx, ino).expect("the key is there");
    let mut piece = vec![0; PIECE];
    let start = cpu_seconds();
    for at in (0..bytes).step_by(PIECE) {
        assert_eq!(fs.read(cx, ino, at as u64, &mut piece).expect("read"), PIECE);
    }
    let seconds = cpu_seconds() - start;
    fs.release(cx, ino).expect("released");
    fs.unmount(cx).expect("unmounted");
    bytes as f64 / seconds.max(1e-9)
}

/// Bytes in a CPU second of the cipher alone, over data units of 4 KiB.
fn cipher_rate(bytes: usize) -> f64 {
    let context = Context { policy: Policy::new(key().identifier()), nonce: [3; NONCE_SIZE] };
    let ids = FsIds { uuid: [5; 16], block_bits: 12 };
    let key = FileKey::new(&key(), &context, &ids, 12).expect("a key");
    let mut piece = vec![7; PIECE];
    let start = cpu_seconds();
    for at in (0..bytes).step_by(PIECE) {
        key.decrypt(at as u64, &mut piece);
    }
    let seconds = cpu_seconds() - start;
    std::hint::black_box(&piece);
    bytes as f64 / seconds.max(1e-9)
}

/// Bytes in a CPU second of the memory that such a read goes through, without cipher and file
/// system: from pages of a device into pages of a cache, and from these into a buffer. No read
/// through a cache is faster.
fn memory_rate(bytes: usize) -> f64 {
    let from: Vec<Page> = (0..bytes / PAGE).map(|_| Page::zeroed(PAGE)).collect();
    let mut cache = Vec::with_capacity(from.len());
    let mut piece = vec![0; PIECE];
    let start = cpu_seconds();
    for pages in from.chunks(PIECE / PAGE) {
        let first = cache.len();
        cache.extend(pages.iter().map(|page| Page::from_slice(page)));
        for (to, page) in piece.chunks_exact_mut(PAGE).zip(&cache[first..]) {
            to.copy_from_slice(page);
        }
    }
    let seconds = cpu_seconds() - start;
    std::hint::black_box(&piece);
    bytes as f64 / seconds.max(1e-9)
}

/// Bytes in a CPU second of openssl; None where it is not installed.
fn openssl_rate(seconds: u32) -> Option<f64> {
    let mut command = Command::new("openssl");
    command.args(["speed", "-evp", "aes-256-xts", "-mr", "-bytes", &PIECE.to_string()]);
    let output = command.args(["-seconds", &seconds.to_string()]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text.lines().find(|line| line.starts_with("+F:"))?.rsplit(':').next()?;
    rate.parse().ok()
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn main() {
    // `cargo test` runs benches without `--bench`: then the sizes are tiny.
    let full = std::env::args().any(|arg| arg == "--bench");
    let (bytes, rounds) = if full { (512 << 20, 7) } else { (2 << 20, 1) };
    let names = ["plain", "aes-256-xts", "adiantum"];
    let mut rates = vec![Vec::new(); names.len()];
    let (mut openssl, mut cipher, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    Runtime::real(1).enter("bench", |cx| {
        let device = Arc::new(MemoryDevice::new(4 * bytes as u64 + (256 << 20)));
        let queue = queue(cx, &device);
        let features = "encrypt".into();
        ext4::mkfs(cx, &queue, &MkfsOptions { features, ..MkfsOptions::default() }).expect("mkfs");
        let fs = mount(cx, &device, bytes);
        let usual = Policy::new(key().identifier());
        let adiantum = Policy { contents: Mode::Adiantum, names: Mode::Adiantum, ..usual };
        for (name, policy) in names.iter().zip([None, Some(usual), Some(adiantum)]) {
            file(cx, &fs, name, policy, bytes);
        }
        fs.unmount(cx).expect("unmounted");
        for _ in 0..rounds {
            openssl.extend(full.then(|| openssl_rate(1)).flatten());
            cipher.push(cipher_rate(bytes));
            memory.push(memory_rate(bytes));
            for (name, rates) in names.iter().zip(&mut rates) {
                rates.push(read_rate(cx, &device, name, bytes));
            }
        }
    });
    println!("| reads of 1 MiB | MB in a CPU second | of openssl | |\n|---|---|---|---|");
    let theirs = (!openssl.is_empty()).then(|| median(openssl));
    if let Some(rate) = theirs {
        println!("| openssl speed -evp aes-256-xts | {:.0} | 1 | measured |", rate / 1e6);
    }
    let parts = [(&"the cipher aes-256-xts alone", cipher), (&"memory alone", memory)];
    let all = names.iter().zip(rates).chain(parts);
    for (name, rates) in all {
        let rate = median(rates);
        let share = theirs.map_or("-".into(), |theirs| format!("{:.2}", rate / theirs));
        println!("| iopath, {name} | {:.0} | {share} | measured |", rate / 1e6);
    }
}
