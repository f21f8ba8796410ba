//! Six processes change a mounted image at random: the mount is killed, or the image unmounted
//! while much of it is not written yet. Then the log is replayed, by us or by the kernel, and the
//! judge of the format and `iopath check` find nothing; what was synced, and not touched since, is
//! there to the byte. Images have room, or become full.
//!
//! Every third round unmounts. ext2 has rounds of that kind only: without a journal nothing is
//! promised after a kill. `IOPATH_ROUNDS=300` makes as many rounds, `IOPATH_ROUND_FIRST=17` begins
//! with another one, `IOPATH_ROUND_KIND=xfs` takes those of one format, and `IOPATH_BINARY=PATH`
//! mounts with another command than the one built here.

mod worker;

use std::env;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base::Rng;
use rustix::fs::FallocateFlags;
use testkit::judge::{self, LoopMount};

use crate::host::{Mounted, check, iopath, place};
use worker::{DIRS, Worker};

const PROCESSES: u64 = 6;
const MIB: u64 = 1 << 20;
/// What an unmount may take, whatever is dirty.
const UNMOUNT_MAX: Duration = Duration::from_secs(10);
/// What a process is told to do: see [`Worker::new`].
const WORK: &str = "IOPATH_CAMPAIGN_WORK";

fn number(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => default,
    }
}

/// One round.
#[derive(Clone, Debug)]
struct Round {
    number: u64,
    kind: &'static str,
    /// Bytes.
    block: u64,
    /// Bytes of the image.
    size: u64,
    /// Bytes that are free when the processes begin, where they are fewer than all.
    room: Option<u64>,
    /// Else it is unmounted.
    kill: bool,
    /// Who replays the log.
    by_us: bool,
    /// One in so many calls syncs; 0: none.
    sync_one_in: u64,
    /// MiB of the caches.
    cache: u64,
    /// How long the processes work.
    work: Duration,
}

impl Round {
    fn new(number: u64) -> Round {
        let mut rng = Rng::new(number, 31);
        let kill = number % 3 != 2;
        let turn = number / 3;
        let kinds: &[_] = match kill {
            true => &["ext4", "xfs", "ext3", "xfs", "ext4", "xfs"],
            false => &["ext4", "ext2", "xfs", "ext4", "ext3"],
        };
        let at = if kill { number % 3 + 2 * turn } else { turn };
        let kind = kinds[at as usize % kinds.len()];
        let room = (rng.below(2) == 0).then(|| (40 + rng.below(40)) * MIB);
        let size = match (room, kind) {
            (None, _) => (2 + rng.below(2)) << 30,
            // Without extents a file that takes the rest must be written.
            (Some(room), "ext2" | "ext3") => room + 20 * MIB,
            (Some(_), "xfs") => (304 + rng.below(300)) * MIB,
            (Some(_), _) if !kill => 3 << 30,
            (Some(_), _) => (90 + rng.below(500)) * MIB,
        };
        let block = 1024 << rng.below(3);
        let work = Duration::from_millis(500 + rng.below(4000));
        let sync_one_in = *rng.pick(&[0, 0, 8, 60, 400]);
        let cache = *rng.pick(&[4, 16, 64, 256]);
        Round {
            number,
            sync_one_in,
            cache,
            kind,
            block,
            size,
            room,
            kill,
            by_us: rng.below(2) == 0,
            work,
        }
    }

    /// Makes the image and runs the round.
    ///
    /// # Errors
    /// What is wrong with the image afterwards.
    fn run(&self, place: &Path) -> Result<(), String> {
        let image = self.make(place);
        let outside = place.join("records");
        let mount = self.mount(&image);
        self.prepare(mount.dir(), &outside);
        let mut processes: Vec<Child> =
            (0..PROCESSES).map(|id| self.start(mount.dir(), &outside, id)).collect();
        thread::sleep(self.work);
        if self.kill {
            let mut ended = Ok(());
            mount.kill_then(|| ended = end(&mut processes, true));
            ended?;
            self.replay(&image)?;
        } else {
            fs::write(outside.join("stop"), "").expect("a file");
            end(&mut processes, false)?;
            unmount(mount)?;
        }
        judged(&image)?;
        let told = iopath(&[&"check", &image]).output().expect("the command starts");
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        if !told.status.success() || text.lines().count() != 1 {
            return Err(format!("iopath check: {text}{}", String::from_utf8_lossy(&told.stderr)));
        }
        self.compare(&image, &outside)
    }

