/* That what a test counts in one rank fails the program. */
#include <gradwire/c.h>

#include "checks.h"
#include "ranks.h"

static void fail_on_rank_1(gw_comm* comm) { GW_CHECK_THAT(gw_comm_rank(comm) != 1); }

int main(void) {
  const int failed = run_ranks(2, "tcp", BY_UNIQUE_ID, fail_on_rank_1);
  if (failed == 1) return 0;
  fprintf(stderr, "%d ranks failed (1 wanted)\n", failed);
  return 1;
}
