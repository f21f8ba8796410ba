//! How many states a second: a disk of 64 MiB with the journal that mkfs gives it, eight tasks that
//! create, write, sync and rename; each state is recovered, compared with what was synced, and
//! checked.
//!
//! `RAYON_NUM_THREADS=1 cargo run --release -p iopath-crash --example speed [states] [ext4|xfs]`

use crash::{Crash, Fs, Kind, Limits, Result};

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

#[allow(clippy::disallowed_methods, reason = "it measures the host's time")]
fn main() {
    let mut args = std::env::args().skip(1);
    let states = args.next().map_or(20_000, |count| count.parse().expect("a number of states"));
    let kind = args.next().map_or(Kind::Ext4, |kind| kind.parse().expect("ext4 or xfs"));
    let mut test = Crash::on(kind).limits(Limits { all_subsets: 5, samples: 40, singles: 64 });
    test.exploration.states_max = states;
    let work = |fs: &mut Fs| {
        let tasks: Vec<_> = (0..TASKS).map(|n| fs.spawn("writer", move |fs| task(fs, n))).collect();
        tasks.into_iter().try_for_each(|task| task.join(fs))
    };
    let log = test.record(work);
    let judge = crash::check::judge(verify);
    let began = std::time::Instant::now();
    let outcome = crash::explore(&log, &test.exploration, &judge, &mut |_| {});
    let outcome = outcome.expect("the log is in memory");
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{kind}: {} entries, {} states, {} judged, {} wrong, {seconds:.2} s: {:.0} states a second",
        log.len(),
        outcome.planned,
        outcome.judged,
        outcome.wrong,
        outcome.judged as f64 / seconds
    );
    assert_eq!(outcome.wrong, 0, "{:?}", outcome.findings);
}
