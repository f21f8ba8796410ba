//! What one fsync of one new file of 64 KiB sends down: which requests with which flags, in which
//! I/O context and order, in every variant of the journal's writes. Source: Jeff Moyer, "jbd[2]:
//! enhance fsync performance when using CFQ", 2010-07-02: three writes, one after another.

use crate::support::{Cell, FLASH, SAFE_FLASH, create, modelled};
use block::{Queue, QueueConfig, SyncWrites, TraceEvent, TraceKind};
use cache::{PageCache, PageCacheConfig};
use ext4::{Ext4, MountOptions};
use jbd2::{CommitRecord, JournalIo};
use rt::Cx;
use std::sync::Arc;
use vfs::FileSystem;

/// A way to run the path.
#[derive(Clone, Copy, Debug)]
struct Variant {
    kind: &'static str,
    io: JournalIo,
    record: CommitRecord,
    noidle: bool,
    volatile: bool,
    chain: bool,
}

impl Variant {
    fn new(kind: &'static str, io: JournalIo, record: CommitRecord) -> Variant {
        Variant { kind, io, record, noidle: false, volatile: false, chain: false }
    }

    fn chained(self) -> Variant {
        Variant { chain: true, ..self }
    }

    fn noidle(self) -> Variant {
        Variant { noidle: true, ..self }
    }

    fn volatile(self) -> Variant {
        Variant { volatile: true, ..self }
    }

    fn options(self) -> MountOptions {
        let (barrier, journal_io) = (self.record, self.io);
        let journal_chain = self.chain;
        MountOptions { barrier, journal_io, journal_chain, ..MountOptions::default() }
    }

    fn mount(self, cx: &mut Cx, journal_yield: bool) -> (Arc<Ext4>, Arc<Queue>) {
        self.mount_as(cx, MountOptions { journal_yield, ..self.options() })
    }

    fn mount_as(self, cx: &mut Cx, options: MountOptions) -> (Arc<Ext4>, Arc<Queue>) {
        let memory = Cell::new(self.kind, 4096).journal(4096).fresh(cx, 256 << 20);
        let device = modelled(cx, if self.volatile { FLASH } else { SAFE_FLASH }, memory);
        let config = QueueConfig {
            trace_events: 1 << 16,
            sync_writes: SyncWrites { noidle: self.noidle },
            ..QueueConfig::elevator("deadline")
        };
        let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(64 << 20));
        let fs = Ext4::mount(cx, &queue, &pages, options).expect("mounts");
        (fs, queue)
    }

    /// The requests of the second file's fsync, one line each: who, KiB, flags. A line begins with
    /// `+` where the request went to the device while another was there.
    fn fsync_of_one_file(self) -> Vec<String> {
        rt::testing::world(|cx| {
            let (fs, queue) = self.mount(cx, false);
            let journal = fs.journal_task_ioc().expect("a journal");
            for name in ["first", "second"] {
                queue.take_trace();
                let ino = create(cx, &*fs, fs.root(), name);
                fs.write(cx, ino, 0, &[7; 65536]).expect("written");
                fs.fsync(cx, ino, false).expect("durable");
            }
            let (events, _) = queue.take_trace();
            let lines = requests(&events, journal, cx.ioc());
            fs.unmount(cx).expect("unmounts");
            lines
        })
    }
}

fn requests(events: &[TraceEvent], journal: u64, own: u64) -> Vec<String> {
    let (mut lines, mut in_device) = (Vec::new(), 0);
    for event in events {
        match event.kind {
            TraceKind::Dispatched => {
                let who = match event.ioc {
                    0 => "queue",
                    ioc if ioc == journal => "journal",
                    ioc if ioc == own => "task",
                    _ => "other",
                };
                let beside = if in_device > 0 { "+" } else { "" };
                let flags: Vec<String> =
                    event.flags.iter_names().map(|(name, _)| name.to_lowercase()).collect();
                let (op, kib, flags) = (event.op, event.count / 2, flags.join(" "));
                lines.push(format!("{beside}{who} {op} {kib} {flags}").trim_end().to_owned());
                in_device += 1;
            }
            TraceKind::Completed => in_device -= 1,
            _ => {}
        }
    }
    lines
}

/// Checks one fsync against `expected`, with the tasks' names as in [`requests`].
#[track_caller]
fn sends(variant: Variant, expected: &[&str]) {
    assert_eq!(variant.fsync_of_one_file(), expected, "{variant:?}");
}

use CommitRecord::{Barrier, FlushFua, Plain};
use JournalIo::{Async, Meta, Noidle, Sync, Waited};

