/* What a rank's fork() may do to the handles of the C API: the child frees its copies, and the
 * parent's go on as if nothing had been. */
#define _DEFAULT_SOURCE
#include <gradwire/c.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "ranks.h"

enum { kTensors = 2, kElems = 5000, kChildSeconds = 20 };

static const gw_tensor_info kInfos[kTensors] = {
    {"first", GW_F32, 1, {kElems, 0, 0, 0}},
    {"second", GW_F32, 1, {kElems, 0, 0, 0}},
};

typedef struct holdings {
  gw_comm* world;
  gw_comm* part;
  gw_aggregator* aggregator;
  gw_work* bucket;    /* of the aggregator; its step is not whole */
  gw_work* receiving; /* its message has not been sent */
  void* memory;
} holdings;

/* The child's exit status: what is wrong there. */
static int free_all(holdings* mine) {
  float value = 1;
  const int refused =
      gw_all_reduce(mine->world, &value, &value, 1, GW_F32, GW_SUM, NULL, NULL) == GW_UNSUPPORTED &&
      gw_work_wait(mine->receiving, 0) == GW_UNSUPPORTED &&
      gw_work_wait(mine->bucket, -1) == GW_UNSUPPORTED;
  gw_memory_free(mine->memory);
  gw_work_free(mine->bucket);
  gw_aggregator_free(mine->aggregator);
  gw_comm_free(mine->part);
  gw_comm_free(mine->world);
  /* No communicator is left that could end it. */
  const int open = gw_work_wait(mine->receiving, -1) == GW_UNSUPPORTED;
  gw_work_free(mine->receiving);
  return refused && open ? 0 : 1;
}

static void fork_and_free(holdings* mine) {
  int status = 0;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kChildSeconds);
    _exit(free_all(mine));
  }
  GW_CHECK_THAT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static int all_are(const float* values, float wanted) {
  for (int i = 0; i < kElems; ++i) {
    if (values[i] != wanted) return 0;
  }
  return 1;
}

/* Between two halves of a step, and before a message. */
static void fork_amid_steps(gw_comm* world) {
  static float gradients[kTensors][kElems], in[kElems], out[kElems];
  const int rank = gw_comm_rank(world);
  const int size = gw_comm_size(world);
  const int left = (rank + size - 1) % size;
  const float mean = (float)(size + 1) / 2;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  gw_work* sending = NULL;
  holdings mine = {.world = world};
  options.nonfinite = GW_NONFINITE_SKIPS;
  GW_CHECK_THAT(gw_comm_split(world, 0, rank, &mine.part) == GW_OK);
  GW_CHECK_THAT(gw_aggregator_create(world, kInfos, kTensors, &options, &mine.aggregator) == GW_OK);
  mine.memory = gw_memory_alloc(world, sizeof in);
  GW_CHECK_THAT(mine.memory != NULL);
  memset(mine.memory, 7, sizeof in);
  for (int i = 0; i < kElems; ++i) {
    gradients[0][i] = gradients[1][i] = (float)(rank + 1);
    out[i] = (float)rank;
  }
  for (int t = 0; t < kTensors; ++t) {
    const gw_gradient gradient = {t, gradients[t]};
    gw_work** const work = t == 0 ? &mine.bucket : NULL;
    GW_CHECK_THAT(gw_aggregator_submit(mine.aggregator, &gradient, 1, work) == GW_OK);
    if (t > 0) break;
    GW_CHECK_THAT(gw_recv(world, in, kElems, GW_F32, left, NULL, &mine.receiving) == GW_OK);
    fork_and_free(&mine);
    GW_CHECK_THAT(gw_barrier(world, NULL, NULL) == GW_OK); /* all have forked */
    GW_CHECK_THAT(((const char*)mine.memory)[sizeof in - 1] == 7);
  }
  GW_CHECK_THAT(gw_work_wait(mine.bucket, 60) == GW_OK);
  GW_CHECK_THAT(all_are(gradients[0], mean) && all_are(gradients[1], mean));
  GW_CHECK_THAT(gw_send(world, out, kElems, GW_F32, (rank + 1) % size, NULL, &sending) == GW_OK);
  GW_CHECK_THAT(gw_work_wait(mine.receiving, 60) == GW_OK && gw_work_wait(sending, 60) == GW_OK);
  GW_CHECK_THAT(all_are(in, (float)left));
  GW_CHECK_THAT(gw_all_reduce(mine.part, out, in, kElems, GW_F32, GW_SUM, NULL, NULL) == GW_OK);
  GW_CHECK_THAT(all_are(in, (float)(size * (size - 1) / 2)));
  gw_work_free(mine.bucket);
  gw_work_free(mine.receiving);
  gw_work_free(sending);
  gw_memory_free(mine.memory);
  gw_aggregator_free(mine.aggregator);
  gw_comm_free(mine.part);
}

/* SIZE TRANSPORT */
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return run_ranks(atoi(argv[1]), argv[2], BY_UNIQUE_ID, fork_amid_steps) == 0 ? 0 : 1;
}
