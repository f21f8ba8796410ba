//! Every built-in experiment is read and planned; what is wrong in a file is named with its place.

use lab::experiment::{Experiment, Plan, RunKey, RunSpec, Size};

const SMALL: &str = include_str!("small.toml");

#[test]
fn every_experiment_is_read_and_plans_each_run_once() {
    for name in lab::experiments() {
        let experiment = Experiment::load(name).unwrap_or_else(|error| panic!("{error}"));
        let quick = experiment.runs(&Plan::default()).unwrap();
        let plan = Plan { size: Size::Full, ..Plan::default() };
        let full = experiment.runs(&plan).unwrap();
        lab::programs::of(&experiment).map(drop).unwrap_or_else(|what| panic!("{name}: {what}"));
        let known = |key: &RunKey| quick.iter().any(|spec| spec.key == *key);
        assert!(!quick.is_empty() && full.iter().any(|spec| !known(&spec.key)), "{name}");
        let mut keys: Vec<RunKey> = full.iter().flat_map(RunSpec::keys).collect();
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all, "{name}: a run is planned twice");
    }
}

#[test]
fn file_systems_of_a_full_run_are_in_no_quick_one() {
    let experiment = Experiment::load("cfq-yield").unwrap();
    let of_ext3 = |size: Size| {
        let runs = experiment.runs(&Plan { size, ..Plan::default() }).unwrap();
        let ext3 = runs.into_iter().filter(|spec| spec.key.filesystem == "ext3");
        let swept = ext3.clone().filter(|spec| spec.key.point.is_some()).count();
        (ext3.filter(|spec| spec.key.variant == "relay").count(), swept)
    };
    assert_eq!(of_ext3(Size::Quick), (0, 0));
    let (relay, swept) = of_ext3(Size::Full);
    assert!(relay > 0 && swept > relay, "{relay} {swept}");
}

#[test]
fn the_thread_on_cfq_has_one_calibrated_row_and_all_its_cells() {
    let experiment = Experiment::load("cfq-yield").unwrap();
    let cells = &experiment.file.cell;
    assert_eq!(cells.len(), 12);
    for cell in cells {
        // No figure of CFQ has chosen anything.
        assert_eq!(cell.fixes.is_some(), cell.cell.get_ref().variant == "deadline");
    }
    let vanilla =
        cells.iter().find(|cell| cell.cell.get_ref().to_string() == "vanilla.alone.files");
    let vanilla = vanilla.expect("the cell is there");
    assert_eq!((vanilla.published, vanilla.also.as_slice()), (107.88, &[106.7][..]));
    let args = experiment.file.workload["fs_mark"].args.as_ref().unwrap().get_ref();
    assert_eq!(
        args,
        "fs_mark -S 1 -D 10000 -N 100000 -d /mnt/test/fs_mark -s 65536 -t 1 -w 4096 -F"
    );
}

/// The error of the small experiment with one text replaced.
fn error(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from} is not in the small experiment");
    let text = SMALL.replacen(from, to, 1);
    Experiment::parse("small", "small.toml", &text).expect_err(to).to_string()
}

