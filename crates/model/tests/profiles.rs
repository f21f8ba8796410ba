//! Profiles: the built-in ones are whole and cite their sources; a wrong one is told exactly.

use model::{DeviceSpec, Profile, ProfileError, names};
use rt::Charge;

#[test]
fn every_number_of_a_built_in_profile_has_a_source() {
    for name in names() {
        let profile = Profile::load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(profile.name, name);
        assert!(profile.description.len() > 20 && profile.source.len() > 10, "{name}");
        assert!(profile.parameters.len() > 20, "{name}: {}", profile.parameters.len());
        for parameter in &profile.parameters {
            let text = ["machine.name", "machine.description", "machine.source"];
            let free = text.contains(&&*parameter.key) || parameter.key.ends_with(".kind");
            let source = parameter.source.as_deref().unwrap_or_default();
            assert!(free || source.len() > 5, "{name}: {} has no source", parameter.key);
        }
    }
    assert_eq!(names().count(), 10);
}

#[test]
fn the_array_is_that_of_the_document() {
    let array = Profile::load("array-2010").unwrap();
    let DeviceSpec::Array(params) = &array.device else { panic!("an array") };
    assert_eq!(params.stream_rate.0, 151_400_000);
    assert_eq!((array.hz, array.cpus, array.memory), (1000, 4, 8 << 30));
    assert!(array.charges.get(Charge::ContextSwitch).0 > 0);
    assert_eq!(array.queue_config("deadline").nr_requests, 128);
    assert_eq!(array.world_config(7).seed, 7);
}

const GOOD: &str = r#"
[machine]
name = "mine"
description = "A memory disk"
source = "me"

[device]
kind = "memory"
read_latency = "1 us"
write_latency = { value = "2 us", source = "a guess" }
rate = "1 GB/s"
"#;

fn error(text: &str) -> String {
    Profile::parse(text, "my.toml").map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_user_s_profile_is_read_from_its_file() {
    let dir = std::env::temp_dir().join(format!("iopath-model-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("mine.toml");
    std::fs::write(&path, GOOD).unwrap();
    let profile = Profile::load(path.to_str().unwrap()).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!((&*profile.name, profile.cpus, profile.page_size), ("mine", 4, 4096));
    let source = |key| {
        let found = profile.parameters.iter().find(|parameter| parameter.key == key);
        found.and_then(|parameter| parameter.source.as_deref())
    };
    assert_eq!(source("device.write_latency"), Some("a guess"));
    assert!(profile.charges.is_free());
}

/// Goal: each kind of mistake is told with file, line, key, value and what would be right.
#[test]
fn mistakes_are_told_where_they_are() {
    let cases = [
        (
            "rate = \"1 GB/s\"",
            "rate = \"1 GB\"",
            "my.toml:11: `device.rate` is \"1 GB\"; give a rate",
        ),
        ("\"1 us\"", "\"1 mm\"", "my.toml:9: `device.read_latency` is \"1 mm\"; give a time"),
        ("\"1 us\"", "1000", "my.toml:9: `device.read_latency` is 1000; give a time with its unit"),
        ("rate =", "speed =", "my.toml:7: `device.rate` is missing; give a rate"),
        (
            "rate =",
            "size = \"1 MB\"\nrate =",
            "my.toml:11: `device.size` is not known here; known are: kind, read_latency, \
             write_latency, rate",
        ),
        ("\"memory\"", "\"tape\"", "my.toml:8: `device.kind` is \"tape\"; give one of \"array\""),
        ("source = \"me\"", "", "my.toml:2: `machine.source` is missing; give a text"),
        (
            "source = \"me\"",
            "source = \"me\"\ncpus = 0",
            "`machine.cpus` is 0; give a whole number from 1",
        ),
        (
            "source = \"me\"",
            "source = \"me\"\npage_size = \"5 KiB\"",
            "`machine.page_size` is \"5 KiB\"; give a power of two",
        ),
        ("[device]", "[disk]", "my.toml:7: `disk` is not known here; known are: machine, device"),
        ("source = \"a guess\"", "from = \"a guess\"", "my.toml:10: `device.write_latency` is"),
        ("[device]", "[device", "my.toml:7: "),
        (
            "source = \"me\"",
            "source = \"me\"\n[cpu]\nsycall = \"1 us\"",
            "`cpu.sycall` is not known",
        ),
    ];
    for (from, to, message) in cases {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from} is in the text");
        let error = match Profile::parse(&text, "my.toml") {
            Err(error) => error.to_string(),
            Ok(_) => panic!("accepted: {to}"),
        };
        assert!(error.contains(message), "{to}:\n  is     {error}\n  wanted {message}");
    }
    assert!(error("").contains("is missing; write a section ["));
}

#[test]
fn what_does_not_exist_or_fit_is_refused() {
    let missing = Profile::load("no-such-machine").map(|_| ()).unwrap_err();
    assert!(matches!(missing, ProfileError::NotFound { .. }));
    let text = missing.to_string();
    assert!(text.contains("no-such-machine") && text.contains("array-2010, disk-7200"), "{text}");
    let disk = Profile::load("disk-7200").unwrap();
    let world = rt::World::new(disk.world_config(0));
    let memory = std::sync::Arc::new(device::MemoryDevice::new(600_000_000_000));
    let error = disk.device(&world.runtime(), memory).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("600000000000 bytes do not fit"), "{error}");
}

/// Goal: relations between keys are checked. Method: one key of the disk changed at a time.
#[test]
fn values_that_contradict_each_other_are_refused() {
    let text = include_str!("../profiles/disk-7200.toml");
    for (key, value, accepted) in [
        ("inner_track_sectors", "2000", "give at most outer_track_sectors"),
        ("full_seek", "\"1 ms\"", "give at least average_seek"),
        ("zones", "0", "give a whole number from 1 to 1024"),
        ("segment_size", "\"100 B\"", "give whole sectors"),
    ] {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        let changed = text.replace(line, &format!("{key} = {value}"));
        let error = error(&changed);
        assert!(error.contains(key) && error.contains(accepted), "{error}");
    }
}
