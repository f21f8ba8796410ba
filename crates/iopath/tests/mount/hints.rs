//! Flags and units of extents through `FS_IOC_FSSETXATTR`.

use testkit::judge::{self, LoopMount};

use crate::host::{Mounted, check, image, place};

/// Changes flags and units of a directory, what is made in it, and a file; prints after each step
/// what `FS_IOC_FSGETXATTR` answers, or the error.
const IOCTLS: &str = "
import fcntl, os, struct, sys
os.chdir(sys.argv[1])
os.mkdir('dir')
def fsxattr(path, **change):
    file = os.open(path, os.O_RDONLY)
    names = ['flags', 'extent', 'extents', 'project', 'cow']
    value = struct.unpack('5I8x', fcntl.ioctl(file, 0x801c581f, bytes(28)))
    now = dict(zip(names, value)) | change
    try:
        fcntl.ioctl(file, 0x401c5820, struct.pack('5I8x', *(now[name] for name in names)))
    except OSError as error:
        print(path, change, error.strerror)
    value = struct.unpack('5I8x', fcntl.ioctl(file, 0x801c581f, bytes(28)))
    # Whether there are attributes is no flag, and how many extents is no hint.
    print(path, hex(value[0] & ~0x80000000), value[1], value[4])
    os.close(file)
fsxattr('dir', flags=0x11040, extent=1 << 16, cow=1 << 17)
for name in ('dir/file', 'dir/full'):
    open(name, 'w').close()
    fsxattr(name)
open('dir/full', 'w').write('full' * 5000)
os.mkdir('dir/below')
fsxattr('dir/below')
fsxattr('dir/file', flags=0x10800, extent=1 << 15, cow=0)
fsxattr('dir/file', flags=0x800, extent=1 << 15)
fsxattr('dir/file', flags=0x800, extent=1000)
fsxattr('dir/full', flags=0x10800, extent=1 << 15)
fsxattr('dir/full', flags=0x80, cow=0)
fsxattr('dir/full', flags=0x800, extent=0)
fsxattr('dir/below', flags=0x0)
os.sync()
";

/// Goal: what programs set by `FS_IOC_FSSETXATTR` is what they get on the kernel's XFS. Method: one
/// script on both.
#[test]
fn hints_are_set_on_a_mount() {
    let place = place();
    let image = image(place.path(), "xfs", 320 << 20);
    let kernels = place.path().join("kernels");
    std::fs::copy(&image, &kernels).expect("a copy");
    let mount = Mounted::new(&image, "");
    let ours = judge::run_ok("python3", &[&"-c", &IOCTLS, &mount.dir()]);
    mount.unmount();
    check(&image);
    let kernel = LoopMount::new(&kernels, "xfs", "rw").expect("the kernel mounts it");
    let theirs = judge::run_ok("python3", &[&"-c", &IOCTLS, &kernel.path()]);
    assert!(ours.lines().count() > 10, "{ours}");
    assert_eq!(ours, theirs);
}
