//! Damaged groups of LVM2 and arrays of MD, sealed again so that the damage is behind the sums; and
//! reads that fail. `IOPATH_SEEDS` sets how many of each.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::rng::Rng;
use container::volume::{self, Found, lvm, md};
use container::{Error, Image, Source, Target};
use testkit::lvm::{Loop, lvm2};

use crate::{Memory, fill_leg, noise, old_superblock, seal_md, seal_words, sparse, superblock};

const LEN: usize = 1 << 20;

fn seeds() -> u64 {
    let seeds = std::env::var("IOPATH_SEEDS").ok().and_then(|text| text.parse().ok());
    seeds.unwrap_or(300)
}

/// A disk whose reads fail from a number on, and how many there were.
struct Failing {
    disk: Memory,
    from: u64,
    reads: AtomicU64,
}

impl Source for Failing {
    fn name(&self) -> &str {
        "mutant"
    }

    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.reads.fetch_add(1, Ordering::Relaxed) < self.from {
            true => self.disk.read_at(offset, buf),
            false => Err(io::Error::other("the medium failed")),
        }
    }
}

impl Target for Failing {
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens everything that the disks make together.
fn open_all(disks: &[Arc<dyn Target>]) -> Result<Vec<Arc<dyn Image>>, Error> {
    let (mut arrays, mut groups) = (Vec::new(), Vec::new());
    for disk in disks {
        match volume::recognise(&**disk)? {
            Some(Found::Md(member)) => arrays.push((*member, disk.clone())),
            Some(Found::Lvm(physical)) => groups.push((*physical, disk.clone())),
            _ => {}
        }
    }
    if !arrays.is_empty() {
        return Ok(vec![md::assemble(arrays)?]);
    }
    let Some((first, _)) = groups.first() else { return Ok(Vec::new()) };
    let group = first.group().unwrap_or_default().to_owned();
    let names = first.volumes();
    names.iter().map(|name| lvm::open(groups.clone(), &group, name)).collect()
}

/// Reads pieces of an image everywhere; a number that stands for their content.
fn read_all(image: &dyn Image) -> Result<u64, Error> {
    let mut sum = 0_u64;
    image.facts()?;
    let mut piece = vec![0; 70_000];
    let size = image.size();
    let step = (size / 16).max(1);
    for at in (0..16).map(|number| number * step).filter(|&at| at < size) {
        let len = (size - at).min(piece.len() as u64) as usize;
        image.read_at(at, &mut piece[..len])?;
        sum = piece[..len].iter().fold(sum, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
    }
    Ok(sum)
}

/// Opens and reads; an error names the disk.
fn judge(disks: Vec<Vec<u8>>, size: usize, what: &str) -> bool {
    let on = |bytes| Arc::new(Memory { bytes, size }) as Arc<dyn Target>;
    let disks: Vec<_> = disks.into_iter().map(on).collect();
    let done =
        open_all(&disks).and_then(|all| all.iter().try_for_each(|one| read_all(&**one).map(drop)));
    if let Err(error) = &done {
        assert!(error.to_string().contains("mutant"), "{what}: {error}");
    }
    done.is_ok()
}

/// Every read of sound disks fails once, with all that follow: an error, or the same content.
fn fail_reads(disks: &[Vec<u8>], size: usize, what: &str) {
    let run = |from: u64| {
        let on = |bytes: &Vec<u8>| {
            let disk = Memory { bytes: bytes.clone(), size };
            Arc::new(Failing { disk, from, reads: AtomicU64::new(0) })
        };
        let all: Vec<_> = disks.iter().map(on).collect();
        let targets: Vec<_> = all.iter().map(|disk| disk.clone() as Arc<dyn Target>).collect();
        let opened = open_all(&targets);
        let found = opened.and_then(|images| {
            images.iter().map(|image| read_all(&**image)).collect::<Result<Vec<_>, _>>()
        });
        let reads = all.iter().map(|disk| disk.reads.load(Ordering::Relaxed)).max();
        (found, reads.unwrap_or(0))
    };
    let (sound, reads) = run(u64::MAX);
    let sound = sound.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!sound.is_empty() && reads > 2, "{what}: {sound:?}, {reads} reads");
    let mut refused = 0;
    for from in 0..reads {
        match run(from).0 {
            // A mirror has another copy.
            Ok(found) => assert_eq!(found, sound, "{what}: read {from}"),
            Err(error) => {
                assert!(error.to_string().contains("mutant"), "{what}: read {from}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "{what}: no failure was told");
}

#[test]
fn damaged_arrays_are_read_or_refused() {
    let content = noise(LEN, 5);
    let sectors = (512 << 10) / 512;
    let kinds = [(LEN - 8192, 0), (0, 128 << 10), (4096, 128 << 10), (LEN - (64 << 10), 0)];
    let (mut good, mut bad) = (0, 0);
    for (kind, (at, data)) in kinds.into_iter().enumerate() {
        let old = kind == 3;
        for level in [0u32, 1] {
            let legs = [0u16, 1].map(|number| {
                let mut disk = vec![0; LEN];
                let share = if old { &content[..896 << 10] } else { &content[..] };
                fill_leg(&mut disk[data..], share, number.into(), level);
                let raw = match old {
                    true => old_superblock(number.into(), level, 512),
                    false => superblock(number, level, at as u64, data as u64, sectors),
                };
                disk[at..at + raw.len()].copy_from_slice(&raw);
                disk
            });
            fail_reads(&legs, LEN, &format!("kind {kind}, raid{level}"));
            for seed in 0..seeds() {
                let mut rng = Rng::new(seed, kind as u64);
                let mut mutants = legs.clone();
                for _ in 0..rng.range(1..4) {
                    let leg = &mut mutants[rng.below(2) as usize][at..];
                    let word = rng.below(if old { 1024 } else { 65 }) as usize * 4;
                    let near = u32::from_le_bytes(leg[word..word + 4].try_into().expect("4"));
                    let values =
                        [0, 1, u32::MAX, 1 << rng.below(32), near ^ 1, near.wrapping_add(1)];
                    leg[word..word + 4].copy_from_slice(&rng.pick(&values).to_le_bytes());
                }
                for leg in &mut mutants {
                    match old {
                        true => seal_words(&mut leg[at..at + 4096], 152),
                        false => seal_md(leg, at),
                    }
                }
                let name = format!("kind {kind}, raid{level}, seed {seed}");
                match judge(mutants.to_vec(), LEN, &name) {
                    true => good += 1,
                    false => bad += 1,
                }
            }
        }
    }
    assert!(good > 0 && bad > 0, "{good} good, {bad} refused");
}

/// The sum of LVM2.
fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0xf597_a6cf, |mut sum: u32, byte| {
        sum ^= u32::from(*byte);
        (0..8).for_each(|_| sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()));
        sum
    })
}

/// The header of the area with the text, behind the label.
const AREA: usize = 4096;

/// Where the text lies, and its bytes.
fn text_of(disk: &[u8]) -> std::ops::Range<usize> {
    let word = |at: usize| u64::from_le_bytes(disk[at..at + 8].try_into().expect("8")) as usize;
    let start = AREA + word(AREA + 40);
    start..start + word(AREA + 48)
}

/// Puts another text, and all sums, in place.
fn put_text(disk: &mut [u8], text: &[u8]) {
    let start = text_of(disk).start;
    disk[start..start + text.len()].copy_from_slice(text);
    disk[AREA + 48..AREA + 56].copy_from_slice(&(text.len() as u64).to_le_bytes());
    disk[AREA + 56..AREA + 60].copy_from_slice(&crc(text).to_le_bytes());
    let sum = crc(&disk[AREA + 4..AREA + 512]);
    disk[AREA..AREA + 4].copy_from_slice(&sum.to_le_bytes());
}

/// A text with some damage.
fn damaged(text: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut new = text.to_vec();
    for _ in 0..rng.range(1..4) {
        let digits = |at: &usize| new[*at].is_ascii_digit();
        let numbers: Vec<usize> = (0..new.len()).filter(digits).collect();
        let at = rng.below(new.len() as u64) as usize;
        let line = |at: usize| new[..at].iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
        let end = new[at..].iter().position(|&b| b == b'\n').map_or(new.len(), |n| at + n + 1);
        match rng.below(6) {
            0..3 if !numbers.is_empty() => {
                let at = *rng.pick(&numbers);
                let values = ["0", "1", "-1", "4294967296", "18446744073709551615", "9", "7"];
                new.splice(at..=at, rng.pick(&values).bytes());
            }
            3 => drop(new.drain(line(at)..end)),
            4 => {
                let again = new[line(at)..end].to_vec();
                new.splice(end..end, again);
            }
            _ => new[at] = *rng.pick(b"{}[]\"=,\n #a\0\xff"),
        }
    }
    new.truncate(8 << 10);
    new
}

#[test]
fn damaged_groups_are_read_or_refused() {
    const SIZE: usize = 16 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let paths = ["a", "b"].map(|name| sparse(dir.path(), name, SIZE as u64));
    let (a, b) = (Loop::new(&paths[0]), Loop::new(&paths[1]));
    let both = [&a, &b];
    lvm2(&both, &format!("pvcreate -qq {} {}", a.name(), b.name()));
    lvm2(&both, &format!("vgcreate -qq -s 1m vg {} {}", a.name(), b.name()));
    let create = "lvcreate -an -Zn -Wn -y -qq";
    lvm2(&both, &format!("{create} -l 3 -n plain vg {}", a.name()));
    lvm2(&both, &format!("{create} -i 2 -I 64k -l 8 -n striped vg"));
    drop((a, b));
    let disks = paths.map(|path| {
        let mut bytes = std::fs::read(path).expect("the disk");
        bytes.truncate(1 << 20);
        bytes
    });
    fail_reads(&disks, SIZE, "a group");
    let (mut good, mut bad) = (0, 0);
    for seed in 0..4 * seeds() {
        let mut rng = Rng::new(seed, 9);
        let mut mutants = disks.clone();
        let text = mutants[0][text_of(&mutants[0])].to_vec();
        let text = damaged(&text, &mut rng);
        // Both, or one of them: then they differ.
        let last = if rng.below(4) == 0 { 1 } else { 2 };
        mutants.iter_mut().take(last).for_each(|disk| put_text(disk, &text));
        match judge(mutants.to_vec(), SIZE, &format!("seed {seed}")) {
            true => good += 1,
            false => bad += 1,
        }
    }
    assert!(good > 0 && bad > 0, "{good} good, {bad} refused");
}
