//! The table of "[PATCH 0/6 v6][RFC] jbd[2]: enhance fsync performance when using CFQ" (Jeff Moyer,
//! 2010-07-02) as a closed loop of three tasks on a small model of its array. The deadline row is
//! what the model was made from; everything else follows from the rules of the elevators.

use crate::common::mix::{Mix, Outcome, run};
use base::Nanos;
use block::BioFlags;
use block::elevator::NoteKind;

/// Files alone, MB/s alone, both mixed.
struct Row {
    alone: Outcome,
    reading: Outcome,
    mixed: Outcome,
}

fn row(mix: &Mix) -> Row {
    let alone = run(&Mix { readers: 0, ..mix.clone() });
    let reading = run(&Mix { writers: 0, ..mix.clone() });
    let row = Row { alone, reading, mixed: run(mix) };
    println!(
        "{:24} {:6.1} files/s  {:6.1} MB/s   mixed {:6.1} files/s {:6.1} MB/s, longest {}",
        format!("{} {:?}", mix.elevator, mix.tunables),
        row.alone.files_per_s(),
        row.reading.read_rate(),
        row.mixed.files_per_s(),
        row.mixed.read_rate(),
        row.mixed.longest,
    );
    row
}

/// Goal: the statements of the document hold: CFQ idles once per fsync and is five times slower
/// than deadline alone; starves the writer beside a reader; the series cures the first and gives
/// each stream its half in the second.
#[test]
fn the_statements_of_the_document_hold() {
    let deadline = row(&Mix::vanilla("deadline"));
    let vanilla = row(&Mix::vanilla("cfq"));
    let patched = row(&Mix::patched("cfq"));
    assert!((525.0..535.0).contains(&deadline.alone.files_per_s()), "the model's calibration");

    let slower = vanilla.alone.files_per_s() / deadline.alone.files_per_s();
    assert!((0.18..0.22).contains(&slower), "{slower}");
    let idles = vanilla.alone.count(NoteKind::IdleFired) as f64 / vanilla.alone.files as f64;
    assert!((0.98..1.02).contains(&idles), "one idle per fsync, not {idles}");
    let cured = patched.alone.files_per_s() / deadline.alone.files_per_s();
    assert!((0.97..1.03).contains(&cured), "{cured}");
    assert!(patched.alone.count(NoteKind::IdleFired) < 5);

    for row in [&vanilla, &patched] {
        let same = row.reading.read_rate() / deadline.reading.read_rate();
        assert!((0.9..1.1).contains(&same), "a lone reader is served alike: {same}");
    }
    let starved = vanilla.mixed.files_per_s();
    assert!(starved <= 10.0 && starved <= 0.025 * deadline.mixed.files_per_s(), "{starved}");
    assert!(vanilla.mixed.read_rate() >= 0.83 * vanilla.reading.read_rate());
    let mixed = patched.mixed.files_per_s();
    assert!(mixed >= 12.0 * starved, "{mixed}");
    let of_deadline = mixed / deadline.mixed.files_per_s();
    assert!((0.2..0.65).contains(&of_deadline), "still nowhere near deadline: {of_deadline}");
    let half = patched.mixed.read_rate() / patched.reading.read_rate();
    assert!((0.45..0.55).contains(&half), "{half}");
}

/// Goal: each of the three ingredients of the series is needed.
#[test]
fn each_ingredient_of_the_series_is_needed() {
    let noidle = BioFlags::SYNC | BioFlags::NOIDLE;
    let patched = Mix::patched("cfq");
    let without_yield = row(&Mix { yields: false, ..patched.clone() });
    assert!(without_yield.alone.files_per_s() < 70.0, "two idles per fsync");
    assert!(without_yield.mixed.files_per_s() < 10.0);
    let same = row(&Mix { tunables: vec![("yield", "0")], ..patched.clone() });
    assert_eq!(same.mixed.files, without_yield.mixed.files, "the tunable is the same switch");
    let journal = BioFlags::empty();
    let asynchronous = row(&Mix { journal, ..patched.clone() });
    assert!(asynchronous.alone.files_per_s() < 120.0);
    assert!(asynchronous.mixed.files_per_s() < 10.0);
    let (data, journal, commit) = (noidle, noidle, noidle);
    let kept = row(&Mix { data, journal, commit, ..patched.clone() });
    assert!(kept.alone.files_per_s() > 525.0, "alone, NOIDLE does no harm");
    assert!(kept.mixed.files_per_s() < 10.0, "beside a reader each request is the last");
}

/// Goal: without idling there is no problem. The times of an idle are whole ticks: 7.5 ms on
/// average at HZ=1000, 6 ms at 250, none at 100.
#[test]
fn hz_and_slice_idle_decide_the_loss() {
    let alone = |name, value| {
        let tunables = vec![(name, value)];
        run(&Mix { readers: 0, tunables, ..Mix::vanilla("cfq") }).files_per_s()
    };
    let band = |value: f64, from: f64, to: f64| assert!((from..to).contains(&value), "{value}");
    band(alone("hz", "1000"), 100.0, 115.0);
    // The think time of the journal task is at the threshold: there may be two idles per fsync.
    band(alone("hz", "250"), 55.0, 135.0);
    band(alone("hz", "100"), 520.0, 535.0);
    band(alone("slice_idle", "0"), 520.0, 535.0);
}

/// Goal: `relay` interleaves the two streams. Alone, a writer gets all that the device gives;
/// beside a reader at least 430 files/s and 80 MB/s at once; nobody waits long; equal readers get
/// the same.
#[test]
fn relay_interleaves_the_streams_and_keeps_the_share_of_both() {
    let relay = row(&Mix::patched("relay"));
    let none = run(&Mix { readers: 0, ..Mix::patched("none") });
    assert!(relay.alone.files as f64 >= 0.998 * none.files as f64, "all that the device gives");
    assert!(relay.mixed.files_per_s() >= 430.0, "{}", relay.mixed.files_per_s());
    assert!(relay.mixed.read_rate() >= 80.0, "{}", relay.mixed.read_rate());
    assert!(relay.mixed.longest < Nanos::from_millis(50), "{}", relay.mixed.longest);
    let readers = run(&Mix { readers: 3, writers: 0, ..Mix::patched("relay") });
    let [least, most] = [readers.reader_bytes.iter().min(), readers.reader_bytes.iter().max()];
    let [least, most] = [least, most].map(|bytes| *bytes.expect("three readers") as f64);
    assert!(least / most > 0.98 && readers.read_rate() > 149.0, "{:?}", readers.reader_bytes);
}

/// Goal: a file system that does not say who waits for whom loses nothing here: the journal is a
/// party of its own that takes no turns, since it can do nothing by itself.
#[test]
fn without_edges_both_streams_keep_their_shares() {
    let without = run(&Mix { yields: false, ..Mix::patched("relay") });
    let (files, rate) = (without.files_per_s(), without.read_rate());
    assert!(files >= 430.0 && rate >= 78.0, "{files} files/s, {rate} MB/s");
}

#[test]
fn one_seed_gives_one_run() {
    for mix in
        [Mix::vanilla("cfq"), Mix::patched("cfq"), Mix::patched("bfq"), Mix::patched("relay")]
    {
        let short = Mix { seconds: 2, ..mix };
        assert_eq!(run(&short).hash, run(&short).hash, "{short:?}");
    }
}