#[test]
fn one_wrong_value_is_named_with_file_line_and_what_would_do() {
    let line = |text: &str| SMALL.lines().position(|line| line.contains(text)).unwrap() + 1;
    let cases = [
        ("schema = 1", "schema = 9", "schema 9 is not known"),
        ("elevator = \"deadline\"", "elevator = \"dead\"", "no elevator `dead`; there are: none"),
        (
            "like = \"deadline\"",
            "like = \"nobody\"",
            "no variant `nobody`; there are: cfq, deadline",
        ),
        ("run = [\"fs_mark\"]", "run = [\"fs\"]", "no workload `fs`; there are: fs_mark"),
        ("value = \"files_per_second\"", "value = \"speed\"", "`speed` is no figure"),
        ("mount = \"barrier=0\"", "mount = \"barrier=9\"", "barrier=flush|drain|0"),
        ("type = \"ext4\"", "type = \"btrfs\"", "unknown file system type btrfs"),
        ("-n 20", "-n 4k", "4k"),
        ("within = [0.5, 2.0]", "within = [2.0, 0.5]", "2 to 0.5 is no range"),
        ("\"cfq.alone.rate / deadline", "\"cfq.alone.speed / deadline", "no metric `speed`"),
        ("slice_idle = 4", "slice_idol = 4", "cfq has no tunable `slice_idol`"),
        ("device = \"256 MiB\"", "device = \"256\"", "`256` is no size"),
        ("[seeds]\nquick = \"1\"", "[seeds]\nquick = \"2..1\"", "empty range"),
        ("unit = \"files/s\"", "units = \"files/s\"", "unknown field `units`"),
    ];
    for (from, to, message) in cases {
        let found = error(from, to);
        assert!(found.contains(message), "{to}: {found}");
        assert!(found.starts_with("small.toml:"), "{found}");
    }
    let place = format!("small.toml:{}:", line("like = \"deadline\""));
    assert!(error("like = \"deadline\"", "like = \"cfq\"").contains("is like itself"));
    assert!(error("like = \"deadline\"", "like = \"nobody\"").starts_with(&place));
}

#[test]
fn a_name_that_nothing_has_is_answered_with_the_names_there_are() {
    let error = Experiment::load("cfq-yeld").unwrap_err().to_string();
    assert!(error.contains("`cfq-yeld`") && error.contains("cfq-yield"), "{error}");
    let error = Experiment::load("/no/such.toml").unwrap_err().to_string();
    assert!(error.starts_with("/no/such.toml: "), "{error}");
    let plan = Plan { variants: vec!["patch".to_owned()], ..Plan::default() };
    let small = Experiment::parse("small", "small.toml", SMALL).unwrap();
    let error = small.runs(&plan).unwrap_err().to_string();
    assert_eq!(error, "small has nothing for `--variant patch`; there are: cfq, deadline");
}

/// Goal: what is wrong for a program is named before anything is run. Method: one text replaced in
/// the file of a small one.
#[test]
fn what_is_no_case_variant_or_figure_of_a_program_is_named() {
    let text = include_str!("small-program.toml");
    for (from, to, message) in [
        ("program = \"nfs-partial\"", "program = \"nfs\"", "no program `nfs`; there are: bh-lru"),
        ("block = \"2 KiB\"", "block = \"2 KiB\"\nblocks = 1", "unknown field `blocks`"),
        ("value = \"hits\"", "value = \"hit\"", "metric hits: `hit` is no figure"),
        ("[variant.ranges]", "[variant.range]", "modes are off, request, rmw, ranges"),
        ("cases = [\"document\", \"whole\"]\nmetrics", "cases = [\"whose\"]\nmetrics", "no case"),
    ] {
        assert!(text.contains(from), "{from}");
        let text = text.replace(from, to).replace(
            "\"ranges\"",
            match to {
                "[variant.range]" => "\"range\"",
                _ => "\"ranges\"",
            },
        );
        let text = if to == "[variant.range]" { text.replace("ranges.*", "range.*") } else { text };
        let experiment = Experiment::parse("small", "small-program.toml", &text);
        let error = match experiment {
            Ok(experiment) => lab::programs::of(&experiment).map(drop).expect_err(to),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(message), "{to}: {error}");
    }
    let error = error("[seeds]", "[with]\nblock = 1\n\n[seeds]");
    assert!(error.contains("for programs"), "{error}");
}

#[test]
fn a_star_means_all_names_that_begin_so() {
    let experiment = Experiment::load("bh-lru").unwrap();
    let cases = |wanted: &str| {
        let plan = Plan { cases: vec![wanted.to_owned()], ..Plan::default() };
        experiment.runs(&plan).map(|runs| runs.len())
    };
    assert_eq!((cases("curve-*"), cases("curve-ext3"), cases("d-*")), (Ok(7), Ok(1), Ok(2)));
    assert!(cases("curves*").unwrap_err().to_string().contains("--case curves*"));
}

