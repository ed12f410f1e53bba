/* What is asynchronous in the C API, between processes: works, callbacks, pairs, groups, and what
 * happens when a rank gives up. */
#define _DEFAULT_SOURCE
#include <gradwire/c.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "checks.h"
#include "ranks.h"

static int rank, size;

static void count_end(void* context, gw_status status) {
  atomic_fetch_add((atomic_int*)context, status == GW_OK ? 1 : 100);
}

static int becomes(const atomic_int* value, int wanted) {
  for (int look = 0; look < 60000; ++look) {
    if (atomic_load(value) == wanted) return 1;
    usleep(1000);
  }
  return 0;
}

static void callbacks(gw_comm* comm) {
  static atomic_int ended;
  enum { kWorks = 20 };
  int64_t values[kWorks][1000];
  gw_work* work = NULL;
  for (int w = 0; w < kWorks; ++w) {
    for (int i = 0; i < 1000; ++i) values[w][i] = rank + w;
    GW_CHECK_THAT(gw_all_reduce(comm, values[w], values[w], 1000, GW_I64, GW_SUM, NULL, &work) ==
                  GW_OK);
    GW_CHECK_THAT(gw_work_on_done(work, count_end, &ended) == GW_OK);
    GW_CHECK_REFUSED(gw_work_on_done(work, count_end, &ended), GW_INVALID_ARGUMENT, "second time");
    gw_work_free(work); /* the callback comes all the same */
  }
  GW_CHECK_THAT(becomes(&ended, kWorks));
  for (int w = 0; w < kWorks; ++w) {
    GW_CHECK_THAT(values[w][999] == size * (size - 1) / 2 + (int64_t)size * w);
  }
}

static void waits_that_end_first(gw_comm* comm) {
  gw_work* work = NULL;
  int value = 0, done = 1;
  if (rank == 0) {
    GW_CHECK_THAT(gw_recv(comm, &value, 1, GW_I32, 1, NULL, &work) == GW_OK);
    GW_CHECK_REFUSED(gw_work_wait(work, 0.05), GW_TIMED_OUT, "operation continues");
    GW_CHECK_THAT(gw_work_status(work) == GW_IN_PROGRESS);
    GW_CHECK_THAT(gw_work_test(work, &done) == GW_OK && done == 0);
  }
  GW_CHECK_THAT(gw_barrier(comm, NULL, NULL) == GW_OK);
  if (rank == 1) {
    value = 77;
    GW_CHECK_THAT(gw_send(comm, &value, 1, GW_I32, 0, NULL, NULL) == GW_OK);
  }
  if (rank == 0) {
    GW_CHECK_THAT(gw_work_wait(work, 60) == GW_OK && value == 77 && gw_work_source(work) == 1);
    gw_work_free(work);
  }
}

/* Messages match by tag, whatever the order in which they are asked for. */
static void tags(gw_comm* comm) {
  gw_op_options options = GW_OP_OPTIONS_INIT;
  gw_work* works[4];
  int values[4] = {0};
  if (rank == 1) {
    for (int i = 0; i < 4; ++i) {
      options.tag = i < 2 ? 5 : 32767;
      values[i] = 100 + i;
      GW_CHECK_THAT(gw_send(comm, &values[i], 1, GW_I32, 0, &options, &works[i]) == GW_OK);
    }
  } else if (rank == 0) {
    for (int i = 0; i < 4; ++i) {
      options.tag = i < 2 ? 32767 : 5;
      GW_CHECK_THAT(gw_recv(comm, &values[i], 1, GW_I32, 1, &options, &works[i]) == GW_OK);
    }
  }
  for (int i = 0; i < 4 && rank < 2; ++i) {
    GW_CHECK_THAT(gw_work_wait(works[i], 60) == GW_OK);
    gw_work_free(works[i]);
  }
  GW_CHECK_THAT(rank != 0 || (values[0] == 102 && values[1] == 103));
  GW_CHECK_THAT(rank != 0 || (values[2] == 100 && values[3] == 101));
  options.tag = 32768;
  GW_CHECK_REFUSED(gw_send(comm, values, 1, GW_I32, rank == 0 ? 1 : 0, &options, NULL),
                   GW_INVALID_ARGUMENT, "tag 32768");
}

enum { kMessages = 64, kSegment = 128 << 10 /* elements: 512 KiB */ };

static int tag_of_message(int k) {
  static const int of[5] = {0, 7, 1, 32767, 7};
  return of[k % 5];
}

static int64_t length_of_message(int k) {
  static const int64_t of[8] = {
      1, 5, kSegment / 2, kSegment - 1, kSegment, 3 * kSegment + 7, 9 * kSegment, 16 * kSegment};
  return of[k % 8];
}

static int32_t element(int from, int k, int64_t i) {
  return (int32_t)((uint32_t)(from * kMessages + k) * 2654435761u + (uint32_t)i);
}

/* Ranks 0 and 1 send each other all messages and receive them then, one by one: message
   (first + step j) mod 64 is the j-th to be asked for by its tag. */
