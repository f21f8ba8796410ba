//! The options of a mount by the names of mount(8) and fuse(8).

use std::str::FromStr;

use base::Nanos;

/// Who may use the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// The user who mounted it.
    #[default]
    Owner,
    /// He and root.
    Root,
    /// Everybody, as the permission bits allow.
    Other,
}

/// Whether the host's processors are kept from deep sleep (PM QoS, `/dev/cpu_dma_latency`) while
/// programs use the mount. Only root may do that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PmQosUse {
    /// While many requests come, on machines where wake-ups are slow.
    #[default]
    Automatic,
    /// While any requests come. Mounting fails if it is not permitted.
    Always,
    /// Never.
    Never,
}

/// How to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Who may use it.
    pub access: Access,
    /// No permission checks: everybody who may use the mount is its root. For images that belong
    /// to nobody here, such as the root file system of another machine.
    pub fakeroot: bool,
    /// The kernel checks permissions even where root alone is let in.
    pub permissions: bool,
    /// Set-id bits count.
    pub suid: bool,
    /// Device nodes are devices.
    pub dev: bool,
    /// Programs cannot be run from it.
    pub noexec: bool,
    /// The kernel collects writes. Without it every write(2) comes to us before it returns, and
    /// itself returns the error when the disk is full.
    pub writeback: bool,
    /// Others change the file system too, as on a server: the kernel asks again after
    /// [`Options::SHARED_SECONDS`], reports every open and close, and collects no writes.
    pub shared: bool,
    /// The kernel reports every open and close, which costs each of them a request; always so on a
    /// shared file system. Else a file system learns of the last close when the kernel forgets the
    /// file.
    pub opens: bool,
    /// What `df` and `mount` show as the source.
    pub source: String,
    /// Threads that serve requests, at least 2.
    pub threads: usize,
    /// How long a thread looks for the next request before it sleeps: waking it takes longer than
    /// a program takes to make its next call. 0 where there is one processor only.
    pub spin: Nanos,
    /// When the host's processors are kept from deep sleep.
    pub pm_qos: PmQosUse,
    /// Requests come through io_uring, or mounting fails.
    pub io_uring: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            access: Access::Owner,
            fakeroot: false,
            permissions: false,
            suid: false,
            dev: false,
            noexec: false,
            writeback: true,
            shared: false,
            opens: false,
            source: "iopath".to_owned(),
            threads: 16,
            spin: Nanos::from_micros(50),
            pm_qos: PmQosUse::Automatic,
            io_uring: false,
        }
    }
}

/// An option that is not known here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not known; there are ro, rw, allow_other, allow_root, default_permissions, fakeroot, \
     suid, nosuid, dev, nodev, exec, noexec, noatime, writeback, nowriteback, fsname=NAME, \
     threads=NUMBER, spin=MICROSECONDS, io_uring, awake, noawake"
)]
pub struct OptionsError(String);

impl Options {
    /// How long the kernel keeps names and attributes of a shared file system, in seconds.
    pub const SHARED_SECONDS: u64 = 1;

    /// How long the kernel may keep names and attributes, seconds: for ever where nobody else
    /// changes them.
    pub(crate) fn keep_seconds(&self) -> u64 {
        if self.shared { Options::SHARED_SECONDS } else { 1 << 30 }
    }

    /// Whether the kernel reports opens and closes.
    pub(crate) fn reports_opens(&self) -> bool {
        self.shared || self.opens
    }

    /// Whether the kernel collects writes.
    pub(crate) fn collects(&self) -> bool {
        self.writeback && !self.shared
    }

    /// Applies one word of `-o`. Answers false where the word is not one of ours (then it may be
    /// the file system's).
    ///
    /// # Errors
    /// Our word with a value that means nothing.
    pub fn set(&mut self, word: &str) -> Result<bool, OptionsError> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.access = Access::Other,
            "allow_root" => self.access = Access::Root,
            "default_permissions" => self.permissions = true,
            // No read sets a time.
            "noatime" => {}
            "fakeroot" => self.fakeroot = true,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.noexec = false,
            "noexec" => self.noexec = true,
            "writeback" => self.writeback = true,
            "nowriteback" => self.writeback = false,
            "fsname" if !value.is_empty() => self.source = value.to_owned(),
            "threads" => {
                let count = usize::from_str(value).ok().filter(|n| (2..=256).contains(n));
                self.threads = count.ok_or_else(|| OptionsError(word.to_owned()))?;
            }
            "spin" => {
                let micros = u64::from_str(value).ok().filter(|n| *n <= 10_000);
                let micros = micros.ok_or_else(|| OptionsError(word.to_owned()))?;
                self.spin = Nanos::from_micros(micros);
            }
            "awake" if value.is_empty() => self.pm_qos = PmQosUse::Always,
            "noawake" if value.is_empty() => self.pm_qos = PmQosUse::Never,
            "io_uring" if value.is_empty() => self.io_uring = true,
            "fsname" => return Err(OptionsError(word.to_owned())),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the kernel checks permissions and ACLs. It need not where root alone is let in, who
    /// may do everything; each change of a directory costs a request less then.
    pub(crate) fn is_checked(&self) -> bool {
        let root_alone = self.access == Access::Owner && rustix::process::geteuid().is_root();
        !self.fakeroot && (!root_alone || self.shared || self.permissions)
    }

    pub(crate) fn acl(&self) -> fuser::SessionACL {
        match self.access {
            Access::Owner => fuser::SessionACL::Owner,
            Access::Root => fuser::SessionACL::RootAndOwner,
            Access::Other => fuser::SessionACL::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_ours_or_left_to_the_file_system() {
        let mut options = Options::default();
        for word in ["ro", "allow_other", "default_permissions", "fsname=a", "threads=4", "spin=0"]
        {
            assert_eq!(options.set(word), Ok(true), "{word}");
        }
        assert!(options.read_only && options.access == Access::Other);
        assert_eq!((options.source.as_str(), options.threads), ("a", 4));
        assert_eq!(options.spin, Nanos::ZERO);
        assert_eq!(options.set("data=journal"), Ok(false));
        assert!(options.set("threads=0").is_err() && options.set("spin=x").is_err());
        assert!(options.set("fsname=").is_err());
        assert_eq!((options.set("io_uring"), options.io_uring), (Ok(true), true));
        assert_eq!(options.pm_qos, PmQosUse::Automatic);
        for (word, when) in [("awake", PmQosUse::Always), ("noawake", PmQosUse::Never)] {
            assert_eq!((options.set(word), options.pm_qos), (Ok(true), when));
        }
    }
}
