// A library with NCCL's names that does NCCL's work over the host's memory, among threads.
#include "tests/comm/nccl/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "base/small_floats.h"
#include "base/text.h"
#include "tests/comm/nccl/fake_clique.h"

using fake::Call;
using fake::Clique;
using gradwire::format;

struct ncclComm {
  std::shared_ptr<Clique> clique;
  std::string name;  // of the clique
  int rank = 0;
  int unsettled = 2;  // looks until it says that it is done
  int splits = 0;
  std::vector<double> factors = {};  // of operations from ncclNumOps on
};

namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::map<std::string, int> failures;
  std::string log;
  std::string taken;
  int (*device)() = nullptr;
  int version = 22105;
  int ids = 0;
  int living = 0;
};
State& state() {
  static State all;
  return all;
}

// Sends and collectives of the group that this thread has begun.
struct Pending {
  std::function<void()> post;  // what does not wait
  std::function<ncclResult_t()> finish;
  void* stream = nullptr;
};
// Takes work for a stream instead of having it done at once, or says no.
using Catcher = std::function<bool(void* stream, std::function<void()> work)>;
Catcher catcher;
thread_local std::vector<Pending> group;
thread_local int depth = 0;

// Writes the call down; what it was told to give.
ncclResult_t begin(const char* call, const std::string& line) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.log += call + (line.empty() ? std::string() : " " + line) + "\n";
  const auto found = all.failures.find(call);
  return found == all.failures.end() ? ncclSuccess : static_cast<ncclResult_t>(found->second);
}

// Of the calling thread, where the test has said how to ask for it.
std::string device_text() {
  const std::lock_guard lock(state().mutex);
  return state().device == nullptr ? "" : format(" on device %d", state().device());
}

std::shared_ptr<Clique> clique_of(const std::string& name, int size) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  auto& clique = all.cliques[name];
  if (clique == nullptr) clique = std::make_shared<Clique>(size);
  return clique;
}

ncclComm* born(const std::string& name, int size, int rank) {
  auto* const comm = new ncclComm{clique_of(name, size), name, rank};
  const std::lock_guard lock(state().mutex);
  ++state().living;
  return comm;
}

ncclResult_t dead(ncclComm* comm) {
  delete comm;
  const std::lock_guard lock(state().mutex);
  --state().living;
  return ncclSuccess;
}

ncclResult_t run(ncclComm* comm, const Call& call) {
  const std::vector<Call> calls = comm->clique->meet(comm->rank, call);
  if (calls.empty()) return ncclSystemError;
  const std::vector<std::byte> out = fake::result_of(calls, comm->rank);
  // In place: nobody writes before all have read.
  if (!comm->clique->part()) return ncclSystemError;
  if (!out.empty()) std::memcpy(call.out, out.data(), out.size());
  return comm->clique->part() ? ncclSuccess : ncclSystemError;
}

ncclResult_t enqueue(const Pending& pending) {
  if (depth > 0) {
    group.push_back(pending);
    return ncclSuccess;
  }
  if (pending.post) pending.post();
  return pending.finish();
}

ncclResult_t enqueue_call(ncclComm* comm, Call call, void* stream) {
  if (call.op >= ncclNumOps) {
    call.scale = comm->factors[static_cast<std::size_t>(call.op - ncclNumOps)];
    call.op = ncclSum;
  }
  comm->unsettled = 2;
  return enqueue(
      {.post = {}, .finish = [comm, call] { return run(comm, call); }, .stream = stream});
}

ncclResult_t run_all(const std::vector<Pending>& pending, ncclResult_t result) {
  for (const Pending& one : pending) {
    if (one.post) one.post();
  }
  for (const Pending& one : pending) {
    if (result != ncclSuccess) return result;
    result = one.finish();
  }
  return result;
}

std::string text_of(const ncclComm* comm, const Call& call, bool reduces, bool rooted) {
  std::string text = format("count %zu type %d", call.count, static_cast<int>(call.type));
  if (reduces) text += format(" op %d", call.op);
  if (rooted) text += format(" root %d", call.root);
  return format("rank %d: ", comm->rank) + text + (call.in == call.out ? " in place" : "");
}

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

