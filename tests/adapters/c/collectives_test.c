/* Every collective of the C API between processes, against plain loops over what each rank is known
 * to hold: out of place and in place, every type, every reduction. */
#include <gradwire/c.h>
#include <stdlib.h>

#include "checks.h"
#include "ranks.h"

enum { kCount = 37, kMostRanks = 8 };

static int rank, size;

/* Small whole numbers, so that sums and products of few are exact in every type. */
static int number(int r, int i) { return (r * 7 + i * 3) % 5 + 1; }

static void put(gw_dtype dtype, void* memory, int i, double value) {
  switch (dtype) {
    case GW_F64: ((double*)memory)[i] = value; break;
    case GW_F32: ((float*)memory)[i] = (float)value; break;
    case GW_I64: ((int64_t*)memory)[i] = (int64_t)value; break;
    case GW_I32: ((int32_t*)memory)[i] = (int32_t)value; break;
    case GW_I8: ((int8_t*)memory)[i] = (int8_t)value; break;
    case GW_U8: ((uint8_t*)memory)[i] = (uint8_t)value; break;
    case GW_BF16: {
      const float wide = (float)value;
      uint32_t bits;
      memcpy(&bits, &wide, sizeof bits);
      ((uint16_t*)memory)[i] = (uint16_t)(bits >> 16);
      break;
    }
    case GW_F16: { /* from 1 on, exact in 11 bits */
      int exponent = 15;
      while (value >= 2) {
        value /= 2;
        ++exponent;
      }
      ((uint16_t*)memory)[i] = (uint16_t)(exponent << 10 | (int)((value - 1) * 1024));
      break;
    }
  }
}

static double reduced(gw_reduction op, int ranks, int i) {
  int bits = number(0, i);
  double value = bits;
  for (int r = 1; r < ranks; ++r) {
    const int next = number(r, i);
    switch (op) {
      case GW_MAX: value = next > value ? next : value; break;
      case GW_MIN: value = next < value ? next : value; break;
      case GW_PRODUCT: value *= next; break;
      case GW_BIT_AND: value = bits &= next; break;
      case GW_BIT_OR: value = bits |= next; break;
      case GW_BIT_XOR: value = bits ^= next; break;
      default: value += next;
    }
  }
  if (op == GW_MEAN) return value / ranks;
  return op == GW_PRE_MUL_SUM ? 2 * value : value;
}

static int is_floating(gw_dtype dtype) { return dtype <= GW_BF16; }
static int takes(gw_dtype dtype, gw_reduction op) {
  if (op == GW_MEAN || op == GW_PRE_MUL_SUM) return is_floating(dtype);
  if (op >= GW_BIT_AND) return !is_floating(dtype);
  /* 5 to the fourth needs more than a byte. */
  return op != GW_PRODUCT || (dtype != GW_I8 && dtype != GW_U8);
}

/* A mean by 3 is rounded: then only exact sizes are compared. */
static int is_exact(gw_reduction op) { return op != GW_MEAN || (size & (size - 1)) == 0; }

static void fill(gw_dtype dtype, void* memory, int r, int first, int count) {
  for (int i = 0; i < count; ++i) put(dtype, memory, i, number(r, first + i));
}

