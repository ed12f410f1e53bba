// The peer of `gradwire bench OPERATION` over MPI, fp32, sums in place.
//   mpirun -n 2 mpi_collective LABEL OPERATION SECONDS BYTES...
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/peers/timing.h"

namespace {

class Mpi final : public peers::Peer {
 public:
  explicit Mpi(std::string operation) : operation_(std::move(operation)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  bool knows_operation() const {
    for (const char* known :
         {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}) {
      if (operation_ == known) return true;
    }
    return false;
  }

  void run(std::vector<float>& data) override {
    const auto count = static_cast<int>(data.size());
    const int row = count / ranks_;
    other_.resize(data.size());
    if (operation_ == "all_reduce") {
      MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (operation_ == "all_gather") {
      MPI_Allgather(data.data(), row, MPI_FLOAT, other_.data(), row, MPI_FLOAT, MPI_COMM_WORLD);
    } else if (operation_ == "reduce_scatter") {
      MPI_Reduce_scatter_block(data.data(), other_.data(), row, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (operation_ == "broadcast") {
      MPI_Bcast(data.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    } else {
      MPI_Alltoall(data.data(), row, MPI_FLOAT, other_.data(), row, MPI_FLOAT, MPI_COMM_WORLD);
    }
  }
  void max(std::vector<double>& values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  std::string operation_;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<float> other_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 2;
  if (argc > 4) {
    Mpi peer(argv[2]);
    status = peer.knows_operation() ? 0 : 2;
    for (int i = 4; i < argc && status == 0; ++i) {
      peers::measure(peer, argv[1], argv[2], std::atof(argv[3]), std::atol(argv[i]));
    }
  }
  if (status != 0) {
    std::fprintf(stderr,
                 "mpi_collective: LABEL all_reduce|all_gather|reduce_scatter|broadcast|all_to_all "
                 "SECONDS BYTES... wanted\n");
  }
  MPI_Finalize();
  return status;
}
