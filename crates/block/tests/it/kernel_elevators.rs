//! Our elevators beside those of the running kernel: the order in which a batch of one process
//! leaves for the device.
//!
//! By `IOPATH_KERNEL_ELEVATORS=1`, as root, with losetup, fio and tracefs: the kernel must have the
//! elevators. fio submits a batch at once on a loop device whose elevator was just set; the events
//! block_rq_insert and block_rq_issue say what arrived and what left. Ours gets what arrived, in
//! one plug. The orders are kept in `kernel_orders.txt`, and are compared without a kernel too.

use crate::common::{Disk, Ends, queue_with};
use base::{Page, Sector};
use block::{Bio, BioFlags, DeviceInfo, Op, Plug, QueueConfig, Segment};
use rt::{World, WorldConfig};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const ELEVATORS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];
const EVENTS: [&str; 2] = ["block_rq_insert", "block_rq_issue"];
/// Sectors of the device.
const SECTORS: u64 = 64 << 11;
/// Requests of a batch: a plug of Linux takes up to 32.
const BATCH: usize = 24;
const SEEDS: u64 = 8;

/// A request of a batch: `R` or `W` with its first sector.
type Step = String;

fn order_of_ours(elevator: &str, arrived: &[Step]) -> Vec<Step> {
    World::new(WorldConfig::default()).run("order", |cx| {
        let info = DeviceInfo { depth: 128, ..DeviceInfo::plain(SECTORS) };
        let disk = Disk::held(info);
        let config = QueueConfig { merge: false, ..QueueConfig::elevator(elevator) };
        let queue = queue_with(cx, &disk, config);
        let (ends, mut plug) = (Ends::default(), Plug::new());
        for step in arrived {
            let op = if step.starts_with('R') { Op::Read } else { Op::Write };
            let sector = Sector(step[1..].parse().expect(step));
            let segs = [Segment::whole(Page::zeroed(4096))].into_iter().collect();
            let bio = Bio::new(op, sector, segs, BioFlags::SYNC, ends.end(step.as_str()));
            queue.submit_plugged(cx, &mut plug, bio);
        }
        plug.finish(cx);
        let mut seen = disk.take_seen();
        // An elevator may hold back what it does not let into the device beside the rest.
        while seen.len() < arrived.len() && disk.held_count() > 0 {
            disk.finish_all();
            seen.extend(disk.take_seen());
        }
        disk.finish_all();
        seen.iter().map(|one| one.split('+').next().unwrap_or_default().replace('S', "W")).collect()
    })
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}: apt install {program}"));
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A loop device of the kernel on a sparse file.
struct Loop {
    file: PathBuf,
    device: String,
}

impl Loop {
    fn new() -> Loop {
        let file = std::env::temp_dir().join(format!("iopath-elevators-{}", std::process::id()));
        let image = std::fs::File::create(&file).expect("an image");
        image.set_len(SECTORS * 512).expect("its size");
        let device = run("losetup", &["-f", "--show", file.to_str().expect("a path")]);
        Loop { file, device }
    }

    fn sys(&self) -> PathBuf {
        Path::new("/sys/block").join(Path::new(&self.device).file_name().expect("a name"))
    }

    fn set(&self, what: &str, value: &str) {
        let path = self.sys().join("queue").join(what);
        std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    }

