//! Goal: the mechanism of the thread on partly up-to-date pages, in counts, on a small scale; the
//! whole experiment is `iopath lab run nfs-partial`. Method: the same world with fewer requests on
//! the same files.

use lab::experiment::{Experiment, Plan, Size};
use lab::programs::nfs_partial::{Cell, Image, MACHINE, Outcome, Phase, Scene, Setup};
use lab::report::{Band, Report};
use lab::run::{RunOptions, RunRecord, Shard, lines, run_all};
use model::Profile;
use nfs::Mode;

const MIB: u64 = 1 << 20;

fn outcomes(cell: &Cell, image: &Image) -> Vec<Outcome> {
    let profile = Profile::load(MACHINE).unwrap();
    let modes = [Mode::Off, Mode::Request, Mode::Rmw, Mode::Ranges];
    modes
        .iter()
        .map(|&mode| {
            let (cell, server) = (&Cell { mode, ..cell.clone() }, &Setup::default());
            let scene = Scene { profile: &profile, server, image, cell, keep_trace: false };
            scene.run(3).unwrap().0
        })
        .collect()
}

#[test]
fn the_patch_saves_flushes_and_ours_needs_none() {
    let image = Image::make(8 * MIB, &Setup::default()).unwrap();
    let phases = vec![Phase { mode: "rndrw".to_owned(), requests: 3000, fsync_end: true }];
    let cell = Cell { phases, ..Cell::plain(8 * MIB) };
    let all = outcomes(&cell, &image);
    let [off, patched, rmw, ours] = &all[..] else { unreachable!("four modes") };
    for outcome in &all {
        assert_eq!(outcome.reads + outcome.writes, 3000);
        assert_eq!((outcome.reads, outcome.others), (1000, 128));
        assert_eq!(outcome.bytes, (1000 * 2048, 2000 * 2048));
        // A page that is written again between its flush and its READ is sent twice.
        let parts = outcome.hits + outcome.cold + outcome.rest + outcome.flush_reads;
        assert!((1000..1030).contains(&parts), "{outcome:?}");
    }
    // Every write is asked for in each mode, so the pages that nothing is known of are the same.
    assert!(off.cold.abs_diff(patched.cold) < 30, "{} {}", off.cold, patched.cold);
    assert!(off.flush_reads > 100 && patched.flush_reads * 4 < off.flush_reads * 3);
    assert!(off.partial_hits == 0 && patched.partial_hits > 50);
    assert!(rmw.flush_reads == 0 && rmw.write_reads > 300);
    assert_eq!((ours.flush_reads, ours.flush_writes, ours.write_reads), (0, 0, 0));
    assert!(ours.rest > 0 && ours.hits > patched.hits);
    // On this scale the final fsync of 128 files is most of the total; the requests are not.
    assert!(ours.event_time * 4.0 < off.event_time, "{} {}", ours.event_time, off.event_time);
    assert!(ours.rate > off.rate, "{} {}", ours.rate, off.rate);
    let again = outcomes(&cell, &image);
    assert_eq!(again, all, "a run is a function of its arguments");
    // Piggin's question: no page is partly up to date where requests are whole pages.
    let whole = Cell { block_size: 4096, ..cell };
    let all = outcomes(&whole, &image);
    let counts = |o: &Outcome| (o.hits, o.cold, o.flush_reads, o.partial_hits, o.calls.0);
    assert_eq!(counts(&all[0]), counts(&all[1]));
    assert_eq!((all[0].flush_reads, all[0].partial_hits), (0, 0));
}

fn small() -> Experiment {
    let text = include_str!("small-program.toml");
    Experiment::parse("small", "small-program.toml", text).expect("it is valid")
}

fn run(options: RunOptions) -> Vec<RunRecord> {
    run_all(&small(), &options, Vec::new(), &()).unwrap_or_else(|error| panic!("{error}"))
}

/// Goal: what a program does is what a file of workloads does: the same twice, in parts and merged,
/// resumed, larger in a full run, and in a report with cells, bands and relations.
#[test]
fn a_program_runs_as_any_experiment() {
    let whole = run(RunOptions { jobs: 2, ..RunOptions::default() });
    assert_eq!(whole.len(), 6);
    let part = |number| {
        let shard = Some(Shard { number, parts: 2 });
        run(RunOptions { shard, jobs: 1, ..RunOptions::default() })
    };
    let parts: Vec<RunRecord> = [2, 1].into_iter().flat_map(part).collect();
    assert_eq!(lines::merge(parts).unwrap(), whole);
    let text: String = whole.iter().map(lines::to_line).collect();
    let known = lines::parse(&text).unwrap();
    assert_eq!(run_all(&small(), &RunOptions::default(), known, &()).unwrap(), whole);
    let cases = vec!["document".to_owned()];
    let plan = Plan { size: Size::Full, cases, ..Plan::default() };
    let full = run(RunOptions { plan, ..RunOptions::default() });
    assert!(full.iter().all(|record| record.key.size == Size::Full));
    assert!(full[0].counts["reads"] > 5.0 * whole[0].counts["reads"]);

    let report = Report::build(&small(), whole, "iopath lab run small-program.toml");
    let cells = report.tables[0].rows.iter().flat_map(|row| &row.cells);
    let bands: Vec<Band> = cells.filter(|cell| cell.published.is_some()).map(|c| c.band).collect();
    assert_eq!(bands, [Band::Inside, Band::Outside]);
    assert_eq!(report.relations.len(), 3);
    assert_eq!(report.relations[2].obtained, Some(0.0), "{:?}", report.relations[2]);
    assert_eq!(report.bases(), "exact and modelled");
    let text = report.text();
    assert!(text.contains("parts of pages  before") && text.contains("✗"), "{text}");
    assert!(report.markdown().contains("| whole pages"), "{}", report.markdown());
}
