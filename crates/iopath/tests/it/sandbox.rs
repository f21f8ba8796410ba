//! The sandbox of a command judged from inside: a library that is loaded into the process tries to
//! get out. Needs a C compiler, and a kernel with Landlock and seccomp.
#![allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{iopath, is_mounted, ok};

/// Escapes that the library tries at least.
const ESCAPES_MIN: usize = 80;

/// A folder with the library, an image, and a folder that the process has no business in.
struct Cell {
    folder: tempfile::TempDir,
}

impl Cell {
    fn new() -> Cell {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cell = Cell { folder };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sandbox/escapes.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-o"])
            .args([&cell.path("escapes.so"), &source])
            .arg("-ldl")
            .output()
            .expect("a C compiler: apt-get install gcc libc6-dev");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        fs::create_dir(cell.path("outside")).expect("a folder");
        fs::write(cell.path("outside/secret"), "secret").expect("a file");
        fs::create_dir(cell.path("images")).expect("a folder");
        cell
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The command with the library in it.
    fn command(&self, when: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
        command
            .args(args)
            .env("LD_PRELOAD", self.path("escapes.so"))
            .env("ESCAPES", self.path("report"))
            .env("ESCAPES_WHEN", when)
            .env("ESCAPES_OUTSIDE", self.path("outside"))
            .stdin(Stdio::null());
        command
    }

    /// What the library has reported.
    fn report(&self) -> String {
        fs::read_to_string(self.path("report")).unwrap_or_default()
    }

    /// All of it was refused.
    #[track_caller]
    fn judge(&self) {
        let report = self.report();
        let mut lines: Vec<&str> = report.lines().collect();
        let tried = lines.pop().and_then(|line| line.strip_prefix("tried ")?.parse::<usize>().ok());
        assert!(tried.is_some_and(|tried| tried >= ESCAPES_MIN), "{report}");
        assert_eq!(lines, Vec::<&str>::new(), "not refused");
        let secret = fs::read(self.path("outside/secret")).expect("the secret is there");
        assert_eq!(secret, b"secret");
    }
}

/// Waits until the library has tried everything.
fn wait_for_report(cell: &Cell, child: &mut Child) {
    let start = Instant::now();
    while !cell.report().contains("tried ") {
        let ended = child.try_wait().expect("the child can be asked");
        assert!(ended.is_none(), "{ended:?}: {}", cell.report());
        assert!(start.elapsed() < Duration::from_secs(120), "{}", cell.report());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kernel_has_both() -> bool {
    let image = tempfile::tempdir().expect("a folder");
    let image = image.path().join("a.img").display().to_string();
    ok(&["mkfs", "-t", "ext4", "--size", "4M", &image]);
    let info = ok(&["info", &image]);
    info.lines().any(|line| line.contains("sandbox: Landlock ") && line.contains(", seccomp"))
}

/// A hostile image that had taken over the process that replays its journal gets nowhere.
#[test]
fn a_command_that_writes_an_image_is_locked() {
    let cell = Cell::new();
    let image = cell.text("images/a.img");
    ok(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
    let made = cell.command("locked", &["mkdir", &format!("{image}:/d")]).output().expect("runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    if kernel_has_both() {
        cell.judge();
    }
    assert!(ok(&["ls", &image]).contains('d'));
}

/// Two strangers' trees are compared by a process that is locked: images, archives, directories.
#[test]
fn a_comparison_is_locked() {
    let cell = Cell::new();
    let (image, tree) = (cell.text("images/a.img"), cell.text("images/tree"));
    fs::create_dir(&tree).expect("a folder");
    fs::write(cell.path("images/tree/file"), "content").expect("a file");
    ok(&["mkfs", "-q", "-t", "ext4", "-d", &tree, &image]);
    let compared = cell.command("locked", &["diff", &image, &tree]).output().expect("runs");
    assert!(compared.status.success(), "{compared:?}");
    if kernel_has_both() {
        cell.judge();
    }
}

/// The process that serves a mount opens nothing any more, and unmounts all the same.
#[test]
fn a_mount_is_locked() {
    let cell = Cell::new();
    let image = cell.text("images/a.img");
    ok(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
    let dir = cell.text("images/mnt");
    fs::create_dir(&dir).expect("a folder");
    let mut child = cell
        .command("settled", &["mount", "-f", &image, &dir])
        .spawn()
        .expect("the command starts");
    match kernel_has_both() {
        true => wait_for_report(&cell, &mut child),
        false => {
            while !is_mounted(Path::new(&dir)) {
                std::thread::sleep(Duration::from_millis(10))
            }
        }
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    fs::write(format!("{dir}/file"), "content").expect("the mount works");
    let ended = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(ended.expect("kill").success());
    assert!(child.wait().expect("it ends").success());
    assert!(!is_mounted(Path::new(&dir)), "the keeper has not unmounted");
    assert_eq!(ok(&["cat", &format!("{image}:/file")]), "content");
    if kernel_has_both() {
        cell.judge();
        let line = |key: &str| status.lines().find(|line| line.starts_with(key)).map(str::to_owned);
        assert_eq!(line("NoNewPrivs:").as_deref(), Some("NoNewPrivs:\t1"));
        assert_eq!(line("Seccomp:").as_deref(), Some("Seccomp:\t2"));
        // To open files of others, which nothing can any more.
        assert_eq!(line("CapEff:").as_deref(), Some("CapEff:\t0000000000000006"));
    }
}

/// `serve nbd` is locked as a mount is.
#[test]
fn a_server_is_locked() {
    let cell = Cell::new();
    let image = cell.text("images/a.img");
    ok(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
    let args = ["serve", "nbd", "--listen", "127.0.0.1:0", &image];
    let mut child =
        cell.command("settled", &args).stdout(Stdio::null()).spawn().expect("the command starts");
    if kernel_has_both() {
        wait_for_report(&cell, &mut child);
        cell.judge();
    }
    let ended = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(ended.expect("kill").success());
    assert!(child.wait().expect("it ends").success());
}

/// The test sees what it looks for: without the sandbox the same library gets out.
#[test]
fn without_the_sandbox_the_library_gets_out() {
    let cell = Cell::new();
    let image = cell.text("images/a.img");
    ok(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
    let args = ["--no-sandbox", "mkdir", &format!("{image}:/d")];
    let mut command = cell.command("locked", &args);
    command.env("ESCAPES_WHEN", "always");
    assert!(command.output().expect("runs").status.success());
    let report = cell.report();
    assert!(report.contains("open of a secret: ") && report.contains("socket, unix: "), "{report}");
}

/// What the command line does not name is not opened, though the user may read it; what it names
/// is, through symlinks too.
#[test]
fn a_command_opens_what_it_is_given() {
    let cell = Cell::new();
    let image = cell.text("images/a.img");
    ok(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
    let link = cell.text("outside/link.img");
    std::os::unix::fs::symlink(&image, &link).expect("a symlink");
    assert!(ok(&["check", &link]).contains("clean"));
    fs::create_dir(cell.path("out")).expect("a folder");
    ok(&["cp", &cell.text("outside/secret"), &format!("{link}:/")]);
    ok(&["cp", "-a", &format!("{image}:/."), &cell.text("out")]);
    assert_eq!(fs::read(cell.path("out/secret")).expect("copied"), b"secret");
    ok(&["cp", "-a", &format!("{image}:/"), &cell.text("out/new")]);
    assert!(ok(&["repair", "-n", &image]).contains("0 findings"));
    let missing = iopath(&["check", &cell.text("images/none.img")]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("No such file"), "{missing:?}");
}
