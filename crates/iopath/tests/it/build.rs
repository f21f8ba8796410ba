//! Images that are built in one step, beside the tools that are used for it: rsync compares what
//! the kernel sees, fakeroot's tar and genext2fs make the same of their tables, umoci unpacks the
//! same layers. Needs root, loop devices, e2fsprogs, xfsprogs, rsync, fakeroot, genext2fs, umoci.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::command::{bash_in, iopath_in, ok_in};
use testkit::judge::{self, LoopMount};

/// A folder in memory, with a tree that has everything in it.
struct Bench {
    dir: tempfile::TempDir,
}

/// Makes the tree `t`: more names than a block of a directory and a chunk of inodes hold, hard
/// links, devices, attributes that fit into inodes and that do not, holes, names that are no text.
const TREE: &str = r#"
mkdir -p t/a/b t/many t/dev
for i in $(seq 1 700); do echo $i > t/many/file-with-a-longer-name-$i; done
head -c 3000000 /dev/urandom > t/a/big
ln t/a/big t/a/b/link; ln t/a/big t/Link; ln -s big t/a/sym
ln -s $(printf 'x%.0s' $(seq 200)) t/a/longsym
truncate -s 5M t/a/sparse; echo end >> t/a/sparse
head -c 300000 /dev/zero > t/a/zeros
mknod t/dev/null c 1 3; mknod t/dev/sda b 8 0; mkfifo t/dev/p
setfattr -n user.a -v hello t/a/big; setfattr -n user.large -v $(printf 'v%.0s' $(seq 900)) t/a
setcap cap_net_raw+ep t/many/file-with-a-longer-name-1
setfacl -m u:5:r t/many/file-with-a-longer-name-2
chown 1000:1001 t/many/*9; chmod 4755 t/many/*7
printf x > "$(printf 't/a/\377\376')"; printf y > t/$(printf 'n%.0s' $(seq 255))
find t -exec touch -h -d '2001-02-03 04:05:06.5' {} +
"#;

impl Bench {
    fn new() -> Bench {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        Bench { dir: tempfile::tempdir_in(place).expect("a directory") }
    }

    fn with_tree() -> Bench {
        let bench = Bench::new();
        bench.bash(TREE);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    #[track_caller]
    fn bash(&self, script: &str) -> String {
        let output = self.try_bash(script);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn try_bash(&self, script: &str) -> Output {
        bash_in(self.dir.path(), &format!("set -e\n{script}"))
    }

    fn ok(&self, line: &str) -> String {
        ok_in(self.dir.path(), line)
    }

    /// The command fails; answers what it says.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        let output = iopath_in(self.dir.path(), line);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{line}: {error}");
        error
    }

    /// The outside judges find nothing, and the kernel sees the tree.
    #[track_caller]
    fn judged(&self, image: &str, tree: &str) {
        let path = self.path(image);
        let kind = kind_of(&path);
        let sound = if kind == "xfs" { judge::xfs_repair(&path) } else { judge::e2fsck(&path) };
        sound.unwrap_or_else(|error| panic!("{image}: {error}"));
        let mount = LoopMount::new(&path, kind, "ro").expect("mounted");
        let differences = self.bash(&format!(
            "rsync -aHAXn --checksum --delete -i --exclude /lost+found --filter='-x trusted.*' \
             {tree}/ {}/",
            mount.path().display()
        ));
        assert_eq!(differences, "", "{image}");
    }

    /// What an image holds, without times where `lost+found` has its own.
    fn manifest(&self, image: &str) -> String {
        let lines = self.ok(&format!("manifest {image}:/"));
        lines
            .lines()
            .filter(|line| !line.contains("lost+found"))
            .map(|l| format!("{l}\n"))
            .collect()
    }
}

fn kind_of(image: &Path) -> &'static str {
    let mut start = [0; 4];
    std::io::Read::read_exact(&mut fs::File::open(image).expect("opened"), &mut start)
        .expect("read");
    if &start == b"XFSB" { "xfs" } else { "ext4" }
}

#[test]
fn a_tree_becomes_an_image_that_fits() {
    let bench = Bench::with_tree();
    for (kind, image) in
        [("ext4", "4"), ("ext2", "2"), ("ext4 -b 4096 -O ^has_journal", "n"), ("xfs", "x")]
    {
        bench.ok(&format!("mkfs -q -t {kind} -d t --free 20% {image}.img"));
        bench.judged(&format!("{image}.img"), "t");
    }
    // Blocks that are larger than a page.
    bench.ok("mkfs -q -t xfs -b size=8192 -d t x8.img");
    judge::xfs_repair(&bench.path("x8.img")).expect("sound");
    bench.ok("diff x.img x8.img");
    // Into a partition that is there, whatever engine is asked for.
    bench.bash(
        "truncate -s 40M p.img; printf 'label: gpt\\nsize=2M\\nsize=30M\\n' | sfdisk -q p.img
         head -c 40000000 /dev/urandom | dd of=p.img bs=1M seek=3 count=30 conv=notrunc status=none
         iopath mkfs -q --engine uring -F -d t p.img@2
         dd if=p.img of=part.img bs=1M skip=3 count=30 status=none",
    );
    bench.judged("part.img", "t");
    // A fifth of blocks and inodes stays free, and not much more than that: 5 MiB are content.
    let size = fs::metadata(bench.path("4.img")).expect("made").len();
    assert!(size <= 10 << 20, "{size}");
    let mount = LoopMount::new(&bench.path("4.img"), "ext4", "ro").expect("mounted");
    let free = bench.bash(&format!("stat -f -c '%f %b %d %c' {}", mount.path().display()));
    let free: Vec<f64> = free.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    assert!(free[0] / free[1] >= 0.2 && free[2] / free[3] >= 0.19, "{free:?}");
}

/// Two copies of a tree, made in another order, with other holes, on other file systems, on one
/// processor or all: one image.
#[test]
fn two_builds_are_equal() {
    let bench = Bench::with_tree();
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let copy = elsewhere.path().join("t");
    bench.bash(&format!(
        "mkdir {0}; (cd t; find . | sort -r > ../list
         tar cf - --acls --xattrs --xattrs-include='*' --no-recursion -T ../list) |
         tar xpf - --acls --xattrs --xattrs-include='*' -C {0}
         cat {0}/a/big > /dev/null",
        copy.display()
    ));
    for kind in ["ext4", "ext3 -b 1024", "xfs", "ext4 -U 00112233-4455-6677-8899-aabbccddeeff"] {
        bench.bash(&format!(
            "export SOURCE_DATE_EPOCH=1500000000
             taskset -c 0 {0} mkfs -q -t {kind} -F -d t a.img
             iopath mkfs -q -t {kind} -F -d {1} b.img
             cmp a.img b.img",
            env!("CARGO_BIN_EXE_iopath"),
            copy.display()
        ));
        bench.judged("a.img", "t");
    }
    // Times that are later are pinned, and another content has another UUID.
    let uuid = |image: &str| bench.bash(&format!("blkid -p -o value -s UUID {image}"));
    bench.bash("SOURCE_DATE_EPOCH=900000000 iopath mkfs -q -d t c.img");
    assert!(bench.ok("manifest c.img:/a").contains("\"mtime_ns\":900000000000000000"));
    bench.bash("echo more > t/a/zeros; touch -d '2001-02-03 04:05:06.5' t/a/zeros");
    bench.bash("truncate -s 300000 t/a/zeros; touch -d '2001-02-03 04:05:06.5' t/a/zeros");
    bench.bash("SOURCE_DATE_EPOCH=900000000 iopath mkfs -q -d t d.img");
    assert_ne!(uuid("c.img"), uuid("d.img"));
    // One that is named is taken, in the words of either tool.
    let named = "00112233-4455-6677-8899-aabbccddeeff";
    for words in [format!("ext4 -U {named}"), format!("xfs -m uuid={named}")] {
        bench.bash(&format!("iopath mkfs -q -F -t {words} -d t d.img"));
        assert_eq!(uuid("d.img").trim(), named, "{words}");
    }
    assert!(
        bench.try_bash("SOURCE_DATE_EPOCH=soon iopath mkfs -d t e.img").status.code() == Some(1)
    );
}

#[test]
fn archives_make_the_same_image_as_their_tree() {
    let bench = Bench::with_tree();
    bench.bash(
        "tar cSf t.tar --acls --xattrs --xattrs-include='*' --format=posix -C t .
         gzip -k t.tar; zstd -q t.tar; xz -k -0 t.tar; bzip2 -k t.tar
         iopath mkfs -q -d t t.img",
    );
    let wanted = bench.manifest("t.img");
    assert!(wanted.lines().count() > 700);
    for archive in ["t.tar", "t.tar.gz", "t.tar.zst", "t.tar.xz"] {
        bench.ok(&format!("mkfs -q -F -d {archive} a.img"));
        assert_eq!(bench.manifest("a.img"), wanted, "{archive}");
    }
    bench.bash("cat t.tar.gz | iopath mkfs -q -F -d - a.img");
    assert_eq!(bench.manifest("a.img"), wanted);
    bench.bash("cat t.tar | iopath mkfs -q -F --size 40M -d - a.img");
    assert_eq!(bench.manifest("a.img"), wanted);
    // `cp` reads what is compressed, too.
    bench.bash("iopath mkfs -q --size 40M -F b.img; iopath cp -a t.tar.zst: b.img:/");
    assert_eq!(bench.manifest("b.img"), wanted);
    assert!(bench.fails("mkfs -q -F -d t.tar.bz2 a.img").contains("bzcat"));
    assert!(bench.fails("cp -a t.img:/ x.tar.gz:").contains("compress"));
    bench.bash("head -c 100000 t.tar.gz > cut.tar.gz");
    bench.fails("mkfs -q -d cut.tar.gz never.img");
    assert!(!bench.path("never.img").exists());
}

/// fakeroot's notes and genext2fs's tables make what those tools make of them.
#[test]
fn owners_come_from_tables() {
    let bench = Bench::new();
    bench.bash(
        "mkdir -p t/bin t/dev; echo su > t/bin/su; echo ping > t/bin/ping; echo x > t/x
         cp -a t f
         fakeroot -s db bash -c 'mknod f/dev/null c 1 3; mknod f/dev/b b 300 70000
             chown 7:8 f/bin/su; chmod 4755 f/bin/su; ln -s su f/bin/link; chown -h 3:4 f/bin/link'
         chown -R 1000:1000 f
         fakeroot -i db tar cf f.tar --numeric-owner --format=posix -C f .
         iopath mkfs -q -d f --owner-map db ours.img; iopath mkfs -q -d f.tar theirs.img",
    );
    assert_eq!(bench.manifest("ours.img"), bench.manifest("theirs.img"));
    assert!(bench.ok("stat ours.img:/dev/b").contains("block"));
    bench.bash(
        "printf '%s\n' '# table' '/dev d 751 1 2 - - - - -' '/dev/mem c 640 0 3 1 1 0 0 -' \
             '/dev/tty c 666 0 5 4 0 0 1 4' '/dev/hda b 660 0 6 3 1 1 1 3' \
             '/bin/su f 4755 0 9 - - - - -' '/new d 1777 5 5 - - - - -' \
             '/pipe p 600 7 7 - - - - -' > table
         genext2fs -b 1024 -d t -D table theirs.img 2>/dev/null
         iopath mkfs -q -t ext2 -F -d t --owner-map table ours.img
         list() { debugfs -R \"ls -l $1\" $2 2>/dev/null | awk '{print $2, $4, $5, $NF}' \
             | grep -v 'lost+found$' | sort; }
         dev() { for n in mem tty0 tty3 hda1 hda2; do debugfs -R \"stat /dev/$n\" $1 2>/dev/null \
             | grep 'Device major'; done; }
         for d in / /dev /bin; do diff <(list $d ours.img) <(list $d theirs.img); done
         diff <(dev ours.img) <(dev theirs.img)",
    );
    bench.bash(
        "printf '%s\n' 'user 0-999 5' 'group 0 6' 'bin/ping 1 2 0750 capabilities=cap_net_raw+ep' \
             'x 3 4 0604 user.note=0x6869' > map
         iopath mkfs -q -F -d t --owner-map map ours.img",
    );
    let mount = LoopMount::new(&bench.path("ours.img"), "ext4", "ro").expect("mounted");
    let root = mount.path();
    let root = root.display();
    let seen = bench.bash(&format!(
        "cd {root}; stat -c '%n %u %g %a' bin bin/ping x; getcap bin/ping; getfattr -d x"
    ));
    assert_eq!(
        seen,
        "bin 5 6 755\nbin/ping 1 2 750\nx 3 4 604\nbin/ping cap_net_raw=ep\n\
         # file: x\nuser.note=\"hi\"\n\n"
    );
    drop(mount);
    let squashed = bench.bash("iopath mkfs -q -F -d f --owner 0:0 s.img; iopath manifest s.img:/");
    assert!(!squashed.contains("\"uid\":1000"));
    fs::write(bench.path("bad"), "/a q 644\n").expect("written");
    assert!(bench.fails("mkfs -q -d t --owner-map bad n.img").contains("bad: line 1: `/a q 644`"));
}

/// Layers made by umoci, which also unpacks them; one with an opaque directory by hand.
#[test]
fn layers_are_merged_as_umoci_does() {
    let bench = Bench::new();
    bench.bash(
        "umoci init --layout o; umoci new --image o:v
         umoci unpack --image o:v b >/dev/null 2>&1
         cd b/rootfs; mkdir -p etc/conf var/log opt/deep/er; echo 1 > etc/a; echo 2 > etc/b
         echo log > var/log/x; echo keep > opt/keep; echo deep > opt/deep/er/f; ln etc/a etc/hard
         ln -s a etc/sym; echo gone > gone; echo was-file > turns
         mkdir was-dir; echo in > was-dir/in
         find . -exec touch -h -d 2001-01-01 {} +
         cd ../..; umoci repack --image o:v b >/dev/null 2>&1
         cd b/rootfs; rm gone etc/b; rm -r opt/deep; echo new > etc/a2; chmod 600 opt/keep
         rm turns; mkdir turns; echo now > turns/inside; rm -r was-dir; echo file > was-dir
         chown 5:6 var; ln etc/a2 etc/hard2; touch -h -d 2002-02-02 etc/* var . turns
         cd ../..; umoci repack --image o:v b >/dev/null 2>&1
         mkdir -p l/var l/var/log; echo fresh > l/var/log/y
         touch l/var/log/.wh..wh..opq l/.wh.turns; touch -d 2003-03-03 l/var/log l/var/log/y
         tar cf l.tar --no-recursion -C l var/log/y var/log var/log/.wh..wh..opq .wh.turns
         umoci raw add-layer --image o:v l.tar >/dev/null 2>&1
         umoci unpack --image o:v all >/dev/null 2>&1
         iopath mkfs -q -d o ext4.img; iopath mkfs -q -t xfs -d oci:o xfs.img
         tar cf o.tar -C o .; gzip -k o.tar; iopath mkfs -q -d o.tar tar.img
         iopath mkfs -q -d oci-archive:o.tar.gz gz.img",
    );
    for image in ["ext4.img", "xfs.img", "tar.img", "gz.img"] {
        bench.judged(image, "all/rootfs");
    }
    // As `docker save` writes it: layers in files of their own, one a symlink to another.
    bench.bash(
        "mkdir -p s/1 s/2 s/3 one two; echo 1 > one/f; echo 1 > one/g; echo 2 > two/f
         touch two/.wh.g
         tar cf s/1/layer.tar -C one f g; tar cf s/2/layer.tar -C two f .wh.g
         ln -s ../1/layer.tar s/3/layer.tar
         echo '[{\"Config\":\"c.json\",\"RepoTags\":[\"x:1\"],' \
             '\"Layers\":[\"1/layer.tar\",\"2/layer.tar\"]}]' \
             > s/manifest.json
         tar cf s.tar -C s 1 2 3 manifest.json; iopath mkfs -q -d s.tar s.img
         cat s.tar | iopath mkfs -q -F -d - s2.img
         sed -i 's|\"2/layer.tar\"|\"2/layer.tar\",\"3/layer.tar\"|' s/manifest.json
         tar cf s3.tar -C s .; iopath mkfs -q -d docker-archive:s3.tar s3.img",
    );
    for (image, names, content) in
        [("s", "f\n", "2\n"), ("s2", "f\n", "2\n"), ("s3", "f\ng\n", "1\n")]
    {
        let listed = bench.ok(&format!("ls {image}.img:/")).replace("lost+found\n", "");
        assert_eq!(
            (listed.as_str(), bench.ok(&format!("cat {image}.img:/f")).as_str()),
            (names, content)
        );
    }
    // A blob that was damaged is named. Layers of before a repack lie there too, and are not read.
    bench.bash(
        "digest() { grep -o 'sha256:[0-9a-f]*' | tail -n 1 | cut -d : -f 2; }
         manifest=$(digest < o/index.json)
         layer=o/blobs/sha256/$(grep -o '\"layers.*' o/blobs/sha256/$manifest | digest)
         printf XX | dd of=$layer conv=notrunc bs=1 seek=20 status=none",
    );
    let error = bench.fails("mkfs -q -d o damaged.img");
    assert!(error.contains("is damaged: its SHA-256 is"), "{error}");
    assert!(!bench.path("damaged.img").exists());
}

/// What goes wrong leaves what was there, and nothing that looks whole.
#[test]
fn what_fails_leaves_nothing() {
    let bench = Bench::with_tree();
    let error = bench.fails("mkfs -q --size 3M -d t n.img");
    assert!(error.contains("its content needs") && error.contains("ENOSPC"), "{error}");
    assert!(bench.fails("mkfs -q -d nope n.img").starts_with("iopath: nope: No such file"));
    assert!(bench.fails("mkfs -q -t xfs --size 20M -d t n.img").contains("300 MiB"));
    let error = bench.fails("mkfs -q -d t nbd://127.0.0.1:1/x");
    assert!(error.contains("build a file and copy that"), "{error}");
    bench.ok("mkfs -q -d t old.img");
    assert!(bench.fails("mkfs -q -d t old.img").contains("--force"));
    let before = fs::read(bench.path("old.img")).expect("read");
    bench.fails("mkfs -q -F --size 3M -d t old.img");
    assert_eq!(fs::read(bench.path("old.img")).expect("read"), before);
    // Whoever may not read a file gets no image.
    bench.bash("chmod 755 .; mkdir -m 777 open; cp -a t u; chmod 600 u/many/*5");
    let id = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let iopath = env!("CARGO_BIN_EXE_iopath");
    let refused = bench.try_bash(&format!("{id} {iopath} mkfs -q -d u open/n.img"));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        error.contains("Permission denied") && error.contains("file-with-a-longer-name-5"),
        "{error}"
    );
    bench.bash(&format!("{id} {iopath} mkfs -q -d u --exclude '*5' --owner 0:0 open/n.img"));
    assert_eq!(bench.path("open").read_dir().expect("read").count(), 1);
    // A symlink to the image stays one; the image keeps its mode.
    symlink("old.img", bench.path("link.img")).expect("made");
    fs::set_permissions(bench.path("old.img"), fs::Permissions::from_mode(0o600)).expect("set");
    bench.ok("mkfs -q -F -d t link.img");
    assert!(bench.path("link.img").is_symlink());
    assert_eq!(
        fs::metadata(bench.path("old.img")).expect("there").permissions().mode() & 0o777,
        0o600
    );
    let names = bench.bash("ls -A");
    assert!(!names.contains("n.img") && !names.contains(".iopath"), "{names}");
}
