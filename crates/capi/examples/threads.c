/* Four threads write and read their own files of one image; then all names are listed: threads IMAGE */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <iopath.h>

static struct iopath_fs *fs;

static void *work(void *argument)
{
	char path[32];
	uint8_t block[8192], back[8192];
	struct iopath_file *file;
	int number = *(int *)argument;
	snprintf(path, sizeof path, "/thread-%d", number);
	memset(block, number, sizeof block);
	if (iopath_openfile(fs, path, O_RDWR | O_CREAT | O_TRUNC, 0600, &file) < 0)
		return "open";
	for (uint64_t at = 0; at < 64; at++)
		if (iopath_pwrite(file, block, sizeof block, at * sizeof block) != sizeof block)
			return "write";
	for (uint64_t at = 0; at < 64; at++)
		if (iopath_pread(file, back, sizeof back, at * sizeof back) != sizeof back ||
		    memcmp(block, back, sizeof back) != 0)
			return "read";
	/* Errors are of the thread that got them. */
	struct iopath_stat stat;
	snprintf(path, sizeof path, "/none-%d", number);
	if (iopath_getattr(fs, path, 1, &stat) == 0 || !strstr(iopath_last_error(), path))
		return "error";
	iopath_fclose(file);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	int numbers[4] = { 1, 2, 3, 4 }, failed = 0;
	struct iopath_open_options options = { .size = sizeof options, .write = 1 };
	if (argc != 2 || iopath_open(argv[1], &options, &fs) < 0)
		return fprintf(stderr, "threads IMAGE: %s\n", iopath_last_error()), 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, &numbers[i]);
	for (int i = 0; i < 4; i++) {
		void *what;
		pthread_join(threads[i], &what);
		if (what)
			failed = fprintf(stderr, "thread %d: %s\n", i + 1, (char *)what);
	}
	struct iopath_dir *dir;
	struct iopath_dirent entry;
	iopath_opendir(fs, "/", &dir);
	while (iopath_readdir(dir, &entry) > 0) {
		struct iopath_stat stat;
		iopath_getattr(fs, entry.name, 0, &stat);
		printf("%s%s %" PRIu64 "\n", entry.name, S_ISDIR(stat.mode) ? "/" : "", stat.size);
	}
	iopath_closedir(dir);
	if (iopath_close(fs) < 0)
		failed = fprintf(stderr, "%s\n", iopath_last_error());
	return failed != 0;
}
