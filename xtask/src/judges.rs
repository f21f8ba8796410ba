//! The outside programs that judge our tests. A missing one is installed where we may, else the
//! run fails with the one command that installs all of them. Nothing is skipped.

use crate::run;
use anyhow::{Result, bail};
use std::path::Path;

/// Program, Debian package.
const JUDGES: &[(&str, &str)] = &[
    ("mke2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("tune2fs", "e2fsprogs"),
    ("getfacl", "acl"),
    ("setfacl", "acl"),
    ("setfattr", "attr"),
    ("mount", "mount"),
    ("losetup", "mount"),
    ("partx", "util-linux"),
    ("sfdisk", "fdisk"),
    ("fsck.vfat", "dosfstools"),
    ("mcopy", "mtools"),
    ("valgrind", "valgrind"),
    ("tar", "tar"),
    ("chromium", "chromium"),
    ("fs_mark", "fsmark"),
    ("blkparse", "blktrace"),
    ("btt", "blktrace"),
    ("iowatcher", "blktrace"),
    ("fio", "fio"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("qemu-nbd", "qemu-utils"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("curl", "curl"),
    ("img2simg", "android-sdk-libsparse-utils"),
    ("fsverity", "fsverity"),
    ("quotacheck", "quota"),
    ("fusermount3", "fuse3"),
    ("fuse2fs", "fuse2fs"),
    ("sysbench", "sysbench"),
    ("rsync", "rsync"),
    ("fakeroot", "fakeroot"),
    ("genext2fs", "genext2fs"),
    ("umoci", "umoci"),
    ("setcap", "libcap2-bin"),
    ("bzip2", "bzip2"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("git", "git"),
    ("sqlite3", "sqlite3"),
    ("../lib/python3/dist-packages/lmdb/__init__.py", "python3-lmdb"),
    ("../lib/python3/dist-packages/plyvel/__init__.py", "python3-plyvel"),
    ("../lib/python3/dist-packages/prometheus_client/parser.py", "python3-prometheus-client"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.ntfs", "ntfs-3g"),
    ("stress-ng", "stress-ng"),
    ("strace", "strace"),
    ("setpriv", "util-linux"),
    ("xfs_repair", "xfsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("nfs-cp", "libnfs-utils"),
    ("ganesha.nfsd", "nfs-ganesha"),
    ("../lib/x86_64-linux-gnu/ganesha/libfsalvfs.so", "nfs-ganesha-vfs"),
    ("rpcbind", "rpcbind"),
    ("debootstrap", "debootstrap"),
    ("cryptsetup", "cryptsetup-bin"),
    ("veritysetup", "cryptsetup-bin"),
    ("lvm", "lvm2"),
    ("mdadm", "mdadm"),
];

/// Program, package of PyPI: what Debian does not have.
const PYTHON: &[(&str, &str)] = &[("moto_server", "moto[server]")];

const FOLDERS: &[&str] = &["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];

fn present(program: &str) -> bool {
    FOLDERS.iter().any(|folder| Path::new(folder).join(program).exists())
}

/// Whether a program is found as the tests find it.
fn on_the_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Makes sure that every judge is there.
pub fn require() -> Result<()> {
    let mut packages: Vec<&str> = JUDGES
        .iter()
        .filter(|(program, _)| !present(program))
        .map(|&(_, package)| package)
        .collect();
    let python = PYTHON.iter().filter(|(program, _)| !on_the_path(program));
    let python: Vec<&str> = python.map(|&(_, package)| package).collect();
    if !python.is_empty() && !on_the_path("pip3") {
        packages.push("python3-pip");
    }
    packages.sort_unstable();
    packages.dedup();
    if !packages.is_empty() {
        from_debian(&packages)?;
    }
    if python.is_empty() { Ok(()) } else { from_python(&python) }
}

/// Installs packages of PyPI beside those of the host.
fn from_python(packages: &[&str]) -> Result<()> {
    let install = [&["install", "--quiet", "--break-system-packages"][..], packages].concat();
    let command = format!("pip3 {}", install.join(" "));
    if !is_root() {
        bail!("programs that judge the tests are missing; install them with: {command}");
    }
    eprintln!("    installing: {command}");
    run::program("pip3", &install)
}

/// Makes sure that these programs (program, Debian package) are there.
pub fn require_these(programs: &[(&str, &str)]) -> Result<()> {
    let missing = programs.iter().filter(|(program, _)| !present(program));
    let packages: Vec<&str> = missing.map(|&(_, package)| package).collect();
    if packages.is_empty() { Ok(()) } else { from_debian(&packages) }
}

fn from_debian(packages: &[&str]) -> Result<()> {
    let install = [&["install", "-y", "--no-install-recommends"][..], packages].concat();
    let command = format!("apt-get update && apt-get {}", install.join(" "));
    if !is_root() || !present("apt-get") {
        bail!("programs that judge the tests are missing; install them with: {command}");
    }
    eprintln!("    installing: {command}");
    run::program("apt-get", &["update", "-qq"])?;
    run::program("apt-get", &install)
}

pub fn is_root() -> bool {
    std::fs::metadata("/proc/self")
        .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}
