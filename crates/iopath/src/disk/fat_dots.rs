//! Directories of FAT as others expect them: `.` and `..` in the first two slots.
//!
//! `fatfs` writes a long name before each of the two, which fsck.vfat takes for damage.
//!
//! Source: Microsoft, "FAT: General Overview of On-Disk Format" 1.03.

use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes of a slot of a directory.
const SLOT: usize = 32;
/// The first byte of a slot that is free.
const FREE: u8 = 0xe5;
/// Attributes: a directory, and the four that mark part of a long name.
const DIRECTORY: u8 = 0x10;
const LONG_NAME: u8 = 0x0f;

/// Where things lie, by the first sector.
struct Geometry {
    cluster: u64,
    /// First byte of the first table.
    table: u64,
    /// First byte of the root directory, where that is no chain of clusters.
    root: u64,
    root_bytes: u64,
    /// The root's first cluster in FAT32, else 0.
    root_cluster: u32,
    /// First byte of cluster 2.
    data: u64,
    clusters: u64,
}

fn damaged(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the FAT just made: {words}"))
}

impl Geometry {
    fn read(disk: &mut (impl Read + Seek)) -> io::Result<Geometry> {
        let mut boot = [0; 512];
        at(disk, 0, &mut boot)?;
        let half = |at: usize| u64::from(u16::from_le_bytes([boot[at], boot[at + 1]]));
        let word = |at: usize| half(at) | (half(at + 2) << 16);
        let sector = half(11);
        let cluster = sector * u64::from(boot[13]);
        let table_sectors = if half(22) != 0 { half(22) } else { word(36) };
        let sectors = if half(19) != 0 { half(19) } else { word(32) };
        let table = half(14) * sector;
        let root = table + u64::from(boot[16]) * table_sectors * sector;
        let root_bytes = (half(17) * SLOT as u64).next_multiple_of(sector.max(1));
        let data = root + root_bytes;
        let root_cluster = if half(22) == 0 { word(44) as u32 } else { 0 };
        let bytes = (sectors * sector).checked_sub(data).filter(|_| cluster > 0);
        let clusters = bytes.ok_or_else(|| damaged("its first sector"))? / cluster;
        Ok(Geometry { cluster, table, root, root_bytes, root_cluster, data, clusters })
    }

    /// First byte of a cluster.
    fn place(&self, cluster: u32) -> io::Result<u64> {
        match u64::from(cluster).checked_sub(2).filter(|index| *index < self.clusters) {
            Some(index) => Ok(self.data + index * self.cluster),
            None => Err(damaged("a number of a cluster")),
        }
    }

    /// The cluster behind another one; none behind the last.
    fn next(&self, disk: &mut (impl Read + Seek), cluster: u32) -> io::Result<Option<u32>> {
        let number = u64::from(cluster);
        let mut raw = [0; 4];
        let (value, end) = match self.clusters {
            0..4085 => {
                at(disk, self.table + number + number / 2, &mut raw[..2])?;
                let pair = u32::from_le_bytes(raw);
                (if number % 2 == 0 { pair & 0xfff } else { pair >> 4 }, 0xff8)
            }
            4085..65525 => {
                at(disk, self.table + number * 2, &mut raw[..2])?;
                (u32::from_le_bytes(raw), 0xfff8)
            }
            _ => {
                at(disk, self.table + number * 4, &mut raw)?;
                (u32::from_le_bytes(raw) & 0x0fff_ffff, 0x0fff_fff8)
            }
        };
        Ok((value < end).then_some(value))
    }
}

/// Reads at a place.
fn at(disk: &mut (impl Read + Seek), offset: u64, buf: &mut [u8]) -> io::Result<()> {
    disk.seek(SeekFrom::Start(offset))?;
    disk.read_exact(buf)
}

/// Moves `.` and `..` of every directory to its start.
///
/// # Errors
/// The disk fails, or does not hold what was just made.
pub fn move_to_start(disk: &mut (impl Read + Write + Seek)) -> io::Result<()> {
    let geometry = Geometry::read(disk)?;
    let mut left = Vec::new();
    if geometry.root_cluster == 0 {
        let mut slots = vec![0; geometry.root_bytes as usize];
        at(disk, geometry.root, &mut slots)?;
        directories(&slots, &mut left);
    } else {
        below(disk, &geometry, geometry.root_cluster, &mut left)?;
    }
    while let Some(cluster) = left.pop() {
        let place = geometry.place(cluster)?;
        let mut slots = vec![0; 4 * SLOT];
        at(disk, place, &mut slots)?;
        let name = |slot: usize| &slots[slot * SLOT..slot * SLOT + 11];
        if name(1) == b".          " && name(3) == b"..         " {
            let moved = [&slots[SLOT..2 * SLOT], &slots[3 * SLOT..]].concat();
            slots[..2 * SLOT].copy_from_slice(&moved);
            (slots[2 * SLOT], slots[3 * SLOT]) = (FREE, FREE);
            disk.seek(SeekFrom::Start(place))?;
            disk.write_all(&slots)?;
        }
        below(disk, &geometry, cluster, &mut left)?;
    }
    Ok(())
}

/// Adds the directories that lie in one.
fn below(
    disk: &mut (impl Read + Seek),
    geometry: &Geometry,
    first: u32,
    found: &mut Vec<u32>,
) -> io::Result<()> {
    let (mut cluster, mut steps) = (Some(first), 0);
    while let Some(number) = cluster {
        let mut slots = vec![0; geometry.cluster as usize];
        at(disk, geometry.place(number)?, &mut slots)?;
        directories(&slots, found);
        cluster = geometry.next(disk, number)?;
        steps += 1;
        if steps > geometry.clusters {
            return Err(damaged("a chain without an end"));
        }
    }
    Ok(())
}

/// The first clusters of the directories among some slots.
fn directories(slots: &[u8], found: &mut Vec<u32>) {
    for slot in slots.chunks_exact(SLOT).filter(|slot| !matches!(slot[0], 0 | FREE | b'.')) {
        if slot[11] & DIRECTORY != 0 && slot[11] & LONG_NAME != LONG_NAME {
            let half = |at: usize| u32::from(u16::from_le_bytes([slot[at], slot[at + 1]]));
            found.push((half(20) << 16) | half(26));
        }
    }
}
