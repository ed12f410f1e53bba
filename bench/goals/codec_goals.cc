// Measures the codecs' kernels on one core against their goals: each as a share of a read-only pass
// over the same memory, and as a multiple of what plain code takes, all of them by turns.
//   codec_goals [ELEMENTS [ROUNDS [ONLY]]]      ONLY: goals whose name begins so
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "bench/goals/plain_peers.h"
#include "bench/read_pass.h"
#include "compress/error_feedback/ef14.h"
#include "compress/powersgd/powersgd_kernels.h"
#include "compress/topk/topk_kernels.h"
#include "compress/topk/topk_loops.h"
#include "device/ops.h"
#include "gradwire/registry.h"

namespace gradwire::bench {
namespace {

using Run = std::function<void()>;

double seconds_of(const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "codec_goals: error: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  if (!result.has_value()) must(Status(result.error()));
  return std::move(result).value();
}

struct Goal {
  const char* name;
  std::string what;
  double share;  // of the read-only rate, wanted
  Run run;
  const char* peer_name = nullptr;
  Run peer = nullptr;
  double times = 0;  // faster than the peer, wanted; 0: no goal
};

class Goals {
 public:
  Goals(std::size_t elems, int rounds, std::string only)
      : x_(elems), rounds_(rounds), only_(std::move(only)) {
    const RandomStream draws(1, RandomUse::kTest, 0, 0, 0, 0);
    for (std::size_t i = 0; i < elems; ++i) x_[i] = 1e-3f * static_cast<float>(draws.normal(i));
  }

  const std::vector<float>& x() const { return x_; }

  // The input of a goal has `bytes` bytes, of which `read` reads each once.
  void measure(const Goal& goal, std::span<const float> read) {
    if (std::string_view(goal.name).substr(0, only_.size()) != only_) return;
    std::vector<double> share;
    std::vector<double> rate;
    std::vector<double> times;
    goal.run();
    for (int round = 0; round < rounds_; ++round) {
      const double reading = seconds_of([&] { sink_ += read_pass(read); });
      const double own = seconds_of(goal.run);
      share.push_back(reading / own);
      rate.push_back(static_cast<double>(read.size_bytes()) * 1e-9 / own);
      if (goal.peer) times.push_back(seconds_of(goal.peer) / own);
    }
    print(goal, median(rate), median(share), goal.peer ? median(times) : 0);
  }
  void measure(const Goal& goal) { measure(goal, x_); }

 private:
  static void print(const Goal& goal, double rate, double share, double times) {
    const bool met = share >= goal.share && times >= goal.times;
    std::printf("%-4s %-40s %7.2f GB/s %5.0f %% (%2.0f %%)", goal.name, goal.what.c_str(), rate,
                100 * share, 100 * goal.share);
    if (goal.peer_name != nullptr) {
      std::printf(" %6.1f x %s", times, goal.peer_name);
      if (goal.times > 0) std::printf(" (%g x)", goal.times);
    }
    std::printf("  %s\n", met ? "met" : "NOT MET");
    std::fflush(stdout);
  }

  std::vector<float> x_;
  int rounds_;
  std::string only_;
  float sink_ = 0;
};

// One rank's coder of a spec, with the memory of its steps.
class Step {
 public:
  Step(const char* spec, Shape shape, std::span<const float> x, bool feedback)
      : compressor_(must(Registry::builtin().make(spec))),
        shape_(shape),
        mean_(x.size()),
        gradient_(reinterpret_cast<const std::byte*>(x.data()), shape, DType::kF32) {
    const Compressor::Placement where{.tensor = 1};
    coder_ = must(compressor_->open(shape, where));
    if (feedback) coder_ = must(make_ef14(std::move(coder_), shape, where));
    rounds_ = compressor_->traits().rounds;
    payload_.resize(static_cast<std::size_t>(rounds_));
    for (int r = 0; r < rounds_; ++r) {
      payload_[static_cast<std::size_t>(r)].resize(
          compressor_->max_payload_bytes(shape, DType::kF32, r));
    }
    all();
  }

