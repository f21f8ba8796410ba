//! Mount options by the names of mount(8): `-o data=journal,barrier=0,commit=30`.

use std::str::FromStr;

use crate::format::quota::Form;
use crate::{BhLru, LegacyLookups, MountOptions, QuotaName};
use base::Nanos;
use jbd2::{CommitRecord, JournalIo, JournalMode};
use vfs::direct::Boundary;

/// What is said where an option is not known.
const KNOWN: &str = "data=ordered|writeback|journal, barrier=flush|drain|0, commit=SECONDS, \
     journal_io=async|sync|noidle|waited|meta, journal_yield=0|1, journal_chain=0|1, \
     checkpoint=lazy|flusher, readahead=SIZE, bh_lru=sets|array|1..64, \
     legacy_lookups=2.6.32|3.10|none, dio_boundary=RULE, dio_page=SIZE, \
     dio_holes=direct|buffered, reservation, noreservation, auto_da_alloc, noauto_da_alloc, \
     dioread_lock, dioread_nolock, usrquota, grpquota, usrjquota=NAME, grpjquota=NAME, \
     jqfmt=vfsv0|vfsv1";

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountOption {
    /// What goes through the journal.
    Data(JournalMode),
    /// How commit records keep their place behind what they seal.
    Barrier(CommitRecord),
    /// What the journal's writes carry.
    JournalIo(JournalIo),
    /// Whether a waiter yields his place in the elevator to the journal's task.
    JournalYield(bool),
    /// Whether the commit record follows the log without a wait of the journal's task.
    JournalChain(bool),
    /// Age at which a transaction commits by itself.
    Commit(Nanos),
    /// Whether committed metadata goes to its place by age.
    FlushMetadata(bool),
    /// Bound of a readahead window in bytes.
    Readahead(u32),
    /// What each CPU keeps in front of the index of buffers.
    BhLru(BhLru),
    /// Whose lookups of blocks by number it makes.
    LegacyLookups(LegacyLookups),
    /// What direct I/O makes of boundary marks.
    DirectBoundary(Boundary),
    /// Bytes of a page, by which the old rules of direct I/O walk memory.
    DirectPage(u32),
    /// Whether direct writes give blocks to holes inside the file.
    DirectHoles(bool),
    /// Whether files without extents allocate out of windows.
    Reservation(bool),
    /// Whether what replaces a file gets its blocks at once.
    AutoDaAlloc(bool),
    /// Whether dirty pages get unwritten blocks.
    DioreadNolock(bool),
    /// The old quota file of users (0) or groups (1); None: not counted.
    QuotaFile(usize, Option<QuotaName>),
    /// The form of the old quota files.
    QuotaForm(Form),
}

impl MountOption {
    /// Puts the option into those of a mount.
    pub fn apply(self, options: &mut MountOptions) {
        match self {
            MountOption::Data(mode) => options.data_mode = mode,
            MountOption::Barrier(barrier) => options.barrier = barrier,
            MountOption::FlushMetadata(flusher) => options.flush_metadata = flusher,
            MountOption::Readahead(bytes) => options.readahead_bytes = Some(bytes),
            MountOption::JournalIo(io) => options.journal_io = io,
            MountOption::JournalYield(yields) => options.journal_yield = yields,
            MountOption::BhLru(lru) => options.bh_lru = lru,
            MountOption::LegacyLookups(whose) => options.legacy_lookups = whose,
            MountOption::JournalChain(chains) => options.journal_chain = chains,
            MountOption::Commit(interval) => options.commit_interval = interval,
            MountOption::DirectBoundary(rule) => options.direct.boundary = rule,
            MountOption::DirectPage(bytes) => options.direct.page_size = bytes,
            MountOption::DirectHoles(direct) => options.direct_holes = direct,
            MountOption::Reservation(on) => options.reservation = Some(on),
            MountOption::AutoDaAlloc(on) => options.auto_da_alloc = on,
            MountOption::DioreadNolock(on) => options.set_dioread_nolock(on),
            MountOption::QuotaFile(whose, name) => options.quota_files[whose] = name,
            MountOption::QuotaForm(form) => options.quota_form = Some(form),
        }
    }
}

