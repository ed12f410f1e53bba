// Optimizers, lengths of gradients and what is not finite among them.
#include <cmath>

#include "trainer/cuda/cuda_kernels.h"
#include "trainer/cuda/each.h"
#include "trainer/cuda/value_scans.h"

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
    return sum_squares(values.data(), static_cast<std::int64_t>(values.size()), sum.data(),
                       stream_);
  }
  Status clip(std::span<const double> square, double most, Out values) override {
    return each("clip", values, ClipElements{square.data(), most, values.data()});
  }
  Status find_not_finite(In values, std::span<std::uint32_t> bad) override {
    return look_for_not_finite(values.data(), static_cast<std::int64_t>(values.size()), bad.data(),
                               stream_);
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
