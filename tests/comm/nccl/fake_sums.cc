#include "tests/comm/nccl/fake_sums.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/small_floats.h"

namespace fake {
namespace {

struct Half {
  using Wide = float;
  std::uint16_t bits = 0;
  float wide() const { return gradwire::float_from_fp16(bits); }
  static Half of(float value) { return {gradwire::fp16_from_float(value)}; }
};
struct Brain {
  using Wide = float;
  std::uint16_t bits = 0;
  float wide() const { return gradwire::float_from_bf16(bits); }
  static Brain of(float value) { return {gradwire::bf16_from_float(value)}; }
};
// A type of the language's.
template <typename T>
struct Plain {
  using Wide = T;
  T value = 0;
  T wide() const { return value; }
  static Plain of(T value) { return {value}; }
};

template <typename Element>
Element read(const std::byte* at) {
  Element element;
  std::memcpy(&element, at, sizeof element);
  return element;
}

// Integers wrap round.
template <typename T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}
template <typename T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}
// Of floats as fmax and fmin, which take the number where the other is a NaN.
template <typename T>
T extreme(bool larger, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return larger ? std::fmax(a, b) : std::fmin(a, b);
  } else {
    return larger ? std::max(a, b) : std::min(a, b);
  }
}

// The reduction of one element, every step rounded to the type.
template <typename Element>
class Reduction {
 public:
  using Wide = typename Element::Wide;
  explicit Reduction(const std::vector<Call>& calls) : calls_(calls) {}

  // From rank `first` on round the ring.
  Element of(std::size_t first, std::size_t index) const {
    Element sum = own(first, index);
    for (std::size_t i = 1; i < calls_.size(); ++i) {
      const Element next = own((first + i) % calls_.size(), index);
      sum = Element::of(combine(sum.wide(), next.wide()));
    }
    if (calls_[0].op == ncclAvg && std::is_integral_v<Wide>) {
      sum = Element::of(static_cast<Wide>(sum.wide() / static_cast<Wide>(calls_.size())));
    }
    return sum;
  }

 private:
  // As it enters the ring: scaled, also for the mean of floating numbers.
  Element own(std::size_t rank, std::size_t index) const {
    const Call& call = calls_[rank];
    const auto element = read<Element>(call.in + index * sizeof(Element));
    if constexpr (std::is_integral_v<Wide>) {
      return element;
    } else {
      const bool mean = call.op == ncclAvg;
      if (!mean && !call.scaled) return element;
      const double factor = mean ? 1.0 / static_cast<double>(calls_.size()) : call.scale;
      const Element scale = Element::of(static_cast<Wide>(factor));
      return Element::of(multiply(element.wide(), scale.wide()));
    }
  }
  Wide combine(Wide a, Wide b) const {
    switch (calls_[0].op) {
      case ncclProd: return multiply(a, b);
      case ncclMax: return extreme(true, a, b);
      case ncclMin: return extreme(false, a, b);
      default: return add(a, b);
    }
  }
  const std::vector<Call>& calls_;
};

// Elements [begin, begin + count). ends_at(i): the rank that ends element i.
template <typename Element, typename EndsAt>
std::vector<std::byte> reduced(const std::vector<Call>& calls, std::size_t begin, std::size_t count,
                               const EndsAt& ends_at) {
  const Reduction<Element> reduction(calls);
  std::vector<std::byte> out(count * sizeof(Element));
  for (std::size_t i = 0; i < count; ++i) {
    const Element sum = reduction.of((ends_at(begin + i) + 1) % calls.size(), begin + i);
    std::memcpy(out.data() + i * sizeof sum, &sum, sizeof sum);
  }
  return out;
}

template <typename EndsAt>
std::vector<std::byte> reduced(const std::vector<Call>& calls, std::size_t begin, std::size_t count,
                               const EndsAt& ends_at) {
  switch (calls[0].type) {
    case ncclFloat64: return reduced<Plain<double>>(calls, begin, count, ends_at);
    case ncclFloat32: return reduced<Plain<float>>(calls, begin, count, ends_at);
    case ncclFloat16: return reduced<Half>(calls, begin, count, ends_at);
    case ncclBfloat16: return reduced<Brain>(calls, begin, count, ends_at);
    case ncclInt64: return reduced<Plain<std::int64_t>>(calls, begin, count, ends_at);
    case ncclInt32: return reduced<Plain<std::int32_t>>(calls, begin, count, ends_at);
    case ncclInt8: return reduced<Plain<std::int8_t>>(calls, begin, count, ends_at);
    default: return reduced<Plain<std::uint8_t>>(calls, begin, count, ends_at);
  }
}

std::vector<std::byte> all_reduced(const std::vector<Call>& calls, std::size_t count) {
  const std::size_t chunk = (count + calls.size() - 1) / calls.size();
  return reduced(calls, 0, count, [chunk](std::size_t i) { return i / chunk; });
}

}  // namespace

std::size_t width_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64: return 8;
    case ncclFloat32:
    case ncclInt32:
    case ncclUint32: return 4;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    default: return 1;
  }
}

std::vector<std::byte> result_of(const std::vector<Call>& calls, int rank) {
  const auto me = static_cast<std::size_t>(rank);
  const Call& own = calls[me];
  const auto root = static_cast<std::size_t>(own.root);
  const std::size_t bytes = own.count * width_of(own.type);
  std::vector<std::byte> out;
  switch (own.kind) {
    case Call::Kind::kAllReduce: return all_reduced(calls, own.count);
    case Call::Kind::kReduce:
      if (rank != own.root) return out;
      return reduced(calls, 0, own.count, [root](std::size_t) { return root; });
    case Call::Kind::kReduceScatter:
      return reduced(calls, me * own.count, own.count, [me](std::size_t) { return me; });
    case Call::Kind::kBroadcast: return {calls[root].in, calls[root].in + bytes};
    case Call::Kind::kAllGather:
      for (const Call& call : calls) out.insert(out.end(), call.in, call.in + bytes);
      return out;
    case Call::Kind::kSend:
    case Call::Kind::kRecv: return out;
  }
  return out;
}

}  // namespace fake
