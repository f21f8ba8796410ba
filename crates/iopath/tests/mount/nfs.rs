//! An export of an NFS server, mounted: the server is ours, on an image in memory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use testkit::{judge, manifest};

use crate::host::{Mounted, check, image, iopath, place, shell, wait_until};

/// Our server of an image, at a port of its own.
struct Server {
    child: Child,
    url: String,
    image: PathBuf,
}

impl Server {
    #[track_caller]
    fn new(image: PathBuf) -> Server {
        let mut command = iopath(&[&"serve", &"nfs", &"--write", &"--squash", &"none"]);
        command.args(["--listen", "127.0.0.1:0"]).arg(&image).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("it tells where it serves");
        let url = line.split_whitespace().find(|word| word.starts_with("nfs://"));
        let url = url.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        Server { child, url, image }
    }

    #[track_caller]
    fn mount(&self) -> Mounted {
        Mounted::target(OsStr::new(&self.url), &self.image, "")
    }

    /// What another client of the server reads.
    fn cat(&self, path: &str) -> Vec<u8> {
        iopath(&[&"cat", &format!("{}:{path}", self.url)]).output().expect("it starts").stdout
    }

    /// Ends it with SIGTERM, and waits; the judge has a look at the image.
    #[track_caller]
    fn end(mut self) {
        judge::run_ok("kill", &[&self.child.id().to_string()]);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
        check(&self.image);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn server(dir: &Path) -> Server {
    Server::new(image(dir, "ext4", 256 << 20))
}

/// A tree that is copied through client and server is what the kernel sees on the image.
#[test]
fn a_tree_arrives_on_the_image_of_the_server() {
    let place = place();
    let server = server(place.path());
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    shell(
        &tree,
        r"mkdir -p a/b 'sp ace'; echo one >a/one; ln a/one a/b/two; ln -s ../one a/b/three
         mkfifo a/fifo; head -c 3000000 /dev/urandom >a/big; chmod 4711 a/big; chown 3:4 a/b
         name=$(printf 'n%.0s' $(seq 255)); echo long >$name
         touch -d '2001-01-01 00:00:00.123456789' a/big
         seq 300 | sed 's/^/sp ace\/f/' | xargs -d '\n' touch",
    );
    let mount = server.mount();
    shell(&tree, &format!("rm -r {0}/lost+found; cp -a . {0}/", mount.dir().display()));
    let expected = manifest::of_dir(&tree).unwrap();
    let seen = manifest::of_dir(mount.dir()).unwrap();
    assert_eq!(manifest::diff(&expected, &seen), "", "through the mount");
    mount.unmount();
    let image = server.image.clone();
    server.end();
    let kernel = judge::kernel_manifest(&image, "ext4");
    assert_eq!(manifest::diff(&expected, &kernel), "", "through the kernel's mount of the image");
}

#[test]
fn programs_work_on_an_export() {
    let place = place();
    let server = server(place.path());
    let work = place.path().join("work");
    fs::create_dir(&work).unwrap();
    let run = |dir: &Path, script: &str| {
        shell(dir, &format!("W={}; export HOME=$W\n{script}", work.display()))
    };
    let mount = server.mount();
    run(
        mount.dir(),
        "mkdir m; fs_mark -d m/1 -d m/2 -d m/3 -d m/4 -n 50 -s 10240 -k -L 1 -S 1 \
           >$W/fs_mark.out; rm fs_log.txt
         test $(find m -type f | wc -l) = 200; rm -r m
         fio --name=v --size=4M --rw=randrw --bssplit=512/30:4k/40:64k/30 --numjobs=2 \
           --verify=crc32c --verify_state_save=0 --fsync=64 --output=$W/fio1
         mkdir in; tar -C /usr/include -cf - linux/netfilter | tar -C in -xf -
         diff -r /usr/include/linux/netfilter in/linux/netfilter
         git config --global user.email a@b; git config --global user.name c
         git config --global --add safe.directory '*'; mkdir up; cd up; git init -q -b main .
         for i in 1 2 3; do seq $i 900 >f$i; git add .; git commit -qm $i; done; cd ..
         git clone -q --no-local up one; git -C one fsck --strict
         q='CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES(7);'
         sqlite3 -cmd '.log stderr' base.db \"$q\"
         sha256sum v.* >$W/sums",
    );
    mount.unmount();
    let mount = server.mount();
    run(
        mount.dir(),
        "sha256sum -c --quiet $W/sums; git -C one fsck --strict
         test $(sqlite3 base.db 'SELECT id FROM t; PRAGMA integrity_check;' | tr '\n' ,) = 7,ok,
         rm -r in one up; ls",
    );
    mount.unmount();
    server.end();
}

/// What one has closed another reads, also where he had read an older content; and a file lives on
/// without a name while it is open.
#[test]
fn what_is_closed_is_seen_by_others_and_open_files_outlive_their_names() {
    let place = place();
    let server = server(place.path());
    let mount = server.mount();
    let file = mount.dir().join("file");
    fs::write(&file, "from the mount").unwrap();
    assert_eq!(server.cat("/file"), b"from the mount");
    let from = place.path().join("from");
    fs::write(&from, "of somebody else, and longer").unwrap();
    let there = format!("{}:/file", server.url);
    let copied = iopath(&[&"cp", &from, &there]).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    // An open of the same inode asks the server; its name and length are kept for a second.
    wait_until("the change of another client", || {
        fs::read(&file).unwrap() == b"of somebody else, and longer"
    });
    let mut open = File::options().read(true).write(true).open(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap_err().raw_os_error(), Some(2));
    open.write_all(b"still").unwrap();
    let mut content = String::new();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "mebody else, and longer");
    drop(open);
    wait_until("the end of the unnamed file", || {
        let names = fs::read_dir(mount.dir()).unwrap();
        names.map(|name| name.unwrap().file_name()).all(|name| name == "lost+found")
    });
    mount.unmount();
    server.end();
}

/// Others than the owner may write to a file with set-id bits, which the server takes from it.
#[test]
fn set_id_bits_go_when_others_write() {
    let place = place();
    let server = server(place.path());
    let mount = server.mount();
    // The kernel asks again for attributes that are older than a second.
    shell(
        mount.dir(),
        "echo content >f; as='setpriv --reuid 9 --regid 9 --clear-groups'
         chmod 6777 f; $as sh -c 'echo more >>f'; test \"$(tail -n 1 f)\" = more
         for i in $(seq 100); do test $(stat -c %a f) = 777 && break; sleep 0.1; done
         test $(stat -c %a f) = 777
         chmod 6777 f; $as truncate -s 3 f; test $(stat -c %a f) = 777
         test \"$(cat f)\" = con",
    );
    mount.unmount();
    server.end();
}

/// kill -9 of the mount: what fsync has told is on the server, and the server goes on.
#[test]
fn synced_content_survives_a_kill_of_the_client() {
    let place = place();
    let server = server(place.path());
    let mount = server.mount();
    let content: Vec<u8> = (0..700_000u32).map(|i| (i % 251) as u8).collect();
    for name in ["a", "b"] {
        let mut file = File::create(mount.dir().join(name)).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
    }
    let mut held = File::create(mount.dir().join("held")).unwrap();
    let _may_be_lost = held.write_all(&content);
    mount.kill();
    drop(held);
    let mount = server.mount();
    for name in ["a", "b"] {
        assert!(fs::read(mount.dir().join(name)).unwrap() == content, "{name}");
        assert_eq!(fs::metadata(mount.dir().join(name)).unwrap().size(), 700_000);
    }
    mount.unmount();
    server.end();
}