/// Goal: a file starts from a built-in experiment, adds a variant and replaces lists; what is wrong
/// in it has its own line.
#[test]
fn a_file_inherits_what_it_does_not_say() {
    let text = "like = \"cfq-yield\"\nsweep = []\n\n[variant.mine]\nlike = \"patched\"\n\n\
                [[table]]\ntitle = \"Mine\"\nfilesystems = [\"ext4\"]\n\
                variants = [\"mine\", \"relay\"]\ncolumns = [\"alone.files\"]\n";
    let experiment = Experiment::parse("mine", "mine.toml", text).unwrap();
    let base = Experiment::load("cfq-yield").unwrap();
    assert_ne!(experiment.digest, base.digest);
    assert_eq!(experiment.file.variant.len(), base.file.variant.len() + 1);
    let elevator = experiment.variant("mine").elevator.map(|name| name.get_ref().clone());
    assert_eq!(elevator.as_deref(), Some("cfq"));
    assert_eq!((experiment.file.table.len(), experiment.file.sweep.len()), (1, 0));
    assert_eq!(experiment.file.cell.len(), base.file.cell.len());
    for (from, to, message) in [
        ("cfq-yield", "cfq-yeld", "no experiment \"cfq-yeld\"; there are: bh-lru, cfq-yield"),
        ("like = \"patched\"", "like = \"patchy\"", "mine.toml:5:8: there is no variant `patchy`"),
        ("title = \"Mine\"", "titel = \"Mine\"", "unknown field `titel`"),
        ("sweep = []", "sweep = [", "mine.toml:"),
    ] {
        let text = text.replacen(from, to, 1);
        let error = Experiment::parse("mine", "mine.toml", &text).unwrap_err().to_string();
        assert!(error.contains(message), "{to}: {error}");
    }
}

/// Goal: a sweep varies any number of the machine and any mount option that takes a number; one
/// that the machine or the file system does not have is refused with its place.
#[test]
fn any_number_of_the_machine_is_varied() {
    let vary = "vary = { option = { workload = \"fs_mark\", option = \"-s\" } }\nunit = \"bytes\"";
    let values = "values = [4096, 65536, 262144]\nquick = [4096, 65536]";
    let with = |what: &str, unit: &str, numbers: &str| {
        assert!(SMALL.contains(vary) && SMALL.contains(values));
        let new = format!("vary = {{ {what} }}\nunit = \"{unit}\"");
        let numbers = format!("values = [{numbers}]\nquick = [{numbers}]");
        let text = SMALL.replacen(vary, &new, 1).replacen(values, &numbers, 1);
        Experiment::parse("small", "small.toml", &text).map_err(|error| error.to_string())
    };
    let swept = |experiment: Experiment| {
        let specs = experiment.runs(&Plan::default()).unwrap();
        specs.into_iter().filter(|spec| spec.key.point.is_some()).collect::<Vec<_>>()
    };
    let specs = swept(with("machine = \"device.write_latency\"", "us", "100, 900").unwrap());
    let profile = model::Profile::load("array-2010").unwrap();
    let latency = |spec: &RunSpec| {
        let varied = spec.machine[0].apply(&profile).unwrap();
        let own = varied.parameters.iter().find(|one| one.key == "device.write_latency");
        own.unwrap().value.clone()
    };
    let mut latencies: Vec<String> = specs.iter().map(latency).collect();
    latencies.sort();
    latencies.dedup();
    assert_eq!(latencies, ["100 us", "900 us"]);
    let specs = swept(with("mount = \"commit\"", "s", "1, 5").unwrap());
    assert!(
        specs.iter().any(|spec| spec.variant.mount.text() == "barrier=0,commit=5"),
        "{specs:?}"
    );
    for (what, unit, message) in [
        ("machine = \"device.rpm\"", "", "`device.rpm` is not known here"),
        ("machine = \"disk.rpm\"", "", "no section for `disk.rpm`"),
        ("machine = \"device.write_latency\"", "parsecs", "`device.write_latency` is"),
        ("mount = \"comit\"", "s", "comit"),
    ] {
        let error = with(what, unit, "1").expect_err(what);
        assert!(error.starts_with("small.toml:") && error.contains(message), "{what}: {error}");
    }
}