    /// A mount whose caches are small, and which commits often: much is on its way at any time.
    fn mount(&self, image: &Path) -> Mounted {
        let options = if self.kind == "xfs" { "" } else { ",commit=1" };
        let options = format!("allow_other,suid,dev{options}");
        let cache = format!("{}M", self.cache);
        let dir = image.with_extension("mnt");
        let command = [&"--cache-size" as &dyn AsRef<_>, &cache, &"mount", &"-f"];
        Mounted::by(iopath(&[&command[..], &[&"-o", &options, &image, &dir]].concat()), image)
    }

    fn make(&self, place: &Path) -> PathBuf {
        let image = place.join(format!("{}.img", self.kind));
        let block = self.block.to_string();
        if self.kind == "xfs" {
            File::create(&image).expect("created").set_len(self.size).expect("sized");
            judge::run_ok("mkfs.xfs", &[&"-q", &"-b", &format!("size={block}"), &image]);
        } else {
            judge::mke2fs(&image, self.size, &["-t", self.kind, "-b", &block]);
        }
        image
    }

    /// The directories, synced, and a file that leaves as much room as the round has.
    fn prepare(&self, mount: &Path, outside: &Path) {
        fs::create_dir(mount.join("all")).expect("a directory");
        for id in 0..PROCESSES {
            (0..DIRS).for_each(|dir| {
                fs::create_dir_all(mount.join(format!("w{id}/d{dir}"))).expect("a directory");
            });
            fs::create_dir_all(outside.join(format!("w{id}"))).expect("a directory");
        }
        let free = rustix::fs::statvfs(mount).expect("the mount answers");
        let free = free.f_bavail * free.f_frsize;
        if let Some(rest) = self.room.and_then(|room| free.checked_sub(room)).filter(|r| *r > 0)
            && !["ext2", "ext3"].contains(&self.kind)
        {
            let file = File::create(mount.join("ballast")).expect("a file");
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, rest).expect("allocated");
        }
        let dir = File::open(mount).expect("the mount");
        rustix::fs::syncfs(&dir).expect("synced");
    }

    fn start(&self, mount: &Path, outside: &Path, id: u64) -> Child {
        let (mount, outside, roomy) = (mount.display(), outside.display(), self.room.is_none());
        let (number, sync) = (self.number, self.sync_one_in);
        let text = format!("{mount} {outside} {id} {number} {sync} {}", u64::from(roomy));
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", "campaign::a_process_of_a_round", "--ignored"]);
        command
            .args(["--nocapture", "--test-threads=1"])
            .env(WORK, text)
            .env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a process starts")
    }

    fn replay(&self, image: &Path) -> Result<(), String> {
        if !self.by_us {
            return LoopMount::new(image, self.kind, "rw").map(drop);
        }
        let output = iopath(&[&"replay", &image]).output().expect("the command starts");
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("iopath replay: {error}")) }
    }

    /// Compares files with their records, in the mount of who has not replayed the log.
    fn compare(&self, image: &Path, outside: &Path) -> Result<(), String> {
        let mut found = Ok(0);
        if self.by_us {
            let mount = LoopMount::new(image, self.kind, "ro")?;
            found = found.and_then(|_| compare(&mount.path(), outside));
        } else {
            let mount = Mounted::new(image, ",ro");
            found = found.and_then(|_| compare(mount.dir(), outside));
            unmount(mount)?;
        }
        println!("round {}: {} files as recorded", self.number, found?);
        Ok(())
    }
}

