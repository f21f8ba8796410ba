//! Goal: the mechanism of the thread on partly up-to-date pages, in counts, on a small scale; the
//! whole experiment is `iopath lab run nfs-partial`. Method: the same world with fewer requests on
//! the same files.

use lab::nfs_partial::{Cell, Image, MACHINE, Outcome, Phase, run_cell};
use model::Profile;
use nfs::Mode;

const MIB: u64 = 1 << 20;

fn outcomes(cell: &Cell, image: &Image) -> Vec<Outcome> {
    let profile = Profile::load(MACHINE).unwrap();
    let modes = [Mode::Off, Mode::Request, Mode::Rmw, Mode::Ranges];
    modes
        .iter()
        .map(|&mode| run_cell(&profile, image, &Cell { mode, ..cell.clone() }, 3).unwrap())
        .collect()
}

#[test]
fn the_patch_saves_flushes_and_ours_needs_none() {
    let image = Image::make(8 * MIB).unwrap();
    let phases = vec![Phase { mode: "rndrw", requests: 3000, fsync_end: true }];
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
