/* Aggregators of the C API between processes: means against plain loops, buckets at changing
 * addresses, error feedback through a checkpoint, half types, skipped steps. */
#include <gradwire/c.h>
#include <math.h>
#include <stdlib.h>

#include "checks.h"
#include "ranks.h"

enum { kTensors = 3, kRows = 40, kColumns = 50, kWeights = kRows * kColumns, kBias = 30 };

static int rank, size;

static const gw_tensor_info kInfos[kTensors] = {
    {"first.weight", GW_F32, 2, {kRows, kColumns, 0, 0}},
    {"first.bias", GW_F32, 1, {kBias, 0, 0, 0}},
    {"second.weight", GW_F64, 2, {kRows, kColumns, 0, 0}},
};

typedef struct gradients {
  float weight[kWeights];
  float bias[kBias];
  double second[kWeights];
} gradients;

static double number(int r, int step, int i) {
  return ((r + 1) * (i % 13 - 6) + step * (i % 5)) / 8.0; /* sums are exact */
}

static void fill(gradients* g, int step) {
  for (int i = 0; i < kWeights; ++i) g->weight[i] = (float)number(rank, step, i);
  for (int i = 0; i < kBias; ++i) g->bias[i] = (float)number(rank, step, i + 3);
  for (int i = 0; i < kWeights; ++i) g->second[i] = number(rank, step, i + 7);
}

static double mean(int step, int i) {
  double sum = 0;
  for (int r = 0; r < size; ++r) sum += number(r, step, i);
  return sum / size;
}

static int is_near(double seen, double wanted) {
  return fabs(seen - wanted) <= 1e-6 * (1 + fabs(wanted)); /* one rounding of f32 */
}

static void submit(gw_aggregator* aggregator, int index, void* data, gw_work** work) {
  const gw_gradient gradient = {index, data};
  GW_CHECK_THAT(gw_aggregator_submit(aggregator, &gradient, 1, work) == GW_OK);
}

/* Three works a step, from the last tensor to the first, at other addresses each time. */
static void exact_means(gw_comm* comm) {
  static gradients places[2];
  gw_aggregator* aggregator = NULL;
  gw_aggregator_stats stats = GW_AGGREGATOR_STATS_INIT;
  gw_work* works[kTensors];
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, kTensors, NULL, &aggregator) == GW_OK);
  for (int step = 0; step < 5; ++step) {
    gradients* g = &places[step % 2];
    fill(g, step);
    submit(aggregator, 2, g->second, &works[2]);
    const gw_gradient again = {2, g->second};
    GW_CHECK_REFUSED(gw_aggregator_submit(aggregator, &again, 1, NULL), GW_INVALID_ARGUMENT,
                     "'second.weight' a second time");
    submit(aggregator, 1, g->bias, &works[1]);
    submit(aggregator, 0, g->weight, &works[0]);
    for (int t = 0; t < kTensors; ++t) {
      GW_CHECK_THAT(gw_work_wait(works[t], 60) == GW_OK);
      gw_work_free(works[t]);
    }
    for (int i = 0; i < kWeights; ++i) {
      if (!is_near(g->weight[i], mean(step, i)) || !is_near(g->second[i], mean(step, i + 7))) {
        ++failures;
      }
    }
    for (int i = 0; i < kBias; ++i) GW_CHECK_THAT(is_near(g->bias[i], mean(step, i + 3)));
  }
  GW_CHECK_THAT(failures == 0);
  GW_CHECK_THAT(gw_aggregator_flush(aggregator) == GW_OK);
  GW_CHECK_THAT(gw_aggregator_get_stats(aggregator, &stats) == GW_OK);
  GW_CHECK_THAT(stats.steps == 5 && stats.skipped_steps == 0);
  GW_CHECK_THAT(stats.gradient_bytes == 5 * (4 * (kWeights + kBias) + 8 * kWeights));
  gw_aggregator_free(aggregator);
}

