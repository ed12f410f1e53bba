/* Each rank has a number; all of them learn the mean. And the mean of a gradient, of which every
 * rank sends a hundredth.
 *   gradwire run -n 4 -- build/mean        or mpirun, srun, torchrun --no-python, ... */
#include <gradwire/c.h>
#include <stdio.h>

#define CHECK(call)                                              \
  do {                                                           \
    if ((call) != GW_OK) {                                       \
      fprintf(stderr, "mean: %s: %s\n", #call, gw_last_error()); \
      return 1;                                                  \
    }                                                            \
  } while (0)

int main(void) {
  gw_comm* comm = NULL;
  CHECK(gw_init_env(NULL, &comm));
  const int rank = gw_comm_rank(comm), size = gw_comm_size(comm);

  double number = rank, mean = 0;
  gw_work* work = NULL;
  CHECK(gw_all_reduce(comm, &number, &mean, 1, GW_F64, GW_MEAN, NULL, &work));
  CHECK(gw_work_wait(work, -1)); /* something else could be done before */
  gw_work_free(work);

  static float gradient[100 * 100];
  for (int i = 0; i < 100 * 100; ++i) gradient[i] = (float)((i * 7 + rank) % 100);
  const gw_tensor_info tensor = {"weight", GW_F32, 2, {100, 100, 0, 0}};
  const gw_gradient submitted = {0, gradient};
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  options.compressor = "topk:ratio=0.01,ef=ef14";
  gw_aggregator* aggregator = NULL;
  CHECK(gw_aggregator_create(comm, &tensor, 1, &options, &aggregator));
  CHECK(gw_aggregator_submit(aggregator, &submitted, 1, NULL));
  gw_aggregator_stats stats = GW_AGGREGATOR_STATS_INIT;
  CHECK(gw_aggregator_flush(aggregator));
  CHECK(gw_aggregator_get_stats(aggregator, &stats));
  if (rank == 0) {
    printf("mean of %d ranks: %g; gradient of %llu bytes as %llu\n", size, mean,
           (unsigned long long)stats.gradient_bytes, (unsigned long long)stats.payload_bytes);
  }
  gw_aggregator_free(aggregator);
  gw_comm_free(comm);
  return 0;
}
