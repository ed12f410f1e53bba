/* Tensors of emulated CUDA devices through the C API, between processes, against the same calls
 * with tensors of the host: operations, compressed averages, and what is refused. */
#define _DEFAULT_SOURCE
#include <gradwire/c.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"
#include "ranks.h"
#include "tests/gpu/library/device_calls.h"

enum { kElements = 5000, kRows = 50, kColumns = 40, kSteps = 4 };

static int rank, size;

static float number(int of_rank, int step, int i) {
  return (float)((i * 37 + of_rank * 101 + step * 17) % 1009) / 512.0F - 1.0F;
}

/* A tensor that is on the host and on device 0, and a stream there. */
typedef struct pair {
  size_t count;
  float* host;
  float* seen;
  float* device;
  gw_stream stream;
} pair;

static pair make_pair(size_t count) {
  pair made = {count,
               malloc(count * sizeof(float)),
               malloc(count * sizeof(float)),
               test_device_alloc(count * sizeof(float), 0),
               {GW_CUDA, 0, test_stream_create(0)}};
  GW_CHECK_THAT(made.device != NULL && made.stream.native != NULL);
  return made;
}

static void free_pair(pair* one) {
  test_stream_destroy(one->stream.native);
  test_device_free(one->device, 0);
  free(one->host);
  free(one->seen);
}

/* Enqueued on the stream, which may be held back. */
static void fill(pair* one, int step) {
  for (size_t i = 0; i < one->count; ++i) one->host[i] = number(rank, step, (int)i);
  GW_CHECK_THAT(test_copy_to_device(one->device, one->host, one->count * sizeof(float), 0,
                                    one->stream.native) == 0);
}

/* The device's elements are the host's, bit for bit. */
static int same(pair* one) {
  const size_t bytes = one->count * sizeof(float);
  if (test_copy_to_host(one->seen, one->device, bytes, 0, one->stream.native) != 0) return 0;
  return memcmp(one->seen, one->host, bytes) == 0;
}

static gw_op_options on(const pair* one) {
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.stream = one->stream;
  options.algorithm = "canonical";
  return options;
}

/* The call returns while the stream is held back, and the operation waits for it. */
static void sums(gw_comm* comm) {
  pair one = make_pair(kElements);
  gw_op_options here = GW_OP_OPTIONS_INIT;
  const gw_op_options there = on(&one);
  here.algorithm = "canonical";
  gw_work* work = NULL;
  int done = 1;
  test_stream_hold(one.stream.native, 1);
  fill(&one, 0);
  float* const before = malloc(kElements * sizeof(float)); /* the copy may not have been made yet */
  memcpy(before, one.host, kElements * sizeof(float));
  GW_CHECK_THAT(gw_all_reduce(comm, one.device, one.device, kElements, GW_F32, GW_SUM, &there,
                              &work) == GW_OK);
  usleep(100000);
  GW_CHECK_THAT(gw_work_test(work, &done) == GW_OK && done == 0);
  test_stream_hold(one.stream.native, 0);
  GW_CHECK_THAT(gw_work_wait_on(work, &one.stream) == GW_OK);
  gw_work_free(work);
  /* Until then the device may read what the next call writes. */
  GW_CHECK_THAT(test_copy_to_host(one.seen, one.device, kElements * sizeof(float), 0,
                                  one.stream.native) == 0);
  GW_CHECK_THAT(gw_all_reduce(comm, before, one.host, kElements, GW_F32, GW_SUM, &here, NULL) ==
                GW_OK);
  GW_CHECK_THAT(same(&one));
  free(before);
  free_pair(&one);
}

/* The default stream has no gate: the host waits, and the operation is done when the call returns.
 */
static void waits_by_host(gw_comm* comm) {
  pair one = make_pair(kElements);
  const gw_stream by_default = {GW_CUDA, 0, NULL};
  const gw_op_options options = on(&one);
  for (int step = 0; step < 3; ++step) {
    gw_work* work = NULL;
    int done = 0;
    fill(&one, step);
    if (rank == 0) usleep(100000); /* the others wait for it */
    GW_CHECK_THAT(gw_all_reduce(comm, one.device, one.device, kElements, GW_F32, GW_SUM, &options,
                                &work) == GW_OK);
    GW_CHECK_THAT(gw_work_wait_on(work, &by_default) == GW_OK);
    GW_CHECK_THAT(gw_work_test(work, &done) == GW_OK && done == 1);
    gw_work_free(work);
    GW_CHECK_THAT(test_copy_to_host(one.seen, one.device, kElements * sizeof(float), 0,
                                    one.stream.native) == 0);
  }
  free_pair(&one);
}