  void begin() { must(coder_->begin(gradient_, step_++, {})); }
  void encode(int round) {
    auto& payload = payload_[static_cast<std::size_t>(round)];
    must(coder_->encode(round, payload, {}));
  }
  void absorb(int round) {
    const std::array<ConstByteSpan, 1> received{payload_[static_cast<std::size_t>(round)]};
    must(coder_->absorb(round, received, {}));
  }
  void finish() {
    must(coder_->finish({reinterpret_cast<std::byte*>(mean_.data()), shape_, DType::kF32}, {}, {}));
  }
  void begin_and_encode() {
    begin();
    encode(0);
  }
  void all() {
    begin();
    for (int r = 0; r < rounds_; ++r) {
      encode(r);
      absorb(r);
    }
    finish();
  }

 private:
  std::unique_ptr<Compressor> compressor_;
  std::unique_ptr<Coder> coder_;
  Shape shape_;
  int rounds_ = 1;
  std::vector<std::vector<std::byte>> payload_;
  std::vector<float> mean_;
  ConstTensorView gradient_;
  std::uint64_t step_ = 0;
};

Shape vector_of(std::span<const float> x) {
  return Shape::vector(static_cast<std::int64_t>(x.size()));
}

void topk_goals(Goals& goals) {
  const std::span<const float> x(goals.x());
  for (const double ratio : {0.01, 0.001}) {
    const char* spec = ratio == 0.01 ? "topk:ratio=0.01" : "topk:ratio=0.001";
    const auto k = static_cast<std::size_t>(ratio * static_cast<double>(x.size()));
    std::vector<float> scratch;
    std::vector<std::uint32_t> found;
    Step step(spec, vector_of(x), x, false);
    goals.measure({"B1", std::string("exact ") + spec, ratio == 0.01 ? 0.50 : 0.55,
                   [&] { step.begin_and_encode(); }, "std::nth_element",
                   [&] { peers::nth_element(x, k, scratch, found); }, 40});
    const float threshold = peers::nth_element(x, k, scratch, found);
    std::vector<std::uint32_t> index(1024 + cpu::kSlack);
    const auto select = [&] {
      for (std::size_t i = 0; i < x.size(); i += 1024) {
        const Corrected<float> run(x.subspan(i, std::min<std::size_t>(1024, x.size() - i)));
        cpu::simd::collect(run, cpu::key_of(threshold), static_cast<std::uint32_t>(i), index.data(),
                           nullptr);
      }
    };
    goals.measure({"B2", std::string("select pass, ") + spec, 0.75, select});
    Step fed(spec, vector_of(x), x, true);
    std::vector<float> e(x.size());
    std::vector<std::uint32_t> places(2 * k);
    std::vector<float> values(2 * k);
    goals.measure({"B3", std::string("error feedback + ") + spec, 0.30,
                   [&] {
                     fed.begin_and_encode();
                     fed.absorb(0);
                   },
                   "three loops",
                   [&] { peers::feedback_threshold(x, threshold, e, places, values); }, 5});
  }
}

void quantiser_goals(Goals& goals) {
  const std::span<const float> x(goals.x());
  std::vector<float> scales(x.size() / peers::kBucket + 1);
  std::vector<std::int8_t> codes(x.size());
  std::vector<std::uint8_t> nibbles(x.size() / 2 + 1);
  std::vector<float> decoded(x.size());
  const auto encode = [&](const char* name, const char* spec, double share, const Run& peer) {
    Step step(spec, vector_of(x), x, false);
    goals.measure({name, std::string("encode ") + spec, share, [&] { step.begin_and_encode(); },
                   "plain loop", peer});
  };
  encode("B4", "qsgd:bits=8", 0.60, [&] { peers::int8_stochastic(x, scales, codes); });
  encode("B4", "absmax:bits=8", 0.65, [&] { peers::int8_nearest(x, scales, codes); });
  encode("B5", "qsgd:bits=4", 0.60, [&] { peers::int8_stochastic(x, scales, codes); });
  encode("B5", "absmax:bits=4", 0.60, [&] { peers::int4_nearest(x, scales, nibbles); });
  const auto decode = [&](const char* name, const char* spec, double share, const Run& peer) {
    Step step(spec, vector_of(x), x, false);
    goals.measure({name, std::string("decode ") + spec, share,
                   [&] {
                     step.absorb(0);
                     step.finish();
                   },
                   "plain loop", peer});
  };
  decode("B6", "qsgd:bits=8", 0.65, [&] { peers::int8_decode(scales, codes, decoded); });
  decode("B6", "qsgd:bits=4", 0.65, [&] { peers::int4_decode(scales, nibbles, decoded); });
}

// One hop of a ring of int8: what arrives, plus one's own, goes on.
void fold_goals(Goals& goals) {
  const std::span<const float> x(goals.x());
  std::vector<float> scales(x.size() / peers::kBucket + 1);
  std::vector<std::int8_t> codes(x.size());
  std::vector<float> sum(x.size());
  peers::int8_nearest(x, scales, codes);
  const auto compressor = must(Registry::builtin().make("qsgd:bits=8"));
  const auto format = must(compressor->open_slices(vector_of(x), {}));
  const ConstTensorView own(reinterpret_cast<const std::byte*>(x.data()), vector_of(x),
                            DType::kF32);
  std::vector<std::byte> received(format->bytes(own.elems(), 0));
  std::vector<std::byte> sent(received.size());
  must(format->pack(own, {}, received, {}));
  const std::array<Addend, 2> addends{Addend{{}, received, {}}, Addend{own, {}, {}}};
  goals.measure({"B7", "fold qsgd:bits=8 (decode, add, encode)", 0.45,
                 [&] { must(format->fold(addends, own.elems(), {}, sent, {})); }, "three loops",
                 [&] { peers::int8_reduce(scales, codes, x, sum); }, 8});
}

void sign_and_cast_goals(Goals& goals) {
  const std::span<const float> x(goals.x());
  std::vector<std::uint8_t> bits(x.size() / 8 + 1);
  std::vector<float> decoded(x.size());
  std::vector<std::uint16_t> half(x.size());
  Step sign("signsgd", vector_of(x), x, false);
  goals.measure({"B8", "encode signsgd", 0.75, [&] { sign.begin_and_encode(); }, "plain loops",
                 [&] { peers::sign_pack(x, bits); }});
  goals.measure({"B8", "decode signsgd", 0.75,
                 [&] {
                   sign.absorb(0);
                   sign.finish();
                 },
                 "plain loop", [&] { peers::sign_unpack(bits, 1.0f, decoded); }});
  Step fed("signsgd", vector_of(x), x, true);
  goals.measure({"B9", "error feedback + signsgd", 0.27, [&] { fed.begin_and_encode(); }});
  for (const char* spec : {"cast:bf16", "cast:fp16"}) {
    Step cast(spec, vector_of(x), x, false);
    goals.measure({"B10", std::string("encode ") + spec, 0.60, [&] { cast.begin_and_encode(); },
                   "plain bf16 loop", [&] { peers::to_bf16(x, half); }});
    goals.measure({"B10", std::string("decode ") + spec, 0.60, [&] {
                     cast.absorb(0);
                     cast.finish();
                   }});
  }
}

void powersgd_goals(Goals& goals, std::size_t side) {
  constexpr std::size_t kRank = 4;
  const std::span<const float> m = std::span(goals.x()).first(side * side);
  const auto dim = static_cast<std::int64_t>(side);
  const cpu::ThinShape shape{side, side, kRank};
  std::vector<float> p(kRank * side, 0.01f);
  std::vector<float> q(m.begin(), m.begin() + static_cast<std::ptrdiff_t>(kRank * side));
  std::vector<float> d(m.size());
  const auto view = [](std::span<const float> data, std::size_t rows) {
    return ConstTensorView(reinterpret_cast<const std::byte*>(data.data()),
                           Shape::matrix(static_cast<std::int64_t>(rows),
                                         static_cast<std::int64_t>(data.size() / rows)),
                           DType::kF32);
  };
  const auto out = [](std::span<float> data, std::size_t rows) {
    return TensorView(reinterpret_cast<std::byte*>(data.data()),
                      Shape::matrix(static_cast<std::int64_t>(rows),
                                    static_cast<std::int64_t>(data.size() / rows)),
                      DType::kF32);
  };
  std::vector<float> p2(p.size());
  std::vector<float> q2(q.size());
  const Run eigen_p = [&] {
    must(gemm(view(m, side), view(q, kRank), out(p2, side), {.transpose_b = true}, {}));
  };
  const Run eigen_q = [&] {
    must(gemm(view(m, side), view(p2, side), out(q2, side), {.transpose_a = true}, {}));
  };
  const Run eigen_d = [&] {
    must(gemm(view(p2, side), view(q2, side), out(d, side), {.transpose_b = true}, {}));
  };
  goals.measure(
      {"B11", "powersgd:rank=4, P = M Q", 0.45,
       [&] { cpu::times<float>(Corrected<float>(m), q, shape, p, nullptr); }, "Eigen", eigen_p},
      m);
  goals.measure({"B11", "powersgd:rank=4, Q = M^T P", 0.45,
                 [&] { cpu::transposed_times<float>(m, p, shape, q); }, "Eigen", eigen_q},
                m);
  Step fed("powersgd:rank=4", Shape::matrix(dim, dim), m, true);
  const auto all = [&] { fed.all(); };
  const auto eigen = [&] {
    eigen_p();
    eigen_q();
    eigen_d();
  };
  std::vector<float> e(m.begin(), m.end());
  goals.measure({"B11", "powersgd:rank=4, decode + feedback", 0.26,
                 [&] {
                   cpu::take_product_away<float>(p, q, shape, 1.0f, e);
                   cpu::product<float>(p, q, shape, d);
                 },
                 "Eigen, without feedback", eigen_d},
                m);
  goals.measure({"B11", "powersgd:rank=4, whole step, feedback", 0, all,
                 "Eigen, three products alone", eigen, 1.7},
                m);
}

void orthogonalise_goals(Goals& goals) {
  constexpr std::size_t kRows = 32;
  constexpr std::size_t kLength = 4096;
  const std::span<const float> x = std::span(goals.x()).first(kRows * kLength);
  std::vector<float> rows(x.size());
  std::vector<double> scratch;
  const RandomStream fresh(1, RandomUse::kPowerSgdStart, 0, 0, 0, 0);
  goals.measure({"B12", "orthonormal columns, 4096 x 32", 0,
                 [&] {
                   std::copy(x.begin(), x.end(), rows.begin());
                   cpu::orthonormalise<float>(rows, kRows, fresh, scratch);
                 },
                 "Gram-Schmidt (fp32, once)",
                 [&] {
                   std::copy(x.begin(), x.end(), rows.begin());
                   peers::gram_schmidt(rows, kRows);
                 },
                 4},
                x);
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  using namespace gradwire::bench;
  const long elems = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 25'000'000;
  const long rounds = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 7;
  if (elems < 1 << 17 || rounds < 1) {
    std::fprintf(stderr, "codec_goals: error: %ld elements, %ld rounds (at least 131072 and 1)\n",
                 elems, rounds);
    return 2;
  }
  Goals goals(static_cast<std::size_t>(elems), static_cast<int>(rounds), argc > 3 ? argv[3] : "");
  std::printf(
      "goal what                                          rate      of the read pass (goal)\n");
  topk_goals(goals);
  quantiser_goals(goals);
  fold_goals(goals);
  sign_and_cast_goals(goals);
  powersgd_goals(goals, elems >= 4096 * 4096 ? 4096 : 256);
  orthogonalise_goals(goals);
  return 0;
}
