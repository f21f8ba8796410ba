//! seccomp: the system calls that a locked process has.
//!
//! What is not listed fails with EPERM. Calls that are listed without a condition are answered by
//! the kernel from a bitmap (Linux 5.11), so that reads and writes cost what they cost before.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::{LockError, Policy};

/// Numbers of system calls, by their names.
macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// What every locked process may call.
const ALWAYS: &[i64] = calls!(
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
    SYS_preadv2 SYS_pwritev2 SYS_close SYS_close_range SYS_lseek SYS_fsync SYS_fdatasync
    SYS_sync_file_range SYS_ftruncate SYS_fallocate SYS_fadvise64 SYS_splice SYS_tee SYS_vmsplice
    SYS_sendfile SYS_copy_file_range SYS_dup SYS_dup3 SYS_fcntl SYS_flock SYS_pipe2
    SYS_openat SYS_openat2 SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs
    SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir
    SYS_fgetxattr SYS_getxattr SYS_lgetxattr SYS_flistxattr SYS_listxattr SYS_llistxattr
    SYS_munmap SYS_mremap SYS_madvise SYS_brk SYS_mincore SYS_mlock SYS_munlock SYS_membarrier
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigtimedwait SYS_rt_sigpending
    SYS_sigaltstack SYS_restart_syscall SYS_futex SYS_set_robust_list SYS_rseq
    SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres SYS_gettimeofday
    SYS_getrandom SYS_getpid SYS_gettid SYS_getppid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid
    SYS_getgroups SYS_getpgid SYS_getsid SYS_setsid SYS_umask SYS_uname SYS_sysinfo SYS_getrusage
    SYS_times SYS_capget SYS_sched_yield SYS_sched_getaffinity SYS_getcpu
    SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_eventfd2
    SYS_timerfd_create SYS_timerfd_settime SYS_exit SYS_exit_group SYS_seccomp SYS_clone3
    SYS_recvfrom SYS_recvmsg SYS_sendto SYS_sendmsg SYS_shutdown SYS_getsockopt SYS_setsockopt
    SYS_getsockname SYS_getpeername SYS_accept4
);

/// The older names of some of them, which x86-64 alone has.
#[cfg(target_arch = "x86_64")]
const ALWAYS_OLD: &[i64] = calls!(
    SYS_open SYS_stat SYS_lstat SYS_access SYS_readlink SYS_poll SYS_select SYS_epoll_wait
    SYS_dup2 SYS_pipe SYS_getdents SYS_time SYS_accept
);
#[cfg(not(target_arch = "x86_64"))]
const ALWAYS_OLD: &[i64] = &[];

/// What makes and removes names; Landlock says where.
const NAMES: &[i64] = calls!(
    SYS_mkdirat SYS_mknodat SYS_unlinkat SYS_symlinkat SYS_linkat SYS_renameat SYS_renameat2
    SYS_truncate
);
#[cfg(target_arch = "x86_64")]
const NAMES_OLD: &[i64] = calls!(
    SYS_mkdir SYS_mknod SYS_unlink SYS_rmdir SYS_symlink SYS_link SYS_rename SYS_creat
);
#[cfg(not(target_arch = "x86_64"))]
const NAMES_OLD: &[i64] = &[];

/// What sets the attributes of files.
const ATTRIBUTES: &[i64] = calls!(
    SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat SYS_fsetxattr SYS_setxattr
    SYS_lsetxattr SYS_fremovexattr SYS_removexattr SYS_lremovexattr
);
#[cfg(target_arch = "x86_64")]
const ATTRIBUTES_OLD: &[i64] = calls!(SYS_chmod SYS_chown SYS_lchown);
#[cfg(not(target_arch = "x86_64"))]
const ATTRIBUTES_OLD: &[i64] = &[];

/// `fchmodat2`, which the crate `libc` does not name on all machines; the number is one everywhere.
const SYS_FCHMODAT2: i64 = 452;

/// Sockets.
const SOCKETS: &[i64] = calls!(SYS_socket SYS_socketpair SYS_connect SYS_bind SYS_listen);

/// Rings of io_uring; `io_uring_enter` on one that is there stays.
const RINGS: &[i64] = calls!(SYS_io_uring_setup SYS_io_uring_register);

/// What opens files.
const OPENS: &[i64] = calls!(SYS_openat SYS_openat2);
#[cfg(target_arch = "x86_64")]
const OPENS_OLD: &[i64] = calls!(SYS_open SYS_creat);
#[cfg(not(target_arch = "x86_64"))]
const OPENS_OLD: &[i64] = &[];

/// Requests of ioctl(2): of terminals, of block devices, of files and their extents.
const IOCTLS: &[u32] = &[
    0x5401,
    0x5413,
    0x541b,
    0x5421,
    0x5450,
    0x5451, // TCGETS .. FIOCLEX
    0x802c_542a,
    0x402c_542b, // TCGETS2, TCSETS2: a passphrase is not shown
    0x1268,
    0x127b,
    0x8008_1272,
    0x1277,
    0x127f,
    0x125e, // BLKSSZGET .. BLKROGET
    0x8008_6601,
    0x4008_6602,
    0x801c_581f,
    0x401c_5820,
    0x4008_6610, // flags, FS_IOC_FSGETXATTR and SET, EXT4_IOC_RESIZE_FS
    0xc020_660b,
    0x4004_9409,
    0x4020_940d, // FIEMAP, FICLONE, FICLONERANGE
];

