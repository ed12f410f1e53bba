// Movements of data, also with types and counts that differ between ranks for the same data.
#include <algorithm>

#include "tests/adapters/mpi/checks.h"

namespace mpi_program {
namespace {

constexpr int kCounts[] = {1, 12, 3000, 120000};  // divisible by 4, but for the first

using Labels = std::vector<std::int32_t>;

Labels labels(int from, int to, int count) {
  Labels data;
  for (int i = 0; i < count; ++i) data.push_back(label(from, to, i));
  return data;
}

// One way to lay `count` 32-bit integers out in memory.
class Layout {
 public:
  enum class Kind { kPlain, kQuads, kEveryOther };
  Layout(Kind kind, int count) : count(count) {
    if (kind == Kind::kQuads && count % 4 == 0) {
      MPI_Type_contiguous(4, MPI_INT32_T, &type);
      elements = count / 4;
    } else if (kind == Kind::kEveryOther) {
      // One integer, and as much room behind it.
      MPI_Type_create_resized(MPI_INT32_T, 0, 8, &type);
      elements = count;
      stride = 2;
    } else {
      type = MPI_INT32_T;
      elements = count;
      return;
    }
    MPI_Type_commit(&type);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() {
    if (type != MPI_INT32_T) MPI_Type_free(&type);
  }

  // Memory with `data` in it; what is between is -1.
  Labels spread(const Labels& data) const {
    Labels memory(data.size() * static_cast<std::size_t>(stride), -1);
    for (std::size_t i = 0; i < data.size(); ++i) {
      memory[i * static_cast<std::size_t>(stride)] = data[i];
    }
    return memory;
  }
  Labels empty(int rows) const {
    return Labels(static_cast<std::size_t>(rows) * static_cast<std::size_t>(count * stride), -1);
  }

  int count;
  int elements = 0;  // of `type`
  int stride = 1;
  MPI_Datatype type = MPI_DATATYPE_NULL;
};

// Ranks of one call lay their data out differently.
Layout::Kind kind_of(int rank, bool mixed) {
  if (!mixed) return Layout::Kind::kPlain;
  constexpr Layout::Kind kKinds[] = {Layout::Kind::kQuads, Layout::Kind::kEveryOther,
                                     Layout::Kind::kPlain};
  return kKinds[rank % 3];
}

Labels joined(const std::vector<Labels>& parts) {
  Labels all;
  for (const Labels& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

struct Moves {
  Checks& checks;
  const Place& place;
  int count;
  bool mixed;
  Layout here{kind_of(place.rank, mixed), count};
  Layout there{kind_of(place.rank + 1, mixed), count};  // for the other buffer

  std::string what(const char* call) const {
    return std::string(call) + " of " + std::to_string(count) + (mixed ? ", mixed types" : "");
  }
  Labels from_all(int to) const {
    std::vector<Labels> parts;
    for (int r = 0; r < place.size; ++r) parts.push_back(labels(r, to, count));
    return joined(parts);
  }
  Labels to_all(int from) const {
    std::vector<Labels> parts;
    for (int r = 0; r < place.size; ++r) parts.push_back(labels(from, r, count));
    return joined(parts);
  }

  void broadcast() {
    for (int root = 0; root < place.size; ++root) {
      const Labels wanted = here.spread(labels(root, 0, count));
      Labels data = place.rank == root ? wanted : here.empty(1);
      MPI_Bcast(data.data(), here.elements, here.type, root, place.comm);
      compare(checks, place, what("MPI_Bcast"), data, wanted);
    }
  }

  void all_gather() {
    const Labels own = here.spread(labels(place.rank, 0, count));
    const Labels wanted = there.spread(from_all(0));
    Labels out = there.empty(place.size);
    MPI_Allgather(own.data(), here.elements, here.type, out.data(), there.elements, there.type,
                  place.comm);
    compare(checks, place, what("MPI_Allgather"), out, wanted);
    Labels both = there.empty(place.size);
    const auto row = static_cast<std::ptrdiff_t>(count * there.stride);
    std::copy_n(wanted.begin() + row * place.rank, row, both.begin() + row * place.rank);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both.data(), there.elements, there.type,
                  place.comm);
    compare(checks, place, what("MPI_Allgather in place"), both, wanted);
  }

  void all_to_all() {
    const Labels in = here.spread(to_all(place.rank));
    const Labels wanted = there.spread(from_all(place.rank));
    Labels out = there.empty(place.size);
    MPI_Alltoall(in.data(), here.elements, here.type, out.data(), there.elements, there.type,
                 place.comm);
    compare(checks, place, what("MPI_Alltoall"), out, wanted);
    // In place MPI wants one layout.
    Labels both = to_all(place.rank);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both.data(), count, MPI_INT32_T, place.comm);
    compare(checks, place, what("MPI_Alltoall in place"), both, from_all(place.rank));
  }

  void gather() {
    for (int root = 0; root < place.size; ++root) {
      const Labels own = here.spread(labels(place.rank, root, count));
      const Labels wanted = there.spread(from_all(root));
      const bool at_root = place.rank == root;
      Labels out = there.empty(at_root ? place.size : 0);
      MPI_Gather(own.data(), here.elements, here.type, out.data(), at_root ? there.elements : -1,
                 at_root ? there.type : MPI_DATATYPE_NULL, root, place.comm);
      if (at_root) compare(checks, place, what("MPI_Gather"), out, wanted);
      if (!at_root) {
        MPI_Gather(own.data(), here.elements, here.type, nullptr, 0, MPI_DATATYPE_NULL, root,
                   place.comm);
        continue;
      }
      Labels both = there.empty(place.size);
      const auto row = static_cast<std::ptrdiff_t>(count * there.stride);
      std::copy_n(wanted.begin() + row * root, row, both.begin() + row * root);
      MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both.data(), there.elements, there.type, root,
                 place.comm);
      compare(checks, place, what("MPI_Gather in place"), both, wanted);
    }
  }

