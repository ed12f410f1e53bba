#include "tests/comm/nccl/fake_clique.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/small_floats.h"

namespace fake {
namespace {

constexpr std::chrono::seconds kPatience(10);

template <typename T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Numbers that tests reduce are exact in a double.
double load(ncclDataType_t type, const std::byte* at) {
  switch (type) {
    case ncclFloat64: return read<double>(at);
    case ncclFloat32: return static_cast<double>(read<float>(at));
    case ncclFloat16:
      return static_cast<double>(gradwire::float_from_fp16(read<std::uint16_t>(at)));
    case ncclBfloat16:
      return static_cast<double>(gradwire::float_from_bf16(read<std::uint16_t>(at)));
    case ncclInt64: return static_cast<double>(read<std::int64_t>(at));
    case ncclInt32: return static_cast<double>(read<std::int32_t>(at));
    case ncclInt8: return static_cast<double>(read<std::int8_t>(at));
    default: return static_cast<double>(read<std::uint8_t>(at));
  }
}

void store(ncclDataType_t type, double value, std::byte* at) {
  const auto put = [at](auto stored) { std::memcpy(at, &stored, sizeof stored); };
  const auto whole = static_cast<std::int64_t>(value);
  switch (type) {
    case ncclFloat64: return put(value);
    case ncclFloat32: return put(static_cast<float>(value));
    case ncclFloat16: return put(gradwire::fp16_from_float(static_cast<float>(value)));
    case ncclBfloat16: return put(gradwire::bf16_from_float(static_cast<float>(value)));
    case ncclInt64: return put(whole);
    case ncclInt32: return put(static_cast<std::int32_t>(whole));
    case ncclInt8: return put(static_cast<std::int8_t>(whole));
    default: return put(static_cast<std::uint8_t>(whole));
  }
}

double combine(int op, double a, double b) {
  switch (op) {
    case ncclProd: return a * b;
    default: return a + b;
  }
}

// The larger or smaller one as NCCL's kernels find it: of floats with fmax and fmin, which take the
// number where the other is a NaN, and either of two zeros.
const std::byte* extreme(ncclDataType_t type, int op, const std::byte* a, const std::byte* b) {
  const bool larger = op == ncclMax;
  if (type == ncclInt64) {
    return (read<std::int64_t>(a) < read<std::int64_t>(b)) == larger ? b : a;
  }
  const double x = load(type, a);
  const double y = load(type, b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) ? b : a;
  return (x < y) == larger ? b : a;
}

// As gradwire's own means are: one multiplication, in the type of the arithmetic. (NCCL multiplies
// before it adds, which gives the same where the ranks' number is a power of two.)
double mean_of(ncclDataType_t type, double sum, double share) {
  if (type == ncclFloat64) return sum * share;
  return static_cast<double>(static_cast<float>(sum) * static_cast<float>(share));
}

// Elements [first, first + count) of the reduction.
std::vector<std::byte> reduced(const std::vector<Call>& calls, std::size_t first,
                               std::size_t count) {
  const ncclDataType_t type = calls[0].type;
  const std::size_t width = width_of(type);
  std::vector<std::byte> out(count * width);
  const bool is_extreme = calls[0].op == ncclMax || calls[0].op == ncclMin;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (first + i) * width;
    if (is_extreme) {
      const std::byte* found = calls[0].in + at;
      for (const Call& call : calls) found = extreme(type, call.op, found, call.in + at);
      std::memcpy(out.data() + i * width, found, width);
      continue;
    }
    double sum = 0;
    for (std::size_t r = 0; r < calls.size(); ++r) {
      const double own = calls[r].scale * load(type, calls[r].in + at);
      sum = r == 0 ? own : combine(calls[0].op, sum, own);
    }
    if (calls[0].op == ncclAvg) sum = mean_of(type, sum, 1.0 / static_cast<double>(calls.size()));
    store(type, sum, out.data() + i * width);
  }
  return out;
}

bool alike(const Call& a, const Call& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Call::Kind::kSplit) return true;
  return a.count == b.count && a.type == b.type && a.op == b.op && a.root == b.root;
}

}  // namespace

std::size_t width_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64: return 8;
    case ncclFloat32:
    case ncclInt32: return 4;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    default: return 1;
  }
}

std::vector<std::byte> result_of(const std::vector<Call>& calls, int rank) {
  const auto me = static_cast<std::size_t>(rank);
  const Call& own = calls[me];
  const std::size_t bytes = own.count * width_of(own.type);
  std::vector<std::byte> out;
  switch (own.kind) {
    case Call::Kind::kAllReduce: return reduced(calls, 0, own.count);
    case Call::Kind::kReduce: return rank == own.root ? reduced(calls, 0, own.count) : out;
    case Call::Kind::kReduceScatter: return reduced(calls, me * own.count, own.count);
    case Call::Kind::kBroadcast: {
      const std::byte* const from = calls[static_cast<std::size_t>(own.root)].in;
      return {from, from + bytes};
    }
    case Call::Kind::kAllGather:
      for (const Call& call : calls) out.insert(out.end(), call.in, call.in + bytes);
      return out;
    case Call::Kind::kSplit: return out;
  }
  return out;
}

bool Clique::await(std::unique_lock<std::mutex>& lock, long generation) {
  return changed_.wait_for(lock, kPatience, [&] { return generation_ > generation; });
}

std::vector<Call> Clique::meet(int rank, const Call& call) {
  std::unique_lock lock(mutex_);
  calls_[static_cast<std::size_t>(rank)] = call;
  const long generation = generation_;
  if (++come_ == size()) {
    come_ = 0;
    ++generation_;
    changed_.notify_all();
  } else if (!await(lock, generation)) {
    return {};
  }
  const auto same = [&](const Call& other) { return alike(calls_[0], other); };
  return std::ranges::all_of(calls_, same) ? calls_ : std::vector<Call>();
}

bool Clique::part() {
  std::unique_lock lock(mutex_);
  const long generation = generation_;
  if (++come_ < size()) return await(lock, generation);
  come_ = 0;
  ++generation_;
  changed_.notify_all();
  return true;
}

void Clique::send(int from, int to, std::vector<std::byte> message) {
  const std::lock_guard lock(mutex_);
  mail_[{from, to}].push_back(std::move(message));
  changed_.notify_all();
}

bool Clique::receive(int from, int to, std::byte* out, std::size_t bytes) {
  std::unique_lock lock(mutex_);
  auto& box = mail_[{from, to}];
  if (!changed_.wait_for(lock, kPatience, [&] { return !box.empty(); })) return false;
  const std::vector<std::byte> message = std::move(box.front());
  box.pop_front();
  if (message.size() != bytes) return false;
  if (bytes > 0) std::memcpy(out, message.data(), bytes);
  return true;
}

}  // namespace fake
