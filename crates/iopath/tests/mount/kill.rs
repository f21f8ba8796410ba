//! kill -9 of the process that serves a mount, at any time: what a program was told is synced is
//! there after recovery, and the judge of the format finds nothing. `IOPATH_KILLS=100` kills more
//! often.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::host::{Mounted, check, image, on_each_format, place, wait_until};

/// How often each test kills.
fn kills(default: u64) -> u64 {
    match std::env::var("IOPATH_KILLS") {
        Ok(text) => text.parse().expect("IOPATH_KILLS is a number"),
        Err(_) => default,
    }
}

/// When the `round`th kill comes: spread over what a commit interval and a few syncs take.
fn moment(round: u64) -> Duration {
    let spread = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    Duration::from_millis(30 + spread % 400)
}

/// The content of a file in a version: its length and bytes follow from both numbers.
fn content(file: u64, version: u64) -> Vec<u8> {
    let len = 1 + (file * 7919 + version * 104_729) % 20_000;
    (0..len).map(|i| (i * (2 * version + 1) + file) as u8).collect()
}

/// Files that are written, synced and renamed over by several threads, their directory synced: each
/// is found in the version that was last told safe, or a later one, whole.
fn synced_files_survive_kills(kind: &str) {
    const THREADS: u64 = 4;
    const FILES: u64 = 5;
    let place = place();
    let image = image(place.path(), kind, 128 << 20);
    let safe: Vec<AtomicU64> = (0..THREADS * FILES).map(|_| AtomicU64::new(0)).collect();
    for round in 0..kills(5) {
        let mount = Mounted::new(&image, "");
        let dir = mount.dir().to_owned();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (dir, safe, stop) = (&dir, &safe, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        for file in thread * FILES..(thread + 1) * FILES {
                            let version = safe[file as usize].load(Ordering::Relaxed) + 1;
                            // The mount is dead; what succeeds then may be below it.
                            let done = replace(dir, file, version);
                            if done.is_err() || stop.load(Ordering::SeqCst) {
                                return;
                            }
                            safe[file as usize].store(version, Ordering::Relaxed);
                        }
                    }
                });
            }
            thread::sleep(moment(round));
            mount.kill_then(|| stop.store(true, Ordering::SeqCst));
        });
        let mount = Mounted::new(&image, "");
        for (file, safe) in safe.iter().enumerate() {
            let told = safe.load(Ordering::Relaxed);
            let found = fs::read(mount.dir().join(format!("d{}/f{file}", file % 3)));
            let found = match found {
                Err(error) if told == 0 && error.raw_os_error() == Some(2) => continue,
                found => found.unwrap_or_else(|e| panic!("round {round}: file {file}: {e}")),
            };
            let version = (told..told + 2).find(|v| *v > 0 && found == content(file as u64, *v));
            let version = version.unwrap_or_else(|| {
                panic!("round {round}: file {file}: {} bytes, told {told}", found.len())
            });
            safe.store(version, Ordering::Relaxed);
        }
        mount.unmount();
        check(&image);
    }
    assert!(safe.iter().all(|safe| safe.load(Ordering::Relaxed) > 0), "nothing was written");
}

fn replace(dir: &Path, file: u64, version: u64) -> std::io::Result<()> {
    let dir = dir.join(format!("d{}", file % 3));
    fs::create_dir_all(&dir)?;
    let new = dir.join(format!("new{file}"));
    let mut handle = File::create(&new)?;
    handle.write_all(&content(file, version))?;
    handle.sync_all()?;
    fs::rename(&new, dir.join(format!("f{file}")))?;
    File::open(&dir)?.sync_all()?;
    File::open(dir.parent().expect("the mount"))?.sync_all()
}

