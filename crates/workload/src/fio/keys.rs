//! The keys of job files: what each one does to a [`Job`], and which are refused.

use base::Nanos;

use super::error::similar;
use super::job::{
    Direction, Distribution, ENGINES, Engine, FileService, Generator, Job, Pattern, Preallocate,
    Verify,
};
use super::key_names::{NEUTRAL, REFUSED, SUPPORTED};
use super::value::{self, Refusal};

/// Why a key is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// fio does not know it either; what may have been meant.
    Unknown(Option<&'static str>),
    /// fio knows it, this front end does not. True: it has no influence on the result, and
    /// `--compat=lenient` passes over it.
    Unsupported(bool),
    /// The value is bad: the rest of a sentence that begins with the value.
    Value(Refusal),
}

/// What may have been meant by a key that nobody knows.
fn meant(key: &str) -> Option<&'static str> {
    similar(key, SUPPORTED.iter().chain(REFUSED).chain(NEUTRAL).copied())
}

/// Applies `key=value` to a job.
///
/// # Errors
/// The key is not known or not supported, or the value is bad.
pub fn apply(job: &mut Job, key: &str, value: &str) -> Result<(), KeyError> {
    if !SUPPORTED.contains(&key) {
        return Err(match (REFUSED.contains(&key), NEUTRAL.contains(&key)) {
            (true, _) => KeyError::Unsupported(false),
            (_, true) => KeyError::Unsupported(true),
            _ => KeyError::Unknown(meant(key)),
        });
    }
    let groups = [flow, files, places, sizes, syncs, pace, content, checks, logs, figures];
    for group in groups {
        if group(job, key, value).map_err(KeyError::Value)? {
            return Ok(());
        }
    }
    unreachable!("{key} is in the table and in no group")
}

/// Each group returns whether it knows the key.
type Known = Result<bool, Refusal>;

const SECOND: Nanos = Nanos::from_secs(1);
const ANY: std::ops::RangeInclusive<u64> = 0..=u64::MAX;

fn flow(job: &mut Job, key: &str, text: &str) -> Known {
    match key {
        "name" => job.name = text.into(),
        "description" => job.description = text.into(),
        "numjobs" => job.numjobs = value::number(text, 1..=4096)?,
        "loops" => job.loops = value::number(text, 1..=u64::MAX)?,
        "runtime" => job.runtime = value::time(text, SECOND)?,
        "time_based" => job.time_based = value::boolean(text)?,
        "startdelay" => job.startdelay = value::time(text, SECOND)?,
        "ramp_time" => job.ramp_time = value::time(text, SECOND)?,
        "stonewall" | "wait_for_previous" => job.stonewall = value::boolean(text)?,
        "new_group" => job.new_group = value::boolean(text)?,
        "thread" => job.thread = value::boolean(text)?,
        "group_reporting" => job.group_reporting = value::boolean(text)?,
        "exitall" => job.exitall = value::boolean(text)?,
        "prio" => job.prio = value::number(text, 0..=7)? as u8,
        "prioclass" => job.prioclass = value::number(text, 0..=3)? as u8,
        _ => return Ok(false),
    }
    Ok(true)
}

