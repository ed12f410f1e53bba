// An ordinary MPI program: checks collectives, or times them in the manner of the OSU
// micro-benchmarks.
//   mpi_program check [THREAD LEVEL]    every collective on several communicators; "N checks, M
//   failed" from each rank mpi_program foreign                 only reductions of unusual types and
//   operations mpi_program pending                 a large message under way while its sender waits
//   in a barrier mpi_program late                    errors are returned; rank 1 does not come to
//   an all-reduce in time mpi_program latency [MOST BYTES]    a table of MPI_Allreduce, MPI_Bcast
//   and MPI_Alltoall
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/adapters/mpi/checks.h"

namespace mpi_program {
namespace {

void check_everything(Checks& checks, const Place& place) {
  check_reductions(checks, place);
  check_moves(checks, place);
  check_vectors(checks, place);
  check_scans(checks, place);
  check_nonblocking(checks, place);
  check_requests(checks, place);
  check_foreign(checks, place);
}

// The less dear ones, on communicators of every origin.
void check_derived(Checks& checks) {
  const Place world("MPI_COMM_WORLD", MPI_COMM_WORLD);
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &made);
  check_moves(checks, Place("a duplicate", made));
  check_nonblocking(checks, Place("a duplicate", made));
  MPI_Comm_free(&made);
  MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, -world.rank, &made);
  check_moves(checks, Place("every other rank, backward", made));
  check_nonblocking(checks, Place("every other rank, backward", made));
  MPI_Comm_free(&made);
  MPI_Group all = MPI_GROUP_NULL, rest = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  const int left_out = 0;
  MPI_Group_excl(all, 1, &left_out, &rest);
  MPI_Comm_create(MPI_COMM_WORLD, rest, &made);
  if (made != MPI_COMM_NULL) {
    check_nonblocking(checks, Place("all but rank 0", made));
    check_foreign(checks, Place("all but rank 0", made));
    MPI_Comm_free(&made);
  }
  MPI_Group_free(&rest);
  MPI_Group_free(&all);
  check_nonblocking(checks, Place("MPI_COMM_SELF", MPI_COMM_SELF));
}

// More communicators than anything keeps open at a time, one after another and together.
void check_many(Checks& checks) {
  std::array<MPI_Comm, 20> made;
  for (MPI_Comm& comm : made) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    int ones = 1;
    MPI_Allreduce(MPI_IN_PLACE, &ones, 1, MPI_INT, MPI_SUM, comm);
    const Place place("one of many", comm);
    compare(checks, place, "MPI_Allreduce", std::vector<int>{ones}, std::vector<int>{place.size});
  }
  for (MPI_Comm& comm : made) MPI_Comm_free(&comm);
}

// Two threads, each with a communicator of its own.
void check_threads(Checks& checks) {
  std::array<MPI_Comm, 2> made;
  std::array<Checks, 2> of_thread;
  for (MPI_Comm& comm : made) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::array<std::thread, 2> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads[i] =
        std::thread([&, i] { check_reductions(of_thread[i], Place("a thread's", made[i])); });
  }
  for (std::size_t i = 0; i < 2; ++i) {
    threads[i].join();
    MPI_Comm_free(&made[i]);
    checks.made += of_thread[i].made;
    checks.failed += of_thread[i].failed;
    checks.plain_allreduces += of_thread[i].plain_allreduces;
  }
}

