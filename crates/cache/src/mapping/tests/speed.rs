//! Figures for the hot paths; run with `--release -- --ignored --nocapture`.

use super::*;

/// Populating 10,000 files of 4 KiB, syncing them, and reading 128 KiB that is cached.
#[test]
#[ignore = "prints figures"]
fn figures_of_the_hot_paths() {
    rt::testing::real(|cx| {
        for _ in 0..3 {
            let rig = Rig::new(cx, config(4096, 1 << 30), 4096, 10_000, 4096);
            rig.disk.lock_irq().bytes[0] = 0;
            let start = cx.now();
            let files: Vec<_> = (0..10_000).map(|id| rig.file(id, 0)).collect();
            let made = cx.now().since(start);
            let data = [7; 4096];
            for file in &files {
                file.write(cx, 0, &data).expect("writes");
            }
            let written = cx.now().since(start);
            rig.backing.sync(cx).expect("syncs");
            let synced = cx.now().since(start);
            let each = |time: Nanos| time.0 / 10_000;
            println!(
                "per file: new {} ns, write 4 KiB {} ns, sync {} ns",
                each(made),
                each(written.since(made)),
                each(synced.since(written))
            );
            drop(files);
            rig.finish(cx);

            let rig = Rig::new(cx, config(4096, 1 << 30), 4096, 1, 64 << 20);
            let file = rig.file(0, 0);
            let mut data = vec![7; 128 << 10];
            let start = cx.now();
            for at in 0..512u64 {
                file.write(cx, at * (128 << 10), &data).expect("writes");
            }
            let gib = |bytes: f64, time: Nanos| bytes / time.as_secs_f64() / 1e9;
            let written = gib(64.0 * 1048576.0, cx.now().since(start));
            let mut best: f64 = 0.0;
            for _ in 0..10 {
                let start = cx.now();
                for at in 0..512u64 {
                    file.read(cx, at * (128 << 10), &mut data).expect("reads");
                }
                best = best.max(gib(64.0 * 1048576.0, cx.now().since(start)));
            }
            let start = cx.now();
            for at in 0..16384u64 {
                file.read(cx, (at * 7919 % 16384) * 4096, &mut data[..4096]).expect("reads");
            }
            let small = cx.now().since(start).0 / 16384;
            let (from, mut to) = (vec![1u8; 64 << 20], vec![0u8; 128 << 10]);
            let start = cx.now();
            for chunk in from.chunks(128 << 10) {
                to.copy_from_slice(std::hint::black_box(chunk));
                std::hint::black_box(&mut to);
            }
            let copy = gib(64.0 * 1048576.0, cx.now().since(start));
            println!(
                "write 128 KiB {written:.1} GB/s, cached read of 128 KiB {best:.1} GB/s, of 4 KiB \
                 {small} ns; plain copy {copy:.1} GB/s"
            );
            rig.finish(cx);
        }
    });
}
