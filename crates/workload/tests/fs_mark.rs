//! fs_mark on our path and on the host, in both clocks, and beside the real tool.

mod common;

use base::Nanos;
use common::{ext4_in_memory, ext4_on_disk, masked, memory_target, tool};
use rt::{World, WorldConfig};
use workload::fs_mark::{self, Failure, Options, Report};
use workload::{NullSink, Stop, Target, TextSink};

fn parse(line: &str) -> Options {
    Options::parse(&line.split_whitespace().collect::<Vec<_>>()).expect("a good command line")
}

fn run(cx: &mut rt::Cx, target: &Target, line: &str) -> (Report, TextSink) {
    let mut sink = TextSink::default();
    let report = fs_mark::run(cx, target, &parse(line), &Stop::never(), &mut sink);
    (report, sink)
}

/// Names of regular files below a directory of our path.
fn files_below(cx: &mut rt::Cx, target: &Target, path: &[u8]) -> Vec<Vec<u8>> {
    let Target::Ours(ns, _) = target else { panic!("our path only") };
    let mut found = Vec::new();
    for (name, _) in ns.list(cx, path).expect("the directory lists") {
        if name == b"." || name == b".." {
            continue;
        }
        let whole = [path, b"/", &name].concat();
        match ns.stat(cx, &whole).expect("a listed name exists").is_dir() {
            true => found.extend(files_below(cx, target, &whole)),
            false => found.push(whole),
        }
    }
    found
}

/// Each sync method writes, syncs and removes the same files in both clocks.
#[test]
fn every_sync_method_runs_in_both_clocks_and_leaves_nothing() {
    rt::testing::both(|cx| {
        for method in 0..=6u64 {
            let (target, fs) = ext4_in_memory(cx, 64 << 20);
            let line = format!("-d /mnt/a -n 20 -s 9000 -L 2 -S {method}");
            let (report, _) = run(cx, &target, &line);
            assert_eq!(report.failure, None, "-S {method}");
            assert_eq!((report.files(), report.iterations.len()), (40, 2));
            assert_eq!(report.calls.write.stats.count(), 40);
            let fsyncs = [0, 40, 2, 40, 40, 40, 40][method as usize];
            assert_eq!(report.calls.fsync.stats.count(), fsyncs, "-S {method}");
            let syncs = if matches!(method, 2 | 4 | 6) { 2 } else { 0 };
            assert_eq!(report.calls.sync.stats.count(), syncs, "-S {method}");
            assert_eq!(report.calls.unlink.stats.count(), 40);
            assert_eq!(files_below(cx, &target, b"/mnt/a"), Vec::<Vec<u8>>::new());
            fs.unmount(cx).expect("a clean end");
        }
    });
}

/// Files go round robin over subdirectories, -N in each, as the names on the disk show.
#[test]
fn subdirectories_take_turns() {
    rt::testing::world(|cx| {
        let target = memory_target();
        let (report, _) = run(cx, &target, "-d /a -n 7 -D 3 -N 2 -k -s 10");
        assert_eq!(report.failure, None);
        let files = files_below(cx, &target, b"/a");
        let count = |folder: &str| {
            let prefix = format!("/a/{folder}/");
            files.iter().filter(|file| file.starts_with(prefix.as_bytes())).count()
        };
        let mut counts = [count("00"), count("01"), count("02")];
        counts.sort();
        assert_eq!(counts, [2, 2, 3]);
        let name = files[0].rsplit(|&b| b == b'/').next().expect("a name");
        assert_eq!(name.len(), 40);
        assert!(name[8..16].iter().all(|&b| b == b'~'), "{}", String::from_utf8_lossy(name));
    });
}

/// Several threads on several directories write files of their own, more than a directory block
/// holds, and remove all of them.
#[test]
fn threads_and_directories_multiply() {
    rt::testing::both(|cx| {
        let (target, fs) = ext4_in_memory(cx, 64 << 20);
        let (report, _) = run(cx, &target, "-d /a -d /b -t 4 -n 300 -s 100 -w 33 -S 0 -k");
        assert_eq!(report.failure, None);
        assert_eq!(report.iterations[0].count, 1200);
        assert_eq!(report.calls.write.stats.count(), 1200 * 4);
        assert_eq!(files_below(cx, &target, b"/a").len(), 600);
        assert_eq!(files_below(cx, &target, b"/b").len(), 600);
        assert_eq!(report.timeline.operations(), 1200);
        fs.unmount(cx).expect("a clean end");
    });
}

/// The document's command line, on a modelled disk, ends at the deadline; one seed gives one run.
#[test]
fn the_command_line_of_the_cfq_thread_stops_at_its_deadline_and_repeats() {
    let once = || {
        let mut world = World::new(WorldConfig { seed: 5, ..WorldConfig::default() });
        let report = world.run("main", |cx| {
            let (target, _fs) = ext4_on_disk(cx, 1 << 30);
            let line = "-S 1 -D 10000 -N 100000 -d /mnt/test/fs_mark -s 65536 -t 1 -w 4096 -F";
            let stop = Stop::at(cx.now() + Nanos::from_secs(5));
            let begin = cx.now();
            let report = fs_mark::run(cx, &target, &parse(line), &stop, &mut NullSink);
            assert!(cx.now().since(begin) < Nanos::from_millis(5200), "{}", cx.now());
            report
        });
        (report.files(), report.iterations.len(), world.now(), world.hash())
    };
    let (files, iterations, ..) = once();
    assert!(files > 20 && iterations == 1, "{files} files, {iterations} iterations");
    assert_eq!(once(), once());
}

