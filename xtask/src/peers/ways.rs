//! What is measured: the ways to mount and to build, the work, the goals.

/// Shell functions for all scripts: `t LABEL COMMAND` tells how long a command takes; `make` makes
/// the file system, `up` and `down` mount and unmount, and `down` waits until the process that
/// serves has written all.
pub const PRELUDE: &str = r#"
t() { label=$1; shift; a=$(date +%s%N); "$@"; b=$(date +%s%N); echo "@ $label $((b-a))"; }
ready() { until mountpoint -q $M; do sleep 0.001; done; }
ext4() { mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 -N 200000 $I; }
judge() { "$@" >/dev/null 2>&1 || echo "! $1 finds damage"; }
fresh() { rm -f $I; truncate -s $1 $I; make; }
off() { until umount $M 2>/dev/null; do sleep 0.005; done; }
trap '! mountpoint -q $M || umount -l $M' EXIT
names() { seq -f "file-%06.0f" $1; }
ours() { $B mount -f $I $M & P=$!; ready; }
"#;

/// A way to mount.
pub struct Mounter {
    pub name: &'static str,
    /// The kernel's way with the same format.
    pub kernel: &'static str,
    pub functions: &'static str,
}

pub const KERNEL_EXT4: &str = "kernel, ext4 by loop";
pub const KERNEL_XFS: &str = "kernel, xfs by loop";
pub const FUSE2FS: &str = "fuse2fs";
pub const OURS_EXT4: &str = "iopath mount, ext4";
pub const OURS_NOAWAKE: &str = "iopath mount -o noawake, ext4";
pub const OURS_RINGS: &str = "iopath mount -o io_uring, ext4";
pub const OURS_XFS: &str = "iopath mount, xfs";
pub const EMPTY: &str = "an empty FUSE server";

/// The empty server has names and sizes; what is written is thrown away.
pub const MOUNTERS: &[Mounter] = &[
    Mounter {
        name: KERNEL_EXT4,
        kernel: KERNEL_EXT4,
        functions: "make() { ext4; }; up() { mount -o loop,noatime $I $M; }; down() { off; }",
    },
    Mounter {
        name: FUSE2FS,
        kernel: KERNEL_EXT4,
        functions: "make() { ext4; }; up() { fuse2fs -f $I $M -o rw 2>/dev/null & P=$!; ready; }
                    down() { off; wait $P || true; }",
    },
    Mounter {
        name: OURS_EXT4,
        kernel: KERNEL_EXT4,
        functions: "make() { ext4; }; up() { ours; }; down() { off; wait $P; }",
    },
    Mounter {
        name: OURS_NOAWAKE,
        kernel: KERNEL_EXT4,
        functions: "make() { ext4; }; down() { off; wait $P; }
                    up() { $B mount -f -o noawake $I $M & P=$!; ready; }",
    },
    // Where the kernel has no FUSE over io_uring there are no figures of it.
    Mounter {
        name: OURS_RINGS,
        kernel: KERNEL_EXT4,
        functions: "K=/sys/module/fuse/parameters/enable_uring; [ -e $K ] || exit 0
                    make() { ext4; }; down() { off; wait $P; }
                    up() { k=$(cat $K); echo Y >$K; $B mount -f -o io_uring $I $M & P=$!; ready
                           ls $M >/dev/null; echo $k >$K; }",
    },
    Mounter {
        name: KERNEL_XFS,
        kernel: KERNEL_XFS,
        functions: "make() { mkfs.xfs -q -f $I; }; up() { mount -o loop,noatime $I $M; }
                    down() { off; }",
    },
    Mounter {
        name: OURS_XFS,
        kernel: KERNEL_XFS,
        functions: "make() { mkfs.xfs -q -f $I; }; up() { ours; }; down() { off; wait $P; }",
    },
    Mounter {
        name: EMPTY,
        kernel: KERNEL_EXT4,
        functions: "make() { :>$I; }; up() { $C null $I $M & P=$!; ready; }
                    down() { off; wait $P; }",
    },
];

/// What is done on the mounts: a script with `t` around what is measured.
pub struct Work {
    pub script: &'static str,
    /// Ways that need hours, or differ in nothing.
    pub without: &'static [&'static str],
}

pub const POPULATE: &str = "populate: cp -a of 10,000 files of 4 KiB, and unmount";
pub const RNDRW: &str = "sysbench rndrw of 2 KiB, 16 threads, 100,000 events, no fsync";
pub const WRITE: &str = "write 1 GiB, 1 MiB calls, fsync";
pub const READ: &str = "read 1 GiB after a remount, 1 MiB calls";
pub const MOUNT: &str = "mount a clean image of 100 GiB";

