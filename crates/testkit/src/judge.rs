//! Outside opinions about an image: e2fsck, and the kernel's own mount.
//!
//! These tests need root and the tools of Debian's `e2fsprogs` and `mount`; what is missing is
//! named with the command that installs it. Kernel mounts go through loop devices, which are taken
//! down when the guard is dropped, also in a panic.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use device::MemoryDevice;

use crate::image;
use crate::manifest::{self, Manifest};

/// Runs a tool of the host and returns its output, whatever its exit status.
///
/// # Panics
/// If the tool cannot be started; the message says how to install it.
pub fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(path_of(program));
    command.args(args.iter().map(|arg| arg.as_ref())).env("LC_ALL", "C");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.output().unwrap_or_else(|error| {
        let package = match program {
            "mount" | "umount" | "losetup" => "mount",
            "setfacl" | "getfacl" => "acl",
            "setfattr" | "getfattr" => "attr",
            "qemu-img" | "qemu-io" => "qemu-utils",
            "cryptsetup" | "veritysetup" => "cryptsetup-bin",
            "lvm" => "lvm2",
            "mdadm" => "mdadm",
            "img2simg" => "android-sdk-libsparse-utils",
            other if other.contains("xfs") => "xfsprogs",
            _ => "e2fsprogs",
        };
        panic!("{program}: {error}; install it with: apt-get install -y {package}")
    })
}

/// The path of a tool. By its path, a process is spawned without a copy of the page tables of this
/// one, which may hold whole images.
fn path_of(program: &str) -> PathBuf {
    // A user's PATH may lack the directories of the tools.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut paths = folders.map(|folder| folder.join(program));
    paths.find(|path| path.is_file()).unwrap_or_else(|| program.into())
}

