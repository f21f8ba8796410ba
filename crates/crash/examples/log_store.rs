//! A small store that keeps keys in a log, compacts it, and loses all of them when the power fails
//! at the wrong moment: the bug, the test that finds it, and the repair.
//!
//! `cargo run -p iopath-crash --example log_store` prints the story of the bug.

use std::collections::BTreeMap;

use crash::{Crash, Fs, Kind, Result};

/// Whether compaction syncs the new log before it takes the place of the old one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// The bug: many stores had it.
    Careless,
    /// The repair.
    Careful,
}

fn record(key: u8, value: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&[key, value]);
    bytes[15] = 0xa5 ^ key ^ value; // A checksum: a torn record counts as none.
    bytes
}

/// Reads the log until its first torn record.
fn load(fs: &mut Fs) -> Result<BTreeMap<u8, u8>> {
    let log = if fs.exists("/log")? { fs.read("/log")? } else { Vec::new() };
    let whole = |bytes: &&[u8]| bytes[..] == record(bytes[0], bytes[1]);
    let (records, _torn) = log.as_chunks::<16>();
    Ok(records.iter().map(|r| &r[..]).take_while(whole).map(|r| (r[0], r[1])).collect())
}

/// Returns when the value survives a power cut.
fn put(fs: &mut Fs, key: u8, value: u8) -> Result<()> {
    fs.append("/log", &record(key, value))?;
    fs.fsync("/log")?;
    fs.fsync("/")
}

/// Writes every key once into a new log, which takes the place of the old one.
fn compact(fs: &mut Fs, how: Compaction) -> Result<()> {
    let keys = load(fs)?;
    let log: Vec<u8> = keys.iter().flat_map(|(key, value)| record(*key, *value)).collect();
    fs.write("/log.new", &log)?;
    if how == Compaction::Careful {
        fs.fsync("/log.new")?;
    }
    fs.rename("/log.new", "/log")?;
    fs.fsync("/")
}

/// The test: what was put is there, wherever the power fails.
pub fn test(kind: Kind, how: Compaction) {
    Crash::on(kind).check(
        |fs| {
            for value in 1..=12u8 {
                put(fs, value % 4, value)?;
                fs.mark(&value.to_string());
                if value % 6 == 0 {
                    compact(fs, how)?;
                }
            }
            Ok(())
        },
        |fs| {
            let put: u8 = fs.marks().last().map_or(0, |mark| mark.parse().unwrap_or(0));
            let found = load(fs)?;
            match (1..=put).all(|value| found.get(&(value % 4)).is_some_and(|v| *v >= value)) {
                true => Ok(()),
                false => Err(format!("{put} values were put, found {found:?}").into()),
            }
        },
    );
}

fn main() {
    test(Kind::Xfs, Compaction::Careful);
    println!("a careful compaction keeps everything");
    test(Kind::Xfs, Compaction::Careless);
}