pub const WORKS: &[Work] = &[
    Work {
        script: r#"fresh 1G; up
           t "populate: cp -a of 10,000 files of 4 KiB, and unmount" \
             eval "cp -a $T/. $M/; down""#,
        without: &[],
    },
    // One system call after the other, timed inside of the program.
    Work {
        script: r#"fresh 1G; up; mkdir $M/d; cd $M/d
           $C create 2000 "create 2,000 empty files in one directory"
           cd /; down; up; cd $M/d
           $C stat 2000 "stat 2,000 after a remount"
           cd /; down; up; cd $M/d
           $C statx 2000 "stat 2,000 after a remount, with the time of birth"
           $C unlink 2000 "unlink 2,000"; cd /; down"#,
        without: &[],
    },
    Work {
        script: r#"fresh 2G; up; mkdir $M/d; cd $M/d
           $C create 100000 "create 100,000 empty files in one directory"
           cd /; down; up; cd $M/d
           $C stat 100000 "stat 100,000 after a remount"
           $C unlink 100000 "unlink 100,000"; cd /; down"#,
        without: &[FUSE2FS],
    },
    // The same as people do it: with the start and the own work of the programs.
    Work {
        script: r#"fresh 1G; up; mkdir $M/d; names 2000 >$W; cd $M/d
           t "touch(1) of 2,000 names" xargs -a $W touch
           cd /; down; up; cd $M/d
           t "stat(1) of 2,000 after a remount" sh -c "xargs -a $W stat -c '' >/dev/null"
           t "rm(1) of 2,000" xargs -a $W rm; cd /; down"#,
        without: &[],
    },
    Work {
        script: r#"fresh 2G; up; cd $M; S="sysbench fileio --file-total-size=200M"
           $S prepare >/dev/null; S="$S --file-test-mode=rndrw --file-rw-ratio=0.5 --threads=16"
           t "sysbench rndrw of 2 KiB, 16 threads, 100,000 events, no fsync" \
             $S --file-block-size=2048 --file-fsync-freq=0 --time=0 --events=100000 run >$W
           t "sysbench the same, 128 files synced every 1,000 events" \
             $S --file-block-size=2048 --file-fsync-freq=1000 --time=0 --events=100000 run >>$W
           cd /; down; grep '@' $W"#,
        without: &[EMPTY],
    },
    Work {
        script: r#"fresh 3G; up; t "write 1 GiB, 1 MiB calls, fsync" \
             dd if=/dev/zero of=$M/f bs=1M count=1024 conv=fsync status=none
           down; up; t "read 1 GiB after a remount, 1 MiB calls" \
             dd if=$M/f of=/dev/null bs=1M status=none
           down"#,
        without: &[EMPTY],
    },
    Work {
        script: r#"ext4() { mke2fs -q -F -t ext4 -E lazy_itable_init=1 $I; }; fresh 100G
           t "mount a clean image of 100 GiB" up; down"#,
        without: &[OURS_NOAWAKE, OURS_RINGS, EMPTY],
    },
];

pub const BUILD_EXT4: &str = "build an ext4 image of the tree";
pub const BUILD_XFS: &str = "build an xfs image of the tree";
pub const EXTRACT_EXT4: &str = "extract the tree of ext4";
pub const EXTRACT_XFS: &str = "extract the tree of xfs";
pub const OURS_TO_EXT4: &str = "iopath mkfs, cp";
pub const OURS_FROM_EXT4: &str = "iopath cp";
pub const OURS_TO_XFS: &str = "iopath mkfs, cp to xfs";
pub const OURS_FROM_XFS: &str = "iopath cp from xfs";
pub const RDUMP: &str = "debugfs rdump";
pub const MKFS_XFS: &str = "mkfs.xfs -p";