static void many_messages(gw_comm* comm, int first, int step, int source) {
  gw_op_options options = GW_OP_OPTIONS_INIT;
  gw_work* works[kMessages];
  int32_t* sent[kMessages];
  int taken[kMessages] = {0};
  if (rank > 1) return;
  for (int k = 0; k < kMessages; ++k) {
    const int64_t n = length_of_message(k);
    sent[k] = malloc((size_t)n * sizeof *sent[k]);
    GW_CHECK_THAT(sent[k] != NULL);
    for (int64_t i = 0; i < n; ++i) sent[k][i] = element(rank, k, i);
    options.tag = tag_of_message(k);
    GW_CHECK_THAT(gw_send(comm, sent[k], n, GW_I32, 1 - rank, &options, &works[k]) == GW_OK);
  }
  int32_t* got = malloc(16 * kSegment * sizeof *got);
  GW_CHECK_THAT(got != NULL);
  for (int j = 0; j < kMessages; ++j) {
    int k = 0;
    int64_t right = 0;
    options.tag = tag_of_message((first + step * j) % kMessages);
    while (taken[k] || tag_of_message(k) != options.tag) ++k; /* the next with that tag */
    taken[k] = 1;
    const int64_t n = length_of_message(k);
    GW_CHECK_THAT(gw_recv(comm, got, n, GW_I32, source < 0 ? source : 1 - rank, &options, NULL) ==
                  GW_OK);
    while (right < n && got[right] == element(1 - rank, k, right)) ++right;
    GW_CHECK_THAT(right == n);
  }
  free(got);
  for (int k = 0; k < kMessages; ++k) {
    GW_CHECK_THAT(gw_work_wait(works[k], 60) == GW_OK);
    gw_work_free(works[k]);
    free(sent[k]);
  }
}

/* Every rank in turn hears from all others, in whatever order they come. */
static void any_source(gw_comm* comm) {
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.tag = 9;
  for (int to = 0; to < size; ++to) {
    if (rank != to) {
      for (int i = 0; i < 3; ++i) {
        const int value = rank * 10 + i;
        GW_CHECK_THAT(gw_send(comm, &value, 1, GW_I32, to, &options, NULL) == GW_OK);
      }
      continue;
    }
    int next[8] = {0};
    for (int i = 0; i < 3 * (size - 1); ++i) {
      gw_work* work = NULL;
      int value = -1;
      GW_CHECK_THAT(gw_recv(comm, &value, 1, GW_I32, GW_ANY_SOURCE, &options, &work) == GW_OK);
      GW_CHECK_THAT(gw_work_wait(work, 60) == GW_OK);
      const int source = gw_work_source(work);
      GW_CHECK_THAT(source >= 0 && source < size && source != rank);
      if (source >= 0) GW_CHECK_THAT(value == source * 10 + next[source]++);
      gw_work_free(work);
    }
  }
  GW_CHECK_THAT(gw_barrier(comm, NULL, NULL) == GW_OK);
}

static void probes(gw_comm* comm) {
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.tag = 11;
  char byte = 1;
  int source = 7;
  if (rank == 0) {
    /* Nobody sends yet: the time passes and nothing is harmed. */
    GW_CHECK_THAT(gw_probe(comm, GW_ANY_SOURCE, 0.05, &options, &source) == GW_OK && source == -1);
  }
  GW_CHECK_THAT(gw_barrier(comm, NULL, NULL) == GW_OK);
  if (rank == 1) GW_CHECK_THAT(gw_send(comm, &byte, 1, GW_U8, 0, &options, NULL) == GW_OK);
  if (rank == 0) {
    GW_CHECK_THAT(gw_probe(comm, 1, 60, &options, &source) == GW_OK && source == 1);
    GW_CHECK_THAT(gw_probe(comm, GW_ANY_SOURCE, 60, &options, &source) == GW_OK && source == 1);
    GW_CHECK_THAT(gw_recv(comm, &byte, 1, GW_U8, 1, &options, NULL) == GW_OK);
    GW_CHECK_THAT(gw_probe(comm, 1, 0.05, &options, &source) == GW_OK && source == -1);
  }
}

/* A ring in one batch, receives first; and a collective beside it. */
static void batches(gw_comm* comm) {
  int64_t from_left = -1, own = rank * 11, sum = rank;
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  gw_op ops[3];
  gw_work* work = NULL;
  memset(ops, 0, sizeof ops);
  ops[0].kind = GW_OP_RECV;
  ops[0].dtype = GW_I64;
  ops[0].peer = left;
  ops[0].out = &from_left;
  ops[0].count = 1;
  ops[1] = ops[0];
  ops[1].kind = GW_OP_SEND;
  ops[1].peer = right;
  ops[1].in = &own;
  ops[2] = ops[0];
  ops[2].kind = GW_OP_ALL_REDUCE;
  ops[2].in = ops[2].out = &sum;
  GW_CHECK_THAT(gw_start_all(comm, ops, 3, NULL, &work) == GW_OK);
  GW_CHECK_THAT(gw_work_wait(work, 60) == GW_OK);
  gw_work_free(work);
  GW_CHECK_THAT(from_left == left * 11 && sum == size * (size - 1) / 2);
}

