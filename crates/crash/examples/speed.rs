//! How many states a second: a disk of 64 MiB with the journal that mkfs gives it (XFS: 320 MiB),
//! eight tasks that create, write, sync and rename; each state is recovered, compared with what was
//! synced, and checked, on one thread. Then every state is recovered, also where nothing that
//! recovery reads differs from another one. Then, as root, a sample of the same states by the
//! kernel: a loop mount, and e2fsck or xfs_repair.
//!
//! `cargo run --release -p iopath-crash --example speed [ext4|xfs] [states] [states of the kernel]`

use crash::{Crash, Exploration, Fs, Kind, Limits, Log, Outcome, Result};

/// The heap of the command `iopath`.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TASKS: u8 = 8;
const ROUNDS: u8 = 24;

fn task(fs: &mut Fs, task: u8) -> Result<()> {
    fs.mkdir(&format!("/{task}"))?;
    for round in 0..ROUNDS {
        let (new, name) = (format!("/{task}/new"), format!("/{task}/{}", round % 6));
        fs.write(&new, &vec![round + 1; 3000 + usize::from(round) * 400])?;
        fs.fsync(&new)?;
        fs.rename(&new, &name)?;
        fs.fsync(&format!("/{task}"))?;
        fs.mark(&format!("{task} {round}"));
    }
    Ok(())
}

fn verify(fs: &mut Fs) -> Result<()> {
    let marks: Vec<Vec<u8>> = fs
        .marks()
        .iter()
        .map(|mark| mark.split(' ').filter_map(|number| number.parse().ok()).collect())
        .collect();
    for mark in marks {
        let (task, round) = (mark[0], mark[1]);
        let found = fs.read(&format!("/{task}/{}", round % 6))?;
        let first = found.first().copied().unwrap_or(0);
        if first <= round || found.len() != 2600 + usize::from(first) * 400 {
            return Err(format!("task {task}, round {round}: found {first}").into());
        }
    }
    Ok(())
}

/// Prints what an exploration took, and the most memory so far; answers states per second of the
/// clock.
#[allow(clippy::disallowed_methods, reason = "it measures the host's time")]
fn measured(what: &str, log: &Log, how: &Exploration) -> f64 {
    let began = (std::time::Instant::now(), processor_seconds());
    let judge = crash::check::judge(verify);
    let outcome = crash::explore(log, how, &judge, &mut |_| {}).expect("the log is in memory");
    let Outcome { judged, recovered, wrong, .. } = outcome;
    let (seconds, of_processor) = (began.0.elapsed().as_secs_f64(), processor_seconds() - began.1);
    let rate = judged as f64 / of_processor;
    println!(
        "| {}, {what} | {judged} | {recovered} | {seconds:.2} s | {of_processor:.2} s \
         | {rate:.0} | {} MiB |",
        how.kind,
        memory_mib()
    );
    assert_eq!(wrong, 0, "{:?}", outcome.findings);
    judged as f64 / seconds
}

fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name") + 2..].split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("ticks");
    (ticks(11) + ticks(12)) / 100.0
}

fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("Linux has it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") / 1024
}

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().map_or(Kind::Ext4, |kind| kind.parse().expect("ext4 or xfs"));
    let mut number = |default| args.next().map_or(default, |text| text.parse().expect("a number"));
    let (states, by_kernel) = (number(20_000), number(0));
    let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    threads.expect("no other pool was made");
    let test = Crash::on(kind).limits(Limits { all_subsets: 5, samples: 40, singles: 64 });
    let log = test.record(|fs| {
        let tasks: Vec<_> = (0..TASKS).map(|n| fs.spawn("writer", move |fs| task(fs, n))).collect();
        tasks.into_iter().try_for_each(|task| task.join(fs))
    });
    let how = Exploration { states_max: states, ..test.exploration };
    println!(
        "| what | states | recovered | seconds | of the processor | per second of it | memory |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let ours = measured("ours", &log, &how);
    let every =
        measured("ours, every state recovered", &log, &Exploration { fold: false, ..how.clone() });
    if let Some(each) = states.checked_div(by_kernel) {
        let shard = (0, each.max(1));
        let kernel =
            Exploration { by_kernel: true, outside: 1, shard, states_max: by_kernel, ..how };
        let kernel =
            measured("the kernel by loop mount (its own programs not counted)", &log, &kernel);
        println!(
            "\nstates by the clock, ratio to the kernel: {:.0}, {:.0} where all are recovered",
            ours / kernel,
            every / kernel
        );
    }
}
