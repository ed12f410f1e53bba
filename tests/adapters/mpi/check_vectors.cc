// Rows of different sizes, and sums over the ranks before this one.
#include <algorithm>
#include <numeric>

#include "tests/adapters/mpi/checks.h"

namespace mpi_program {
namespace {

using Labels = std::vector<std::int32_t>;

// Rank r's row towards rank q has so many integers: none for some.
int count_of(int r, int q, int scale) { return (r * 3 + q * 5) % 4 * scale; }

Labels labels(int from, int to, int count) {
  Labels data;
  for (int i = 0; i < count; ++i) data.push_back(label(from, to, i));
  return data;
}

// Rows in rank order with `gap` unused integers behind each.
struct Rows {
  Rows(std::vector<int> row_counts, int gap) : counts(std::move(row_counts)) {
    for (const int count : counts) {
      places.push_back(total);
      total += count + gap;
    }
  }
  // With row r as row_of(r) says, -1 in between.
  template <typename F>
  Labels filled(const F& row_of) const {
    Labels memory(static_cast<std::size_t>(total) + 1, -1);
    for (std::size_t r = 0; r < counts.size(); ++r) {
      std::ranges::copy(row_of(static_cast<int>(r)), memory.begin() + places[r]);
    }
    return memory;
  }
  Labels empty() const { return Labels(static_cast<std::size_t>(total) + 1, -1); }

