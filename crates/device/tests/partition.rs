//! Partition tables made by hand, read by us and by partx.

use base::{Page, Sector};
use block::{BioFlags, Device, Queue, QueueConfig};
use device::{MemoryDevice, OpenOptions, Partition, PartitionError, PartitionTable, TableKind};
use rt::Runtime;
use std::sync::Arc;

const SECTORS: usize = 8192;

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Writes a boot record at `sector`: entries of (status, type, start, count).
fn boot_record(image: &mut [u8], sector: usize, entries: &[(u8, u8, u32, u32)]) {
    for (index, &(status, kind, start, count)) in entries.iter().enumerate() {
        let at = sector * 512 + 446 + index * 16;
        image[at] = status;
        image[at + 4] = kind;
        put(image, at + 8, &start.to_le_bytes());
        put(image, at + 12, &count.to_le_bytes());
    }
    put(image, sector * 512 + 510, &[0x55, 0xaa]);
}

/// Two primary partitions, one extended with three logical ones.
fn mbr() -> Vec<u8> {
    let mut image = vec![0; SECTORS * 512];
    boot_record(&mut image, 0, &[(0x80, 0x83, 64, 1000), (0, 0x82, 1100, 100), (0, 5, 2048, 6000)]);
    boot_record(&mut image, 2048, &[(0, 0x83, 64, 500), (0, 5, 1000, 600)]);
    boot_record(&mut image, 3048, &[(0, 0x83, 10, 500), (0, 5, 3000, 1000)]);
    boot_record(&mut image, 5048, &[(0, 0x07, 8, 900)]);
    image
}

const LINUX: [u8; 16] = [
    0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
];

/// A GPT in blocks of `unit` bytes with partitions (number, first, last, name), and its copy.
fn gpt(unit: usize, partitions: &[(usize, u64, u64, &str)]) -> Vec<u8> {
    let mut image = vec![0; SECTORS * 512];
    let blocks = image.len() / unit;
    boot_record(&mut image, 0, &[(0, 0xee, 1, blocks as u32 - 1)]);
    let mut entries = vec![0; 128 * 128];
    for &(number, first, last, name) in partitions {
        let at = (number - 1) * 128;
        put(&mut entries, at, &LINUX);
        put(&mut entries, at + 16, &[number as u8; 16]);
        put(&mut entries, at + 32, &first.to_le_bytes());
        put(&mut entries, at + 40, &last.to_le_bytes());
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(&mut entries, at + 56, &name);
    }
    let table_blocks = entries.len() / unit;
    let backup = blocks - 1;
    for (own, other, table) in [(1, backup, 2), (backup, 1, backup - table_blocks)] {
        let mut header = vec![0; 92];
        put(&mut header, 0, b"EFI PART");
        put(&mut header, 8, &[0, 0, 1, 0, 92, 0, 0, 0]);
        put(&mut header, 24, &(own as u64).to_le_bytes());
        put(&mut header, 32, &(other as u64).to_le_bytes());
        put(&mut header, 40, &(2 + table_blocks as u64).to_le_bytes());
        put(&mut header, 48, &((backup - table_blocks - 1) as u64).to_le_bytes());
        put(&mut header, 56, &[9; 16]);
        put(&mut header, 72, &(table as u64).to_le_bytes());
        put(&mut header, 80, &128u32.to_le_bytes());
        put(&mut header, 84, &128u32.to_le_bytes());
        put(&mut header, 88, &crc32fast::hash(&entries).to_le_bytes());
        let crc = crc32fast::hash(&header);
        put(&mut header, 16, &crc.to_le_bytes());
        put(&mut image, own * unit, &header);
        put(&mut image, table * unit, &entries);
    }
    image
}

fn list(image: &[u8]) -> Result<PartitionTable, PartitionError> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_image(image));
    Runtime::real(1).enter("test", |cx| Partition::list(cx, &device))
}

/// Numbers, starts and counts.
fn places(table: &PartitionTable) -> Vec<(u32, u64, u64)> {
    table.partitions.iter().map(|entry| (entry.number, entry.start.0, entry.count)).collect()
}

