//! Values of attributes in inodes of their own.

use ext4::Rule;

use super::*;

/// The inodes that hold values, by their sizes.
fn holders(device: &MemoryDevice) -> Vec<(u64, u32)> {
    let image = device.snapshot();
    let g = geometry(&image);
    let all = (g.first_ino..=g.inodes_count).filter_map(|ino| {
        let place = slot_place(&image, &g, ino)?;
        let values = InodeValues::read(&image[place], &g);
        let holds = values.flags.contains(InodeFlags::EA_INODE) && values.links > 0;
        holds.then_some((values.size, ino))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all
}

/// Each witness may be wrong alone: the hash in the inode, the number of entries, the flag, a byte
/// of the content. Nothing is lost.
#[test]
fn one_wrong_witness_costs_no_value() {
    type Damage = fn(&MemoryDevice, u32);
    let damages: [(&str, Damage); 6] = [
        ("links", |device, ino| {
            change(device, ino, |values, _| values.links = 7);
        }),
        ("hash", |device, ino| {
            change(device, ino, |values, _| values.atime.sec ^= 77);
        }),
        ("references", |device, ino| {
            change(device, ino, |values, _| values.set_references(9));
        }),
        ("flag", |device, ino| {
            change(device, ino, |values, _| values.flags -= InodeFlags::EA_INODE);
        }),
        ("size", |device, ino| {
            change(device, ino, |values, _| values.size -= 1);
        }),
        ("content", |device, ino| {
            let block = first_block(&change(device, ino, |_, _| ()));
            let at = block * 1024 + 700;
            let byte = device.snapshot()[at as usize] ^ 4;
            device.write_at(at, &[byte]);
        }),
    ];
    let (base, before) = of("values-1k");
    let holders = holders(&base);
    assert_eq!(
        holders.iter().map(|(size, _)| *size).collect::<Vec<_>>(),
        [1500, 2048, 5000, 20_000]
    );
    for (name, damage) in damages {
        for &(size, ino) in &holders {
            let device = Arc::new(base.fork());
            damage(&device, ino);
            let after = repaired(&device);
            assert!(after == before, "{name} of {size} bytes");
        }
    }
}

/// A value whose content is another one leaves its attribute, and is kept as a file.
#[test]
fn a_value_with_another_content_becomes_a_file() {
    let (base, before) = of("values-1k");
    for (size, ino) in holders(&base) {
        let device = Arc::new(base.fork());
        let block = first_block(&change(&device, ino, |_, _| ()));
        device.write_at(block * 1024, &[0x5a; 1024]);
        let planned = plan(&device).expect("a plan");
        let lost = planned.findings.iter().filter(|found| found.loss.is_some());
        assert!(lost.count() > 0 && !planned.is_safe(), "{size}: {planned:#?}");
        assert!(planned.findings.iter().any(|found| found.rule == Rule::XattrInode.name()));
        let after = repaired(&device);
        let files = after
            .iter()
            .filter(|(path, entry)| path.starts_with(b"lost+found/#") && entry.size == size);
        assert_eq!(files.count(), 1, "{size}: {after:#?}");
        let differ = before.keys().filter(|path| after.get(*path) != before.get(*path));
        let names: Vec<_> = differ.map(|path| path.escape_ascii().to_string()).collect();
        let owners = if size == 5000 {
            vec!["lost+found", "one", "twin"]
        } else {
            vec!["lost+found", "three"]
        };
        assert!(names.iter().all(|name| owners.contains(&name.as_str())), "{size}: {names:?}");
    }
}

/// A value that no attribute names is kept as a file.
#[test]
fn a_value_without_an_attribute_becomes_a_file() {
    let (device, _) = of("values-1k");
    let three = ino_of(&device, "three");
    change(&device, three, |values, slot| slot[128 + usize::from(values.extra_isize)..].fill(0));
    let after = repaired(&device);
    let files = after.keys().filter(|path| path.starts_with(b"lost+found/#"));
    assert!(files.count() == 3 && entry(&after, "three").xattrs.is_empty(), "{after:#?}");
}