    /// Major and minor number, as the filters of tracing take them.
    fn number(&self) -> u64 {
        let text = std::fs::read_to_string(self.sys().join("dev")).expect("its numbers");
        let (major, minor) = text.trim().split_once(':').expect("two numbers");
        (major.parse::<u64>().expect("major") << 20) | minor.parse::<u64>().expect("minor")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// An instance of the kernel's tracing, for one device.
struct Tracing(PathBuf);

impl Tracing {
    fn new(device: u64) -> Tracing {
        let name = format!("iopath-{}", std::process::id());
        let folder = Path::new("/sys/kernel/tracing/instances").join(name);
        std::fs::create_dir(&folder).expect("mount -t tracefs nodev /sys/kernel/tracing");
        for event in EVENTS {
            let event = folder.join("events/block").join(event);
            std::fs::write(event.join("filter"), format!("dev == {device}")).expect("a filter");
            std::fs::write(event.join("enable"), "1").expect("an event");
        }
        Tracing(folder)
    }

    /// What arrived and what left since the last call.
    fn take(&self) -> [Vec<Step>; 2] {
        let text = std::fs::read_to_string(self.0.join("trace")).expect("a trace");
        std::fs::write(self.0.join("trace"), "").expect("it is emptied");
        EVENTS.map(|event| {
            let lines = text.lines().filter(|line| line.contains(&format!(" {event}: ")));
            // .. block_rq_issue: 7,0 WS 4096 () 7904 + 8 be,0,4 [fio]
            let step = |line: &str| {
                let rest = line.split_once(event)?.1;
                let words: Vec<&str> = rest.split_whitespace().collect();
                Some(format!("{}{}", words.get(2)?.get(..1)?, words.get(5)?))
            };
            lines.filter_map(step).collect()
        })
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        for event in EVENTS {
            let _ = std::fs::write(self.0.join("events/block").join(event).join("enable"), "0");
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A batch of fio on an elevator that was just set: what arrived and what left.
fn order_of_kernel(device: &Loop, tracing: &Tracing, elevator: &str, seed: u64) -> [Vec<Step>; 2] {
    // Away and back again: it keeps nothing of the batch before.
    device.set("scheduler", if elevator == "none" { "kyber" } else { "none" });
    device.set("scheduler", elevator);
    device.set("nomerges", "2");
    let _before = tracing.take();
    let (count, seed) = (BATCH.to_string(), seed.to_string());
    let job = format!(
        "--name=batch --filename={} --ioengine=libaio --direct=1 --rw=randrw --rwmixread=60 \
         --bs=4k --size=64m --iodepth={count} --iodepth_batch_submit={count} \
         --iodepth_batch_complete_min={count} --number_ios={count} --randseed={seed}",
        device.device
    );
    run("fio", &job.split_whitespace().collect::<Vec<_>>());
    let [mut arrived, mut left] = tracing.take();
    // fio may read the device's size and the like before.
    left.retain(|step| arrived.contains(step) || arrived.is_empty());
    if arrived.is_empty() {
        // Without an elevator requests are issued from the plug.
        arrived.clone_from(&left);
    }
    [arrived, left]
}

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel_orders.txt");

/// Goal: a batch of one process leaves our elevators in the order in which it leaves those of Linux
/// 6.18. Method: the orders that `the_kernel_has_these_orders` has written.
#[test]
fn ours_order_a_batch_as_linux_does() {
    let text = std::fs::read_to_string(KEPT).expect("kernel_orders.txt");
    let mut count = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [elevator, arrived, left] = parts[..] else { panic!("{line}") };
        let steps = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<Step>>();
        assert_eq!(order_of_ours(elevator, &steps(arrived)), steps(left), "{elevator}");
        count += 1;
    }
    assert_eq!(count, ELEVATORS.len() * SEEDS as usize);
}

/// Goal: the orders that are kept are those of the kernel; `IOPATH_BLESS=1` keeps them anew.
#[test]
fn the_kernel_has_these_orders() {
    if std::env::var_os("IOPATH_KERNEL_ELEVATORS").is_none() {
        return;
    }
    let device = Loop::new();
    let tracing = Tracing::new(device.number());
    let release = run("uname", &["-r"]);
    let release = release.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let mut text = format!(
        "# {BATCH} requests of one fio on a loop device of Linux {release}: elevator | as they \
         came | as they left.\n"
    );
    let mut differ = String::new();
    for elevator in ELEVATORS {
        let mut alike = 0;
        for seed in 1..=SEEDS {
            let [arrived, left] = order_of_kernel(&device, &tracing, elevator, seed);
            assert_eq!((arrived.len(), left.len()), (BATCH, BATCH), "{elevator}: one batch");
            let ours = order_of_ours(elevator, &arrived);
            alike += u64::from(ours == left);
            let line = format!("{elevator} | {} | {}", arrived.join(" "), left.join(" "));
            if ours != left {
                let _ = writeln!(differ, "{line}\n  ours: {}", ours.join(" "));
            }
            let _ = writeln!(text, "{line}");
        }
        println!("{elevator}: {alike} of {SEEDS} batches in our order");
    }
    if std::env::var_os("IOPATH_BLESS").is_some() {
        std::fs::write(KEPT, text).expect("kernel_orders.txt");
    }
    assert!(differ.is_empty(), "{differ}");
}
