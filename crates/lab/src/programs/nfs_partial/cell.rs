//! What one run is: a mode of the client, sizes, and the calls of the tool.

use base::Nanos;
use nfs::client::rpc::RpcOptions;
use nfs::{Mode, NfsOptions};
use workload::sysbench::Options;

/// Calls under way of a client of that time.
const SLOTS: u64 = 16;
/// The memory of client and server: that of the machine, next to nothing else is in it.
const MEMORY: u64 = 2 << 30;

/// Who made the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// `sysbench prepare` on the server.
    Prepared,
    /// The client itself, by setting their sizes.
    Sparse,
    /// Somebody else, by setting their sizes, before the client mounts.
    SparseOfOthers,
}

/// One run of the tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// `--file-test-mode`.
    pub mode: String,
    /// `--max-requests`.
    pub requests: u64,
    /// `--file-fsync-end`.
    pub fsync_end: bool,
}

/// What a run needs beside the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The client's treatment of pages that are partly up to date.
    pub mode: Mode,
    /// Bytes of a folio of the client.
    pub folio_size: u32,
    /// Bytes of a request.
    pub block_size: u64,
    /// Bytes of all files.
    pub total_size: u64,
    /// Bytes of the client's page cache.
    pub cache_bytes: u64,
    /// Dirty data older than 30 s is written.
    pub by_age: bool,
    /// Who made the files.
    pub files: Files,
    /// Largest WRITE, where not what the server prefers.
    pub wsize: Option<u32>,
    /// The runs of the tool, one after another on one mount.
    pub phases: Vec<Phase>,
}

impl Cell {
    /// The document's cell with files of another total size.
    pub fn plain(total_size: u64) -> Cell {
        Cell {
            mode: Mode::Off,
            folio_size: 4096,
            block_size: 2048,
            total_size,
            cache_bytes: MEMORY,
            by_age: true,
            files: Files::Prepared,
            wsize: None,
            phases: vec![Phase { mode: "rndrw".to_owned(), requests: 100_000, fsync_end: true }],
        }
    }

    /// The document's command line with this cell's sizes.
    pub(super) fn options(&self, phase: &Phase) -> Result<Options, String> {
        let Phase { mode, requests, fsync_end } = phase;
        let line = format!(
            "--num-threads=16 --max-requests={requests} --test=fileio --file-block-size={} \
             --file-total-size={} --file-test-mode={mode} --file-fsync-freq=0 \
             --file-rw-ratio=0.5 --file-fsync-end={} run",
            self.block_size,
            self.total_size,
            if *fsync_end { "on" } else { "off" }
        );
        let words: Vec<&str> = line.split_whitespace().collect();
        Options::parse(&words).map_err(|usage| usage.to_string())
    }

    /// The client's options.
    pub(super) fn client_options(&self) -> NfsOptions {
        NfsOptions {
            mode: self.mode,
            folio_size: self.folio_size,
            // The kernel's ratios of what memory it has for pages.
            dirty_background_bytes: self.cache_bytes / 10,
            dirty_limit_bytes: self.cache_bytes / 5,
            dirty_expire: if self.by_age { Nanos::from_secs(30) } else { Nanos::MAX },
            readahead_bytes: 0,
            wsize: self.wsize,
            rpc: RpcOptions { slots: SLOTS, timeout: Nanos::from_secs(600), attempts: None },
            ..NfsOptions::with_cache(self.cache_bytes)
        }
    }
}
