/*
 * libiopath: files inside ext2, ext3, ext4 and XFS images, without a kernel mount.
 *
 * Results: 0 or a count; below 0 an errno with its sign turned (-ENOENT). iopath_last_error() has
 * the words for it, with the place: they are of the calling thread, until its next call that fails.
 *
 * Threads: every function may be called from any thread, and handles may be shared between
 * threads, but for two: an iopath_dir is of one thread at a time, and a handle must not be closed
 * while another thread uses it. No function returns before the file system has done it; all may
 * block for the device.
 *
 * Processes: a handle is not for a child after fork(2): the library has threads of its own while an
 * image is open for writing.
 *
 * Paths are bytes, begin at the root of the file system, and symbolic links never lead out of it.
 * The library writes to no stream, handles no signal, never exits and has no global state.
 *
 * Made by cbindgen from crates/capi; `cargo xtask c` compares.
 */

#ifndef IOPATH_H
#define IOPATH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * An open directory, for one thread at a time.
 */
struct iopath_dir;

/**
 * An open file.
 */
struct iopath_file;

/**
 * A mounted file system.
 */
struct iopath_fs;

/**
 * A name of a directory.
 */
struct iopath_dirent {
  /**
   * Inode number.
   */
  uint64_t ino;
  /**
   * The bits of S_IFMT, or 0 where the directory does not record them.
   */
  uint32_t type_;
  /**
   * Bytes of the name, without the zero at its end.
   */
  uint32_t name_len;
  /**
   * The name; valid until the next call on this directory.
   */
  const char *name;
};

/**
 * A time since 1970, UTC.
 */
struct iopath_time {
  /**
   * Seconds, below 0 before 1970.
   */
  int64_t seconds;
  /**
   * Nanoseconds after it, 0 to 999,999,999.
   */
  uint32_t nanoseconds;
  /**
   * 0, or 1 where the format does not record this time.
   */
  uint32_t missing;
};

/**
 * The attributes of a file.
 */
struct iopath_stat {
  /**
   * Inode number.
   */
  uint64_t ino;
  /**
   * Bytes; of a symbolic link the length of its target.
   */
  uint64_t size;
  /**
   * Space that it takes, in units of 512 bytes.
   */
  uint64_t blocks;
  /**
   * The device that a device node stands for, as makedev(3) makes it.
   */
  uint64_t rdev;
  /**
   * Type and permission bits, as st_mode.
   */
  uint32_t mode;
  /**
   * Names.
   */
  uint32_t nlink;
  /**
   * Owner.
   */
  uint32_t uid;
  /**
   * Group.
   */
  uint32_t gid;
  /**
   * The best unit of transfers, bytes.
   */
  uint32_t blksize;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * Last read.
   */
  struct iopath_time atime;
  /**
   * Last change of the content.
   */
  struct iopath_time mtime;
  /**
   * Last change of the inode.
   */
  struct iopath_time ctime;
  /**
   * Birth.
   */
  struct iopath_time btime;
};

/**
 * How an image is opened. Zeros are the defaults.
 */
struct iopath_open_options {
  /**
   * sizeof(struct iopath_open_options).
   */
  uint32_t size;
  /**
   * Not 0: for writing too. The journal is replayed on the image, which is locked.
   */
  uint32_t write;
  /**
   * Not 0: past the page cache of the host (O_DIRECT).
   */
  uint32_t direct;
  /**
   * The partition, counted from 1; 0: the whole image.
   */
  uint32_t partition;
  /**
   * Bytes of memory for cached content; 0: 256 MiB.
   */
  uint64_t cache_size;
};

/**
 * Space of a file system.
 */
struct iopath_space {
  /**
   * Bytes for content in total.
   */
  uint64_t bytes;
  /**
   * Bytes that are free.
   */
  uint64_t bytes_free;
  /**
   * Bytes that are free for users other than root.
   */
  uint64_t bytes_available;
  /**
   * Inodes in total.
   */
  uint64_t inodes;
  /**
   * Free inodes.
   */
  uint64_t inodes_free;
  /**
   * Size of a block, bytes.
   */
  uint32_t block_size;
  /**
   * Longest name, bytes.
   */
  uint32_t name_max;
};

