//! Real programs on the mount. Sizes are small; `IOPATH_MOUNT_SCALE=10` makes them ten times as
//! large.

use std::path::Path;

use crate::host::{Mounted, check, image, on_each_format, place, scale, shell};

on_each_format!(
    fs_mark_creates_and_syncs,
    sysbench_mixes_reads_and_writes,
    fio_verifies_what_it_wrote,
    tar_and_rsync_keep_trees,
    git_clones_and_checks_itself,
    stress_ng_finds_no_mistake,
);

/// Runs `script` on a fresh mount with `$N` as the scale, `$W` as a folder outside; then once more
/// `again` after a remount. The judge of the format has the last word.
#[track_caller]
fn on_mount(kind: &str, script: &str, again: &str) {
    let place = place();
    let image = image(place.path(), kind, (512 << 20) * scale());
    let work = place.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let run = |dir: &Path, script: &str| {
        let set = format!("N={}; W={}; export HOME=$W\n", scale(), work.display());
        shell(dir, &(set + script));
    };
    let mount = Mounted::new(&image, "");
    run(mount.dir(), script);
    mount.unmount();
    check(&image);
    let mount = Mounted::new(&image, "");
    run(mount.dir(), again);
    mount.unmount();
    check(&image);
}

/// Each of its processes has a directory of its own: in a common one two of them may take the same
/// names (28 of 6,312 runs on a memory file system).
fn fs_mark_creates_and_syncs(kind: &str) {
    on_mount(
        kind,
        "count() { find m -type f | wc -l >$W/count
           if ! grep -qx $((1200*N)) $W/count; then cat $W/count $W/fs_mark.out >&2; exit 1; fi; }
         mkdir m; fs_mark -d m/1 -d m/2 -d m/3 -d m/4 -n $((300*N)) -s 10240 -k -L 1 -S 1 \
           >$W/fs_mark.out; rm fs_log.txt
         count",
        "test $(find m -type f | wc -l) = $((1200*N)) || { find m >&2; exit 1; }; rm -r m",
    );
}

fn sysbench_mixes_reads_and_writes(kind: &str) {
    on_mount(
        kind,
        "F='--file-num=8 --file-block-size=2048 --validate=on --file-total-size='$((16*N))M
         sysbench fileio $F prepare >/dev/null
         sysbench fileio $F --file-test-mode=rndrw --threads=8 --time=0 --events=$((4000*N)) run
         sha256sum test_file.* >$W/sums",
        "sha256sum -c --quiet $W/sums; sysbench fileio --file-num=8 cleanup",
    );
}

fn fio_verifies_what_it_wrote(kind: &str) {
    on_mount(
        kind,
        "fio --name=v --size=$((12*N))M --rw=randrw --bssplit=512/30:4k/40:64k/30 --numjobs=3 \
           --verify=crc32c --verify_state_save=0 --fsync=64 --output=$W/fio1
         fio --name=d --size=$((12*N))M --rw=randwrite --bs=4k --direct=1 --ioengine=libaio \
           --iodepth=8 --verify=md5 --verify_state_save=0 --output=$W/fio2
         fio --name=m --size=$((8*N))M --rw=randwrite --bs=4k --ioengine=mmap --verify=crc32c \
           --verify_state_save=0 --output=$W/fio3; sha256sum v.* d.* m.* >$W/sums",
        "sha256sum -c --quiet $W/sums",
    );
}

fn tar_and_rsync_keep_trees(kind: &str) {
    on_mount(
        kind,
        "cp -a /usr/include/linux $W/src; mkdir in; tar -C $W -cf - src | tar -C in -xf -
         diff -r $W/src in/src; rsync -aX --delete $W/src/ r/; rsync -aXc --delete $W/src/ r/
         diff -r $W/src r; mkdir t; tar -cf t/self.tar in r; tar -df t/self.tar",
        "diff -r $W/src in/src; diff -r $W/src r; tar -df t/self.tar; rsync -aXn --itemize-changes \
           $W/src/ r/ >$W/changes; test ! -s $W/changes; rm -r in",
    );
}

fn git_clones_and_checks_itself(kind: &str) {
    on_mount(
        kind,
        "git config --global user.email a@b; git config --global user.name c
         git config --global --add safe.directory '*'; mkdir $W/up; cd $W/up; git init -q -b main .
         for i in $(seq $((20*N))); do seq $i $((i*50)) >f$i; mkdir -p d$((i%5)); \
           seq $i >d$((i%5))/g$i; git add .; git commit -qm $i; done; cd $OLDPWD
         git clone -q --no-local $W/up one; git -C one fsck --strict; git clone -q one two
         git -C two checkout -qb side; echo x >two/f1; git -C two commit -qam x; git -C two gc -q
         git -C one pull -q ../two side; git -C one fsck --strict
         test -z \"$(git -C one status -s)\"",
        "git -C one fsck --strict; git -C two fsck --strict; test \"$(cat one/f1)\" = x
         test -z \"$(git -C one status -s)\"; rm -rf two",
    );
}

fn stress_ng_finds_no_mistake(kind: &str) {
    let stressors = [
        "dentry",
        "dir",
        "dirdeep",
        "fallocate",
        "filename",
        "fiemap",
        "flock",
        "hdd",
        "iomix",
        "link",
        "lease",
        "readahead",
        "rename",
        "seek",
        "symlink",
        "sync-file",
        "touch",
        "utime",
        "xattr",
        "chmod",
        "chown",
        "copy-file",
        "fpunch",
        "getdent",
        "open",
    ];
    let each: Vec<String> = stressors
        .iter()
        .map(|name| {
            format!(
                "stress-ng --temp-path . --{name} 2 --{name}-ops $((30*N)) --timeout $((2*N))s \
                 --verify --quiet --hdd-bytes 4m --iomix-bytes 4m --seek-size 1m \
                 --fallocate-bytes 4m --readahead-bytes 4m --sync-file-bytes 4m || exit 1"
            )
        })
        .collect();
    on_mount(kind, &each.join("\n"), "ls -la");
}
