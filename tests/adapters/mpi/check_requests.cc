// Collectives behind requests, waited for and tested in every way that MPI has, beside messages.
#include <array>
#include <functional>

#include "tests/adapters/mpi/checks.h"

namespace mpi_program {
namespace {

constexpr int kMany = 2000;  // integers

// A sum, a reduction to the last rank, a broadcast, an all-gather, a barrier and a message, all
// under way together.
class Batch {
 public:
  static constexpr int kRequests = 7;

  explicit Batch(const Place& place)
      : place_(place),
        sum_(kMany, place.rank + 1),
        all_(static_cast<std::size_t>(place.size) * kMany, -1) {
    const int last = place.size - 1, right = (place.rank + 1) % place.size;
    const int left = (place.rank + last) % place.size;
    if (place.rank == last) cast_.assign(kMany, 77);
    MPI_Irecv(received_.data(), kMany, MPI_INT, left, 5, place.comm, &requests[0]);
    MPI_Iallreduce(MPI_IN_PLACE, sum_.data(), kMany, MPI_INT, MPI_SUM, place.comm, &requests[1]);
    MPI_Ireduce(own_.data(), reduced_.data(), kMany, MPI_INT, MPI_MAX, last, place.comm,
                &requests[2]);
    MPI_Ibcast(cast_.data(), kMany, MPI_INT, last, place.comm, &requests[3]);
    MPI_Iallgather(own_.data(), kMany, MPI_INT, all_.data(), kMany, MPI_INT, place.comm,
                   &requests[4]);
    MPI_Ibarrier(place.comm, &requests[5]);
    MPI_Isend(own_.data(), kMany, MPI_INT, right, 5, place.comm, &requests[6]);
  }

  void compare_all(Checks& checks, const std::string& how) const {
    const int size = place_.size, last = size - 1;
    compare(checks, place_, how + ": MPI_Iallreduce", sum_,
            std::vector<int>(kMany, size * (size + 1) / 2));
    if (place_.rank == last)
      compare(checks, place_, how + ": MPI_Ireduce", reduced_, std::vector<int>(kMany, last));
    compare(checks, place_, how + ": MPI_Ibcast", cast_, std::vector<int>(kMany, 77));
    std::vector<int> gathered;
    for (int r = 0; r < size; ++r) gathered.insert(gathered.end(), kMany, r);
    compare(checks, place_, how + ": MPI_Iallgather", all_, gathered);
    compare(checks, place_, how + ": MPI_Irecv", received_,
            std::vector<int>(kMany, (place_.rank + last) % size));
    for (const MPI_Request request : requests) {
      compare(checks, place_, how + ": the request is gone",
              std::vector<int>{request == MPI_REQUEST_NULL ? 1 : 0}, std::vector<int>{1});
    }
  }

  std::array<MPI_Request, kRequests> requests;

 private:
  const Place& place_;
  std::vector<int> sum_, all_;
  std::vector<int> own_ = std::vector<int>(kMany, place_.rank);
  std::vector<int> reduced_ = std::vector<int>(kMany, -1), cast_ = reduced_, received_ = reduced_;
};

void wait_each(MPI_Request* requests, int count) {
  for (int i = count - 1; i >= 0; --i) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

void wait_any(MPI_Request* requests, int count) {
  for (int index = 0; index != MPI_UNDEFINED;) {
    MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
  }
}

void wait_some(MPI_Request* requests, int count) {
  std::array<int, Batch::kRequests> indices;
  for (int done = 0; done != MPI_UNDEFINED;) {
    MPI_Waitsome(count, requests, &done, indices.data(), MPI_STATUSES_IGNORE);
  }
}

void test_each(MPI_Request* requests, int count) {
  for (int i = 0; i < count; ++i) {
    for (int done = 0; done == 0;) MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
  }
}

void test_all(MPI_Request* requests, int count) {
  for (int done = 0; done == 0;) MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
}

void test_any(MPI_Request* requests, int count) {
  for (int index = 0, done = 0; done == 0 || index != MPI_UNDEFINED;) {
    MPI_Testany(count, requests, &index, &done, MPI_STATUS_IGNORE);
  }
}

void test_some(MPI_Request* requests, int count) {
  std::array<int, Batch::kRequests> indices;
  for (int done = 0; done != MPI_UNDEFINED;) {
    MPI_Testsome(count, requests, &done, indices.data(), MPI_STATUSES_IGNORE);
  }
}

void ask_then_wait(MPI_Request* requests, int count) {
  for (int i = 0; i < count; ++i) {
    for (int done = 0; done == 0;) MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE);
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

}  // namespace

void check_requests(Checks& checks, const Place& place) {
  struct Way {
    const char* name;
    void (*complete)(MPI_Request*, int);
  };
  for (const Way& way :
       {Way{"MPI_Wait", wait_each}, Way{"MPI_Waitany", wait_any}, Way{"MPI_Waitsome", wait_some},
        Way{"MPI_Test", test_each}, Way{"MPI_Testall", test_all}, Way{"MPI_Testany", test_any},
        Way{"MPI_Testsome", test_some}, Way{"MPI_Request_get_status", ask_then_wait}}) {
    Batch batch(place);
    way.complete(batch.requests.data(), Batch::kRequests);
    batch.compare_all(checks, way.name);
  }
  // On a communicator of which nothing blocking was ever asked.
  MPI_Comm fresh = MPI_COMM_NULL;
  MPI_Comm_dup(place.comm, &fresh);
  {
    const Place other("a fresh communicator", fresh);
    Batch batch(other);
    MPI_Waitall(Batch::kRequests, batch.requests.data(), MPI_STATUSES_IGNORE);
    batch.compare_all(checks, "MPI_Waitall");
  }
  MPI_Comm_free(&fresh);
}

}  // namespace mpi_program
