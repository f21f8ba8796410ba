//! What the metrics are, and where they come from.

use block::QueueStats;
use cache::PageCacheStats;

use super::Metrics;
use super::requests::Histogram;
use super::text::Text;

impl Metrics {
    /// All of them, as they are now.
    pub fn text(&self) -> String {
        let mut text = Text::default();
        self.about(&mut text);
        self.of_requests(&mut text);
        self.of_caches(&mut text);
        self.of_journal(&mut text);
        if let Some(queue) = &self.queue {
            of_device(&mut text, queue.elevator(), &queue.stats());
        }
        self.of_nfs(&mut text);
        text.end()
    }

    fn about(&self, text: &mut Text) {
        let kind = self.fs.as_ref().map_or("none", |fs| fs.name());
        let version = env!("CARGO_PKG_VERSION");
        text.gauge("info", "What serves: by which way, which file system, its version.").sample(
            &[("face", self.requests.face()), ("file_system", kind), ("version", version)],
            1,
        );
        let began = self.began.sec as f64 + f64::from(self.began.nsec) / 1e9;
        text.gauge("start_time_seconds", "When counting began, seconds since 1970.")
            .sample(&[], began);
        if let Some(fs) = &self.fs {
            let help = "Bytes that were accepted and could not be written later.";
            text.gauge("lost_bytes", help).sample(&[], fs.lost().bytes);
        }
    }

    fn of_requests(&self, text: &mut Text) {
        let requests = &self.requests;
        let help = "Requests by operation, and how long they took.";
        text.histograms("request_duration_seconds", help);
        for (name, latency) in requests.latencies() {
            text.histogram(&[("op", name)], &latency);
        }
        text.gauge("requests_in_flight", "Requests that are being carried out.")
            .sample(&[], requests.in_flight());
        let [read, written] = requests.bytes();
        text.counter("request_bytes_total", "Bytes of content that requests read and wrote.")
            .sample(&[("op", "read")], read)
            .sample(&[("op", "write")], written);
        text.counter("errors_total", "Requests that were answered with an error.");
        for (errno, count) in requests.errors() {
            text.sample(&[("errno", errno.name().unwrap_or("other"))], count);
        }
    }

    /// The caches: hits and misses of pages and of metadata, memory and dirty data.
    fn of_caches(&self, text: &mut Text) {
        let pages = self.ext.as_ref().map(|fs| fs.page_cache().stats());
        let Some(pages) = pages.or_else(|| self.xfs.as_ref().map(|fs| fs.page_stats())) else {
            return;
        };
        let ext = self.ext.as_ref().map(|fs| fs.buffers().stats());
        let ext = ext.map(|of| (of.lru_hits.iter().sum::<u64>() + of.index_hits, of.created));
        let xfs = self.xfs.as_ref().map(|fs| fs.buf_stats()).map(|of| (of.hits, of.created));
        let (hits, misses) = ext.or(xfs).unwrap_or_default();
        text.counter("cache_hits_total", "Reads of content, and of metadata, found in memory.")
            .sample(&[("cache", "pages")], pages.hits)
            .sample(&[("cache", "metadata")], hits);
        text.counter("cache_misses_total", "Those that were not.")
            .sample(&[("cache", "pages")], pages.misses)
            .sample(&[("cache", "metadata")], misses);
        of_pages(text, &pages);
    }

    fn of_journal(&self, text: &mut Text) {
        let mut counter = |name, help, value: u64| {
            text.counter(name, help).sample(&[], value);
        };
        let space = if let Some(journal) = self.ext.as_ref().and_then(|fs| fs.journal()) {
            let of = journal.stats();
            counter("journal_handles_total", "Operations that changed metadata.", of.handles);
            counter("journal_commits_total", "Transactions written to the log.", of.commits);
            counter("journal_fast_commits_total", "Fast commits.", of.fast_commits);
            counter("journal_waits_total", "Waits for another transaction.", of.start_waits);
            counter("journal_checkpoints_total", "Times that blocks went home.", of.checkpoints);
            counter("journal_blocks_total", "Blocks written to the log.", of.blocks);
            Some(journal.space())
        } else if let Some(of) = self.xfs.as_ref().and_then(|fs| fs.log_stats()) {
            counter("journal_commits_total", "Checkpoints written to the log.", of.checkpoints);
            counter("journal_waits_total", "Waits for log space.", of.space_waits);
            counter("journal_written_bytes_total", "Bytes of log records.", of.record_bytes);
            self.xfs.as_ref().and_then(|fs| fs.log_space())
        } else {
            None
        };
        if let Some([free, all]) = space {
            text.gauge("journal_free_bytes", "Space of the log that is free.").sample(&[], free);
            text.gauge("journal_size_bytes", "Space of the log.").sample(&[], all);
        }
    }

    fn of_nfs(&self, text: &mut Text) {
        let Some(server) = &self.nfs else { return };
        let stats = server.stats();
        text.counter("nfs_calls_total", "Calls of NFS clients, by procedure.");
        for (name, count) in nfs::proto::Proc::NAMES.iter().zip(stats.calls) {
            text.sample(&[("procedure", name)], count);
        }
        text.counter("nfs_replays_total", "Calls that came twice and were carried out once.")
            .sample(&[], stats.replays);
    }
}

fn of_pages(text: &mut Text, pages: &PageCacheStats) {
    text.gauge("cache_bytes", "Memory of cached content.").sample(&[], pages.memory_bytes);
    text.gauge("cache_dirty_bytes", "Of it, what is to be written.").sample(&[], pages.dirty_bytes);
    text.gauge("cache_writeback_bytes", "Of it, what is being written.")
        .sample(&[], pages.writeback_bytes);
}

/// The device and the elevator in front of it.
fn of_device(text: &mut Text, elevator: &str, stats: &QueueStats) {
    text.gauge("device_info", "The elevator.").sample(&[("elevator", elevator)], 1);
    text.histograms("device_request_duration_seconds", "Requests of the device, with their wait.");
    let all = [
        ("read", &stats.read_latency),
        ("write", &stats.write_latency),
        ("flush", &stats.flush_latency),
    ];
    for (name, latency) in all {
        text.histogram(&[("op", name)], &Histogram::of_device(latency));
    }
    text.counter("device_bytes_total", "Bytes that the device read and wrote.")
        .sample(&[("op", "read")], stats.read_bytes)
        .sample(&[("op", "write")], stats.write_bytes);
    text.counter("device_discards_total", "Discards.").sample(&[], stats.discards);
    let merges = stats.merges_front + stats.merges_back + stats.merges_requests;
    text.counter("device_merges_total", "Requests that joined another one.").sample(&[], merges);
    text.counter("device_errors_total", "Requests that failed.").sample(&[], stats.errors);
    text.counter("device_throttled_total", "Waits for a free request.")
        .sample(&[], stats.throttled);
    text.gauge("device_queued", "Requests that wait in the elevator.").sample(&[], stats.queued);
    text.gauge("device_in_flight", "Requests that the device has.").sample(&[], stats.in_flight);
}
