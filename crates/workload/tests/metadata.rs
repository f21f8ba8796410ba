//! mdtest and mds-survey on our path, in both clocks.

mod common;

use common::{ext4_in_memory, masked, memory_target};
use rt::Cx;
use vfs::Namespace;
use workload::mdtest::{self, Operation};
use workload::{Stop, Target, TextSink, mds_survey};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn mdtest(cx: &mut Cx, target: &Target, line: &str) -> (mdtest::Report, TextSink) {
    let options = mdtest::Options::parse(&words(line)).expect("a good command line");
    let mut sink = TextSink::default();
    let report = mdtest::run(cx, target, &options, &Stop::never(), &mut sink);
    (report, sink)
}

fn survey(cx: &mut Cx, target: &Target, line: &str) -> (mds_survey::Report, TextSink) {
    let options = mds_survey::Options::parse(&words(line)).expect("good settings");
    let mut sink = TextSink::default();
    let report = mds_survey::run(cx, target, &options, &Stop::never(), &mut sink);
    (report, sink)
}

/// Names below a directory of our path, directories too.
fn names_below(cx: &mut Cx, target: &Target, path: &str) -> Vec<String> {
    let Target::Ours(ns, _) = target else { panic!("our path only") };
    let mut found = Vec::new();
    for (name, _) in ns.list(cx, path.as_bytes()).expect("the directory lists") {
        let name = String::from_utf8(name).expect("text");
        if name == "." || name == ".." || name == "lost+found" {
            continue;
        }
        let whole = format!("{}/{name}", path.trim_end_matches('/'));
        if ns.stat(cx, whole.as_bytes()).expect("a listed name exists").is_dir() {
            found.extend(names_below(cx, target, &whole));
        }
        found.push(whole);
    }
    found.sort();
    found
}

/// All phases, over tasks, shared and unique trees, deep trees, strides: nothing is left.
#[test]
fn mdtest_does_all_phases_and_leaves_nothing() {
    rt::testing::both(|cx| {
        let lines = [
            ("-n 40 -d /md", 40),
            ("--tasks 3 -n 30 -d /md -u -N 1", 3 * 30),
            ("--tasks 2 -I 7 -z 2 -b 3 -L -d /md -i 2", 2 * 63),
            ("--tasks 4 -n 20 -d /a/b@/c -w 5000 -e 5000 -y -Y -R", 4 * 20),
            ("-np 2 -n 9 -z 1 -b 2 -u -d /md -P", 2 * 9),
            ("--tasks 2 -n 9 -d /md --prefill 300 -i 2", 2 * 9),
        ];
        let (target, fs) = ext4_in_memory(cx, 64 << 20);
        for (line, items) in lines {
            let (report, sink) = mdtest(cx, &target, line);
            assert_eq!((report.failure, sink.err.as_str()), (None, ""), "{line}");
            let rows: Vec<Operation> = report.rows.iter().map(|row| row.operation).collect();
            assert_eq!(rows, Operation::ALL, "{line}");
            let made = report.rows.iter().find(|row| row.operation == Operation::FileCreate);
            assert_eq!(made.map(|row| row.items), Some(items), "{line}");
            let left = names_below(cx, &target, "/");
            assert!(left.iter().all(|name| !name.contains("mdtest")), "{line}: {left:?}");
        }
        fs.unmount(cx).expect("a clean end");
    });
}

/// Creating alone leaves the tree of the tool's names.
#[test]
fn mdtest_names_are_those_of_the_tool() {
    rt::testing::world(|cx| {
        let target = memory_target();
        let (report, _) = mdtest(cx, &target, "--tasks 2 -C -I 1 -z 1 -b 2 -d /md");
        assert_eq!(report.failure, None);
        let top = "/md/test-dir.0-0/mdtest_tree.0";
        let found = names_below(cx, &target, "/md");
        for folder in ["", "/mdtest_tree.1", "/mdtest_tree.2"] {
            let item = ["", "/mdtest_tree.1", "/mdtest_tree.2"]
                .iter()
                .position(|name| *name == folder)
                .expect("one of them");
            for rank in 0..2 {
                for kind in ["file", "dir"] {
                    let name = format!("{top}{folder}/{kind}.mdtest.{rank}.{item}");
                    assert!(found.contains(&name), "{name} is not in {found:?}");
                }
            }
        }
        // Stat, and then removal, find what an earlier run has made.
        let (report, _) = mdtest(cx, &target, "--tasks 2 -T -N 1 -I 1 -z 1 -b 2 -d /md");
        assert_eq!(report.failure, None);
        let (report, sink) = mdtest(cx, &target, "--tasks 2 -T -n 5 -d /none");
        assert_eq!(report.exit_status(), 1);
        assert!(sink.err.contains("No such file or directory"), "{}", sink.err);
    });
}

