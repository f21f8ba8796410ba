/*
 * A library that is loaded into iopath and tries to get out of its sandbox.
 *
 * It stands for code that a hostile image has brought to run: in a thread that the process starts
 * after it was locked, it makes system calls and reports those that were not refused, a line each,
 * into the file that ESCAPES names (opened before the lock). The last line is "tried N".
 *
 * ESCAPES_WHEN=locked: after the lock. ESCAPES_WHEN=settled: when nothing may be opened any more.
 * ESCAPES_WHEN=always: at once; only what changes nothing is tried, to see that it is possible.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int report = -1, tried;
static int settled, always;
static char *outside; /* a folder that the process has no business in */

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("ESCAPES"), *when = getenv("ESCAPES_WHEN");
	outside = getenv("ESCAPES_OUTSIDE");
	settled = when && !strcmp(when, "settled");
	always = when && !strcmp(when, "always");
	if (path)
		report = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
}

/* What is refused answers one of these; anything else is an escape. */
static int is_refused(long result, int error)
{
	return result == -1 && (error == EPERM || error == EACCES || error == ENOSYS ||
				error == EXDEV || error == EBADF);
}

static void judge(const char *what, long result, int error)
{
	tried++;
	if (!is_refused(result, error))
		dprintf(report, "%s: %ld, %s\n", what, result, result == -1 ? strerror(error) : "done");
}

