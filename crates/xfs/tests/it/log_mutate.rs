//! Damaged logs: every mutation ends in an answer, never in a panic, a hang or endless memory.
//!
//! Bytes of a dirty log of the kernel and of one of ours are changed: anywhere, in headers, in
//! operations, in items. With the checksums put right again the damage gets past the first door.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::log_common::{Volume, mkfs, real, scratch};
use base::Rng;
use device::MemoryDevice;
use testkit::judge::{self, LoopMount};
use xfs::format::log::{LOG_BLOCK, RawRecordHeader, record_checksum};
use xfs::format::log_item::ItemKind;
use xfs::log::LogGeometry;

/// A dirty image of the kernel with all kinds of items in it, and its log's place.
fn dirty(dir: &Path) -> Vec<u8> {
    let args = ["--unsupported", "-l", "size=14m", "-m", "rmapbt=1,reflink=1"];
    let image = mkfs(dir, "dirty.img", 96 << 20, &args);
    let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
    for index in 0..120 {
        let path = mount.path().join(format!("file-{index}"));
        fs::write(&path, vec![1; index * 100]).expect("written");
        if index % 3 == 0 {
            fs::remove_file(&path).expect("removed");
        } else if index % 7 == 0 {
            fs::hard_link(&path, mount.path().join(format!("link-{index}"))).expect("linked");
        }
    }
    judge::run_ok("xfs_io", &[&"-x", &"-c", &"shutdown -f", &mount.path()]);
    drop(mount);
    fs::read(&image).expect("the image can be read")
}

/// The places of the records of a log, by their headers.
fn records(log: &[u8]) -> Vec<(usize, usize)> {
    let blocks = log.chunks_exact(LOG_BLOCK).enumerate();
    let headers = blocks.filter_map(|(index, block)| {
        let raw = RawRecordHeader::parse(block, index as u32).ok()?;
        let len = raw.header_blocks() * LOG_BLOCK + raw.h_len.get() as usize;
        (raw.h_num_logops.get() > 0).then_some((index * LOG_BLOCK, len))
    });
    headers.filter(|&(at, len)| at + len <= log.len()).collect()
}

/// Puts the checksum of a record right.
fn resum(log: &mut [u8], (at, len): (usize, usize)) {
    let record = &mut log[at..at + len];
    let raw = RawRecordHeader::view(record).expect("a header");
    let headers = raw.header_blocks() * LOG_BLOCK;
    let data = headers + raw.h_len.get() as usize;
    if headers > len || data > len {
        return;
    }
    let sum = {
        let (main, rest) = record[..headers].split_at(LOG_BLOCK);
        record_checksum(main, rest, &record[headers..data])
    };
    record[32..36].copy_from_slice(&sum.to_le_bytes());
}

fn mutate(rng: &mut Rng, log: &mut [u8], records: &[(usize, usize)]) {
    let record = *rng.pick(records);
    for _ in 0..=rng.below(3) {
        let (at, len) = record;
        let place = match rng.below(4) {
            0 => at + rng.below(328.min(len as u64)) as usize,
            _ => at + LOG_BLOCK + rng.below((len - LOG_BLOCK) as u64) as usize,
        };
        match rng.below(4) {
            0 => log[place] ^= 1 << rng.below(8),
            1 => log[place] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            2 => {
                let end = (place + 4).min(log.len());
                let word = (rng.next_u32() >> rng.below(32)).to_be_bytes();
                log[place..end].copy_from_slice(&word[..end - place]);
            }
            _ => {
                let end = (place + rng.below(64) as usize).min(at + len);
                log[place..end].fill(rng.next_u32() as u8);
            }
        }
    }
    if !rng.chance(0.15) {
        resum(log, record);
    }
}

/// Two thousand mutations of a log of the kernel.
#[test]
fn a_damaged_log_gets_an_answer() {
    let dir = scratch();
    let image = dirty(dir.path());
    let base = MemoryDevice::from_image(&image);
    let geometry = real(|cx| {
        let volume = Volume::on(cx, Arc::new(base.fork()));
        LogGeometry::of(&volume.geometry)
    });
    let start = geometry.start.bytes() as usize;
    let log = &image[start..start + geometry.bytes() as usize];
    let places = records(log);
    assert!(places.len() > 1, "{places:?}");
    let mut answers: BTreeMap<String, u32> = BTreeMap::new();
    real(|cx| {
        for seed in 0..2000 {
            let mut rng = Rng::new(seed, 0);
            let mut damaged = log.to_vec();
            mutate(&mut rng, &mut damaged, &places);
            let device = base.fork();
            for &(at, len) in &places {
                if damaged[at..at + len] != log[at..at + len] {
                    device.write_at((start + at) as u64, &damaged[at..at + len]);
                }
            }
            let volume = Volume::on(cx, Arc::new(device));
            let mut context = volume.context();
            if seed % 2 == 0 {
                context.can_finish = &[ItemKind::Efi, ItemKind::Rui];
            }
            let answer = xfs::log::recovery::recover(cx, &volume.queue, volume.log(), &context);
            let name = match &answer {
                Ok(_) => "recovered".to_owned(),
                Err(error) => kind_of(&format!("{error:?}")),
            };
            *answers.entry(name).or_default() += 1;
        }
    });
    println!("{answers:#?}");
    assert!(answers.len() > 8, "too few of the checks were reached: {answers:?}");
    assert!(answers["recovered"] < 1900, "the damage does not arrive: {answers:?}");
}

/// `Log(ItemLength { .. })` is `Log ItemLength`.
fn kind_of(debug: &str) -> String {
    let words = debug.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.take(2).collect::<Vec<_>>().join(" ")
}

/// A log whose first cycle was never completed, of nothing but zeroes, of nothing but noise, and
/// with a header at every place.
#[test]
fn logs_without_any_sense_get_an_answer() {
    let dir = scratch();
    let image = mkfs(dir.path(), "a.img", 96 << 20, &["--unsupported", "-l", "size=6m"]);
    let base = MemoryDevice::from_image(&fs::read(&image).expect("the image can be read"));
    real(|cx| {
        let volume = Volume::on(cx, Arc::new(base.fork()));
        let geometry = volume.log();
        let (start, len) = (geometry.start.bytes(), geometry.bytes() as usize);
        let recover = |cx: &mut rt::Cx, content: &[u8]| {
            let device = base.fork();
            device.write_at(start, content);
            Volume::on(cx, Arc::new(device)).recover(cx)
        };
        let zeroes = recover(cx, &vec![0; len]).expect("a log that was never written");
        assert!(zeroes.clean);
        let mut rng = Rng::new(1, 1);
        let mut noise = vec![0; len];
        for _ in 0..20 {
            rng.fill(&mut noise);
            assert!(recover(cx, &noise).is_err());
        }
        let mut header = vec![0; LOG_BLOCK];
        base.read_at(start, &mut header);
        let headers: Vec<u8> = header.iter().copied().cycle().take(len).collect();
        assert!(recover(cx, &headers).is_err());
        let full = vec![0xff; len];
        assert!(recover(cx, &full).is_err());
    });
}