/**
 * What a new file system is like. Zeros are the defaults.
 */
struct iopath_mkfs_options {
  /**
   * sizeof(struct iopath_mkfs_options).
   */
  uint32_t size;
  /**
   * Not 0: XFS; else ext4.
   */
  uint32_t xfs;
  /**
   * Not 0: an image that exists is overwritten.
   */
  uint32_t overwrite;
  /**
   * 0, for the future.
   */
  uint32_t reserved;
  /**
   * Label, or NULL.
   */
  const char *label;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of this interface: programs that were compiled with the same number work with it.
 */
int iopath_abi_version(void);

/**
 * The version of the library, for people.
 */
const char *iopath_version(void);

/**
 * Opens a directory. `*out` is closed with iopath_closedir.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_opendir(const struct iopath_fs *fs, const char *name, struct iopath_dir **out);

/**
 * The next name, without `.` and `..`: 1, or 0 at the end.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_readdir(struct iopath_dir *dir, struct iopath_dirent *out);

/**
 * Frees the handle.
 *
 * # Safety
 * See the head of the header. NULL is allowed.
 */
int iopath_closedir(struct iopath_dir *dir);

/**
 * The words of this thread's last error: the place and the reason. Valid until the thread's next
 * call that fails; empty where none has. Never fails.
 */
const char *iopath_last_error(void);

/**
 * Opens a file. `flags` as of open(2): O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC,
 * O_APPEND; others are refused with -EINVAL. `mode` is for a new file. `*out` is closed with
 * iopath_fclose.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_openfile(const struct iopath_fs *fs,
                    const char *name,
                    int flags,
                    uint32_t mode,
                    struct iopath_file **out);

/**
 * Frees the handle. What was written is on the image after iopath_fsync, iopath_sync or
 * iopath_close, or some seconds later.
 *
 * # Safety
 * See the head of the header. NULL is allowed.
 */
int iopath_fclose(struct iopath_file *file);

/**
 * Reads up to `count` bytes at `offset`: how many there were, 0 at the end.
 *
 * # Safety
 * See the head of the header; `buffer` is memory of `count` bytes.
 */
int64_t iopath_pread(const struct iopath_file *file,
                     uint8_t *buffer,
                     size_t count,
                     uint64_t offset);

/**
 * Writes up to `count` bytes at `offset` (O_APPEND: at the end): how many were taken.
 *
 * Errors: -ENOSPC, -EDQUOT, -EFBIG; -EBADF: opened for reading.
 *
 * # Safety
 * See the head of the header; `buffer` is memory of `count` bytes.
 */
int64_t iopath_pwrite(const struct iopath_file *file,
                      const uint8_t *buffer,
                      size_t count,
                      uint64_t offset);

/**
 * Returns when the file is on the image: its data, size and attributes.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_fsync(const struct iopath_file *file);

/**
 * Sets the size in bytes: cuts the file, or lets it grow by a hole.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_ftruncate(const struct iopath_file *file, uint64_t size);

/**
 * The attributes of an open file.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_fstat(const struct iopath_file *file, struct iopath_stat *out);

/**
 * Opens an image file or block device and mounts what is on it. `options` may be NULL. `*out` is
 * closed with iopath_close.
 *
 * Errors: -ENOENT, -EACCES of the host; -EBUSY: another process has it; -EUCLEAN: damaged;
 * -EOPNOTSUPP: a feature that is refused, by name in iopath_last_error.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_open(const char *image,
                const struct iopath_open_options *options,
                struct iopath_fs **out);

/**
 * Writes everything out, unmounts, and frees the handle, whatever the result.
 *
 * Errors: -EBUSY: files or directories are open; the file system is unmounted when the last of
 * them is closed. -EIO, -ENOSPC: not everything could be written, and iopath_last_error says what.
 *
 * # Safety
 * See the head of the header. NULL is allowed.
 */
int iopath_close(struct iopath_fs *fs);

/**
 * Commits all changes, and returns when they are on the image.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_sync(const struct iopath_fs *fs);

/**
 * Space and inodes.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_statfs(const struct iopath_fs *fs, struct iopath_space *out);

/**
 * Makes an image of `bytes` bytes with an empty file system. `options` may be NULL.
 *
 * Errors: -EEXIST, unless overwrite is set; -EINVAL: too small; -ENOSPC of the host.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_mkfs(const char *image, uint64_t bytes, const struct iopath_mkfs_options *options);

/**
 * Checks an image without changing it: how many findings there are, 0 where it is clean. The first
 * of them is in iopath_last_error.
 *
 * # Safety
 * See the head of the header.
 */
int64_t iopath_check(const char *image);

/**
 * The attributes of a path; where `follow` is 0, of a symbolic link itself.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_getattr(const struct iopath_fs *fs,
                   const char *name,
                   int follow,
                   struct iopath_stat *out);

/**
 * Makes a directory.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_mkdir(const struct iopath_fs *fs, const char *name, uint32_t mode);

/**
 * Removes a name that is no directory.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_unlink(const struct iopath_fs *fs, const char *name);

/**
 * Removes an empty directory.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_rmdir(const struct iopath_fs *fs, const char *name);

/**
 * Renames; what has the new name is replaced.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_rename(const struct iopath_fs *fs, const char *from, const char *to);

/**
 * Gives a file a further name.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_link(const struct iopath_fs *fs, const char *original, const char *link);

/**
 * Makes a symbolic link to `target`, which need not exist.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_symlink(const struct iopath_fs *fs, const char *target, const char *link);

/**
 * The target of a symbolic link: its length, which may be more than `count`; as much of it as
 * there is room for is copied, without a zero.
 *
 * # Safety
 * See the head of the header; `buffer` is memory of `count` bytes.
 */
int64_t iopath_readlink(const struct iopath_fs *fs,
                        const char *name,
                        uint8_t *buffer,
                        size_t count);

/**
 * Sets permission, set-id and sticky bits.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_chmod(const struct iopath_fs *fs, const char *name, uint32_t mode);

/**
 * Sets owner and group; (uint32_t)-1 leaves what is there. Where `follow` is 0, of a symbolic link
 * itself.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_chown(const struct iopath_fs *fs,
                 const char *name,
                 uint32_t uid,
                 uint32_t gid,
                 int follow);

/**
 * Sets the times of the last read and of the last change.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_utimens(const struct iopath_fs *fs,
                   const char *name,
                   const struct iopath_time *atime,
                   const struct iopath_time *mtime);

/**
 * The value of an extended attribute, `key` with its prefix (user.x): its length, which may be
 * more than `count`; as much of it as there is room for is copied.
 *
 * # Safety
 * See the head of the header; `buffer` is memory of `count` bytes.
 */
int64_t iopath_getxattr(const struct iopath_fs *fs,
                        const char *name,
                        const char *key,
                        uint8_t *buffer,
                        size_t count);

/**
 * The names of all extended attributes, with their prefixes and each with a zero behind it, in no
 * particular order: their length in bytes, which may be more than `count`; as much of it as there
 * is room for is copied. The last name may then be cut. A file without attributes has 0 bytes.
 *
 * # Safety
 * See the head of the header; `buffer` is memory of `count` bytes.
 */
int64_t iopath_listxattr(const struct iopath_fs *fs,
                         const char *name,
                         uint8_t *buffer,
                         size_t count);

/**
 * Sets an extended attribute, `key` with its prefix (user.x).
 *
 * # Safety
 * See the head of the header; `value` is memory of `count` bytes.
 */
int iopath_setxattr(const struct iopath_fs *fs,
                    const char *name,
                    const char *key,
                    const uint8_t *value,
                    size_t count);

/**
 * Removes an extended attribute, `key` with its prefix (user.x).
 *
 * Errors: -ENODATA: the file has none of this name.
 *
 * # Safety
 * See the head of the header.
 */
int iopath_removexattr(const struct iopath_fs *fs, const char *name, const char *key);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IOPATH_H */
