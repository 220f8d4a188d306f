/* `edgehub serve`: options, set-up, the loop, the end. */
#ifndef EDGEWARD_HUB_SERVE_H
#define EDGEWARD_HUB_SERVE_H

/* argv[0] is "serve". Returns the exit code. */
int serve_main(int argc, char *argv[], const char *datadir, const char *sock);

#endif
