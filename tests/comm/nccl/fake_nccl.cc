// A library with NCCL's names that does NCCL's work on the emulated devices, among threads.
#include "tests/comm/nccl/fake_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/small_floats.h"
#include "base/text.h"
#include "tests/comm/nccl/fake_clique.h"

using fake::Call;
using fake::Clique;
using fake::hall;
using fake::Member;
using gradwire::format;
using gradwire::nccl_test::PlayedDevices;

// Outlives its end, so that a use of it after that is refused instead of undefined.
struct ncclComm {
  std::shared_ptr<Member> member;
  bool has_ended = false;  // with hall().mutex held
};

namespace {

constexpr int kSharesDevices = 23000;  // 2.30.0: from there on it may be asked to
constexpr int kLooks = 2;
constexpr std::chrono::seconds kPatience(60);

struct State {
  std::mutex mutex;
  std::map<std::string, int> failures;
  std::string log;
  std::string taken;
  int (*device)() = nullptr;
  const PlayedDevices* devices = nullptr;
  int version = 23003;
  int ids = 0;
  int living = 0;
  std::vector<std::unique_ptr<ncclComm>> ended;
};
State& state() {
  static auto& all = *new State();
  return all;
}

// Of the group that this thread has begun.
struct Pending {
  std::shared_ptr<Member> member;
  void* stream = nullptr;
  std::vector<Call> calls;
};
thread_local std::vector<Pending> group;
thread_local int depth = 0;
thread_local ncclResult_t group_error = ncclSuccess;

std::optional<ncclResult_t> told_to_give(const std::string& call) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().failures.find(call);
  if (found == state().failures.end()) return std::nullopt;
  return static_cast<ncclResult_t>(found->second);
}

// Writes the call down; what it was told to give.
ncclResult_t begin(const char* call, const std::string& line) {
  {
    const std::lock_guard lock(state().mutex);
    state().log += call + (line.empty() ? std::string() : " " + line) + "\n";
  }
  return told_to_give(call).value_or(ncclSuccess);
}

// Of the calling thread, where the test has said how to ask for it.
std::string device_text() {
  const std::lock_guard lock(state().mutex);
  return state().device == nullptr ? "" : format(" on device %d", state().device());
}

bool shares_devices() {
  const char* const asked = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const std::lock_guard lock(state().mutex);
  return state().version >= kSharesDevices && asked != nullptr && std::string_view(asked) == "1";
}

ncclComm* made_of(std::shared_ptr<Member> member) {
  const std::lock_guard lock(state().mutex);
  ++state().living;
  return new ncclComm{std::move(member)};
}

// With hall().mutex held. Null where the communicator has another size, or the rank is there.
std::shared_ptr<Member> join(const std::string& name, int size, int rank, int device, bool shares) {
  auto& clique = hall().cliques[name];
  if (clique == nullptr) clique = std::make_shared<Clique>(size);
  if (clique->size() != size) return nullptr;
  auto member = std::make_shared<Member>(
      Member{.clique = clique, .name = name, .rank = rank, .device = device});
  return clique->join(member, shares) ? member : nullptr;
}

ncclResult_t end(ncclComm* comm) {
  {
    std::unique_lock lock(hall().mutex);
    Member& member = *comm->member;
    hall().changed.wait_for(lock, kPatience, [&] {
      return (member.aborted ? member.running : member.on_streams) == 0;
    });
    member.clique->leave(member);
    if (member.clique->empty()) hall().cliques.erase(member.name);
    comm->has_ended = true;
  }
  const std::lock_guard lock(state().mutex);
  state().ended.emplace_back(comm);
  --state().living;
  return ncclSuccess;
}

// With hall().mutex held: whether something that was called is still in progress.
bool in_progress(const Member& member) { return member.apart || member.looks > 0; }

// NCCL wants the end of ncclCommFinalize to have been seen before ncclCommDestroy.
bool is_being_finalized(const Member& member) {
  const std::lock_guard lock(hall().mutex);
  return member.ends && (in_progress(member) || member.on_streams > 0);
}

// Whether it was destroyed or aborted, or is being aborted: its use is then the caller's fault.
bool has_gone(const ncclComm* comm) {
  const std::lock_guard lock(hall().mutex);
  return comm->has_ended || comm->member->aborted;
}