/// A full file system ends a run with -F as the real tool ends it, and the image stays sound.
#[test]
fn a_full_file_system_ends_a_run_cleanly() {
    rt::testing::both(|cx| {
        let (target, fs) = ext4_in_memory(cx, 8 << 20);
        let (report, sink) = run(cx, &target, "-d /a -F -n 10 -s 65536");
        let Some(Failure::NoSpace { files: 10, .. }) = report.failure else {
            panic!("ended with {:?}", report.failure)
        };
        assert_eq!(report.exit_status(), 1);
        assert!(report.files() >= 40, "{} files", report.files());
        let end = "Insufficient free space in /a to create 10 new files, exiting\n";
        assert!(sink.out.ends_with(end), "{}", sink.out);
        assert_eq!(files_below(cx, &target, b"/a").len() as u64, report.files());
        fs.unmount(cx).expect("a clean end");
    });
}

/// Small files pass the check for space and then meet the end of the inodes or blocks.
#[test]
fn running_out_within_an_iteration_is_told_as_the_tool_does() {
    rt::testing::world(|cx| {
        let (target, _fs) = ext4_in_memory(cx, 4 << 20);
        let (report, sink) = run(cx, &target, "-d /a -F -n 100000 -s 1");
        let text = report.failure.map(|failure| failure.to_string()).unwrap_or_default();
        let create = "Error in creat: No space left on device";
        let write = "fs_mark: write_file write failed: -1 No space left on device";
        assert!(text == create || text == write, "{text}");
        assert!(sink.err.contains("No space left on device"));
    });
}

#[test]
fn the_host_has_no_virtual_time() {
    rt::testing::world(|cx| {
        let (report, _) = run(cx, &Target::host("/"), "-d tmp");
        assert_eq!(report.failure, Some(Failure::Clock));
    });
}

/// The same command line for the real tool and for ours on the same kind of directory: the text
/// with masked numbers is the same, on standard output and in the log.
#[test]
fn the_output_is_that_of_the_real_tool() {
    let lines = [
        "-d d1 -n 10 -s 1024 -L 2",
        "-d d1 -n 5 -v -S 0 -k",
        "-d d1 -n 5 -v -S 2 -D 4 -N 2",
        "-d d1 -d d2 -n 5 -t 4 -S 3",
        "-d d1 -n 4 -S 4 -D 3",
        "-vkd d1 -n4 -S5 -p 30 -r 10 operand",
        "-d d1 -n 4 -S 6 -w 100 -p 10 -r 20",
    ];
    for line in lines {
        let args: Vec<&str> = line.split_whitespace().collect();
        let theirs = tempfile::tempdir().expect("a temporary directory");
        let (code, out, err) = tool("fs_mark", "fsmark", theirs.path(), &args);
        assert_eq!((code, err.as_str()), (0, ""), "the real tool runs `{line}`");
        let log = std::fs::read_to_string(theirs.path().join("fs_log.txt")).expect("a log");
        let ours = tempfile::tempdir().expect("a temporary directory");
        let sink = rt::testing::real(|cx| run(cx, &Target::host(ours.path()), line).1);
        assert_eq!(masked(&sink.out), masked(&out), "standard output of `{line}`");
        assert_eq!(masked(&sink.log), masked(&log), "log of `{line}`");
        let ours_widths: Vec<usize> = sink.out.lines().map(str::len).collect();
        let their_widths: Vec<usize> = out.lines().map(str::len).collect();
        assert_eq!(ours_widths, their_widths, "widths of `{line}`");
    }
}

/// A directory that cannot be made: the same text and exit status as the real tool's, without its
/// complaint about its own temporary file.
#[test]
fn a_missing_parent_is_told_as_by_the_real_tool() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let line = "-d none/such -n 1";
    let args: Vec<&str> = line.split_whitespace().collect();
    let (code, out, err) = tool("fs_mark", "fsmark", place.path(), &args);
    let (report, sink) = rt::testing::real(|cx| run(cx, &Target::host(place.path()), line));
    assert_eq!(i32::from(report.exit_status()), code);
    assert_eq!(masked(&sink.out), masked(&out));
    assert_eq!(sink.err.lines().next(), err.lines().next());
}

/// Wrong command lines: the same first words as the real tool, and the same usage.
#[test]
fn wrong_command_lines_are_refused_as_the_real_tool_does() {
    for line in ["", "-n 4", "-d a -t 3 -d b", "-d a -t 65", "-d a -D 1", "-d a -N 2", "-d a -Z"] {
        let args: Vec<&str> = line.split_whitespace().collect();
        let place = tempfile::tempdir().expect("a temporary directory");
        let (code, out, err) = tool("fs_mark", "fsmark", place.path(), &args);
        assert_eq!(code, 1, "`{line}`");
        let error = Options::parse(&args).expect_err("refused");
        let first = match error {
            fs_mark::Usage::Help => String::new(),
            other => format!("{other}\n"),
        };
        let both = format!("{out}{err}");
        assert_eq!(both, format!("{first}{}", fs_mark::usage()), "`{line}`");
    }
}
