/* Makes an image with a file system, fills it, and checks it: build_image IMAGE [xfs] */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <iopath.h>

static int fail(const char *what, long result)
{
	fprintf(stderr, "%s: %s (%s)\n", what, iopath_last_error(), strerror((int)-result));
	return 1;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return fprintf(stderr, "usage: build_image IMAGE [xfs]\n"), 2;
	struct iopath_mkfs_options make = { .size = sizeof make, .label = "c" };
	make.xfs = argc > 2 && strcmp(argv[2], "xfs") == 0;
	int result = iopath_mkfs(argv[1], make.xfs ? 320 << 20 : 32 << 20, &make);
	if (result < 0)
		return fail("iopath_mkfs", result);

	struct iopath_open_options options = { .size = sizeof options, .write = 1 };
	struct iopath_fs *fs;
	if ((result = iopath_open(argv[1], &options, &fs)) < 0)
		return fail("iopath_open", result);
	if ((result = iopath_mkdir(fs, "/etc", 0755)) < 0)
		return fail("iopath_mkdir", result);
	struct iopath_file *file;
	if ((result = iopath_openfile(fs, "/etc/hostname", O_RDWR | O_CREAT, 0644, &file)) < 0)
		return fail("iopath_openfile", result);
	if ((result = (int)iopath_pwrite(file, (const uint8_t *)"box\n", 4, 0)) != 4)
		return fail("iopath_pwrite", result);
	if ((result = iopath_fsync(file)) < 0) /* from here on a power cut takes nothing away */
		return fail("iopath_fsync", result);
	iopath_fclose(file);

	if (iopath_openfile(fs, "/etc/passwd", O_RDONLY, 0, &file) != -ENOENT)
		return fprintf(stderr, "there is no such file\n"), 1;
	printf("%s\n", iopath_last_error()); /* the image, the path and the reason */

	if ((result = iopath_close(fs)) < 0)
		return fail("iopath_close", result);
	long findings = iopath_check(argv[1]);
	if (findings != 0)
		return fail("iopath_check", findings);
	return 0;
}
