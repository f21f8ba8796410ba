//! Exact numbers of bios and bytes.

use super::*;

const KIB: u64 = 1024;

/// A 128 KiB append is one bio of exactly its bytes, whatever the folio size is, and appending in
/// small steps between syncs writes each block once.
#[test]
fn an_append_is_one_bio_and_writes_its_bytes_once() {
    for folio in [4096, 16384, 65536] {
        rt::testing::world(|cx| {
            let rig = Rig::new(cx, config(folio, 16 << 20), 4096, 1, 4 << 20);
            let file = rig.file(0, 0);
            let data = vec![7; 128 << 10];
            file.write(cx, 0, &data).expect("writes");
            assert_eq!(rig.seen(), "", "nothing is written before the sync");
            file.flush(cx, 0..u64::MAX).expect("flushes");
            assert_eq!(rig.seen(), "W0+128");
            file.write(cx, 128 * KIB, &data).expect("writes");
            file.flush(cx, 0..u64::MAX).expect("flushes");
            assert_eq!(rig.seen(), "W128+128");
            for step in 0..64 {
                file.write(cx, (256 + step) * KIB, &data[..KIB as usize]).expect("writes");
            }
            rig.backing.sync(cx).expect("syncs");
            assert_eq!(rig.seen(), "W256+64");
            let stats = rig.cache.stats();
            assert_eq!((stats.write_bios, stats.write_bytes), (3, 320 * KIB));
            assert_eq!((stats.read_bios, stats.completions), (0, 0));
            rig.finish(cx);
        });
    }
}

/// Small files that lie side by side leave in one request, in the order of their numbers.
#[test]
fn small_files_leave_together() {
    rt::testing::world(|cx| {
        let rig = Rig::new(cx, config(4096, 16 << 20), 4096, 64, 4096);
        let files: Vec<_> = (0..64).rev().map(|id| rig.file(id, 0)).collect();
        for file in &files {
            file.write(cx, 0, &[7; 100]).expect("writes");
        }
        rig.backing.sync(cx).expect("syncs");
        assert_eq!(rig.seen(), "W0+256");
        assert_eq!(rig.cache.stats().write_bios, 64);
        let mut tail = vec![0; 4096];
        tail[..100].fill(7);
        assert_eq!(&rig.disk.lock_irq().bytes[4096..8192], &tail[..], "the rest is zero");
        assert_eq!(rig.backing.dirty_mappings(), 0);
        assert_eq!(rig.cache.drop_clean(cx), 64 * 4096);
        rig.finish(cx);
    });
}

/// Files that are gone with their folios kept the memory of their mappings for ever, 400 bytes
/// each: a reader of a million small files that evicts their inodes.
#[test]
fn mappings_that_are_gone_leave_the_ring_of_the_clock() {
    rt::testing::world(|cx| {
        let rig = Rig::new(cx, config(4096, 16 << 20), 4096, 8, 4096);
        let stays = rig.file(0, 4096);
        stays.read(cx, 0, &mut [0; 16]).expect("reads");
        for round in 0..10_000 {
            rig.file(1 + round % 7, 4096).read(cx, 0, &mut [0; 16]).expect("reads");
        }
        assert!(rig.cache.ring.lock_irq().len() < 2000, "{}", rig.cache.ring.lock_irq().len());
        assert_eq!(rig.cache.drop_clean(cx), 4096, "what lives is still found");
        rig.finish(cx);
    });
}

/// A sequential reader causes the windows of the table; a random one only what it asks for, in
/// blocks, even where the folio is larger.
#[test]
fn reads_follow_the_readahead_table() {
    for (folio, random) in
        [(4096, "R300+4 R500+8"), (16384, "R300+4 R500+8"), (65536, "R300+4 R500+8")]
    {
        rt::testing::world(|cx| {
            let rig = Rig::new(cx, config(folio, 16 << 20), 1024, 1, 1 << 20);
            let file = rig.file(0, 0);
            file.write(cx, 0, &vec![7; 1 << 20]).expect("writes");
            file.invalidate(cx, 0..u64::MAX).expect("invalidates");
            rig.seen();
            let mut buf = [0; 4096];
            for at in 0..60 {
                assert_eq!(file.read(cx, at * 4096, &mut buf), Ok(4096));
            }
            assert_eq!(rig.seen(), "R0+16 R16+32 R48+64 R112+128 R240+128");
            file.invalidate(cx, 0..u64::MAX).expect("invalidates");
            let file = rig.file(0, 1 << 20);
            file.read(cx, 300 * KIB, &mut buf).expect("reads");
            file.read(cx, 500 * KIB, &mut [0; 8000]).expect("reads");
            assert_eq!(rig.seen(), random);
            rig.finish(cx);
        });
    }
}

