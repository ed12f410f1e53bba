// Reductions against folds that are computed here, in 64-bit integers.
#include <algorithm>
#include <numeric>

#include "tests/adapters/mpi/checks.h"

namespace mpi_program {
namespace {

constexpr std::int64_t kCounts[] = {1, 7, 1000, 70001};

struct Op {
  const char* name;
  MPI_Op op;
};
const std::vector<Op>& ops() {
  static const std::vector<Op> all = {
      {"sum", MPI_SUM}, {"product", MPI_PROD}, {"minimum", MPI_MIN}, {"maximum", MPI_MAX}};
  return all;
}

template <typename T>
std::vector<T> own(int r, std::int64_t begin, std::int64_t count) {
  std::vector<T> data;
  for (std::int64_t i = begin; i < begin + count; ++i) {
    data.push_back(static_cast<T>(number<T>(r, i)));
  }
  return data;
}

template <typename T>
std::vector<T> folded(int ranks, std::int64_t begin, std::int64_t count, MPI_Op op) {
  std::vector<T> data;
  for (std::int64_t i = begin; i < begin + count; ++i) {
    std::int64_t value = number<T>(0, i);
    for (int r = 1; r < ranks; ++r) {
      const std::int64_t next = number<T>(r, i);
      if (op == MPI_SUM) value += next;
      if (op == MPI_PROD) value *= next;
      if (op == MPI_MIN) value = std::min(value, next);
      if (op == MPI_MAX) value = std::max(value, next);
    }
    data.push_back(static_cast<T>(value));
  }
  return data;
}

template <typename T>
struct Reduction {
  Checks& checks;
  const Place& place;
  const char* type_name;
  MPI_Datatype type;
  Op op;
  int count;

  std::string what(const char* call) const {
    return std::string(call) + " of " + std::to_string(count) + " " + type_name + ", " + op.name;
  }

  void all_reduce() {
    const std::vector<T> mine = own<T>(place.rank, 0, count);
    const std::vector<T> wanted = folded<T>(place.size, 0, count, op.op);
    std::vector<T> out(mine.size());
    MPI_Allreduce(mine.data(), out.data(), count, type, op.op, place.comm);
    compare(checks, place, what("MPI_Allreduce"), out, wanted);
    std::vector<T> both = mine;
    MPI_Allreduce(MPI_IN_PLACE, both.data(), count, type, op.op, place.comm);
    compare(checks, place, what("MPI_Allreduce in place"), both, wanted);
    if (place.size > 1) checks.plain_allreduces += 2;
  }

  void reduce() {
    const int root = count % place.size;
    std::vector<T> mine = own<T>(place.rank, 0, count);
    const std::vector<T> wanted = folded<T>(place.size, 0, count, op.op);
    std::vector<T> out(mine.size());
    MPI_Reduce(mine.data(), place.rank == root ? out.data() : nullptr, count, type, op.op, root,
               place.comm);
    if (place.rank == root) compare(checks, place, what("MPI_Reduce"), out, wanted);
#ifdef MPICH_VERSION
    // MPICH 4.0.2 ends with a segmentation fault in large ones in place at another root than rank
    // 0.
    if (root != 0 && mine.size() * sizeof(T) > 2048) return;
#endif
    if (place.rank != root) {
      MPI_Reduce(mine.data(), nullptr, count, type, op.op, root, place.comm);
      return;
    }
    MPI_Reduce(MPI_IN_PLACE, mine.data(), count, type, op.op, root, place.comm);
    compare(checks, place, what("MPI_Reduce in place"), mine, wanted);
  }

  void reduce_scatter_block() {
    const std::vector<T> mine = own<T>(place.rank, 0, std::int64_t{count} * place.size);
    const std::vector<T> wanted =
        folded<T>(place.size, std::int64_t{count} * place.rank, count, op.op);
    std::vector<T> out(static_cast<std::size_t>(count));
    MPI_Reduce_scatter_block(mine.data(), out.data(), count, type, op.op, place.comm);
    compare(checks, place, what("MPI_Reduce_scatter_block"), out, wanted);
    std::vector<T> both = mine;
    MPI_Reduce_scatter_block(MPI_IN_PLACE, both.data(), count, type, op.op, place.comm);
    both.resize(static_cast<std::size_t>(count));
    compare(checks, place, what("MPI_Reduce_scatter_block in place"), both, wanted);
  }

