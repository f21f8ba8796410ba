/* Prints a file out of an image: read_file IMAGE PATH */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <iopath.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return fprintf(stderr, "usage: read_file IMAGE PATH\n"), 2;
	struct iopath_fs *fs = NULL;
	struct iopath_file *file = NULL;
	uint8_t buffer[65536];
	uint64_t offset = 0;
	int64_t count = iopath_open(argv[1], NULL, &fs);
	if (count == 0)
		count = iopath_openfile(fs, argv[2], O_RDONLY, 0, &file);
	while (count >= 0 && (count = iopath_pread(file, buffer, sizeof buffer, offset)) > 0) {
		fwrite(buffer, 1, (size_t)count, stdout);
		offset += (uint64_t)count;
	}
	if (count < 0)
		fprintf(stderr, "read_file: %s\n", iopath_last_error());
	iopath_fclose(file);
	iopath_close(fs);
	return count < 0;
}
