// Movements of rows of different sizes. Where MPI tells a row's size to its owner and the root
// alone, the ranks tell each other first, 8 bytes each; what they then all know decides whether
// gradwire carries the rows.
#include <mpi.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "adapters/mpi/arguments.h"
#include "adapters/mpi/shim.h"

using namespace gradwire::mpi;  // of the functions below alone
using gradwire::ConstTensorView;
using gradwire::DType;
using gradwire::OpCall;
using gradwire::OpKind;
using gradwire::Shape;
using gradwire::TensorView;

namespace {

// Every rank's number, by rank.
int tell_all(Interception& call, std::int64_t own, std::vector<std::int64_t>& numbers) {
  numbers.resize(static_cast<std::size_t>(call.size()));
  return call.run({.kind = OpKind::kAllGather,
                   .in = ConstTensorView{reinterpret_cast<const std::byte*>(&own), Shape::vector(1),
                                         DType::kI64},
                   .out = TensorView{reinterpret_cast<std::byte*>(numbers.data()),
                                     Shape::vector(call.size()), DType::kI64}});
}

// The same answer for the same numbers.
bool worth_it(const std::vector<std::int64_t>& bytes) {
  return std::ranges::any_of(bytes, [](std::int64_t n) { return n > 0; }) &&
         std::ranges::all_of(bytes, [](std::int64_t n) { return n <= kMostRowBytes; });
}

std::int64_t sum(const std::vector<std::int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

FlatRows rows_of(const void* base, MPI_Datatype type, const int counts[], const int places[],
                 int ranks) {
  std::vector<FlatRows::Row> list;
  for (int r = 0; r < ranks; ++r) list.push_back({places[r], counts[r]});
  return {base, type, std::move(list)};
}

std::vector<std::int64_t> bytes_of_all(const int counts[], MPI_Datatype type, int ranks) {
  std::vector<std::int64_t> bytes;
  for (int r = 0; r < ranks; ++r) bytes.push_back(bytes_of(counts[r], type));
  return bytes;
}

}  // namespace

int MPI_Gatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
                MPI_Comm comm) {
  Interception call(Call::kGatherv, comm);
  const auto left_to_mpi = [&](std::int64_t bytes) {
    call.leave(bytes);
    return PMPI_Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,
                        comm);
  };
  if (!call.possible() || root < 0 || root >= call.size())
    return left_to_mpi(sendbuf == MPI_IN_PLACE ? 0 : bytes_of(sendcount, sendtype));
  const bool at_root = call.rank() == root, in_place = at_root && sendbuf == MPI_IN_PLACE;
  const std::int64_t own_bytes =
      in_place ? bytes_of(recvcounts[root], recvtype) : bytes_of(sendcount, sendtype);
  std::vector<std::int64_t> bytes;
  GW_MPI_TRY(tell_all(call, own_bytes, bytes));
  if (!worth_it(bytes)) return left_to_mpi(own_bytes);
  OpCall operation{.kind = OpKind::kGatherV, .peer = root, .counts = bytes};
  FlatRows own = in_place ? FlatRows::even(nullptr, recvtype, 1, 0)
                          : FlatRows::even(sendbuf, sendtype, 1, sendcount);
  if (!in_place) {
    GW_MPI_TRY(own.pack(comm));
    operation.in = own.all();
  }
  if (!at_root) return call.carry(operation, own_bytes);
  FlatRows rows = rows_of(recvbuf, recvtype, recvcounts, displs, call.size());
  if (in_place) {
    GW_MPI_TRY(rows.pack_row(root, comm));
    operation.in = rows.row(root);
  }
  operation.out = rows.all();
  GW_MPI_TRY(call.carry(operation, sum(bytes)));
  return rows.unpack(comm);
}

int MPI_Scatterv(const void* sendbuf, const int sendcounts[], const int displs[],
                 MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype,
                 int root, MPI_Comm comm) {
  Interception call(Call::kScatterv, comm);
  const auto left_to_mpi = [&](std::int64_t bytes) {
    call.leave(bytes);
    return PMPI_Scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root,
                         comm);
  };
  if (!call.possible() || root < 0 || root >= call.size())
    return left_to_mpi(recvbuf == MPI_IN_PLACE ? 0 : bytes_of(recvcount, recvtype));
  const bool at_root = call.rank() == root, in_place = at_root && recvbuf == MPI_IN_PLACE;
  const std::int64_t own_bytes =
      in_place ? bytes_of(sendcounts[root], sendtype) : bytes_of(recvcount, recvtype);
  std::vector<std::int64_t> bytes;
  GW_MPI_TRY(tell_all(call, own_bytes, bytes));
  if (!worth_it(bytes)) return left_to_mpi(own_bytes);
  FlatRows own = in_place ? FlatRows::even(nullptr, sendtype, 1, 0)
                          : FlatRows::even(recvbuf, recvtype, 1, recvcount);
  OpCall operation{.kind = OpKind::kScatterV, .out = own.all(), .peer = root, .counts = bytes};
  if (!at_root) {
    GW_MPI_TRY(call.carry(operation, own_bytes));
    return own.unpack(comm);
  }
  FlatRows rows = rows_of(sendbuf, sendtype, sendcounts, displs, call.size());
  GW_MPI_TRY(rows.pack(comm));
  operation.in = rows.all();
  // In place the root's own row stays where it is.
  if (in_place) operation.out = rows.row(root);
  GW_MPI_TRY(call.carry(operation, sum(bytes)));
  return in_place ? MPI_SUCCESS : own.unpack(comm);
}

// Both ends of a row know its size, and nobody else needs it; a rank without any row takes part.
int MPI_Alltoallv(const void* sendbuf, const int sendcounts[], const int sdispls[],
                  MPI_Datatype sendtype, void* recvbuf, const int recvcounts[], const int rdispls[],
                  MPI_Datatype recvtype, MPI_Comm comm) {
  Interception call(Call::kAlltoallv, comm);
  const bool in_place = sendbuf == MPI_IN_PLACE;
  const std::vector<std::int64_t> received = bytes_of_all(recvcounts, recvtype, call.size());
  if (!call.possible() || in_place) {
    call.leave(sum(received));
    return PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
                          recvtype, comm);
  }
  const std::vector<std::int64_t> sent = bytes_of_all(sendcounts, sendtype, call.size());
  FlatRows in = rows_of(sendbuf, sendtype, sendcounts, sdispls, call.size());
  FlatRows out = rows_of(recvbuf, recvtype, recvcounts, rdispls, call.size());
  GW_MPI_TRY(in.pack(comm));
  GW_MPI_TRY(call.carry({.kind = OpKind::kAllToAllV,
                         .in = in.all(),
                         .out = out.all(),
                         .counts = sent,
                         .recv_counts = received},
                        sum(received)));
  return out.unpack(comm);
}