// The receiver comes to the barrier only when it has the message, and the message needs its sender.
void check_pending(Checks& checks) {
  const Place world("MPI_COMM_WORLD", MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<int> data(4 << 20, world.rank);
  MPI_Request request = MPI_REQUEST_NULL;
  if (world.rank == 0) {
    MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
  } else if (world.rank == 1) {
    MPI_Recv(data.data(), static_cast<int>(data.size()), MPI_INT, 0, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    compare(checks, world, "MPI_Recv", data, std::vector<int>(data.size(), 0));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void say_error(const char* when, int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  std::printf("%s: %s\n", when, text.data());
}

void be_late() {
  const Place world("MPI_COMM_WORLD", MPI_COMM_WORLD);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);
  int number = 1;
  if (world.rank == 1) {
    MPI_Recv(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  const int code = MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  say_error(world.rank == 1 ? "late" : "in time", code);
  if (world.rank == 0) MPI_Send(&number, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
}

template <typename F>
void time_one(const char* name, int bytes, const F& collective) {
  const Place world("MPI_COMM_WORLD", MPI_COMM_WORLD);
  const int rounds = std::clamp(20000000 / (bytes + 20000), 10, 1000);
  for (int i = 0; i < rounds / 10; ++i) collective();
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < rounds; ++i) collective();
  const double mine = (MPI_Wtime() - start) / rounds * 1e6;
  double least = 0, most = 0, sum = 0;
  MPI_Reduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (world.rank == 0) {
    std::printf("%-14s %10d %12.2f %12.2f %12.2f %8d\n", name, bytes, sum / world.size, least, most,
                rounds);
  }
}

void print_latencies(int most_bytes) {
  const Place world("MPI_COMM_WORLD", MPI_COMM_WORLD);
  if (world.rank == 0) {
    std::printf("%-14s %10s %12s %12s %12s %8s\n", "# collective", "bytes", "mean us", "least us",
                "most us", "rounds");
  }
  for (int bytes = 8; bytes <= most_bytes; bytes *= 8) {
    const auto all = static_cast<std::size_t>(bytes) * static_cast<std::size_t>(world.size);
    std::vector<float> in(all / sizeof(float), 1), out(in.size());
    const int count = bytes / static_cast<int>(sizeof(float));
    time_one("MPI_Allreduce", bytes, [&] {
      MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    time_one("MPI_Bcast", bytes,
             [&] { MPI_Bcast(in.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD); });
    time_one("MPI_Alltoall", bytes, [&] {
      MPI_Alltoall(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
    });
  }
}

int report(const Checks& checks) {
  const Place world("MPI_COMM_WORLD", MPI_COMM_WORLD);
  std::printf("rank %d: %ld checks, %ld failed; %ld plain all-reduces\n", world.rank, checks.made,
              checks.failed, checks.plain_allreduces);
  return checks.failed == 0 ? 0 : 1;
}

// False: the name is none.
bool start_mpi(int* argc, char*** argv, const std::string& level) {
  constexpr std::array<const char*, 4> kNames = {"single", "funneled", "serialized", "multiple"};
  const std::array<int, 4> levels = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                     MPI_THREAD_MULTIPLE};
  if (level.empty()) return MPI_Init(argc, argv) == MPI_SUCCESS;
  const auto found = std::ranges::find(kNames, level);
  if (found == kNames.end()) return false;
  int provided = 0;
  return MPI_Init_thread(argc, argv, levels[static_cast<std::size_t>(found - kNames.begin())],
                         &provided) == MPI_SUCCESS;
}

int run(const std::string& mode, const std::string& more) {
  Checks checks;
  const Place world("MPI_COMM_WORLD", MPI_COMM_WORLD);
  if (mode == "check") {
    check_everything(checks, world);
    check_derived(checks);
    check_many(checks);
    if (more == "multiple") check_threads(checks);
  } else if (mode == "foreign") {
    check_foreign(checks, world);
  } else if (mode == "pending") {
    check_pending(checks);
  } else if (mode == "late") {
    be_late();
  } else if (mode == "latency") {
    print_latencies(more.empty() ? 4 << 20 : std::atoi(more.c_str()));
  } else {
    std::fprintf(stderr,
                 "mpi_program: no mode '%s' (check, foreign, pending, late or latency wanted)\n",
                 mode.c_str());
    return 2;
  }
  return mode == "latency" || mode == "late" ? 0 : report(checks);
}

}  // namespace
}  // namespace mpi_program

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string more = argc > 2 ? argv[2] : "";
  if (!mpi_program::start_mpi(&argc, &argv, mode == "check" ? more : "")) {
    std::fprintf(stderr, "mpi_program: thread level '%s'\n", more.c_str());
    return 2;
  }
  const int result = mpi_program::run(mode, more);
  MPI_Finalize();
  return result;
}
