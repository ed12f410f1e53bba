// Optimizers, lengths of gradients and what is not finite among them.
#include <bit>
#include <cmath>

#include "trainer/cuda/cuda_kernels.h"
#include "trainer/cuda/each.h"
#include "trainer/cuda/ordered_sums.h"

namespace gradwire::cuda {
namespace {

struct TakeMomentum {
  float momentum;
  float* u;
  float* g;
  GW_DEVICE void operator()(std::int64_t i) const {
    const float taken = momentum * u[i] + g[i];
    u[i] = taken;
    g[i] = taken;
  }
};

struct SgdElements {
  SgdStep step;
  float* x;
  float* m;  // null without momentum
  const float* g;
  GW_DEVICE void operator()(std::int64_t i) const {
    const float full = step.decay == 0 ? g[i] : g[i] + step.decay * x[i];
    float direction = full;
    if (m != nullptr) {
      const float taken = step.momentum * m[i] + full;
      m[i] = taken;
      direction = step.nesterov ? full + step.momentum * taken : taken;
    }
    x[i] -= step.rate * direction;
  }
};

// What Adam goes along.
GW_DEVICE float adam_direction(const AdamFactors& f, float g, float* m, float* v) {
  float mean = *m;
  float square = *v;
  adam_moments(f, g, mean, square);
  *m = mean;
  *v = square;
  return mean * f.correct1 / (std::sqrt(square * f.correct2) + f.epsilon);
}

struct AdamElements {
  AdamFactors factors;
  float rate;
  float decay;
  float* x;
  float* m;
  float* v;
  const float* g;
  GW_DEVICE void operator()(std::int64_t i) const {
    const float direction = adam_direction(factors, g[i], m + i, v + i);
    x[i] -= rate * direction + decay * x[i];
  }
};

struct LambDirections {
  AdamFactors factors;
  float decay;
  const float* x;
  float* m;
  float* v;
  const float* g;
  float* direction;
  GW_DEVICE void operator()(std::int64_t i) const {
    direction[i] = adam_direction(factors, g[i], m + i, v + i) + decay * x[i];
  }
};

struct LambElements {
  double lr;
  const double* squares;
  const float* direction;
  float* x;
  GW_DEVICE void operator()(std::int64_t i) const {
    const double length = std::sqrt(squares[0]);
    const double reach = std::sqrt(squares[1]);
    const double trust = length > 0 && reach > 0 ? length / reach : 1;
    x[i] -= static_cast<float>(lr * trust) * direction[i];
  }
};

// Every block adds up the squares of its part to parts[block].
struct SquaresOfParts {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kEach = 64 * kThreads;  // values of a part
  static constexpr std::int64_t kMostParts = 1024;
  struct Shared {
    double sums[kThreads];
  };

  const float* values;
  std::int64_t count;
  double* parts;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t stride = block.blocks() * kThreads;
    double mine = 0;
    for (std::int64_t i = block.block() * kThreads + block.thread(); i < count; i += stride) {
      const auto value = static_cast<double>(values[i]);
      mine += value * value;
    }
    const double sum = sum_of_block<kThreads>(block, shared.sums, mine);
    if (block.thread() == 0) parts[block.block()] = sum;
  }
};

// One block.
struct SumOfParts {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    double sums[kThreads];
  };

  const double* parts;
  std::int64_t count;
  double* sum;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    double mine = 0;
    for (std::int64_t i = block.thread(); i < count; i += kThreads) mine += parts[i];
    const double total = sum_of_block<kThreads>(block, shared.sums, mine);
    if (block.thread() == 0) *sum = total;
  }
};

struct ClipElements {
  const double* square;
  double most;
  float* values;
  GW_DEVICE void operator()(std::int64_t i) const {
    const double length = std::sqrt(*square);
    if (!(length > most) || std::isinf(length)) return;
    values[i] *= static_cast<float>(most / length);
  }
};

struct NotFinite {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const float* values;
  std::int64_t count;
  std::uint32_t* bad;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    constexpr std::uint32_t kExponent = 0x7f800000U;
    const std::int64_t stride = block.blocks() * kThreads;
    bool mine = false;
    for (std::int64_t i = block.block() * kThreads + block.thread(); i < count; i += stride) {
      mine = mine || (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent;
    }
    if (block.any(mine) && block.lane() == 0) block.most(bad, 1U);
  }
};

struct ClearWord {
  std::uint32_t* word;
  GW_DEVICE void operator()(std::int64_t) const { *word = 0; }
};

class CudaStepKernels final : public StepKernels {
 public:
  explicit CudaStepKernels(const Stream& stream) : stream_(stream) {}

  Status take_momentum(float momentum, Out u, Out g) override {
    return each("take_momentum", u, TakeMomentum{momentum, u.data(), g.data()});
  }
  Status sgd(const SgdStep& step, Out x, Out m, In g) override {
    return each("sgd", x, SgdElements{step, x.data(), m.data(), g.data()});
  }
  Status adamw(const AdamFactors& factors, float rate, float decay, Out x, Out m, Out v,
               In g) override {
    return each("adamw", x,
                AdamElements{factors, rate, decay, x.data(), m.data(), v.data(), g.data()});
  }
  Status lamb_direction(const AdamFactors& factors, float decay, In x, Out m, Out v, In g,
                        Out direction) override {
    return each(
        "lamb_direction", x,
        LambDirections{factors, decay, x.data(), m.data(), v.data(), g.data(), direction.data()});
  }
  Status lamb_step(double lr, std::span<const double> squares, In direction, Out x) override {
    return each("lamb_step", x, LambElements{lr, squares.data(), direction.data(), x.data()});
  }
  Status sum_of_squares(In values, std::span<double> sum) override {
    const OnDevice here(stream_.device);
    GW_TRY(here.status());
    const auto count = static_cast<std::int64_t>(values.size());
    const std::int64_t wanted = blocks_for(count, SquaresOfParts::kEach);
    const std::int64_t parts =
        wanted < SquaresOfParts::kMostParts ? wanted : SquaresOfParts::kMostParts;
    GW_ASSIGN(const Scratch sums,
              Scratch::allocate(static_cast<std::size_t>(parts) * sizeof(double), stream_));
    GW_TRY(
        launch("squares", SquaresOfParts{values.data(), count, sums.as<double>()}, parts, stream_));
    return launch("sum_of_squares", SumOfParts{sums.as<double>(), parts, sum.data()}, 1, stream_);
  }
  Status clip(std::span<const double> square, double most, Out values) override {
    return each("clip", values, ClipElements{square.data(), most, values.data()});
  }
  Status find_not_finite(In values, std::span<std::uint32_t> bad) override {
    const OnDevice here(stream_.device);
    GW_TRY(here.status());
    GW_TRY(for_each("clear", 1, ClearWord{bad.data()}, stream_));
    const auto count = static_cast<std::int64_t>(values.size());
    const std::int64_t blocks = blocks_for(count, NotFinite::kThreads);
    return launch("find_not_finite", NotFinite{values.data(), count, bad.data()},
                  blocks < kMostBlocks ? blocks : kMostBlocks, stream_);
  }

 private:
  template <class Each>
  Status each(const char* name, In over, const Each& what) const {
    const OnDevice here(stream_.device);
    GW_TRY(here.status());
    return for_each(name, static_cast<std::int64_t>(over.size()), what, stream_);
  }

  Stream stream_;
};

}  // namespace

std::unique_ptr<StepKernels> make_steps(const Stream& stream) {
  return std::make_unique<CudaStepKernels>(stream);
}

}  // namespace gradwire::cuda
