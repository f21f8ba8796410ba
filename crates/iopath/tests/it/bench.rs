//! `iopath bench`: fs_mark and fio on the host, on an image and on a modelled machine.

use std::fs;
use std::path::Path;

use crate::command::{iopath_in as iopath, ok_in as ok};
use serde_json::Value;

#[track_caller]
fn refused(directory: &Path, line: &str, part: &str) {
    let output = iopath(directory, line);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "iopath {line}: {error}");
    assert!(error.contains(part), "iopath {line}: `{part}` is not in\n{error}");
}

fn bed() -> tempfile::TempDir {
    let bed = tempfile::tempdir().expect("a directory");
    ok(bed.path(), "mkfs -q -t ext4 --size 64M disk.img");
    bed
}

/// Goal: each place is reached by its name, and the files are where the options say.
#[test]
fn fs_mark_runs_on_the_host_on_an_image_and_on_a_machine() {
    let bed = bed();
    let place = bed.path();
    let out = ok(place, "bench fs_mark -d here -n 5 -s 100 -k");
    assert!(out.contains("#  fs_mark  -d  here  -n  5  -s  100  -k \n"), "{out}");
    assert_eq!(fs::read_dir(place.join("here")).expect("a directory").count(), 5);
    assert!(fs::read_to_string(place.join("fs_log.txt")).expect("a log").contains("FSUse%"));
    ok(place, "bench fs_mark -d disk.img:/a/b -n 7 -s 100 -k");
    ok(place, "bench --target disk.img:/a fs_mark -d c -n 3 -s 100 -k");
    assert_eq!(ok(place, "ls disk.img:/a/b").lines().count(), 7);
    assert_eq!(ok(place, "ls disk.img:/a/c").lines().count(), 3);
    assert!(ok(place, "check disk.img").contains("clean"));
    let line = "bench --target sim:ram --fs ext3 --seed 3 --size 256M fs_mark -d /x -n 20 -l l";
    assert_eq!(ok(place, line), ok(place, line), "one seed gives one run");
}

/// Goal: a run can be ended by its own clock, and figures come as JSON.
#[test]
fn a_run_ends_on_its_own_clock_and_tells_json() {
    let bed = bed();
    let line = "bench --json --target sim:disk-7200 --stop-after 2s fs_mark -d /a -F -l l";
    let output = ok(bed.path(), line);
    let document: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(document["stopped"], true);
    assert_eq!(document["iterations"][0]["complete"], false);
    let files = document["iterations"][0]["files"].as_u64().expect("a number");
    assert!((10..2000).contains(&files), "{files} files");
}

/// Goal: job files, changes of them and fio's own command line; logs and output go to files.
#[test]
fn fio_runs_job_files_and_command_lines() {
    let bed = bed();
    let place = bed.path();
    fs::write(place.join("job.fio"), "[a]\nrw=randwrite\nsize=1m\nwrite_lat_log=l\n").expect("");
    let out = ok(place, "bench fio job.fio --bs=8k");
    assert!(out.starts_with("a: (g=0): rw=randwrite, bs=(R) 8192B-8192B"), "{out}");
    assert_eq!(fs::read_to_string(place.join("l_lat.1.log")).expect("a log").lines().count(), 128);
    let line = "bench --target disk.img fio --output-format=json --output=o.json --name=b \
                --rw=read --size=1m --filename=f";
    assert_eq!(ok(place, line), "");
    let text = fs::read_to_string(place.join("o.json")).expect("the output");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["jobs"][0]["read"]["io_bytes"], 1 << 20);
    assert!(ok(place, "stat disk.img:/f").contains("1048576"));
    let line = "bench --target sim:flash-nvme --size 256M fio --minimal --name=r --rw=randread \
                --size=4m --direct=1 --ioengine=io_uring --iodepth=8";
    let first = ok(place, line);
    assert!(first.starts_with("3;fio-3.33;r;0;0;4096;"), "{first}");
    assert_eq!(first, ok(place, line), "one seed gives one run");
}

/// Goal: what is not supported is refused by its name, and typing errors are explained.
#[test]
fn mistakes_are_told() {
    let bed = bed();
    let place = bed.path();
    fs::write(place.join("bad.fio"), "[a]\nsize=1m\nrwmxread=3\n").expect("a file");
    refused(place, "bench fio bad.fio", "bad.fio:3:1: Bad option <rwmxread=3>");
    refused(place, "bench fio bad.fio", "Did you mean rwmixread?");
    let job = "bench fio --name=a --size=1m";
    refused(place, &format!("{job} --latency_target=3"), "not supported by the fio front end");
    refused(place, &format!("{job} --client=x"), "--client: not supported by the fio front end");
    refused(place, "bench fio", "no jobs are defined");
    refused(place, "bench fio nowhere.fio", "nowhere.fio");
    refused(place, "bench fs_mark -d a -Z", "fs_mark: invalid option -- 'Z'");
    refused(place, "bench --seed 3 fs_mark -d a", "--seed belongs to a modelled machine");
    refused(place, "bench --target sim:nothing fs_mark -d a", "disk-7200");
    refused(place, "bench --target sim:ram?sed=3 fs_mark -d a", "`sed=3` is not known");
    refused(place, "bench --target nowhere.img fs_mark -d a", "`host`, an image or `sim:PROFILE`");
    refused(place, "bench fs_mark -d disk.img:/a -d b", "one run has one place");
    let lenient = "bench --compat lenient fio --name=a --size=64k --rw=write --cpus_allowed=1";
    ok(place, lenient);
    refused(place, &lenient.replace("lenient", "strict"), "--compat=lenient passes over it");
}
