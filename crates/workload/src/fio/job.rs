//! A job: what one section of a job file asks for.

use base::Nanos;

use super::value::Amount;

/// Directions of data, also as an index into triples: read, write, trim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Direction {
    /// Reads.
    Read = 0,
    /// Writes.
    Write = 1,
    /// Trims: holes are punched.
    Trim = 2,
}

impl Direction {
    /// All three.
    pub const ALL: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Trim];

    /// The word in JSON: `read`, `write`, `trim`.
    pub fn word(self) -> &'static str {
        ["read", "write", "trim"][self as usize]
    }
}

/// `rw`: which directions, and in which order of places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// The name, as fio prints it.
    pub name: &'static str,
    /// Reads are made.
    pub reads: bool,
    /// Writes are made.
    pub writes: bool,
    /// Trims are made.
    pub trims: bool,
    /// Places are random.
    pub random: bool,
    /// Each trim is followed by a write of the same place.
    pub trim_then_write: bool,
    /// The number behind the colon: with random places, how many in a row before the next random
    /// one (0 and 1: none); with sequential ones, bytes that are skipped after each.
    pub suffix: u64,
}

/// The names of `rw` and what they mean: reads, writes, trims, random, trim then write.
const PATTERNS: &[(&str, bool, bool, bool, bool, bool)] = &[
    ("read", true, false, false, false, false),
    ("write", false, true, false, false, false),
    ("trim", false, false, true, false, false),
    ("rw", true, true, false, false, false),
    ("readwrite", true, true, false, false, false),
    ("randread", true, false, false, true, false),
    ("randwrite", false, true, false, true, false),
    ("randtrim", false, false, true, true, false),
    ("randrw", true, true, false, true, false),
    ("trimwrite", false, true, true, false, true),
    ("randtrimwrite", false, true, true, true, true),
];

impl Default for Pattern {
    /// Sequential reads.
    fn default() -> Self {
        Pattern::named("read").expect("`read` is in the table")
    }
}

impl Pattern {
    /// Finds a pattern by its name.
    pub fn named(name: &str) -> Option<Pattern> {
        let &(name, reads, writes, trims, random, trim_then_write) =
            PATTERNS.iter().find(|pattern| pattern.0 == name)?;
        let name = if name == "readwrite" { "rw" } else { name };
        Some(Pattern { name, reads, writes, trims, random, trim_then_write, suffix: 0 })
    }

    /// The names there are.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PATTERNS.iter().map(|pattern| pattern.0)
    }

    /// Both reads and writes are made.
    pub fn is_mixed(&self) -> bool {
        self.reads && self.writes
    }

    /// Is this direction part of the pattern?
    pub fn has(&self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self.reads,
            Direction::Write => self.writes,
            Direction::Trim => self.trims,
        }
    }
}

/// `ioengine`: how an operation is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// One call at a time; the name shows which, and all of them are the same here.
    Sync(&'static str),
    /// Several under way: as many tasks of one I/O context as the depth.
    Async(&'static str),
    /// Nothing is done.
    Null,
    /// Each operation creates a file.
    FileCreate,
    /// Each operation asks for a file's attributes.
    FileStat,
    /// Each operation removes a file.
    FileDelete,
    /// Reads are pre-allocations, writes too, trims are holes.
    Falloc,
}

/// Engines by name.
pub(super) const ENGINES: &[(&str, Engine)] = &[
    ("psync", Engine::Sync("psync")),
    ("sync", Engine::Sync("sync")),
    ("vsync", Engine::Sync("vsync")),
    ("pvsync", Engine::Sync("pvsync")),
    ("pvsync2", Engine::Sync("pvsync2")),
    ("libaio", Engine::Async("libaio")),
    ("io_uring", Engine::Async("io_uring")),
    ("posixaio", Engine::Async("posixaio")),
    ("null", Engine::Null),
    ("filecreate", Engine::FileCreate),
    ("filestat", Engine::FileStat),
    ("filedelete", Engine::FileDelete),
    ("falloc", Engine::Falloc),
];

impl Default for Engine {
    /// `psync`.
    fn default() -> Self {
        Engine::Sync("psync")
    }
}

impl Engine {
    /// The name, as fio prints it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Sync(name) | Engine::Async(name) => name,
            Engine::Null => "null",
            Engine::FileCreate => "filecreate",
            Engine::FileStat => "filestat",
            Engine::FileDelete => "filedelete",
            Engine::Falloc => "falloc",
        }
    }

    /// Can more than one operation be under way? fio prints submission times for these.
    pub fn is_async(self) -> bool {
        matches!(self, Engine::Async(_))
    }

    /// Does each operation concern a whole file?
    pub fn is_per_file(self) -> bool {
        matches!(self, Engine::FileCreate | Engine::FileStat | Engine::FileDelete)
    }
}

