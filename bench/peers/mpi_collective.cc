// The peer of `gradwire bench OPERATION` over MPI, fp32, sums in place; send_recv and
// send_recv_one_way as with `--messages 0`.
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
    for (const char* known : {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                              "all_to_all", "send_recv", "send_recv_one_way"}) {
      if (operation_ == known) return true;
    }
    return false;
  }

  void run(std::vector<float>& data) override {
    const auto count = static_cast<int>(data.size());
    const int row = count / ranks_;
    other_.resize(data.size());
    if (operation_ == "send_recv") {
      run_messages(data, true, true);
    } else if (operation_ == "send_recv_one_way") {
      run_messages(data, rank_ % 2 == 0, rank_ % 2 == 1);
      if (rank_ % 2 == 0) {
        MPI_Recv(other_.data(), 1, MPI_FLOAT, rank_ + 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else {
        MPI_Send(data.data(), 1, MPI_FLOAT, rank_ - 1, kTag, MPI_COMM_WORLD);
      }
    } else if (operation_ == "all_reduce") {
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
  static constexpr int kTag = 7;

  void run_messages(std::vector<float>& data, bool sends, bool receives) {
    const auto count = static_cast<int>(data.size());
    const long messages = peers::messages_of(static_cast<long>(data.size() * sizeof(float)));
    requests_.clear();
    const auto add = [this] { return &requests_.emplace_back(MPI_REQUEST_NULL); };
    for (long i = 0; receives && i < messages; ++i) {
      MPI_Irecv(other_.data(), count, MPI_FLOAT, (rank_ + ranks_ - 1) % ranks_, kTag,
                MPI_COMM_WORLD, add());
    }
    for (long i = 0; sends && i < messages; ++i) {
      MPI_Isend(data.data(), count, MPI_FLOAT, (rank_ + 1) % ranks_, kTag, MPI_COMM_WORLD, add());
    }
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

  std::string operation_;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<float> other_;
  std::vector<MPI_Request> requests_;
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
                 "mpi_collective: LABEL all_reduce|all_gather|reduce_scatter|broadcast|all_to_all|"
                 "send_recv|send_recv_one_way SECONDS BYTES... wanted\n");
  }
  MPI_Finalize();
  return status;
}
