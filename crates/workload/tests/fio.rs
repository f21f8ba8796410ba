//! fio on our path and on the host, in both clocks, and beside the real tool.

mod common;

use std::sync::Arc;

use base::Nanos;
use block::{Queue, QueueConfig};
use common::{ext4_in_memory, make_ext4, masked, memory_target, mount_ext4, place_in_memory, tool};
use device::MemoryDevice;
use rt::{Cx, World, WorldConfig};
use testkit::timed::{DISK, modelled};
use workload::fio::{self, Direction, FioReport, JobFile};
use workload::{Stop, Target};

fn run(cx: &mut Cx, target: &Target, text: &str) -> FioReport {
    let file = JobFile::parse(text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
    fio::run(cx, target, &file, &Stop::never())
}

fn assert_good(report: &FioReport) {
    for job in &report.jobs {
        assert_eq!(job.error, None, "{}: {}", job.job.name, job.error_text);
    }
}

/// The reader of the CFQ thread, on a modelled disk: it reads for its time and no longer, without a
/// cached page, and one seed gives one run.
#[test]
fn a_sequential_reader_runs_for_its_time_and_repeats() {
    let once = || {
        let mut world = World::new(WorldConfig { seed: 3, ..WorldConfig::default() });
        let report = world.run("main", |cx| {
            let memory = Arc::new(MemoryDevice::new(1 << 30));
            let disk = modelled(cx, DISK, memory);
            let queue = Queue::new(cx.runtime(), disk, QueueConfig::elevator("deadline"));
            let queue = queue.expect("there is a deadline elevator");
            make_ext4(cx, &queue);
            let text = "[reader]\nrw=read\nbs=4k\nsize=150m\nruntime=1\ntime_based\n";
            let (target, fs) = mount_ext4(cx, &queue);
            let laid_out = fio::lay_out(cx, &target, &JobFile::parse(text, &[]).unwrap());
            assert_eq!(laid_out.unwrap(), "reader: Laying out IO file (1 file / 150MiB)\n");
            fs.unmount(cx).expect("a clean end");
            let (target, _fs) = mount_ext4(cx, &queue);
            let begin = cx.now();
            let report = run(cx, &target, text);
            assert!(cx.now().since(begin) >= Nanos::from_secs(1));
            report
        });
        assert_good(&report);
        let read = report.jobs[0].direction(Direction::Read);
        let mib = read.bandwidth() / f64::from(1 << 20);
        assert!((1000..1050).contains(&(read.runtime.0 / 1_000_000)), "{}", read.runtime);
        assert!(mib > 20.0, "{mib} MiB/s");
        assert_eq!(read.timeline.bytes(), read.bytes);
        assert!(read.bw.count() >= 1, "{} samples", read.bw.count());
        (read.ios, read.clat.histogram.clone(), world.now(), world.hash())
    };
    assert_eq!(once(), once());
}

/// A stop from outside ends jobs that would go on, in both clocks.
#[test]
fn a_stop_ends_jobs_before_their_time() {
    rt::testing::both(|cx| {
        let (target, _fs) = ext4_in_memory(cx, 64 << 20);
        let text = "[a]\nrw=write\nbs=4k\nsize=1m\nruntime=1h\ntime_based\nrate=1m\n";
        let file = JobFile::parse(text, &[]).unwrap();
        let begin = cx.now();
        let stop = Stop::at(begin + Nanos::from_millis(300));
        let report = fio::run(cx, &target, &file, &stop);
        assert!(report.stopped && report.exit_status() == 0);
        assert!(cx.now().since(begin) < Nanos::from_secs(10));
        let kib = report.bytes(Direction::Write) >> 10;
        // The lower bound holds in virtual time only: a busy machine may be slow.
        assert!(kib <= 320 && (!cx.is_virtual() || kib >= 280), "{kib} KiB");
    });
}

/// Every pattern and engine moves what it should, in both clocks.
#[test]
fn patterns_and_engines_move_their_bytes() {
    let cases = [
        ("rw=read", 1024, 0, 0),
        ("rw=write", 0, 1024, 0),
        ("rw=randread", 1024, 0, 0),
        ("rw=randwrite\nbs=16k", 0, 1024, 0),
        ("rw=randwrite\nioengine=io_uring\niodepth=8", 0, 1024, 0),
        ("rw=randread\nioengine=libaio\niodepth=4\ndirect=1", 1024, 0, 0),
        ("rw=write\ndirect=1\nbs=64k", 0, 1024, 0),
        ("rw=read\nio_size=2m", 2048, 0, 0),
        ("rw=read\nloops=3", 3072, 0, 0),
        ("rw=randread\nnumber_ios=7", 28, 0, 0),
        ("rw=trim", 0, 0, 1024),
        ("rw=randread\nrandom_distribution=zipf:1.2", 1024, 0, 0),
        ("rw=randread\nnorandommap", 1024, 0, 0),
        ("rw=randread\nrandom_generator=lfsr", 1024, 0, 0),
        ("rw=read\nnrfiles=4", 1024, 0, 0),
        ("rw=read\noffset=512k", 1024, 0, 0),
        ("rw=write\nioengine=null", 0, 1024, 0),
        ("rw=write\nfsync=16\nfdatasync=64\nend_fsync=1\nfallocate=none", 0, 1024, 0),
        ("rw=write\nsync=1\nbs=64k", 0, 1024, 0),
        ("ioengine=filecreate\nnrfiles=20", 80, 0, 0),
        ("ioengine=filestat\nnrfiles=20", 80, 0, 0),
        ("rw=randread\nbssplit=4k/50:16k/50\nverify=null", 1024, 0, 0),
        ("rw=randwrite\nbsrange=4k-32k", 0, 1024, 0),
    ];
    rt::testing::both(|cx| {
        for (settings, read, write, trim) in cases {
            let (target, fs) = ext4_in_memory(cx, 64 << 20);
            let report = run(cx, &target, &format!("[a]\nsize=1m\n{settings}\n"));
            assert_good(&report);
            let kib = Direction::ALL.map(|direction| report.bytes(direction) >> 10);
            assert_eq!(kib, [read, write, trim], "{settings}");
            fs.unmount(cx).expect("a clean end");
        }
    });
}

#[test]
fn syncs_are_counted() {
    rt::testing::world(|cx| {
        let (target, _fs) = ext4_in_memory(cx, 64 << 20);
        let report = run(cx, &target, "[a]\nsize=1m\nrw=write\nfsync=16\nend_fsync=1\n");
        assert_eq!(report.jobs[0].sync.stats.count(), 256 / 16 + 1);
    });
}

/// Copies of a job have files of their own, stages follow each other, groups are summed.
#[test]
fn copies_stages_and_groups() {
    rt::testing::both(|cx| {
        let target = memory_target();
        let text = "[global]\nsize=64k\nbs=4k\n[a]\nrw=write\nnumjobs=3\ngroup_reporting\n\
                    [b]\nstonewall\nrw=read\nnumjobs=2\n";
        let report = run(cx, &target, text);
        assert_good(&report);
        let shape: Vec<(u32, u32, u64)> = report
            .jobs
            .iter()
            .map(|job| (job.group, job.copies, job.directions.iter().map(|d| d.ios).sum()))
            .collect();
        assert_eq!(shape, [(0, 3, 48), (1, 1, 16), (1, 1, 16)]);
        let Target::Ours(ns, _) = &target else { unreachable!() };
        for name in ["a.0.0", "a.2.0", "b.1.0"] {
            assert_eq!(ns.stat(cx, name.as_bytes()).expect("laid out").size, 65536, "{name}");
        }
    });
}

/// Rates, think time and start delays are exact in virtual time.
#[test]
fn the_pace_is_kept() {
    rt::testing::world(|cx| {
        let target = memory_target();
        for (settings, ms) in [
            ("rate=64k", 984),
            ("rate_iops=100", 150),
            ("thinktime=1000", 16),
            ("thinktime=10ms\nthinktime_blocks=4", 30),
        ] {
            let begin = cx.now();
            let text = format!("[a]\nsize=64k\nrw=write\n{settings}\n");
            assert_good(&run(cx, &target, &text));
            let passed = cx.now().since(begin).0 / 1_000_000;
            assert!((ms - ms / 10..=ms).contains(&passed), "{settings}: {passed} ms");
        }
    });
}

/// A job whose operations take no time would never end in virtual time: it is told, not hung.
#[test]
fn a_clock_that_stands_still_is_told() {
    rt::testing::world(|cx| {
        let text = "[a]\nioengine=null\nsize=1m\nrw=read\ntime_based\nruntime=1\n";
        let report = run(cx, &memory_target(), text);
        assert!(report.jobs[0].error_text.contains("virtual time stands still"));
        assert_eq!(report.exit_status(), 1);
    });
}

/// What real fio prints for a job file, with masked numbers, is what ours prints.
#[test]
fn the_text_is_that_of_the_real_tool() {
    for text in GOLDEN {
        let (theirs, ours) = both_tools(text, &[]);
        assert_eq!(text_skeleton(&ours.text()), text_skeleton(&theirs), "{text}");
    }
}

#[test]
fn the_json_has_the_keys_of_the_real_tool() {
    for text in GOLDEN {
        for (format, bins) in [("json", false), ("json+", true)] {
            let option = format!("--output-format={format}");
            let (theirs, ours) = both_tools(text, &[&option]);
            assert_eq!(json_skeleton(&ours.json(bins)), json_skeleton(&theirs), "{text}");
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(&ours.json(bins));
            parsed.expect("our output is JSON");
        }
    }
}

#[test]
fn the_terse_lines_have_the_fields_of_the_real_tool() {
    for text in GOLDEN {
        let (theirs, ours) = both_tools(text, &["--output-format=terse"]);
        let fields = |text: &str| -> Vec<usize> {
            let lines = text.lines().filter(|line| line.starts_with("3;"));
            lines.map(|line| line.split(';').take(130).count()).collect()
        };
        assert_eq!(fields(&ours.terse()), fields(&theirs), "{text}");
        let names = |text: &str| -> Vec<String> {
            text.lines().filter_map(|line| Some(line.split(';').nth(2)?.to_owned())).collect()
        };
        assert_eq!(names(&ours.terse()), names(&theirs), "{text}");
    }
}

/// Job files that both tools run.
const GOLDEN: [&str; 6] = [
    "[reader]\nrw=read\nbs=4k\nsize=1m\n",
    "[global]\nsize=256k\nbs=4k\n[a]\nrw=write\n[b]\nstonewall\nrw=randread\nnumjobs=2\n",
    "[mixed]\nrw=randrw\nsize=1m\nbs=8k\nioengine=libaio\niodepth=4\nfsync=8\n",
    "[g]\nrw=write\nsize=128k\nnumjobs=3\ngroup_reporting\nthread\nbs=4k-16k,8k\n",
    "[few]\ndescription=some words\nrw=read\nsize=64k\npercentile_list=50:99\nnumjobs=1\n",
    "[nolat]\nrw=write\nsize=64k\nfallocate=none\nlat_percentiles=1\nclat_percentiles=0\n",
];

/// Runs a job file with the real tool and with ours, in directories in memory, where there are no
/// lines on disks.
fn both_tools(text: &str, options: &[&str]) -> (String, FioReport) {
    let text = text.replace("bs=4k-16k,8k", "bsrange=4k-16k,8k-8k");
    let theirs = place_in_memory();
    std::fs::write(theirs.path().join("job.fio"), &text).expect("the job file is written");
    let args: Vec<&str> = options.iter().copied().chain(["job.fio"]).collect();
    let (code, out, err) = tool("fio", "fio", theirs.path(), &args);
    assert_eq!(code, 0, "the real tool runs\n{text}\n{out}\n{err}");
    let ours = place_in_memory();
    let report = rt::testing::real(|cx| run(cx, &Target::host(ours.path()), &text));
    assert_good(&report);
    (out, report)
}

/// The text without what depends on the speed of the machine: numbers and what pads them, units of
/// time and size, which bands of latency and samples there are, how percentiles break into lines.
fn text_skeleton(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = masked(line.trim_end());
        let skips = ["  lat (nsec)", "  lat (usec)", "  lat (msec)", "   bw (", "   iops  "];
        if skips.iter().any(|skip| line.starts_with(skip)) {
            continue;
        }
        if line.starts_with("     |") {
            let count = line.matches("th=").count();
            match out.last_mut().filter(|last| last.starts_with("percentiles ")) {
                Some(last) => {
                    let before: usize = last[12..].parse().expect("a count");
                    *last = format!("percentiles {}", before + count);
                }
                None => out.push(format!("percentiles {count}")),
            }
            continue;
        }
        let mut line = line;
        for (from, to) in [
            ("(nsec)", "(T)"),
            ("(usec)", "(T)"),
            ("(msec)", "(T)"),
            ("#k", "#"),
            ("#M", "#"),
            ("KiB", "B"),
            ("MiB", "B"),
            ("GiB", "B"),
            ("#iB", "#B"),
            ("= #", "=#"),
            ("kB", "B"),
            ("MB", "B"),
            ("GB", "B"),
        ] {
            line = line.replace(from, to);
        }
        for day in ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] {
            if let Some(at) = line.find(&format!(": {day} ")) {
                line.truncate(at);
            }
        }
        out.push(line);
    }
    out.join("\n")
}

