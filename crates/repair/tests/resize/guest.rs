//! A newer kernel in a guest mounts what was resized and tuned, sees the tree of before, and
//! writes. See [`testkit::guest`].

use std::sync::Arc;

use device::MemoryDevice;
use repair::resize::Size;
use repair::tune::{self, TuneOptions};
use rt::testing::world;
use testkit::{guest, judge};
use vfs::FileSystem;

use crate::support::{mount, queue};
use crate::{MIB, carry_out, image, plan};

/// What the guest does: of two disks each, that of before and that of after.
const JOB: &str = "for m in ext4 quota_v2; do modprobe -q $m; done
tree() { cd $1; find . -print0 | sort -z | xargs -0 stat -c '%n %f %h %u %g %s %Y'
  find . -type f -print0 | sort -z | xargs -0 sha256sum; cd /; }
mkdir -p /old /new
while read a b; do
  mount -t ext4 -o ro /dev/vd$a /old || { echo REFUSED $a; continue; }
  mount -t ext4 /dev/vd$b /new || { echo REFUSED $b; umount /old; continue; }
  tree /old >/tmp/old; tree /new >/tmp/new
  cmp -s /tmp/old /tmp/new && echo SAME $b $(wc -l </tmp/new)
  mkdir /new/kernel; i=0; while [ $i -lt 300 ]; do echo $i >/new/kernel/name-$i; i=$((i+1)); done
  head -c 3000000 /dev/urandom >/new/kernel/large; sync; umount /old; umount /new
  e2fsck -fn /dev/vd$b >/tmp/fsck 2>&1; echo FSCK $b $?
done <<END
a b
c d
e f
g h
i j
END
";

fn tuned(device: &Arc<MemoryDevice>, options: &TuneOptions) {
    let dir = tempfile::tempdir().expect("a directory");
    world(|cx| {
        let queue = queue(cx, device.clone());
        let layout = tune::plan(cx, &queue, options, &Default::default()).expect("a plan");
        layout.prepare(cx, &queue, &Default::default()).expect("prepared");
        layout.judge(cx, &queue, &Default::default()).expect("a sound result");
        crate::support::apply(&(device.clone() as _), &layout.plan, dir.path());
    });
}

fn resized(device: &Arc<MemoryDevice>, size: Size) {
    let dir = tempfile::tempdir().expect("a directory");
    world(|cx| {
        let queue = queue(cx, device.clone());
        let plan = plan(cx, &queue, size, None).expect("a plan");
        carry_out(cx, &queue, &plan, &dir.path().join("undo"));
    });
}

fn grown_in_use(device: &Arc<MemoryDevice>) {
    world(|cx| {
        let fs = mount(cx, device.clone()).expect("it is mounted");
        fs.grow(cx, 120 * MIB / u64::from(fs.block_size())).expect("grown");
        fs.unmount(cx).expect("unmounted");
    });
}

fn features(words: &str) -> TuneOptions {
    let features = words.split(',').map(String::from).collect();
    TuneOptions { features, ..TuneOptions::default() }
}

/// Goal: the kernel that is newest takes all of it. Method: one image for each way to change one,
/// beside a copy of before.
#[test]
fn a_newer_kernel_takes_what_was_changed() {
    if !guest::is_there() {
        return;
    }
    let base = || image("ext4", "", &[]);
    let mut pairs = Vec::new();
    let mut add = |device: Arc<MemoryDevice>, change: &dyn Fn(&Arc<MemoryDevice>)| {
        let before = testkit::image::write_device(&device);
        change(&device);
        pairs.push((before, testkit::image::write_device(&device)));
    };
    add(base(), &|device| {
        resized(device, Size::Bytes(150 * MIB));
        resized(device, Size::Bytes(24 * MIB));
    });
    add(image("ext4", "meta_bg,^resize_inode", &[]), &|device| {
        resized(device, Size::Bytes(100 * MIB));
    });
    add(base(), &grown_in_use);
    add(base(), &|device| {
        tuned(device, &features("quota,project,orphan_file"));
        tuned(device, &features("^resize_inode"));
    });
    add(base(), &|device| {
        tuned(device, &TuneOptions { inode_size: Some(512), ..TuneOptions::default() });
    });
    let disks = pairs.iter().flat_map(|(a, b)| [a.path().to_owned(), b.path().to_owned()]);
    let text = guest::run(JOB, &disks.collect::<Vec<_>>()).expect("a guest");
    assert!(!text.contains("REFUSED"), "{text}");
    for ((_, after), letter) in pairs.iter().zip(["b", "d", "f", "h", "j"]) {
        assert!(text.contains(&format!("SAME {letter} ")), "{letter}: {text}");
        assert!(text.contains(&format!("FSCK {letter} 0")), "{letter}: {text}");
        let file = after.path();
        judge::e2fsck(file).unwrap_or_else(|text| panic!("{letter}: {text}"));
    }
}