static gw_aggregator* compressed(gw_comm* comm) {
  gw_aggregator* aggregator = NULL;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  options.compressor = "topk:ratio=0.1,ef=ef14";
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, kTensors, &options, &aggregator) == GW_OK);
  return aggregator;
}

static void one_step(gw_aggregator* aggregator, gradients* g, int step) {
  fill(g, step);
  const gw_gradient all[kTensors] = {{0, g->weight}, {1, g->bias}, {2, g->second}};
  GW_CHECK_THAT(gw_aggregator_submit(aggregator, all, kTensors, NULL) == GW_OK);
}

/* Residuals that are saved and loaded go on as if nothing had been. */
static void checkpoints(gw_comm* comm) {
  static gradients first, second;
  const gw_state* by_old_rank[8] = {NULL};
  gw_aggregator* through = compressed(comm);
  gw_aggregator* resumed = compressed(comm);
  gw_state* state = NULL;
  gw_state_entry entry;
  int residuals = 0;
  for (int step = 0; step < 3; ++step) one_step(through, &first, step);
  GW_CHECK_THAT(gw_aggregator_save(through, &state) == GW_OK);
  for (size_t i = 0; i < gw_state_count(state); ++i) {
    GW_CHECK_THAT(gw_state_get(state, i, &entry) == GW_OK);
    residuals += strcmp(entry.name, "first.weight.error") == 0;
  }
  GW_CHECK_THAT(residuals == 1);
  by_old_rank[rank] = state;
  GW_CHECK_THAT(gw_aggregator_load(resumed, by_old_rank, (size_t)size) == GW_OK);
  GW_CHECK_REFUSED(gw_aggregator_load(resumed, by_old_rank, (size_t)size + 1), GW_INVALID_ARGUMENT,
                   "NULL");
  gw_state_free(state);
  for (int step = 3; step < 6; ++step) {
    one_step(through, &first, step);
    one_step(resumed, &second, step);
    GW_CHECK_THAT(memcmp(&first, &second, sizeof first) == 0);
  }
  GW_CHECK_THAT(gw_aggregator_set_loss_scale(through, 1024) == GW_OK);
  GW_CHECK_REFUSED(gw_aggregator_set_learning_rate(through, -1), GW_INVALID_ARGUMENT,
                   "learning rate of -1");
  gw_aggregator_free(through);
  gw_aggregator_free(resumed);
}

/* bf16: the upper half of an f32. */
static void half_types(gw_comm* comm) {
  const gw_tensor_info info = {"half", GW_BF16, 1, {16, 0, 0, 0}};
  const float mine = (float)(rank + 1);
  const float wanted = (float)(size + 1) / 2; /* exact in bf16 for few ranks */
  uint16_t values[16];
  uint32_t bits;
  gw_aggregator* aggregator = NULL;
  const gw_gradient gradient = {0, values};
  memcpy(&bits, &mine, sizeof bits);
  for (int i = 0; i < 16; ++i) values[i] = (uint16_t)(bits >> 16);
  GW_CHECK_THAT(gw_aggregator_create(comm, &info, 1, NULL, &aggregator) == GW_OK);
  GW_CHECK_THAT(gw_aggregator_submit(aggregator, &gradient, 1, NULL) == GW_OK);
  memcpy(&bits, &wanted, sizeof bits);
  for (int i = 0; i < 16; ++i) GW_CHECK_THAT(values[i] == (uint16_t)(bits >> 16));
  gw_aggregator_free(aggregator);
}