/// The keys in order. What our output leaves out by design, and the bins, are not compared.
fn json_skeleton(text: &str) -> Vec<String> {
    let start = text.find('{').expect("JSON");
    let mut keys = Vec::new();
    for line in text[start..].lines() {
        let Some(key) = line.trim().strip_prefix('"').and_then(|rest| rest.split('"').next())
        else {
            continue;
        };
        let bin =
            key.bytes().all(|byte| byte.is_ascii_digit()) && line.starts_with(&" ".repeat(12));
        if !bin {
            keys.push(key.to_owned());
        }
    }
    keys.retain(|key| key != "disk_util");
    keys
}

/// A list of operations that one run wrote moves the same bytes to the same places in another one,
/// at the same times.
#[test]
fn a_list_of_operations_is_written_and_replayed() {
    rt::testing::world(|cx| {
        let target = memory_target();
        let text = "[a]\nrw=randwrite\nsize=64k\nrate_iops=100\nfilename=f\nwrite_iolog=list\n";
        let first = run(cx, &target, text);
        let (name, list) = first.logs().next().expect("a list").clone();
        assert_eq!((name.as_str(), list.lines().count()), ("list", 1 + 2 + 16 + 1));
        let include = |name: &str| match name {
            "list" => Ok(list.clone()),
            _ => Err("no such file".to_string()),
        };
        let around = fio::Surroundings { include: &include, ..Default::default() };
        let again = "[b]\nread_iolog=list\nwrite_iolog=list\n";
        let file = JobFile::parse_in("t", again, &[], &around, false).expect("a good job file");
        let begin = cx.now();
        let second = fio::run(cx, &target, &file, &Stop::never());
        assert_good(&second);
        assert_eq!(cx.now().since(begin), Nanos::from_millis(150));
        assert_eq!(second.logs().next().expect("a list").1, list);
        let missing = "[b]\nread_iolog=nowhere\n";
        let errors = JobFile::parse_in("t", missing, &[], &around, false).unwrap_err();
        assert!(errors.to_string().contains("t:2:12: read_iolog: `nowhere`: no such file"));
    });
}

