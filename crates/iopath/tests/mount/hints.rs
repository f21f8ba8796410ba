//! Flags and units of extents through `FS_IOC_FSSETXATTR`.

use testkit::judge::{self, LoopMount};

use crate::host::{Mounted, check, image, iopath, place};

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

/// A directory, then what is made in it, goes to the realtime section and back.
const SECTION: &str = "
import fcntl, os, struct, sys
os.chdir(sys.argv[1])
def flags(path, new=None, extent=0):
    file = os.open(path, os.O_RDONLY)
    try:
        if new is not None:
            fcntl.ioctl(file, 0x401c5820, struct.pack('5I8x', new, extent, 0, 0, 0))
    except OSError as error:
        print(path, hex(new), error.strerror)
    value = struct.unpack('5I8x', fcntl.ioctl(file, 0x801c581f, bytes(28)))
    print(path, hex(value[0] & ~0x80000000), value[1])
    os.close(file)
def create(path, text=''):
    with open(path, 'w') as file:
        file.write(text)
os.mkdir('dir')
flags('dir', 0x100)
flags('dir', 0x1)
os.mkdir('dir/below')
create('dir/file')
for name in ('dir/below', 'dir/file'):
    flags(name)
flags('dir/file', 0)
create('dir/file', 'group' * 5000)
flags('dir/file', 0x1)
flags('dir', 0x1100, 4096)
flags('dir', 0x1100, 3 * 28672)
flags('dir', 0)
create('plain')
flags('plain', 0x1)
create('plain', 'section' * 5000)
flags('plain', 0)
create('dir/other')
flags('dir/other')
os.sync()
print(open('plain').read() == 'section' * 5000, open('dir/file').read() == 'group' * 5000)
";

/// Goal: `FS_IOC_FSSETXATTR` puts directories and empty files into the realtime section, and what
/// has blocks stays where it is.
#[test]
fn the_section_is_chosen_on_a_mount() {
    let place = place();
    let [image, section] = ["xfs.img", "section.img"].map(|name| place.path().join(name));
    let file = std::fs::File::create(&section).and_then(|file| file.set_len(64 << 20));
    file.expect("the section");
    let words = format!("rtdev={},extsize=28k", section.display());
    let made =
        iopath(&[&"mkfs", &"-t", &"xfs", &"--size", &"320M", &"-r", &words, &image]).status();
    assert!(made.expect("it runs").success());
    let mount = Mounted::new(&image, &format!(",rtdev={}", section.display()));
    let said = judge::run_ok("python3", &[&"-c", &SECTION, &mount.dir()]);
    mount.unmount();
    let expected = "\
dir 0x100 0
dir 0x1 Operation not supported
dir 0x100 0
dir/below 0x100 0
dir/file 0x1 0
dir/file 0x0 0
dir/file 0x1 Invalid argument
dir/file 0x0 0
dir 0x1100 Invalid argument
dir 0x100 0
dir 0x1100 86016
dir 0x0 0
plain 0x1 0
plain 0x0 Invalid argument
plain 0x1 0
dir/other 0x0 0
True True
";
    assert_eq!(said, expected);
    judge::run_ok("xfs_repair", &[&"-n", &"-r", &section, &image]);
}

/// Goal: a mount answers which names an inode has, to root, where the image keeps them.
#[test]
fn a_mount_says_which_names_an_inode_has() {
    let place = place();
    let image = place.path().join("xfs.img");
    testkit::newest::mkfs_xfs(&image, 320 << 20, &[]);
    let mount = Mounted::new(&image, "");
    let dir = mount.dir().to_path_buf();
    std::fs::create_dir_all(dir.join("a/b")).expect("directories");
    std::fs::write(dir.join("a/b/one"), "").expect("a file");
    std::fs::hard_link(dir.join("a/b/one"), dir.join("a/two")).expect("a link");
    let names = |path: &str| {
        let path = dir.join(path);
        judge::run(
            "getfattr",
            &[&"--only-values", &"--absolute-names", &"-n", &"iopath.names", &path],
        )
    };
    assert_eq!(names("a/two").stdout, b"/a/b/one\0/a/two\0");
    std::fs::rename(dir.join("a"), dir.join("c")).expect("renamed");
    std::fs::remove_file(dir.join("c/two")).expect("removed");
    assert_eq!(names("c/b/one").stdout, b"/c/b/one\0");
    assert_eq!(names("c").stdout, b"/c\0");
    mount.unmount();
    let plain = crate::host::image(place.path(), "ext4", 64 << 20);
    let mount = Mounted::new(&plain, "");
    let root = mount.dir();
    let output = judge::run("getfattr", &[&"-n", &"iopath.names", &root]);
    assert!(!output.status.success(), "ext4 keeps no names");
    mount.unmount();
}