static void groups(gw_comm* comm) {
  gw_comm* half = NULL;
  gw_comm* pair = NULL;
  const int reversed[2] = {1, 0};
  const int twice[2] = {1, 1};
  int64_t value = rank;
  GW_CHECK_THAT(gw_comm_split(comm, rank % 2, rank, &half) == GW_OK);
  GW_CHECK_THAT(gw_comm_size(half) == (size + 1 - rank % 2) / 2 && gw_comm_rank(half) == rank / 2);
  GW_CHECK_THAT(gw_all_reduce(half, &value, &value, 1, GW_I64, GW_MIN, NULL, NULL) == GW_OK);
  GW_CHECK_THAT(value == rank % 2);
  GW_CHECK_REFUSED(gw_comm_group(comm, twice, 2, &pair), GW_INVALID_ARGUMENT, "rank 1 twice");
  GW_CHECK_THAT(gw_comm_group(comm, reversed, 2, &pair) == GW_OK);
  GW_CHECK_THAT((pair != NULL) == (rank < 2));
  GW_CHECK_THAT(pair == NULL || (gw_comm_rank(pair) == 1 - rank && gw_comm_job_rank(pair, 0) == 1));
  gw_comm_free(pair);
  gw_comm_free(half);
}

static void memory_and_stats(gw_comm* comm) {
  gw_comm_stats stats = GW_COMM_STATS_INIT;
  double* values = gw_memory_alloc(comm, 1000 * sizeof *values);
  GW_CHECK_THAT(values != NULL && values[999] == 0);
  values[999] = 0.5;
  GW_CHECK_THAT(gw_all_reduce(comm, values, values, 1000, GW_F64, GW_SUM, NULL, NULL) == GW_OK);
  GW_CHECK_THAT(values[999] == 0.5 * size);
  gw_memory_free(values);
  GW_CHECK_THAT(gw_comm_get_stats(comm, &stats) == GW_OK);
  GW_CHECK_THAT(stats.job_messages_sent > 0 && stats.job_bytes_sent > 0);
}

static void all_that_is_asynchronous(gw_comm* comm) {
  rank = gw_comm_rank(comm);
  size = gw_comm_size(comm);
  callbacks(comm);
  waits_that_end_first(comm);
  tags(comm);
  many_messages(comm, 0, 1, 0);
  many_messages(comm, kMessages - 1, kMessages - 1, 0); /* in reverse */
  many_messages(comm, 11, 37, 0);
  many_messages(comm, 0, 1, GW_ANY_SOURCE);
  any_source(comm);
  probes(comm);
  batches(comm);
  groups(comm);
  memory_and_stats(comm);
  GW_CHECK_THAT(gw_barrier(comm, NULL, NULL) == GW_OK);
}

/* Rank 1 gives up: the others' operation ends, says who and why, and so does every later call.
 * Whatever its words are: nobody has issued another operation. */
static void giving_up(gw_comm* comm) {
  static const char why[] = "check failed: ranks disagree: loss";
  static atomic_int ended;
  gw_work* work = NULL;
  int value = 0;
  rank = gw_comm_rank(comm);
  if (rank == 1) {
    /* All have met by then. */
    for (int r = 0; r < gw_comm_size(comm); ++r) {
      if (r != 1) GW_CHECK_THAT(gw_recv(comm, &value, 1, GW_I32, r, NULL, NULL) == GW_OK);
    }
    GW_CHECK_THAT(gw_comm_abort(comm, why) == GW_OK);
    GW_CHECK_THAT(gw_comm_status(comm) == GW_CANCELLED);
    return;
  }
  GW_CHECK_THAT(gw_send(comm, &rank, 1, GW_I32, 1, NULL, &work) == GW_OK);
  gw_work_free(work); /* how it ends may be rank 1's end */
  const gw_status started = gw_recv(comm, &value, 1, GW_I32, 1, NULL, &work);
  if (started == GW_OK) {
    GW_CHECK_THAT(gw_work_on_done(work, count_end, &ended) == GW_OK);
    GW_CHECK_THAT(gw_work_wait(work, 60) == GW_PEER_LOST);
    GW_CHECK_THAT(strstr(gw_work_error(work), why) != NULL);
    GW_CHECK_THAT(becomes(&ended, 100));
    gw_work_free(work);
  }
  GW_CHECK_THAT(gw_barrier(comm, NULL, NULL) == GW_PEER_LOST);
  GW_CHECK_THAT(strstr(gw_last_error(), "rank 1") != NULL);
}

/* SIZE TRANSPORT */
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int ranks = atoi(argv[1]);
  int failed = run_ranks(ranks, argv[2], BY_ALL_GATHER, all_that_is_asynchronous);
  failed += run_ranks(ranks, argv[2], BY_STORE, giving_up);
  return failed == 0 ? 0 : 1;
}