/// Logs have fio's names and fields; averaged ones have one line for each interval.
#[test]
fn logs_have_the_shape_of_the_real_tool() {
    rt::testing::world(|cx| {
        let target = memory_target();
        let text = "[a]\nrw=write\nsize=64k\nrate_iops=100\nwrite_bw_log=x\nwrite_lat_log\n";
        let names: Vec<String> =
            run(cx, &target, text).logs().map(|(name, _)| name.clone()).collect();
        let expected = ["x_bw.1.log", "a_slat.1.log", "a_clat.1.log", "a_lat.1.log"];
        assert_eq!(names, expected);
        let text = "[a]\nrw=write\nsize=64k\nrate_iops=100\nwrite_iops_log\nlog_avg_msec=50\n";
        let report = run(cx, &target, text);
        let (_, log) = report.logs().next().expect("a log");
        assert_eq!(
            log,
            "50, 100, 1, 0, 0\n100, 100, 1, 0, 0\n150, 100, 1, 0, 0\n200, 20, 1, 0, 0\n"
        );
    });
}

/// What a device loses, tears or changes after a write, the check finds; a sound device passes.
#[test]
fn a_corrupted_block_is_found() {
    use block::Op;
    use device::{Fault, FaultDevice, Rule};
    let faults = [
        None,
        Some(Rule { skip: 3, ..Rule::on(Op::Write, 0..u64::MAX, Fault::Torn(3)) }),
        Some(Rule { skip: 3, ..Rule::on(Op::Write, 0..u64::MAX, Fault::Lost) }),
        Some(Rule { count: 3, ..Rule::on(Op::Read, 0..u64::MAX, Fault::BitFlip) }),
    ];
    for (method, kind) in
        [(0, "crc32c"), (1, "sha256"), (2, "crc16"), (3, "crc32"), (0, "sha512"), (1, "md5")]
    {
        rt::testing::world(|cx| {
            let memory = Arc::new(MemoryDevice::new(32 << 20));
            let faulty = Arc::new(FaultDevice::new(cx.runtime(), memory));
            let queue =
                Queue::new(cx.runtime(), faulty.clone(), QueueConfig::elevator("none")).unwrap();
            make_ext4(cx, &queue);
            let (target, _fs) = mount_ext4(cx, &queue);
            // Direct writes go to the device one by one; only they meet the fault.
            let text = format!(
                "[v]\nrw=randwrite\nsize=256k\nbs=16k\ndirect=1\nverify={kind}\nverify_fatal=1\n"
            );
            let file = JobFile::parse(&text, &[]).unwrap();
            fio::lay_out(cx, &target, &file).unwrap();
            if let Some(rule) = &faults[method] {
                faulty.add(rule.clone());
            }
            let report = fio::run(cx, &target, &file, &Stop::never());
            let found = report.jobs[0].error_text.contains("verify: ");
            assert_eq!(found, method != 0, "{kind} {method}: {}", report.jobs[0].error_text);
        });
    }
}

