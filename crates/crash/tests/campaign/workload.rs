//! The workloads of the campaign: short sequences of calls, and random ones by several tasks.

use base::Rng;
use crash::{Fs, Result};

/// What a short sequence is made of.
const CALLS: [&str; 17] = [
    "creat",
    "overwrite",
    "append",
    "append a little",
    "truncate",
    "rename",
    "replace",
    "link",
    "unlink",
    "mkdir",
    "grow",
    "allocate",
    "fill",
    "punch",
    "symlink",
    "move of a directory",
    "use again",
];
/// How it is synced.
const SYNCS: [&str; 4] = ["fsync", "fdatasync", "fsync of the directory", "sync"];

fn one(fs: &mut Fs, call: &str, round: u8) -> Result<()> {
    let content = vec![round; 2000 + 3000 * usize::from(round % 4)];
    match call {
        "creat" => fs.write(&format!("/d/new{round}"), &content),
        "overwrite" => fs.write_at("/d/a", 1000, &content),
        "append" => fs.append("/d/a", &content),
        // The last block has room for it: nothing but the size changes.
        "append a little" => fs.append("/d/a", &content[..50]),
        "truncate" => fs.truncate("/d/a", 1500 * u64::from(round % 3)),
        "rename" => fs.rename("/d/a", "/d/moved").and_then(|()| fs.rename("/d/moved", "/d/a")),
        "replace" => {
            // Of the second one the disk still writes data when it could commit the rename.
            fs.write("/d/temp", &content.repeat(if round == 2 { 80 } else { 1 }))?;
            fs.rename("/d/temp", "/d/b")
        }
        "link" => fs.link("/d/a", &format!("/e/link{round}")),
        "unlink" => {
            fs.write("/e/gone", &content)?;
            fs.remove("/e/gone")
        }
        "mkdir" => fs.mkdir(&format!("/e/dir{round}")),
        "grow" => fs.truncate("/d/a", 40_000 + 9000 * u64::from(round)),
        // The size changes, and no data are written. Without extents there is no such call.
        "allocate" => match fs.allocate("/d/a", 3000, 25_000 * u64::from(round)) {
            Err(error) if error.0.contains("ENOTSUP") => fs.truncate("/d/a", 30_000),
            done => done,
        },
        // Blocks come into a hole of a file whose size stays: nothing but the map changes.
        "fill" => {
            fs.truncate("/d/a", 90_000)?;
            fs.fsync("/d/a")?;
            fs.write_at("/d/a", 20_000 * u64::from(round), &content)
        }
        "punch" => fs.punch("/d/a", 500, 4000 * u64::from(round)),
        "symlink" => fs.symlink(&"a/".repeat(30 * usize::from(round)), &format!("/d/to{round}")),
        // Blocks that the log has as a directory's come to hold data.
        "use again" => {
            let (gone, again) = (format!("/e/gone{round}"), format!("/d/again{round}"));
            fs.mkdir(&gone)?;
            fs.fsync("/e")?;
            fs.rmdir(&gone)?;
            fs.fsync("/e")?;
            fs.write(&again, &content)?;
            fs.fsync(&again)
        }
        _ => {
            fs.mkdir(&format!("/e/from{round}"))?;
            fs.write(&format!("/e/from{round}/inside"), &content)?;
            fs.rename(&format!("/e/from{round}"), &format!("/d/moved{round}"))
        }
    }
}

fn sync(fs: &mut Fs, how: &str) -> Result<()> {
    match how {
        "fsync" => fs.fsync("/d/a"),
        "fdatasync" => fs.fdatasync("/d/a"),
        "fsync of the directory" => fs.fsync("/d"),
        _ => fs.sync(),
    }
}

/// Short sequences of one call, with each way of syncing behind it.
pub const SINGLES: u64 = (CALLS.len() * SYNCS.len()) as u64;
/// Short sequences of two calls, with each way of syncing behind both of them or behind the second.
pub const PAIRS: u64 = 2 * CALLS.len() as u64 * SINGLES;

/// A workload by its number: all sequences of one and of two calls come first, then random ones by
/// several tasks.
pub fn workload(fs: &mut Fs, number: u64) -> Result<()> {
    fs.mkdir("/d")?;
    fs.mkdir("/e")?;
    if number >= SINGLES + PAIRS {
        return many(fs, number);
    }
    fs.write("/d/a", &[200; 5000])?;
    fs.write("/d/b", &[201; 5000])?;
    fs.sync()?;
    let calls = CALLS.len() as u64;
    let how = SYNCS[(number / calls % SYNCS.len() as u64) as usize];
    if let Some(pair) = number.checked_sub(SINGLES) {
        one(fs, CALLS[(pair / SINGLES % calls) as usize], 1)?;
        if pair < PAIRS / 2 {
            sync(fs, how)?;
        }
    }
    one(fs, CALLS[(number % calls) as usize], 2)?;
    sync(fs, how)
}

fn many(fs: &mut Fs, seed: u64) -> Result<()> {
    let task = |number: u64| {
        move |fs: &mut Fs| {
            let mut rng = Rng::new(seed, number);
            let own = format!("/t{number}");
            fs.mkdir(&own)?;
            for round in 0..20 {
                let name = |rng: &mut Rng| match rng.below(4) {
                    0 => format!("/d/{}", rng.below(4)),
                    _ => format!("{own}/{}", rng.below(5)),
                };
                let (from, to) = (name(&mut rng), name(&mut rng));
                let content = vec![round + 1; rng.below(30_000) as usize];
                let _the_name_may_be_gone = match rng.below(12) {
                    0..3 => fs.write(&from, &content),
                    3 => fs.append(&from, &content),
                    4 => fs.write_at(&from, rng.below(20_000), &content),
                    5 => fs.rename(&from, &to),
                    6 => fs.link(&from, &to),
                    7 => fs.remove(&from),
                    8 => fs.truncate(&from, rng.below(20_000)),
                    9 => fs.fdatasync(&from),
                    10 => fs.fsync(&own),
                    _ => fs.fsync(&from),
                };
                if rng.below(6) == 0 {
                    fs.sleep_ms(rng.below(9000));
                }
            }
            Ok(())
        }
    };
    let tasks: Vec<_> = (0..4).map(|number| fs.spawn("caller", task(number))).collect();
    tasks.into_iter().try_for_each(|task| task.join(fs))
}
