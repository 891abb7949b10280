//go:build ignore

/*
 * The init proxy of a container that has no process of its own on the host, because it runs inside a sandbox with its
 * own kernel (gVisor). A monitor like conmon watches the init proxy as it would the container's first process.
 *
 * The monitor calls it instead of the runtime:
 *
 *   initproxy [--restore IMAGE] RUNTIME [GLOBAL FLAG...] -- COMMAND [ARGUMENT...]
 *
 * create: has the runtime create the container, forks a child, and writes the child's pid to the file that the monitor
 *   named. The child holds the container's stdin, stdout and stderr. It waits for a connection to the socket "start" in
 *   the bundle, has the runtime start the container with those streams, answers with one byte (0, or the runtime's exit
 *   status), waits for the container with the runtime's command wait, and exits with its exit status. With --restore
 *   the runtime restores the container from the directory IMAGE instead of starting it.
 * exec: executes the runtime without conmon's flag --tty, which runsc does not know and does not need.
 * All other commands: executes the runtime.
 *
 * It exits with 137, as after SIGKILL, if the sandbox is gone before the container has exited.
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

/* The directory to restore the container from, or NULL. */
static char *image;

/* The arguments before "--", with space for more after them. */
static char **global;
static int globals;

static int log_errno(const char *what)
{
	fprintf(stderr, "initproxy: %s: %s\n", what, strerror(errno));
	return BROKEN;
}

/* exec_runtime executes the runtime with these arguments, which end with NULL. */
static void exec_runtime(char **args)
{
	int n = globals;

	while (*args)
		global[n++] = *args++;
	global[n] = NULL;
	execv(global[0], global);
	_exit(log_errno(global[0]));
}

/* status waits for a child and returns its exit status as a shell would. */
static int status(pid_t pid)
{
	int ws;

	while (waitpid(pid, &ws, 0) < 0)
		if (errno != EINTR)
			return BROKEN;
	return WIFEXITED(ws) ? WEXITSTATUS(ws) : 128 + WTERMSIG(ws);
}

/* spawn runs the runtime. in, out and err become its descriptors 0 to 2, unless they are negative. */
static pid_t spawn(char **args, int in, int out, int err)
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
			_exit(log_errno("dup2"));
	exec_runtime(args);
	return -1;
}

/* wait_container has the runtime wait for the container. Its answer is {"id":"...","exitStatus":N}. */
static int wait_container(char *id, int null)
{
	char answer[4096], *n;
	char *args[] = { "wait", id, NULL };
	size_t len = 0;
	ssize_t got;
	pid_t pid;
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return BROKEN;
	pid = spawn(args, null, p[1], null);
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

/* monitor_container is what the child does. */
static int monitor_container(char *id, int sock, int terminal)
{
	char *start[] = { "start", id, NULL };
	char *restore[] = { "restore", "--detach", "--image-path", image, id, NULL };
	char **args = image ? restore : start;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), conn, code;
	unsigned char byte;
	pid_t pid;

	while ((conn = accept4(sock, NULL, NULL, SOCK_CLOEXEC)) < 0)
		if (errno != EINTR && errno != ECONNABORTED)
			return BROKEN;
	close(sock);
	pid = terminal ? spawn(args, null, null, null) : spawn(args, -1, -1, -1);
	code = pid < 0 ? BROKEN : status(pid);
	/* The sandbox holds the container's streams now: only then do they end when it closes them. */
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	byte = (unsigned char)code;
	while (write(conn, &byte, 1) < 0 && errno == EINTR)
		;
	close(conn);
	return code ? BROKEN : wait_container(id, null);
}

/* remove_arg removes an argument from the list. */
static void remove_arg(char **args, const char *word)
{
	char **to = args;

	for (; *args; args++)
		if (strcmp(*args, word))
			*to++ = *args;
	*to = NULL;
}

static int write_pid(const char *path, pid_t pid)
{
	char text[16];
	int n = snprintf(text, sizeof text, "%d", (int)pid);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, n) != n || close(fd) < 0)
		return log_errno(path);
	return 0;
}

/* listen_in makes the socket "start" in the bundle, by a relative path, which is never too long. */
static int listen_in(const char *bundle)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "start" };
	mode_t mask;
	int fd;

	if (chdir(bundle) < 0)
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	mask = umask(077);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1) < 0)
		fd = -1;
	umask(mask); /* the runtime's files have it: directories of mount points */
	return fd;
}

static int create(char **args, int n)
{
	char *pidfile = NULL, *bundle = ".";
	int terminal = 0, kept = 0, sock, code;
	char **runtime_args = calloc(n + 1, sizeof *runtime_args);
	sigset_t all;
	pid_t pid;

	if (!runtime_args)
		return BROKEN;
	for (int i = 0; i < n; i++) {
		if (!strcmp(args[i], "--pid-file") && i + 1 < n) {
			pidfile = args[++i];
			continue;
		}
		if (!strcmp(args[i], "--bundle") && i + 1 < n)
			bundle = args[i + 1];
		if (!strcmp(args[i], "--console-socket"))
			terminal = 1;
		runtime_args[kept++] = args[i];
	}
	if (!pidfile)
		return fprintf(stderr, "initproxy: create without --pid-file\n"), BROKEN;
	pid = spawn(runtime_args, -1, -1, -1);
	if (pid < 0)
		return log_errno("fork");
	if ((code = status(pid)) != 0)
		return code;
	if ((sock = listen_in(bundle)) < 0)
		return log_errno("socket in the bundle");
	/* The runtime sends signals to the container; the child takes only SIGKILL. */
	sigfillset(&all);
	sigdelset(&all, SIGCHLD);
	sigprocmask(SIG_BLOCK, &all, NULL);
	signal(SIGPIPE, SIG_IGN);
	pid = fork();
	if (pid < 0)
		return log_errno("fork");
	if (pid == 0) {
		if (terminal) /* the monitor has the terminal; these are for error messages */
			for (int i = 0, null = open("/dev/null", O_RDWR); i < 3; i++)
				dup2(null, i);
		_exit(monitor_container(args[n - 1], sock, terminal));
	}
	return write_pid(pidfile, pid);
}

int main(int argc, char **argv)
{
	int split = 1;

	if (argc > 2 && !strcmp(argv[1], "--restore")) {
		image = argv[2];
		argc -= 2;
		argv += 2;
	}
	while (split < argc && strcmp(argv[split], "--"))
		split++;
	if (split < 2 || split + 1 >= argc) {
		fprintf(stderr, "usage: initproxy [--restore IMAGE] RUNTIME [GLOBAL FLAG...] -- COMMAND [ARGUMENT...]\n");
		return BROKEN;
	}
	globals = split - 1;
	global = calloc(argc + 6, sizeof *global);
	if (!global)
		return BROKEN;
	memcpy(global, argv + 1, globals * sizeof *global);
	char **args = argv + split + 1;
	int n = argc - split - 1;

	if (!strcmp(args[0], "create"))
		return create(args, n);
	if (!strcmp(args[0], "exec"))
		remove_arg(args, "--tty");
	exec_runtime(args);
}
