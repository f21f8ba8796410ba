//! Limits: dirty data, memory, and who waits.

use super::*;

/// However fast the writers are, dirty and in-flight bytes stay within the limit plus one step of
/// each writer.
#[test]
fn dirty_bytes_stay_below_the_limit() {
    rt::testing::explore(4, |cx| {
        let limits = PageCacheConfig {
            dirty_background_bytes: 256 << 10,
            dirty_limit_bytes: 1 << 20,
            ..config(4096, 64 << 20)
        };
        let rig = Arc::new(Rig::new(cx, limits, 4096, 4, 4 << 20));
        rig.disk.lock_irq().delay = Nanos::from_millis(2);
        let tasks: Vec<_> = (0..4)
            .map(|id| {
                let rig = rig.clone();
                cx.spawn("writer", move |cx| {
                    let file = rig.file(id, 0);
                    for at in 0..32 {
                        file.write(cx, at * (128 << 10), &vec![at as u8; 128 << 10])
                            .expect("writes");
                        let stats = rig.cache.stats();
                        let unclean = stats.dirty_bytes + stats.writeback_bytes;
                        assert!(unclean <= (1 << 20) + 4 * (64 << 10), "{unclean} bytes");
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join(cx));
        let stats = rig.cache.stats();
        assert!(stats.throttled > 0, "{stats:?}");
        rig.backing.sync(cx).expect("syncs");
        assert_eq!(rig.cache.stats().write_bytes, 16 << 20, "each byte is written once");
        let rig = Arc::into_inner(rig).expect("all tasks are gone");
        for (id, file) in rig.disk.lock_irq().bytes.chunks(4 << 20).enumerate() {
            let right =
                file.chunks(128 << 10).enumerate().all(|(n, c)| c.iter().all(|&b| b == n as u8));
            assert!(right, "file {id}");
        }
        rig.finish(cx);
    });
}

/// A file 16 times as large as the cache is written and read back within the limit.
#[test]
fn a_file_larger_than_memory_goes_through() {
    for folio in [4096, 65536] {
        rt::testing::both(|cx| {
            let limit = 16 * u64::from(folio);
            let rig = Rig::new(cx, config(folio, limit), 4096, 1, 16 * limit);
            rig.disk.lock_irq().delay = Nanos::from_micros(10);
            let file = rig.file(0, 0);
            for at in 0..16 * limit / 4096 {
                file.write(cx, at * 4096, &[at as u8; 4096]).expect("writes");
                assert!(rig.cache.stats().memory_bytes <= limit);
            }
            let mut buf = [0; 4096];
            for at in 0..16 * limit / 4096 {
                file.read(cx, at * 4096, &mut buf).expect("reads");
                assert!(buf.iter().all(|&b| b == at as u8), "block {at}");
                assert!(rig.cache.stats().memory_bytes <= limit);
            }
            rig.backing.sync(cx).expect("syncs");
            let stats = rig.cache.stats();
            assert_eq!((stats.overcommitted, stats.write_bytes), (0, 16 * limit), "{stats:?}");
            assert!(stats.read_bytes >= 15 * limit && stats.read_bytes <= 17 * limit, "{stats:?}");
            rig.finish(cx);
        });
    }
}

/// A small file that is read again and again stays while a big one is read through once.
#[test]
fn reading_through_a_big_file_spares_what_is_used() {
    rt::testing::world(|cx| {
        let rig = Rig::new(cx, config(4096, 64 * 4096), 4096, 2, 4 << 20);
        let (small, big) = (rig.file(0, 0), rig.file(1, 0));
        small.write(cx, 0, &vec![1; 8 * 4096]).expect("writes");
        big.write(cx, 0, &vec![2; 4 << 20]).expect("writes");
        rig.backing.sync(cx).expect("syncs");
        big.invalidate(cx, 0..u64::MAX).expect("invalidates");
        let mut buf = vec![0; 8 * 4096];
        small.read(cx, 0, &mut buf).expect("reads");
        rig.seen();
        for at in 0..1024 {
            big.read(cx, at * 4096, &mut buf[..4096]).expect("reads");
            if at % 8 == 0 {
                small.read(cx, 0, &mut buf).expect("reads");
            }
        }
        let again = rig.seen();
        let small_reads = again.split(' ').filter(|word| {
            word[1..]
                .split('+')
                .next()
                .is_some_and(|off| off.parse::<f64>().is_ok_and(|k| k < 4096.0))
        });
        assert_eq!(small_reads.count(), 0, "{again}");
        rig.finish(cx);
    });
}

/// Where nothing can be written, writers are not held for ever, and memory is overcommitted rather
/// than everybody stopped.
#[test]
fn writers_do_not_wait_for_a_flusher_that_cannot_write() {
    rt::testing::both(|cx| {
        let rig = Rig::new(cx, config(4096, 16 * 4096), 4096, 1, 1 << 20);
        let file = rig.file(0, 0);
        file.write(cx, 0, &[1]).expect("writes");
        struct Broken;
        impl IomapOps for Broken {
            fn begin(
                &self,
                _: &mut Cx,
                _: &mut IomapIter<'_>,
                _: Range<u64>,
            ) -> Result<Iomap, Errno> {
                Err(Errno::EIO)
            }
            fn writepages(
                &self,
                _: &mut Cx,
                _: &Arc<Mapping>,
                _: &mut WritebackControl<'_>,
            ) -> Result<(), Errno> {
                Err(Errno::EROFS)
            }
        }
        let ops: Arc<dyn IomapOps> = Arc::new(Broken);
        let broken = Mapping::new(&rig.backing, 1, 0, Arc::downgrade(&ops));
        for at in 0..40 {
            broken.write(cx, at * 4096, &[1; 4096]).expect("writes");
        }
        assert!(rig.cache.stats().overcommitted > 0);
        let mut mark = ErrorMarkOf(&broken);
        assert_eq!(mark.take(), Err(Errno::EROFS));
        broken.discard(cx, 0..u64::MAX);
        assert_eq!(rig.backing.sync(cx), Err(Errno::EROFS));
        rig.finish(cx);
    });
}

/// The errors of a mapping for an opener who comes now.
struct ErrorMarkOf<'a>(&'a Mapping);

impl ErrorMarkOf<'_> {
    fn take(&mut self) -> Result<(), Errno> {
        let mut mark = self.0.error_mark();
        self.0.check_error(&mut mark)
    }
}

/// A task that holds bios in its plug and waits for somebody who waits for these bios: the waiter
/// submits them.
#[test]
fn a_waiter_submits_what_sits_in_another_plug() {
    rt::testing::both(|cx| {
        let rig = Rig::new(cx, config(4096, 16 << 20), 4096, 1, 1 << 20);
        let file = rig.file(0, 0);
        file.write(cx, 0, &[1; 4096]).expect("writes");
        let done = Arc::new(rt::Completion::new());
        let (other, backing, committed) = (file.clone(), rig.backing.clone(), done.clone());
        let plugged = Arc::new(rt::Completion::new());
        let ready = plugged.clone();
        let holder = cx.spawn("holder", move |cx| {
            let mut plug = crate::writeback::WritePlug::new(&backing);
            other.write_dirty(cx, &mut plug, 0..u64::MAX, true, u64::MAX).1.expect("writes");
            ready.complete(());
            committed.wait(cx); // as for a journal commit
            plug.submit(cx);
        });
        plugged.wait(cx);
        file.wait(cx).expect("waits");
        assert_eq!(rig.disk.lock_irq().bytes[0], 1);
        done.complete(());
        holder.join(cx);
        rig.finish(cx);
    });
}
