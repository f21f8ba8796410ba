//! Requests through io_uring. All other tests go that way too with
//! `IOPATH_MOUNT_OPTIONS=,io_uring`, once root has allowed it for all programs:
//! `echo Y >/sys/module/fuse/parameters/enable_uring`.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, SeekFrom, flock};
use testkit::judge;

use crate::host::{Mounted, check, image, iopath, place, shell};

const KNOB: &str = "/sys/module/fuse/parameters/enable_uring";
/// Programs at once: more than the slots of two queues before they grow.
const SEEKERS: u64 = 80;

/// Whether the host's kernel lets mounts use rings, set for as long as this lives. Whoever else
/// tests it waits.
struct Knob {
    before: String,
    _lock: File,
}

impl Knob {
    /// None where the kernel has no such thing.
    fn set(value: &str) -> Option<Knob> {
        let lock = File::open(KNOB).ok()?;
        flock(lock.as_fd(), FlockOperation::LockExclusive).expect("the knob can be locked");
        let before = fs::read_to_string(KNOB).expect("the knob can be read");
        fs::write(KNOB, value).expect("root may turn the knob");
        Some(Knob { before, _lock: lock })
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        fs::write(KNOB, self.before.trim()).expect("root may turn the knob");
    }
}

/// Asked for where the kernel does not have it, or was not told to have it: refused with the way to
/// have it.
#[test]
fn rings_that_are_not_offered_are_refused_by_name() {
    let place = place();
    let image = image(place.path(), "ext4", 16 << 20);
    let dir = place.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let knob = Knob::set("N");
    let output = iopath(&[&"mount", &"-o", &"io_uring", &image, &dir]).output().unwrap();
    drop(knob);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("io_uring: the kernel does not offer"), "{error}");
    assert!(error.contains("enable_uring"), "{error}");
    judge::e2fsck(&image).unwrap();
}

/// Everything that goes another way than through the device, on both formats. Where the kernel has
/// no rings the test above says so.
#[test]
fn requests_come_through_rings() {
    for kind in ["ext4", "xfs"] {
        let Some(knob) = Knob::set("Y") else { return };
        let place = place();
        let image = image(place.path(), kind, 64 << 20);
        let mount = Mounted::new(&image, ",io_uring");
        // The kernel looks at its knob again until the first call is answered.
        shell(mount.dir(), "test -d .");
        drop(knob);
        // Long names and values, large reads and writes, what waits for the device.
        shell(
            mount.dir(),
            "mkdir d; name=$(printf 'n%.0s' $(seq 255)); ln -s $(printf 't%.0s' $(seq 900)) $name
             test $(readlink $name | wc -c) = 901; touch $(seq -f d/file-%.0f 1000)
             test $(ls d | wc -l) = 1000; rm d/file-*0; test $(ls -l d | grep -c file) = 900
             head -c 5000000 /dev/urandom >big; cp big copy; sync big copy; cmp big copy
             setfattr -n user.k -v $(printf 'v%.0s' $(seq 900)) big
             test $(getfattr --only-values -n user.k big | wc -c) = 900",
        );
        seeks_wait_for_writes_and_never_for_themselves(mount.dir());
        let kept = mount.dir().join("kept");
        fs::write(&kept, "told to be on the image").unwrap();
        File::open(&kept).unwrap().sync_all().unwrap();
        mount.kill();
        let mount = Mounted::new(&image, "");
        let kept = fs::read_to_string(mount.dir().join("kept"));
        assert_eq!(kept.unwrap(), "told to be on the image");
        mount.unmount();
        check(&image);
    }
}

/// Many programs seek for data and holes in files whose pages the kernel must write first, through
/// the queues in which the seeks wait.
fn seeks_wait_for_writes_and_never_for_themselves(dir: &Path) {
    const AT: u64 = 1 << 20;
    std::thread::scope(|scope| {
        for number in 0..SEEKERS {
            scope.spawn(move || {
                let file = File::create_new(dir.join(format!("seek-{number}"))).unwrap();
                file.write_all_at(&[7; 100_000], AT).unwrap();
                assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(AT));
                let hole = rustix::fs::seek(&file, SeekFrom::Hole(AT)).unwrap();
                assert!((AT + 100_000..AT + 131_072).contains(&hole), "{hole}");
            });
        }
    });
}
