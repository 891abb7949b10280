//go:build ignore

/*
 * The first process of a pod that shares a PID namespace: it holds the namespace, reaps the orphans that the
 * kernel hands to it, and ends at once on SIGTERM or SIGINT.
 *
 * It has no arguments, reads nothing, writes nothing.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	sigset_t set;

	/* The kernel drops signals that the first process of a PID namespace has no handler for, but never blocked
	 * ones: those stay pending until sigwait takes them. */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
		return 1;

	for (;;) {
		int sig;

		/* Children may have ended before the signals were blocked, and one SIGCHLD may stand for many. */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (sigwait(&set, &sig) != 0)
			return 1;
		if (sig == SIGTERM || sig == SIGINT)
			return 0;
	}
}