/// The last two commits that SQLite told of, the last one first. It takes a directory that it
/// cannot open for synced: where the mount dies between the removal of the rollback journal and
/// that, its last word is of a sync that nobody was asked for, and only the one before is sure.
fn last_told(output: impl BufRead) -> [u64; 2] {
    let mut told = [0; 2];
    for line in output.lines().map_while(Result::ok) {
        if let Some(id) = line.strip_prefix("at|") {
            told = [id.parse().expect("a number"), told[0]];
        }
    }
    told
}

/// SQLite with every transaction synced (in rollback mode that takes EXTRA: FULL does not sync the
/// directory that the journal was removed from): what it has said is committed is there, and the
/// database is whole.
fn sqlite(kind: &str, mode: &str, rounds: u64) {
    let place = place();
    let image = image(place.path(), kind, 128 << 20);
    let mut committed = 0;
    for round in 0..rounds {
        let mount = Mounted::new(&image, "");
        let base = mount.dir().join("base.db");
        // Without -bail it goes on after a failed COMMIT and tells of what is in its memory only.
        let mut child = Command::new("sqlite3")
            .arg("-bail")
            .arg(&base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sqlite3 starts; install it with: apt-get install -y sqlite3");
        let mut input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let feeder = thread::spawn({
            let mode = mode.to_owned();
            move || {
                let begin = format!(
                    "PRAGMA journal_mode={mode}; PRAGMA synchronous=EXTRA;
                     CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB);
                     CREATE INDEX IF NOT EXISTS i ON t(v);\n"
                );
                let mut alive = input.write_all(begin.as_bytes()).is_ok();
                let row = "INSERT INTO t(v) VALUES(randomblob(abs(random())%3000));";
                let say = "SELECT 'at', max(id) FROM t;\n";
                while alive {
                    let begin = "BEGIN; DELETE FROM t WHERE id%17=3 AND id>0 AND random()>0;";
                    let line = format!("{begin}{row}{row}COMMIT;{say}");
                    alive = input.write_all(line.as_bytes()).is_ok();
                }
            }
        });
        let sure = if mode == "DELETE" { 1 } else { 0 };
        let reader = thread::spawn(move || last_told(output)[sure]);
        thread::sleep(moment(round) + Duration::from_millis(100));
        // Once the dead mount is gone a slow start would find the bare directory, and commit there.
        mount.kill_then(|| {
            let _ended = child.kill();
            child.wait().expect("sqlite3 has ended");
        });
        feeder.join().expect("the feeder ends");
        committed = reader.join().expect("the reader ends").max(committed);
        let mount = Mounted::new(&image, "");
        let ask = |question: &str| {
            let mut sqlite = Command::new("sqlite3");
            let output = sqlite.args(["-cmd", ".log stderr"]).arg(&base).arg(question).output();
            let output = output.expect("sqlite3 starts");
            assert!(output.status.success(), "{mode}, round {round}: {output:?}");
            String::from_utf8(output.stdout).expect("text").trim().to_owned()
        };
        if committed > 0 {
            assert_eq!(ask("PRAGMA integrity_check;"), "ok", "{mode}, round {round}");
            let found: u64 = ask("SELECT max(id) FROM t;").parse().expect("a number");
            assert!(found >= committed, "{mode}, round {round}: {found} of {committed}");
            committed = found;
        }
        mount.unmount();
        check(&image);
    }
    assert!(committed > 0, "{mode}: nothing was committed");
}

fn sqlite_with_a_write_ahead_log_keeps_what_it_committed(kind: &str) {
    sqlite(kind, "WAL", kills(5));
}

fn sqlite_with_a_rollback_journal_keeps_what_it_committed(kind: &str) {
    sqlite(kind, "DELETE", kills(5));
}

