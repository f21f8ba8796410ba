//! Our client beside libnfs's `nfs-cp`, both on one nfs-ganesha on this machine, and the thread's
//! command line on it in each mode, with the server's own counts. Run with
//! `cargo bench -p iopath --bench nfs`, or only a part with `-- large`, `-- tree` or `-- counts`;
//! without `--bench` the sizes are tiny.
//!
//! Needs root and the programs that `cargo xtask judges` installs. The export lies in the directory
//! for temporary files. Copies go in turn, ours and theirs, and the median of the rounds counts.

#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nfs::proto::Proc;
use nfs::{Mode, NfsClient, NfsOptions, Url};
use rt::{Cx, Runtime};
use testkit::ganesha::Ganesha;
use testkit::judge;
use vfs::{FileSystem, Namespace};
use workload::sysbench::{self, Options};
use workload::{NullSink, Stop, Target};

/// How much is done.
struct Size {
    /// Bytes of the large file.
    large: u64,
    /// Files of the tree.
    files: usize,
    /// Of those, how many nfs-cp copies; its time is taken for all.
    theirs: usize,
    rounds: usize,
    /// Total size of sysbench's files, MiB, and its requests.
    sysbench: (u64, u64),
}

const FULL: Size =
    Size { large: 1 << 30, files: 10_000, theirs: 10_000, rounds: 3, sysbench: (200, 100_000) };
const TINY: Size = Size { large: 3 << 20, files: 60, theirs: 20, rounds: 1, sysbench: (4, 600) };

fn main() {
    let bench = std::env::args().any(|arg| arg == "--bench");
    let size = if bench { FULL } else { TINY };
    let parts: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|one| one == part);
    Runtime::real(2).enter("bench", |cx| {
        if wanted("large") {
            large(&Ganesha::start(cx, false), &size);
        }
        if wanted("tree") {
            tree(&Ganesha::start(cx, false), &size);
        }
        if wanted("counts") {
            let ganesha = Ganesha::start(cx, true);
            counts(cx, &ganesha, &size);
        }
    });
}

/// Writes back what copies have left dirty in the host's page cache, so that no later one pays.
fn settle() {
    rustix::fs::sync();
}

#[track_caller]
fn timed(program: impl AsRef<OsStr>, args: &[&str]) -> Duration {
    let start = Instant::now();
    let output = Command::new(program.as_ref()).args(args).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{}: {error}; install it: cargo xtask judges", program.as_ref().display())
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {args:?}: {said}", program.as_ref().display());
    start.elapsed()
}

fn ours(args: &[&str]) -> Duration {
    timed(env!("CARGO_BIN_EXE_iopath"), args)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// One large file there and back.
fn large(ganesha: &Ganesha, size: &Size) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (from, back) = (dir.path().join("from"), dir.path().join("back"));
    let piece: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
    let mut file = fs::File::create(&from).expect("made");
    for _ in 0..size.large >> 20 {
        std::io::Write::write_all(&mut file, &piece).expect("written");
    }
    file.sync_all().expect("synced");
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..size.rounds {
        let (a, b) = (format!("/ours {round}"), format!("/theirs{round}"));
        let (place, url) = (format!("{}:{a}", ganesha.url()), ganesha.libnfs_url(&b));
        settle();
        times[0].push(ours(&["cp", text(&from), &place]));
        settle();
        times[1].push(timed("nfs-cp", &[text(&from), &url]));
        settle();
        times[2].push(ours(&["cp", &place, text(&back)]));
        judge::run_ok("cmp", &[&from, &back]);
        fs::remove_file(&back).expect("removed");
        settle();
        times[3].push(timed("nfs-cp", &[&url, text(&back)]));
        judge::run_ok("cmp", &[&from, &back]);
        fs::remove_file(&back).expect("removed");
        for name in [&a, &b] {
            fs::remove_file(ganesha.export().join(&name[1..])).expect("removed");
        }
    }
    let mib = (size.large >> 20) as f64;
    let [there, their_there, back, their_back] = times.map(median);
    for (way, ours, theirs) in
        [("to the server", there, their_there), ("from the server", back, their_back)]
    {
        println!(
            "{mib} MiB {way}: ours {ours:.2} s ({:.0} MiB/s), nfs-cp {theirs:.2} s ({:.0} MiB/s), \
             ours is {:.2} times as fast",
            mib / ours,
            mib / theirs,
            theirs / ours
        );
    }
}

