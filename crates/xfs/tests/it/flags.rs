//! Flags of inodes: kept, handed down, refused where there are none. Ranges that cannot be taken
//! out of a file or put in (those that can: `fsx`).

use crate::world::Cell;
use base::Errno;
use testkit::format::{Format, assert_sound};
use vfs::{FallocMode, FileSystem, SetAttr};

const CELL: Cell = Cell(&[('m', "rmapbt=1"), ('n', "parent=1")]);

/// `FS_*_FL` as chattr(1) has them.
const IMMUTABLE: u32 = 0x10;
const NODUMP: u32 = 0x40;
const NOATIME: u32 = 0x80;
const PROJINHERIT: u32 = 0x2000_0000;

/// Goal: flags are kept over a remount and handed down where the kernel does it; what is immutable
/// takes no other change.
#[test]
fn flags_are_set_and_kept() {
    rt::testing::real(|cx| {
        let device = CELL.fresh(cx, 64 << 20);
        let fs = CELL.mount(cx, device.clone(), 4 << 20);
        let (root, dir) = (fs.root(), crate::world::mkdir(cx, &fs, fs.root(), "dir"));
        let file = crate::world::file(cx, &fs, root, "file");
        let set = fs.set_flags(cx, file, IMMUTABLE | NODUMP).expect("set");
        assert_eq!(set.flags, IMMUTABLE | NODUMP);
        let set = fs.set_flags(cx, dir, PROJINHERIT | NOATIME).expect("set");
        assert_eq!(set.flags, PROJINHERIT | NOATIME);
        for flags in [PROJINHERIT, 1] {
            assert_eq!(fs.set_flags(cx, file, flags).err(), Some(Errno::EOPNOTSUPP));
        }
        let below = crate::world::file(cx, &fs, dir, "below");
        fs.unmount(cx).expect("unmount");
        let fs = CELL.mount(cx, device.clone(), 4 << 20);
        let flags = [file, dir, below].map(|ino| fs.getattr(cx, ino).expect("getattr").flags);
        assert_eq!(flags, [IMMUTABLE | NODUMP, PROJINHERIT | NOATIME, NOATIME]);
        let attr = fs.getattr(cx, file).expect("getattr");
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let denied = vfs::permission::may_set(cx.cred(), &attr, &set);
        assert_eq!(denied.err(), Some(Errno::EPERM), "nothing of it changes");
        fs.unmount(cx).expect("unmount");
        assert_sound(CELL, &device, "flags");
    });
}

/// Goal: a range that is no range of whole blocks inside of the file is refused, and nothing moves.
#[test]
fn ranges_that_cannot_move_are_refused() {
    rt::testing::real(|cx| {
        let device = CELL.fresh(cx, 64 << 20);
        let fs = CELL.mount(cx, device.clone(), 4 << 20);
        let file = crate::world::file(cx, &fs, fs.root(), "file");
        let content: Vec<u8> = (0..50_000u32).map(|at| (at % 251) as u8).collect();
        fs.write(cx, file, 0, &content).expect("write");
        for (mode, at, len, errno) in [
            (FallocMode::CollapseRange, 1, 4096, Errno::EINVAL),
            (FallocMode::CollapseRange, 4096, 49_152, Errno::EINVAL),
            (FallocMode::InsertRange, 53_248, 4096, Errno::EINVAL),
            (FallocMode::InsertRange, 0, 17, Errno::EINVAL),
            (FallocMode::InsertRange, 0, (i64::MAX as u64) & !4095, Errno::EFBIG),
        ] {
            assert_eq!(fs.fallocate(cx, file, mode, at, len), Err(errno), "{mode:?} {at} {len}");
        }
        let mut bytes = vec![0; 60_000];
        assert_eq!(fs.read(cx, file, 0, &mut bytes), Ok(content.len()));
        assert!(bytes[..content.len()] == content);
        fs.unmount(cx).expect("unmount");
    });
}