/// The data are one request on ext4. On ext3 the indirect block lies behind the twelfth block, so
/// they are two, which go down together. Then the log in one request (descriptor and the metadata:
/// here two, since the journal's own indirect block lies between), then the commit record: three
/// writes one after another.
#[test]
fn one_file_is_three_writes_one_after_another() {
    let ext4 = Variant::new("ext4", Meta, FlushFua);
    sends(ext4, &["task write 64 sync", "journal write 24 sync meta", "journal write 4 sync meta"]);
    let ext3 = Variant::new("ext3", Meta, FlushFua);
    sends(
        ext3,
        &[
            "task write 48 sync",
            "+task write 16 sync",
            "journal write 12 sync meta",
            "+journal write 16 sync meta",
            "journal write 4 sync meta",
        ],
    );
}

#[test]
fn the_log_is_asynchronous_before_the_series_and_the_record_is_not() {
    let before = Variant::new("ext4", Async, FlushFua);
    sends(before, &["task write 64 sync", "journal write 24", "journal write 4 sync"]);
    let noidle = before.noidle();
    sends(
        noidle,
        &["task write 64 sync noidle", "journal write 24", "journal write 4 sync noidle"],
    );
    let ext3 = Variant { kind: "ext3", ..noidle };
    sends(
        ext3,
        &[
            "task write 48 sync noidle",
            "+task write 16 sync noidle",
            "journal write 12",
            "+journal write 16",
            "journal write 4 sync noidle",
        ],
    );
}

#[test]
fn the_series_makes_the_log_synchronous_and_takes_noidle_away() {
    let four = Variant::new("ext4", Sync, FlushFua).noidle();
    sends(
        four,
        &[
            "task write 64 sync noidle",
            "journal write 24 sync noidle",
            "journal write 4 sync noidle",
        ],
    );
    let six = Variant::new("ext4", Sync, FlushFua);
    sends(six, &["task write 64 sync", "journal write 24 sync", "journal write 4 sync"]);
}

#[test]
fn noidle_is_the_journals_own_in_the_variant_of_that_name() {
    let zoccolo = Variant::new("ext4", Noidle, FlushFua);
    sends(
        zoccolo,
        &["task write 64 sync", "journal write 24 sync noidle", "journal write 4 sync noidle"],
    );
}

#[test]
fn a_commit_that_somebody_waits_for_is_synchronous_and_another_is_not() {
    let waited = Variant::new("ext4", Waited, FlushFua);
    sends(waited, &["task write 64 sync", "journal write 24 sync", "journal write 4 sync"]);
    // Nobody waits: the commit comes with its age.
    let lines = rt::testing::world(|cx| {
        let (fs, queue) = waited.mount(cx, false);
        let journal = fs.journal_task_ioc().expect("a journal");
        create(cx, &*fs, fs.root(), "aged");
        queue.take_trace();
        cx.sleep(base::Nanos::from_secs(6));
        let lines = requests(&queue.take_trace().0, journal, cx.ioc());
        fs.unmount(cx).expect("unmounts");
        lines
    });
    assert!(lines.len() >= 2 && lines.last().expect("a record") == "journal write 4 sync");
    assert!(lines[..lines.len() - 1].iter().all(|line| !line.contains("sync")), "{lines:?}");
}

/// Where the cache is volatile the record has a flush before it and goes through the cache; where
/// it is not, only the barrier is left of that.
#[test]
fn the_commit_record_is_flushed_drained_or_plain() {
    let data_and_log = ["task write 64 sync", "journal write 24 sync meta"];
    let cases: [(CommitRecord, bool, &[&str]); 6] = [
        (FlushFua, false, &["journal write 4 sync meta"]),
        (Barrier, false, &["journal write 4 sync meta barrier"]),
        (Plain, false, &["journal write 4 sync meta"]),
        (FlushFua, true, &["queue flush 0 sync", "journal write 4 sync meta fua"]),
        (Barrier, true, &["queue flush 0 sync", "journal write 4 sync meta fua barrier"]),
        (Plain, true, &["journal write 4 sync meta"]),
    ];
    for (record, volatile, rest) in cases {
        let variant = Variant::new("ext4", Meta, record);
        let variant = if volatile { variant.volatile() } else { variant };
        sends(variant, &[&data_and_log, rest].concat());
    }
}

/// An edge instead of a wait of the journal's task changes nothing of what is sent, and in which
/// order.
#[test]
fn a_chained_record_is_the_same_record() {
    for kind in ["ext3", "ext4"] {
        for (record, volatile) in [(FlushFua, true), (Barrier, true), (Plain, false)] {
            let waited = Variant { volatile, ..Variant::new(kind, Async, record) };
            let sent = waited.chained().fsync_of_one_file();
            assert_eq!(sent, waited.fsync_of_one_file(), "{waited:?}");
        }
    }
}