static void messages(gw_comm* comm) {
  pair one = make_pair(kElements);
  const size_t rows = (size_t)size * kElements;
  float* const all = test_device_alloc(rows * sizeof(float), 0);
  float* const seen = malloc(rows * sizeof(float));
  gw_op_options options = on(&one);
  options.algorithm = NULL;
  fill(&one, 1);
  GW_CHECK_THAT(gw_all_gather(comm, one.device, all, kElements, GW_F32, &options, NULL) == GW_OK);
  GW_CHECK_THAT(test_copy_to_host(seen, all, rows * sizeof(float), 0, one.stream.native) == 0);
  int wrong = 0;
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i < kElements; ++i) wrong += seen[r * kElements + i] != number(r, 1, i);
  }
  GW_CHECK_THAT(wrong == 0);
  const gw_op both[] = {{.kind = GW_OP_SEND,
                         .dtype = GW_F32,
                         .peer = (rank + 1) % size,
                         .tag = 5,
                         .in = one.device,
                         .count = kElements},
                        {.kind = GW_OP_RECV,
                         .dtype = GW_F32,
                         .peer = (rank + size - 1) % size,
                         .tag = 5,
                         .out = all,
                         .count = kElements}};
  GW_CHECK_THAT(gw_start_all(comm, both, 2, &options, NULL) == GW_OK);
  GW_CHECK_THAT(test_copy_to_host(seen, all, kElements * sizeof(float), 0, NULL) == 0);
  GW_CHECK_THAT(seen[0] == number((rank + size - 1) % size, 1, 0));
  GW_CHECK_THAT(seen[kElements - 1] == number((rank + size - 1) % size, 1, kElements - 1));
  test_device_free(all, 0);
  free(seen);
  free_pair(&one);
}

static const gw_tensor_info kInfos[] = {{"weight", GW_F32, 2, {kRows, kColumns}},
                                        {"bias", GW_F32, 1, {kColumns}}};

static gw_aggregator* make_aggregator(gw_comm* comm, const char* spec, gw_space space) {
  gw_aggregator* made = NULL;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  options.compressor = spec;
  options.space = space;
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, 2, &options, &made) == GW_OK);
  return made;
}

/* Submitted behind a stream that is held back, in two works, the last tensor first. */
static void average_there(gw_aggregator* aggregator, pair* tensors, gw_work** works) {
  for (int t = 1; t >= 0; --t) {
    const gw_gradient gradient = {t, tensors[t].device};
    GW_CHECK_THAT(
        gw_aggregator_submit_on(aggregator, &gradient, 1, &tensors[t].stream, &works[t]) == GW_OK);
  }
}

/* Two aggregators keep the same from step to step: residuals and other tensors, bit for bit. Their
 * number. */
static size_t same_state(gw_aggregator* one, gw_aggregator* other) {
  gw_state* states[2] = {NULL, NULL};
  GW_CHECK_THAT(gw_aggregator_save(one, &states[0]) == GW_OK);
  GW_CHECK_THAT(gw_aggregator_save(other, &states[1]) == GW_OK);
  const size_t count = gw_state_count(states[0]);
  GW_CHECK_THAT(gw_state_count(states[1]) == count);
  for (size_t i = 0; i < count; ++i) {
    gw_state_entry entries[2];
    for (int s = 0; s < 2; ++s) GW_CHECK_THAT(gw_state_get(states[s], i, &entries[s]) == GW_OK);
    GW_CHECK_THAT(strcmp(entries[0].name, entries[1].name) == 0);
    GW_CHECK_THAT(entries[0].bytes == entries[1].bytes);
    GW_CHECK_THAT(memcmp(entries[0].data, entries[1].data, entries[0].bytes) == 0);
  }
  gw_state_free(states[0]);
  gw_state_free(states[1]);
  return count;
}

