/* The pause of the test images: waits, reaps what is left to it, ends at SIGTERM or SIGINT. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int sig) { _exit(sig == SIGINT ? 130 : 0); }
static void reap(int sig) {
	(void)sig;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(void) {
	signal(SIGTERM, end);
	signal(SIGINT, end);
	signal(SIGCHLD, reap);
	for (;;)
		pause();
}
