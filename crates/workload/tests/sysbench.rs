//! sysbench's file I/O test beside the real tool of version 1.0, and beside the output of version
//! 0.4 that the thread on partly up-to-date pages shows: the same lines, but for the figures.

mod common;

use common::{masked, memory_target, place_in_memory, tool};
use rt::{Runtime, World, WorldConfig};
use workload::sysbench::{self, Options};
use workload::{Stop, Target, TextSink};

fn parse(line: &str) -> Options {
    Options::parse(&line.split_whitespace().collect::<Vec<_>>()).expect("a good command line")
}

/// Every mode and every option that changes what is printed, the deprecated names included.
#[test]
fn the_output_is_that_of_the_real_tool() {
    let dir = place_in_memory();
    let files = "fileio --file-num=3 --file-total-size=700K";
    let real = |line: &str| {
        tool("sysbench", "sysbench", dir.path(), &line.split_whitespace().collect::<Vec<_>>())
    };
    assert_eq!(real(&format!("{files} prepare")).0, 0);
    for options in [
        "--threads=4 --events=300 --time=0 --file-test-mode=rndrw --file-block-size=2K \
         --file-fsync-freq=0 --file-rw-ratio=0.5",
        "--num-threads=2 --max-requests=200 --time=0 --file-test-mode=rndrw",
        "--events=100 --time=0 --file-test-mode=rndrd --rand-seed=7 --file-extra-flags=dsync",
        "--events=50 --time=0 --file-test-mode=rndwr --file-fsync-all=on --file-extra-flags=sync",
        "--threads=2 --events=30 --time=0 --file-test-mode=seqrewr --file-fsync-end=off",
        "--events=30 --time=0 --file-test-mode=seqrd --file-block-size=100",
        "--events=500 --time=0 --file-test-mode=rndrw --file-fsync-freq=30 --percentile=99",
        "--events=90 --time=0 --file-test-mode=rndwr --percentile=0 --rand-type=pareto",
        "--events=20 --time=0 --file-test-mode=seqrd --file-merged-requests=4 --verbosity=4",
        "--events=40 --time=0 --file-test-mode=rndrd --verbosity=2 --thread-stack-size=128K",
        "--events=60 --time=0 --file-test-mode=rndrw --file-io-mode=mmap --tx-rate=5000",
        "--events=60 --time=0 --file-test-mode=rndrw --file-io-mode=async --forced-shutdown=off",
        // The last, since it shortens the files.
        "--events=30 --time=0 --file-test-mode=seqwr --file-fsync-mode=fdatasync",
    ] {
        let line = format!("{files} {options} run");
        let (code, theirs, error) = real(&line);
        assert_eq!(code, 0, "{line}: {theirs}{error}");
        let target = Target::host(dir.path());
        let ours = Runtime::real(2).enter("test", |cx| {
            let mut sink = TextSink::default();
            let report = sysbench::run(cx, &target, &parse(&line), &Stop::never(), &mut sink);
            assert_eq!(report.failure, None, "{line}");
            sink.out
        });
        let version = |text: &str| {
            let named = |line: &str| line.starts_with("sysbench ");
            let lines = text.lines().map(|line| if named(line) { "sysbench" } else { line });
            masked(&lines.map(|line| format!("{line}\n")).collect::<String>())
        };
        assert_eq!(version(&ours), version(&theirs), "{line}");
        let alone = !options.contains("threads") && !options.contains("async");
        if alone && !theirs.is_empty() {
            let (ours, theirs) = (shape(&ours), shape(&theirs));
            assert_eq!(ours.0, theirs.0, "requests of {line}");
            assert!((ours.1 - theirs.1).abs() < 0.01, "fsyncs of {line}: {ours:?} {theirs:?}");
        }
    }
}

/// What the tool counts as requests, and fsyncs by reads and writes.
fn shape(text: &str) -> (String, f64) {
    let value = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        line.expect(name).rsplit(' ').next().expect("a value").to_owned()
    };
    let number = |name: &str| value(name).parse::<f64>().expect(name);
    let syncs = number("fsyncs/s:") / (number("reads/s:") + number("writes/s:"));
    (value("total number of events:"), syncs)
}

/// From "[PATCH] NFS: Pagecache usage optimization on nfs", Hisashi Hifumi, 17 February 2009.
const THREAD: &str = "\
Operations performed: 33356 Read, 66682 Write, 128 Other = 100166 Total
Read 65.148Mb Written 130.24Mb Total transferred 195.39Mb (3.1093Mb/sec)
1591.97 Requests/sec executed

Test execution summary:
total time: 62.8391s
total number of events: 100038
total time taken by event execution: 841.7603
per-request statistics:
min: 0.0000s
avg: 0.0084s
max: 16.4564s
approx. 95 percentile: 0.0446s

Threads fairness:
events (avg/stddev): 6252.3750/306.48
execution time (avg/stddev): 52.6100/0.38
";

/// Figures and widths of columns gone: the mail has lost the latter.
fn lines(text: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mask = |line: &str| {
        let units = ["#b", "#Kb", "#Gb", "#Tb"];
        units.iter().fold(masked(&words(line)), |line, unit| line.replace(unit, "#Mb"))
    };
    text.lines().map(mask).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_thread_s_command_line_prints_what_the_thread_shows() {
    let out = World::new(WorldConfig::default()).run("test", |cx| {
        let target = memory_target();
        let options = parse(
            "--num-threads=16 --max-requests=2000 --test=fileio --file-block-size=2K \
             --file-total-size=4M --file-test-mode=rndrw --file-fsync-freq=0 --file-rw-ratio=0.5 \
             run",
        );
        sysbench::prepare(cx, &target, &options).expect("prepared");
        let mut sink = TextSink::default();
        let report = sysbench::run(cx, &target, &options, &Stop::never(), &mut sink);
        assert_eq!((report.reads, report.writes, report.others), (666, 1334, 128));
        sink.out
    });
    let ours = lines(&out);
    let begin = ours.iter().position(|line| line.starts_with("Operations performed"));
    let ours = &ours[begin.expect("a summary")..];
    assert_eq!(ours, lines(THREAD));
    assert!(out.contains("128 files, 32Kb each\n4Mb total file size\nBlock size 2Kb\n"), "{out}");
}
