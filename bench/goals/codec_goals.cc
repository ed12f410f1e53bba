// Measures the codecs' kernels on one core against their goals: each as a share of a read-only pass
// over the same memory, and as a multiple of what plain code takes, all of them by turns.
//   codec_goals [ELEMENTS [ROUNDS [ONLY [PYTHON]]]]
// ONLY: goals, as "B1,B3" ("" for all). PYTHON: one that has torch, which then takes turns
// too; to be run from the source's root, where bench/peers/codec_torch.py is found.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "bench/goals/codec_step.h"
#include "bench/goals/goal_table.h"
#include "bench/goals/plain_peers.h"
#include "compress/powersgd/powersgd_kernels.h"
#include "compress/topk/topk_kernels.h"
#include "compress/topk/topk_loops.h"
#include "device/ops.h"
#include "gradwire/registry.h"

namespace gradwire::bench {
namespace {

using Run = std::function<void()>;

void topk_goals(GoalTable& goals) {
  const std::span<const float> x(goals.x());
  for (const double ratio : {0.01, 0.001}) {
    const char* spec = ratio == 0.01 ? "topk:ratio=0.01" : "topk:ratio=0.001";
    const auto k = static_cast<std::size_t>(ratio * static_cast<double>(x.size()));
    std::vector<float> scratch;
    std::vector<std::uint32_t> found;
    Step step(spec, vector_of(x), x, false);
    const float threshold = peers::nth_element(x, k, scratch, found);
    const Run select_all = [&] { step.begin_and_encode(); };
    const std::string what = std::string("exact ") + spec;
    const double share = ratio == 0.01 ? 0.50 : 0.55;
    goals.measure({.name = "B1",
                   .what = what,
                   .share = share,
                   .run = select_all,
                   .peer_name = "std::nth_element",
                   .peer = [&] { peers::nth_element(x, k, scratch, found); },
                   .times = 40,
                   .torch_name = spec,
                   .torch_times = 60});
    std::vector<peers::Pair> pairs;
    goals.measure({.name = "B1",
                   .what = what,
                   .share = share,
                   .run = select_all,
                   .peer_name = "std::nth_element of pairs",
                   .peer = [&] { peers::nth_pair(x, k, pairs); },
                   .times = 40});
    std::vector<std::uint32_t> index(1024 + cpu::kSlack);
    const auto select = [&] {
      for (std::size_t i = 0; i < x.size(); i += 1024) {
        const Corrected<float> run(x.subspan(i, std::min<std::size_t>(1024, x.size() - i)));
        cpu::simd::collect(run, topk_key(threshold), static_cast<std::uint32_t>(i), index.data(),
                           nullptr);
      }
    };
    goals.measure({"B2", std::string("select pass, ") + spec, 0.75, select});
    Step fed(spec, vector_of(x), x, true);
    std::vector<float> e(x.size());
    std::vector<std::uint32_t> places(2 * k);
    std::vector<float> values(2 * k);
    const Run feed_back = [&] {
      fed.begin_and_encode();
      fed.absorb(0);
    };
    const Run loops = [&] { peers::feedback_threshold(x, threshold, e, places, values); };
    const std::string fed_what = std::string("error feedback + ") + spec;
    goals.measure({"B3", fed_what, 0.30, feed_back, "three loops, threshold given", loops, 5});
    goals.measure({"B3", fed_what, 0.30, feed_back, "three loops and std::nth_element",
                   [&] {
                     const float least = peers::nth_element(e, k, scratch, found);
                     peers::feedback_threshold(x, least, e, places, values);
                   },
                   5});
  }
}

void quantiser_goals(GoalTable& goals) {
  const std::span<const float> x(goals.x());
  std::vector<float> scales(x.size() / peers::kBucket + 1);
  std::vector<std::int8_t> codes(x.size());
  std::vector<std::uint8_t> nibbles(x.size() / 2 + 1);
  std::vector<float> decoded(x.size());
  const auto encode = [&](const char* name, const char* spec, double share, const Run& peer,
                          const char* torch) {
    Step step(spec, vector_of(x), x, false);
    goals.measure({.name = name,
                   .what = std::string("encode ") + spec,
                   .share = share,
                   .run = [&] { step.begin_and_encode(); },
                   .peer_name = "plain loop",
                   .peer = peer,
                   .torch_name = torch});
  };
  encode(
      "B4", "qsgd:bits=8", 0.60, [&] { peers::int8_stochastic(x, scales, codes); },
      "int8 stochastic");
  encode(
      "B4", "absmax:bits=8", 0.65, [&] { peers::int8_nearest(x, scales, codes); }, "int8 nearest");
  encode(
      "B5", "qsgd:bits=4", 0.60, [&] { peers::int8_stochastic(x, scales, codes); }, nullptr);
  encode(
      "B5", "absmax:bits=4", 0.60, [&] { peers::int4_nearest(x, scales, nibbles); }, nullptr);
  const auto decode = [&](const char* spec, const Run& peer, const char* torch) {
    Step step(spec, vector_of(x), x, false);
    goals.measure({.name = "B6",
                   .what = std::string("decode ") + spec,
                   .share = 0.65,
                   .run =
                       [&] {
                         step.absorb(0);
                         step.finish();
                       },
                   .peer_name = "plain loop",
                   .peer = peer,
                   .torch_name = torch});
  };
  const Run eights = [&] { peers::int8_decode(scales, codes, decoded); };
  const Run fours = [&] { peers::int4_decode(scales, nibbles, decoded); };
  decode("qsgd:bits=8", eights, "int8 decode");
  decode("absmax:bits=8", eights, "int8 decode");
  decode("qsgd:bits=4", fours, nullptr);
  decode("absmax:bits=4", fours, nullptr);
}

// One hop of a ring of int8: what arrives, plus one's own, goes on.
void fold_goals(GoalTable& goals) {
  const std::span<const float> x(goals.x());
  std::vector<float> scales(x.size() / peers::kBucket + 1);
  std::vector<std::int8_t> codes(x.size());
  std::vector<float> sum(x.size());
  peers::int8_nearest(x, scales, codes);
  const ConstTensorView own(reinterpret_cast<const std::byte*>(x.data()), vector_of(x),
                            DType::kF32);
  for (const char* spec : {"absmax:bits=8", "qsgd:bits=8"}) {  // nearest, stochastic
    const auto compressor = must(Registry::builtin().make(spec));
    const auto format = must(compressor->open_slices(vector_of(x), {}));
    std::vector<std::byte> received(format->bytes(own.elems(), 0));
    std::vector<std::byte> sent(received.size());
    must(format->pack(own, {}, received, {}));
    const std::array<Addend, 2> addends{Addend{{}, received, {}}, Addend{own, {}, {}}};
    goals.measure({.name = "B7",
                   .what = std::string("decode, add, encode ") + spec,
                   .share = 0.45,
                   .run = [&] { must(format->fold(addends, own.elems(), {}, sent, {})); },
                   .peer_name = "three loops, nearest",
                   .peer = [&] { peers::int8_reduce(scales, codes, x, sum); },
                   .times = 8,
                   .torch_name = "int8 reduce"});
  }
}

void sign_and_cast_goals(GoalTable& goals) {
  const std::span<const float> x(goals.x());
  std::vector<std::uint8_t> bits(x.size() / 8 + 1);
  std::vector<float> decoded(x.size());
  std::vector<std::uint16_t> half(x.size());
  Step sign("signsgd", vector_of(x), x, false);
  goals.measure({.name = "B8",
                 .what = "encode signsgd",
                 .share = 0.75,
                 .run = [&] { sign.begin_and_encode(); },
                 .peer_name = "plain loops",
                 .peer = [&] { peers::sign_pack(x, bits); },
                 .torch_name = "sign pack"});
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
    const bool bf16 = std::string(spec) == "cast:bf16";
    goals.measure({.name = "B10",
                   .what = std::string("encode ") + spec,
                   .share = 0.60,
                   .run = [&] { cast.begin_and_encode(); },
                   .peer_name = "plain bf16 loop",
                   .peer = [&] { peers::to_bf16(x, half); },
                   .torch_name = bf16 ? "to bf16" : "to fp16"});
    goals.measure({.name = "B10",
                   .what = std::string("decode ") + spec,
                   .share = 0.60,
                   .run =
                       [&] {
                         cast.absorb(0);
                         cast.finish();
                       },
                   .torch_name = bf16 ? "from bf16" : nullptr});
  }
}

// The products of one step of PowerSGD of a square matrix, by Eigen.
class ThinProducts {
 public:
  static constexpr std::size_t kRank = 4;
  ThinProducts(std::span<const float> m, std::size_t side)
      : m_(m),
        side_(side),
        p_(kRank * side),
        d_(m.size()),
        q_(m.begin(), m.begin() + count()),
        next_q_(q_) {}

