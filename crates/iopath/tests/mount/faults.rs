//! What is below the mount fails: the host's file system is full, the device answers errors.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::io::Errno;
use testkit::judge;

use crate::host::{Mounted, check, image, is_mounted, on_each_format, place, wait_until};

const MIB: usize = 1 << 20;

/// A file system in memory that holds so much; unmounted on drop.
struct Host(PathBuf);

impl Host {
    fn new(dir: &Path, bytes: u64) -> Host {
        fs::create_dir(dir).unwrap();
        let options = format!("size={bytes}");
        judge::run_ok("mount", &[&"-t", &"tmpfs", &"-o", &options, &"iopath-test", &dir]);
        Host(dir.to_owned())
    }

    fn grow(&self, bytes: u64) {
        judge::run_ok("mount", &[&"-o", &format!("remount,size={bytes}"), &self.0]);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _gone = judge::run("umount", &[&"-l", &self.0]);
    }
}

fn content(number: usize) -> Vec<u8> {
    (0..MIB + number).map(|at| (at * 31 + number * 7 + at / 4096) as u8 | 1).collect()
}

/// Writes a file, syncs it and its directory.
fn synced(dir: &Path, number: usize) -> std::io::Result<()> {
    let mut file = File::create(dir.join(format!("f{number}")))?;
    file.write_all(&content(number))?;
    file.sync_all()?;
    File::open(dir)?.sync_all()
}

/// Every file that was told safe is there.
#[track_caller]
fn all_there(dir: &Path, count: usize) {
    for number in 0..count {
        let found = fs::read(dir.join(format!("f{number}"))).unwrap();
        assert!(found == content(number), "file {number} of {count}");
    }
}

/// Writes and syncs until that fails, which it does for good; answers how many were told safe, and
/// the first error.
#[track_caller]
fn until_it_fails(dir: &Path, begin: usize) -> (usize, Option<Errno>) {
    for number in begin..begin + 2000 {
        if let Err(error) = synced(dir, number) {
            return (number, Errno::from_io_error(&error));
        }
    }
    panic!("nothing fails");
}

/// Ends a mount that has failed, whatever it says.
#[track_caller]
fn end(mut mount: Mounted) -> String {
    let dir = mount.dir().to_owned();
    wait_until("umount", || judge::run("umount", &[&dir]).status.success() || !is_mounted(&dir));
    mount.wait();
    mount.said()
}

/// The host's file system is full under a sparse image: fsync tells `ENOSPC`, and changes
/// are refused where the journal finds no room either; where there is room again, the next mount
/// recovers what was synced.
fn a_full_host_is_told_and_recovered_from(kind: &str) {
    let place = place();
    let host = Host::new(&place.path().join("host"), 512 << 20);
    let image = image(&host.0, kind, 256 << 20);
    let mount = Mounted::new(&image, "");
    for number in 0..4 {
        synced(mount.dir(), number).unwrap();
    }
    let used = |path: &Path| {
        let stat = rustix::fs::statvfs(path).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    };
    host.grow(used(&host.0) + 8 * MIB as u64);
    let (safe, told) = until_it_fails(mount.dir(), 4);
    assert_eq!(told, Some(Errno::NOSPC), "{kind}: {}", mount.said());
    assert!((4..14).contains(&safe), "{kind}: {safe} of 1 MiB in 8 MiB");
    // What finds its blocks taken already goes on; ext4's journal meets new ones soon.
    let later = |number: usize| mount.dir().join(format!("later{number}"));
    let made = (0..3000).find(|&number| {
        let made = fs::create_dir(later(number));
        made.and_then(|()| File::open(mount.dir())?.sync_all()).is_err()
    });
    assert!(made.is_some() || kind != "ext4", "ext4 has no room for its journal");
    let made = made.unwrap_or(3000);
    all_there(mount.dir(), safe);
    let said = end(mount);
    host.grow(512 << 20);
    let mount = Mounted::new(&image, "");
    assert!(!mount.said().is_empty(), "what was replayed is told; before: {said}");
    all_there(mount.dir(), safe);
    assert!((0..made).all(|number| mount.dir().join(format!("later{number}")).is_dir()));
    synced(mount.dir(), safe).unwrap();
    mount.unmount();
    check(&image);
}

