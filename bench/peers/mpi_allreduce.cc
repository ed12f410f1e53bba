// The peer of `gradwire bench all_reduce`: MPI_Allreduce of fp32 sums in place, measured in the
// same way (zeros, back to back, the slowest rank's time of each operation), one JSON line a size.
//   mpirun -n 2 mpi_allreduce LABEL SECONDS BYTES...
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kWarmUps = 3;
constexpr int kLeast = 10;
constexpr int kMost = 2000;

void sum(std::vector<float>& data) {
  MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                MPI_COMM_WORLD);
}

int operations_for(std::vector<float>& data, double seconds) {
  double last = 0;
  for (int i = 0; i < kWarmUps; ++i) {
    const double start = MPI_Wtime();
    sum(data);
    last = MPI_Wtime() - start;
  }
  MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return static_cast<int>(std::clamp(seconds / std::max(last, 1e-9), 1.0 * kLeast, 1.0 * kMost));
}

std::vector<double> times_of(std::vector<float>& data, int operations) {
  std::vector<double> micros(static_cast<std::size_t>(operations));
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (double& each : micros) {
    sum(data);
    const double now = MPI_Wtime();
    each = (now - start) * 1e6;
    start = now;
  }
  MPI_Allreduce(MPI_IN_PLACE, micros.data(), operations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::sort(micros.begin(), micros.end());
  return micros;
}

// Elements that are wrong when every rank gives whole numbers.
long wrong_elements(std::vector<float>& data, int rank, int ranks) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(i % 512 + static_cast<std::size_t>(rank));
  }
  sum(data);
  long wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto first = static_cast<float>(ranks * static_cast<int>(i % 512));
    wrong += data[i] == first + static_cast<float>(ranks * (ranks - 1) / 2) ? 0 : 1;
  }
  std::fill(data.begin(), data.end(), 0.0f);
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 3; i < argc; ++i) {
    const long bytes = std::atol(argv[i]);
    std::vector<float> data(static_cast<std::size_t>(bytes) / sizeof(float));
    const long wrong = wrong_elements(data, rank, ranks);
    const int operations = operations_for(data, std::atof(argv[2]));
    const std::vector<double> micros = times_of(data, operations);
    if (rank != 0) continue;
    const double p50 = micros[(micros.size() + 1) / 2 - 1];
    const double share = 2.0 * (ranks - 1) / ranks;
    std::printf(
        "{\"op\":\"all_reduce\",\"transport\":\"%s\",\"ranks\":%d,\"bytes\":%ld,\"operations\":%d,"
        "\"time_us_min\":%.3f,\"time_us_p50\":%.3f,\"algbw_gbps\":%.4f,\"busbw_gbps\":%.4f,"
        "\"wrong\":%ld}\n",
        argv[1], ranks, bytes, operations, micros.front(), p50,
        static_cast<double>(bytes) / p50 * 1e-3, share * static_cast<double>(bytes) / p50 * 1e-3,
        wrong);
    std::fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
