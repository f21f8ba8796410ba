//! Files that share blocks: reverse mappings and reference counts name all who have them.

use super::*;

/// Files `a` and `b` with the same blocks, `c` with its own, and their numbers.
fn shared() -> (Arc<MemoryDevice>, [Ino; 3]) {
    kind("xfs-rmap-4k").image_with(|cx, fs| {
        let root = fs.root();
        let [a, b, c] = ["a", "b", "c"].map(|name| create(cx, fs, root, name));
        for piece in 0..6u64 {
            write(cx, fs, a, piece, piece * 65_536, 8192);
            write(cx, fs, c, 10 + piece, piece * 65_536, 8192);
        }
        fs.fsync(cx, a, false).expect("fsync");
        fs.clone_range(cx, (a, 0), (b, 0), 0).expect("they share");
        [a, b, c]
    })
}

/// A map that is gone, or whose last extent lies behind the end of the file, comes back, though
/// another file has the blocks too.
#[test]
fn a_map_of_shared_blocks_comes_back() {
    let (base, [a, b, _]) = shared();
    let before = manifest(&base).expect("sound");
    for ino in [a, b] {
        for damage in ["none", "behind"] {
            let device = Arc::new(base.fork());
            change_slot(&device, ino, |slot| match damage {
                "none" => {
                    slot[24..32].fill(0);
                    slot[76..80].fill(0);
                }
                _ => {
                    let last = FORK + 16 * 5;
                    let word = u64::from_be_bytes(slot[last..last + 8].try_into().expect("eight"));
                    let moved = word & 0x1ff | 0x10000 << 9;
                    slot[last..last + 8].copy_from_slice(&moved.to_be_bytes());
                }
            });
            let (plan, after) = repaired(&device);
            let text = format!("{ino:?}, {damage}: {:#?}", plan.findings);
            assert_eq!(differences(&before, &after), [""; 0], "{text}");
        }
    }
}

/// One wrong record of the reverse map, its checksum right, costs no file a block, whether others
/// share that or not.
#[test]
fn a_wrong_record_of_shared_blocks_costs_no_file() {
    let (base, inos) = shared();
    let before = manifest(&base).expect("sound");
    let image = base.snapshot();
    let g = xfs_support::geometry(&image).expect("sound");
    let size = g.block_size as usize;
    let mut hit = 0;
    for ag in 0..g.ag_count() {
        let at = g.header_sector(ag, AgHeader::Agf).bytes() as usize;
        let agf = *RawAgf::view(&image[at..at + 512]).expect("a sector");
        if agf.agf_rmap_level.get() != 1 {
            continue;
        }
        let root = xfs::format::AgBlock { ag, block: agf.agf_rmap_root.get() };
        let at = g.linear(root) as usize * size;
        let count = usize::from(u16::from_be_bytes([image[at + 6], image[at + 7]]));
        for record in (0..count).map(|index| 56 + 24 * index) {
            let owner =
                u64::from_be_bytes(image[at + record + 8..][..8].try_into().expect("eight"));
            if !inos.contains(&Ino(owner)) {
                continue;
            }
            let owners = [999_999, inos[2].0, 0xffff_ffff_0004_04a9, 5u64.wrapping_neg()];
            let wrong = owners.map(|owner| (8, owner)).into_iter();
            for (field, value) in wrong.chain([(16, 7), (16, 1 << 20)]) {
                let device = Arc::new(base.fork());
                let mut block = image[at..at + size].to_vec();
                block[record + field..][..8].copy_from_slice(&u64::to_be_bytes(value));
                if block == image[at..at + size] {
                    continue;
                }
                verifier::update_crc(Block::Rmap, &mut block);
                device.write_at(at as u64, &block);
                let (_, after) = repaired(&device);
                let text = format!("record at {record}, {field}: {value:#x}");
                assert_eq!(differences(&before, &after), [""; 0], "{text}");
                hit += 1;
            }
        }
    }
    assert!(hit > 50, "{hit}");
}