/// `random_distribution`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Distribution {
    /// Every block as likely as every other.
    #[default]
    Uniform,
    /// Zipf with this exponent.
    Zipf(f64),
    /// Pareto with this power.
    Pareto(f64),
    /// Normal with this deviation, percent of the blocks.
    Normal(f64),
}

/// `random_generator`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Generator {
    /// L'Ecuyer's combined Tausworthe generator of 32 bits, with a map of what was visited.
    #[default]
    Tausworthe,
    /// The same with 64 bits.
    Tausworthe64,
    /// A linear feedback shift register, which visits every block once without a map.
    Lfsr,
}

/// `fallocate`: what is done before a file is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preallocate {
    /// Nothing.
    None,
    /// fallocate(2) where the file system can.
    #[default]
    Native,
    /// fallocate(2) that keeps the size.
    Keep,
    /// ftruncate(2).
    Truncate,
}

/// `file_service_type`: which file the next operation goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileService {
    /// One after the other.
    #[default]
    RoundRobin,
    /// A random one.
    Random,
    /// The first until it is done, then the next.
    Sequential,
}

/// `verify`: what a block carries, and how it is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// CRC-32C of the block.
    Crc32c,
    /// CRC-32 (IEEE) of the block.
    Crc32,
    /// CRC-16 (ARC) of the block.
    Crc16,
    /// MD5 of the block.
    Md5,
    /// SHA-1 of the block.
    Sha1,
    /// XXH32 of the block.
    Xxhash,
    /// SHA-256 of the block.
    Sha256,
    /// SHA-512 of the block.
    Sha512,
    /// A pattern, `verify_pattern`, without a header.
    Pattern,
    /// Nothing is compared.
    Null,
}

/// What one section asks for. [`Job::new`] has fio's defaults; `default` is all zeros.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "each field is the key of that name in fio(1)")]
pub struct Job {
    pub name: String,
    /// The settings of the section and of the command line, as written.
    pub options: Vec<(String, String)>,
    pub description: String,
    pub numjobs: u64,
    pub loops: u64,
    /// Zero: no limit.
    pub runtime: Nanos,
    pub time_based: bool,
    pub startdelay: Nanos,
    pub ramp_time: Nanos,
    pub stonewall: bool,
    pub new_group: bool,
    pub thread: bool,
    pub group_reporting: bool,
    pub exitall: bool,

    pub filenames: Vec<String>,
    pub directory: String,
    pub filename_format: String,
    pub nrfiles: u64,
    pub file_service: FileService,
    pub unlink: bool,
    pub fallocate: Preallocate,
    pub overwrite: bool,
    pub invalidate: bool,
    pub pre_read: bool,
    pub fill_device: bool,
    pub create_only: bool,
    pub create_on_open: bool,
    pub create_fsync: bool,

    pub pattern: Pattern,
    /// `rw_sequencer=identical`.
    pub identical: bool,
    /// Percent of reads in a mixed pattern.
    pub rwmixread: u64,
    pub percentage_random: [u64; 3],
    pub distribution: Distribution,
    pub generator: Generator,
    pub randrepeat: bool,
    pub randseed: Option<u64>,
    pub norandommap: bool,
    pub softrandommap: bool,
    pub offset: Amount,
    pub offset_increment: u64,
    pub number_ios: u64,

    /// Smallest and largest size of an operation.
    pub bs: [(u64, u64); 3],
    pub bssplit: [Vec<(u64, u32)>; 3],
    pub blockalign: [u64; 3],
    pub bs_unaligned: bool,
    pub size: Option<Amount>,
    pub io_size: Option<Amount>,
    pub filesize: Option<(u64, u64)>,
    pub kb_base: u64,

    pub direct: bool,
    /// `sync`: `O_SYNC`, `O_DSYNC`.
    pub sync: bool,
    pub dsync: bool,
    pub fsync: u64,
    pub fdatasync: u64,
    pub end_fsync: bool,
    pub fsync_on_close: bool,

    pub engine: Engine,
    pub iodepth: u64,

    /// Bytes a second; 0: no limit.
    pub rate: [u64; 3],
    pub rate_iops: [u64; 3],
    pub rate_poisson: bool,
    pub thinktime: Nanos,
    pub thinktime_blocks: u64,

