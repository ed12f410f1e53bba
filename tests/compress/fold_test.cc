// WireFormat::fold gives the bytes that unpacking, adding up and packing give.
#include <gtest/gtest.h>

#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "gradwire/registry.h"
#include "tests/support/fails.h"

namespace gradwire::fold_test {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::int64_t kFirst = 37;

template <typename T>
std::vector<T> values(std::size_t elems, std::uint64_t key) {
  const RandomStream draws(5, RandomUse::kTest, key, 0, 0, 0);
  std::vector<T> x(elems);
  for (std::size_t i = 0; i < elems; ++i) x[i] = static_cast<T>(draws.normal(i));
  return x;
}

template <typename T>
class Fold {
 public:
  Fold(const char* spec, std::size_t elems) : elems_(elems) {
    const auto compressor = std::move(Registry::builtin().make(spec)).value();
    const Compressor::Placement where{DTypeOf<T>::kValue, {}, 0, 3, 9, 77};
    format_ = std::move(compressor->open_slices(Shape::vector(1 << 16), where)).value();
    for (int r = 0; r < 3; ++r) {
      all_.push_back(values<T>(elems, static_cast<std::uint64_t>(r)));
      wires_.emplace_back(format_->bytes(count(), 0));
      EXPECT_TRUE(
          format_->pack(const_view_of<T>(all_.back()), slice(r, 0), wires_.back(), {}).has_value());
    }
  }

  // Rank `own` of the first `ranks` adds its values, the others' payloads come from the network.
  void compare(int own, int ranks) {
    std::vector<T> sum(elems_);
    std::vector<Addend> addends;
    for (int r = 0; r < ranks; ++r) {
      const auto rank = static_cast<std::size_t>(r);
      if (r == own) {
        addends.push_back({const_view_of<T>(all_[rank]), {}, {}});
        for (std::size_t i = 0; i < elems_; ++i) {
          sum[i] = r == 0 ? all_[rank][i] : sum[i] + all_[rank][i];
        }
        continue;
      }
      addends.push_back({{}, wires_[rank], slice(r, 0)});
      const TensorView into = view_of<T>(sum);
      EXPECT_TRUE((r == 0 ? format_->unpack(wires_[rank], slice(r, 0), into, {})
                          : format_->unpack_add(wires_[rank], slice(r, 0), into, {}))
                      .ok());
    }
    Bytes wanted(format_->bytes(count(), 1));
    Bytes seen(wanted.size());
    EXPECT_TRUE(format_->pack(const_view_of<T>(sum), slice(own, 1), wanted, {}).has_value());
    const auto wrote = format_->fold(addends, count(), slice(own, 1), seen, {});
    ASSERT_TRUE(wrote.has_value()) << wrote.error().message();
    EXPECT_EQ(wrote.value(), wanted.size());
    EXPECT_TRUE(seen == wanted) << elems_ << " elements, rank " << own;
  }

  WireFormat& format() { return *format_; }
  Bytes& wire(int rank) { return wires_[static_cast<std::size_t>(rank)]; }
  std::int64_t count() const { return static_cast<std::int64_t>(elems_); }
  static Slice slice(int rank, int stage) { return {4, 77, rank, stage, kFirst}; }

 private:
  std::size_t elems_;
  std::unique_ptr<WireFormat> format_;
  std::vector<std::vector<T>> all_;
  std::vector<Bytes> wires_;
};

class FoldingFormats : public ::testing::TestWithParam<const char*> {};

TEST_P(FoldingFormats, GiveTheBytesOfSeparatePasses) {
  for (const std::size_t elems : {1u, 512u, 1000u, 1024u, 5001u}) {
    Fold<float> floats(GetParam(), elems);
    Fold<double> doubles(GetParam(), elems);
    ASSERT_TRUE(floats.format().folds());
    for (const int ranks : {2, 3}) {
      for (int own = 0; own <= ranks; ++own) {  // the last: nobody adds values
        floats.compare(own, ranks);
        doubles.compare(own, ranks);
      }
    }
  }
}

TEST_P(FoldingFormats, RefuseWhatUnpackRefuses) {
  Fold<float> fold(GetParam(), 1000);
  Bytes out(fold.format().bytes(fold.count(), 1));
  const auto folded = [&] {
    const std::vector<Addend> addends{{{}, fold.wire(0), Fold<float>::slice(0, 0)},
                                      {{}, fold.wire(1), Fold<float>::slice(1, 0)}};
    const auto wrote = fold.format().fold(addends, fold.count(), Fold<float>::slice(2, 1), out, {});
    return wrote.has_value() ? Status() : Status(wrote.error());
  };
  EXPECT_TRUE(folded().ok());
  fold.wire(1)[3] = std::byte{0xff};  // the sign of the first bucket's norm
  const Status status = folded();
  EXPECT_THAT(status, fails(Code::kCorruptPayload, "addend 1"));
  fold.wire(1).pop_back();
  EXPECT_EQ(folded().code(), Code::kCorruptPayload);
}

INSTANTIATE_TEST_SUITE_P(Methods, FoldingFormats,
                         ::testing::Values("qsgd:bits=8", "qsgd:bits=4", "qsgd:bits=3,bucket=100",
                                           "qsgd:levels=5,bucket=1000", "absmax:bits=8",
                                           "absmax:bits=8,bucket=24", "qsgd:bits=8,bucket=24",
                                           "minmax:bits=3,bucket=96",
                                           "absmax:bits=4,rounding=stochastic",
                                           "absmax:bits=2,spikes=1",
                                           "absmax:bits=8,bucket=8192,transform=hadamard"));

}  // namespace
}  // namespace gradwire::fold_test
