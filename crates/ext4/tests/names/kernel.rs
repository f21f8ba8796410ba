//! Trees that the kernel wrote: read right, edited by us, right again for the kernel.

use std::path::Path;
use std::sync::Arc;

use rt::Cx;
use testkit::{judge, manifest};
use vfs::{FileSystem, FileType, NewNode, RenameFlags, XattrFlags};

use super::support::*;

/// Lets the kernel make directories of all shapes, links, nodes, attributes and ACLs.
fn by_the_kernel(path: &Path, kind: &str) {
    let mount = judge::LoopMount::new(path, kind, "rw,acl,user_xattr").expect("the kernel mounts");
    let script = r#"set -e
        mkdir big small; cd big
        seq -f 'a-rather-long-name-of-a-file-%06g' 1 2500 | xargs touch
        seq -f 'a-rather-long-name-of-a-file-%06g' 1 3 1200 | xargs rm
        cd ../small
        for n in 1 2 3 4 5 6 7 8; do
            echo content $n > file$n; ln file$n hard$n; ln -s file$n soft$n
            setfattr -n user.short -v $n file$n
            setfattr -n trusted.long -v $(head -c $((n * 90)) /dev/zero | tr '\0' x) file$n
            mkdir -p dir$n/a/b/c; setfacl -m u:1000:rw,g:50:r file$n
        done
        ln -s $(head -c 300 /dev/zero | tr '\0' t) long
        mknod block b 259 70000; mknod char c 1 3; mkfifo fifo
        touch -d '2040-01-02 03:04:05.123456789' file1 || true
        touch -d '1960-01-02 03:04:05' file2; chown 70000:80000 file3; chmod 7751 dir3
        setfacl -d -m u:1000:rwx dir4; setfattr -n security.label -v same file5
        setfattr -n security.label -v same file6
    "#;
    judge::run_ok("sh", &[&"-c", &format!("cd {}; {script}", mount.path().display())]);
}

/// Changes every part of it.
fn by_us(cx: &mut Cx, fs: &dyn FileSystem) {
    let root = fs.root();
    let none = XattrFlags::empty();
    let big = fs.lookup(cx, root, b"big").expect("there").ino;
    let small = fs.lookup(cx, root, b"small").expect("there").ino;
    for number in 1..=2500 {
        let name = format!("a-rather-long-name-of-a-file-{number:06}");
        match number % 4 {
            0 => drop(fs.unlink(cx, big, name.as_bytes())),
            1 => drop(fs.rename(
                cx,
                big,
                name.as_bytes(),
                small,
                name.as_bytes(),
                RenameFlags::empty(),
            )),
            _ => drop(fs.create(
                cx,
                big,
                format!("new {number}").as_bytes(),
                &NewNode::new(FileType::Regular, 0o600),
            )),
        }
    }
    for number in 1..=8usize {
        let name = format!("file{number}");
        let ino = fs.lookup(cx, small, name.as_bytes()).expect("there").ino;
        if number % 2 == 0 {
            fs.removexattr(cx, ino, b"trusted.long").expect("it was set");
            fs.removexattr(cx, ino, vfs::acl::ACCESS).expect("it was set");
        } else {
            fs.setxattr(cx, ino, b"trusted.long", &vec![b'y'; 40 * number], none).expect("it fits");
        }
        fs.setxattr(cx, ino, b"user.ours", name.as_bytes(), none).expect("it fits");
        fs.unlink(cx, small, format!("hard{number}").as_bytes()).expect("there");
        let dir = fs.lookup(cx, small, format!("dir{number}").as_bytes()).expect("there").ino;
        let a = fs.lookup(cx, dir, b"a").expect("there").ino;
        fs.rename(cx, a, b"b", root, format!("b{number}").as_bytes(), RenameFlags::empty())
            .expect("a directory moves");
        fs.rmdir(cx, dir, b"a").expect("now empty");
    }
}

#[test]
fn what_the_kernel_wrote_is_read_and_edited() {
    for shape in ["-t ext2 -b 1024", "-t ext3 -b 1024 -I 128", "-t ext4 -b 1024", "-t ext4 -b 4096"]
    {
        let kind = &shape[3..7];
        let file = Image::new(shape, 24).to_file();
        by_the_kernel(file.path(), kind);
        let theirs = judge::kernel_manifest(file.path(), kind);
        let image = Image { device: Arc::new(testkit::image::load(file.path())) };
        let ours = rt::testing::real(|cx| {
            let fs = image.mount(cx);
            let read = manifest::of_fs(cx, &*fs).expect("the kernel's tree");
            assert_eq!(manifest::diff(&theirs, &read), "", "{shape}: read");
            by_us(cx, &*fs);
            let ours = manifest::of_fs(cx, &*fs).expect("our tree");
            close(cx, fs, &image);
            ours
        });
        let again = judge::kernel_manifest(image.to_file().path(), kind);
        assert_eq!(manifest::diff(&ours, &again), "", "{shape}: edited");
    }
}
