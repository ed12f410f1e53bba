// What an MPI program checks of MPI's collectives. Plain MPI calls: nothing here knows of gradwire.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

namespace mpi_program {

// What one rank has seen.
struct Checks {
  long made = 0;
  long failed = 0;
  // All-reduces over several ranks of float, double, 8-bit, or signed 32- or 64-bit integers, by
  // sum, product, minimum or maximum.
  long plain_allreduces = 0;
};

// A communicator to check on, and what to call it.
struct Place {
  const char* name;
  MPI_Comm comm;
  int rank = 0;
  int size = 0;

  Place(const char* name_, MPI_Comm comm_) : name(name_), comm(comm_) {
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
  }
};

template <typename T>
void compare(Checks& checks, const Place& place, const std::string& what,
             const std::vector<T>& seen, const std::vector<T>& wanted) {
  ++checks.made;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (seen[i] == wanted[i]) continue;
    ++checks.failed;
    std::printf("rank %d of %s: %s: element %zu is %.17g (%.17g wanted)\n", place.rank, place.name,
                what.c_str(), i, static_cast<double>(seen[i]), static_cast<double>(wanted[i]));
    return;
  }
}

// Element i of rank r: -2 to 2, or 0 to 4 of unsigned types; small, so that all sums are exact.
template <typename T>
std::int64_t number(int r, std::int64_t i) {
  const std::int64_t value = (r * 7 + i * 3 + i / 5) % 5;
  return std::is_unsigned_v<T> ? value : value - 2;
}

// Four bytes that tell where they come from.
inline std::int32_t label(int from, int to, std::int64_t i) {
  return static_cast<std::int32_t>(from * 1000003 + to * 5003 + i * 7);
}

void check_reductions(Checks& checks, const Place& place);
void check_moves(Checks& checks, const Place& place);
// Types and operations beyond the usual.
void check_foreign(Checks& checks, const Place& place);
void check_nonblocking(Checks& checks, const Place& place);
// Rows of different sizes, also none.
void check_vectors(Checks& checks, const Place& place);
// Requests that are waited for and tested in every way, among others of MPI's own.
void check_requests(Checks& checks, const Place& place);
void check_scans(Checks& checks, const Place& place);

}  // namespace mpi_program
