//! The outside judges of a journal: e2fsprogs and the kernel's own mount. As root.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a tool, whatever its exit status.
pub fn run(program: &str, args: &[&dyn AsRef<OsStr>]) -> Output {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    Command::new(program)
        .args(args.iter().map(|arg| arg.as_ref()))
        .env("LC_ALL", "C")
        .env("PATH", path)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; apt-get install -y e2fsprogs mount"))
}

/// Runs a tool that must succeed; answers what it printed.
pub fn run_ok(program: &str, args: &[&dyn AsRef<OsStr>]) -> String {
    let output = run(program, args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}\n{text}{errors}", output.status);
    text
}

/// Makes an image of `size` bytes.
pub fn mke2fs(image: &Path, size: u64, args: &[&str]) {
    let file = std::fs::File::create(image).expect("the image can be made");
    file.set_len(size).expect("the image takes its size");
    let mut all: Vec<&dyn AsRef<OsStr>> = vec![&"-q", &"-F"];
    all.extend(args.iter().map(|arg| arg as &dyn AsRef<OsStr>));
    all.push(&image);
    run_ok("mke2fs", &all);
}

/// Runs commands of debugfs; answers what it printed.
pub fn debugfs(image: &Path, write: bool, commands: &str) -> String {
    let list = temporary(commands.as_bytes());
    match write {
        true => run_ok("debugfs", &[&"-w", &"-f", &list.path(), &image]),
        false => run_ok("debugfs", &[&"-f", &list.path(), &image]),
    }
}

/// A temporary file with these bytes.
pub fn temporary(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(bytes).expect("it takes the bytes");
    file
}

/// `e2fsck -fn` must find nothing.
pub fn assert_clean(image: &Path) {
    run_ok("e2fsck", &[&"-fn", &image]);
}

/// A mount by the kernel; unmounted on drop.
pub struct LoopMount(tempfile::TempDir, PathBuf);

impl LoopMount {
    /// Mounts the image with these options.
    pub fn new(image: &Path, options: &str) -> LoopMount {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let options = format!("loop,{options}");
        run_ok("mount", &[&"-t", &"ext4", &"-o", &options, &image, &dir.path()]);
        LoopMount(dir, image.to_owned())
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        let done = run("umount", &[&self.0.path()]).status.success();
        if !done {
            // Removing the directory would remove what is in the image.
            self.0.disable_cleanup(true);
            eprintln!("umount of {} failed", self.0.path().display());
            return;
        }
        // Tests in mount namespaces of their own begin with copies of all mounts.
        if let Err(error) = device::wait_for_loop(&self.1, std::time::Duration::from_secs(60)) {
            eprintln!("{error}");
        }
    }
}