const MBR_PLACES: [(u32, u64, u64); 5] =
    [(1, 64, 1000), (2, 1100, 100), (5, 2112, 500), (6, 3058, 500), (7, 5056, 900)];
const GPT_PARTITIONS: [(usize, u64, u64, &str); 3] =
    [(1, 64, 1063, "boot"), (2, 2000, 2999, "größe"), (5, 4000, 4000, "")];

#[test]
fn an_mbr_with_logical_partitions_is_read() {
    let table = list(&mbr()).unwrap();
    assert_eq!((table.kind, places(&table)), (TableKind::Mbr, MBR_PLACES.to_vec()));
    assert_eq!((table.partitions[0].kind.as_str(), table.partitions[0].bootable), ("83", true));
}

#[test]
fn a_gpt_is_read_at_both_block_sizes() {
    let table = list(&gpt(512, &GPT_PARTITIONS)).unwrap();
    assert_eq!(table.kind, TableKind::Gpt);
    assert_eq!(places(&table), [(1, 64, 1000), (2, 2000, 1000), (5, 4000, 1)]);
    assert_eq!(table.partitions[1].name, "größe");
    assert_eq!(table.partitions[0].kind, "0fc63daf-8483-4772-8e79-3d69d8477de4");
    let guid = "01010101-0101-0101-0101-010101010101";
    assert_eq!(table.partitions[0].guid.as_deref(), Some(guid));
    let table = list(&gpt(4096, &[(1, 10, 19, "big blocks")])).unwrap();
    assert_eq!(places(&table), [(1, 80, 80)]);
}

/// Goal: one damaged copy does no harm; two are named by their failed checks; nothing panics.
#[test]
fn damage_is_named_and_the_copy_used() {
    let whole = gpt(512, &GPT_PARTITIONS);
    let expected = list(&whole).unwrap();
    let last = (SECTORS - 1) * 512;
    let fields = [
        (0, "no signature EFI PART"),
        (16, "checksum of the header"),
        (24, "checksum of the header"),
        (12, "size of the header"),
        (1024 - 512, "checksum of the entries"),
    ];
    for (at, what) in fields {
        let mut image = whole.clone();
        image[512 + at + 1] ^= 0xff;
        assert_eq!(list(&image).unwrap(), expected, "{what}");
        image[last..].fill(0);
        let error = list(&image).unwrap_err();
        let missing = "no signature EFI PART";
        assert_eq!(error, PartitionError::Gpt { primary: what, backup: missing });
    }
    for bad in [(1, 3000, 2000, ""), (1, 1, 100, ""), (1, 64, 1 << 60, "")] {
        let error = list(&gpt(512, &[bad])).unwrap_err();
        assert!(matches!(error, PartitionError::OutOfRange { number: 1, .. }), "{error}");
    }
    let error = list(&gpt(512, &[(3, 64, 100, ""), (1, 90, 200, "")])).unwrap_err();
    assert_eq!(error, PartitionError::Overlap { first: 3, second: 1 });
}

#[test]
fn wrong_boot_records_are_refused() {
    assert_eq!(list(&vec![0; SECTORS * 512]), Err(PartitionError::NoTable));
    // The boot sector of a FAT file system has the signature, and code where the entries are.
    let mut image = vec![0; SECTORS * 512];
    boot_record(&mut image, 0, &[(0x33, 0xc0, 1, 1)]);
    assert_eq!(list(&image), Err(PartitionError::NoTable));
    let mut image = mbr();
    boot_record(&mut image, 0, &[(0, 0x83, 64, 10_000)]);
    let error = list(&image).unwrap_err().to_string();
    assert_eq!(error, "partition 1: 10000 sectors from 64 do not lie on a device of 8192");
    let mut image = mbr();
    boot_record(&mut image, 5048, &[(0, 7, 8, 900), (0, 5, 0, 600)]);
    assert_eq!(places(&list(&image).unwrap()), MBR_PLACES, "a link back ends the chain");
}