  std::vector<int> counts, places;
  int total = 0;
};

template <typename F>
std::vector<int> counts(int size, const F& count) {
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(count(r));
  return all;
}

void gather_v(Checks& checks, const Place& place, int scale, int gap) {
  for (int root = 0; root < place.size; ++root) {
    const auto row = [&](int r) { return labels(r, root, count_of(r, root, scale)); };
    const Rows rows(counts(place.size, [&](int r) { return count_of(r, root, scale); }), gap);
    const Labels own = row(place.rank);
    const bool at_root = place.rank == root;
    Labels out = rows.empty();
    MPI_Gatherv(own.data(), static_cast<int>(own.size()), MPI_INT32_T,
                at_root ? out.data() : nullptr, at_root ? rows.counts.data() : nullptr,
                at_root ? rows.places.data() : nullptr, at_root ? MPI_INT32_T : MPI_DATATYPE_NULL,
                root, place.comm);
    if (at_root) compare(checks, place, "MPI_Gatherv", out, rows.filled(row));
    // Once more, with the root's own row in its place already.
    Labels both =
        rows.filled([&](int r) { return r == root ? row(r) : Labels(row(r).size(), -1); });
    if (at_root) {
      MPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both.data(), rows.counts.data(),
                  rows.places.data(), MPI_INT32_T, root, place.comm);
      compare(checks, place, "MPI_Gatherv in place", both, rows.filled(row));
    } else {
      MPI_Gatherv(own.data(), static_cast<int>(own.size()), MPI_INT32_T, nullptr, nullptr, nullptr,
                  MPI_DATATYPE_NULL, root, place.comm);
    }
  }
}

void scatter_v(Checks& checks, const Place& place, int scale, int gap) {
  for (int root = 0; root < place.size; ++root) {
    const auto row = [&](int r) { return labels(root, r, count_of(root, r, scale)); };
    const Rows rows(counts(place.size, [&](int r) { return count_of(root, r, scale); }), gap);
    const bool at_root = place.rank == root;
    Labels in = at_root ? rows.filled(row) : Labels();
    const Labels wanted = row(place.rank);
    Labels out(wanted.size() + 1, -1);
    MPI_Scatterv(in.data(), at_root ? rows.counts.data() : nullptr,
                 at_root ? rows.places.data() : nullptr, at_root ? MPI_INT32_T : MPI_DATATYPE_NULL,
                 out.data(), static_cast<int>(wanted.size()), MPI_INT32_T, root, place.comm);
    compare(checks, place, "MPI_Scatterv", out, wanted);
    std::ranges::fill(out, -1);
    if (at_root) {
      const Labels before = in;
      MPI_Scatterv(in.data(), rows.counts.data(), rows.places.data(), MPI_INT32_T, MPI_IN_PLACE, 0,
                   MPI_DATATYPE_NULL, root, place.comm);
      compare(checks, place, "MPI_Scatterv in place at the root", in, before);
    } else {
      MPI_Scatterv(nullptr, nullptr, nullptr, MPI_DATATYPE_NULL, out.data(),
                   static_cast<int>(wanted.size()), MPI_INT32_T, root, place.comm);
      compare(checks, place, "MPI_Scatterv in place", out, wanted);
    }
  }
}

void all_to_all_v(Checks& checks, const Place& place, int scale, int gap) {
  const auto sent = [&](int r) { return labels(place.rank, r, count_of(place.rank, r, scale)); };
  const auto received = [&](int r) {
    return labels(r, place.rank, count_of(r, place.rank, scale));
  };
  const Rows in(counts(place.size, [&](int r) { return count_of(place.rank, r, scale); }), gap);
  const Rows out(counts(place.size, [&](int r) { return count_of(r, place.rank, scale); }), 0);
  const Labels data = in.filled(sent);
  Labels seen = out.empty();
  MPI_Alltoallv(data.data(), in.counts.data(), in.places.data(), MPI_INT32_T, seen.data(),
                out.counts.data(), out.places.data(), MPI_INT32_T, place.comm);
  compare(checks, place, "MPI_Alltoallv", seen, out.filled(received));
}

template <typename T>
void scans(Checks& checks, const Place& place, MPI_Datatype type, int count) {
  std::vector<T> own, before(static_cast<std::size_t>(count), 0), with;
  for (int i = 0; i < count; ++i) own.push_back(static_cast<T>(number<T>(place.rank, i)));
  for (int r = 0; r < place.rank; ++r) {
    for (int i = 0; i < count; ++i) {
      before[static_cast<std::size_t>(i)] =
          static_cast<T>(before[static_cast<std::size_t>(i)] + static_cast<T>(number<T>(r, i)));
    }
  }
  for (std::size_t i = 0; i < own.size(); ++i) with.push_back(static_cast<T>(before[i] + own[i]));
  std::vector<T> out(own.size(), 99), both = own;
  MPI_Scan(own.data(), out.data(), count, type, MPI_SUM, place.comm);
  compare(checks, place, "MPI_Scan", out, with);
  MPI_Scan(MPI_IN_PLACE, both.data(), count, type, MPI_SUM, place.comm);
  compare(checks, place, "MPI_Scan in place", both, with);
  both = own;
  MPI_Exscan(own.data(), out.data(), count, type, MPI_SUM, place.comm);
  MPI_Exscan(MPI_IN_PLACE, both.data(), count, type, MPI_SUM, place.comm);
  if (place.rank == 0) return;  // has no result
  compare(checks, place, "MPI_Exscan", out, before);
  compare(checks, place, "MPI_Exscan in place", both, before);
}

}  // namespace

void check_vectors(Checks& checks, const Place& place) {
  for (const int scale : {1, 700, 30000}) {
    for (const int gap : {0, 1}) {
      gather_v(checks, place, scale, gap);
      scatter_v(checks, place, scale, gap);
      all_to_all_v(checks, place, scale, gap);
    }
  }
}

void check_scans(Checks& checks, const Place& place) {
  for (const int count : {1, 1000}) {
    scans<float>(checks, place, MPI_FLOAT, count);
    scans<double>(checks, place, MPI_DOUBLE, count);
    scans<std::int32_t>(checks, place, MPI_INT32_T, count);
    scans<std::int64_t>(checks, place, MPI_INT64_T, count);
    scans<std::int16_t>(checks, place, MPI_INT16_T, count);  // gradwire has no such type
  }
}

}  // namespace mpi_program
