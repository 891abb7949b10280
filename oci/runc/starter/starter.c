//go:build ignore

/*
 * starter read|write FIFO PID COMMAND [ARGUMENT...]: starts a created container as COMMAND, `runc start` or
 * `crun start`, would: FIFO is the exec.fifo of the runtime's state, PID the container's first process. If that is not
 * possible, COMMAND is executed in its place.
 *
 * The first process of a container of runc blocks until a reader opens the FIFO, and then writes a byte ("read"). That
 * of a container of crun blocks until it reads a byte ("write"). When the byte has been transferred the container runs,
 * and the FIFO is removed: as long as it exists, the runtime takes the container for one that was not started.
 *
 * This is not done by podd because podd may be killed at any time. If the reader dies before the byte is written, the
 * first process of runc dies of it (EPIPE); if the writer dies before it has written, that of crun polls without end.
 * For the same reason a reader stays as long as the process lives, however long that is frozen or stopped: podd kills
 * the starter when its patience ends, as it would kill COMMAND. A COMMAND that took over would wait for a writer that
 * has come and gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* take reads the byte of runc's process, and reports whether there was one when the process ended. */
static int take(int fd, int process)
{
	struct pollfd on[] = { { .fd = fd, .events = POLLIN }, { .fd = process, .events = POLLIN } };
	char c;

	do {
		on[0].revents = on[1].revents = 0;
		poll(on, 2, -1);
		if (read(fd, &c, 1) == 1)
			return 1;
		if (on[0].revents & POLLHUP) /* it has closed its end: only its death is to come */
			on[0].fd = -1;
	} while (!on[1].revents);
	return 0;
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
static int release(int reads, const char *fifo, pid_t pid)
{
	struct stat st;
	/* First: once the FIFO is open, only its reader can go on. */
	int process = syscall(SYS_pidfd_open, pid, 0);
	/* Neither way waits for the other end. Without a reader, opening for writing fails. */
	int fd = process < 0 ? -1 :
		open(fifo, (reads ? O_RDONLY : O_WRONLY) | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return 0;
	return reads ? take(fd, process) : give(fd);
}

int main(int argc, char **argv)
{
	if (argc < 5 || (strcmp(argv[1], "read") && strcmp(argv[1], "write"))) {
		fprintf(stderr, "usage: starter read|write FIFO PID COMMAND [ARGUMENT...]\n");
		return 2;
	}
	if (!release(!strcmp(argv[1], "read"), argv[2], atoi(argv[3]))) {
		execv(argv[4], argv + 4);
		perror(argv[4]);
		return 1;
	}
	if (unlink(argv[2]) < 0 && errno != ENOENT) {
		perror(argv[2]);
		return 1;
	}
	return 0;
}
