#include "compress/thc/thc.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <string>

#include "base/text.h"
#include "compress/hadamard.h"
#include "compress/shared_scale/magnitudes.h"
#include "compress/shared_scale/shared_scale_coder.h"
#include "compress/shared_scale/shared_scale_device.h"
#include "compress/shared_scale/shared_scale_loops.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr double kDefaultClip = 2.154;  // a Gaussian is beyond it once in 32
constexpr std::size_t kThcBlock = 1024;
constexpr std::int64_t kMostThcBlock = 1 << 20;
constexpr int kFine = 31;  // the larger grid

constexpr std::array<std::uint8_t, 16> kUniform{0, 1, 2,  3,  4,  5,  6,  7,
                                                8, 9, 10, 11, 12, 13, 14, 15};
constexpr std::array<std::uint8_t, 16> kDense{0,  3,  5,  7,  9,  11, 13, 15,
                                              16, 18, 20, 22, 24, 26, 28, 31};

struct Cells {
  explicit Cells(int grid) {
    const auto table = thc_table(grid);
    for (std::size_t j = 0; j + 1 < table.size(); ++j) {
      widest = std::max(widest, table[j + 1] - table[j]);
      for (std::size_t i = table[j]; i < table[j + 1]; ++i) {
        by_cell.below[i] = static_cast<float>(table[j]);
        by_cell.gap[i] = static_cast<float>(table[j + 1] - table[j]);
      }
    }
    by_cell.uniform = widest == 1;
  }
  CellTable by_cell;
  int widest = 0;
};

struct ThcGrid {
  static constexpr const char* kName = "thc";
  static constexpr bool kPrepares = true;
  int grid = 15;
  std::size_t block = kThcBlock;
  double clip = kDefaultClip;
  Cells cells{15};

  std::size_t bucket_of(std::size_t rest) const { return std::min(block, std::bit_floor(rest)); }
  int most() const { return grid; }
  bool needs_squares() const { return true; }
  float scale_of(const BucketMagnitudes& y) const { return scale_above(y.norm()); }
  template <typename T>
  void prepare(const SliceKey& key, std::size_t begin, std::span<T> x) const {
    HadamardSigns(key).forward<T>(begin, x);
  }
  template <typename T>
  void restore(const SliceKey& key, std::size_t begin, std::span<T> x) const {
    HadamardSigns(key).inverse<T>(begin, x);
  }
  double half_unit(float norm, std::size_t elems) const {
    return static_cast<double>(norm) * clip / (grid * std::sqrt(static_cast<double>(elems)));
  }
  template <typename T>
  void code(std::span<const T> y, float, float norm, std::size_t begin, Dither& dither,
            std::uint8_t* codes) const {
    const auto half = static_cast<T>(0.5 * grid);
    const double steps = half * std::sqrt(static_cast<double>(y.size())) / clip;
    const auto [before, by] = level_factors<T>(norm, static_cast<T>(steps));
    const CellPlace<T> place{before, by, half, static_cast<T>(grid)};
    for (std::size_t done = 0; done < y.size(); done += Dither::kMost) {
      const auto part = y.subspan(done, std::min(Dither::kMost, y.size() - done));
      cpu::code_cells<T>(place, cells.by_cell, part, dither.of(begin + done, part.size()),
                         codes + done);
    }
  }
};

class Thc final : public Compressor {
 public:
  explicit Thc(const ThcGrid& grid) : grid_(grid) {}

  std::string spec() const override {
    std::string text = format("thc:grid=%d", grid_.grid);
    if (grid_.block != kThcBlock) text += format(",block=%zu", grid_.block);
    if (grid_.clip != kDefaultClip) text += ",clip=" + shortest(grid_.clip);
    return text;
  }
  Traits traits() const override {
    return {.exchange = Exchange::kAllReduceSum,
            .rounds = 2,
            .payload_dtype = DType::kI32,
            .needs_error_feedback = false,
            .bitwise_on_all_devices = true};
  }
  // In the mean over the shared signs. Coordinates are sums of signs times numbers whose squares
  // add up to at most N^2 / B, so that one lies beyond u N / sqrt(B) with probability at most 2
  // exp(-u^2/2) (Hoeffding), and clamping at T costs at most 4 (exp(-T^2/2) - T sqrt(2 pi) Q(T))
  // N^2; drawing costs at most a quarter of the widest squared gap.
  ErrorBound bound(const Shape&) const override {
    const double tail = 0.5 * std::erfc(grid_.clip / std::numbers::sqrt2);
    const double clamped = 4 * (std::exp(-grid_.clip * grid_.clip / 2) -
                                grid_.clip * std::sqrt(2 * std::numbers::pi) * tail);
    const double drawn = std::pow(grid_.cells.widest * grid_.clip / grid_.grid, 2);
    return {.kind = ErrorBound::Kind::kContraction,
            .value = std::max(0.0, 1 - clamped - drawn),
            .over_ranks = true};
  }
  RoundKind round_kind(int round, DType, int) const override { return shared_scale_round(round); }
  std::size_t max_payload_bytes(const Shape& shape, DType, int round, int size) const override {
    return shared_scale_bytes(grid_, static_cast<std::size_t>(shape.elems()), round, size);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_shared_scale_coder({.name = ThcGrid::kName,
                                              .bucket = static_cast<std::int64_t>(grid_.block),
                                              .most = grid_.grid,
                                              .scale = cuda::ScaleOf::kNorm,
                                              .clip = grid_.clip,
                                              .hadamard = true,
                                              .cells = grid_.cells.by_cell},
                                             shape, where);
      }
    }
    return make_shared_scale_coder(grid_, shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "thc: codes mean something on shared norms alone; write combine=sum");
  }

 private:
  ThcGrid grid_;
};

Result<std::unique_ptr<Compressor>> make_thc(const Spec& spec) {
  const SpecReader reader(spec);
  const Result<std::string> grid = reader.choice("grid", "15", {"15", "31"});
  if (!grid.has_value()) return grid.error();
  GW_ASSIGN(const std::int64_t block,
            reader.integer("block", static_cast<std::int64_t>(kThcBlock), 1, kMostThcBlock));
  if (!std::has_single_bit(static_cast<std::uint64_t>(block))) {
    return Status(Code::kInvalidArgument,
                  format("compressor 'thc': key 'block' is '%lld' (expected a power of two)",
                         static_cast<long long>(block)));
  }
  GW_ASSIGN(const double clip, reader.number("clip", kDefaultClip, 1, 8));
  const int g = grid.value() == "31" ? kFine : 15;
  return std::unique_ptr<Compressor>(std::make_unique<Thc>(ThcGrid{
      .grid = g, .block = static_cast<std::size_t>(block), .clip = clip, .cells = Cells(g)}));
}

}  // namespace

std::span<const std::uint8_t, 16> thc_table(int grid) { return grid == kFine ? kDense : kUniform; }

Registry::Method thc_method() {
  return {
      "thc",
      "16 levels after a randomised Hadamard transform, on norms that all ranks share, summed as "
      "integers",
      "grid",
      {{"grid", "15", "largest of the 16 numbers that are summed: 15 (uniform) or 31"},
       {"block", "1024", "elements that are transformed together, a power of two to 1048576"},
       {"clip", "2.154", "deviations at which a transformed element is clamped, above 1 to 8"}},
      make_thc};
}

}  // namespace gradwire
