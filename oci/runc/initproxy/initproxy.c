//go:build ignore

/*
 * Stands in for a container that has no process of its own on the host, because it runs inside a sandbox with a
 * kernel of its own (gVisor), so that a monitor like conmon can watch it like any other.
 *
 * The monitor calls it in place of the runtime:   standin RUNTIME [GLOBAL FLAG...] -- VERB [ARGUMENT...]
 *
 * create: has the runtime create the container, and leaves a child behind whose pid it writes to the file that the
 *   monitor named. The child holds the container's stdin, stdout and stderr. It waits for somebody to connect to the
 *   socket "start" in the bundle, then has the runtime start the container with those, answers with one byte (0, or
 *   the runtime's exit status), waits for the container with the runtime's verb wait, and ends with its exit status.
 * exec: becomes the runtime, without conmon's flag --tty, which runsc does not know and does not need.
 * All other verbs: becomes the runtime.
 *
 * It ends with 137, as of SIGKILL, when the sandbox is gone before the container has ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLED = 137, BROKEN = 128 };

/* The words before "--", with room for more after them. */
static char **global;
static int globals;

static int complain(const char *what)
{
	fprintf(stderr, "standin: %s: %s\n", what, strerror(errno));
	return BROKEN;
}

/* become replaces this process by the runtime with that verb; words ends with NULL. */
static void become(char **words)
{
	int n = globals;

	while (*words)
		global[n++] = *words++;
	global[n] = NULL;
	execv(global[0], global);
	_exit(complain(global[0]));
}

/* status waits for a child and tells its exit status as a shell would. */
static int status(pid_t pid)
{
	int ws;

	while (waitpid(pid, &ws, 0) < 0)
		if (errno != EINTR)
			return BROKEN;
	return WIFEXITED(ws) ? WEXITSTATUS(ws) : 128 + WTERMSIG(ws);
}

/* spawn runs the runtime. in, out and err become its descriptors 0 to 2, unless they are negative. */
static pid_t spawn(char **words, int in, int out, int err)
{
	int fd[3] = { in, out, err };
	pid_t parent = getpid(), pid = fork();
	sigset_t none;

	if (pid != 0)
		return pid;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(KILLED);
	for (int i = 0; i < 3; i++)
		if (fd[i] >= 0 && dup2(fd[i], i) < 0)
			_exit(complain("dup2"));
	become(words);
	return -1;
}

/* await has the runtime wait for the container. Its answer is {"id":"...","exitStatus":N}. */
static int await(char *id, int null)
{
	char answer[4096], *n;
	char *words[] = { "wait", id, NULL };
	size_t len = 0;
	ssize_t got;
	pid_t pid;
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return BROKEN;
	pid = spawn(words, null, p[1], null);
	close(p[1]);
	if (pid < 0)
		return BROKEN;
	while ((got = read(p[0], answer + len, sizeof answer - 1 - len)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 || (len += got) == sizeof answer - 1)
			break;
	}
	answer[len] = 0;
	close(p[0]);
	n = strstr(answer, "\"exitStatus\":");
	if (status(pid) != 0 || !n)
		return KILLED;
	return atoi(n + strlen("\"exitStatus\":"));
}

/* stay is the life of the child. */
static int stay(char *id, int sock, int terminal)
{
	char *words[] = { "start", id, NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), conn, code;
	unsigned char byte;
	pid_t pid;

	while ((conn = accept4(sock, NULL, NULL, SOCK_CLOEXEC)) < 0)
		if (errno != EINTR && errno != ECONNABORTED)
			return BROKEN;
	close(sock);
	pid = terminal ? spawn(words, null, null, null) : spawn(words, -1, -1, -1);
	code = pid < 0 ? BROKEN : status(pid);
	/* The sandbox holds the container's streams now: they must end when it closes them. */
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	byte = (unsigned char)code;
	while (write(conn, &byte, 1) < 0 && errno == EINTR)
		;
	close(conn);
	return code ? BROKEN : await(id, null);
}

/* drop takes a word out of the list. */
static void drop(char **words, const char *word)
{
	char **to = words;

	for (; *words; words++)
		if (strcmp(*words, word))
			*to++ = *words;
	*to = NULL;
}

static int write_pid(const char *path, pid_t pid)
{
	char text[16];
	int n = snprintf(text, sizeof text, "%d", (int)pid);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, n) != n || close(fd) < 0)
		return complain(path);
	return 0;
}

/* listen_in makes the socket "start" in the bundle, by a relative name: those are not cut off at 107 bytes. */
static int listen_in(const char *bundle)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "start" };
	int fd;

	if (chdir(bundle) < 0)
		return -1;
	umask(077);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1) < 0)
		return -1;
	return fd;
}

static int create(char **words, int n)
{
	char *pidfile = NULL, *bundle = ".";
	int terminal = 0, kept = 0, sock, code;
	char **args = calloc(n + 1, sizeof *args);
	sigset_t all;
	pid_t pid;

	if (!args)
		return BROKEN;
	for (int i = 0; i < n; i++) {
		if (!strcmp(words[i], "--pid-file") && i + 1 < n) {
			pidfile = words[++i];
			continue;
		}
		if (!strcmp(words[i], "--bundle") && i + 1 < n)
			bundle = words[i + 1];
		if (!strcmp(words[i], "--console-socket"))
			terminal = 1;
		args[kept++] = words[i];
	}
	if (!pidfile)
		return fprintf(stderr, "standin: create without --pid-file\n"), BROKEN;
	pid = spawn(args, -1, -1, -1);
	if (pid < 0)
		return complain("fork");
	if ((code = status(pid)) != 0)
		return code;
	if ((sock = listen_in(bundle)) < 0)
		return complain("socket in the bundle");
	/* What is meant for the container comes by way of the runtime; only SIGKILL is for the child. */
	sigfillset(&all);
	sigdelset(&all, SIGCHLD);
	sigprocmask(SIG_BLOCK, &all, NULL);
	signal(SIGPIPE, SIG_IGN);
	pid = fork();
	if (pid < 0)
		return complain("fork");
	if (pid == 0) {
		if (terminal) /* the terminal has gone to the monitor; what is here is for complaints */
			for (int i = 0, null = open("/dev/null", O_RDWR); i < 3; i++)
				dup2(null, i);
		_exit(stay(words[n - 1], sock, terminal));
	}
	return write_pid(pidfile, pid);
}

int main(int argc, char **argv)
{
	int split = 1;

	while (split < argc && strcmp(argv[split], "--"))
		split++;
	if (split < 2 || split + 1 >= argc) {
		fprintf(stderr, "usage: standin RUNTIME [GLOBAL FLAG...] -- VERB [ARGUMENT...]\n");
		return BROKEN;
	}
	globals = split - 1;
	global = calloc(argc + 4, sizeof *global);
	if (!global)
		return BROKEN;
	memcpy(global, argv + 1, globals * sizeof *global);
	char **words = argv + split + 1;
	int n = argc - split - 1;

	if (!strcmp(words[0], "create"))
		return create(words, n);
	if (!strcmp(words[0], "exec"))
		drop(words, "--tty");
	become(words);
}