/* Likewise of one rank's half infinity or NaN; the largest finite half is none. */
static void half_overflows(gw_comm* comm) {
  const struct {
    gw_dtype dtype;
    uint16_t value;
    int skips;
  } cases[] = {{GW_BF16, 0x7f80, 1}, {GW_BF16, 0xffc1, 1}, {GW_BF16, 0x7f7f, 0},
               {GW_F16, 0xfc00, 1},  {GW_F16, 0x7e00, 1},  {GW_F16, 0x7bff, 0}};
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  options.nonfinite = GW_NONFINITE_SKIPS;
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; ++c) {
    const gw_tensor_info info = {"half", cases[c].dtype, 1, {16, 0, 0, 0}};
    uint16_t values[16] = {0};
    const gw_gradient gradient = {0, values};
    gw_aggregator* aggregator = NULL;
    gw_aggregator_stats stats = GW_AGGREGATOR_STATS_INIT;
    if (rank == size - 1) values[11] = cases[c].value;
    GW_CHECK_THAT(gw_aggregator_create(comm, &info, 1, &options, &aggregator) == GW_OK);
    GW_CHECK_THAT(gw_aggregator_submit(aggregator, &gradient, 1, NULL) == GW_OK);
    GW_CHECK_THAT(gw_aggregator_flush(aggregator) == GW_OK);
    GW_CHECK_THAT(gw_aggregator_get_stats(aggregator, &stats) == GW_OK);
    GW_CHECK_THAT(stats.skipped_steps == (uint64_t)cases[c].skips);
    GW_CHECK_THAT(values[0] == (cases[c].skips ? 0xffff : 0));
    gw_aggregator_free(aggregator);
  }
}

/* One rank's infinity leaves the step out on all, and residuals as they were. */
static void skipped_steps(gw_comm* comm) {
  static gradients g, wanted;
  gw_aggregator* aggregator = NULL;
  gw_aggregator* beside = compressed(comm);
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  gw_aggregator_stats stats = GW_AGGREGATOR_STATS_INIT;
  const gw_gradient all[kTensors] = {{0, g.weight}, {1, g.bias}, {2, g.second}};
  options.compressor = "topk:ratio=0.1,ef=ef14";
  options.nonfinite = GW_NONFINITE_SKIPS;
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, kTensors, &options, &aggregator) == GW_OK);
  for (int step = 0; step < 4; ++step) {
    fill(&g, step);
    if (step == 2 && rank == size - 1) g.weight[5] = (float)INFINITY;
    GW_CHECK_THAT(gw_aggregator_submit(aggregator, all, kTensors, NULL) == GW_OK);
    if (step == 2) {
      GW_CHECK_THAT(isnan(g.weight[0]) && isnan(g.bias[7]) && isnan(g.second[kWeights - 1]));
      continue;
    }
    one_step(beside, &wanted, step);
    GW_CHECK_THAT(memcmp(&g, &wanted, sizeof g) == 0);
  }
  GW_CHECK_THAT(gw_aggregator_flush(aggregator) == GW_OK);
  GW_CHECK_THAT(gw_aggregator_get_stats(aggregator, &stats) == GW_OK);
  GW_CHECK_THAT(stats.steps == 3 && stats.skipped_steps == 1);
  gw_aggregator_free(aggregator);
  gw_aggregator_free(beside);
}

static size_t warnings_of(const gw_aggregator* aggregator) {
  size_t count = 0;
  while (gw_aggregator_warning(aggregator, count) != NULL) ++count;
  return count;
}

/* Nine tenths of the elements as pairs: more than uncompressed, which is known once a step has sent
 * it, and is told once; with the number that the statistics have of the first step. */
