#include "tests/comm/nccl/fake_clique.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

namespace fake {
namespace {

// NCCL waits without end; a test that fails should not.
constexpr std::chrono::seconds kPatience(60);

bool is_pair(const Call& call) {
  return call.kind == Call::Kind::kSend || call.kind == Call::Kind::kRecv;
}

bool alike(const Call& a, const Call& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op &&
         a.scaled == b.scaled && a.root == b.root;
}

}  // namespace

Hall& hall() {
  static auto& all = *new Hall();
  return all;
}

Clique::Clique(int size)
    : members_(static_cast<std::size_t>(size)), calls_(static_cast<std::size_t>(size)) {}

bool Clique::join(const std::shared_ptr<Member>& member, bool shares) {
  auto& place = members_[static_cast<std::size_t>(member->rank)];
  if (place != nullptr) return false;
  place = member;
  member->apart = true;
  if (std::ranges::any_of(members_, [](const auto& one) { return one == nullptr; })) return true;
  std::set<int> devices;
  for (const auto& one : members_) devices.insert(one->device);
  const bool fits = shares || devices.size() == members_.size();
  for (const auto& one : members_) {
    one->apart = false;
    if (!fits) one->error = ncclInvalidUsage;
  }
  hall().changed.notify_all();
  return true;
}

void Clique::split(const std::shared_ptr<Member>& member, int color, int key, Make make) {
  member->apart = true;
  member->looks = 2;
  const int number = member->splits++;
  std::vector<Part>& parts = parts_[number];
  parts.push_back({color, key, member->rank, std::move(make)});
  if (parts.size() < members_.size() || broken_) return;
  for (const Part& own : parts) {
    std::vector<std::pair<int, int>> order;
    for (const Part& other : parts) {
      if (other.color == own.color) order.emplace_back(other.key, other.rank);
    }
    std::ranges::sort(order);
    std::vector<int> members;
    for (const auto& [key_of_member, rank] : order) members.push_back(rank);
    if (own.color >= 0) own.make(own.rank, members);
  }
  parts_.erase(number);
  for (const auto& one : members_) one->apart = false;
}

void Clique::leave(const Member& member) {
  auto& place = members_[static_cast<std::size_t>(member.rank)];
  if (place.get() == &member) place = nullptr;
  broken_ = true;
}

bool Clique::empty() const {
  return std::ranges::all_of(members_, [](const auto& one) { return one == nullptr; });
}

// False where it does not come to hold: the member was aborted, or an error was found.
template <typename Condition>
bool Clique::await(Lock& lock, Member& member, const Condition& condition) {
  const bool in_time = hall().changed.wait_for(lock, kPatience, [&] {
    return condition() || member.aborted || member.error != ncclSuccess;
  });
  if (!in_time) member.error = ncclSystemError;
  return condition() && !member.aborted;
}

void Clique::run(Member& member, const std::vector<Call>& calls) {
  Lock lock(hall().mutex);
  if (member.aborted || member.error != ncclSuccess) return;
  std::vector<std::shared_ptr<Message>> sent;
  std::vector<const Call*> receives;
  for (const Call& call : calls) {
    if (call.kind == Call::Kind::kRecv) receives.push_back(&call);
    if (call.kind != Call::Kind::kSend) continue;
    sent.push_back(std::make_shared<Message>(Message{.send = &call}));
    mail_[{member.rank, call.root}].push_back(sent.back());
  }
  hall().changed.notify_all();
  bool well = true;
  for (const Call& call : calls) {
    if (!is_pair(call)) well = well && collect(lock, member, call);
  }
  if (well) exchange(lock, member, std::move(receives), sent);
  // What nobody took is not there any more.
  for (auto& [ends, mail] : mail_) {
    std::erase_if(mail, [&](const auto& one) { return std::ranges::count(sent, one) > 0; });
  }
}

// Takes the messages that are there; an error where one is no match. Whether any was taken.
bool Clique::take(Member& member, std::vector<const Call*>& receives) {
  std::set<int> in_turn;  // peers that an earlier receive waits for
  const std::size_t before = receives.size();
  std::erase_if(receives, [&](const Call* receive) {
    Mail& mail = mail_[{receive->root, member.rank}];
    if (mail.empty() || in_turn.count(receive->root) != 0) {
      in_turn.insert(receive->root);
      return false;
    }
    const std::shared_ptr<Message> message = mail.front();
    mail.pop_front();
    const std::size_t bytes = receive->count * width_of(receive->type);
    if (message->send->count * width_of(message->send->type) != bytes) {
      member.error = ncclInvalidUsage;
      return true;
    }
    if (bytes > 0) std::memcpy(receive->out, message->send->in, bytes);
    message->taken = true;
    return true;
  });
  return receives.size() < before;
}

void Clique::exchange(Lock& lock, Member& member, std::vector<const Call*> receives,
                      const std::vector<std::shared_ptr<Message>>& sent) {
  const auto all_taken = [&] {
    return std::ranges::all_of(sent, [](const auto& one) { return one->taken; });
  };
  (void)await(lock, member, [&] {
    if (take(member, receives)) hall().changed.notify_all();
    return receives.empty() && all_taken();
  });
}

// One collective. False where it did not end.
bool Clique::collect(Lock& lock, Member& member, const Call& call) {
  std::vector<Call> all;
  if (!meet(lock, member, call, all)) return false;
  if (!std::ranges::all_of(all, [&](const Call& other) { return alike(all[0], other); })) {
    member.error = ncclInvalidUsage;
    return false;
  }
  lock.unlock();
  const std::vector<std::byte> out = result_of(all, member.rank);
  lock.lock();
  // In place: nobody writes before all have read. All have come, so that an abort can wait.
  const long parting = partings_;
  if (++through_ == size()) {
    through_ = 0;
    ++partings_;
    hall().changed.notify_all();
  }
  hall().changed.wait_for(lock, kPatience, [&] { return partings_ > parting; });
  if (!out.empty()) std::memcpy(call.out, out.data(), out.size());
  return true;
}

// Waits until all ranks have come to their next collective: all of them. False: they have not.
bool Clique::meet(Lock& lock, Member& member, const Call& call, std::vector<Call>& all) {
  calls_[static_cast<std::size_t>(member.rank)] = call;
  const long meeting = meetings_;
  if (++come_ == size() && !broken_) {
    come_ = 0;
    ++meetings_;
    hall().changed.notify_all();
  }
  if (!await(lock, member, [&] { return meetings_ > meeting; })) {
    if (meetings_ == meeting) broken_ = true;
    if (meetings_ == meeting) return false;
  }
  all = calls_;
  return true;
}

}  // namespace fake