// As NCCL refuses the use of a communicator before it has said that it is through.
ncclResult_t check_ready(const ncclComm* comm) {
  if (has_gone(comm)) return ncclInvalidUsage;
  const std::lock_guard lock(hall().mutex);
  const Member& member = *comm->member;
  if (member.error != ncclSuccess) return member.error;
  return in_progress(member) ? ncclInvalidArgument : ncclSuccess;
}

// Counts a work from the end of its group until a stream has done it, or forgets it.
std::shared_ptr<void> count_on_stream(const std::shared_ptr<Member>& member) {
  ++member->on_streams;
  return {nullptr, [member](void*) {
            const std::lock_guard lock(hall().mutex);
            --member->on_streams;
            hall().changed.notify_all();
          }};
}

void run(Member& member, const std::vector<Call>& calls) {
  const auto count = [&](int more) {
    const std::lock_guard lock(hall().mutex);
    member.running += more;
    hall().changed.notify_all();
  };
  count(1);
  member.clique->run(member, calls);
  count(-1);
}

// Has each communicator's calls on its way to its stream.
ncclResult_t end_group() {
  const std::vector<Pending> pending = std::exchange(group, {});
  if (const ncclResult_t error = std::exchange(group_error, ncclSuccess); error != ncclSuccess) {
    return error;
  }
  const PlayedDevices* devices = nullptr;
  {
    const std::lock_guard lock(state().mutex);
    devices = state().devices;
  }
  const std::lock_guard lock(hall().mutex);
  for (const Pending& one : pending) {
    one.member->looks = kLooks;
    const auto counted = count_on_stream(one.member);
    one.member->unlaunched.push_back([devices, one, counted] {
      devices->enqueue(one.member->device, one.stream,
                       [one, counted] { run(*one.member, one.calls); });
    });
  }
  return pending.empty() ? ncclSuccess : ncclInProgress;
}

// A stream is one of the communicator's device.
ncclResult_t check_stream(const Member& member, void* stream) {
  const std::lock_guard lock(state().mutex);
  const PlayedDevices* const devices = state().devices;
  const bool fits = devices != nullptr && devices->device_of(stream) == member.device;
  return fits ? ncclSuccess : ncclInvalidArgument;
}

// Outside a group a call is one.
ncclResult_t add(ncclComm* comm, Call call, void* stream) {
  Member& member = *comm->member;
  if (call.root < 0 || call.root >= member.clique->size()) return ncclInvalidArgument;
  if (call.op >= ncclNumOps) {
    const std::lock_guard lock(hall().mutex);
    const auto made = member.factors.find(call.op);
    if (made == member.factors.end()) return ncclInvalidArgument;
    call.scale = made->second;
    call.scaled = true;
    call.op = ncclSum;
  }
  const auto same =
      std::ranges::find_if(group, [&](const Pending& one) { return one.member.get() == &member; });
  if (same == group.end()) {
    group.push_back({comm->member, stream, {call}});
  } else if (same->stream != stream) {
    return ncclInvalidUsage;  // NCCL joins streams; not played
  } else {
    same->calls.push_back(call);
  }
  return depth == 0 ? end_group() : ncclSuccess;
}

// A call that is written down as `line` and goes to `stream`.
ncclResult_t call_on(const char* name, const std::string& line, ncclComm* comm, const Call& call,
                     void* stream) {
  ncclResult_t result = begin(name, line);
  if (result == ncclSuccess) result = check_ready(comm);
  if (result == ncclSuccess) result = check_stream(*comm->member, stream);
  if (result == ncclSuccess) {
    result = add(comm, call, stream);
    if (result != ncclInvalidArgument) return result;
  }
  if (depth > 0) group_error = result;
  return result;
}

int rank_of(const ncclComm* comm) { return comm->member->rank; }

// Of a communicator's own one, whose number depends on what ran before: "own".
std::string name_of(int op) { return op < ncclNumOps ? std::to_string(op) : "own"; }

std::string text_of(const ncclComm* comm, const Call& call, bool reduces, bool rooted) {
  std::string text = format("count %zu type %d", call.count, static_cast<int>(call.type));
  if (reduces) text += " op " + name_of(call.op);
  if (rooted) text += format(" root %d", call.root);
  return format("rank %d: ", rank_of(comm)) + text + (call.in == call.out ? " in place" : "");
}

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