fn files(job: &mut Job, key: &str, text: &str) -> Known {
    match key {
        "filename" => {
            let names: Vec<String> =
                text.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            if names.is_empty() || names.len() > 65536 {
                return Err("names no file (or more than 65536)".into());
            }
            job.filenames = names;
        }
        "directory" if text.contains(':') => {
            return Err("names several directories, which the fio front end does not".into());
        }
        "directory" => job.directory = text.into(),
        "filename_format" if text.is_empty() => return Err("is empty".into()),
        "filename_format" => job.filename_format = text.into(),
        "nrfiles" => job.nrfiles = value::number(text, 1..=1 << 20)?,
        "file_service_type" => {
            job.file_service = match text {
                "roundrobin" | "roundrobin:1" => FileService::RoundRobin,
                "random" | "random:1" => FileService::Random,
                "sequential" => FileService::Sequential,
                _ => return Err("is not roundrobin, random or sequential (without a count)".into()),
            }
        }
        "fallocate" => {
            job.fallocate = match text {
                "none" | "0" => Preallocate::None,
                "native" | "posix" | "1" => Preallocate::Native,
                "keep" => Preallocate::Keep,
                "truncate" => Preallocate::Truncate,
                _ => return Err("is not none, native, posix, keep or truncate".into()),
            }
        }
        "unlink" => job.unlink = value::boolean(text)?,
        "overwrite" => job.overwrite = value::boolean(text)?,
        "invalidate" => job.invalidate = value::boolean(text)?,
        "pre_read" => job.pre_read = value::boolean(text)?,
        "fill_device" => job.fill_device = value::boolean(text)?,
        "create_only" => job.create_only = value::boolean(text)?,
        "create_on_open" => job.create_on_open = value::boolean(text)?,
        "create_fsync" => job.create_fsync = value::boolean(text)?,
        // Files are always made one after the other.
        "create_serialize" => drop(value::boolean(text)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn places(job: &mut Job, key: &str, text: &str) -> Known {
    match key {
        "rw" | "readwrite" => job.pattern = pattern(text, job.kb_base)?,
        "rw_sequencer" => {
            job.identical = match text {
                "sequential" => false,
                "identical" => true,
                _ => return Err("is not sequential or identical".into()),
            }
        }
        "rwmixread" => job.rwmixread = value::number(text, 0..=100)?,
        "rwmixwrite" => job.rwmixread = 100 - value::number(text, 0..=100)?,
        "percentage_random" => {
            job.percentage_random = value::triple(text, |part| value::number(part, 0..=100))?;
        }
        "random_distribution" => job.distribution = distribution(text)?,
        "random_generator" => {
            job.generator = match text {
                "tausworthe" => Generator::Tausworthe,
                "tausworthe64" => Generator::Tausworthe64,
                "lfsr" => Generator::Lfsr,
                _ => return Err("is not tausworthe, lfsr or tausworthe64".into()),
            }
        }
        "randrepeat" | "allrandrepeat" => job.randrepeat = value::boolean(text)?,
        "randseed" => job.randseed = Some(value::number(text, ANY)?),
        "norandommap" => job.norandommap = value::boolean(text)?,
        "softrandommap" => job.softrandommap = value::boolean(text)?,
        "offset" => job.offset = value::amount(text, job.kb_base)?,
        "offset_increment" => job.offset_increment = value::size(text, job.kb_base)?,
        "number_ios" => job.number_ios = value::number(text, ANY)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn pattern(text: &str, kb_base: u64) -> Result<Pattern, Refusal> {
    let (name, suffix) = match text.split_once(':') {
        Some((name, suffix)) => (name, Some(suffix)),
        None => (text, None),
    };
    let mut pattern =
        Pattern::named(name).ok_or_else(|| match similar(name, Pattern::names()) {
            Some(near) => format!("is not a pattern; did you mean `{near}`?"),
            None => format!("is not one of {}", Pattern::names().collect::<Vec<_>>().join(", ")),
        })?;
    if let Some(suffix) = suffix {
        pattern.suffix = value::size(suffix, kb_base)?;
    }
    Ok(pattern)
}

fn distribution(text: &str) -> Result<Distribution, Refusal> {
    let (name, parameter) = text.split_once(':').unwrap_or((text, ""));
    let number = |default: f64| match parameter {
        "" => Ok(default),
        _ => {
            let refused = |_| Refusal::from("has a parameter that is not a number");
            parameter.parse::<f64>().map_err(refused)
        }
    };
    let within = |number: f64, good: bool, range: &str| match good {
        true => Ok(number),
        false => Err::<f64, Refusal>(format!("has a parameter that is not {range}")),
    };
    match name {
        "random" => Ok(Distribution::Uniform),
        "zipf" => {
            let theta = number(1.1)?;
            let good = theta > 0.0 && theta <= 100.0 && theta != 1.0;
            within(theta, good, "from 0 to 100, without 0 and 1").map(Distribution::Zipf)
        }
        "pareto" => {
            let power = number(0.2)?;
            within(power, power > 0.0 && power < 1.0, "between 0 and 1").map(Distribution::Pareto)
        }
        "normal" => {
            let spread = number(50.0)?;
            let good = (0.0..=100.0).contains(&spread);
            within(spread, good, "from 0 to 100").map(Distribution::Normal)
        }
        "zoned" | "zoned_abs" => Err("is not supported by the fio front end".into()),
        _ => Err("is not random, zipf, pareto or normal".into()),
    }
}

/// Largest operation: every one in flight keeps so much memory.
const BLOCK_MAX: u64 = 1 << 30;

fn block_size(text: &str, kb_base: u64) -> Result<u64, Refusal> {
    match value::size(text, kb_base)? {
        bytes @ 1..=BLOCK_MAX => Ok(bytes),
        _ => Err("is not from 1 byte to 1 GiB".into()),
    }
}

fn sizes(job: &mut Job, key: &str, text: &str) -> Known {
    let base = job.kb_base;
    let positive = |text: &str| match value::amount(text, base)? {
        value::Amount::Bytes(0) | value::Amount::Percent(0) => Err("is nothing".to_string()),
        amount => Ok(amount),
    };
    match key {
        "bs" | "blocksize" => {
            let sizes = value::triple(text, |part| block_size(part, base))?;
            job.bs = sizes.map(|size| (size, size));
            job.bssplit = Default::default();
        }
        "bsrange" | "blocksize_range" => {
            job.bs = value::triple(text, |part| match value::range(part, base)? {
                (low @ 1.., high @ ..=BLOCK_MAX) => Ok((low, high)),
                _ => Err("is not from 1 byte to 1 GiB".into()),
            })?;
            job.bssplit = Default::default();
        }
        "bssplit" => {
            job.bssplit = value::triple(text, |part| {
                let split = value::split(part, base)?;
                match split.iter().all(|part| (1..=BLOCK_MAX).contains(&part.0)) {
                    true => Ok(split),
                    false => Err("has a size that is not from 1 byte to 1 GiB".into()),
                }
            })?;
        }
        "blockalign" | "ba" => {
            job.blockalign = value::triple(text, |part| block_size(part, base))?;
        }
        "bs_unaligned" | "blocksize_unaligned" => job.bs_unaligned = value::boolean(text)?,
        "size" => job.size = Some(positive(text)?),
        "io_size" | "io_limit" => job.io_size = Some(positive(text)?),
        "filesize" => {
            job.filesize = Some(match text.contains('-') {
                true => value::range(text, base)?,
                false => value::size(text, base).map(|size| (size, size))?,
            });
        }
        "kb_base" => match text {
            "1024" => job.kb_base = 1024,
            "1000" => job.kb_base = 1000,
            _ => return Err("is neither 1024 nor 1000".into()),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

fn syncs(job: &mut Job, key: &str, text: &str) -> Known {
    match key {
        "direct" => job.direct = value::boolean(text)?,
        "buffered" => job.direct = !value::boolean(text)?,
        "sync" => {
            (job.sync, job.dsync) = match text {
                "0" | "none" => (false, false),
                "1" | "sync" => (true, false),
                "dsync" => (false, true),
                _ => return Err("is not none, 0, sync, 1 or dsync".into()),
            }
        }
        "fsync" => job.fsync = value::number(text, ANY)?,
        "fdatasync" => job.fdatasync = value::number(text, ANY)?,
        "end_fsync" => job.end_fsync = value::boolean(text)?,
        "fsync_on_close" => job.fsync_on_close = value::boolean(text)?,
        "ioengine" => job.engine = engine(text)?,
        "iodepth" => job.iodepth = value::number(text, 1..=1024)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn engine(text: &str) -> Result<Engine, Refusal> {
    if let Some(&(_, engine)) = ENGINES.iter().find(|(name, _)| *name == text) {
        return Ok(engine);
    }
    let others =
        ["mmap", "splice", "nbd", "rbd", "sg", "net", "netsplice", "cpuio", "rdma", "exec"];
    if others.contains(&text) {
        return Err("is an engine that is not supported by the fio front end".into());
    }
    Err(match similar(text, ENGINES.iter().map(|(name, _)| *name)) {
        Some(near) => format!("is not an engine; did you mean `{near}`?"),
        None => "is not an engine".into(),
    })
}

fn pace(job: &mut Job, key: &str, text: &str) -> Known {
    let base = job.kb_base;
    match key {
        "rate" => job.rate = value::triple(text, |part| value::size(part, base))?,
        "rate_iops" => job.rate_iops = value::triple(text, |part| value::number(part, ANY))?,
        "rate_process" => {
            job.rate_poisson = match text {
                "linear" => false,
                "poisson" => true,
                _ => return Err("is not linear or poisson".into()),
            }
        }
        "thinktime" => job.thinktime = value::time(text, Nanos::from_micros(1))?,
        "thinktime_blocks" => job.thinktime_blocks = value::number(text, 1..=u64::MAX)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn content(job: &mut Job, key: &str, text: &str) -> Known {
    match key {
        "zero_buffers" => job.zero_buffers = value::boolean(text)?,
        "refill_buffers" => job.refill_buffers = value::boolean(text)?,
        "scramble_buffers" => job.scramble_buffers = value::boolean(text)?,
        "buffer_pattern" => job.buffer_pattern = bytes(text)?,
        "buffer_compress_percentage" => {
            job.compress_percentage = value::number(text, 0..=100)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// `"text"`, `0xdeadbeef` (lowest byte last, as written) or a number below 256.
fn bytes(text: &str) -> Result<Vec<u8>, Refusal> {
    let refused = || "is not \"text\", 0xHEX or a number below 256".to_string();
    if let Some(quoted) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return match quoted.len() {
            1..=512 => Ok(quoted.as_bytes().to_vec()),
            _ => Err("has not from 1 to 512 bytes".into()),
        };
    }
    let Some(hexadecimal) = text.strip_prefix("0x") else {
        let byte: Result<u8, std::num::ParseIntError> = text.parse();
        return byte.map(|byte| vec![byte]).map_err(|_| refused());
    };
    if hexadecimal.is_empty() || hexadecimal.len() > 1024 || !hexadecimal.is_ascii() {
        return Err(refused());
    }
    let padded = match hexadecimal.len() % 2 {
        0 => hexadecimal.to_owned(),
        _ => format!("0{hexadecimal}"),
    };
    let pairs = padded.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect::<Option<Vec<u8>>>().ok_or_else(refused)
}

fn checks(job: &mut Job, key: &str, text: &str) -> Known {
    match key {
        "verify" => {
            job.verify = Some(match text {
                "crc32c" | "crc32c-intel" => Verify::Crc32c,
                "crc32" => Verify::Crc32,
                "crc16" => Verify::Crc16,
                "md5" => Verify::Md5,
                "sha1" => Verify::Sha1,
                "xxhash" => Verify::Xxhash,
                "sha256" => Verify::Sha256,
                "sha512" => Verify::Sha512,
                "pattern" => Verify::Pattern,
                "null" => Verify::Null,
                "0" | "none" => {
                    job.verify = None;
                    return Ok(true);
                }
                "crc64" | "crc7" | "meta" | "sha3-224" | "sha3-256" | "sha3-384" | "sha3-512" => {
                    return Err("is not supported by the fio front end".into());
                }
                _ => {
                    let known = "crc32c, crc32, crc16, md5, sha1, sha256, sha512, xxhash, pattern";
                    return Err(format!("is not one of {known}"));
                }
            });
        }
        "verify_pattern" => {
            job.verify_pattern = bytes(text)?;
            job.verify.get_or_insert(Verify::Pattern);
        }
        "do_verify" => job.do_verify = value::boolean(text)?,
        "verify_only" => job.verify_only = value::boolean(text)?,
        "verify_fatal" => job.verify_fatal = value::boolean(text)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn logs(job: &mut Job, key: &str, text: &str) -> Known {
    let prefix = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    match key {
        // Without a value the prefix is the name of the job.
        "write_bw_log" => job.write_bw_log = Some(text.into()),
        "write_lat_log" => job.write_lat_log = Some(text.into()),
        "write_iops_log" => job.write_iops_log = Some(text.into()),
        "log_avg_msec" => job.log_avg = value::time(text, Nanos::from_millis(1))?,
        "per_job_logs" => job.per_job_logs = value::boolean(text)?,
        "read_iolog" => job.read_iolog = prefix(text),
        "write_iolog" => job.write_iolog = prefix(text),
        "replay_no_stall" => job.replay_no_stall = value::boolean(text)?,
        "replay_redirect" => job.replay_redirect = prefix(text),
        _ => return Ok(false),
    }
    Ok(true)
}

fn figures(job: &mut Job, key: &str, text: &str) -> Known {
    let average = |text: &str| match value::time(text, Nanos::from_millis(1))? {
        Nanos(0) => Err("is no time".to_string()),
        time => Ok(time),
    };
    match key {
        "percentile_list" => {
            let mut list = value::floats(text, 100.0)?;
            list.sort_by(f64::total_cmp);
            job.percentile_list = list;
        }
        "clat_percentiles" => job.clat_percentiles = value::boolean(text)?,
        "lat_percentiles" => job.lat_percentiles = value::boolean(text)?,
        "slat_percentiles" => job.slat_percentiles = value::boolean(text)?,
        "disable_lat" => job.disable_lat = value::boolean(text)?,
        "disable_clat" => job.disable_clat = value::boolean(text)?,
        "disable_slat" => job.disable_slat = value::boolean(text)?,
        "disable_bw_measurement" | "disable_bw" => job.disable_bw = value::boolean(text)?,
        "gtod_reduce" => {
            let reduce = value::boolean(text)?;
            (job.disable_lat, job.disable_clat) = (reduce, reduce);
            (job.disable_slat, job.disable_bw) = (reduce, reduce);
        }
        "bwavgtime" => job.bwavgtime = average(text)?,
        "iopsavgtime" => job.iopsavgtime = average(text)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// What no single key shows: keys that do not go together. Returns the key and the rest of the
/// sentence.
pub fn contradictions(job: &Job) -> Option<(&'static str, String)> {
    let has_size = job.size.is_some() || job.filesize.is_some() || job.read_iolog.is_some();
    let needs_size = !job.engine.is_per_file() && !job.fill_device;
    if job.time_based && job.runtime == Nanos::ZERO {
        return Some(("time_based", "needs a runtime".into()));
    }
    if job.verify == Some(Verify::Pattern) && job.verify_pattern.is_empty() {
        return Some(("verify", "needs a verify_pattern".into()));
    }
    if job.verify_only && job.verify.is_none() {
        return Some(("verify_only", "needs verify".into()));
    }
    for direction in Direction::ALL {
        if job.verify.is_some_and(|verify| !matches!(verify, Verify::Pattern | Verify::Null))
            && job.smallest(direction) < super::verify::HEADER_MIN
        {
            return Some(("verify", "needs blocks of 128 bytes at least".into()));
        }
    }
    if needs_size && !has_size && job.filenames.is_empty() {
        return Some(("size", "is missing".into()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_key_belongs_to_a_group() {
        for key in SUPPORTED {
            for value in ["", "1", "read", "4k", "none"] {
                // `unreachable!` where no group knows the key.
                let _ = apply(&mut Job::new(), key, value);
            }
        }
    }

    #[test]
    fn a_key_stands_in_one_table() {
        let mut all: Vec<&str> = [SUPPORTED, REFUSED, NEUTRAL].concat();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn keys_are_refused_by_their_kind() {
        let mut job = Job::new();
        assert_eq!(apply(&mut job, "rwmxread", "3"), Err(KeyError::Unknown(Some("rwmixread"))));
        assert_eq!(apply(&mut job, "latency_target", "3"), Err(KeyError::Unsupported(false)));
        assert_eq!(apply(&mut job, "cpus_allowed", "3"), Err(KeyError::Unsupported(true)));
        assert!(matches!(apply(&mut job, "bs", "4q"), Err(KeyError::Value(_))));
        assert!(matches!(apply(&mut job, "ioengine", "mmap"), Err(KeyError::Value(_))));
    }

    #[test]
    fn patterns_are_bytes() {
        assert_eq!(bytes("0xdeadb"), Ok(vec![0x0d, 0xea, 0xdb]));
        assert_eq!(bytes("\"ab\""), Ok(b"ab".to_vec()));
        assert_eq!(bytes("255"), Ok(vec![255]));
        assert!(bytes("256").is_err() && bytes("0x").is_err() && bytes("0xg").is_err());
    }
}
