//! POSIX ACLs: what the kernel does with the same calls.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rt::Cx;
use testkit::{judge, manifest};
use vfs::{Namespace, OpenFlags, SetAttr, XattrFlags};

use super::support::*;

const DEFAULT: &str = "u::rwx,u:1000:r-x,g::r-x,g:70000:rwx,m::rwx,o::r--";
const MODES: [u16; 5] = [0o777, 0o666, 0o640, 0o600, 0o077];

/// The kernel: a directory with a default ACL, files and directories of several modes in it, some
/// of them changed by chmod.
fn by_the_kernel(image: &Image) -> manifest::Manifest {
    let file = image.to_file();
    let mount = judge::LoopMount::new(file.path(), "ext4", "rw,acl").expect("the kernel mounts");
    let dir = mount.path().join("dir");
    judge::run_ok("setfacl", &[&"-d", &"--set", &DEFAULT, &dir]);
    let shell = |command: String| {
        judge::run_ok("sh", &[&"-c", &command]);
    };
    let dir = dir.display().to_string();
    for mode in MODES {
        shell(format!(
            "umask 022; perl -e 'use Fcntl; \
             sysopen(F, \"{dir}/f{mode}\", O_CREAT|O_WRONLY, {mode}) or die; \
             mkdir(\"{dir}/d{mode}\", {mode}) or die'"
        ));
    }
    for mode in MODES {
        let path = std::path::Path::new(&dir).join("f511");
        let copy = std::path::Path::new(&dir).join(format!("c{mode}"));
        judge::run_ok("cp", &[&"-a", &path, &copy]);
        let permissions = std::fs::Permissions::from_mode(mode.into());
        std::fs::set_permissions(&copy, permissions).expect("chmod");
    }
    let manifest = manifest::of_dir(&mount.path()).expect("the kernel's tree");
    drop(mount);
    judge::e2fsck(file.path()).unwrap_or_else(|message| panic!("{message}"));
    manifest
}

/// We: the same calls through [`Namespace`].
fn by_us(cx: &mut Cx, image: &Image, default: &[u8]) -> manifest::Manifest {
    let fs = image.mount(cx);
    let ns = Namespace::new(fs.clone());
    let cred = rt::Cred { umask: 0o022, ..cx.cred().clone() };
    cx.set_cred(cred);
    let none = XattrFlags::empty();
    ns.setxattr(cx, b"/dir", vfs::acl::DEFAULT, default, none).expect("a default ACL");
    for mode in MODES {
        let path = format!("/dir/f{mode}");
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let file = ns.open(cx, path.as_bytes(), flags, mode).expect("a file");
        file.close(cx).expect("closed");
        ns.mkdir(cx, format!("/dir/d{mode}").as_bytes(), mode).expect("a directory");
    }
    let acl = ns.getxattr(cx, b"/dir/f511", vfs::acl::ACCESS).expect("an inherited ACL");
    for mode in MODES {
        let path = format!("/dir/c{mode}");
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        ns.open(cx, path.as_bytes(), flags, 0o600).expect("a file").close(cx).expect("closed");
        ns.setxattr(cx, path.as_bytes(), vfs::acl::ACCESS, &acl, none).expect("an ACL");
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        ns.setattr(cx, path.as_bytes(), &set, true).expect("chmod");
    }
    let manifest = manifest::of_fs(cx, &*fs).expect("our tree");
    drop(ns);
    close(cx, fs, image);
    manifest
}

/// Forgets times, which differ.
fn timeless(manifest: manifest::Manifest) -> manifest::Manifest {
    manifest
        .into_iter()
        .map(|(path, entry)| (path, manifest::Entry { mtime_ns: 0, ..entry }))
        .collect()
}

/// Modes and ACLs of new files under a default ACL, and after chmod, are those that the kernel
/// gives.
#[test]
fn acls_are_inherited_and_changed_as_by_the_kernel() {
    for shape in ["-t ext4 -b 1024", "-t ext4 -b 4096"] {
        let image = Image::new(shape, 16);
        rt::testing::real(|cx| {
            let fs = image.mount(cx);
            let root = fs.root();
            use vfs::FileSystem;
            mkdir(cx, &*fs, root, b"dir");
            close(cx, fs, &image);
        });
        let kernel = by_the_kernel(&image);
        let default = &kernel[b"dir".as_slice()].xattrs["system.posix_acl_default"];
        let default: Vec<u8> = (0..default.len() / 2)
            .map(|at| u8::from_str_radix(&default[2 * at..2 * at + 2], 16).expect("hex"))
            .collect();
        let ours = rt::testing::real(|cx| by_us(cx, &image, &default));
        let diff = manifest::diff(&timeless(ours.clone()), &timeless(kernel));
        assert_eq!(diff, "", "{shape}");
        let again = judge::kernel_manifest(image.to_file().path(), "ext4");
        assert_eq!(manifest::diff(&ours, &again), "", "the kernel reads ours: {shape}");
        let _ = Arc::strong_count(&image.device);
    }
}
