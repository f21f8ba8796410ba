//! Many tasks: group commit, full logs, restarts, ordered data, errors while others wait.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Errno, Nanos, Page, Rng, Sector};
use block::BioFlags;
use common::*;
use jbd2::{Checksums, JournalOptions, OrderedData, Tid};
use rt::Cx;
use rt::testing::{both, explore, world};

const PLACE: JournalPlace = JournalPlace { block_size: 1024, start: 8192, len: 256 };
const SMALL: JournalPlace = JournalPlace { block_size: 1024, start: 8192, len: 48 };
const TINY: JournalPlace = JournalPlace { block_size: 1024, start: 1024, len: 48 };
const SIZE: usize = 16 << 20;

fn options() -> JournalOptions {
    JournalOptions { checksums: Some(Checksums::V3), ..JournalOptions::default() }
}

#[test]
fn waiters_share_commits() {
    // Goal: 64 tasks sync 20 times each; far fewer commits are made, and every promise is kept.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, PLACE, |_| {});
        let (journal, cache, _) = open(cx, &disk, PLACE, options()).unwrap();
        let tasks: Vec<_> = (0..64u64)
            .map(|number| {
                let (journal, cache) = (journal.clone(), cache.clone());
                cx.spawn("syncer", move |cx| {
                    for round in 0..20 {
                        let tid = fill(cx, &journal, &cache, &[number, 100], round);
                        journal.commit_tid(cx, tid).unwrap();
                        assert!(journal.committed_tid() >= tid);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join(cx);
        }
        let stats = journal.stats();
        assert_eq!(stats.handles, 64 * 20);
        let limit = if cx.is_virtual() { 64 * 20 / 8 } else { 64 * 20 };
        assert!(stats.commits <= limit, "{stats:?}");
        journal.shutdown(cx).unwrap();
    });
}

#[test]
fn a_full_log_makes_handles_wait_and_nobody_starve() {
    // Goal: a log of 47 blocks, tasks that want all the credits that there are. The disk takes no
    // time, so neither may we: a wake-up that is lost would show as the wait for a timer.
    let body = |cx: &mut Cx| {
        let disk = Disk::new(SIZE);
        format(&disk, SMALL, |_| {});
        let (journal, cache, _) = open(cx, &disk, SMALL, options()).unwrap();
        let most = journal.max_credits();
        assert_eq!(journal.start(cx, most + 1).err(), Some(Errno::ENOSPC));
        let tasks: Vec<_> = (0..8u64)
            .map(|number| {
                let (journal, cache) = (journal.clone(), cache.clone());
                cx.spawn("writer", move |cx| {
                    let blocks: Vec<u64> = (0..u64::from(most)).map(|n| number * 50 + n).collect();
                    for round in 0..40 {
                        fill(cx, &journal, &cache, &blocks, round);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join(cx);
        }
        let stats = journal.stats();
        assert!(stats.start_waits > 0 && stats.wraps > 10, "{stats:?}");
        assert!(!cx.is_virtual() || cx.now() < Nanos::from_secs(1), "{:?}", cx.now());
        journal.kill(cx);
        let (journal, _, _) = open(cx, &disk, SMALL, options()).unwrap();
        journal.shutdown(cx).unwrap();
    };
    both(body);
    explore(10, body);
}

#[test]
fn a_long_operation_goes_on_in_other_transactions() {
    // Goal: a handle extends as far as it may and restarts, 2000 blocks through a small log, beside
    // tasks that sync.
    both(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, SMALL, |_| {});
        let (journal, cache, _) = open(cx, &disk, SMALL, options()).unwrap();
        let other = {
            let (journal, cache) = (journal.clone(), cache.clone());
            cx.spawn("syncer", move |cx| {
                for round in 0..50 {
                    let tid = fill(cx, &journal, &cache, &[4000], round);
                    journal.commit_tid(cx, tid).unwrap();
                }
            })
        };
        let mut handle = journal.start(cx, 1).unwrap();
        let first = handle.tid();
        for block in 0..2000 {
            let buffer = cache.get(cx, block);
            if handle.credits() == 0 && !handle.extend(cx, 1).unwrap() {
                handle.restart(cx, 3).unwrap();
            }
            handle.create_access(cx, &buffer).unwrap();
            buffer.with_mut(|bytes| bytes.fill(block as u8));
            handle.dirty(cx, &buffer).unwrap();
        }
        assert!(handle.tid() > Tid(first.0 + 100));
        handle.stop(cx).unwrap();
        other.join(cx);
        journal.shutdown(cx).unwrap();
        let image = disk.image();
        assert!((0..2000).all(|block| image[block * 1024 + 77] == block as u8));
    });
}

#[test]
fn revokes_without_end_meet_the_limit_of_a_transaction() {
    // Goal: freeing a huge tree dirties few buffers and revokes very many blocks; the caller who
    // extends and restarts as it should never makes a transaction larger than the log.
    world(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, SMALL, |_| {});
        let (journal, cache, _) = open(cx, &disk, SMALL, options()).unwrap();
        let bitmap = cache.read(cx, 1).unwrap();
        let mut handle = journal.start(cx, 4).unwrap();
        for block in 0..50_000 {
            if handle.credits() < 2 && !handle.extend(cx, 2).unwrap() {
                handle.restart(cx, 4).unwrap();
            }
            handle.write_access(cx, &bitmap).unwrap();
            bitmap.with_mut(|bytes| bytes[block as usize % 1024] ^= 1);
            handle.dirty(cx, &bitmap).unwrap();
            handle.revoke(cx, 1_000_000 + block).unwrap();
        }
        handle.stop(cx).unwrap();
        journal.shutdown(cx).unwrap();
        assert!(journal.stats().commits > 5);
    });
}

/// A file whose data is one block of a number.
struct File {
    cache: Arc<cache::BufferCache>,
    value: AtomicU64,
}

impl OrderedData for File {
    fn flush(&self, cx: &mut Cx) -> Result<(), Errno> {
        let mut page = Page::zeroed(1024);
        page.make_mut()[..8].copy_from_slice(&self.value.load(Ordering::Relaxed).to_le_bytes());
        let sector = Sector(500 * 2);
        Ok(self.cache.queue().write(cx, sector, page, BioFlags::empty())?)
    }
}

#[test]
fn ordered_data_is_there_before_the_metadata_that_names_it() {
    // Goal: metadata says how much data there is; after any power cut there is at least as much.
    for seed in rt::testing::seeds(4) {
        let disk = Disk::new(2 << 20);
        format(&disk, TINY, |_| {});
        let base = disk.image();
        world(|cx| {
            let (journal, cache, _) = open(cx, &disk, TINY, options()).unwrap();
            let file = Arc::new(File { cache: cache.clone(), value: AtomicU64::new(0) });
            let meta = cache.read(cx, 7).unwrap();
            for round in 1..60u64 {
                let mut handle = journal.start(cx, 1).unwrap();
                file.value.store(round, Ordering::Relaxed);
                handle.add_ordered(cx, file.clone());
                handle.write_access(cx, &meta).unwrap();
                meta.with_mut(|bytes| bytes[..8].copy_from_slice(&round.to_le_bytes()));
                handle.dirty(cx, &meta).unwrap();
                handle.add_ordered(cx, file.clone());
                handle.stop(cx).unwrap();
                if round % 3 == 0 {
                    journal.force_commit(cx).unwrap();
                }
            }
            journal.kill(cx);
        });
        let log = disk.log();
        let mut rng = Rng::new(seed, 0);
        for _ in 0..40 {
            let cut = rng.below(log.len() as u64 + 1) as usize;
            let crashed = Disk::from_image(image_after(&base, &log, cut, &mut rng));
            world(|cx| {
                let (journal, _, _) = open(cx, &crashed, TINY, options()).unwrap();
                journal.kill(cx);
            });
            let image = crashed.image();
            let number = |block: usize| {
                u64::from_le_bytes(image[block * 1024..block * 1024 + 8].try_into().unwrap())
            };
            assert!(number(500) >= number(7), "seed {seed}, cut {cut}");
        }
    }
}

#[test]
fn all_who_wait_learn_of_an_abort() {
    explore(20, |cx| {
        let disk = Disk::new(SIZE);
        format(&disk, SMALL, |_| {});
        let (journal, cache, _) = open(cx, &disk, SMALL, options()).unwrap();
        let tasks: Vec<_> = (0..6u64)
            .map(|number| {
                let (journal, cache) = (journal.clone(), cache.clone());
                cx.spawn("writer", move |cx| {
                    loop {
                        let mut handle = match journal.start(cx, 8) {
                            Ok(handle) => handle,
                            Err(error) => return error,
                        };
                        let Ok(buffer) = cache.read(cx, number) else { return Errno::EIO };
                        if handle.write_access(cx, &buffer).is_err() {
                            return Errno::EROFS;
                        }
                        buffer.with_mut(|bytes| bytes[0] += 1);
                        let _ = handle.dirty(cx, &buffer);
                        handle.set_sync();
                        if let Err(error) = handle.stop(cx) {
                            return error;
                        }
                    }
                })
            })
            .collect();
        for _ in 0..50 {
            cx.yield_now();
        }
        disk.fail_writes(Some(0..u64::MAX));
        // Who waited for the commit learns why it failed; who began later cannot write.
        for task in tasks {
            let error = task.join(cx);
            assert!(matches!(error, Errno::EIO | Errno::EROFS), "{error}");
        }
        assert_eq!(journal.aborted(), Some(Errno::EIO));
        assert_eq!(journal.flush(cx), Err(Errno::EROFS));
        assert_eq!(journal.shutdown(cx), Err(Errno::EROFS));
    });
}

#[test]
fn a_flush_empties_the_log_while_others_write() {
    explore(20, |cx| {
        let disk = Disk::new(SIZE);
        format(&disk, SMALL, |_| {});
        let (journal, cache, _) = open(cx, &disk, SMALL, options()).unwrap();
        let writer = {
            let (journal, cache) = (journal.clone(), cache.clone());
            cx.spawn("writer", move |cx| {
                for round in 0..30 {
                    fill(cx, &journal, &cache, &[1, 2, 3], round);
                    cx.yield_now();
                }
            })
        };
        for _ in 0..5 {
            journal.flush(cx).unwrap();
            cx.yield_now();
        }
        writer.join(cx);
        journal.flush(cx).unwrap();
        assert_eq!(superblock(&disk.image(), SMALL).start, 0);
        assert_eq!(disk.image()[1024], 29);
        journal.kill(cx);
        let (journal, _, report) = open(cx, &disk, SMALL, options()).unwrap();
        assert_eq!(report, None);
        journal.shutdown(cx).unwrap();
    });
}

#[test]
#[should_panic(expected = "ran out of credits at block 3")]
fn more_buffers_than_credits_is_a_defect() {
    world(|cx| {
        let disk = Disk::new(SIZE);
        format(&disk, SMALL, |_| {});
        let strict = JournalOptions { strict_credits: true, ..options() };
        let (journal, cache, _) = open(cx, &disk, SMALL, strict).unwrap();
        let mut handle = journal.start(cx, 2).unwrap();
        for block in 1..4 {
            let buffer = cache.read(cx, block).unwrap();
            handle.write_access(cx, &buffer).unwrap();
            handle.dirty(cx, &buffer).unwrap();
        }
    });
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| {
        let mut world = rt::World::new(rt::WorldConfig::exploring(seed));
        world.run("main", |cx| {
            let disk = Disk::new(SIZE);
            format(&disk, SMALL, |_| {});
            let (journal, cache, _) = open(cx, &disk, SMALL, options()).unwrap();
            let tasks: Vec<_> = (0..5u64)
                .map(|number| {
                    let (journal, cache) = (journal.clone(), cache.clone());
                    cx.spawn("writer", move |cx| {
                        for round in 0..20 {
                            let tid = fill(cx, &journal, &cache, &[number, 9], round);
                            if cx.random() % 3 == 0 {
                                journal.commit_tid(cx, tid).unwrap();
                            }
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.join(cx);
            }
            journal.shutdown(cx).unwrap();
        });
        world.hash()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
