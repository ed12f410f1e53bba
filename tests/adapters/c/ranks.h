/* Ranks that are processes, for tests in C: fork, meet by a unique id in shared memory, run. */
#ifndef TESTS_ADAPTERS_C_RANKS_H
#define TESTS_ADAPTERS_C_RANKS_H

#include <gradwire/c.h>

/* What every rank runs; its failures are counted in checks.h. */
typedef void (*rank_body)(gw_comm* comm);

/* How the ranks of a job meet. */
typedef enum meeting { BY_UNIQUE_ID, BY_ALL_GATHER, BY_STORE } meeting;

/* Starts so many processes with this transport and waits for them, 120 seconds at most. The number
 * of those that failed. */
int run_ranks(int size, const char* transport, meeting how, rank_body body);

#endif