static void reductions_of(gw_comm* comm, gw_dtype dtype, gw_reduction op) {
  char in[kMostRanks * kCount * 8], out[kCount * 8], wanted[kMostRanks * kCount * 8];
  const size_t width = gw_dtype_size(dtype), bytes = kCount * width;
  gw_op_options options = GW_OP_OPTIONS_INIT;
  gw_work* work = NULL;
  if (op == GW_PRE_MUL_SUM) options.factor = 2;
  for (int i = 0; i < size * kCount; ++i) put(dtype, wanted, i, reduced(op, size, i));

  fill(dtype, in, rank, 0, kCount);
  GW_CHECK_THAT(gw_all_reduce(comm, in, out, kCount, dtype, op, &options, &work) == GW_OK);
  GW_CHECK_THAT(gw_work_wait(work, 60) == GW_OK);
  GW_CHECK_THAT(memcmp(out, wanted, bytes) == 0);
  gw_work_free(work);
  GW_CHECK_THAT(gw_all_reduce(comm, in, in, kCount, dtype, op, &options, NULL) == GW_OK);
  GW_CHECK_THAT(memcmp(in, wanted, bytes) == 0);

  fill(dtype, in, rank, 0, kCount);
  memset(out, 0, sizeof out);
  GW_CHECK_THAT(gw_reduce(comm, in, rank == 1 ? out : NULL, kCount, dtype, op, 1, &options, NULL) ==
                GW_OK);
  GW_CHECK_THAT(rank != 1 || memcmp(out, wanted, bytes) == 0);

  fill(dtype, in, rank, 0, size * kCount);
  GW_CHECK_THAT(gw_reduce_scatter(comm, in, out, kCount, dtype, op, &options, NULL) == GW_OK);
  GW_CHECK_THAT(memcmp(out, wanted + (size_t)rank * bytes, bytes) == 0);
  int64_t counts[kMostRanks], before = 0;
  for (int r = 0; r < size; ++r) counts[r] = 3 + r;
  for (int r = 0; r < rank; ++r) before += counts[r];
  GW_CHECK_THAT(gw_reduce_scatter_v(comm, in, out, counts, dtype, op, &options, NULL) == GW_OK);
  GW_CHECK_THAT(memcmp(out, wanted + (size_t)before * width, (size_t)counts[rank] * width) == 0);
  if (op == GW_MEAN) return;
  fill(dtype, in, rank, 0, kCount);
  GW_CHECK_THAT(gw_exclusive_scan(comm, in, out, kCount, dtype, op, &options, NULL) == GW_OK);
  for (int i = 0; i < kCount && rank > 0; ++i) put(dtype, wanted, i, reduced(op, rank, i));
  GW_CHECK_THAT(rank == 0 || memcmp(out, wanted, bytes) == 0);
}

static void reductions(gw_comm* comm) {
  for (int dtype = GW_F64; dtype <= GW_U8; ++dtype) {
    for (int op = GW_SUM; op <= GW_BIT_XOR; ++op) {
      if (!takes((gw_dtype)dtype, (gw_reduction)op) || !is_exact((gw_reduction)op)) continue;
      reductions_of(comm, (gw_dtype)dtype, (gw_reduction)op);
    }
  }
  float one[3], other[5];
  void* tensors[2] = {one, other};
  const int64_t counts[2] = {3, 5};
  fill(GW_F32, one, rank, 0, 3);
  fill(GW_F32, other, rank, 3, 5);
  GW_CHECK_THAT(gw_all_reduce_many(comm, tensors, counts, 2, GW_F32, GW_MAX, NULL, NULL) == GW_OK);
  for (int i = 0; i < 8; ++i) {
    GW_CHECK_THAT((i < 3 ? one[i] : other[i - 3]) == (float)reduced(GW_MAX, size, i));
  }
}

/* Row r of what rank `from` has: numbers that tell both. */
static int32_t mark(int from, int r, int i) { return from * 10000 + r * 100 + i; }

