/* Installed setuid root: says which user it runs as, which no_new_privs decides. */
#include <stdio.h>
#include <unistd.h>

int main(void) {
	printf("Effective uid: %d\n", geteuid());
	return 0;
}
