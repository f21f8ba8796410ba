/* What is refused, and how: nothing of it may crash. refusals IMAGE, which exists and is ext4. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <iopath.h>

static int wrong;

static void expect(const char *what, long wanted, long got)
{
	if (wanted != got)
		wrong = printf("%s: %ld instead of %ld: %s\n", what, got, wanted, iopath_last_error());
}

int main(int argc, char **argv)
{
	struct iopath_fs *fs = NULL, *other = NULL;
	struct iopath_file *file = NULL;
	struct iopath_dir *dir = NULL;
	struct iopath_open_options options = { .size = sizeof options, .write = 1 }, small = { .size = 4 };
	uint8_t byte = 0;
	char text[4];
	if (argc != 2)
		return 2;
	expect("no path", -EINVAL, iopath_open(NULL, NULL, &fs));
	expect("no place for the result", -EINVAL, iopath_open(argv[1], NULL, NULL));
	expect("options of another version", -EINVAL, iopath_open(argv[1], &small, &fs));
	expect("no such image", -ENOENT, iopath_open("/none.img", NULL, &fs));
	expect("no file system", 1, iopath_open("/dev/null", NULL, &fs) < 0);
	expect("an image that exists", -EEXIST, iopath_mkfs(argv[1], 1 << 24, NULL));
	expect("open", 0, iopath_open(argv[1], &options, &fs));
	expect("open twice to write", -EBUSY, iopath_open(argv[1], &options, &other));
	expect("no handle", -EINVAL, iopath_sync(NULL));
	expect("no such file", -ENOENT, iopath_openfile(fs, "/none", O_RDONLY, 0, &file));
	expect("a flag", -EINVAL, iopath_openfile(fs, "/f", O_DIRECTORY, 0, &file));
	expect("a directory", -EISDIR, iopath_openfile(fs, "/", O_RDWR, 0, &file));
	expect("create", 0, iopath_openfile(fs, "/f", O_WRONLY | O_CREAT | O_EXCL, 0600, &file));
	expect("no buffer", -EINVAL, iopath_pwrite(file, NULL, 1, 0));
	expect("nothing", 0, iopath_pwrite(file, NULL, 0, 0));
	expect("opened to write", -EBADF, iopath_pread(file, &byte, 1, 0));
	expect("too far", -EFBIG, iopath_pwrite(file, &byte, 1, INT64_MAX));
	expect("opendir of a file", -ENOTDIR, iopath_opendir(fs, "/f", &dir));
	expect("symlink", 0, iopath_symlink(fs, "a target", "/s"));
	expect("readlink", 8, iopath_readlink(fs, "/s", (uint8_t *)text, sizeof text));
	expect("readlink, cut", 0, memcmp(text, "a ta", 4));
	expect("an attribute that is not there", -ENODATA,
	       iopath_getxattr(fs, "/f", "user.x", NULL, 0));
	expect("an attribute", 0, iopath_setxattr(fs, "/f", "user.x", &byte, 1));
	expect("its length", 1, iopath_getxattr(fs, "/f", "user.x", NULL, 0));
	char names[16];
	expect("no attributes", 0, iopath_listxattr(fs, "/", (uint8_t *)names, sizeof names));
	expect("names of a file that is not there", -ENOENT, iopath_listxattr(fs, "/g", NULL, 0));
	expect("the length of names", 7, iopath_listxattr(fs, "/f", NULL, 0));
	expect("names, cut", 7, iopath_listxattr(fs, "/f", (uint8_t *)text, sizeof text));
	expect("the part that fits", 0, memcmp(text, "user", 4));
	expect("a second attribute", 0, iopath_setxattr(fs, "/f", "user.y", &byte, 1));
	expect("names", 14, iopath_listxattr(fs, "/f", (uint8_t *)names, sizeof names));
	expect("each is there", 0,
	       memcmp(names, "user.x\0user.y", 14) && memcmp(names, "user.y\0user.x", 14));
	expect("remove", 0, iopath_removexattr(fs, "/f", "user.y"));
	expect("remove again", -ENODATA, iopath_removexattr(fs, "/f", "user.y"));
	expect("the other stays", 7, iopath_listxattr(fs, "/f", NULL, 0));
	struct iopath_time none = { .nanoseconds = 1000000000 };
	expect("a time that is none", -EINVAL, iopath_utimens(fs, "/f", &none, &none));
	expect("a directory that is not empty", 0, iopath_mkdir(fs, "/d", 0700));
	expect("a name in it", 0, iopath_link(fs, "/f", "/d/g"));
	expect("rmdir", -ENOTEMPTY, iopath_rmdir(fs, "/d"));
	expect("close of nothing", 0, iopath_close(NULL) + iopath_fclose(NULL) + iopath_closedir(NULL));
	expect("close while a file is open", -EBUSY, iopath_close(fs));
	expect("the file", 0, iopath_fclose(file));
	expect("then it is closed", 0, iopath_open(argv[1], NULL, &fs));
	expect("write to a reader", -EROFS, iopath_mkdir(fs, "/e", 0700));
	expect("close", 0, iopath_close(fs));
	expect("check", 0, iopath_check(argv[1]));
	if (!wrong)
		printf("as it should be\n");
	return wrong != 0;
}