/// Goal: no bytes make the reader panic. Method: random bytes over whole tables.
#[test]
fn mutated_tables_never_panic() {
    for seed in 0..300 {
        let mut rng = base::Rng::new(seed, 3);
        let mut image = if seed % 2 == 0 { mbr() } else { gpt(512, &GPT_PARTITIONS) };
        for _ in 0..rng.range(1..20) {
            let areas = [0, 446, 512, 1024, 2048 * 512 + 446, image.len() - 512];
            let at = *rng.pick(&areas) + rng.below(64) as usize;
            image[at] = rng.next_u32() as u8;
        }
        // A header with a right checksum gets further.
        let size = 92;
        image[512 + 16..512 + 20].fill(0);
        let crc = crc32fast::hash(&image[512..512 + size]);
        put(&mut image, 512 + 16, &crc.to_le_bytes());
        let _ = list(&image);
    }
}

#[test]
fn a_partition_is_a_device_with_its_own_addresses() {
    let memory = Arc::new(MemoryDevice::from_image(&mbr()));
    let device: Arc<dyn Device> = memory.clone();
    Runtime::real(1).enter("test", |cx| {
        let part = Partition::open(cx, &device, 6).unwrap();
        assert_eq!((part.info().sectors, part.start()), (500, Sector(3058)));
        assert!(part.name().ends_with("@6"));
        let queue = Queue::new(cx.runtime(), Arc::new(part), QueueConfig::default()).unwrap();
        let page = Page::from_slice(&[5; 512]);
        queue.write(cx, Sector(0), page.clone(), BioFlags::empty()).unwrap();
        queue.write(cx, Sector(499), page.clone(), BioFlags::empty()).unwrap();
        let error = queue.write(cx, Sector(500), page, BioFlags::empty()).unwrap_err();
        assert_eq!((error.sector, error.cause), (Sector(500), block::Cause::OutOfRange));
        let error = Partition::open(cx, &device, 3).err().unwrap().to_string();
        assert_eq!(error, "no partition 3; there are: 1, 2, 5, 6, 7");
    });
    let image = memory.snapshot();
    assert_eq!([image[3058 * 512], image[3557 * 512], image[3558 * 512]], [5, 5, 0]);
}

/// Goal: what the host keeps of a partition is told where it lies in the image's file, and only
/// inside of the partition and while nobody traces.
#[test]
fn the_host_keeps_a_partition_inside_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, mbr()).unwrap();
    let device = device::open(&path, OpenOptions::default()).unwrap();
    Runtime::real(1).enter("test", |cx| {
        let part: Arc<dyn Device> = Arc::new(Partition::open(cx, &device, 6).unwrap());
        let queue = Queue::new(cx.runtime(), part.clone(), QueueConfig::default()).unwrap();
        let range = queue.host_range(4096, 1000).unwrap();
        assert_eq!((range.offset, range.len), (3058 * 512 + 4096, 1000));
        assert!(queue.host_range(0, 500 * 512).is_some());
        assert!(queue.host_range(0, 500 * 512 + 1).is_none());
        assert!(queue.host_range(u64::MAX, 1).is_none());
        let config = QueueConfig { trace_events: 100, ..QueueConfig::default() };
        let traced = Queue::new(cx.runtime(), part, config).unwrap();
        assert!(traced.host_range(0, 512).is_none());
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::from_image(&mbr()));
        assert!(memory.host_range(0, 512).is_none());
    });
}

/// Goal: partx (libblkid) sees the same partitions in these images.
#[test]
fn partx_reads_the_tables_alike() {
    for image in [mbr(), gpt(512, &GPT_PARTITIONS)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, &image).unwrap();
        let arguments = ["--show", "--noheadings", "--output", "NR,START,SECTORS"];
        let output = std::process::Command::new("partx").args(arguments).arg(&path).output();
        let output =
            output.expect("this test needs `partx`; install it: apt-get install util-linux");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers = |line: &str| -> Vec<u64> {
            line.split_whitespace().map(|word| word.parse().unwrap()).collect()
        };
        // partx lists the extended partition (3 here) too, which holds no data of its own.
        let other: Vec<(u32, u64, u64)> = text
            .lines()
            .map(|line| numbers(line)[..].try_into().expect("three columns"))
            .map(|[number, start, count]: [u64; 3]| (number as u32, start, count))
            .filter(|&(_, start, _)| start != 2048)
            .collect();
        assert_eq!(other, places(&list(&image).unwrap()));
    }
}