extern "C" {

const char* fake_nccl_take_log();
void fake_nccl_fail(const char* call, int result);
int fake_nccl_living();
void fake_nccl_run_on(const PlayedDevices* devices);
void fake_nccl_ask_device(int (*device)());
void fake_nccl_be(int version);

const char* fake_nccl_take_log() {
  const std::lock_guard lock(state().mutex);
  state().taken = std::exchange(state().log, {});
  return state().taken.c_str();
}
void fake_nccl_fail(const char* call, int result) {
  const std::lock_guard lock(state().mutex);
  if (result < 0) {
    state().failures.erase(call);
  } else {
    state().failures[call] = result;
  }
}
int fake_nccl_living() {
  const std::lock_guard lock(state().mutex);
  return state().living;
}

void fake_nccl_run_on(const PlayedDevices* devices) {
  const std::lock_guard lock(state().mutex);
  state().devices = devices;
}

void fake_nccl_ask_device(int (*device)()) {
  const std::lock_guard lock(state().mutex);
  state().device = device;
}

void fake_nccl_be(int version) {
  const std::lock_guard lock(state().mutex);
  state().version = version;
}

ncclResult_t ncclGetVersion(int* version) {
  const std::lock_guard lock(state().mutex);
  *version = state().version;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  static thread_local std::string text;
  text = format("result %d", static_cast<int>(result));
  return text.c_str();
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const ncclResult_t result = begin("ncclGetUniqueId", "");
  const std::lock_guard lock(state().mutex);
  std::memset(id, 0, sizeof *id);
  const std::string name = format("clique %d", state().ids++);
  std::memcpy(id->internal, name.c_str(), name.size());
  return result;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const ncclResult_t result = begin(
      "ncclCommInitRankConfig", format("rank %d of %d, blocking %d", rank, size, config->blocking));
  *comm = nullptr;
  if (config->blocking != 0 || rank < 0 || rank >= size) return ncclInvalidArgument;
  int device = 0;
  {
    const std::lock_guard lock(state().mutex);
    if (state().devices != nullptr) device = state().devices->current();
  }
  const bool shares = shares_devices();
  const std::lock_guard lock(hall().mutex);
  auto member = join(id.internal, size, rank, device, shares);
  if (member == nullptr) return ncclInvalidArgument;
  *comm = made_of(std::move(member));
  return result == ncclSuccess ? ncclInProgress : result;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const ncclResult_t told =
      begin("ncclCommFinalize", format("rank %d", rank_of(comm)) + device_text());
  if (const ncclResult_t ready = check_ready(comm); ready != ncclSuccess) return ready;
  const std::lock_guard lock(hall().mutex);
  comm->member->looks = kLooks;
  comm->member->ends = true;
  return told == ncclSuccess ? ncclInProgress : told;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  begin("ncclCommDestroy", format("rank %d", rank_of(comm)) + device_text());
  if (has_gone(comm)) return ncclInvalidUsage;
  if (is_being_finalized(*comm->member)) return ncclInvalidArgument;
  return end(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  begin("ncclCommAbort", format("rank %d", rank_of(comm)) + device_text());
  if (has_gone(comm)) return ncclInvalidUsage;
  std::vector<std::function<void()>> never;
  {
    const std::lock_guard lock(hall().mutex);
    comm->member->aborted = true;
    never.swap(comm->member->unlaunched);
    hall().changed.notify_all();
  }
  never.clear();
  return end(comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::optional<ncclResult_t> told = told_to_give(format("rank %d", rank_of(comm)));
  if (!told) told = told_to_give("");
  if (has_gone(comm)) return ncclInvalidUsage;
  if (told) {
    *error = *told;
    return ncclSuccess;
  }
  const std::shared_ptr<Member> held = comm->member;  // the communicator may go meanwhile
  Member& member = *held;
  std::vector<std::function<void()>> launched;
  {
    const std::lock_guard lock(hall().mutex);
    const bool waits = member.apart || member.launches || (member.ends && member.on_streams > 0);
    *error = member.error != ncclSuccess ? member.error
             : waits || member.looks > 0 ? ncclInProgress
                                         : ncclSuccess;
    if (!waits) member.looks = std::max(0, member.looks - 1);
    if (*error == ncclSuccess) launched.swap(member.unlaunched);
    if (launched.empty()) return ncclSuccess;
    member.launches = true;
  }
  for (const auto& launch : launched) launch();
  const std::lock_guard lock(hall().mutex);
  member.launches = false;
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  const ncclResult_t result =
      begin("ncclCommSplit", format("rank %d: color %d key %d%s", rank_of(comm), color, key,
                                    config == nullptr ? "" : " config"));
  if (result != ncclSuccess) return result;
  if (const ncclResult_t ready = check_ready(comm); ready != ncclSuccess) return ready;
  *part = nullptr;
  const std::lock_guard lock(hall().mutex);
  const std::shared_ptr<Member> member = comm->member;
  const std::string name = member->name + format("/%d/%d", member->splits, color);
  member->clique->split(member, color, key, [=](int rank, const std::vector<int>& members) {
    const auto place = std::ranges::find(members, rank) - members.begin();
    *part = made_of(join(name, static_cast<int>(members.size()), static_cast<int>(place),
                         member->device, true));
  });
  return ncclInProgress;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = rank_of(comm);
  return check_ready(comm);
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->member->clique->size();
  return check_ready(comm);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t, ncclComm_t comm) {
  double factor = 0;
  std::uint16_t half = 0;
  float single = 0;
  std::memcpy(&half, scalar, sizeof half);
  std::memcpy(&single, scalar, type == ncclFloat32 ? sizeof single : 0);
  std::memcpy(&factor, scalar, type == ncclFloat64 ? sizeof factor : 0);
  if (type == ncclFloat16) single = gradwire::float_from_fp16(half);
  if (type == ncclBfloat16) single = gradwire::float_from_bf16(half);
  if (type != ncclFloat64) factor = static_cast<double>(single);
  const ncclResult_t told =
      begin("ncclRedOpCreatePreMulSum",
            format("rank %d: type %d factor %g", rank_of(comm), static_cast<int>(type), factor));
  if (const ncclResult_t ready = check_ready(comm); ready != ncclSuccess) return ready;
  const std::lock_guard lock(hall().mutex);
  Member& member = *comm->member;
  // Another number than any other communicator has given out.
  const int number = ncclNumOps + hall().made_ops++;
  member.factors[number] = factor;
  *op = static_cast<ncclRedOp_t>(number);
  return told;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const ncclResult_t told =
      begin("ncclRedOpDestroy", format("rank %d: op ", rank_of(comm)) + name_of(op));
  if (told != ncclSuccess) return told;
  const std::lock_guard lock(hall().mutex);
  return comm->member->factors.erase(op) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return begin("ncclGroupStart", "");
}
ncclResult_t ncclGroupEnd() {
  const ncclResult_t told = begin("ncclGroupEnd", "");
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return told;
  if (told != ncclSuccess) group_error = told;
  return end_group();
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kAllReduce,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type,
                  .op = op};
  return call_on("ncclAllReduce", text_of(comm, call, true, false), comm, call, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kReduce,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type,
                  .op = op,
                  .root = root};
  return call_on("ncclReduce", text_of(comm, call, true, true), comm, call, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kBroadcast,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type,
                  .root = root};
  return call_on("ncclBroadcast", text_of(comm, call, false, true), comm, call, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kReduceScatter,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type,
                  .op = op};
  return call_on("ncclReduceScatter", text_of(comm, call, true, false), comm, call, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kAllGather,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type};
  return call_on("ncclAllGather", text_of(comm, call, false, false), comm, call, stream);
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const Call call{
      .kind = Call::Kind::kSend, .in = bytes(in), .count = count, .type = type, .root = peer};
  return call_on("ncclSend",
                 format("rank %d: count %zu type %d to %d", rank_of(comm), count,
                        static_cast<int>(type), peer),
                 comm, call, stream);
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const Call call{
      .kind = Call::Kind::kRecv, .out = bytes(out), .count = count, .type = type, .root = peer};
  return call_on("ncclRecv",
                 format("rank %d: count %zu type %d from %d", rank_of(comm), count,
                        static_cast<int>(type), peer),
                 comm, call, stream);
}

}  // extern "C"