/// An option that is a word alone.
fn switch(word: &str) -> Option<MountOption> {
    Some(match word {
        "reservation" => MountOption::Reservation(true),
        "noreservation" => MountOption::Reservation(false),
        "auto_da_alloc" => MountOption::AutoDaAlloc(true),
        "noauto_da_alloc" => MountOption::AutoDaAlloc(false),
        "dioread_lock" => MountOption::DioreadNolock(false),
        "dioread_nolock" => MountOption::DioreadNolock(true),
        _ => return None,
    })
}

impl FromStr for MountOption {
    type Err = String;

    /// # Errors
    /// A sentence with what is known.
    fn from_str(text: &str) -> Result<MountOption, String> {
        switch(text).map_or_else(|| setting(text), Ok)
    }
}

/// An option with a value.
fn setting(text: &str) -> Result<MountOption, String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    match (key, value) {
        ("data", "ordered") => Ok(MountOption::Data(JournalMode::Ordered)),
        ("data", "writeback") => Ok(MountOption::Data(JournalMode::Writeback)),
        ("data", "journal") => Ok(MountOption::Data(JournalMode::Data)),
        ("data", _) => Err(format!("`{text}`: known are data=ordered|writeback|journal")),
        ("barrier", "0") => Ok(MountOption::Barrier(CommitRecord::Plain)),
        // 1 is what mount(8) calls it.
        ("barrier", "flush" | "1") => Ok(MountOption::Barrier(CommitRecord::FlushFua)),
        ("barrier", "drain") => Ok(MountOption::Barrier(CommitRecord::Barrier)),
        ("barrier", _) => Err(format!("`{text}`: known are barrier=flush|drain|0")),
        ("journal_io", _) => match value.parse() {
            Ok(io) => Ok(MountOption::JournalIo(io)),
            Err(message) => Err(format!("`{text}`: {message}")),
        },
        ("journal_yield", "0") => Ok(MountOption::JournalYield(false)),
        ("journal_yield", "1") => Ok(MountOption::JournalYield(true)),
        ("journal_yield", _) => Err(format!("`{text}`: known are journal_yield=0|1")),
        ("journal_chain", "0") => Ok(MountOption::JournalChain(false)),
        ("journal_chain", "1") => Ok(MountOption::JournalChain(true)),
        ("journal_chain", _) => Err(format!("`{text}`: known are journal_chain=0|1")),
        ("commit", _) => match value.parse::<u32>() {
            // As for mount(8), 0 is the default.
            Ok(0) => Ok(MountOption::Commit(MountOptions::default().commit_interval)),
            Ok(seconds) => Ok(MountOption::Commit(Nanos::from_secs(seconds.into()))),
            Err(_) => Err(format!("`{text}`: commit takes a number of seconds")),
        },
        ("checkpoint", "lazy") => Ok(MountOption::FlushMetadata(false)),
        ("checkpoint", "flusher") => Ok(MountOption::FlushMetadata(true)),
        ("checkpoint", _) => Err(format!("`{text}`: known are checkpoint=lazy|flusher")),
        ("readahead", _) => match base::unit::parse_size(value).map(u32::try_from) {
            Ok(Ok(bytes)) if bytes < 1 << 31 => Ok(MountOption::Readahead(bytes)),
            _ => Err(format!("`{text}`: readahead takes a size below 2G, such as 128K")),
        },
        ("bh_lru", _) => match value.parse() {
            Ok(lru) => Ok(MountOption::BhLru(lru)),
            Err(message) => Err(format!("`{text}`: {message}")),
        },
        ("legacy_lookups", _) => match value.parse() {
            Ok(whose) => Ok(MountOption::LegacyLookups(whose)),
            Err(message) => Err(format!("`{text}`: {message}")),
        },
        ("dio_boundary", _) => value.parse().map(MountOption::DirectBoundary),
        ("dio_page", _) => match base::unit::parse_size(value) {
            Ok(bytes) if (4096..=65536).contains(&bytes) && bytes.is_power_of_two() => {
                Ok(MountOption::DirectPage(bytes as u32))
            }
            _ => Err(format!("`{text}`: dio_page takes a power of two from 4K to 64K")),
        },
        ("dio_holes", "direct") => Ok(MountOption::DirectHoles(true)),
        ("dio_holes", "buffered") => Ok(MountOption::DirectHoles(false)),
        ("dio_holes", _) => Err(format!("`{text}`: known are dio_holes=direct|buffered")),
        ("usrjquota", _) => quota_file(text, 0, value),
        ("grpjquota", _) => quota_file(text, 1, value),
        ("jqfmt", "vfsv0") => Ok(MountOption::QuotaForm(Form::V0)),
        ("jqfmt", "vfsv1") => Ok(MountOption::QuotaForm(Form::V1)),
        ("jqfmt", _) => Err(format!("`{text}`: known are jqfmt=vfsv0|vfsv1")),
        _ => Err(format!("`{text}` is not known; there are {KNOWN}")),
    }
}

