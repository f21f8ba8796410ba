//! Random operations against a byte array.

use super::*;
use base::rng::Rng;

/// A file and what it must read as.
struct Modelled {
    mapping: Arc<Mapping>,
    model: Vec<u8>,
    room: usize,
}

impl Modelled {
    fn new(rig: &Rig, id: u64) -> Modelled {
        Modelled { mapping: rig.file(id, 0), model: Vec::new(), room: rig.fs.room as usize }
    }

    fn check(&self, cx: &mut Cx, off: usize, len: usize, what: &str) {
        let mut got = vec![0x55; len];
        let count = self.mapping.read(cx, off as u64, &mut got).expect("reads");
        let want = self.model.get(off..).unwrap_or(&[]);
        let want = &want[..want.len().min(len)];
        assert_eq!(count, want.len(), "{what}: count of a read at {off}+{len}");
        if let Some(at) = (0..count).find(|&at| got[at] != want[at]) {
            panic!(
                "{what}: file {} at {} of {}: {:#x} instead of {:#x}",
                self.mapping.id(),
                off + at,
                self.model.len(),
                got[at],
                want[at]
            );
        }
    }

    /// Lengths and places that are often just beside a border.
    fn place(&self, rng: &mut Rng, bound: usize) -> usize {
        let unit = *rng.pick(&[1, 512, 1024, 4096, 16384]);
        let at = rng.below(bound as u64 + 1) as usize / unit * unit;
        (at + rng.below(3) as usize).saturating_sub(1).min(bound)
    }

    fn write(&mut self, cx: &mut Cx, rng: &mut Rng) {
        let off = self.place(rng, self.room.min(self.model.len() + 20_000) - 1);
        let longest = (self.room - off).min(if rng.chance(0.1) { 200_000 } else { 9000 });
        let mut data = vec![0; self.place(rng, longest).max(1)];
        rng.fill(&mut data);
        self.mapping.write(cx, off as u64, &data).expect("writes");
        if self.model.len() < off + data.len() {
            self.model.resize(off + data.len(), 0);
        }
        self.model[off..off + data.len()].copy_from_slice(&data);
    }

    fn step(&mut self, cx: &mut Cx, rig: &Rig, rng: &mut Rng) {
        let size = self.model.len();
        match rng.below(100) {
            0..40 => self.write(cx, rng),
            40..75 => {
                let off = self.place(rng, size);
                let len = if rng.chance(0.1) { 300_000 } else { rng.below(10_000) as usize };
                self.check(cx, off, len, "read");
            }
            75..81 => {
                let to = self.place(rng, (size + 10_000).min(self.room));
                rig.fs.truncate(cx, &self.mapping, to as u64);
                self.model.resize(to, 0);
            }
            81..86 => {
                let (a, b) = (self.place(rng, size), self.place(rng, size));
                rig.fs.punch(cx, &self.mapping, a.min(b) as u64..a.max(b) as u64);
                self.model[a.min(b)..a.max(b)].fill(0);
            }
            86..90 => {
                let (a, b) = (self.place(rng, size) as u64, self.place(rng, size) as u64);
                self.mapping.flush(cx, a.min(b)..a.max(b)).expect("flushes");
            }
            90..94 => self.mapping.invalidate(cx, 0..u64::MAX).expect("invalidates"),
            94..96 => drop(rig.cache.reclaim(cx, rng.below(30))),
            96..98 => rig.backing.sync(cx).expect("syncs"),
            _ => {
                // Remount: everything must be on the device.
                self.mapping.flush(cx, 0..u64::MAX).expect("flushes");
                self.mapping = rig.file(self.mapping.id(), size as u64);
            }
        }
        assert_eq!(self.mapping.size(), self.model.len() as u64);
    }
}

fn play(cx: &mut Cx, rig: &Rig, id: u64, seed: u64, steps: u32) {
    let (mut rng, mut file) = (Rng::new(seed, id), Modelled::new(rig, id));
    for _ in 0..steps {
        file.step(cx, rig, &mut rng);
    }
    file.check(cx, 0, file.model.len() + 10, "at the end");
    file.mapping.flush(cx, 0..u64::MAX).expect("flushes");
    file.mapping = rig.file(id, file.model.len() as u64);
    file.check(cx, 0, file.model.len() + 10, "after a remount");
}

