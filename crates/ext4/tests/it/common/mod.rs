//! The outside tools of e2fsprogs, as judges and as makers of images.

pub mod image;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a tool; answers its exit code and everything that it printed.
///
/// # Panics
/// With the command that installs it, where the tool is missing.
pub fn run(tool: &str, args: &[&str]) -> (i32, String) {
    let path = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(tool))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{tool} is missing: apt-get install -y e2fsprogs mount"));
    let out = Command::new(path)
        .args(args)
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .env("MKE2FS_SKIP_CHECK_MSG", "1")
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .output()
        .expect("the tool starts");
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    (out.status.code().unwrap_or(-1), text)
}

/// A scratch directory that vanishes at the end.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new one.
    pub fn new() -> Scratch {
        // In memory where there is such a place: hundreds of images are written and thrown away.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Scratch(dir.expect("a temporary directory"))
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes an image with `mke2fs ARGS image SIZE` and answers its path.
    pub fn mke2fs(&self, name: &str, args: &[&str], size: &str) -> PathBuf {
        let path = self.path(name);
        let mut all = vec!["-q", "-F"];
        all.extend_from_slice(args);
        all.extend_from_slice(&[path.to_str().expect("utf-8"), size]);
        let (code, text) = run("mke2fs", &all);
        assert_eq!(code, 0, "mke2fs {all:?}: {text}");
        path
    }
}

/// Runs debugfs commands on an image, writing.
pub fn debugfs(image: &Path, commands: &str) -> String {
    let list = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(list.path(), commands).expect("the commands are written");
    let list = list.path().to_str().expect("utf-8");
    let (code, text) = run("debugfs", &["-w", "-f", list, image.to_str().expect("utf-8")]);
    assert_eq!(code, 0, "debugfs {commands}: {text}");
    text
}

/// Asserts that e2fsck finds nothing.
pub fn assert_clean(image: &Path, what: &str) {
    let (code, text) = e2fsck(image);
    assert_eq!(code, 0, "{what}: e2fsck -fn says\n{text}");
}

/// What `e2fsck -fn` says.
pub fn e2fsck(image: &Path) -> (i32, String) {
    run("e2fsck", &["-fn", image.to_str().expect("utf-8")])
}

/// The `name: value` lines of `dumpe2fs -h`.
pub fn dumpe2fs(image: &Path) -> Vec<(String, String)> {
    let (code, text) = run("dumpe2fs", &["-h", image.to_str().expect("utf-8")]);
    assert_eq!(code, 0, "dumpe2fs: {text}");
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_string(), value.trim().to_string()))
        .collect()
}

/// One value of `dumpe2fs -h`.
pub fn field(lines: &[(String, String)], name: &str) -> Option<String> {
    lines.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

/// Fills a mounted file system with one of everything.
pub fn populate(root: &Path) {
    use std::os::unix::fs::{FileExt, symlink};
    let put = |name: &str, bytes: &[u8]| {
        std::fs::write(root.join(name), bytes).expect("a file");
    };
    std::fs::create_dir(root.join("big")).expect("a directory");
    for index in 0..3000 {
        put(&format!("big/a-rather-long-name-{index:05}"), b"");
    }
    std::fs::create_dir_all(root.join("deep/er/est")).expect("directories");
    put("small", b"small");
    put("gone", b"");
    put("empty", b"");
    put("megabyte", &vec![7; 1 << 20]);
    std::fs::hard_link(root.join("small"), root.join("deep/linked")).expect("a link");
    let sparse = std::fs::File::create(root.join("sparse")).expect("a file");
    for index in 0..600u64 {
        sparse.write_all_at(&[1; 1024], index * 8192).expect("a write");
    }
    symlink("short", root.join("fast")).expect("a link");
    symlink("x".repeat(500), root.join("slow")).expect("a link");
    for (name, kind) in [("null", "c"), ("disk", "b")] {
        let path = root.join(name);
        let (code, text) = run("mknod", &[path.to_str().expect("utf-8"), kind, "1", "3"]);
        assert_eq!(code, 0, "{text}");
    }
    let flags = rustix::fs::XattrFlags::empty();
    for name in ["attr1", "attr2"] {
        put(name, b"");
        rustix::fs::setxattr(root.join(name), "user.long", &[b'v'; 700], flags).expect("a value");
    }
    put("lonely", b"");
    rustix::fs::setxattr(root.join("lonely"), "user.long", &[b'w'; 700], flags).expect("a value");
    std::fs::remove_file(root.join("gone")).expect("a file");
    rustix::fs::setxattr(root.join("small"), "user.short", b"s", flags).expect("a value");
}