/// Files that begin without a name, are written, synced and only then named: each name that was
/// told safe leads to a whole file, and what had no name yet is gone. Files are looked at after the
/// kill of their round and after the next one, then removed.
fn files_that_were_named_late_survive_kills(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 128 << 20);
    let (mut kept, mut safe) = (1, 0);
    for round in 0..kills(3) {
        let mount = Mounted::new(&image, "");
        let dir = mount.dir().to_owned();
        let before = safe;
        let (named, stop) = (AtomicU64::new(safe), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut unnamed = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let number = named.load(Ordering::Relaxed) + 1;
                    let Ok(other) = late(&dir, number, &mut unnamed) else { return };
                    // The mount is dead; the directory that was synced may be the one below it.
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    unnamed.push(other);
                    named.store(number, Ordering::Relaxed);
                }
            });
            wait_until("a file", || named.load(Ordering::Relaxed) > safe);
            thread::sleep(moment(round));
            mount.kill_then(|| stop.store(true, Ordering::SeqCst));
        });
        let mount = Mounted::new(&image, "");
        safe = named.load(Ordering::Relaxed);
        for number in kept..=safe {
            let file = mount.dir().join(format!("late{number}"));
            let found = fs::read(&file);
            let found = found.unwrap_or_else(|e| panic!("round {round}: file {number}: {e}"));
            assert_eq!(found, content(number, 1), "round {round}: file {number}");
            if number <= before {
                fs::remove_file(&file).expect("it can be removed");
            }
        }
        kept = before + 1;
        let next = mount.dir().join(format!("late{}", safe + 1));
        if next.exists() {
            assert_eq!(fs::read(&next).expect("it can be read"), content(safe + 1, 1));
            safe += 1;
        }
        mount.unmount();
        check(&image);
    }
}

/// Writes, syncs and names a file, and syncs its directory; answers another one without a name.
fn late(dir: &Path, number: u64, unnamed: &mut Vec<File>) -> std::io::Result<File> {
    let new = || -> std::io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600))?);
        file.write_all(&content(number, 1))?;
        file.sync_all()?;
        Ok(file)
    };
    let (file, other) = (new()?, new()?);
    if number.is_multiple_of(4) {
        unnamed.clear();
    }
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = dir.join(format!("late{number}"));
    rustix::fs::linkat(CWD, open, CWD, name, AtFlags::SYMLINK_FOLLOW)?;
    File::open(dir)?.sync_all()?;
    Ok(other)
}

/// Programs write and ask for data and holes all the time, so that the mount's process waits for
/// the kernel, which waits for it: killed, it ends nevertheless, and nobody waits for ever.
fn a_mount_that_waits_for_the_kernels_pages_ends_when_killed(kind: &str) {
    const PROGRAMS: u64 = 4;
    let place = place();
    let image = image(place.path(), kind, 128 << 20);
    for round in 0..kills(5) {
        let mount = Mounted::new(&image, "");
        let dir = mount.dir().to_owned();
        let (asked, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for program in 0..PROGRAMS {
                let (dir, asked, stop) = (&dir, &asked, &stop);
                scope.spawn(move || {
                    let path = dir.join(format!("s{program}"));
                    while !stop.load(Ordering::SeqCst) && ask_for_data(&path, asked).is_ok() {}
                });
            }
            wait_until("an answer", || asked.load(Ordering::Relaxed) > 0);
            thread::sleep(moment(round));
            mount.kill_then(|| stop.store(true, Ordering::SeqCst));
        });
        Mounted::new(&image, "").unmount();
        check(&image);
    }
}

/// Writes here and there in a new file, and asks each time where its data begin.
fn ask_for_data(path: &Path, asked: &AtomicU64) -> std::io::Result<()> {
    let file = File::create(path)?;
    for part in 0..10 {
        let at = (9 - part) << 20;
        file.write_all_at(&[7; 256 << 10], at)?;
        let found = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0))?;
        assert_eq!(found, at, "data begin where the last part was written");
        asked.fetch_add(1, Ordering::Relaxed);
    }
    fs::remove_file(path)
}

on_each_format!(
    synced_files_survive_kills,
    sqlite_with_a_write_ahead_log_keeps_what_it_committed,
    sqlite_with_a_rollback_journal_keeps_what_it_committed,
    files_that_were_named_late_survive_kills,
    a_mount_that_waits_for_the_kernels_pages_ends_when_killed,
);
