//! Mounts of the built command, as a test holds them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use testkit::judge;

/// Anything on a loaded machine that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The command with these arguments: the one built here, or `IOPATH_BINARY=PATH`.
pub fn iopath(args: &[&dyn AsRef<OsStr>]) -> Command {
    let built = env!("CARGO_BIN_EXE_iopath");
    let binary = std::env::var_os("IOPATH_BINARY").unwrap_or_else(|| built.into());
    let mut command = Command::new(binary);
    command.args(args.iter().map(|arg| arg.as_ref())).stdin(Stdio::null());
    command
}

/// A place for images and mount points, in memory where the host has such.
pub fn place() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("iopath-mount-");
    let shm = Path::new("/dev/shm");
    let dir = if shm.is_dir() { builder.tempdir_in(shm) } else { builder.tempdir() };
    dir.expect("a temporary directory")
}

/// Makes tests of functions that take the name of a format: one for each format.
macro_rules! on_each_format {
    ($($test:ident),+ $(,)?) => {
        mod ext4 {
            $(#[test] fn $test() { super::$test("ext4") })+
        }
        mod xfs {
            $(#[test] fn $test() { super::$test("xfs") })+
        }
    };
}
pub(crate) use on_each_format;

/// How many times as much as by default the tests do: `IOPATH_MOUNT_SCALE=10`.
pub fn scale() -> u64 {
    match std::env::var("IOPATH_MOUNT_SCALE") {
        Ok(text) => text.parse().expect("IOPATH_MOUNT_SCALE is a number"),
        Err(_) => 1,
    }
}

/// mkfs.xfs makes nothing smaller than 300 MiB.
const XFS_BYTES_MIN: u64 = 304 << 20;

/// Makes an image of `bytes` bytes at least in `dir` with the outside mkfs of its kind.
pub fn image(dir: &Path, kind: &str, bytes: u64) -> PathBuf {
    let image = dir.join(format!("{kind}.img"));
    match kind {
        "xfs" => {
            let file = fs::File::create(&image).expect("the image can be created");
            file.set_len(bytes.max(XFS_BYTES_MIN)).expect("the image takes its size");
            judge::run_ok("mkfs.xfs", &[&"-q", &image]);
        }
        _ => judge::mke2fs(&image, bytes, &["-t", kind]),
    }
    image
}

/// What the judge of the format says of an image that nobody has mounted.
#[track_caller]
pub fn check(image: &Path) {
    let is_xfs = image.file_name().is_some_and(|name| name == "xfs.img");
    let said = if is_xfs { judge::xfs_repair(image) } else { judge::e2fsck(image) };
    said.unwrap_or_else(|message| panic!("{message}"));
}

/// Waits until `done` answers true.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether something is mounted on `dir`, by the kernel's table.
pub fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").expect("the kernel has a mount table");
    let dir = dir.display().to_string();
    table.lines().any(|line| line.split(' ').nth(1) == Some(&dir))
}

/// An image mounted by a process in the foreground.
pub struct Mounted {
    child: Child,
    dir: PathBuf,
    log: PathBuf,
}

impl Mounted {
    /// Mounts `image` beside it, with `-o options` besides `allow_other,suid,dev`.
    #[track_caller]
    pub fn new(image: &Path, options: &str) -> Mounted {
        Mounted::target(image.as_os_str(), image, options)
    }

    /// Mounts `target` beside `place`, as [`Mounted::new`].
    #[track_caller]
    pub fn target(target: &OsStr, place: &Path, options: &str) -> Mounted {
        Mounted::exactly(target, place, &format!("allow_other,suid,dev{options}"))
    }

    /// Mounts `target` beside `place` with these options and no others, but for those that a
    /// campaign gives to all tests: `IOPATH_MOUNT_OPTIONS=,io_uring`.
    #[track_caller]
    pub fn exactly(target: &OsStr, place: &Path, options: &str) -> Mounted {
        let dir = place.with_extension("mnt");
        let options =
            options.to_owned() + &std::env::var("IOPATH_MOUNT_OPTIONS").unwrap_or_default();
        Mounted::by(iopath(&[&"mount", &"-f", &"-o", &options, &target, &dir]), place)
    }

    /// Waits until `command`, which stays in the foreground, has mounted beside `place`.
    #[track_caller]
    pub fn by(mut command: Command, place: &Path) -> Mounted {
        let dir = place.with_extension("mnt");
        fs::create_dir_all(&dir).expect("a mount point");
        let log = place.with_extension("log");
        let stderr = fs::File::create(&log).expect("a log");
        let mut child = command.stderr(stderr).spawn().expect("the command starts");
        let start = Instant::now();
        while !is_mounted(&dir) {
            if let Some(status) = child.try_wait().expect("the child can be asked") {
                panic!("{command:?}: {status}: {}", read(&log));
            }
            assert!(start.elapsed() < PATIENCE, "{} is not mounted", dir.display());
            thread::sleep(Duration::from_millis(2));
        }
        Mounted { child, dir, log }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process that serves.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the process has said.
    pub fn said(&self) -> String {
        read(&self.log)
    }

    /// Unmounts and waits until the process has written everything.
    #[track_caller]
    pub fn unmount(mut self) {
        wait_until("umount", || judge::run("umount", &[&self.dir]).status.success());
        let status = self.wait();
        assert!(status.success(), "the mount ended with {status}: {}", self.said());
    }

    /// How the process has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child can be asked")
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the end of the mount", || {
            status = self.child.try_wait().expect("the child can be asked");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Ends the process with SIGKILL, at once, and takes the dead mount away.
    pub fn kill(self) {
        self.kill_then(|| ());
    }

    /// As [`Mounted::kill`], with something to do while the dead mount is still there: afterwards
    /// the same path leads to the bare directory below it, where calls succeed again.
    pub fn kill_then(mut self, work: impl FnOnce()) {
        self.child.kill().expect("the process can be killed");
        self.wait();
        work();
        // Drop takes the mount away.
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        if is_mounted(&self.dir) {
            // Whoever still waits for the mount is told that it is gone.
            let _gone = unmount(&self.dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
        let _ended = self.child.wait();
    }
}

fn read(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

/// Runs a shell script in a directory; it must succeed.
#[track_caller]
pub fn shell(dir: &Path, script: &str) -> String {
    let output = shell_output(dir, script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{}: {text}{error}", output.status);
    text
}

/// Runs a shell script in a directory.
pub fn shell_output(dir: &Path, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(dir).stdin(Stdio::null()).env("LC_ALL", "C");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output().expect("sh starts")
}
