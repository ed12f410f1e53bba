// The laws of WireFormat (include/gradwire/wire_format.h), for methods that claim to be
// elementwise.
#include "tests/laws/law_data.h"

namespace gradwire::laws {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::int64_t kElems = 10000;
const Compressor::Placement kPlace{.rank = 1, .size = 3, .seed = 4, .tensor = 5};

template <typename T>
class Slices {
 public:
  explicit Slices(const Compressor& compressor) {
    Compressor::Placement where = kPlace;
    where.dtype = DTypeOf<T>::kValue;
    auto opened = compressor.open_slices(Shape::vector(kElems), where);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    format_ = std::move(opened).value();
  }
  WireFormat& format() { return *format_; }
  static Slice slice(std::int64_t first, int stage = 0) {
    return {
        .step = 6, .tensor = kPlace.tensor, .rank = kPlace.rank, .stage = stage, .first = first};
  }

  Bytes pack(const std::vector<T>& x, std::int64_t first, std::int64_t count, int stage = 0) {
    format_->turn_to(slice(first, stage).step);
    Bytes wire(format_->bytes(count, stage));
    const ConstTensorView whole = const_view_of<T>(std::span<const T>(x));
    const auto packed = format_->pack(whole.slice(first, count), slice(first, stage), wire, {});
    EXPECT_TRUE(packed.has_value()) << packed.error().message();
    EXPECT_EQ(packed.has_value() ? packed.value() : 0, wire.size());
    return wire;
  }
  std::vector<T> unpack(const Bytes& wire, std::int64_t first, std::int64_t count, int stage = 0) {
    std::vector<T> x(static_cast<std::size_t>(count), T{3});
    const Status status = format_->unpack(wire, slice(first, stage), view_of(std::span<T>(x)), {});
    EXPECT_TRUE(status.ok()) << status.message();
    return x;
  }