/// Bad job files, made from good ones by random changes, give errors or jobs, and never a panic.
#[test]
fn mutated_job_files_never_panic() {
    let mut rng = base::Rng::new(rt::testing::seed_or(1), 1);
    let pieces: Vec<&[u8]> = vec![
        b"=",
        b"[",
        b"]",
        b"\n",
        b"%",
        b",",
        b"-",
        b":",
        b"/",
        b"*",
        b"0x",
        b"18446744073709551615",
        b"k",
        b"\xff",
        b"${",
        b"}",
        b"$ncpus",
        b"include x\n",
        b"#",
        b";",
        b" ",
        b"\0",
        b"1e9",
        b"bssplit=",
        b"verify_pattern=0x",
        b"random_distribution=zipf:",
        b"rw=randrw:",
    ];
    for _ in 0..4000 {
        let mut text = rng.pick(&GOLDEN).as_bytes().to_vec();
        for _ in 0..1 + rng.below(6) {
            let at = rng.below(text.len() as u64 + 1) as usize;
            match rng.below(3) {
                0 => drop(text.splice(at..at, rng.pick(&pieces).iter().copied())),
                1 if at < text.len() => text[at] = rng.next_u32() as u8,
                _ => text.truncate(at.max(1)),
            }
        }
        let text = String::from_utf8_lossy(&text);
        match JobFile::parse(&text, &[]) {
            Ok(file) => assert!(!file.jobs.is_empty()),
            Err(errors) => assert!(!errors.to_string().is_empty()),
        }
    }
}