/// Waits for the processes. Those of a killed mount may end by SIGBUS, in the middle of a write
/// through memory.
fn end(processes: &mut Vec<Child>, killed: bool) -> Result<(), String> {
    let mut all = Ok(());
    for mut child in processes.drain(..) {
        let start = Instant::now();
        while child.try_wait().expect("the child can be asked").is_none() {
            if start.elapsed() > Duration::from_secs(60) {
                let _ended = child.kill();
                all = Err("a process hangs in a call".to_owned());
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        let output = child.wait_with_output().expect("an output");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        let bus = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(7);
        if !(output.status.success() && text.contains("1 passed") || bus && killed) {
            let told = error.lines().skip_while(|line| !line.contains("panicked")).take(3);
            let told: Vec<&str> = told.collect();
            all = all.and(Err(format!("a process: {}: {}", output.status, told.join(" "))));
        }
    }
    all
}

/// Unmounts, in bounded time.
fn unmount(mut mount: Mounted) -> Result<(), String> {
    let start = Instant::now();
    let dir = mount.dir().to_owned();
    let umount = thread::spawn({
        let dir = dir.clone();
        move || judge::run("umount", &[&dir]).status
    });
    let mut served = None;
    while served.is_none() || !umount.is_finished() {
        if start.elapsed() > UNMOUNT_MAX {
            let ended = umount.is_finished();
            // The mount dies first: nobody waits for it then.
            drop(mount);
            umount.join().expect("umount was run");
            return Err(format!(
                "not unmounted within {UNMOUNT_MAX:?}: umount ended: {ended}, the mount: {served:?}"
            ));
        }
        thread::sleep(Duration::from_millis(2));
        served = mount.ended();
    }
    let ended = [served.expect("it has ended"), umount.join().expect("umount was run")];
    match ended.iter().find(|status| !status.success()) {
        Some(status) => Err(format!("unmount: {status}: {}", mount.said())),
        None => Ok(()),
    }
}

fn judged(image: &Path) -> Result<(), String> {
    catch_unwind(|| check(image)).map_err(message)
}

fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic".to_owned())
}

/// Files that are as their records say.
fn compare(mount: &Path, outside: &Path) -> Result<u64, String> {
    let mut count = 0;
    for id in 0..PROCESSES {
        for record in fs::read_dir(outside.join(format!("w{id}"))).expect("records") {
            let record = fs::read(record.expect("a name").path()).expect("a record");
            let cut = record.iter().position(|&byte| byte == b'\n').expect("a line");
            let (path, expected) = (&record[..cut], &record[cut + 1..]);
            let path = Path::new(std::ffi::OsStr::from_bytes(path));
            let found = fs::read(mount.join(path)).map_err(|e| format!("{path:?}: {e}"))?;
            if found != expected {
                let same = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
                return Err(format!(
                    "{path:?}: {} bytes, {} expected, the first difference at {same}",
                    found.len(),
                    expected.len()
                ));
            }
            count += 1;
        }
    }
    Ok(count)
}

#[test]
#[ignore = "a process of the test below, which starts it"]
fn a_process_of_a_round() {
    if let Ok(words) = env::var(WORK) {
        Worker::new(&words).run();
    }
}

#[test]
fn killed_and_full_mounts_leave_images_in_order() {
    let kind = env::var("IOPATH_ROUND_KIND").ok();
    let first = number("IOPATH_ROUND_FIRST", 0);
    let rounds = (first..).map(Round::new);
    let rounds = rounds.filter(|round| kind.as_ref().is_none_or(|kind| kind == round.kind));
    let mut failed = Vec::new();
    for round in rounds.take(number("IOPATH_ROUNDS", 6) as usize) {
        let place = place();
        let start = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| round.run(place.path())));
        if let Err(finding) = done.unwrap_or_else(|panic| Err(message(panic))) {
            let kept = place.keep();
            let finding = format!("{round:?}: {finding}\nthe image is kept in {}", kept.display());
            println!("{finding}");
            failed.push(finding);
        }
        println!("round {} took {:?}", round.number, start.elapsed());
    }
    assert!(failed.is_empty(), "{} rounds failed:\n{}", failed.len(), failed.join("\n"));
}
