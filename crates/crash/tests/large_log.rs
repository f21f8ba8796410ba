//! A log of many writes in little memory: each content once, compressed, read where it is needed.
//! 24 MiB of writes by default; `IOPATH_CRASH_LOG_MIB=10240` for more, and one line with what it
//! took.

use crash::{Crash, Format, Fs, Kind, Limits, Result};

/// The file that is written again and again.
const FILE: u64 = 4 << 20;
const PAGE: u64 = 4096;
/// Of the pages one in so many changes from one round to the next.
const CHANGES: u64 = 4;
/// Bytes of a file that are written at once.
const PART: u64 = 1 << 20;

/// A page of a database: a head that differs, and records of text with numbers.
fn page(out: &mut Vec<u8>, round: u64, number: u64) {
    let version = (round + CHANGES - number % CHANGES) / CHANGES;
    let mut rng = base::Rng::new(version, number);
    let end = out.len() + PAGE as usize;
    while out.len() < end {
        let (key, value) = (rng.below(1 << 40), rng.below(1 << 20));
        out.extend_from_slice(
            format!("{{\"key\":{key},\"name\":\"n{value}\",\"on\":true}}\\n").as_bytes(),
        );
    }
    out.truncate(end);
}

/// Writes the file as often as makes so many bytes, and syncs it each time.
fn rewrite(fs: &mut Fs, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        for part in 0..FILE / PART {
            let mut content = Vec::with_capacity(PART as usize + 64);
            for number in part * PART / PAGE..(part + 1) * PART / PAGE {
                page(&mut content, round, number);
            }
            fs.write_at("/db", part * PART, &content)?;
        }
        fs.fdatasync("/db")?;
        fs.mark(&format!("{round}"));
    }
    Ok(())
}

/// Most memory of this process so far, in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("Linux has it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") / 1024
}

#[test]
fn gigabytes_of_writes_are_kept_in_little() {
    let mib: u64 = std::env::var("IOPATH_CRASH_LOG_MIB").map_or(24, |text| text.parse().unwrap());
    let rounds = mib * (1 << 20) / FILE;
    let large = ext4::MkfsOptions { block_size: Some(4096), ..Default::default() };
    let mut test = Crash::on(Kind::Ext4).format(Format::Ext4(large));
    let dir = tempfile::tempdir().unwrap();
    let log = test.record_to(&dir.path().join("a.log"), |fs| rewrite(fs, rounds));
    let recorded = memory();
    // Some states, from everywhere in the log.
    test.exploration.limits = Limits { all_subsets: 0, samples: 1, singles: 2 };
    test.exploration.shard = (0, (rounds / 2).max(1));
    let last = |fs: &mut Fs| -> Result<()> {
        let Some(round) = fs.marks().last().and_then(|mark| mark.parse().ok()) else {
            return Ok(());
        };
        let mut wanted: [Vec<u8>; 2] = Default::default();
        let number = FILE / PAGE - 1;
        page(&mut wanted[0], round, number);
        page(&mut wanted[1], round + 1, number);
        let found = fs.read("/db")?;
        // The next round may have torn it.
        let page = &found[found.len() - PAGE as usize..];
        let mut sectors = page.chunks(512).enumerate();
        let is = |(at, sector): (usize, &[u8])| {
            wanted.iter().any(|wanted| wanted[at * 512..][..512] == *sector)
        };
        match sectors.all(is) {
            true => Ok(()),
            false => Err(format!("round {round} is lost").into()),
        }
    };
    let judge = crash::check::judge(last);
    let outcome = crash::explore(&log, &test.exploration, &judge, &mut |_| {}).unwrap();
    assert_eq!(outcome.findings, []);
    assert!(outcome.judged > 4, "{outcome:?}");
    let (content, packed) = log.sizes();
    let written: u64 = log.writes().entries.iter().map(|entry| entry.sectors() * 512).sum();
    println!(
        "{} MiB written, {} MiB of distinct content in a log of {} MiB, {} entries; memory at \
         most {recorded} MiB to record, {} MiB to explore {} states",
        written >> 20,
        content >> 20,
        packed >> 20,
        log.len(),
        memory(),
        outcome.judged
    );
    // Three of four pages are as they were; the content is text.
    assert!(written >= mib << 20 && content < written / 2 && packed < content, "too large");
}