  void p() { must(gemm(view(m_, side_), view(q_, kRank), out(p_), {.transpose_b = true}, {})); }
  void q() {
    must(gemm(view(m_, side_), view(p_, side_), out(next_q_), {.transpose_a = true}, {}));
  }
  void d() {
    must(gemm(view(p_, side_), view(next_q_, side_), out(d_), {.transpose_b = true}, {}));
  }

 private:
  std::ptrdiff_t count() const { return static_cast<std::ptrdiff_t>(kRank * side_); }
  static Shape shape(std::size_t size, std::size_t rows) {
    return Shape::matrix(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(size / rows));
  }
  static ConstTensorView view(std::span<const float> data, std::size_t rows) {
    return {reinterpret_cast<const std::byte*>(data.data()), shape(data.size(), rows), DType::kF32};
  }
  TensorView out(std::vector<float>& data) const {
    return {reinterpret_cast<std::byte*>(data.data()), shape(data.size(), side_), DType::kF32};
  }

  std::span<const float> m_;
  std::size_t side_;
  std::vector<float> p_;
  std::vector<float> d_;
  std::vector<float> q_;
  std::vector<float> next_q_;
};

void powersgd_goals(GoalTable& goals, std::size_t side) {
  constexpr std::size_t kRank = ThinProducts::kRank;
  const std::span<const float> m = std::span(goals.x()).first(side * side);
  const cpu::ThinShape shape{side, side, kRank};
  std::vector<float> p(kRank * side, 0.01f);
  std::vector<float> q(m.begin(), m.begin() + static_cast<std::ptrdiff_t>(kRank * side));
  std::vector<float> d(m.size());
  std::vector<float> e(m.begin(), m.end());
  ThinProducts eigen(m, side);
  goals.measure({.name = "B11",
                 .what = "powersgd:rank=4, P = M Q",
                 .share = 0.45,
                 .run = [&] { cpu::times<float>(Corrected<float>(m), q, shape, p, nullptr); },
                 .peer_name = "Eigen",
                 .peer = [&] { eigen.p(); },
                 .torch_name = "P = M Q"},
                m);
  goals.measure({.name = "B11",
                 .what = "powersgd:rank=4, Q = M^T P",
                 .share = 0.45,
                 .run = [&] { cpu::transposed_times<float>(m, p, shape, q); },
                 .peer_name = "Eigen",
                 .peer = [&] { eigen.q(); },
                 .torch_name = "Q = M^T P"},
                m);
  goals.measure({.name = "B11",
                 .what = "powersgd:rank=4, decode + feedback",
                 .share = 0.26,
                 .run =
                     [&] {
                       cpu::take_product_away<float>(p, q, shape, 1.0f, e);
                       cpu::product<float>(p, q, shape, d);
                     },
                 .peer_name = "Eigen, without feedback",
                 .peer = [&] { eigen.d(); },
                 .torch_name = "D = P Q^T"},
                m);
}

void whole_powersgd_goals(GoalTable& goals, std::size_t side) {
  const std::span<const float> m = std::span(goals.x()).first(side * side);
  const auto dim = static_cast<std::int64_t>(side);
  ThinProducts eigen(m, side);
  for (const bool feedback : {true, false}) {
    Step step("powersgd:rank=4", Shape::matrix(dim, dim), m, feedback);
    goals.measure(
        {.name = "B11",
         .what = std::string("powersgd:rank=4, whole step, ") + (feedback ? "feedback" : "none"),
         .share = 0,
         .run = [&] { step.all(); },
         .peer_name = "Eigen, three products alone",
         .peer =
             [&] {
               eigen.p();
               eigen.q();
               eigen.d();
             },
         .times = 1.7,
         .torch_name = feedback ? "powersgd, feedback" : "powersgd",
         .torch_times = 4},
        m);
  }
}

void orthogonalise_goals(GoalTable& goals) {
  constexpr std::size_t kRows = 32;
  constexpr std::size_t kLength = 4096;
  const std::span<const float> x = std::span(goals.x()).first(kRows * kLength);
  std::vector<float> rows(x.size());
  std::vector<double> scratch;
  const RandomStream fresh(1, RandomUse::kPowerSgdStart, 0, 0, 0, 0);
  goals.measure({.name = "B12",
                 .what = "orthonormal columns, 4096 x 32",
                 .share = 0,
                 .run =
                     [&] {
                       std::copy(x.begin(), x.end(), rows.begin());
                       cpu::orthonormalise<float>(rows, kRows, fresh, scratch);
                     },
                 .peer_name = "Gram-Schmidt (fp32, once)",
                 .peer =
                     [&] {
                       std::copy(x.begin(), x.end(), rows.begin());
                       peers::gram_schmidt(rows, kRows);
                     },
                 .times = 4,
                 .torch_name = "qr",
                 .torch_times = 1.3},
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
  const auto torch = argc > 4 ? TorchPeer::start(argv[4], "bench/peers/codec_torch.py",
                                                 static_cast<std::size_t>(elems))
                              : nullptr;
  GoalTable goals(static_cast<std::size_t>(elems), static_cast<int>(rounds),
                  argc > 3 ? argv[3] : "", torch.get());
  GoalTable::print_head();
  topk_goals(goals);
  quantiser_goals(goals);
  fold_goals(goals);
  sign_and_cast_goals(goals);
  const std::size_t side = elems >= 4096 * 4096 ? 4096 : 256;
  powersgd_goals(goals, side);
  whole_powersgd_goals(goals, side);
  orthogonalise_goals(goals);
  return 0;
}
