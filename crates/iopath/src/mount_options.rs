//! Mount options by the names of mount(8): `-o data=journal,barrier=0,commit=30`.

use std::str::FromStr;

use base::Nanos;
use ext4::MountOptions;
use jbd2::JournalMode;

/// What is said where an option is not known.
const KNOWN: &str = "data=ordered|writeback|journal, barrier=0|1, commit=SECONDS";

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountOption {
    /// What goes through the journal.
    Data(JournalMode),
    /// Whether the device is flushed where the order of writes matters.
    Barrier(bool),
    /// Age at which a transaction commits by itself.
    Commit(Nanos),
}

impl MountOption {
    /// Puts the option into those of a mount.
    pub fn apply(self, options: &mut MountOptions) {
        match self {
            MountOption::Data(mode) => options.data_mode = mode,
            MountOption::Barrier(barrier) => options.barrier = barrier,
            MountOption::Commit(interval) => options.commit_interval = interval,
        }
    }
}

impl FromStr for MountOption {
    type Err = String;

    /// # Errors
    /// A sentence with what is known.
    fn from_str(text: &str) -> Result<MountOption, String> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        match (key, value) {
            ("data", "ordered") => Ok(MountOption::Data(JournalMode::Ordered)),
            ("data", "writeback") => Ok(MountOption::Data(JournalMode::Writeback)),
            ("data", "journal") => Ok(MountOption::Data(JournalMode::Data)),
            ("data", _) => Err(format!("`{text}`: known are data=ordered|writeback|journal")),
            ("barrier", "0") => Ok(MountOption::Barrier(false)),
            ("barrier", "1") => Ok(MountOption::Barrier(true)),
            ("barrier", _) => Err(format!("`{text}`: known are barrier=0 and barrier=1")),
            ("commit", _) => match value.parse::<u32>() {
                // As for mount(8), 0 is the default.
                Ok(0) => Ok(MountOption::Commit(MountOptions::default().commit_interval)),
                Ok(seconds) => Ok(MountOption::Commit(Nanos::from_secs(seconds.into()))),
                Err(_) => Err(format!("`{text}`: commit takes a number of seconds")),
            },
            _ => Err(format!("`{text}` is not known; there are {KNOWN}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_mean_what_mount_says() {
        let mut options = MountOptions::default();
        for text in ["data=journal", "barrier=0", "commit=30"] {
            text.parse::<MountOption>().expect("known").apply(&mut options);
        }
        assert_eq!(options.data_mode, JournalMode::Data);
        assert!(!options.barrier);
        assert_eq!(options.commit_interval, Nanos::from_secs(30));
        "commit=0".parse::<MountOption>().expect("known").apply(&mut options);
        assert_eq!(options.commit_interval, Nanos::from_secs(5));
    }

    #[test]
    fn what_is_not_known_is_answered_with_what_is() {
        for text in ["data=fast", "barrier", "barrier=2", "commit=soon", "noatime", "", "data"] {
            let message = text.parse::<MountOption>().expect_err("refused");
            assert!(message.contains(&format!("`{text}`")), "{message}");
        }
        let message = "discard".parse::<MountOption>().expect_err("refused");
        assert!(message.contains("data=ordered|writeback|journal"), "{message}");
    }
}
