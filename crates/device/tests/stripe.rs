//! The stripe: where the bytes lie, how requests are cut, and what an error names.

use std::sync::Arc;

use base::{Page, Rng, Sector};
use block::{BioFlags, Cause, Device, Op, Queue, QueueConfig, Segment};
use device::stripe::Cutter;
use device::{Fault, FaultDevice, MemoryDevice, Rule, StripeDevice, StripeError};
use rt::Cx;

fn members(count: usize, bytes: u64) -> (Vec<Arc<MemoryDevice>>, Vec<Arc<dyn Device>>) {
    let memory: Vec<_> = (0..count).map(|_| Arc::new(MemoryDevice::new(bytes))).collect();
    let devices = memory.iter().map(|one| one.clone() as Arc<dyn Device>).collect();
    (memory, devices)
}

fn queue(cx: &Cx, device: StripeDevice) -> Arc<Queue> {
    Queue::new(cx.runtime(), Arc::new(device), QueueConfig::default()).expect("a queue")
}

/// Goal: the parts of a request, for the example that the device mapper of 2006 is known for, and
/// for edges. Method: a table; sums and chunks of many random requests.
#[test]
fn requests_are_cut_at_the_ends_of_chunks() {
    let cut = |cutter: Cutter, sector, lengths: &[u32]| {
        cutter.cut(256, sector, lengths.iter().copied()).to_vec()
    };
    // Pages of 16 KiB that begin 4 KiB before a chunk: a page across each edge.
    let pages = [16384; 10];
    let parts = cut(Cutter::Segments, 256 - 8, &pages);
    assert_eq!(parts, [(248, 8), (256, 24), (280, 224), (504, 8), (512, 24), (536, 32)]);
    assert_eq!(cut(Cutter::Sectors, 256 - 8, &pages), [(248, 8), (256, 256), (512, 56)]);
    // A page that begins with a chunk cuts nothing.
    for cutter in [Cutter::Segments, Cutter::Sectors] {
        assert_eq!(cut(cutter, 256, &[16384; 8]), [(256, 256)]);
        assert_eq!(cut(cutter, 0, &[512]), [(0, 1)]);
        // One segment over several chunks.
        let parts = cut(cutter, 200, &[400 * 512]);
        assert_eq!(parts, [(200, 56), (256, 256), (512, 88)], "{cutter:?}");
    }
    let mut rng = Rng::new(3, 1);
    for _ in 0..500 {
        let (chunk, sector) = (1 + rng.below(64), rng.below(1000));
        let lengths: Vec<u32> =
            (0..1 + rng.below(12)).map(|_| 512 * (1 + rng.below(40)) as u32).collect();
        let count: u64 = lengths.iter().map(|&len| u64::from(len) / 512).sum();
        for cutter in [Cutter::Segments, Cutter::Sectors] {
            let mut at = sector;
            for (from, sectors) in cutter.cut(chunk, sector, lengths.iter().copied()) {
                assert_eq!(from, at);
                assert!(sectors > 0 && from / chunk == (from + sectors - 1) / chunk);
                at += sectors;
            }
            assert_eq!(at, sector + count);
        }
    }
}

/// Goal: chunks in turn, whatever is read and written. Method: random requests against an array,
/// any width and chunk, both cutters; then the members' own content.
#[test]
fn the_content_agrees_with_an_array() {
    for (seed, (width, chunk)) in
        [(1usize, 4096u64), (2, 512), (3, 12 * 512), (5, 65536)].into_iter().enumerate()
    {
        let cutter = [Cutter::Segments, Cutter::Sectors][seed % 2];
        rt::testing::world(|cx| {
            let (memory, devices) = members(width, 300 << 10);
            let stripe = StripeDevice::new(devices, chunk, cutter).expect("a stripe");
            let size = stripe.info().bytes() as usize;
            assert_eq!(size as u64, (300 << 10) / chunk * chunk * width as u64);
            let queue = queue(cx, stripe);
            let (mut rng, mut model) = (Rng::new(seed as u64, 2), vec![0u8; size]);
            for step in 0..200 {
                let at = rng.below((size / 512) as u64 - 100) as usize * 512;
                if rng.chance(0.5) {
                    let pieces: Vec<usize> =
                        (0..1 + rng.below(4)).map(|_| 512 * (1 + rng.below(24)) as usize).collect();
                    let mut segs = block::Segments::new();
                    let mut place = at;
                    for len in pieces {
                        let mut page = vec![0; len];
                        rng.fill(&mut page);
                        model[place..place + len].copy_from_slice(&page);
                        segs.push(Segment::whole(Page::from_slice(&page)));
                        place += len;
                    }
                    let sector = Sector::from_bytes(at as u64);
                    let done = queue.execute(cx, Op::Write, sector, segs, BioFlags::SYNC);
                    assert!(done.result.is_ok());
                } else {
                    let len = 512 * (1 + rng.below(90)) as usize;
                    let page = queue.read(cx, Sector::from_bytes(at as u64), len).expect("reads");
                    assert!(page[..] == model[at..at + len], "step {step}: {len} at {at}");
                }
            }
            queue.discard(cx, Sector(0), (chunk / 512) * 2).expect("discards");
            let gone = (chunk as usize * 2).min(size);
            model[..gone].fill(0);
            queue.flush(cx).expect("flushes");
            for (number, part) in model.chunks(chunk as usize).enumerate() {
                let mut own = vec![0; part.len()];
                memory[number % width].read_at((number / width) as u64 * chunk, &mut own);
                assert!(own == part, "chunk {number}");
            }
        });
    }
}

/// Goal: an error of one member names the sectors of the stripe that failed, and the rest is there.
#[test]
fn an_error_names_sectors_of_the_stripe() {
    rt::testing::both(|cx| {
        let (memory, mut devices) = members(3, 64 << 10);
        let faulty = Arc::new(FaultDevice::new(cx.runtime(), memory[1].clone()));
        devices[1] = faulty.clone();
        let stripe = StripeDevice::new(devices, 4096, Cutter::Sectors).expect("a stripe");
        let queue = queue(cx, stripe);
        // The second chunk of member 1 is chunk 4 of the stripe: sectors 32 to 39.
        faulty.add(Rule::on(Op::Write, 10..12, Fault::Fail(Cause::Io)));
        let page = Page::from_slice(&[7; 6 * 4096]);
        let error = queue.write(cx, Sector(8), page, BioFlags::SYNC).expect_err("fails");
        assert_eq!((error.sector, error.count, error.cause), (Sector(34), 2, Cause::Io));
        faulty.clear();
        let back = queue.read(cx, Sector(8), 6 * 4096).expect("reads");
        let failed = (34 - 8) * 512..(36 - 8) * 512;
        let rest = |(at, byte): (usize, &u8)| *byte == 7 || failed.contains(&at);
        assert!(back.iter().enumerate().all(rest));
    });
}

#[test]
fn what_makes_no_stripe_is_refused() {
    let small = members(2, 4096).1;
    let failed =
        |members, chunk| StripeDevice::new(members, chunk, Cutter::Sectors).err().expect("refused");
    assert_eq!(failed(Vec::new(), 4096), StripeError::Empty);
    assert_eq!(failed(small.clone(), 700), StripeError::Chunk(700, 512));
    assert!(failed(small, 65536).to_string().contains("smaller than a chunk of 65536 bytes"));
}
