use std::collections::BTreeMap;

use base::rng::Rng;

use super::*;

fn layouts() -> Vec<DirLayout> {
    let mut list = Vec::new();
    for block_size in [1024, 2048, 4096] {
        for checksum in [false, true] {
            for filetype in [false, true] {
                list.push(DirLayout { block_size, checksum, filetype, names: Names::Plain });
            }
        }
    }
    list
}

fn names_of(block: &[u8], layout: DirLayout) -> BTreeMap<Vec<u8>, u32> {
    entries(block, layout).filter(|e| e.ino != 0).map(|e| (e.name.to_vec(), e.ino)).collect()
}

/// Random insertions and removals against a map; the block is checked after each.
#[test]
fn a_block_behaves_like_a_map() {
    for layout in layouts() {
        let mut rng = Rng::new(7, u64::from(layout.block_size));
        let mut block = vec![0; layout.block_size as usize];
        init_empty(&mut block, layout);
        let mut model = BTreeMap::new();
        for step in 0..4000u32 {
            let bound = if rng.chance(0.1) { 255 } else { 9 };
            let len = 1 + rng.below(bound) as usize;
            let name: Vec<u8> = (0..len).map(|_| b'a' + rng.below(3) as u8).collect();
            let key = Key::new(&name);
            let seen = scan(&block, layout, &key, entry_len(len));
            assert_eq!(seen.found.map(|f| f.ino), model.get(&name).copied());
            assert_eq!(seen.found, find(&block, layout, &key));
            match (seen.found, seen.room) {
                (Some(found), _) => {
                    remove(&mut block, layout, &found);
                    model.remove(&name);
                }
                (None, Some(room)) => {
                    insert(&mut block, layout, room, step + 1, 1, &name);
                    model.insert(name, step + 1);
                }
                (None, None) => {}
            }
            check(&block, layout, u32::MAX).expect("the block stays well formed");
            assert_eq!(names_of(&block, layout), model);
        }
        assert!(model.len() > 3);
    }
}

/// 65536 does not fit into 16 bits: an unused block of that length has 0xffff there, as mke2fs
/// writes it, or 0; both are one entry, take a name, and come back to it.
#[test]
fn a_whole_block_of_64_kib_is_one_entry() {
    let layout =
        DirLayout { block_size: 65536, checksum: false, filetype: true, names: Names::Plain };
    let mut block = vec![0; 65536];
    init_empty(&mut block, layout);
    assert_eq!(block[4..6], [0xff, 0xff]);
    for stored in [[0xff, 0xff], [0, 0]] {
        block[4..6].copy_from_slice(&stored);
        check(&block, layout, 99).expect("well formed");
        let lengths: Vec<u32> = entries(&block, layout).map(|entry| entry.rec_len).collect();
        assert_eq!(lengths, [65536], "{stored:?}");
        let room = scan(&block, layout, &Key::new(b"name"), 12).room.expect("all of it");
        insert(&mut block, layout, room, 12, 1, b"name");
        assert_eq!(names_of(&block, layout).len(), 1);
        let found = find(&block, layout, &Key::new(b"name")).expect("there");
        remove(&mut block, layout, &found);
        assert_eq!(block[4..6], [0xff, 0xff], "unused again");
    }
    let mut small = vec![0; 4096];
    let layout = DirLayout { block_size: 4096, ..layout };
    for stored in [[0xff, 0xff], [0, 0]] {
        small[4..6].copy_from_slice(&stored);
        assert!(check(&small, layout, 99).is_err(), "only there: {stored:?}");
    }
}

#[test]
fn a_full_block_uses_all_its_bytes() {
    let layout =
        DirLayout { block_size: 1024, checksum: false, filetype: true, names: Names::Plain };
    let mut block = vec![0; 1024];
    init_dots(&mut block, layout, 2, 2, 2);
    let mut count = 0u32;
    loop {
        let name = format!("{count:08}");
        let Some(room) = scan(&block, layout, &Key::new(name.as_bytes()), entry_len(8)).room else {
            break;
        };
        insert(&mut block, layout, room, 11, 1, name.as_bytes());
        count += 1;
    }
    assert_eq!(count, (1024 - 24) / 16);
    check(&block, layout, 11).expect("well formed");
}

#[test]
fn every_malformed_entry_has_its_error() {
    let layout =
        DirLayout { block_size: 1024, checksum: true, filetype: true, names: Names::Plain };
    let mut good = vec![0; 1024];
    init_dots(&mut good, layout, 2, 2, 2);
    set_checksum(InodeSeed(77), &mut good);
    check(&good, layout, 100).expect("well formed");
    verify_checksum(InodeSeed(77), &good).expect("its own checksum");
    let damaged = |at: usize, byte: u8| {
        let mut block = good.clone();
        block[at] = byte;
        check(&block, layout, 100).expect_err("a damaged block")
    };
    use CorruptKind::*;
    assert_eq!(damaged(4, 8), DirRecLen { offset: 0, rec_len: 8 });
    assert_eq!(damaged(4, 14), DirRecLen { offset: 0, rec_len: 14 });
    assert_eq!(damaged(5, 8), DirRecLen { offset: 0, rec_len: 0x80c });
    // The second entry now ends early, and the zeros behind it are no entry.
    assert_eq!(damaged(16, 0), DirRecLen { offset: 780, rec_len: 0 });
    assert_eq!(damaged(6, 5), DirNameLen { offset: 0, name_len: 5, rec_len: 12 });
    assert_eq!(damaged(6, 0), DirEmptyName { offset: 0 });
    assert_eq!(damaged(8, b'/'), DirNameByte { offset: 0 });
    assert_eq!(damaged(12, 101), DirInode { offset: 12, ino: 101, inodes: 100 });
    assert_eq!(damaged(7, 8), DirFileType { offset: 0, file_type: 8 });
    assert_eq!(damaged(1024 - 5, 0), DirTail);
    assert!(matches!(verify_checksum(InodeSeed(78), &good), Err(DirChecksum { .. })));
}

/// The types of entries whose names are encrypted were taken unseen.
#[test]
fn types_beside_encrypted_names_are_checked() {
    let layout =
        DirLayout { block_size: 1024, checksum: false, filetype: true, names: Names::Encrypted };
    let mut block = vec![0; 1024];
    init_dots(&mut block, layout, 2, 2, 2);
    let name = b"/\0 and others 16";
    let room = scan(&block, layout, &Key::new(b"x"), entry_len(name.len())).room.expect("room");
    insert(&mut block, layout, room, 11, 1, name);
    check(&block, layout, 100).expect("well formed");
    let at = entries(&block, layout).last().expect("an entry").offset;
    block[at as usize + 7] = 255;
    let expected = CorruptKind::DirFileType { offset: at, file_type: 255 };
    assert_eq!(check(&block, layout, 100), Err(expected));
}

/// Nothing panics or hangs on blocks of noise.
#[test]
fn noise_is_refused_and_never_followed_out_of_the_block() {
    let mut rng = Rng::new(3, 3);
    let layout =
        DirLayout { block_size: 1024, checksum: false, filetype: true, names: Names::Plain };
    for _ in 0..3000 {
        let mut block = vec![0; 1024];
        init_dots(&mut block, layout, 2, 2, 2);
        for _ in 0..1 + rng.below(6) {
            let at = rng.below(40) as usize;
            block[at] = rng.next_u32() as u8;
        }
        let _ = check(&block, layout, 100);
        let _ = entries(&block, layout).count();
        let _ = scan(&block, layout, &Key::new(b"name"), 12);
    }
}