    pub zero_buffers: bool,
    pub refill_buffers: bool,
    pub scramble_buffers: bool,
    pub buffer_pattern: Vec<u8>,
    pub compress_percentage: u64,

    pub verify: Option<Verify>,
    pub verify_pattern: Vec<u8>,
    pub do_verify: bool,
    pub verify_only: bool,
    pub verify_fatal: bool,

    pub write_bw_log: Option<String>,
    pub write_lat_log: Option<String>,
    pub write_iops_log: Option<String>,
    pub log_avg: Nanos,
    pub per_job_logs: bool,
    pub read_iolog: Option<String>,
    pub write_iolog: Option<String>,
    pub replay_no_stall: bool,
    pub replay_redirect: Option<String>,
    /// The list that `read_iolog` names.
    pub(super) replay: Option<std::sync::Arc<super::replay::Replay>>,

    pub percentile_list: Vec<f64>,
    pub clat_percentiles: bool,
    pub lat_percentiles: bool,
    pub slat_percentiles: bool,
    pub disable_lat: bool,
    pub disable_clat: bool,
    pub disable_slat: bool,
    pub disable_bw: bool,
    pub bwavgtime: Nanos,
    pub iopsavgtime: Nanos,
    /// `prioclass` (0 none, 1 real time, 2 best effort, 3 idle) and `prio` (0 to 7).
    pub prioclass: u8,
    pub prio: u8,
}

/// The percentiles that fio prints unless others are asked for.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

impl Job {
    /// A job with the defaults of fio.
    pub fn new() -> Job {
        Job {
            numjobs: 1,
            loops: 1,
            filename_format: "$jobname.$jobnum.$filenum".into(),
            nrfiles: 1,
            invalidate: true,
            create_fsync: true,
            rwmixread: 50,
            percentage_random: [100; 3],
            randrepeat: true,
            bs: [(4096, 4096); 3],
            kb_base: 1024,
            iodepth: 1,
            thinktime_blocks: 1,
            scramble_buffers: true,
            do_verify: true,
            per_job_logs: true,
            percentile_list: PERCENTILES.to_vec(),
            clat_percentiles: true,
            bwavgtime: Nanos::from_millis(500),
            iopsavgtime: Nanos::from_millis(500),
            ..Job::default()
        }
    }

    /// Takes files, directions and the size of the largest operation from a list.
    pub(super) fn replay_from(&mut self, replay: super::replay::Replay) {
        self.filenames.clone_from(&replay.files);
        self.pattern.reads = replay.has(Direction::Read);
        self.pattern.writes = replay.has(Direction::Write);
        self.pattern.trims = replay.has(Direction::Trim);
        self.bs = [(512, replay.largest().max(512)); 3];
        self.bssplit = Default::default();
        self.replay = Some(std::sync::Arc::new(replay));
    }

    /// Operations that may be under way at once.
    pub fn depth(&self) -> u64 {
        if self.engine.is_async() { self.iodepth } else { 1 }
    }

    /// The smallest operation of any direction that the pattern has: the unit of places.
    pub fn unit(&self) -> u64 {
        let used = Direction::ALL.into_iter().filter(|&d| self.pattern.has(d));
        used.map(|direction| self.smallest(direction)).min().unwrap_or(4096)
    }

    /// The smallest operation of a direction.
    pub fn smallest(&self, direction: Direction) -> u64 {
        let split = &self.bssplit[direction as usize];
        let from_split = split.iter().map(|part| part.0).min();
        from_split.unwrap_or(self.bs[direction as usize].0)
    }

    /// The largest operation of a direction.
    pub fn largest(&self, direction: Direction) -> u64 {
        let split = &self.bssplit[direction as usize];
        let from_split = split.iter().map(|part| part.0).max();
        from_split.unwrap_or(self.bs[direction as usize].1)
    }

    /// The name of file `file` of the copy `number` of this job.
    pub fn file_name(&self, number: u64, file: u64) -> String {
        let name = match self.filenames.get(file as usize) {
            Some(name) => name.clone(),
            None => self
                .filename_format
                .replace("$jobname", &self.name)
                .replace("$jobnum", &number.to_string())
                .replace("$filenum", &file.to_string()),
        };
        match self.directory.as_str() {
            "" => name,
            directory => format!("{}/{name}", directory.trim_end_matches('/')),
        }
    }

    /// Number of files.
    pub fn files(&self) -> u64 {
        match self.filenames.len() as u64 {
            0 => self.nrfiles,
            given => given,
        }
    }
}
