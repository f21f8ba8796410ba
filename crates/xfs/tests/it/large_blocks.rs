//! Blocks larger than a page, and sectors of every size: written by us, judged by our check, the
//! newest `xfs_repair -n` and the kernel's mount.

use std::sync::Arc;

use block::Device;
use device::MemoryDevice;
use rt::Cx;
use testkit::crash::CrashConfig;
use testkit::format::{Format, Recording};
use testkit::{judge, newest, trials};
use vfs::{FileSystem, XattrFlags};
use xfs::{MountOptions, Xfs};

use crate::support;
use crate::world::{self, seed_count};

/// Bytes of a block and of a sector.
#[derive(Clone, Copy, Debug)]
struct Large(u32, u32);

const CELLS: [Large; 4] =
    [Large(65536, 32768), Large(32768, 4096), Large(65536, 512), Large(8192, 8192)];

/// Bytes of the device.
const BYTES: u64 = 160 << 20;

impl Format for Large {
    type Fs = Xfs;

    fn fresh(&self, _cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let Large(block, sector) = self;
        let words = format!("-b size={block} -s size={sector} -d agcount=2 -l size=72m");
        support::newest_mkfs_xfs(file.path(), bytes, &words);
        let image = testkit::image::read(file.path());
        world::loaded(&image)
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Xfs> {
        world::mount_with(cx, device, cache, MountOptions::default()).0
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        world::checked(cx, device)
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        newest::xfs_repair(testkit::image::write_device(device).path())
    }

    fn error(fs: &Xfs) -> Option<String> {
        fs.error()
    }
}

/// Goal: names, content, attributes in leaves and in blocks of their own are what both judges and
/// the kernel expect. Method: directories of many names, values up to the largest, files with
/// holes; then the kernel adds to them, and we read that. Two cells, all with `IOPATH_SEEDS=4`.
#[test]
fn large_blocks_are_written_as_the_kernel_writes_them() {
    for cell in CELLS.into_iter().cycle().take(seed_count(2) as usize) {
        let device = support::in_world(move |cx| {
            let device = cell.fresh(cx, BYTES);
            let fs = cell.mount(cx, device.clone(), 16 << 20);
            let dir = world::mkdir(cx, &fs, fs.root(), "dir");
            for index in 0..600u32 {
                let name = format!("a file with a name of some length {index}");
                let ino = world::file(cx, &fs, dir, &name);
                let bytes = vec![index as u8; index as usize * 97];
                fs.write(cx, ino, u64::from(index % 3) * 200_000, &bytes).expect("write");
                if index % 40 == 0 {
                    for len in [100, 3000, 40_000, 65_536] {
                        let name = format!("user.of {len}");
                        let value = vec![7; len];
                        let set =
                            fs.setxattr(cx, ino, name.as_bytes(), &value, XattrFlags::empty());
                        set.unwrap_or_else(|errno| panic!("{cell:?} {len}: {errno}"));
                    }
                }
            }
            for index in (0..600u32).step_by(2) {
                let name = format!("a file with a name of some length {index}");
                if index % 40 != 0 {
                    fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
                }
            }
            fs.unmount(cx).unwrap_or_else(|errno| panic!("{cell:?}: {errno} {:?}", fs.error()));
            cell.check(cx, &device).unwrap_or_else(|found| panic!("{cell:?}: {found}"));
            device
        });
        cell.judge(&device).unwrap_or_else(|found| panic!("{cell:?}: {found}"));
        let image = testkit::image::write_device(&device);
        {
            let mount = support::kernel(image.path());
            let dir = mount.path().join("dir");
            let names = std::fs::read_dir(&dir).expect("a directory").count();
            assert_eq!(names, 300 + 15, "{cell:?}");
            let path = dir.join("a file with a name of some length 599");
            let bytes = std::fs::read(&path).expect("content");
            assert_eq!(bytes.len(), 400_000 + 599 * 97, "{cell:?}");
            assert!(bytes[..400_000].iter().all(|&byte| byte == 0));
            let path = dir.join("a file with a name of some length 560");
            for len in [100usize, 3000, 40_000, 65_536] {
                let name = format!("user.of {len}");
                let found = judge::run_ok("getfattr", &[&"--only-values", &"-n", &name, &path]);
                assert_eq!(found.len(), len, "{cell:?}");
            }
            std::fs::write(mount.path().join("theirs"), vec![9; 300_000]).expect("written");
        }
        let device = support::load(image.path());
        support::in_world(move |cx| {
            let fs = cell.mount(cx, device.clone(), 16 << 20);
            let ino = fs.lookup(cx, fs.root(), b"theirs").expect("a name").ino;
            let mut bytes = vec![0; 300_001];
            assert_eq!(fs.read(cx, ino, 0, &mut bytes), Ok(300_000));
            fs.unmount(cx).expect("unmount");
            world::checked(cx, &device).unwrap_or_else(|found| panic!("{cell:?}: {found}"));
        });
    }
}

#[test]
fn what_fsync_promised_is_kept() {
    for seed in 0..seed_count(1) {
        let cell = CELLS[seed as usize % CELLS.len()];
        let run = Recording { cell, seed, bytes: BYTES, cache: 16 << 20 };
        let config = CrashConfig { random: 4, at_flushes_max: 6, ..CrashConfig::new(seed) };
        trials::anything_goes(run, 40, &config);
    }
}