/* A call that must be refused. */
#define TRY(what, number, ...)                                  \
	do {                                                    \
		errno = 0;                                      \
		long result = syscall(number, ##__VA_ARGS__);   \
		judge(what, result, errno);                     \
	} while (0)

static const char *at(const char *name)
{
	static char path[4096];
	snprintf(path, sizeof path, "%s/%s", outside, name);
	return path;
}

static void programs(void)
{
	char *const argv[] = { "/bin/true", NULL };
	TRY("execve", SYS_execve, "/bin/true", argv, NULL);
	TRY("execveat", SYS_execveat, AT_FDCWD, "/bin/true", argv, NULL, 0);
	TRY("fork", SYS_clone, SIGCHLD, 0, 0, 0, 0);
	TRY("clone of a user name space", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
	TRY("clone3", SYS_clone3, NULL, 0);
#ifdef SYS_fork
	TRY("fork, the old call", SYS_fork);
#endif
	TRY("mmap of code", SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TRY("mprotect to code", SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC);
	TRY("memfd_create", SYS_memfd_create, "x", 0);
	TRY("personality", SYS_personality, 0x0400000);
}

static void others(void)
{
	pid_t parent = getppid();
	char byte;
	struct { void *base; size_t len; } local = { &byte, 1 }, remote = { &byte, 1 };
	TRY("ptrace of the parent", SYS_ptrace, PTRACE_ATTACH, parent, 0, 0);
	TRY("ptrace, to be traced", SYS_ptrace, PTRACE_TRACEME, 0, 0, 0);
	TRY("process_vm_readv", SYS_process_vm_readv, parent, &local, 1, &remote, 1, 0);
	TRY("process_vm_writev", SYS_process_vm_writev, parent, &local, 1, &remote, 1, 0);
	TRY("kill of the parent", SYS_kill, parent, 0);
	TRY("tgkill of the parent", SYS_tgkill, parent, parent, 0);
	TRY("pidfd_open", SYS_pidfd_open, parent, 0);
	TRY("pidfd_getfd", SYS_pidfd_getfd, 0, 0, 0);
	TRY("prlimit of the parent", SYS_prlimit64, parent, RLIMIT_NOFILE, 0, 0);
	TRY("sched_setaffinity of the parent", SYS_sched_setaffinity, parent, 8, &parent);
	TRY("setpriority", SYS_setpriority, 0, parent, 1);
	TRY("kcmp", SYS_kcmp, parent, getpid(), 0, 0, 0);
}

static void kernel(void)
{
	TRY("mount", SYS_mount, "none", outside, "tmpfs", 0, 0);
	TRY("umount", SYS_umount2, outside, 0);
	TRY("open_tree", SYS_open_tree, AT_FDCWD, "/", 0);
	TRY("fsopen", SYS_fsopen, "tmpfs", 0);
	TRY("move_mount", SYS_move_mount, AT_FDCWD, "/", AT_FDCWD, "/", 0);
	TRY("pivot_root", SYS_pivot_root, "/", "/");
	TRY("chroot", SYS_chroot, "/");
	TRY("unshare", SYS_unshare, CLONE_NEWUSER);
	TRY("setns", SYS_setns, 0, 0);
	TRY("bpf", SYS_bpf, 0, 0, 0);
	TRY("perf_event_open", SYS_perf_event_open, 0, 0, 0, 0, 0);
	TRY("userfaultfd", SYS_userfaultfd, 0);
	TRY("add_key", SYS_add_key, "user", "x", "x", 1, -4);
	TRY("keyctl", SYS_keyctl, 0, -4, 0, 0, 0);
	TRY("init_module", SYS_init_module, 0, 0, "");
	TRY("kexec_load", SYS_kexec_load, 0, 0, 0, 0);
	TRY("reboot", SYS_reboot, 0, 0, 0, 0);
	TRY("swapon", SYS_swapon, "/dev/null", 0);
	TRY("sethostname", SYS_sethostname, "x", 1);
	TRY("clock_settime", SYS_clock_settime, 0, NULL);
	TRY("syslog", SYS_syslog, 10, 0, 0);
	TRY("quotactl", SYS_quotactl, 0, 0, 0, 0);
	TRY("setuid", SYS_setuid, 0);
	TRY("capset", SYS_capset, NULL, NULL);
	TRY("prctl, to be dumped", SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
	TRY("prctl, securebits", SYS_prctl, PR_SET_SECUREBITS, 0, 0, 0, 0);
	TRY("io_uring_setup", SYS_io_uring_setup, 1, NULL);
	TRY("io_uring_register", SYS_io_uring_register, -1, 0, NULL, 0);
	TRY("inotify_init", SYS_inotify_init1, 0);
	TRY("fanotify_init", SYS_fanotify_init, 0, 0);
	TRY("name_to_handle_at", SYS_name_to_handle_at, AT_FDCWD, "/", NULL, NULL, 0);
	TRY("open_by_handle_at", SYS_open_by_handle_at, 0, NULL, 0);
	TRY("ioctl TIOCSTI", SYS_ioctl, 0, TIOCSTI, "x");
	TRY("ioctl LOOP_CTL_GET_FREE", SYS_ioctl, 0, 0x4C82);
	TRY("shmget", SYS_shmget, 1, 4096, 0600);
	TRY("msgget", SYS_msgget, 1, 0600);
	TRY("mq_open", SYS_mq_open, "x", O_RDWR | O_CREAT, 0600, NULL);
}

static void network(void)
{
	TRY("socket, TCP", SYS_socket, AF_INET, SOCK_STREAM, 0);
	TRY("socket, UDP", SYS_socket, AF_INET6, SOCK_DGRAM, 0);
	TRY("socket, unix", SYS_socket, AF_UNIX, SOCK_STREAM, 0);
	TRY("socket, netlink", SYS_socket, AF_NETLINK, SOCK_RAW, 0);
	TRY("socket, raw packets", SYS_socket, AF_PACKET, SOCK_RAW, 0);
	TRY("connect", SYS_connect, 0, NULL, 0);
	TRY("bind", SYS_bind, 0, NULL, 0);
	TRY("listen", SYS_listen, 0, 1);
}

static void files(void)
{
	TRY("open of a secret", SYS_openat, AT_FDCWD, at("secret"), O_RDONLY, 0);
	TRY("open of a secret, to write", SYS_openat, AT_FDCWD, at("secret"), O_WRONLY, 0);
	TRY("open of a secret by ..", SYS_openat, AT_FDCWD, "/proc/self/cwd/../../../../../../../../../etc/shadow", O_RDONLY, 0);
	TRY("open of the folder", SYS_openat, AT_FDCWD, outside, O_RDONLY | O_DIRECTORY, 0);
	TRY("open of /etc/passwd", SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
	TRY("open of the root's memory", SYS_openat, AT_FDCWD, "/proc/1/mem", O_RDWR, 0);
	TRY("open of the parent's environment", SYS_openat, AT_FDCWD, "/proc/1/environ", O_RDONLY, 0);
	TRY("creation", SYS_openat, AT_FDCWD, at("new"), O_WRONLY | O_CREAT, 0600);
	TRY("a file without a name", SYS_openat, AT_FDCWD, outside, O_WRONLY | O_TMPFILE, 0600);
	TRY("mkdir", SYS_mkdirat, AT_FDCWD, at("dir"), 0700);
	TRY("mknod", SYS_mknodat, AT_FDCWD, at("disk"), S_IFBLK | 0600, 0x700);
	TRY("symlink", SYS_symlinkat, "/", AT_FDCWD, at("symlink"));
	TRY("link", SYS_linkat, AT_FDCWD, at("secret"), AT_FDCWD, "/tmp/iopath-link", 0);
	TRY("rename", SYS_renameat2, AT_FDCWD, at("secret"), AT_FDCWD, "/tmp/iopath-renamed", 0);
	TRY("unlink", SYS_unlinkat, AT_FDCWD, at("secret"), 0);
	TRY("truncate", SYS_truncate, at("secret"), 0L);
	TRY("chmod", SYS_fchmodat, AT_FDCWD, at("secret"), 0777);
	TRY("chown", SYS_fchownat, AT_FDCWD, at("secret"), 1, 1, 0);
	TRY("setxattr", SYS_setxattr, at("secret"), "user.x", "x", 1, 0);
	TRY("utimensat", SYS_utimensat, AT_FDCWD, at("secret"), NULL, 0);
	if (settled) {
		TRY("open of what it may read", SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY, 0);
		TRY("open of the null device", SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
		TRY("openat2", SYS_openat2, AT_FDCWD, "/dev/null", NULL, 0);
	}
}

static void escape(void)
{
	if (always) {
		TRY("open of a secret", SYS_openat, AT_FDCWD, at("secret"), O_RDONLY, 0);
		TRY("socket, unix", SYS_socket, AF_UNIX, SOCK_STREAM, 0);
		return;
	}
	programs();
	others();
	kernel();
	network();
	files();
	dprintf(report, "tried %d\n", tried);
}

/* Whether the process has come so far. */
static int is_time(void)
{
	if (always)
		return 1;
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2)
		return 0;
	if (!settled)
		return 1;
	int opened = open("/dev/null", O_RDONLY);
	if (opened < 0)
		return 1;
	close(opened);
	return 0;
}

struct start {
	void *(*run)(void *);
	void *argument;
};

static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;

static void *started(void *argument)
{
	struct start start = *(struct start *)argument;
	free(argument);
	if (report >= 0 && pthread_mutex_trylock(&once) == 0) {
		if (!tried && is_time())
			escape();
		pthread_mutex_unlock(&once);
	}
	return start.run(start.argument);
}

/* Every thread of the process begins here. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
		   void *argument)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	struct start *start = malloc(sizeof *start);
	*start = (struct start){ run, argument };
	return real(thread, attributes, started, start);
}
