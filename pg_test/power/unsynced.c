/*
 * The writes of a server that are not yet durable, for tests of power failures: a library that is preloaded into the server.
 * It traces each write to a regular file and each fsync, a line each; perl/PowerLoss.pm derives the data that may be lost.
 *
 *   W file offset length     a write follows
 *   B file, E file           an fsync begins, and has succeeded: writes before the B are durable
 *   T file length            the file will be truncated to this length
 *
 * A file is its inode's number and time of birth, since inode numbers are reused. Each line except E is written before its
 * action. So data may count as durable a moment too early, never too late, and a test never loses data that
 * could not be lost.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int trace = -1;

static void *next(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (function == NULL)
		abort();
	return function;
}

/* Appends a line about a regular file, in one write. */
static void tell(int fd, const char *format, ...)
{
	static ssize_t (*to_trace) (int, const void *, size_t);
	struct statx file;
	char line[160];
	int saved = errno;
	int length;
	va_list arguments;

	if (trace < 0)
	{
		const char *path = getenv("UNSYNCED_TRACE");

		if (path == NULL)
			return;
		to_trace = next("write");
		/* Not counted or closed by the server. */
		int opened = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);

		if (opened < 0)
			abort();
		trace = fcntl(opened, F_DUPFD_CLOEXEC, 900);
		close(opened);
		if (trace < 0)
			abort();
	}
	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_BTIME, &file) == 0 && S_ISREG(file.stx_mode))
	{
		length = snprintf(line, sizeof line, "%c %llu.%lld.%u", format[0], (unsigned long long) file.stx_ino,
						  (long long) file.stx_btime.tv_sec, file.stx_btime.tv_nsec);
		va_start(arguments, format);
		length += vsnprintf(line + length, sizeof line - length, format + 1, arguments);
		va_end(arguments);
		if (to_trace(trace, line, length) != length)
			abort();
	}
	errno = saved;
}

static size_t total(const struct iovec *parts, int count)
{
	size_t length = 0;

	for (int i = 0; i < count; i++)
		length += parts[i].iov_len;
	return length;
}

#define WRITE(name, offset_type) \
	ssize_t name(int fd, const void *bytes, size_t length, offset_type offset) \
	{ \
		static ssize_t (*real) (int, const void *, size_t, offset_type); \
		if (real == NULL) \
			real = next(#name); \
		tell(fd, "W %lld %zu\n", (long long) offset, length); \
		return real(fd, bytes, length, offset); \
	}

#define WRITE_PARTS(name, offset_type) \
	ssize_t name(int fd, const struct iovec *parts, int count, offset_type offset) \
	{ \
		static ssize_t (*real) (int, const struct iovec *, int, offset_type); \
		if (real == NULL) \
			real = next(#name); \
		tell(fd, "W %lld %zu\n", (long long) offset, total(parts, count)); \
		return real(fd, parts, count, offset); \
	}

#define SYNC(name) \
	int name(int fd) \
	{ \
		static int (*real) (int); \
		int result; \
		if (real == NULL) \
			real = next(#name); \
		tell(fd, "B\n"); \
		result = real(fd); \
		if (result == 0) \
			tell(fd, "E\n"); \
		return result; \
	}

#define CUT(name, offset_type) \
	int name(int fd, offset_type length) \
	{ \
		static int (*real) (int, offset_type); \
		if (real == NULL) \
			real = next(#name); \
		tell(fd, "T %lld\n", (long long) length); \
		return real(fd, length); \
	}

WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)
WRITE_PARTS(pwritev, off_t)
WRITE_PARTS(pwritev64, off64_t)
SYNC(fsync)
SYNC(fdatasync)
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)
