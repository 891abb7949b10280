//go:build ignore

/*
 * thaw SECONDS FILE=VALUE...: thaws a container when the daemon that froze it lets go of it, dies or takes too long.
 *
 * Standard input is a pipe of the daemon. A line on it is the process group of a program that works on the frozen
 * container, 0 for none. At the end of the input, or after SECONDS, the group is killed with SIGKILL, and each VALUE is
 * written to its FILE. A killed CRIU may just have frozen the cgroup again, so after a kill this is repeated.
 *
 * The group gets some time to end by itself before: CRIU has the frozen processes execute code of its own at first, and
 * a process does not survive a kill of CRIU in that moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 10, PAUSE_MS = 50, PATIENCE_MS = 2000 };

static long long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* read_group reads lines until the end of the input or the deadline, and returns the last group. */
static pid_t read_group(long long deadline)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	pid_t group = 0, next = 0;

	for (;;) {
		long long left = deadline - milliseconds();
		int ready = left > 0 ? poll(&in, 1, left) : 0;
		char c;

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0 || read(0, &c, 1) != 1)
			return group;
		if (c >= '0' && c <= '9') {
			next = next * 10 + (c - '0');
		} else {
			group = next;
			next = 0;
		}
	}
}

/* await_end returns when no process of the group is left, or after PATIENCE_MS. */
static void await_end(pid_t group)
{
	struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };
	long long deadline = milliseconds() + PATIENCE_MS;

	while (kill(-group, 0) == 0 && milliseconds() < deadline)
		nanosleep(&pause, NULL);
}

/* thaw writes the values. */
static void thaw(char **files)
{
	for (; *files; files++) {
		char *value = strrchr(*files, '=');
		int fd;

		if (!value)
			continue;
		*value = 0;
		fd = open(*files, O_WRONLY | O_CLOEXEC);
		*value = '=';
		if (fd < 0)
			continue;
		if (write(fd, value + 1, strlen(value + 1)) < 0)
			perror(*files);
		close(fd);
	}
}

int main(int argc, char **argv)
{
	struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };
	pid_t group;
	int round;

	if (argc < 3) {
		fprintf(stderr, "usage: thaw SECONDS FILE=VALUE...\n");
		return 2;
	}
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	group = read_group(milliseconds() + atoll(argv[1]) * 1000);
	if (group > 1)
		await_end(group);
	for (round = 0; round < (group > 1 ? ROUNDS : 1); round++) {
		if (group > 1) {
			kill(-group, SIGKILL);
			nanosleep(&pause, NULL);
		}
		thaw(argv + 2);
	}
	return 0;
}
