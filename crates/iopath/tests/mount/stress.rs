//! Random system calls by several processes at once, on our mount and on the kernel's own. Each
//! process has a directory of its own, where every call happens on a memory file system as well and
//! must answer alike; in a directory of all they replace, link, exchange and remove whole files
//! under each other, and whatever is read must be one version of a file, whole. The trees are
//! compared after every remount. `IOPATH_STRESS=50` makes as many times the calls.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base::Rng;
use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::Errno;
use testkit::judge::LoopMount;

use crate::host::{Mounted, check, image, on_each_format, place};
use crate::posix::calls::{Call, SLOTS, User, World};

const PROCESSES: u64 = 4;
const ROUNDS: u64 = 2;
const CALLS: u64 = 400;
/// Names in the directory of all.
const SHARED: u64 = 6;
/// What a process is told to do: see [`Work`].
const WORK: &str = "IOPATH_STRESS_WORK";

fn scale() -> u64 {
    match env::var("IOPATH_STRESS") {
        Ok(text) => text.parse().expect("IOPATH_STRESS is a number"),
        Err(_) => 1,
    }
}

/// The work of one process in one round.
struct Work {
    mount: PathBuf,
    memory: PathBuf,
    id: u64,
    round: u64,
    calls: u64,
}

impl Work {
    fn start(&self) -> Child {
        let text = format!(
            "{} {} {} {} {}",
            self.mount.display(),
            self.memory.display(),
            self.id,
            self.round,
            self.calls
        );
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", "stress::a_process_of_the_stress_tests", "--ignored"]);
        command.args(["--nocapture", "--test-threads=1"]).env(WORK, text);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a process starts")
    }

    fn told() -> Option<Work> {
        let text = env::var(WORK).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        let (mount, memory) = (words[0].into(), words[1].into());
        Some(Work { mount, memory, id: number(2), round: number(3), calls: number(4) })
    }

    /// Both trees are alike; then the calls; then they are again.
    fn run(&self) {
        let own = format!("w{}", self.id);
        let mut ours = World::new(&self.mount.join(&own));
        let mut memory = World::new(&self.memory.join(&own));
        assert_eq!(ours.snapshot(), memory.snapshot(), "before the calls");
        let mut rng = Rng::new(self.id + 100 * self.round, 1);
        let mut done = Vec::new();
        for number in 0..self.calls {
            if rng.below(4) == 0 {
                self.shared_call(&mut rng, number);
                continue;
            }
            let call = call(&mut rng);
            let [left, right] = [&mut ours, &mut memory].map(|w| w.run(User::Root, &call));
            done.push(call);
            assert!(
                alike(done.last().expect("just done"), &left, &right),
                "on the mount: {left}, in memory: {right}, after {done:#?}"
            );
        }
        assert_eq!(ours.snapshot(), memory.snapshot(), "after {done:#?}");
    }

    /// A call in the directory of all.
    fn shared_call(&self, rng: &mut Rng, number: u64) {
        let dir = self.mount.join("all");
        let [a, b] = [0, 1].map(|_| dir.join(format!("s{}", rng.below(SHARED))));
        let result = match rng.below(10) {
            0..3 => self.replace(rng, number, &a),
            3..7 => read_whole(&a),
            7 => rustix::fs::link(&a, &b),
            8 => rustix::fs::unlink(&a),
            _ => {
                let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
                rustix::fs::renameat_with(CWD, &a, CWD, &b, flags[rng.below(3) as usize])
            }
        };
        // Somebody else may have taken the names away, or given them.
        let races = [Errno::NOENT, Errno::EXIST];
        let told = result.err().filter(|errno| !races.contains(errno));
        assert!(told.is_none(), "{told:?} for {a:?} and {b:?}");
    }

    /// A new file is written beside, and takes the place of an old one.
    fn replace(&self, rng: &mut Rng, number: u64, to: &Path) -> Result<(), Errno> {
        let new = to.with_file_name(format!("new{}", self.id));
        let mut file = File::create(&new).expect("a new file");
        let content = version(self.id, self.round * 1_000_000 + number, 1 + rng.below(90_000));
        for part in content.chunks(20_000) {
            file.write_all(part).expect("it can be written");
        }
        if rng.below(4) == 0 {
            file.sync_all().expect("it can be synced");
        }
        rustix::fs::rename(&new, to)
    }
}

/// The content of a version, which tells what it is.
fn version(id: u64, number: u64, len: u64) -> Vec<u8> {
    let mut content = Vec::with_capacity(len as usize + 24);
    [id, number, len].iter().for_each(|word| content.extend(word.to_le_bytes()));
    content.extend((0..len).map(|i| (i * (2 * number + 1) + id + (i >> 8)) as u8));
    content
}

fn read_whole(path: &Path) -> Result<(), Errno> {
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    let mut content = Vec::new();
    File::from(fd).read_to_end(&mut content).expect("an open file can be read");
    let word = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().expect("8 bytes"));
    assert!(content.len() >= 24, "{} bytes in {path:?}", content.len());
    assert!(content == version(word(0), word(8), word(16)), "{path:?} is no version of a file");
    Ok(())
}

/// A rename onto a directory that is not empty has two names.
fn alike(call: &Call, left: &str, right: &str) -> bool {
    let full = ["error 39", "error 17"];
    left == right
        || matches!(call, Call::Rename { .. }) && full.contains(&left) && full.contains(&right)
}