/// All counters must come back to nothing when everything is gone.
fn check_empty(cx: &mut Cx, rig: Rig) {
    let cache = rig.cache.clone();
    rig.finish(cx);
    // In real time the last completion may still hold a mapping for a moment.
    for _ in 0..1000 {
        if cache.stats().memory_bytes > 0 {
            cx.sleep(Nanos::from_millis(1));
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.memory_bytes, stats.dirty_bytes, stats.writeback_bytes), (0, 0, 0));
}

/// One task, every folio and block size, ample and scarce memory.
#[test]
fn random_operations_agree_with_a_byte_array() {
    for seed in rt::testing::seeds(3) {
        for folio in [4096, 16384, 65536] {
            for block in [1024, 2048, 4096] {
                let limit = if seed % 2 == 0 { 64 << 20 } else { u64::from(folio) * 17 };
                rt::testing::world(|cx| {
                    let rig = Rig::new(cx, config(folio, limit), block, 2, 400_000 / 4096 * 4096);
                    play(cx, &rig, 0, seed, 150);
                    rig.disk.lock_irq().delay = Nanos::from_micros(100);
                    play(cx, &rig, 1, seed, 150);
                    check_empty(cx, rig);
                });
            }
        }
    }
}

/// A map that returns one or three blocks at a time changes nothing.
#[test]
fn short_answers_of_the_map_are_asked_on() {
    rt::testing::world(|cx| {
        for map_max in [1024, 3072] {
            let rig = Rig::new(cx, config(16384, 1 << 20), 1024, 1, 400_000 / 4096 * 4096)
                .with_fs(|fs| fs.map_max = map_max);
            play(cx, &rig, 0, map_max, 150);
            check_empty(cx, rig);
        }
    });
}