/// Requests of prctl(2): names of threads and of memory, questions, and what only tightens.
const PRCTLS: &[u64] = &[3, 15, 16, 21, 23, 27, 38, 39, 0x5356_4d41];

/// Installs the filter; returns whether the kernel has such.
pub(crate) fn filter(policy: &Policy) -> Result<bool, LockError> {
    let mut rules = Rules::new();
    rules.allow(&[ALWAYS, ALWAYS_OLD, &[libc::SYS_io_uring_enter]]);
    rules.allow_where(libc::SYS_ioctl, 1, IOCTLS.iter().map(|request| u64::from(*request)))?;
    rules.allow_where(libc::SYS_prctl, 0, PRCTLS.iter().copied())?;
    let own = std::process::id().into();
    rules.allow_where(libc::SYS_tgkill, 0, [own])?;
    rules.allow_where(libc::SYS_prlimit64, 0, [0, own])?;
    rules.allow_where(libc::SYS_sched_setaffinity, 0, [0])?;
    // No thread of its own process, no code that was not there when the process began.
    rules.allow_bits(libc::SYS_clone, 0, libc::CLONE_THREAD as u64, true)?;
    rules.allow_bits(libc::SYS_mmap, 2, libc::PROT_EXEC as u64, false)?;
    rules.allow_bits(libc::SYS_mprotect, 2, libc::PROT_EXEC as u64, false)?;
    if !policy.make.is_empty() {
        rules.allow(&[NAMES, NAMES_OLD]);
    }
    if policy.writes_host_files {
        rules.allow(&[ATTRIBUTES, ATTRIBUTES_OLD, &[SYS_FCHMODAT2]]);
    }
    if policy.network {
        rules.allow(&[SOCKETS]);
    }
    if policy.rings {
        rules.allow(&[RINGS]);
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    if !install(rules.0, refused, SeccompAction::Allow)? {
        return Ok(false);
    }
    // glibc then uses clone, whose flags a filter can see.
    let mut rules = Rules::new();
    rules.allow(&[&[libc::SYS_clone3]]);
    install(rules.0, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

/// Takes away what opens and sets up.
pub(crate) fn settle(network: bool) -> Result<(), LockError> {
    let mut rules = Rules::new();
    rules.allow(&[RINGS]);
    // A name server is asked again where a connection to an image's server is made again.
    if !network {
        rules.allow(&[OPENS, OPENS_OLD, SOCKETS]);
    }
    let refused = SeccompAction::Errno(libc::EACCES as u32);
    install(rules.0, SeccompAction::Allow, refused).map(|_| ())
}

/// The calls that a filter is about.
struct Rules(BTreeMap<i64, Vec<SeccompRule>>);

impl Rules {
    fn new() -> Rules {
        Rules(BTreeMap::new())
    }

    fn allow(&mut self, lists: &[&[i64]]) {
        lists.iter().copied().flatten().for_each(|call| {
            self.0.insert(*call, Vec::new());
        });
    }

    /// Allows a call where its argument `index` is one of these.
    fn allow_where(
        &mut self,
        call: i64,
        index: u8,
        values: impl IntoIterator<Item = u64>,
    ) -> Result<(), LockError> {
        for value in values {
            self.add(call, index, SeccompCmpOp::Eq, value)?;
        }
        Ok(())
    }

    /// Allows a call where all `bits` of its argument `index` are set, or none.
    fn allow_bits(&mut self, call: i64, index: u8, bits: u64, set: bool) -> Result<(), LockError> {
        self.add(call, index, SeccompCmpOp::MaskedEq(bits), if set { bits } else { 0 })
    }

    fn add(
        &mut self,
        call: i64,
        index: u8,
        operator: SeccompCmpOp,
        value: u64,
    ) -> Result<(), LockError> {
        let failed = |error| LockError::new("seccomp", error);
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value);
        let rule = condition.map(|one| vec![one]).and_then(SeccompRule::new).map_err(failed)?;
        self.0.entry(call).or_default().push(rule);
        Ok(())
    }
}

/// Installs a filter in all threads; false where the kernel has no seccomp.
fn install(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    others: SeccompAction,
    listed: SeccompAction,
) -> Result<bool, LockError> {
    let failed = |error| LockError::new("seccomp", error);
    let machine: TargetArch = match std::env::consts::ARCH.try_into() {
        Ok(machine) => machine,
        Err(_) => return Ok(false),
    };
    let filter = SeccompFilter::new(rules, others, listed, machine).map_err(failed)?;
    let program: BpfProgram = filter.try_into().map_err(failed)?;
    match apply_filter_all_threads(&program) {
        Ok(()) => Ok(true),
        // Not built into this kernel.
        Err(Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
        {
            Ok(false)
        }
        Err(error) => Err(LockError::new("seccomp", error)),
    }
}
