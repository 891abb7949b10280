//go:build ignore

/*
 * starter read|write FIFO COMMAND [ARGUMENT...]: starts a created container as COMMAND, `runc start` or `crun start`,
 * would: FIFO is the exec.fifo of the runtime's state. If that is not possible, COMMAND is executed in its place.
 *
 * The first process of a container of runc blocks until a reader opens the FIFO, and then writes a byte ("read"). That
 * of a container of crun blocks until it reads a byte ("write"). When the byte has been transferred the container runs,
 * and the FIFO is removed: as long as it exists, the runtime takes the container for one that was not started.
 *
 * This is not done by podd because podd may be killed at any time. If the reader dies before the byte is written, the
 * first process of runc dies of it (EPIPE); if the writer dies before it has written, that of crun polls without end.
 * For the same reason the descriptor stays open when COMMAND is executed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a process of runc may take to write. A frozen one does not. */
enum { PATIENCE_MS = 2000 };

/* take reads the byte of runc's process, and reports whether there was one. */
static int take(int fd)
{
	struct pollfd in = { .fd = fd, .events = POLLIN };
	char c;
	int ready;

	do
		ready = poll(&in, 1, PATIENCE_MS);
	while (ready < 0 && errno == EINTR);
	return ready == 1 && read(fd, &c, 1) == 1;
}

/* give writes the byte for crun's process, and reports whether it could. */
static int give(int fd)
{
	int written;

	signal(SIGPIPE, SIG_IGN);
	written = write(fd, "", 1);
	signal(SIGPIPE, SIG_DFL);
	return written == 1;
}

/* release has the container's first process go on, and reports whether it does. */
static int release(int reads, const char *fifo)
{
	struct stat st;
	/* Neither waits for the other end. Without a reader, opening for writing fails. */
	int fd = open(fifo, (reads ? O_RDONLY : O_WRONLY) | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return 0;
	return reads ? take(fd) : give(fd);
}

int main(int argc, char **argv)
{
	if (argc < 4 || (strcmp(argv[1], "read") && strcmp(argv[1], "write"))) {
		fprintf(stderr, "usage: starter read|write FIFO COMMAND [ARGUMENT...]\n");
		return 2;
	}
	if (!release(!strcmp(argv[1], "read"), argv[2])) {
		execv(argv[3], argv + 3);
		perror(argv[3]);
		return 1;
	}
	if (unlink(argv[2]) < 0 && errno != ENOENT) {
		perror(argv[2]);
		return 1;
	}
	return 0;
}
