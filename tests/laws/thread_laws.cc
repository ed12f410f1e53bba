// Threads change no bit: slices may be cut where their format says, and what several threads encode
// and decode is what one does.
#include <numeric>

#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "compress/threaded_format.h"
#include "tests/laws/law_data.h"

namespace gradwire::laws {
namespace {

using Bytes = std::vector<std::byte>;

// Three parts and a bit, of which the last ends in the middle of a bucket and of a byte.
constexpr std::int64_t kElems = 3 * 65536 + 5003;
const Shape kMatrix = Shape::matrix(40, 6);  // of methods that are not cut at all

Compressor::Placement place(DType dtype) {
  return {.dtype = dtype, .rank = 1, .size = 2, .seed = 4, .tensor = 5};
}

template <typename T>
Bytes packed(WireFormat& format, const std::vector<T>& x, std::int64_t first, std::int64_t count,
             int stage) {
  Bytes wire(format.bytes(count, stage));
  const ConstTensorView whole = const_view_of<T>(std::span<const T>(x));
  const Slice slice{.step = 6, .tensor = 5, .rank = 1, .stage = stage, .first = first};
  const auto wrote = format.pack(whole.slice(first, count), slice, wire, {});
  EXPECT_TRUE(wrote.has_value()) << wrote.error().message();
  return wire;
}

GW_LAW(PartsCutAtSeamsJoinToTheWhole) {
  with_type([this]<typename T>() {
    auto opened = compressor().open_slices(Shape::vector(kElems), place(DTypeOf<T>::kValue));
    ASSERT_TRUE(opened.has_value());
    WireFormat& format = *opened.value();
    const auto x = gradient<T>(30011, 3, 1);  // of one magnitude: legal in every stage
    const auto elems = static_cast<std::int64_t>(x.size());
    for (const int stage : {0, 1}) {
      const auto whole = format.sections(elems, stage);
      EXPECT_EQ(std::accumulate(whole.begin(), whole.end(), std::size_t{0}),
                format.bytes(elems, stage));
      const std::int64_t seam = format.seam(stage);
      if (seam < 1 || seam >= elems) continue;
      const Bytes together = packed<T>(format, x, 0, elems, stage);
      const std::int64_t cut = elems / seam / 2 * seam + seam;
      const Bytes head = packed<T>(format, x, 0, cut, stage);
      const Bytes tail = packed<T>(format, x, cut, elems - cut, stage);
      const auto first = format.sections(cut, stage);
      const auto second = format.sections(elems - cut, stage);
      ASSERT_EQ(first.size(), whole.size());
      Bytes joined;
      std::size_t a = 0;
      std::size_t b = 0;
      for (std::size_t s = 0; s < whole.size(); ++s) {
        joined.insert(joined.end(), &head[a], &head[a] + first[s]);
        joined.insert(joined.end(), &tail[b], &tail[b] + second[s]);
        a += first[s];
        b += second[s];
      }
      EXPECT_EQ(joined, together) << "stage " << stage << ", seam " << seam;
    }
  });
}

// Two ranks' payloads and state, and what they decode to, step by step.
template <typename T>
struct Outcome {
  std::vector<Bytes> payloads;
  std::vector<std::vector<T>> values;
};

template <typename T>
using Steps = std::vector<std::vector<std::vector<T>>>;  // gradients by step, by rank

template <typename T>
Outcome<T> run_steps(const Compressor& compressor, const Shape& shape, const Steps<T>& steps,
                     Workers* workers, double scale) {
  Outcome<T> run;
  const auto elems = static_cast<std::size_t>(shape.elems());
  std::vector<std::unique_ptr<Coder>> coders;
  for (const int rank : {0, 1}) {
    Compressor::Placement where = place(DTypeOf<T>::kValue);
    where.rank = rank;
    auto coder = open_on(workers, compressor, shape, where);
    EXPECT_TRUE(coder.has_value()) << coder.error().message();
    coders.push_back(std::move(coder).value());
    if (scale > 0) {
      coders.back() = std::move(make_ef14(std::move(coders.back()), shape, where, scale)).value();
    }
  }
  for (std::uint64_t step = 0; step < steps.size(); ++step) {
    const auto& grads = steps[step];
    std::vector<Bytes> sent;
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_TRUE(coders[r]->begin(const_view_of<T>(grads[r]), step, {}).ok());
      sent.emplace_back(compressor.max_payload_bytes(shape, DTypeOf<T>::kValue, 0, 2));
      const auto wrote = coders[r]->encode(0, sent.back(), {});
      EXPECT_TRUE(wrote.has_value()) << wrote.error().message();
      if (!wrote.has_value()) return run;
      sent.back().resize(wrote.value());
    }
    const std::vector<ConstByteSpan> received(sent.begin(), sent.end());
    for (std::size_t r = 0; r < 2; ++r) {
      std::vector<T> mean(elems);
      std::vector<T> own(elems);
      EXPECT_TRUE(coders[r]->absorb(0, received, {}).ok());
      EXPECT_TRUE(
          coders[r]->finish(view_of(std::span<T>(mean)), view_of(std::span<T>(own)), {}).ok());
      run.values.push_back(std::move(mean));
      run.values.push_back(std::move(own));
      for (const NamedTensor& state : coders[r]->state()) {
        run.payloads.emplace_back(state.tensor.bytes().begin(), state.tensor.bytes().end());
      }
    }
    run.payloads.insert(run.payloads.end(), sent.begin(), sent.end());
  }
  return run;
}

GW_LAW(ThreadsChangeNoBit) {
  const Traits traits = compressor().traits();
  const Shape shape = traits.elementwise ? Shape::vector(kElems) : kMatrix;
  const auto pair = check_pair(compressor(), shape, {.error_feedback = true});
  with_type([&]<typename T>() {
    const Steps<T> steps{gradients<T>(shape.elems(), 0, 2, 0),
                         gradients<T>(shape.elems(), 0, 2, 1)};
    for (const bool feedback : {false, true}) {
      if (feedback && !pair.has_value()) continue;
      const double scale = feedback ? pair.value().scale : 0;
      const Outcome<T> alone = run_steps<T>(compressor(), shape, steps, nullptr, scale);
      for (const int threads : {1, 2, 3, 8}) {
        if (brief() && threads < 3) continue;
        Workers workers(threads);
        const Outcome<T> run = run_steps<T>(compressor(), shape, steps, &workers, scale);
        EXPECT_TRUE(run.payloads == alone.payloads) << threads << " threads";
        ASSERT_EQ(run.values.size(), alone.values.size());
        for (std::size_t i = 0; i < run.values.size(); ++i) {
          EXPECT_TRUE(same_bits(run.values[i], alone.values[i])) << threads << " threads";
        }
      }
    }
  });
}

// Payloads that no encoder writes.
GW_LAW(ThreadsRefuseAsOneDoes) {
  with_type([this]<typename T>() {
    const Shape shape = Shape::vector(kElems);
    Workers workers(3);
    auto one = compressor().open_slices(shape, place(DTypeOf<T>::kValue));
    auto many = open_slices_on(&workers, compressor(), shape, place(DTypeOf<T>::kValue));
    ASSERT_TRUE(one.has_value() && many.has_value());
    const auto x = gradient<T>(kElems, 0, 1);
    const Bytes wire = packed<T>(*one.value(), x, 0, kElems, 0);
    const Slice slice{.step = 6, .tensor = 5, .rank = 1};
    std::vector<T> a(x.size());
    std::vector<T> b(x.size());
    for (const std::size_t spoiled : {wire.size() + 1, wire.size() / 2, std::size_t{0}}) {
      Bytes bad = wire;
      for (std::size_t i = spoiled; i < std::min(spoiled + 16, bad.size()); ++i) {
        bad[i] = std::byte{0xff};
      }
      const Status first = one.value()->unpack(bad, slice, view_of(std::span<T>(a)), {});
      const Status second = many.value()->unpack(bad, slice, view_of(std::span<T>(b)), {});
      EXPECT_EQ(first.code(), second.code());
      EXPECT_EQ(first.message(), second.message());
      EXPECT_TRUE(!first.ok() || same_bits(a, b));
    }
    EXPECT_EQ(one.value()->folds(), many.value()->folds());
  });
}

// One sum of three slices, of which the second is values.
GW_LAW(ThreadsFoldAsOneDoes) {
  with_type([this]<typename T>() {
    const Shape shape = Shape::vector(kElems);
    Workers workers(3);
    auto one = compressor().open_slices(shape, place(DTypeOf<T>::kValue));
    auto many = open_slices_on(&workers, compressor(), shape, place(DTypeOf<T>::kValue));
    ASSERT_TRUE(one.has_value() && many.has_value());
    const auto x = gradient<T>(kElems, 0, 1);
    const Bytes wire = packed<T>(*one.value(), x, 0, kElems, 0);
    const Slice slice{.step = 6, .tensor = 5, .rank = 1};
    const Slice sum{.step = 6, .tensor = 5, .rank = 0, .stage = 1};
    const Addend addends[] = {{{}, wire, slice}, {const_view_of<T>(x), {}, {}}, {{}, wire, slice}};
    Bytes first(one.value()->bytes(kElems, 1));
    Bytes second(first.size());
    ASSERT_TRUE(one.value()->fold(addends, kElems, sum, first, {}).has_value());
    ASSERT_TRUE(many.value()->fold(addends, kElems, sum, second, {}).has_value());
    EXPECT_TRUE(first == second);
  });
}

bool is_elementwise(const Compressor& compressor, const CompressorCase&) {
  return compressor.traits().elementwise;
}
bool folds(const Compressor& compressor, const CompressorCase&) {
  if (!compressor.traits().elementwise) return false;
  const auto opened = compressor.open_slices(Shape::vector(kElems), place(DType::kF32));
  return opened.has_value() && opened.value()->folds();
}
bool is_gathered_at_once(const Compressor& compressor, const CompressorCase&) {
  return compressor.traits().rounds == 1 && compressor.traits().exchange == Exchange::kAllGather;
}

}  // namespace

std::vector<Law> thread_laws() {
  return {
      {"PartsCutAtSeamsJoinToTheWhole", PartsCutAtSeamsJoinToTheWhole, is_elementwise},
      {"ThreadsChangeNoBit", ThreadsChangeNoBit, is_gathered_at_once},
      {"ThreadsRefuseAsOneDoes", ThreadsRefuseAsOneDoes, is_elementwise},
      {"ThreadsFoldAsOneDoes", ThreadsFoldAsOneDoes, folds},
  };
}

}  // namespace gradwire::laws
