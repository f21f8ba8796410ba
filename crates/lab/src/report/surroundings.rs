//! The conditions of runs: program, host, machine, file systems, workloads, variants, seeds.

use crate::experiment::{self, Experiment, Size};
use crate::record::{Made, RunRecord};

/// What is named by the records, each once.
fn distinct(records: &[RunRecord], of: impl Fn(&Made) -> String) -> String {
    let mut all: Vec<String> = records.iter().map(|record| of(&record.made)).collect();
    all.sort();
    all.dedup();
    all.join("; ")
}

/// The machine in words.
pub fn machine(experiment: &Experiment) -> String {
    if experiment.file.machine.is_at_hand() {
        return "the machine at hand".to_owned();
    }
    let name = experiment.file.machine.profile.get_ref();
    match model::Profile::load(name) {
        Ok(profile) => format!("{name}: {}", profile.description),
        Err(_) => name.clone(),
    }
}

/// Everything that the runs rest on: name and value.
pub fn surroundings(experiment: &Experiment, records: &[RunRecord]) -> Vec<(String, String)> {
    let file = &experiment.file;
    let mut all = vec![
        ("program".to_owned(), distinct(records, |made| made.build.to_string())),
        ("host".to_owned(), distinct(records, |made| made.host.clone())),
        ("experiment".to_owned(), format!("{} (text {})", experiment.source, experiment.digest)),
        ("machine".to_owned(), machine(experiment)),
    ];
    if !file.machine.is_at_hand() {
        let digests = distinct(records, |made| made.machine.clone());
        all.push(("digest of the machine".to_owned(), digests));
    }
    let measured = file.case.values().any(|case| case.measured);
    if !measured {
        all.insert(0, ("time".to_owned(), "virtual: the same seed gives the same run".to_owned()));
    }
    if !file.machine.is_at_hand() {
        let device = format!("{}, empty caches at the start", file.machine.device);
        all.push(("device".to_owned(), device));
        all.push(("page cache".to_owned(), file.machine.memory.to_string()));
    }
    for (name, one) in &file.filesystem {
        let journal = one.journal.map(|size| format!(", journal of {size}")).unwrap_or_default();
        let text = format!("{} -o {}{journal}", one.kind.get_ref(), one.mount.text());
        all.push((format!("file system {name}"), text));
    }
    for (name, one) in &file.workload {
        let text = one.args.as_ref().or(one.job.as_ref()).map(|text| text.get_ref().trim());
        all.push((format!("workload {name}"), text.unwrap_or_default().replace('\n', "; ")));
    }
    for (name, variant) in &file.variant {
        let text = match file.program {
            Some(_) => variant.note.clone().or(variant.title.clone()).unwrap_or_default(),
            None => variant_text(&experiment.variant(name)),
        };
        all.push((format!("variant {name}"), text));
    }
    all.extend(quick(experiment, records));
    let seeds: Vec<u64> = {
        let mut seeds: Vec<u64> = records.iter().map(|record| record.key.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds
    };
    let text = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    all.push(("seeds".to_owned(), text));
    all
}

/// What a quick run does for a shorter time.
fn quick(experiment: &Experiment, records: &[RunRecord]) -> Option<(String, String)> {
    let was = |name: &str| {
        let of = |record: &&RunRecord| record.key.case == name && record.key.point.is_none();
        records.iter().find(of).is_some_and(|record| record.key.size == Size::Quick)
    };
    let cases = experiment.file.case.iter().filter(|(name, _)| was(name));
    let cut = cases
        .filter_map(|(_, case)| Some(format!("{}, at most {} s", case.title, case.quick_seconds?)));
    let cut: Vec<String> = cut.collect();
    let text = || format!("{} (--full runs as long as the document)", cut.join("; "));
    (!cut.is_empty()).then(|| ("quick run".to_owned(), text()))
}

fn variant_text(variant: &experiment::Variant) -> String {
    let tunables = experiment::tunables(variant);
    let tunables: Vec<String> =
        tunables.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let elevator = variant.elevator.as_ref().map_or("", |name| name.get_ref());
    let noidle = if variant.noidle == Some(true) { "SYNC|NOIDLE" } else { "SYNC" };
    format!(
        "elevator {elevator} {}, -o {}, synchronous writes {noidle}",
        tunables.join(" "),
        variant.mount.text()
    )
}