/* In each step the device's averages are the host's, and so is what is kept at the end. */
static void averages(gw_comm* comm, const char* spec) {
  pair tensors[2] = {make_pair(kRows * kColumns), make_pair(kColumns)};
  gw_aggregator* here = make_aggregator(comm, spec, GW_HOST);
  gw_aggregator* there = make_aggregator(comm, spec, GW_CUDA);
  for (int step = 0; step < kSteps; ++step) {
    gw_work* works[2];
    int done = 1;
    for (int t = 0; t < 2; ++t) test_stream_hold(tensors[t].stream.native, 1);
    for (int t = 0; t < 2; ++t) fill(&tensors[t], step + t);
    average_there(there, tensors, works);
    usleep(20000);
    GW_CHECK_THAT(gw_work_test(works[0], &done) == GW_OK && done == 0);
    for (int t = 0; t < 2; ++t) test_stream_hold(tensors[t].stream.native, 0);
    for (int t = 0; t < 2; ++t) {
      GW_CHECK_THAT(gw_work_wait(works[t], 60) == GW_OK);
      gw_work_free(works[t]);
    }
    const gw_gradient on_host[] = {{0, tensors[0].host}, {1, tensors[1].host}};
    GW_CHECK_THAT(gw_aggregator_submit(here, on_host, 2, NULL) == GW_OK);
    GW_CHECK_THAT(same(&tensors[0]) && same(&tensors[1]));
  }
  gw_aggregator_stats stats = GW_AGGREGATOR_STATS_INIT;
  gw_aggregator_stats wanted = GW_AGGREGATOR_STATS_INIT;
  GW_CHECK_THAT(gw_aggregator_flush(there) == GW_OK && gw_aggregator_flush(here) == GW_OK);
  GW_CHECK_THAT(gw_aggregator_get_stats(there, &stats) == GW_OK && stats.steps == kSteps);
  GW_CHECK_THAT(gw_aggregator_get_stats(here, &wanted) == GW_OK);
  GW_CHECK_THAT(stats.payload_bytes == wanted.payload_bytes &&
                stats.payload_bytes < stats.gradient_bytes);
  GW_CHECK_THAT(same_state(here, there) > 1); /* besides the number of steps */
  gw_aggregator_free(here);
  gw_aggregator_free(there);
  for (int t = 0; t < 2; ++t) free_pair(&tensors[t]);
}

/* An infinity on one rank's device: all ranks skip the step. */
static void skipped_step(gw_comm* comm) {
  pair weight = make_pair(kRows * kColumns);
  gw_aggregator* aggregator = NULL;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  options.space = GW_CUDA;
  options.nonfinite = GW_NONFINITE_SKIPS;
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, 1, &options, &aggregator) == GW_OK);
  for (int step = 0; step < 3; ++step) {
    const float infinite = INFINITY;
    const gw_gradient gradient = {0, weight.device};
    test_stream_hold(weight.stream.native, 1);
    fill(&weight, step);
    if (step == 1 && rank == size - 1) {
      GW_CHECK_THAT(test_copy_to_device(weight.device + 7, &infinite, sizeof infinite, 0,
                                        weight.stream.native) == 0);
    }
    gw_work* work = NULL;
    GW_CHECK_THAT(gw_aggregator_submit_on(aggregator, &gradient, 1, &weight.stream, &work) ==
                  GW_OK);
    test_stream_hold(weight.stream.native, 0);
    GW_CHECK_THAT(gw_work_wait(work, 60) == GW_OK);
    gw_work_free(work);
    GW_CHECK_THAT(test_copy_to_host(weight.seen, weight.device, weight.count * sizeof(float), 0,
                                    weight.stream.native) == 0);
    float mean = 0;
    for (int r = 0; r < size; ++r) mean += number(r, step, 7) / (float)size;
    const float seen = weight.seen[7];
    GW_CHECK_THAT(step == 1 ? seen != seen : seen > mean - 1e-5F && seen < mean + 1e-5F);
  }
  gw_aggregator_stats stats = GW_AGGREGATOR_STATS_INIT;
  GW_CHECK_THAT(gw_aggregator_flush(aggregator) == GW_OK);
  GW_CHECK_THAT(gw_aggregator_get_stats(aggregator, &stats) == GW_OK);
  GW_CHECK_THAT(stats.steps == 2 && stats.skipped_steps == 1);
  gw_aggregator_free(aggregator);
  free_pair(&weight);
}

/* What the struct was before it had a stream. */
typedef struct old_options {
  size_t struct_size;
  double timeout_seconds;
  const char* algorithm;
  double factor;
  int tag;
} old_options;

static void structs(gw_comm* comm) {
  float values[2] = {1, 2};
  old_options old = {sizeof(old_options), 0, "ring", 1.0, 0};
  const gw_op_options* given = (const gw_op_options*)&old;
  GW_CHECK_THAT(gw_all_reduce(comm, values, values, 2, GW_F32, GW_SUM, given, NULL) == GW_OK);
  GW_CHECK_THAT(values[1] == 2.0F * (float)size);
  old.struct_size = sizeof(old_options) + 3;
  GW_CHECK_REFUSED(gw_all_reduce(comm, values, values, 2, GW_F32, GW_SUM, given, NULL),
                   GW_INVALID_ARGUMENT, "struct_size is 43");
  gw_aggregator* aggregator = NULL;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  options.struct_size = sizeof options - 1;
  GW_CHECK_REFUSED(gw_aggregator_create(comm, kInfos, 1, &options, &aggregator),
                   GW_INVALID_ARGUMENT, "struct_size is");
}

static gw_status sum_with(gw_comm* comm, void* data, gw_stream stream) {
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.stream = stream;
  return gw_all_reduce(comm, data, data, 4, GW_F32, GW_SUM, &options, NULL);
}