fn path(rng: &mut Rng) -> String {
    const PATHS: &[&str] = &[
        "a",
        "b",
        "c",
        "d",
        "e",
        "d/a",
        "d/b",
        "d/e",
        "d/e/a",
        "e/a",
        "e/b",
        "s",
        "s/a",
        "l",
        "d/../b",
        "long-enough-to-need-a-block-of-its-own-in-a-small-directory",
    ];
    PATHS[rng.below(PATHS.len() as u64) as usize].to_owned()
}

/// A call that every local file system answers alike.
fn call(rng: &mut Rng) -> Call {
    let slot = rng.below(SLOTS as u64) as usize;
    let offset = [0, 1, 511, 4096, 5000, 65_536, 70_001, 300_000][rng.below(8) as usize];
    let len = [0, 1, 100, 4095, 4096, 10_000, 66_000, 140_000][rng.below(8) as usize];
    match rng.below(64) {
        0..10 => {
            let mut flags = [OFlags::RDONLY, OFlags::RDWR, OFlags::RDWR][rng.below(3) as usize];
            for (flag, one_in) in
                [(OFlags::CREATE, 2), (OFlags::EXCL, 6), (OFlags::TRUNC, 5), (OFlags::APPEND, 5)]
            {
                flags.set(flag, rng.below(one_in) == 0);
            }
            Call::Open { slot, path: path(rng), flags, mode: 0o644 }
        }
        10..12 => Call::Close { slot },
        12..18 => Call::Read { slot, offset, len },
        18..26 => Call::Write { slot, offset, len, byte: rng.below(256) as u8 },
        26..29 => Call::Append { slot, len, byte: rng.below(256) as u8 },
        29..32 => Call::Truncate { slot, len: offset + rng.below(3) },
        32..35 => {
            let mode = [0, 1, 3][rng.below(3) as usize];
            Call::Fallocate { slot, mode, offset, len: len as u64 }
        }
        35..37 => Call::Fsync { slot },
        37..39 => Call::Fstat { slot },
        39..42 => Call::Mkdir { path: path(rng), mode: 0o755 },
        42..44 => Call::Symlink { target: path(rng), path: path(rng) },
        44..47 => Call::Link { old: path(rng), new: path(rng), follow: false },
        47..50 => Call::Unlink { path: path(rng) },
        50..52 => Call::Rmdir { path: path(rng) },
        52..57 => {
            let flags = [0, 0, 1, 2][rng.below(4) as usize];
            Call::Rename { old: path(rng), new: path(rng), flags }
        }
        57 => Call::Readlink { path: path(rng) },
        58 => Call::Stat { path: path(rng), follow: rng.below(2) == 0 },
        59 => Call::Chmod { path: path(rng), mode: [0o600, 0o755, 0o4711][rng.below(3) as usize] },
        60 => Call::List { path: path(rng) },
        61 => {
            let value = vec![rng.below(256) as u8; [0, 60, 800][rng.below(3) as usize]];
            Call::Setxattr { path: path(rng), name: "user.a".into(), value, flags: 0 }
        }
        62 => Call::Getxattr { path: path(rng), name: "user.a".into(), size: 1000 },
        _ => Call::Removexattr { path: path(rng), name: "user.a".into() },
    }
}

/// A mount, ours or the kernel's.
enum Either {
    Ours(Mounted),
    Kernel(LoopMount),
}

impl Either {
    fn new(ours: bool, kind: &str, image: &Path) -> Either {
        match ours {
            true => Either::Ours(Mounted::new(image, "")),
            false => Either::Kernel(
                LoopMount::new(image, kind, "rw,noatime").unwrap_or_else(|e| panic!("{e}")),
            ),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Either::Ours(mount) => mount.dir().to_owned(),
            Either::Kernel(mount) => mount.path(),
        }
    }

    fn unmount(self) {
        if let Either::Ours(mount) = self {
            mount.unmount();
        }
    }
}

fn stress(kind: &str, ours: bool) {
    let place = place();
    let image = image(place.path(), kind, 320 << 20);
    let memory = place.path().join("memory");
    fs::create_dir(&memory).unwrap();
    for round in 0..=ROUNDS {
        let mount = Either::new(ours, kind, &image);
        let roots = [mount.path(), memory.clone()];
        if round == 0 {
            fs::create_dir(roots[0].join("all")).unwrap();
            for dir in &roots {
                (0..PROCESSES).for_each(|id| fs::create_dir(dir.join(format!("w{id}"))).unwrap());
            }
        }
        // The last round only looks.
        let calls = if round == ROUNDS { 0 } else { CALLS * scale() };
        let works = (0..PROCESSES).map(|id| {
            let [mount, memory] = roots.clone();
            Work { mount, memory, id, round, calls }
        });
        let children: Vec<Child> = works.map(|work| work.start()).collect();
        let outputs = children.into_iter().map(|child| child.wait_with_output().unwrap());
        for output in outputs.collect::<Vec<_>>() {
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "round {round}: {told}{error}");
            assert!(told.contains("1 passed"), "{told}");
        }
        for name in fs::read_dir(roots[0].join("all")).unwrap() {
            read_whole(&name.unwrap().path()).unwrap();
        }
        mount.unmount();
        check(&image);
    }
}

#[test]
#[ignore = "a process of the tests below, which start it"]
fn a_process_of_the_stress_tests() {
    if let Some(work) = Work::told() {
        work.run();
    }
}

fn processes_at_once_on_our_mount(kind: &str) {
    stress(kind, true);
}

fn processes_at_once_on_the_kernels_mount(kind: &str) {
    stress(kind, false);
}

on_each_format!(processes_at_once_on_our_mount, processes_at_once_on_the_kernels_mount);
