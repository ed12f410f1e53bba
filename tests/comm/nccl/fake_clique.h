// The ranks of one communicator of the library that plays NCCL, and their work on streams.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/comm/nccl/fake_sums.h"

namespace fake {

class Clique;

// One rank of a communicator. All but the first four under hall().mutex.
struct Member {
  std::shared_ptr<Clique> clique;
  std::string name;  // of the clique
  int rank = 0;
  int device = 0;

  bool apart = false;     // until all ranks have come to what was called last
  int looks = 2;          // at what was called last, until it is said to be done
  int splits = 0;         // so far
  int on_streams = 0;     // works that streams have and have not done
  int running = 0;        // of these, that have begun
  bool launches = false;  // a thread has what was unlaunched, and is about to enqueue it
  bool ends = false;      // it is being finalized
  bool aborted = false;
  ncclResult_t error = ncclSuccess;
  std::map<int, double> factors = {};  // of those that there are, from ncclNumOps on
  // Of groups that have ended, not yet on their streams.
  std::vector<std::function<void()>> unlaunched = {};
};

// What all communicators share.
struct Hall {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  int made_ops = 0;  // operations of communicators' own, so far
};
Hall& hall();

class Clique {
 public:
  explicit Clique(int size);
  int size() const { return static_cast<int>(members_.size()); }

  // The following four with hall().mutex held. Whether the rank was free; ranks are apart until the
  // last one has joined, and have an error where several have one device and `shares` does not
  // hold.
  bool join(const std::shared_ptr<Member>& member, bool shares);
  // Makes parts when all ranks have called it as often: calls make(rank, members of its part by
  // their new ranks) for each.
  using Make = std::function<void(int rank, const std::vector<int>& members)>;
  void split(const std::shared_ptr<Member>& member, int color, int key, Make make);
  void leave(const Member& member);
  bool empty() const;

  // What a stream does for a group of calls of one rank: returns when all have ended, or the rank's
  // communicator is aborted. A send ends when it is received.
  void run(Member& member, const std::vector<Call>& calls);

 private:
  struct Part {
    int color = 0;
    int key = 0;
    int rank = 0;
    Make make;
  };
  struct Message {
    const Call* send = nullptr;
    bool taken = false;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Mail = std::deque<std::shared_ptr<Message>>;

  bool collect(Lock& lock, Member& member, const Call& call);
  bool meet(Lock& lock, Member& member, const Call& call, std::vector<Call>& all);
  bool take(Member& member, std::vector<const Call*>& receives);
  void exchange(Lock& lock, Member& member, std::vector<const Call*> receives,
                const std::vector<std::shared_ptr<Message>>& sent);
  template <typename Condition>
  bool await(Lock& lock, Member& member, const Condition& condition);

  std::vector<std::shared_ptr<Member>> members_;
  std::map<int, std::vector<Part>> parts_;  // by the number of the split
  // Of the collective that is next.
  std::vector<Call> calls_;
  int come_ = 0;
  long meetings_ = 0;
  int through_ = 0;  // ranks that have read the others' memory
  long partings_ = 0;
  bool broken_ = false;  // a rank has left that others wait for
  std::map<std::pair<int, int>, Mail> mail_;
};

}  // namespace fake
