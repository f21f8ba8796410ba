//! Records as JSON lines: written while runs go on, read again to resume, merged in any order.

use std::collections::BTreeMap;
use std::path::Path;

use super::{RunError, RunRecord, SCHEMA};
use crate::experiment::RunKey;

/// Largest file of lines that is read, in bytes.
const FILE_MAX: u64 = 4 << 30;

/// The record as one line, with its end.
///
/// # Panics
/// Never: a record has nothing that JSON does not.
pub fn to_line(record: &RunRecord) -> String {
    let mut line = serde_json::to_string(record).expect("a record is JSON");
    line.push('\n');
    line
}

/// The records in a file of lines. A last line that a killed run left without its end is dropped.
///
/// # Errors
/// The file cannot be read; a line is no record, with its number.
pub fn read(path: &Path) -> Result<Vec<RunRecord>, RunError> {
    let failed = |what: String| RunError::Lines(format!("{}: {what}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if size > FILE_MAX {
        return Err(failed(format!("{size} bytes are more than the {FILE_MAX} that are read")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    parse(&text).map_err(failed)
}

/// The records in a text of lines.
///
/// # Errors
/// The line that is no record, from 1.
pub fn parse(text: &str) -> Result<Vec<RunRecord>, String> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..whole].lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let at = |what: String| format!("line {}: {what}", index + 1);
            let record: RunRecord =
                serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
            check(&record).map(|()| record).map_err(at)
        })
        .collect()
}

/// Whether a record can be taken.
///
/// # Errors
/// It is of another version of the format, or not as it was written.
pub fn check(record: &RunRecord) -> Result<(), String> {
    if record.schema != SCHEMA {
        return Err(format!("schema {} instead of {SCHEMA}", record.schema));
    }
    match record.is_whole() {
        true => Ok(()),
        false => Err(format!(
            "the record of {} was altered after it was written: its checksum is another",
            record.key
        )),
    }
}

/// Joins records of shards and of resumed runs. The order of the parts does not matter: the result
/// is in the order of the keys, and a run that appears twice must be the same twice.
///
/// # Errors
/// Records of different experiments, of different texts of one, of different machines, or one run
/// with two outcomes.
pub fn merge(parts: Vec<RunRecord>) -> Result<Vec<RunRecord>, RunError> {
    let Some(first) = parts.iter().min_by(|a, b| a.key.cmp(&b.key)) else { return Ok(parts) };
    let (experiment, digest) = (first.experiment.clone(), first.digest.clone());
    let machine = first.made.machine.clone();
    let mut all: BTreeMap<RunKey, RunRecord> = BTreeMap::new();
    for record in parts {
        if record.experiment != experiment || record.digest != digest {
            return Err(RunError::Lines(format!(
                "results of {} (text {}) and of {experiment} (text {digest}) do not belong \
                 together",
                record.experiment, record.digest
            )));
        }
        if record.made.machine != machine {
            return Err(RunError::Lines(format!(
                "results of {experiment} on two machines ({} and {machine}): `lab compare` shows \
                 one beside the other",
                record.made.machine
            )));
        }
        match all.get(&record.key) {
            Some(other) if other.event_hash != record.event_hash => {
                return Err(RunError::Lines(format!(
                    "{}: two outcomes, {} and {}: not from the same program",
                    record.key, other.event_hash, record.event_hash
                )));
            }
            Some(other) if other.values != record.values => {
                return Err(RunError::Lines(format!(
                    "{}: measured twice: keep the file of one of both",
                    record.key
                )));
            }
            // Of two equal runs the one with pictures stays.
            Some(other) if other.detail.is_some() => {}
            _ => {
                all.insert(record.key.clone(), record);
            }
        }
    }
    Ok(all.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Size;
    use crate::record::Made;
    use base::Rng;

    fn record(seed: u64) -> RunRecord {
        let mut record = RunRecord {
            schema: SCHEMA,
            experiment: "x".to_owned(),
            digest: "d".to_owned(),
            made: Made::default(),
            key: RunKey {
                filesystem: "ext4".to_owned(),
                case: "alone".to_owned(),
                point: None,
                variant: "a".to_owned(),
                seed,
                size: Size::Quick,
            },
            seconds: 1.5,
            event_hash: format!("{seed:016x}"),
            values: [("files".to_owned(), seed as f64 / 3.0)].into(),
            spreads: BTreeMap::new(),
            counts: BTreeMap::new(),
            idle_ns: BTreeMap::new(),
            notes: vec!["n".to_owned()],
            detail: None,
            sum: String::new(),
        };
        record.seal(Made::default());
        record
    }

    #[test]
    fn lines_come_back_and_a_torn_last_one_is_dropped() {
        let text: String = (0..3).map(|seed| to_line(&record(seed))).collect();
        let back = parse(&text).unwrap();
        assert_eq!(back, (0..3).map(record).collect::<Vec<_>>());
        assert_eq!(parse(&text[..text.len() - 5]).unwrap().len(), 2);
        assert!(parse("{}\n").unwrap_err().starts_with("line 1: "));
        let newer = text.replacen("\"schema\":2", "\"schema\":9", 1);
        assert_eq!(parse(&newer).unwrap_err(), "line 1: schema 9 instead of 2");
        let altered = text.replacen("\"seconds\":1.5", "\"seconds\":1.6", 1);
        let error = parse(&altered).unwrap_err();
        assert!(error.contains("line 1: the record of ext4 alone a seed 0 was altered"), "{error}");
    }

    #[test]
    fn a_merge_does_not_know_the_order_of_its_parts() {
        let all: Vec<RunRecord> = (0..9).chain(3..6).map(record).collect();
        let merged = merge(all.clone()).unwrap();
        assert_eq!(merged, (0..9).map(record).collect::<Vec<_>>());
        for seed in 0..20 {
            let mut other = all.clone();
            Rng::new(seed, 0).shuffle(&mut other);
            assert_eq!(merge(other).unwrap(), merged);
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let mut other = record(7);
        other.event_hash = "else".to_owned();
        let error = merge(vec![record(7), other]).unwrap_err().to_string();
        assert!(error.contains("seed 7: two outcomes"), "{error}");
        // What was measured has no events to compare.
        let measured = |files: f64| RunRecord {
            event_hash: String::new(),
            values: [("files".to_owned(), files)].into(),
            ..record(7)
        };
        assert_eq!(merge(vec![measured(1.0), measured(1.0)]).unwrap().len(), 1);
        let error = merge(vec![measured(1.0), measured(2.0)]).unwrap_err().to_string();
        assert!(error.contains("seed 7: measured twice"), "{error}");
        let mut other = record(1);
        other.digest = "e".to_owned();
        assert!(merge(vec![record(0), other]).is_err());
        let mut other = record(1);
        other.made.machine = "m".to_owned();
        let error = merge(vec![record(0), other]).unwrap_err().to_string();
        assert!(error.contains("on two machines"), "{error}");
    }
}