static void movements(gw_comm* comm) {
  int32_t in[kMostRanks * kCount], out[kMostRanks * kCount];
  for (int i = 0; i < kCount; ++i) in[i] = mark(rank, 0, i);
  GW_CHECK_THAT(gw_all_gather(comm, in, out, kCount, GW_I32, NULL, NULL) == GW_OK);
  for (int j = 0; j < size * kCount; ++j) GW_CHECK_THAT(out[j] == mark(j / kCount, 0, j % kCount));
  memset(out, 0, sizeof out);
  memcpy(out + rank * kCount, in, kCount * sizeof *in);
  GW_CHECK_THAT(gw_all_gather(comm, out + rank * kCount, out, kCount, GW_I32, NULL, NULL) == GW_OK);
  for (int j = 0; j < size * kCount; ++j) GW_CHECK_THAT(out[j] == mark(j / kCount, 0, j % kCount));

  memset(out, 0, sizeof out);
  GW_CHECK_THAT(gw_gather(comm, in, rank == 0 ? out : NULL, kCount, GW_I32, 0, NULL, NULL) ==
                GW_OK);
  for (int j = 0; j < size * kCount && rank == 0; ++j) {
    GW_CHECK_THAT(out[j] == mark(j / kCount, 0, j % kCount));
  }
  int32_t copy[kCount];
  memcpy(copy, in, sizeof copy);
  GW_CHECK_THAT(gw_broadcast(comm, copy, kCount, GW_I32, size - 1, NULL, NULL) == GW_OK);
  for (int i = 0; i < kCount; ++i) GW_CHECK_THAT(copy[i] == mark(size - 1, 0, i));

  for (int j = 0; j < size * kCount; ++j) in[j] = mark(rank, j / kCount, j % kCount);
  GW_CHECK_THAT(gw_scatter(comm, rank == 1 ? in : NULL, copy, kCount, GW_I32, 1, NULL, NULL) ==
                GW_OK);
  for (int i = 0; i < kCount; ++i) GW_CHECK_THAT(copy[i] == mark(1, rank, i));
  GW_CHECK_THAT(gw_all_to_all(comm, in, out, kCount, GW_I32, NULL, NULL) == GW_OK);
  for (int j = 0; j < size * kCount; ++j) {
    GW_CHECK_THAT(out[j] == mark(j / kCount, rank, j % kCount));
  }
}

/* Rank r has r + 1 elements for everybody. */
static void counted_movements(gw_comm* comm) {
  int32_t in[kMostRanks * kMostRanks], out[kMostRanks * kMostRanks];
  int64_t counts[kMostRanks], alike[kMostRanks];
  int all = 0, at = 0;
  for (int r = 0; r < size; ++r) {
    counts[r] = r + 1;
    alike[r] = rank + 1;
    all += r + 1;
  }
  for (int i = 0; i <= rank; ++i) in[i] = mark(rank, 0, i);
  GW_CHECK_THAT(gw_all_gather_v(comm, in, out, counts, GW_I32, NULL, NULL) == GW_OK);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i <= r; ++i) GW_CHECK_THAT(out[at++] == mark(r, 0, i));
  }
  memset(out, 0, sizeof out);
  GW_CHECK_THAT(gw_gather_v(comm, in, out, counts, GW_I32, 1, NULL, NULL) == GW_OK);
  GW_CHECK_THAT(rank != 1 || out[all - 1] == mark(size - 1, 0, size - 1));
  for (int i = 0; i < all; ++i) in[i] = 500 + i;
  GW_CHECK_THAT(gw_scatter_v(comm, in, out, counts, GW_I32, 0, NULL, NULL) == GW_OK);
  for (int i = 0; i <= rank; ++i) GW_CHECK_THAT(out[i] == 500 + rank * (rank + 1) / 2 + i);
  at = 0;
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i <= rank; ++i) in[at++] = mark(rank, r, i);
  }
  GW_CHECK_THAT(gw_all_to_all_v(comm, in, alike, out, counts, GW_I32, NULL, NULL) == GW_OK);
  at = 0;
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i <= r; ++i) GW_CHECK_THAT(out[at++] == mark(r, rank, i));
  }
}

static void every_collective(gw_comm* comm) {
  rank = gw_comm_rank(comm);
  size = gw_comm_size(comm);
  reductions(comm);
  movements(comm);
  counted_movements(comm);
  GW_CHECK_THAT(gw_barrier(comm, NULL, NULL) == GW_OK);
  GW_CHECK_THAT(gw_comm_status(comm) == GW_OK);
}

/* SIZE TRANSPORT */
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int ranks = atoi(argv[1]);
  return run_ranks(ranks, argv[2], BY_UNIQUE_ID, every_collective) == 0 ? 0 : 1;
}