/// Runs a tool that must succeed; returns its standard output.
///
/// # Panics
/// With all it printed, if it does not.
pub fn run_ok(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let output = run(program, args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {}: {}\n{text}{}",
        args.iter().map(|a| a.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Asks `e2fsck -fn` about an image file, that of the host and the newest one; they change nothing.
///
/// # Errors
/// All that the first one printed that does not exit with 0.
pub fn e2fsck(image: &Path) -> Result<(), String> {
    opinion("e2fsck", "-fn", image)?;
    crate::newest::e2fsck(image)
}

/// Asks `xfs_repair -n` about an image file, the newest one and, where it knows the image's
/// features, that of the host; they change nothing.
///
/// # Errors
/// All that xfs_repair printed, unless it exits with 0.
pub fn xfs_repair(image: &Path) -> Result<(), String> {
    crate::newest::xfs_repair(image)?;
    if xfs_newer_than_host(image) { Ok(()) } else { opinion("xfs_repair", "-nP", image) }
}

/// True if an image has features (exchange-range and whatever came after it) that the xfsprogs of
/// Debian 12 refuses.
fn xfs_newer_than_host(image: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    const INCOMPAT: u64 = 216;
    let mut word = [0; 4];
    let read = fs::File::open(image).and_then(|file| file.read_exact_at(&mut word, INCOMPAT));
    read.is_ok() && u32::from_be_bytes(word) >= 0x40
}

fn opinion(program: &str, flags: &str, image: &Path) -> Result<(), String> {
    let output = run(program, &[&flags, &image]);
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{program} {flags} {}: {}\n{}{}",
        image.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Asks `e2fsck -fn` about what a device holds. On refusal the image is kept and its path named.
///
/// # Errors
/// As [`e2fsck`].
pub fn e2fsck_device(device: &MemoryDevice) -> Result<(), String> {
    let file = image::write_device(device);
    e2fsck(file.path()).map_err(|message| {
        let kept = file.keep().map(|(_, path)| path.display().to_string());
        format!("{message}\nthe image is kept in {}", kept.unwrap_or_else(|e| e.to_string()))
    })
}

/// Makes an image with `mke2fs` of the host: `args` go before the path, `size` is in bytes.
///
/// # Panics
/// If mke2fs refuses.
pub fn mke2fs(image: &Path, size: u64, args: &[&str]) {
    let file = fs::File::create(image).expect("the image can be created");
    file.set_len(size).expect("the image takes its size");
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"-q", &"-F"];
    all.extend(args.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    all.push(&image);
    run_ok("mke2fs", &all);
}

/// Runs commands of `debugfs` on an image, writing if `write`; returns what it printed.
pub fn debugfs(image: &Path, write: bool, commands: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(commands.as_bytes()).expect("the temporary file takes the commands");
    let path = file.path();
    if write {
        run_ok("debugfs", &[&"-w", &"-f", &path, &image])
    } else {
        run_ok("debugfs", &[&"-f", &path, &image])
    }
}

/// A mount by the kernel through a loop device; unmounted on drop.
pub struct LoopMount {
    image: PathBuf,
    dir: Option<tempfile::TempDir>,
}

impl LoopMount {
    /// Mounts an image with these options (`ro`, `ro,noload`, `rw`, ..).
    ///
    /// # Errors
    /// What mount(8) printed.
    ///
    /// # Panics
    /// Without root or mount(8).
    pub fn new(image: &Path, kind: &str, options: &str) -> Result<LoopMount, String> {
        let dir = tempfile::Builder::new().prefix("iopath-mnt-").tempdir();
        let dir = dir.expect("a temporary directory can be made");
        // Images of one plan have one UUID: XFS refuses a second one beside it.
        let own = if kind == "xfs" { "loop,nouuid" } else { "loop" };
        let options = format!("{own},{options}");
        let output = run("mount", &[&"-t", &kind, &"-o", &options, &image, &dir.path()]);
        if !output.status.success() {
            return Err(format!(
                "mount -t {kind} -o {options} {}: {}{}",
                image.display(),
                String::from_utf8_lossy(&output.stderr),
                "(needs root and loop devices)"
            ));
        }
        Ok(LoopMount { image: image.to_owned(), dir: Some(dir) })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.as_ref().expect("mounted until dropped").path().to_path_buf()
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        let Some(dir) = self.dir.take() else { return };
        let mut output = run("umount", &[&dir.path()]);
        // A process that another thread is just starting has our files open until it runs. To
        // detach the mount would be too early: the image would be read before it is written.
        for _ in 0..100 {
            if output.status.success() {
                break;
            }
            wait_a_moment();
            output = run("umount", &[&dir.path()]);
        }
        if !output.status.success() {
            // Removing the directory would remove what is in the image.
            let _kept = dir.keep();
            eprintln!("umount failed: {}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        // Tests in mount namespaces of their own begin with copies of all mounts.
        if let Err(error) = device::wait_for_loop(&self.image, RELEASED_WITHIN) {
            eprintln!("{error}");
        }
    }
}

/// How long another test may keep a copy of a mount.
const RELEASED_WITHIN: Duration = Duration::from_secs(60);

#[allow(clippy::disallowed_methods, reason = "it waits for processes outside of every world")]
fn wait_a_moment() {
    std::thread::sleep(Duration::from_millis(50));
}

/// The manifest of an image as the kernel's read-only mount shows it.
///
/// # Panics
/// If the kernel does not mount it or cannot read it.
pub fn kernel_manifest(image: &Path, kind: &str) -> Manifest {
    let mount = LoopMount::new(image, kind, "ro").unwrap_or_else(|message| panic!("{message}"));
    manifest::of_dir(&mount.path()).expect("the kernel reads the whole tree")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After an unmount the image was still mounted in the mount namespace of another test: what
    /// was written was not in it, and XFS refused the next mount for its UUID.
    #[test]
    fn an_image_is_released_by_the_unmount() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a.img");
        mke2fs(&image, 4 << 20, &["-t", "ext4"]);
        let mount = LoopMount::new(&image, "ext4", "rw").unwrap();
        let began = dir.path().join("began");
        let script = format!("touch {}; sleep 1", began.display());
        let mut other = Command::new("unshare").args(["-m", "sh", "-c", &script]).spawn().unwrap();
        while !began.exists() {
            wait_a_moment();
        }
        fs::write(mount.path().join("x"), [7; 100_000]).unwrap();
        drop(mount);
        e2fsck(&image).unwrap();
        assert!(debugfs(&image, false, "stat x\n").contains("Size: 100000"));
        other.wait().unwrap();
    }

    /// Tests that ran beside each other and mounted images of one UUID failed now and then.
    #[test]
    fn images_of_one_uuid_are_mounted_beside_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let images = ["a.img", "b.img"].map(|name| dir.path().join(name));
        fs::File::create(&images[0]).unwrap().set_len(300 << 20).unwrap();
        run_ok("mkfs.xfs", &[&"-q", &images[0]]);
        fs::copy(&images[0], &images[1]).unwrap();
        let mounts = images.each_ref().map(|image| LoopMount::new(image, "xfs", "rw").unwrap());
        assert_ne!(mounts[0].path(), mounts[1].path());
    }

    /// A good image passes, and one with a wrong link count does not.
    #[test]
    fn e2fsck_tells_good_from_bad() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a.img");
        mke2fs(&image, 4 << 20, &["-t", "ext4"]);
        e2fsck(&image).unwrap();
        debugfs(&image, true, "set_inode_field <2> links_count 9\n");
        assert!(e2fsck(&image).unwrap_err().contains("ref count"));
    }
}
