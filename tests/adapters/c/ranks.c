#define _DEFAULT_SOURCE
#include "ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

enum { kMostRanks = 8, kMostKeys = 256, kMostValue = 4096, kPatience = 120 };

/* What the processes share. */
typedef struct board {
  atomic_int has_id;
  gw_unique_id id;
  atomic_int contributed;
  char contributions[kMostRanks][sizeof(gw_unique_id)];
  atomic_int keys; /* of the store, written by one rank at a time */
  atomic_flag writing;
  struct {
    char key[256];
    char value[kMostValue];
    size_t bytes;
  } entries[kMostKeys];
} board;

static board* shared;
static int own_rank;
static int ranks;

static void pause_briefly(void) { usleep(1000); }

static int gather_on_board(void* context, const void* in, void* out, size_t bytes) {
  (void)context;
  memcpy(shared->contributions[own_rank], in, bytes);
  atomic_fetch_add(&shared->contributed, 1);
  for (int look = 0; atomic_load(&shared->contributed) < ranks; ++look) {
    if (look > kPatience * 1000) return 1;
    pause_briefly();
  }
  for (int r = 0; r < ranks; ++r) {
    memcpy((char*)out + (size_t)r * bytes, shared->contributions[r], bytes);
  }
  return 0;
}

static int set_on_board(void* context, const char* key, const void* value, size_t bytes) {
  (void)context;
  if (bytes > kMostValue || strlen(key) >= 256) return 1;
  while (atomic_flag_test_and_set(&shared->writing)) pause_briefly();
  const int at = atomic_load(&shared->keys);
  if (at < kMostKeys) {
    strcpy(shared->entries[at].key, key);
    memcpy(shared->entries[at].value, value, bytes);
    shared->entries[at].bytes = bytes;
    atomic_store(&shared->keys, at + 1);
  }
  atomic_flag_clear(&shared->writing);
  return at < kMostKeys ? 0 : 2;
}

static int get_from_board(void* context, const char* key, double seconds,
                          void (*give)(void* receiver, const void* value, size_t bytes),
                          void* receiver) {
  (void)context;
  for (int look = 0; look <= (int)(seconds * 1000); ++look) {
    const int known = atomic_load(&shared->keys);
    for (int i = 0; i < known; ++i) {
      if (strcmp(shared->entries[i].key, key) != 0) continue;
      give(receiver, shared->entries[i].value, shared->entries[i].bytes);
      return 0;
    }
    pause_briefly();
  }
  return 1;
}

static gw_status meet(meeting how, const gw_comm_options* options, gw_comm** comm) {
  if (how == BY_ALL_GATHER) {
    return gw_init_all_gather(gather_on_board, NULL, own_rank, ranks, options, comm);
  }
  if (how == BY_STORE) {
    const gw_store store = {NULL, set_on_board, get_from_board};
    return gw_init_store(&store, own_rank, ranks, options, comm);
  }
  if (own_rank == 0) {
    const gw_status made = gw_unique_id_create(options, &shared->id);
    if (made != GW_OK) return made;
    atomic_store(&shared->has_id, 1);
  }
  for (int look = 0; atomic_load(&shared->has_id) == 0 && look < kPatience * 1000; ++look) {
    pause_briefly();
  }
  return gw_init_unique_id(&shared->id, own_rank, ranks, options, comm);
}

static int run_rank(const char* transport, meeting how, rank_body body) {
  gw_comm* comm = NULL;
  gw_comm_options options = GW_COMM_OPTIONS_INIT;
  options.transport = transport;
  options.timeout_seconds = 60;
  alarm(kPatience);
  GW_CHECK_THAT(meet(how, &options, &comm) == GW_OK);
  if (comm != NULL) body(comm);
  gw_comm_free(comm);
  return failures == 0 ? 0 : 1;
}

int run_ranks(int size, const char* transport, meeting how, rank_body body) {
  pid_t children[kMostRanks];
  int failed = 0;
  ranks = size;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || size > kMostRanks) return size;
  fflush(NULL);
  for (own_rank = 0; own_rank < size; ++own_rank) {
    children[own_rank] = fork();
    if (children[own_rank] == 0) {
      const int status = run_rank(transport, how, body);
      fflush(NULL);
      _exit(status);
    }
  }
  for (int r = 0; r < size; ++r) {
    int status = 0;
    if (children[r] < 0 || waitpid(children[r], &status, 0) < 0 || status != 0) {
      fprintf(stderr, "rank %d of %d over %s ended with %d\n", r, size, transport, status);
      ++failed;
    }
  }
  munmap(shared, sizeof *shared);
  return failed;
}