 private:
  std::unique_ptr<WireFormat> format_;
};

GW_LAW(SlicesOnlyIfElementwise) {
  const auto opened = compressor().open_slices(Shape::vector(4), {});
  EXPECT_EQ(opened.has_value(), compressor().traits().elementwise);
  EXPECT_EQ(opened.error().code(), opened.has_value() ? Code::kOk : Code::kUnsupported);
}

GW_LAW(SlicesHaveExactlyTheirBytes) {
  with_type([this]<typename T>() {
    Slices<T> slices(compressor());
    const auto x = gradient<T>(kElems, 3, 1);  // of one magnitude: legal in every stage
    for (const int stage : {0, 1}) {
      EXPECT_EQ(slices.format().bytes(0, stage), 0u);
      for (const std::int64_t count : {0, 1, 7, 512, 4097, 10000}) {
        const std::size_t bytes = slices.pack(x, 0, count, stage).size();
        if (bytes == 0) continue;
        Bytes small(bytes - 1);
        const ConstTensorView view = const_view_of<T>(std::span<const T>(x)).slice(0, count);
        EXPECT_EQ(slices.format().pack(view, Slices<T>::slice(0, stage), small, {}).error().code(),
                  Code::kInvalidArgument);
      }
    }
  });
}

GW_LAW(AnyCutDecodesAsTheWhole) {
  const std::int64_t step = law_case().slice_alignment;
  with_type([this, step]<typename T>() {
    Slices<T> slices(compressor());
    const auto x = gradient<T>(kElems, 0, 1);
    const auto whole = slices.unpack(slices.pack(x, 0, kElems), 0, kElems);
    for (const std::int64_t cut : {1, 2, 37, 333, 5000}) {
      const std::int64_t at = std::min(kElems, (cut + step - 1) / step * step);
      auto parts = slices.unpack(slices.pack(x, 0, at), 0, at);
      const auto rest = slices.unpack(slices.pack(x, at, kElems - at), at, kElems - at);
      parts.insert(parts.end(), rest.begin(), rest.end());
      EXPECT_TRUE(same_bits(parts, whole)) << "cut at " << at;
    }
  });
}

GW_LAW(UnpackAddIsUnpackAndAdd) {
  with_type([this]<typename T>() {
    Slices<T> slices(compressor());
    for (const int kind : {0, 1, 3}) {
      for (const std::int64_t count : {1, 9, 3000}) {
        const Bytes wire = slices.pack(gradient<T>(kElems, kind, 1), 0, count);
        auto wanted = gradient<T>(count, 0, 2);
        auto acc = wanted;
        const auto decoded = slices.unpack(wire, 0, count);
        for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += decoded[i];
        ASSERT_TRUE(slices.format()
                        .unpack_add(wire, Slices<T>::slice(0), view_of(std::span<T>(acc)), {})
                        .ok());
        EXPECT_TRUE(same_bits(acc, wanted)) << "data " << kind << " elements " << count;
      }
    }
  });
}

// Lengths may follow the step: at every step bytes() is what pack() writes and unpack() takes, it
// is the payload that a coder writes then, and turning back is turning forth.
GW_LAW(SlicesFollowTheStep) {
  with_type([this]<typename T>() {
    Compressor::Placement where = kPlace;
    where.dtype = DTypeOf<T>::kValue;
    const Shape shape = Shape::vector(3000);
    auto format = compressor().open_slices(shape, where).value();
    const auto x = gradient<T>(3000, 0, 1);
    const ConstTensorView view = const_view_of<T>(std::span<const T>(x));
    for (const std::uint64_t step : {0U, 1U, 2U, 3U, 4U, 5U, 9U, 0U, 3U}) {
      auto coder = compressor().open(shape, where).value();
      ASSERT_TRUE(coder->begin(view, step, {}).ok());
      Bytes wanted(compressor().max_payload_bytes(shape, where.dtype, 0, where.size));
      const auto wrote = coder->encode(0, wanted, {});
      ASSERT_TRUE(wrote.has_value()) << wrote.error().message();
      wanted.resize(wrote.value());
      format->turn_to(step);
      Bytes wire(format->bytes(3000, 0));
      const Slice slice{.step = step, .tensor = where.tensor, .rank = where.rank};
      const auto packed = format->pack(view, slice, wire, {});
      ASSERT_TRUE(packed.has_value()) << packed.error().message();
      EXPECT_EQ(packed.value(), wire.size()) << step;
      EXPECT_EQ(wire, wanted) << step;
      std::vector<T> y(3000);
      EXPECT_TRUE(format->unpack(wire, slice, view_of(std::span<T>(y)), {}).ok()) << step;
    }
  });
}

// The owner's second encoding keeps to the bound of the first (twice it, for one random draw).
GW_LAW(SecondStageKeepsTheBound) {
  const ErrorBound bound = compressor().bound(Shape::vector(kElems));
  with_type([this, &bound]<typename T>() {
    Slices<T> slices(compressor());
    for (int kind = 0; kind < kDataKinds; ++kind) {
      const auto x = gradient<T>(kElems, kind, 1);
      const auto y = slices.unpack(slices.pack(x, 0, kElems, 1), 0, kElems, 1);
      const double most =
          bound.kind == ErrorBound::Kind::kVariance ? 2 * bound.value : 1 - bound.value;
      EXPECT_LE(squared_distance(x, y, bound.scale), (most * (1 + 1e-5) + 1e-12) * squared(x))
          << kind;
    }
  });
}

GW_LAW(SlicesOfWrongLengthAreCorrupt) {
  with_type([this]<typename T>() {
    Slices<T> slices(compressor());
    const auto x = gradient<T>(kElems, 3, 1);
    std::vector<T> out(100);
    const TensorView dst = view_of(std::span<T>(out));
    for (const int stage : {0, 1}) {
      const Bytes good = slices.pack(x, 0, 100, stage);
      for (const std::size_t length : {std::size_t{0}, good.size() - 1, good.size() + 1}) {
        Bytes bad(good);
        bad.resize(length);
        const Slice slice = Slices<T>::slice(0, stage);
        EXPECT_EQ(slices.format().unpack(bad, slice, dst, {}).code(), Code::kCorruptPayload);
        EXPECT_EQ(slices.format().unpack_add(bad, slice, dst, {}).code(), Code::kCorruptPayload);
      }
    }
  });
}

bool is_elementwise(const Compressor& compressor, const CompressorCase&) {
  return compressor.traits().elementwise;
}
bool is_gathered(const Compressor& compressor, const CompressorCase&) {
  return compressor.traits().elementwise && compressor.traits().exchange == Exchange::kAllGather;
}
bool is_cut_anywhere(const Compressor& compressor, const CompressorCase& one) {
  return compressor.traits().elementwise && one.slice_alignment != 0;
}
bool bounds_slices(const Compressor& compressor, const CompressorCase&) {
  return compressor.traits().elementwise && compressor.traits().mean_is_average_of_own &&
         compressor.bound(Shape::vector(kElems)).kind != ErrorBound::Kind::kNone;
}

}  // namespace

std::vector<Law> slice_laws() {
  return {
      {"SlicesOnlyIfElementwise", SlicesOnlyIfElementwise},
      {"SlicesHaveExactlyTheirBytes", SlicesHaveExactlyTheirBytes, is_elementwise},
      {"AnyCutDecodesAsTheWhole", AnyCutDecodesAsTheWhole, is_cut_anywhere},
      {"UnpackAddIsUnpackAndAdd", UnpackAddIsUnpackAndAdd, is_elementwise},
      {"SecondStageKeepsTheBound", SecondStageKeepsTheBound, bounds_slices},
      {"SlicesFollowTheStep", SlicesFollowTheStep, is_gathered},
      {"SlicesOfWrongLengthAreCorrupt", SlicesOfWrongLengthAreCorrupt, is_elementwise},
  };
}

}  // namespace gradwire::laws