static void refused_operations(gw_comm* comm) {
  float here[4] = {0};
  pair one = make_pair(4);
  gw_stream place = {GW_HOST, 0, NULL};
  const gw_stream none = {(gw_space)7, 0, NULL};
  const gw_stream beyond = {GW_CUDA, 2, NULL};
  const gw_stream second = {GW_CUDA, 1, NULL};
  const gw_stream of_host = {GW_HOST, 0, one.stream.native};
  const gw_stream host_1 = {GW_HOST, 1, NULL};
  GW_CHECK_REFUSED(sum_with(comm, one.device, none), GW_INVALID_ARGUMENT, "space 7");
  GW_CHECK_REFUSED(sum_with(comm, one.device, beyond), GW_INVALID_ARGUMENT, "CUDA device 2");
  GW_CHECK_REFUSED(sum_with(comm, one.device, second), GW_INVALID_ARGUMENT,
                   "in memory of CUDA device 0 (expected memory of CUDA device 1)");
  GW_CHECK_REFUSED(sum_with(comm, here, one.stream), GW_INVALID_ARGUMENT,
                   "in host memory (expected memory of CUDA device 0)");
  GW_CHECK_REFUSED(sum_with(comm, here, of_host), GW_INVALID_ARGUMENT, "of space GW_HOST");
  GW_CHECK_REFUSED(sum_with(comm, here, host_1), GW_INVALID_ARGUMENT, "device 1 of space GW_HOST");
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.stream = one.stream;
  GW_CHECK_REFUSED(
      gw_all_reduce(comm, one.device, one.device, 4, GW_I32, GW_BIT_XOR, &options, NULL),
      GW_UNSUPPORTED, "bitwise reduction of tensors on CUDA device 0");
  GW_CHECK_THAT(gw_memory_place(one.device, &place) == GW_OK);
  GW_CHECK_THAT(place.space == GW_CUDA && place.device == 0 && place.native == NULL);
  GW_CHECK_THAT(gw_memory_place(here, &place) == GW_OK && place.space == GW_HOST);
  free_pair(&one);
}

static void refused_gradients(gw_comm* comm) {
  pair one = make_pair(kRows * kColumns);
  gw_aggregator* aggregator = NULL;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  const gw_stream second = {GW_CUDA, 1, NULL};
  const gw_stream of_host = {GW_HOST, 0, NULL};
  const gw_gradient there = {0, one.device};
  const gw_gradient here = {0, one.host};
  options.space = (gw_space)2;
  GW_CHECK_REFUSED(gw_aggregator_create(comm, kInfos, 1, &options, &aggregator),
                   GW_INVALID_ARGUMENT, "space 2");
  options.space = GW_CUDA;
  options.device = 2;
  GW_CHECK_REFUSED(gw_aggregator_create(comm, kInfos, 1, &options, &aggregator),
                   GW_INVALID_ARGUMENT, "CUDA device 2 (expected 0 to 1");
  options.device = 0;
  GW_CHECK_THAT(gw_aggregator_create(comm, kInfos, 1, &options, &aggregator) == GW_OK);
  GW_CHECK_REFUSED(
      gw_aggregator_submit_on(aggregator, &there, 1, &second, NULL), GW_INVALID_ARGUMENT,
      "a stream for memory of CUDA device 1 (expected one for memory of CUDA device 0");
  GW_CHECK_REFUSED(gw_aggregator_submit_on(aggregator, &there, 1, &of_host, NULL),
                   GW_INVALID_ARGUMENT, "a stream for host memory");
  GW_CHECK_REFUSED(gw_aggregator_submit_on(aggregator, &here, 1, &one.stream, NULL),
                   GW_INVALID_ARGUMENT, "'weight'");
  fill(&one, 0);
  GW_CHECK_THAT(test_copy_to_host(one.seen, one.device, 4, 0, one.stream.native) == 0);
  GW_CHECK_THAT(gw_aggregator_submit(aggregator, &there, 1, NULL) == GW_OK);
  gw_aggregator_free(aggregator);
  free_pair(&one);
}

static void all_of_it(gw_comm* comm) {
  test_play_devices(2);
  rank = gw_comm_rank(comm);
  size = gw_comm_size(comm);
  sums(comm);
  waits_by_host(comm);
  messages(comm);
  averages(comm, "topk:ratio=0.05,ef=ef14");
  averages(comm, "powersgd:rank=2,ef=ef14");
  skipped_step(comm);
  structs(comm);
  refused_operations(comm);
  refused_gradients(comm);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s RANKS TRANSPORT\n", argv[0]);
    return 2;
  }
  return run_ranks(atoi(argv[1]), argv[2], BY_UNIQUE_ID, all_of_it);
}