/// A tree of small files there and back.
fn tree(ganesha: &Ganesha, size: &Size) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (from, back) = (dir.path().join("tree"), dir.path().join("back"));
    let name = |number: usize| format!("d{}/f{number}", number / 100);
    for number in 0..size.files {
        let path = from.join(name(number));
        fs::create_dir_all(path.parent().expect("below the tree")).expect("made");
        let content: Vec<u8> = (0..512 + number * 7 % 7680).map(|n| (n * number) as u8).collect();
        fs::write(&path, content).expect("written");
    }
    let place = |path: &str| format!("{}:{path}", ganesha.url());
    let there = ours(&["cp", "-r", text(&from), &place("/ours")]).as_secs_f64();
    let back_again = ours(&["cp", "-r", &place("/ours"), text(&back)]).as_secs_f64();
    judge::run_ok("diff", &[&"-r", &from, &back]);
    // nfs-cp copies one file in one run and makes no directories.
    for number in 0..size.theirs.div_ceil(100) {
        ours(&["mkdir", "-p", &place(&format!("/theirs/d{number}"))]);
    }
    let factor = size.files as f64 / size.theirs as f64;
    let each = |copy: &dyn Fn(&str)| {
        let start = Instant::now();
        (0..size.theirs).for_each(|number| copy(&name(number)));
        start.elapsed().as_secs_f64() * factor
    };
    let their_there = each(&|name| {
        timed("nfs-cp", &[text(&from.join(name)), &ganesha.libnfs_url(&format!("/theirs/{name}"))]);
    });
    let one = dir.path().join("one");
    let their_back = each(&|name| {
        timed("nfs-cp", &[&ganesha.libnfs_url(&format!("/theirs/{name}")), text(&one)]);
        fs::remove_file(&one).expect("removed");
    });
    for (way, ours, theirs) in
        [("to the server", there, their_there), ("from the server", back_again, their_back)]
    {
        println!(
            "{} small files {way}: ours {ours:.2} s, nfs-cp one by one {theirs:.2} s, ours is \
             {:.1} times as fast",
            size.files,
            theirs / ours
        );
    }
}

/// The thread's command line in each mode: what the server says that it was asked.
fn counts(cx: &mut Cx, ganesha: &Ganesha, size: &Size) {
    let (mib, requests) = size.sysbench;
    let line = format!(
        "--num-threads=16 --max-requests={requests} --test=fileio --file-block-size=2K \
         --file-total-size={mib}M --file-test-mode=rndrw --file-fsync-freq=0 --file-rw-ratio=0.5 \
         --rand-seed=1 run"
    );
    let words: Vec<&str> = line.split_whitespace().collect();
    let options = Options::parse(&words).expect("the thread's options");
    let url: Url = ganesha.url().parse().expect("an address");
    let mount = |cx: &mut Cx, mode| {
        let options = NfsOptions { mode, readahead_bytes: 0, ..NfsOptions::default() };
        NfsClient::mount_url(cx, &url, options).expect("mounted")
    };
    let procedures = [("READ", Proc::Read), ("WRITE", Proc::Write), ("COMMIT", Proc::Commit)];
    println!(
        "| mode | requests/s | READ | WRITE | COMMIT | the server's | pages sent to be read |"
    );
    for (name, mode) in Mode::ALL {
        let client = mount(cx, mode);
        let target = Target::ours(Namespace::new(client.clone()), b"/");
        sysbench::prepare(cx, &target, &options).expect("prepared");
        client.unmount(cx).expect("unmounted");
        // Nothing of it is in our memory.
        let client = mount(cx, mode);
        let target = Target::ours(Namespace::new(client.clone()), b"/");
        let before = procedures.map(|(name, _)| ganesha.calls(name));
        let report = sysbench::run(cx, &target, &options, &Stop::never(), &mut NullSink);
        assert_eq!(report.failure, None);
        let stats = client.stats();
        let counted = procedures.map(|(_, proc)| stats.calls[proc as usize]);
        client.unmount(cx).expect("unmounted");
        let after = procedures.map(|(name, _)| ganesha.calls(name));
        let theirs: [u64; 3] = std::array::from_fn(|n| after[n] - before[n]);
        let rate = (report.reads + report.writes) as f64 / report.total.as_secs_f64();
        let [reads, writes, commits] = counted;
        println!(
            "| {name} | {rate:.0} | {reads} | {writes} | {commits} | {theirs:?} | {} |",
            stats.flush_reads
        );
        assert_eq!(theirs, counted, "READ, WRITE, COMMIT, {name}");
        let client = mount(cx, mode);
        let target = Target::ours(Namespace::new(client.clone()), b"/");
        sysbench::cleanup(cx, &target, &options).expect("cleaned up");
        client.unmount(cx).expect("unmounted");
    }
}