/// An old quota file; without a name the usage is not counted, as for mount(8).
fn quota_file(text: &str, whose: usize, name: &str) -> Result<MountOption, String> {
    match (name, QuotaName::new(name)) {
        ("", _) => Ok(MountOption::QuotaFile(whose, None)),
        (_, Some(name)) => Ok(MountOption::QuotaFile(whose, Some(name))),
        (_, None) => Err(format!("`{text}`: takes a name in the root directory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_mean_what_mount_says() {
        let mut options = MountOptions::default();
        let all = "data=journal,barrier=0,commit=30,journal_io=async,journal_yield=1,\
                   journal_chain=1,readahead=1M,checkpoint=flusher,bh_lru=16,\
                   legacy_lookups=2.6.32,dio_boundary=after-add,dio_page=16K,\
                   dio_holes=buffered,reservation";
        let all = all.split(',');
        for text in all {
            text.parse::<MountOption>().expect("known").apply(&mut options);
        }
        assert_eq!(options.data_mode, JournalMode::Data);
        assert_eq!(options.bh_lru, BhLru::Fixed(16));
        assert_eq!(options.legacy_lookups, LegacyLookups::Linux2_6_32);
        assert_eq!(options.barrier, CommitRecord::Plain);
        assert_eq!((options.readahead_bytes, options.flush_metadata), (Some(1 << 20), true));
        let direct = (options.direct.boundary, options.direct.page_size, options.direct_holes);
        assert_eq!(direct, (Boundary::AfterAdd, 16384, false));
        assert_eq!((options.journal_io, options.journal_yield), (JournalIo::Async, true));
        assert!(options.journal_chain);
        assert_eq!(options.reservation, Some(true));
        assert!(options.auto_da_alloc);
        "noauto_da_alloc".parse::<MountOption>().expect("known").apply(&mut options);
        assert!(!options.auto_da_alloc);
        "noreservation".parse::<MountOption>().expect("known").apply(&mut options);
        assert_eq!(options.reservation, Some(false));
        for (text, barrier) in [
            ("barrier=drain", CommitRecord::Barrier),
            ("barrier=flush", CommitRecord::FlushFua),
            ("barrier=1", CommitRecord::FlushFua),
        ] {
            text.parse::<MountOption>().expect("known").apply(&mut options);
            assert_eq!(options.barrier, barrier, "{text}");
        }
        assert_eq!(options.commit_interval, Nanos::from_secs(30));
        "commit=0".parse::<MountOption>().expect("known").apply(&mut options);
        assert_eq!(options.commit_interval, Nanos::from_secs(5));
    }

    #[test]
    fn what_is_not_known_is_answered_with_what_is() {
        let wrong = ["data=fast", "barrier", "barrier=2", "commit=soon", "noatime", "", "data"];
        for text in wrong.into_iter().chain([
            "journal_io=fast",
            "journal_yield",
            "journal_chain=2",
            "readahead",
            "readahead=2G",
            "checkpoint=no",
            "bh_lru=0",
            "bh_lru=65",
            "legacy_lookups=2.4",
            "dio_page=5K",
            "dio_holes",
            "reservation=1",
            "reservation=1",
        ]) {
            let message = text.parse::<MountOption>().expect_err("refused");
            assert!(message.contains(&format!("`{text}`")), "{message}");
        }
        let message = "discard".parse::<MountOption>().expect_err("refused");
        assert!(message.contains("data=ordered|writeback|journal"), "{message}");
    }
}