  // Rank r gets `count` elements more than rank r - 1; rank 0 none, but `even`, where all get one
  // row.
  void reduce_scatter(bool even) {
    std::vector<int> counts;
    for (int r = 0; r < place.size; ++r) counts.push_back(even ? count : r * count);
    const auto here = counts.begin() + place.rank;
    const std::int64_t before = std::accumulate(counts.begin(), here, std::int64_t{0});
    const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const std::vector<T> wanted = folded<T>(place.size, before, *here, op.op);
    const std::vector<T> mine = own<T>(place.rank, 0, all);
    std::vector<T> out(wanted.size());
    MPI_Reduce_scatter(mine.data(), out.data(), counts.data(), type, op.op, place.comm);
    compare(checks, place, what("MPI_Reduce_scatter"), out, wanted);
    std::vector<T> both = mine;
    MPI_Reduce_scatter(MPI_IN_PLACE, both.data(), counts.data(), type, op.op, place.comm);
    both.resize(wanted.size());
    compare(checks, place, what("MPI_Reduce_scatter in place"), both, wanted);
  }
};

template <typename T>
void check_type(Checks& checks, const Place& place, const char* name, MPI_Datatype type) {
  for (const Op& op : ops()) {
    for (const std::int64_t count : kCounts) {
      if (count > 10000 && op.op != MPI_SUM) continue;
      Reduction<T> reduction{checks, place, name, type, op, static_cast<int>(count)};
      reduction.all_reduce();
      reduction.reduce();
      if (count > 1000) continue;
      reduction.reduce_scatter_block();
      reduction.reduce_scatter(false);
      reduction.reduce_scatter(true);
    }
  }
}

// Not plain: of these gradwire has sums and products, or nothing.
template <typename T>
void check_foreign_type(Checks& checks, const Place& place, const char* name, MPI_Datatype type) {
  const long before = checks.plain_allreduces;
  for (const Op& op : ops()) {
    Reduction<T> reduction{checks, place, name, type, op, 1000};
    reduction.all_reduce();
    reduction.reduce();
    reduction.reduce_scatter_block();
  }
  checks.plain_allreduces = before;
}

// Takes the larger distance from 0; with MPI_Op_create.
void larger_distance(void* in, void* both, int* count, MPI_Datatype*) {
  const int* a = static_cast<const int*>(in);
  int* b = static_cast<int*>(both);
  for (int i = 0; i < *count; ++i) b[i] = std::max(std::abs(a[i]), std::abs(b[i]));
}

}  // namespace

void check_reductions(Checks& checks, const Place& place) {
  check_type<float>(checks, place, "MPI_FLOAT", MPI_FLOAT);
  check_type<double>(checks, place, "MPI_DOUBLE", MPI_DOUBLE);
  check_type<int>(checks, place, "MPI_INT", MPI_INT);
  check_type<std::int32_t>(checks, place, "MPI_INT32_T", MPI_INT32_T);
  check_type<long>(checks, place, "MPI_LONG", MPI_LONG);
  check_type<long long>(checks, place, "MPI_LONG_LONG", MPI_LONG_LONG);
  check_type<std::int64_t>(checks, place, "MPI_INT64_T", MPI_INT64_T);
  check_type<std::int8_t>(checks, place, "MPI_INT8_T", MPI_INT8_T);
  check_type<signed char>(checks, place, "MPI_SIGNED_CHAR", MPI_SIGNED_CHAR);
  check_type<std::uint8_t>(checks, place, "MPI_UINT8_T", MPI_UINT8_T);
  check_type<unsigned char>(checks, place, "MPI_UNSIGNED_CHAR", MPI_UNSIGNED_CHAR);
}

void check_foreign(Checks& checks, const Place& place) {
  check_foreign_type<short>(checks, place, "MPI_SHORT", MPI_SHORT);
  check_foreign_type<std::uint16_t>(checks, place, "MPI_UINT16_T", MPI_UINT16_T);
  check_foreign_type<long double>(checks, place, "MPI_LONG_DOUBLE", MPI_LONG_DOUBLE);
  // A one where any rank has one; a number and the rank that has it; an operation of our own.
  std::vector<int> bits(3, 1 << place.rank);
  MPI_Allreduce(MPI_IN_PLACE, bits.data(), 3, MPI_INT, MPI_BOR, place.comm);
  compare(checks, place, "MPI_Allreduce of MPI_INT, MPI_BOR", bits,
          std::vector<int>(3, (1 << place.size) - 1));
  struct {
    double value;
    int rank;
  } pair{.value = -static_cast<double>(place.rank), .rank = place.rank};
  MPI_Allreduce(MPI_IN_PLACE, &pair, 1, MPI_DOUBLE_INT, MPI_MINLOC, place.comm);
  compare(checks, place, "MPI_Allreduce of MPI_DOUBLE_INT, MPI_MINLOC", std::vector<int>{pair.rank},
          std::vector<int>{place.size - 1});
  MPI_Op distance = MPI_OP_NULL;
  MPI_Op_create(larger_distance, 1, &distance);
  std::vector<int> numbers(5, place.rank % 2 == 0 ? place.rank : -place.rank);
  MPI_Allreduce(MPI_IN_PLACE, numbers.data(), 5, MPI_INT, distance, place.comm);
  MPI_Op_free(&distance);
  compare(checks, place, "MPI_Allreduce of MPI_INT, an operation of our own", numbers,
          std::vector<int>(5, place.size - 1));
}

}  // namespace mpi_program