extern "C" {

const char* fake_nccl_take_log();
void fake_nccl_fail(const char* call, int result);
int fake_nccl_living();
void fake_nccl_catch(const Catcher* what);
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

void fake_nccl_catch(const Catcher* what) { catcher = what == nullptr ? Catcher() : *what; }

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
  *comm = born(id.internal, size, rank);
  return result == ncclSuccess ? ncclInProgress : result;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->unsettled = 2;
  return begin("ncclCommFinalize", format("rank %d", comm->rank) + device_text());
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  begin("ncclCommDestroy", format("rank %d", comm->rank) + device_text());
  return dead(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  begin("ncclCommAbort", format("rank %d", comm->rank) + device_text());
  return dead(comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  {
    const std::lock_guard lock(state().mutex);
    const auto found = state().failures.find("");
    if (found != state().failures.end()) {
      *error = static_cast<ncclResult_t>(found->second);
      return ncclSuccess;
    }
  }
  *error = comm->unsettled > 0 ? ncclInProgress : ncclSuccess;
  comm->unsettled = std::max(0, comm->unsettled - 1);
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  const ncclResult_t result =
      begin("ncclCommSplit", format("rank %d: color %d key %d%s", comm->rank, color, key,
                                    config == nullptr ? "" : " config"));
  if (result != ncclSuccess) return result;
  *part = nullptr;
  const auto calls =
      comm->clique->meet(comm->rank, {.kind = Call::Kind::kSplit, .root = color, .key = key});
  if (calls.empty() || !comm->clique->part()) return ncclSystemError;
  std::vector<std::pair<int, int>> members;
  for (std::size_t r = 0; r < calls.size(); ++r) {
    if (calls[r].root == color) members.emplace_back(calls[r].key, static_cast<int>(r));
  }
  std::ranges::sort(members);
  const auto self = std::ranges::find(members, std::pair(key, comm->rank));
  const std::string name = comm->name + format("/%d/%d", comm->splits++, color);
  if (color >= 0) {
    *part = born(name, static_cast<int>(members.size()), static_cast<int>(self - members.begin()));
  }
  comm->unsettled = 2;
  return ncclInProgress;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->clique->size();
  return ncclSuccess;
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
  comm->factors.push_back(factor);
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->factors.size()) - 1);
  return begin("ncclRedOpCreatePreMulSum",
               format("rank %d: type %d factor %g", comm->rank, static_cast<int>(type), factor));
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return begin("ncclRedOpDestroy", format("rank %d: op %d", comm->rank, static_cast<int>(op)));
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return begin("ncclGroupStart", "");
}
ncclResult_t ncclGroupEnd() {
  ncclResult_t result = begin("ncclGroupEnd", "");
  if (--depth > 0) return result;
  const std::vector<Pending> pending = std::exchange(group, {});
  if (catcher && !pending.empty() && result == ncclSuccess &&
      catcher(pending.front().stream, [pending] { (void)run_all(pending, ncclSuccess); })) {
    return ncclInProgress;
  }
  result = run_all(pending, result);
  return result == ncclSuccess ? ncclInProgress : result;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kAllReduce,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type,
                  .op = op};
  const ncclResult_t result = begin("ncclAllReduce", text_of(comm, call, true, false));
  return result == ncclSuccess ? enqueue_call(comm, call, stream) : result;
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
  const ncclResult_t result = begin("ncclReduce", text_of(comm, call, true, true));
  return result == ncclSuccess ? enqueue_call(comm, call, stream) : result;
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kBroadcast,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type,
                  .root = root};
  const ncclResult_t result = begin("ncclBroadcast", text_of(comm, call, false, true));
  return result == ncclSuccess ? enqueue_call(comm, call, stream) : result;
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kReduceScatter,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type,
                  .op = op};
  const ncclResult_t result = begin("ncclReduceScatter", text_of(comm, call, true, false));
  return result == ncclSuccess ? enqueue_call(comm, call, stream) : result;
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kAllGather,
                  .in = bytes(in),
                  .out = bytes(out),
                  .count = count,
                  .type = type};
  const ncclResult_t result = begin("ncclAllGather", text_of(comm, call, false, false));
  return result == ncclSuccess ? enqueue_call(comm, call, stream) : result;
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::size_t size = count * fake::width_of(type);
  comm->unsettled = 2;
  const ncclResult_t result = begin(
      "ncclSend",
      format("rank %d: count %zu type %d to %d", comm->rank, count, static_cast<int>(type), peer));
  if (result != ncclSuccess) return result;
  const auto post = [=] { comm->clique->send(comm->rank, peer, {bytes(in), bytes(in) + size}); };
  return enqueue({.post = post, .finish = [] { return ncclSuccess; }, .stream = stream});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::size_t size = count * fake::width_of(type);
  comm->unsettled = 2;
  const ncclResult_t result =
      begin("ncclRecv", format("rank %d: count %zu type %d from %d", comm->rank, count,
                               static_cast<int>(type), peer));
  if (result != ncclSuccess) return result;
  return enqueue({.post = {},
                  .finish =
                      [=] {
                        const bool came = comm->clique->receive(peer, comm->rank, bytes(out), size);
                        return came ? ncclSuccess : ncclSystemError;
                      },
                  .stream = stream});
}

}  // extern "C"