  void scatter() {
    for (int root = 0; root < place.size; ++root) {
      const bool at_root = place.rank == root;
      Labels in = at_root ? there.spread(to_all(root)) : Labels();
      const Labels wanted = here.spread(labels(root, place.rank, count));
      Labels out = here.empty(1);
      MPI_Scatter(in.data(), at_root ? there.elements : -1,
                  at_root ? there.type : MPI_DATATYPE_NULL, out.data(), here.elements, here.type,
                  root, place.comm);
      compare(checks, place, what("MPI_Scatter"), out, wanted);
      if (at_root) {
        const Labels before = in;
        MPI_Scatter(in.data(), there.elements, there.type, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root,
                    place.comm);
        compare(checks, place, what("MPI_Scatter in place at the root"), in, before);
        continue;
      }
      out = here.empty(1);
      MPI_Scatter(nullptr, 0, MPI_DATATYPE_NULL, out.data(), here.elements, here.type, root,
                  place.comm);
      compare(checks, place, what("MPI_Scatter in place"), out, wanted);
    }
  }
};

// Rank r gives r + 1 times `count` integers; the rows lie in `backward` order, with gaps of one.
void all_gather_v(Checks& checks, const Place& place, int count, bool backward) {
  std::vector<int> counts, begins(static_cast<std::size_t>(place.size));
  for (int r = 0; r < place.size; ++r) counts.push_back((r + 1) * count);
  int next = 0;
  for (int i = 0; i < place.size; ++i) {
    const auto r = static_cast<std::size_t>(backward ? place.size - 1 - i : i);
    begins[r] = next;
    next += counts[r] + (backward ? 1 : 0);
  }
  Labels wanted(static_cast<std::size_t>(next), -1);
  for (int r = 0; r < place.size; ++r) {
    std::ranges::copy(labels(r, 0, counts[static_cast<std::size_t>(r)]),
                      wanted.begin() + begins[static_cast<std::size_t>(r)]);
  }
  const auto me = static_cast<std::size_t>(place.rank);
  const Labels own = labels(place.rank, 0, counts[me]);
  Labels out(wanted.size(), -1);
  MPI_Allgatherv(own.data(), counts[me], MPI_INT32_T, out.data(), counts.data(), begins.data(),
                 MPI_INT32_T, place.comm);
  const std::string what =
      "MPI_Allgatherv of " + std::to_string(count) + (backward ? ", backward" : "");
  compare(checks, place, what, out, wanted);
  Labels both(wanted.size(), -1);
  std::ranges::copy(own, both.begin() + begins[me]);
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both.data(), counts.data(), begins.data(),
                 MPI_INT32_T, place.comm);
  compare(checks, place, what + " in place", both, wanted);
}

}  // namespace

void check_moves(Checks& checks, const Place& place) {
  for (const int count : kCounts) {
    for (const bool mixed : {false, true}) {
      Moves moves{checks, place, count, mixed};
      moves.broadcast();
      moves.all_gather();
      moves.all_to_all();
      moves.gather();
      moves.scatter();
    }
    all_gather_v(checks, place, count, false);
    all_gather_v(checks, place, count, true);
    MPI_Barrier(place.comm);
  }
}

// Requests that are started before, and completed after, collectives that block.
void check_nonblocking(Checks& checks, const Place& place) {
  std::vector<int> sum(1000, place.rank + 1);
  Labels data = place.rank == 0 ? labels(0, 0, 5000) : Labels(5000, -1);
  MPI_Request requests[2];
  MPI_Iallreduce(MPI_IN_PLACE, sum.data(), 1000, MPI_INT, MPI_SUM, place.comm, &requests[0]);
  MPI_Ibcast(data.data(), 5000, MPI_INT32_T, 0, place.comm, &requests[1]);
  int ones = 1;
  MPI_Allreduce(MPI_IN_PLACE, &ones, 1, MPI_INT, MPI_SUM, place.comm);
  if (place.size > 1) ++checks.plain_allreduces;
  MPI_Barrier(place.comm);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  compare(checks, place, "MPI_Allreduce between requests", std::vector<int>{ones},
          std::vector<int>{place.size});
  compare(checks, place, "MPI_Iallreduce", sum,
          std::vector<int>(1000, place.size * (place.size + 1) / 2));
  compare(checks, place, "MPI_Ibcast", data, labels(0, 0, 5000));
}

}  // namespace mpi_program