static void more_than_dense(gw_comm* comm, gw_nonfinite nonfinite) {
  static gradients g;
  gw_aggregator* aggregator = NULL;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  gw_aggregator_stats stats = GW_AGGREGATOR_STATS_INIT;
  const char* told = NULL;
  char sent[32];
  size_t before = 0;
  options.compressor = "topk:ratio=0.9";
  options.nonfinite = nonfinite;
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, kTensors, &options, &aggregator) == GW_OK);
  before = warnings_of(aggregator);
  for (int step = 0; step < 3; ++step) {
    one_step(aggregator, &g, step);
    GW_CHECK_THAT(gw_aggregator_flush(aggregator) == GW_OK);
    GW_CHECK_THAT(warnings_of(aggregator) == before + 1);
    if (step > 0) {
      GW_CHECK_THAT(gw_aggregator_warning(aggregator, before) == told);
      continue;
    }
    told = gw_aggregator_warning(aggregator, before);
    GW_CHECK_THAT(gw_aggregator_get_stats(aggregator, &stats) == GW_OK);
    snprintf(sent, sizeof sent, "%llu", (unsigned long long)stats.wire_bytes);
    GW_CHECK_THAT(told != NULL && strstr(told, "topk:ratio=0.9") != NULL);
    GW_CHECK_THAT(told != NULL && strstr(told, sent) != NULL);
  }
  gw_aggregator_free(aggregator);
}

static void refusals(gw_comm* comm) {
  gw_aggregator* aggregator = NULL;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  const gw_tensor_info whole = {"count", GW_I32, 1, {4, 0, 0, 0}};
  const gw_gradient beyond = {3, &options};
  const double heavy = 0.9;
  const double none = 0;
  int skip = -1;
  options.compressor = "signsgd:vote=majority,ef=ef14";
  GW_CHECK_REFUSED(gw_aggregator_create(comm, kInfos, kTensors, &options, &aggregator),
                   GW_INVALID_ARGUMENT, "vote");
  options.compressor = "dgc:ratio=0.25";
  options.momentum = &heavy;
  GW_CHECK_REFUSED(gw_aggregator_create(comm, kInfos, kTensors, &options, &aggregator),
                   GW_INVALID_ARGUMENT, "0.9");
  options.momentum = &none;
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, kTensors, &options, &aggregator) == GW_OK);
  GW_CHECK_THAT(warnings_of(aggregator) == 0);
  gw_aggregator_free(aggregator);
  options.momentum = NULL;
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, kTensors, &options, &aggregator) == GW_OK);
  GW_CHECK_THAT(warnings_of(aggregator) == 1 &&
                strstr(gw_aggregator_warning(aggregator, 0), "momentum") != NULL);
  gw_aggregator_free(aggregator);
  aggregator = NULL;
  GW_CHECK_REFUSED(gw_aggregator_create(comm, &whole, 1, NULL, &aggregator), GW_INVALID_ARGUMENT,
                   "'count' is of i32");
  GW_CHECK_REFUSED(gw_aggregator_create(comm, kInfos, 0, NULL, &aggregator), GW_INVALID_ARGUMENT,
                   "no tensors");
  GW_CHECK_THAT(aggregator == NULL);
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, kTensors, NULL, &aggregator) == GW_OK);
  GW_CHECK_REFUSED(gw_aggregator_submit(aggregator, &beyond, 1, NULL), GW_INVALID_ARGUMENT,
                   "index 3 (expected 0 to 2");
  GW_CHECK_THAT(gw_aggregator_skip(aggregator, rank == 0, &skip) == GW_OK && skip == 1);
  GW_CHECK_THAT(gw_aggregator_warning(aggregator, 99) == NULL);
  gw_aggregator_free(aggregator);
}

static void all_of_aggregators(gw_comm* comm) {
  rank = gw_comm_rank(comm);
  size = gw_comm_size(comm);
  exact_means(comm);
  checkpoints(comm);
  half_types(comm);
  half_overflows(comm);
  skipped_steps(comm);
  more_than_dense(comm, GW_NONFINITE_FAILS);
  more_than_dense(comm, GW_NONFINITE_SKIPS);
  refusals(comm);
  GW_CHECK_THAT(gw_comm_status(comm) == GW_OK);
}

/* SIZE TRANSPORT */
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return run_ranks(atoi(argv[1]), argv[2], BY_UNIQUE_ID, all_of_aggregators) == 0 ? 0 : 1;
}