/// A write into a part of a block reads nothing until write-out, then just the block; what was
/// written can be read at once, also after the flush.
#[test]
fn partly_valid_folios_serve_reads_and_survive_the_flush() {
    rt::testing::world(|cx| {
        let rig = Rig::new(cx, config(16384, 16 << 20), 2048, 1, 1 << 20);
        let file = rig.file(0, 0);
        file.write(cx, 0, &vec![1; 64 << 10]).expect("writes");
        file.invalidate(cx, 0..u64::MAX).expect("invalidates");
        rig.seen();
        file.write(cx, 2048, &[2; 2048]).expect("writes");
        file.write(cx, 8192, &[3; 2048]).expect("writes");
        let mut buf = [0; 2048];
        file.read(cx, 8192, &mut buf).expect("reads");
        assert_eq!((rig.seen().as_str(), buf[0]), ("", 3));
        file.flush(cx, 0..u64::MAX).expect("flushes");
        assert_eq!(rig.seen(), "W2+2 W8+2", "two dirty ranges of one folio, nothing read");
        file.read(cx, 2048, &mut buf).expect("reads");
        assert_eq!((rig.seen().as_str(), buf[0]), ("", 2), "valid ranges survive the flush");
        file.write(cx, 5000, &[4; 10]).expect("writes");
        assert_eq!(rig.seen(), "", "a write into a part of a block does not read");
        file.flush(cx, 0..u64::MAX).expect("flushes");
        assert_eq!(rig.seen(), "R4+2 W4+2");
        file.read(cx, 4096, &mut buf).expect("reads");
        assert_eq!((buf[0], buf[5000 - 4096]), (1, 4));
        rig.finish(cx);
    });
}

/// A write during write-back neither waits nor changes what is in flight, and its folio is dirty
/// afterwards.
#[test]
fn a_folio_written_in_flight_stays_dirty() {
    rt::testing::world(|cx| {
        let rig = Rig::new(cx, config(4096, 16 << 20), 4096, 1, 1 << 20);
        let file = rig.file(0, 0);
        file.write(cx, 0, &[1; 4096]).expect("writes");
        rig.disk.lock_irq().delay = Nanos::from_millis(5);
        let other = file.clone();
        let flush = cx.spawn("flush", move |cx| other.flush(cx, 0..u64::MAX));
        cx.sleep(Nanos::from_millis(1));
        let before = cx.now();
        file.write(cx, 10, &[2; 10]).expect("writes");
        assert_eq!(cx.now(), before, "the writer did not wait");
        flush.join(cx).expect("flushes");
        assert!(file.is_dirty());
        assert_eq!(rig.disk.lock_irq().bytes[10], 1);
        file.flush(cx, 0..u64::MAX).expect("flushes");
        assert_eq!(rig.disk.lock_irq().bytes[10], 2);
        rig.finish(cx);
    });
}

/// Dirty data is written 30 to 35 s later by itself; then the flusher is gone.
#[test]
fn old_dirty_data_is_written_by_itself() {
    let mut world = rt::World::new(rt::WorldConfig::default());
    let (rig, _file) = world.run("main", |cx| {
        let rig = Rig::new(cx, config(4096, 16 << 20), 4096, 1, 1 << 20);
        let file = rig.file(0, 0);
        file.write(cx, 0, &[1; 5000]).expect("writes");
        cx.sleep(Nanos::from_secs(29));
        assert_eq!(rig.seen(), "");
        cx.sleep(Nanos::from_secs(7));
        assert_eq!(rig.seen(), "W0+8");
        (rig, file)
    });
    world.run_idle();
    assert_eq!(world.unfinished(), 0, "the flusher ended");
    assert!(world.now() < Nanos::from_secs(60));
    assert_eq!(rig.cache.stats().dirty_bytes, 0);
}