/// A directory is filled before the items come, in each of the directories that hold some, and what
/// filled it is no item.
#[test]
fn mdtest_works_in_directories_that_are_full_already() {
    rt::testing::world(|cx| {
        let target = memory_target();
        let line = "-C -F -I 2 -z 1 -b 2 -L --prefill 40 -d /md";
        let (report, _) = mdtest(cx, &target, line);
        let made = report.rows.iter().find(|row| row.operation == Operation::FileCreate);
        assert_eq!(made.map(|row| row.items), Some(4));
        let found = names_below(cx, &target, "/md");
        let filled = found.iter().filter(|name| name.contains("/prefill.")).count();
        assert_eq!(filled, 80);
        let last = "/md/test-dir.0-0/mdtest_tree.0/mdtest_tree.2/prefill.39".to_owned();
        assert!(found.contains(&last), "{found:?}");
        let (report, _) = mdtest(cx, &target, "-r -F -I 2 -z 1 -b 2 -L --prefill 40 -d /md");
        assert_eq!(report.failure, None);
        assert!(names_below(cx, &target, "/md").iter().all(|name| !name.contains("mdtest")));
    });
}

/// The skeleton of the output, as captured from mdtest 4.1.
#[test]
fn mdtest_prints_what_the_tool_prints() {
    rt::testing::world(|cx| {
        let target = memory_target();
        let (_, sink) = mdtest(cx, &target, "--tasks 2 -F -n 3 -i 2 -d /md");
        let lines: Vec<&str> = sink.out.lines().collect();
        assert_eq!(masked(lines[0]), "-- started at #/#/# #:#:# --");
        assert_eq!(lines[2], "mdtest-4.1.0+dev was launched with 2 total task(s) on 1 node(s)");
        assert_eq!(lines[3], "Command line used: mdtest '-F' '-n' '3' '-i' '2' '-d' '/md'");
        assert!(lines[4].starts_with("WARNING: Read bytes is 0"));
        assert_eq!(&lines[5..7], ["Nodemap: 11", "Path                : /md"]);
        assert_eq!(lines[8], "2 tasks, 6 files");
        assert_eq!(lines[10], "SUMMARY rate (in ops/sec): (of 2 iterations)");
        let titles =
            "   Operation                     Max            Min           Mean        Std Dev";
        assert_eq!(lines[11], titles);
        let labels: Vec<&str> = lines[13..19].iter().map(|line| line[3..24].trim_end()).collect();
        assert_eq!(
            labels,
            [
                "File creation",
                "File stat",
                "File read",
                "File removal",
                "Tree creation",
                "Tree removal"
            ]
        );
        assert!(lines[13..19].iter().all(|line| line.len() == 85), "{}", sink.out);
        assert_eq!(masked(lines[19]), "-- finished at #/#/# #:#:# --");
    });
}

/// Every test on both layers, in one directory and in many; the lines are the script's.
#[test]
fn a_survey_runs_on_both_layers_and_leaves_nothing() {
    rt::testing::both(|cx| {
        let (target, fs) = ext4_in_memory(cx, 64 << 20);
        for layer in ["mdd", "osd"] {
            for dirs in [1, 2] {
                let line = format!("thrlo=2 thrhi=4 file_count=200 dir_count={dirs} layer={layer}");
                let (report, sink) = survey(cx, &target, &line);
                assert_eq!((report.failure, sink.err.as_str()), (None, ""), "{line}");
                assert_eq!(report.lines.len(), 2, "{line}");
                let first = &report.lines[0];
                let all = first.points.iter().all(|point| point.operations == 200);
                assert!(all && first.threads == 2 && first.points.len() == 5, "{line}");
                let text = sink.out.lines().nth(1).expect("a line");
                let head = format!("mdt 1 file     200 dir {dirs:4} thr    2 create ");
                assert!(text.starts_with(&head), "{text}");
                assert!(text.contains("] md_getattr "), "{text}");
                let raw = sink.log.lines().next().expect("a raw line");
                assert!(raw.starts_with("create: Total: total 200 threads 2 sec "), "{raw}");
                assert_eq!(names_below(cx, &target, "/"), Vec::<String>::new());
            }
        }
        fs.unmount(cx).expect("a clean end");
    });
}

#[test]
fn a_survey_of_the_host_is_refused() {
    rt::testing::real(|cx| {
        let (report, sink) = survey(cx, &Target::host("/"), "thrlo=4");
        assert_eq!(report.exit_status(), 1);
        assert!(sink.err.contains("our path"), "{}", sink.err);
    });
}

/// What labels and default lists a directory has, a file made by the workload has.
#[test]
fn files_inherit_list_and_label() {
    rt::testing::both(|cx| {
        let (target, fs) = ext4_in_memory(cx, 64 << 20);
        let names = Namespace::new(fs.clone()).labelled();
        let dir = names.mkdir(cx, b"/md", 0o755).expect("a directory");
        let label = b"system_u:object_r:usr_t:s0\0";
        let none = vfs::XattrFlags::empty();
        fs.setxattr(cx, dir.ino, b"security.selinux", label, none).expect("a label");
        let target = match target {
            Target::Ours(_, base) => Target::Ours(names, base),
            host => host,
        };
        let (report, _) = mdtest(cx, &target, "-F -C -n 3 -d /md");
        assert_eq!(report.failure, None);
        let Target::Ours(ns, _) = &target else { panic!("our path") };
        let file = b"/md/test-dir.0-0/mdtest_tree.0/file.mdtest.0.2";
        assert_eq!(ns.getxattr(cx, file, b"security.selinux"), Ok(label.to_vec()));
        fs.unmount(cx).expect("a clean end");
    });
}
