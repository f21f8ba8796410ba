//! Calendar time as `ctime(3)` prints it, in UTC.

use base::Timespec;

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn month_days(year: i64, month: usize) -> i64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// `11/22/2026 00:24:42`, as mdtest prints it. Times before 1970 show its first second.
pub fn short(time: Timespec) -> String {
    let text = ctime(time);
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let month = MONTHS.iter().position(|month| *month == part(4..7)).unwrap_or(0) + 1;
    let day = part(8..10).trim().parse::<u32>().unwrap_or(1);
    format!("{month:02}/{day:02}/{} {}", part(20..text.len()), part(11..19))
}

/// `Thu Jan  1 00:00:00 1970`, without the line's end. Times before 1970 show its first second.
pub fn ctime(time: Timespec) -> String {
    let seconds = time.sec.max(0);
    let mut days = seconds / 86_400;
    let weekday = DAYS[((days + 4) % 7) as usize];
    // Whole cycles of 400 years first, so that a wild time does not walk year by year.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    while days >= month_days(year, month) {
        days -= month_days(year, month);
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let month = MONTHS[month];
    format!("{weekday} {month} {:>2} {hour:02}:{minute:02}:{second:02} {year}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        let at = |sec| ctime(Timespec::from_secs(sec));
        assert_eq!(at(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(short(Timespec::from_secs(1_795_307_082)), "11/22/2026 00:24:42");
        assert_eq!(at(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(at(1_795_307_082), "Sun Nov 22 00:24:42 2026");
        assert_eq!(at(4_102_444_799), "Thu Dec 31 23:59:59 2099");
        assert_eq!(at(4_107_542_400), "Mon Mar  1 00:00:00 2100");
        assert!(at(i64::MAX).contains(':'), "a wild time prints at once");
    }
}
