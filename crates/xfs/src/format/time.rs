//! Times of inodes, in both forms.

use base::Timespec;

/// Seconds from the start of wide times (the smallest 32-bit time) to 1970.
const BIGTIME_EPOCH: i64 = 1 << 31;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A time from its 64 bits on the disk. Wide (`bigtime`) times count nanoseconds from December
/// 1901; narrow ones are seconds and nanoseconds in 32 bits each.
pub fn decode(bits: u64, bigtime: bool) -> Timespec {
    if bigtime {
        let sec = (bits / NANOS_PER_SECOND) as i64 - BIGTIME_EPOCH;
        return Timespec { sec, nsec: (bits % NANOS_PER_SECOND) as u32 };
    }
    // A damaged inode may hold any number of nanoseconds.
    let nsec = (bits as u32).min(NANOS_PER_SECOND as u32 - 1);
    Timespec { sec: i64::from((bits >> 32) as i32), nsec }
}

/// The 64 bits of a time. What lies outside the form's range becomes its nearest end.
pub fn encode(time: Timespec, bigtime: bool) -> u64 {
    if bigtime {
        let limit = (u64::MAX / NANOS_PER_SECOND) as i64 & !3;
        let seconds = time.sec.saturating_add(BIGTIME_EPOCH).clamp(0, limit) as u64;
        return seconds * NANOS_PER_SECOND + u64::from(time.nsec);
    }
    let seconds = time.sec.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    u64::from(seconds as u32) << 32 | u64::from(time.nsec)
}

/// A time as it is kept: beyond the form's range its nearest end; its first and last seconds are
/// whole ones.
pub fn stored(time: Timespec, bigtime: bool) -> Timespec {
    let end = |sec| decode(encode(Timespec::from_secs(sec), bigtime), bigtime);
    let (first, last) = (end(i64::MIN), end(i64::MAX));
    match time.sec {
        sec if sec <= first.sec => first,
        sec if sec >= last.sec => last,
        _ => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_both_forms_in_their_range() {
        for sec in [-(1 << 31), -1, 0, 1_700_000_000, i64::from(i32::MAX)] {
            for bigtime in [false, true] {
                let time = Timespec { sec, nsec: 123_456_789 };
                assert_eq!(decode(encode(time, bigtime), bigtime), time);
            }
        }
        let far = Timespec { sec: 10_000_000_000, nsec: 1 };
        assert_eq!(decode(encode(far, true), true), far);
        assert_eq!(decode(encode(far, false), false).sec, i64::from(i32::MAX));
        assert_eq!(encode(Timespec { sec: i64::MIN, nsec: 0 }, true), 0);
        assert_eq!(decode(u64::MAX, false).nsec, 999_999_999);
        for (bigtime, last) in [(false, i64::from(i32::MAX)), (true, 16_299_260_424)] {
            let kept = |sec| stored(Timespec { sec, nsec: 5 }, bigtime);
            assert_eq!((kept(last - 1).nsec, kept(last).nsec), (5, 0));
            assert_eq!(kept(i64::MAX), kept(last));
            assert_eq!(kept(-1 << 31), Timespec::from_secs(-1 << 31));
        }
    }
}