#[test]
fn who_waits_for_a_commit_yields_to_the_journal_once() {
    for (yields, count) in [(false, 0), (true, 3)] {
        rt::testing::world(|cx| {
            let (fs, _) = Variant::new("ext4", Sync, FlushFua).mount(cx, yields);
            for name in ["a", "b", "c"] {
                let ino = create(cx, &*fs, fs.root(), name);
                fs.fsync(cx, ino, false).expect("durable");
                fs.fsync(cx, ino, false).expect("durable already: nobody waits");
            }
            assert_eq!(fs.journal_stats().expect("a journal").yields, count);
            fs.unmount(cx).expect("unmounts");
        });
    }
}

/// Metadata that has committed goes home after thirty seconds, by a flusher in a context of its
/// own, asynchronously; a lazy journal leaves it in the log.
#[test]
fn a_flusher_writes_metadata_home_by_age() {
    for (flush_metadata, io, flags) in [(true, Async, ""), (true, Meta, "meta"), (false, Async, "")]
    {
        rt::testing::world(|cx| {
            let variant = Variant::new("ext4", io, FlushFua);
            let (fs, queue) =
                variant.mount_as(cx, MountOptions { flush_metadata, ..variant.options() });
            let ino = create(cx, &*fs, fs.root(), "file");
            fs.fsync(cx, ino, false).expect("durable");
            queue.take_trace();
            cx.sleep(base::Nanos::from_secs(29));
            assert_eq!(requests(&queue.take_trace().0, 0, 0), [""; 0], "too early");
            cx.sleep(base::Nanos::from_secs(10));
            let journal = fs.journal_task_ioc().expect("a journal");
            let lines = requests(&queue.take_trace().0, journal, cx.ioc());
            if flush_metadata {
                let home = lines.iter().filter(|line| line.contains("other write"));
                assert!(home.clone().count() > 1, "{lines:?}");
                assert!(home.clone().all(|line| line.ends_with(flags)), "{lines:?}");
                assert!(home.clone().all(|line| !line.contains("sync")), "{lines:?}");
                let tail = lines.last().expect("the tail of the log moves");
                assert!(tail.starts_with("journal write 4 sync"), "{lines:?}");
            } else {
                assert!(lines.is_empty(), "{lines:?}");
            }
            assert_eq!(
                fs.journal_stats().expect("a journal").home_batches,
                u64::from(flush_metadata)
            );
            fs.unmount(cx).expect("unmounts");
        });
    }
}

/// A reader beside the fsync: with the barrier nothing else is in the device while the record is.
#[test]
fn nothing_is_beside_a_barrier() {
    let alone = |record| {
        rt::testing::world(|cx| {
            let (fs, queue) = Variant::new("ext4", Async, record).mount(cx, false);
            queue.take_trace();
            let reads = queue.clone();
            let reader = cx.spawn("reader", move |cx| {
                for block in 0..2000 {
                    reads.read(cx, base::Sector(block * 8), 4096).expect("read");
                }
            });
            for name in ["a", "b", "c", "d"] {
                let ino = create(cx, &*fs, fs.root(), name);
                fs.write(cx, ino, 0, &[7; 65536]).expect("written");
                fs.fsync(cx, ino, false).expect("durable");
            }
            reader.join(cx);
            let lines = companions_of_records(&queue.take_trace().0);
            fs.unmount(cx).expect("unmounts");
            lines
        })
    };
    assert_eq!(alone(Barrier), [0; 4]);
    assert!(alone(FlushFua).iter().sum::<usize>() > 0, "the reader was never beside a record");
}

/// For every commit record how many other requests were in the device at some time with it.
fn companions_of_records(events: &[TraceEvent]) -> Vec<usize> {
    let is_record = |e: &TraceEvent| {
        e.op == block::Op::Write && e.count == 8 && e.flags.contains(block::BioFlags::SYNC)
    };
    let (mut others, mut record, mut companions) = (0, false, Vec::new());
    for event in events {
        match (event.kind, is_record(event)) {
            (TraceKind::Dispatched, true) => {
                record = true;
                companions.push(others);
            }
            (TraceKind::Completed, true) => record = false,
            (TraceKind::Dispatched, false) => {
                others += 1;
                *companions.last_mut().unwrap_or(&mut 0) += usize::from(record);
            }
            (TraceKind::Completed, false) => others -= 1,
            _ => {}
        }
    }
    companions
}