/// Tasks with a file each and too little memory for all.
fn share_cache(cx: &mut Cx, seed: u64, steps: u32) {
    let folio = *Rng::new(seed, 99).pick(&[4096u32, 16384, 65536]);
    let map_delay = Nanos::from_micros(Rng::new(seed, 98).below(30));
    let rig = Rig::new(cx, config(folio, 24 * u64::from(folio)), 1024, 6, 300 << 10)
        .with_fs(|fs| fs.map_delay = map_delay);
    rig.disk.lock_irq().delay = Nanos::from_micros(50);
    let rig = Arc::new(rig);
    let tasks: Vec<_> = (0..6)
        .map(|id| {
            let rig = rig.clone();
            cx.spawn("player", move |cx| play(cx, &rig, id, seed, steps))
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join(cx));
    check_empty(cx, Arc::into_inner(rig).expect("all tasks are gone"));
}

#[test]
fn many_tasks_share_a_small_cache() {
    rt::testing::explore(8, |cx| {
        let seed = cx.random();
        share_cache(cx, seed, 60);
    });
}

#[test]
fn many_tasks_share_a_small_cache_in_real_time() {
    for seed in rt::testing::seeds(3) {
        rt::testing::real(|cx| share_cache(cx, seed, 60));
    }
}

/// Tasks that write and read their own bytes of one file, side by side within the same blocks,
/// beside a task that syncs and one that drops folios.
fn share_one_file(cx: &mut Cx, rounds: u64, seed: u64) {
    const STRIPE: u64 = 700;
    const TASKS: u64 = 4;
    let map_delay = Nanos::from_micros(Rng::new(seed, 98).below(30));
    let rig = Rig::new(cx, config(16384, 20 * 16384), 1024, 1, 512 << 10)
        .with_fs(|fs| fs.map_delay = map_delay);
    let rig = Arc::new(rig);
    rig.disk.lock_irq().delay = Nanos::from_micros(20);
    let file = rig.file(0, 0);
    file.write(cx, (512 << 10) - 1, &[1]).expect("writes");
    let mut tasks = Vec::new();
    for me in 0..TASKS {
        let file = file.clone();
        tasks.push(cx.spawn("striper", move |cx| {
            let mut rng = Rng::new(seed, me);
            let mut mine = base::map::HashMap::<u64, u8>::default();
            for round in 0..rounds {
                let off = (rng.below((500 << 10) / STRIPE / TASKS) * TASKS + me) * STRIPE;
                let mut buf = [0; STRIPE as usize];
                file.read(cx, off, &mut buf).expect("reads");
                let want = mine.get(&off).copied().unwrap_or(0);
                assert!(buf.iter().all(|&b| b == want), "task {me} round {round} at {off}");
                let value = rng.below(255) as u8;
                file.write(cx, off, &[value; STRIPE as usize]).expect("writes");
                mine.insert(off, value);
            }
        }));
    }
    let (other, syncer) = (rig.clone(), file.clone());
    tasks.push(cx.spawn("syncer", move |cx| {
        for _ in 0..rounds / 4 {
            cx.sleep(Nanos::from_micros(30));
            syncer.flush(cx, 0..u64::MAX).expect("flushes");
            other.cache.reclaim(cx, 4);
            other.backing.sync(cx).expect("syncs");
            syncer.invalidate(cx, 0..200 << 10).expect("invalidates");
        }
    }));
    tasks.into_iter().for_each(|task| task.join(cx));
    drop(file);
    check_empty(cx, Arc::into_inner(rig).expect("all tasks are gone"));
}

#[test]
fn writers_of_one_file_see_their_own_bytes() {
    rt::testing::explore(6, |cx| {
        let seed = cx.random();
        share_one_file(cx, 100, seed);
    });
}

#[test]
fn writers_of_one_file_see_their_own_bytes_in_real_time() {
    rt::testing::real(|cx| share_one_file(cx, 300, rt::testing::seed_or(1)));
}

/// The same seed gives the same run.
#[test]
fn runs_repeat_exactly() {
    let run = || {
        let mut world = rt::World::new(rt::WorldConfig::exploring(5));
        world.run("main", |cx| share_one_file(cx, 50, 5));
        world.hash()
    };
    assert_eq!(run(), run());
}

/// A writer, a shrinker and readers of one file under an inode lock as a file system has it, with
/// readahead and write-back in flight beside them: nobody sees a freed block or an old end.
#[test]
fn readahead_and_writeback_respect_a_shrinking_file() {
    rt::testing::explore(10, |cx| {
        let seed = cx.random();
        let folio = *Rng::new(seed, 99).pick(&[4096u32, 16384, 65536]);
        let rig = Rig::new(cx, config(folio, 20 * u64::from(folio)), 1024, 1, 400 << 10)
            .with_fs(|fs| fs.map_delay = Nanos::from_micros(10));
        rig.disk.lock_irq().delay = Nanos::from_micros(70);
        let rig = Arc::new(rig);
        let inode = Arc::new(rt::RwLock::named("inode", Modelled::new(&rig, 0)));
        let mut tasks = Vec::new();
        for me in 0..2 {
            let (rig, inode) = (rig.clone(), inode.clone());
            tasks.push(cx.spawn("changer", move |cx| {
                let mut rng = Rng::new(seed, me);
                for _ in 0..60 {
                    let mut file = inode.write(cx);
                    file.step(cx, &rig, &mut rng);
                    drop(file);
                    cx.sleep(Nanos(rng.below(50_000)));
                }
            }));
        }
        for me in 2..5 {
            let inode = inode.clone();
            tasks.push(cx.spawn("reader", move |cx| {
                let (mut rng, mut at) = (Rng::new(seed, me), 0);
                for _ in 0..100 {
                    let file = inode.read(cx);
                    let len = 1 + rng.below(8192) as usize;
                    at = if at >= file.model.len() || rng.chance(0.1) {
                        file.place(&mut rng, file.model.len())
                    } else {
                        at
                    };
                    file.check(cx, at, len, "beside a writer");
                    at += len;
                    drop(file);
                    cx.yield_now();
                }
            }));
        }
        tasks.into_iter().for_each(|task| task.join(cx));
        drop(inode);
        check_empty(cx, Arc::into_inner(rig).expect("all tasks are gone"));
    });
}