/// The same tree into a fresh image without a mount, and out of it.
pub const BUILDERS: &[(&str, &str)] = &[
    ("mke2fs -d", r#"t "build an ext4 image of the tree" mke2fs -q -F -t ext4 -d $T $I 1G"#),
    (
        OURS_TO_EXT4,
        r#"rm -f $I; t "build an ext4 image of the tree" sh -ec \
           "$B mkfs -q -t ext4 --size 1G $I; $B cp -a $T/. $I:/""#,
    ),
    (RDUMP, r#"t "extract the tree of ext4" debugfs -R "rdump / $O" $I 2>/dev/null"#),
    (OURS_FROM_EXT4, r#"t "extract the tree of ext4" $B cp -a $I:/. $O"#),
    (
        "crate rust-fs-ext4",
        r#"rm -f $I; truncate -s 1G $I
           t "build an ext4 image of the tree" sh -ec \
             "mke2fs -q -F -t ext4 $I; timeout 600 $C rust-fs-ext4 $I $T"; judge e2fsck -fn $I"#,
    ),
    (
        "crate rsext4",
        r#"rm -f $I; truncate -s 1G $I
           t "build an ext4 image of the tree" sh -ec \
             "mke2fs -q -F -t ext4 $I; timeout 600 $C rsext4 $I $T"; judge e2fsck -fn $I"#,
    ),
    (
        MKFS_XFS,
        r#"rm -f $I; truncate -s 1G $I
           { echo /; echo 0 0; echo 'd--755 0 0'; for d in $T/*; do
             echo "${d##*/} d--755 0 0"; for f in $d/*; do echo "${f##*/} ---644 0 0 $f"; done
             echo '$'; done; echo '$'; } >$W
           t "build an xfs image of the tree" mkfs.xfs -q -f -p $W $I"#,
    ),
    (
        OURS_TO_XFS,
        r#"rm -f $I; t "build an xfs image of the tree" sh -ec \
           "$B mkfs -q -t xfs --size 1G $I; $B cp -a $T/. $I:/"; judge xfs_repair -n $I"#,
    ),
    (OURS_FROM_XFS, r#"t "extract the tree of xfs" $B cp -a $I:/. $O"#),
    (
        KERNEL_XFS,
        r#"t "extract the tree of xfs" eval "mount -o loop,ro $I $M; cp -a $M/. $O; off""#,
    ),
    (
        "crate rust-fs-xfs",
        r#"rm -f $I; truncate -s 1G $I
           t "build an xfs image of the tree" sh -ec \
             "mkfs.xfs -q -f $I; timeout 600 $C rust-fs-xfs $I $T"; judge xfs_repair -n $I"#,
    ),
];

/// A work and a way to do it.
pub type Done = (&'static str, &'static str);

/// A goal: what is ours, what it is held against, and the largest ratio of our time to that.
pub struct Goal {
    pub ours: Done,
    pub beside: Done,
    pub most: f64,
}

/// Of the same work on a mount of ext4.
const fn mounted(work: &'static str, other: &'static str, most: f64) -> Goal {
    Goal { ours: (work, OURS_EXT4), beside: (work, other), most }
}

pub const GOALS: &[Goal] = &[
    mounted(POPULATE, FUSE2FS, 1.0 / 3.0),
    mounted(POPULATE, KERNEL_EXT4, 2.0),
    mounted("create 2,000 empty files in one directory", FUSE2FS, 0.2),
    mounted("stat 2,000 after a remount", FUSE2FS, 0.2),
    mounted("unlink 2,000", FUSE2FS, 0.2),
    mounted("touch(1) of 2,000 names", FUSE2FS, 0.2),
    mounted("stat(1) of 2,000 after a remount", FUSE2FS, 0.2),
    mounted("rm(1) of 2,000", FUSE2FS, 0.2),
    mounted(RNDRW, FUSE2FS, 0.25),
    mounted(WRITE, KERNEL_EXT4, 1.0 / 0.7),
    mounted(READ, KERNEL_EXT4, 1.0 / 0.7),
    Goal { ours: (EXTRACT_EXT4, OURS_FROM_EXT4), beside: (EXTRACT_EXT4, RDUMP), most: 1.0 },
    Goal { ours: (BUILD_XFS, OURS_TO_XFS), beside: (BUILD_XFS, MKFS_XFS), most: 1.0 },
    Goal { ours: (BUILD_XFS, OURS_TO_XFS), beside: (BUILD_EXT4, OURS_TO_EXT4), most: 1.3 },
    Goal { ours: (EXTRACT_XFS, OURS_FROM_XFS), beside: (EXTRACT_EXT4, OURS_FROM_EXT4), most: 1.3 },
];

/// A clean image of 100 GiB is mounted within this, in seconds.
pub const MOUNT_GOAL_S: f64 = 0.05;

/// Creating, looking at and removing 100,000 names may take at most this many times as long per
/// name as 2,000.
pub const FLAT_MAX: f64 = 1.5;