/// A server of a network block device that fails what it is told to while a file is there.
struct Failing {
    server: Child,
    socket: PathBuf,
    trigger: PathBuf,
}

impl Failing {
    fn new(image: &Path, what: &str) -> Failing {
        let (socket, trigger) = (image.with_extension("sock"), image.with_extension("fail"));
        let mut command = Command::new("nbdkit");
        command.args(["-f", "--exit-with-parent", "--filter=error", "-U"]).arg(&socket);
        command.arg("file").arg(image).args(["error=EIO", &format!("error-{what}=100%")]);
        command.arg(format!("error-file={}", trigger.display()));
        let server = command.stderr(File::create(image.with_extension("nbdkit")).unwrap()).spawn();
        let server = server.expect("nbdkit starts; install it with: apt-get install -y nbdkit");
        wait_until("nbdkit", || socket.exists());
        Failing { server, socket, trigger }
    }

    fn url(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    fn fail(&self, fail: bool) {
        match fail {
            true => fs::write(&self.trigger, "").unwrap(),
            false => fs::remove_file(&self.trigger).unwrap(),
        }
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let _ended = self.server.kill();
        let _ended = self.server.wait();
        let _gone = fs::remove_file(&self.socket);
    }
}

/// A device that fails writes, or everything: fsync tells `EIO`, and so does write(2) to who never
/// syncs. What was synced before is there when it works again.
fn a_failing_device_is_told_and_recovered_from(kind: &str) {
    for what in ["pwrite-rate", "rate"] {
        let place = place();
        let image = image(place.path(), kind, 64 << 20);
        let device = Failing::new(&image, what);
        let mount = Mounted::target(device.url().as_ref(), &image, "");
        for number in 0..3 {
            synced(mount.dir(), number).unwrap();
        }
        device.fail(true);
        let (safe, told) = until_it_fails(mount.dir(), 3);
        assert_eq!(told, Some(Errno::IO), "{kind}, {what}: {}", mount.said());
        assert_eq!(safe, 3, "{kind}, {what}: nothing is safe any more");
        wait_until("write(2)", || {
            let file = File::create(mount.dir().join("endless"));
            let wrote = file.and_then(|mut file| file.write_all(&content(0)));
            wrote.is_err_and(|error| {
                [Errno::IO, Errno::ROFS].contains(&Errno::from_io_error(&error).unwrap())
            })
        });
        end(mount);
        device.fail(false);
        let mount = Mounted::target(device.url().as_ref(), &image, "");
        all_there(mount.dir(), 3);
        synced(mount.dir(), 3).unwrap();
        mount.unmount();
        drop(device);
        check(&image);
    }
}

/// Reads that fail are told to who reads, and to nobody once the device works again.
fn a_failed_read_is_told_once(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 64 << 20);
    let device = Failing::new(&image, "pread-rate");
    let mount = Mounted::target(device.url().as_ref(), &image, "");
    synced(mount.dir(), 0).unwrap();
    mount.unmount();
    let mount = Mounted::target(device.url().as_ref(), &image, "");
    let file = File::open(mount.dir().join("f0")).unwrap();
    device.fail(true);
    let mut part = [0; 5000];
    let failed = rustix::io::pread(&file, &mut part, 300_000);
    drop(file);
    assert_eq!(failed, Err(Errno::IO), "{kind}");
    device.fail(false);
    all_there(mount.dir(), 1);
    synced(mount.dir(), 1).unwrap();
    mount.unmount();
    drop(device);
    check(&image);
}

on_each_format!(
    a_full_host_is_told_and_recovered_from,
    a_failing_device_is_told_and_recovered_from,
    a_failed_read_is_told_once,
);
