// Kernels of methods whose ranks share scales: shared_scale_rounds.h.
#pragma once

#include <cmath>

#include "base/philox.h"
#include "compress/cuda/bucket_grid.h"
#include "compress/cuda/bucket_places.h"
#include "compress/cuda/eight.h"
#include "compress/shared_scale/level_arithmetic.h"
#include "compress/value_range.h"

namespace gradwire::cuda {

// What they find: of a scale its number, of other things an element.
enum SharedScaleFinding : unsigned {
  kSharedScale = 1,  // received: negative or infinite
  kSharedSum = 2,    // above what all ranks can send, or a bit where there is no lane
  kSharedLeft = 3    // what error feedback keeps is not finite
};

// A bucket once its scale is shared. Scale 0: its values are 0; NaN: all are that.
struct SharedBucket {
  float scale;
  float own;     // what half a step of one rank's codes is worth
  float mean;    // and of a sum, in the mean
  float before;  // LevelFactors
  float by;
  constexpr bool coded() const { return scale > 0; }
};

// Checks received scales and makes buckets of them: one a thread.
struct SharedBuckets {
  static constexpr unsigned kThreads = 128;
  using Shared = NothingShared;

  const std::byte* scales;
  BucketPlaces places;
  int most;
  int ranks;
  double clip;  // of a transform's elements; 0: there is none
  SharedBucket* buckets;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * kThreads + block.thread();
    if (b >= places.number()) return;
    const float scale = load_float(scales, b);
    if (scale == scale && !(scale >= 0 && is_finite(scale))) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(b), kSharedScale));
    }
    if (!(scale > 0)) {
      buckets[b] = {scale, 0, 0, 0, 0};
      return;
    }
    const double root = std::sqrt(static_cast<double>(places.count(b)));
    const double half = 0.5 * most;
    const auto wide = static_cast<double>(scale);
    const double half_unit = clip == 0 ? wide / most : wide * clip / (most * root);
    const auto levels = static_cast<float>(clip == 0 ? half : half * root / clip);
    const LevelFactors<float> factors = level_factors<float>(scale, levels);
    buckets[b] = {scale, static_cast<float>(half_unit), static_cast<float>(half_unit / ranks),
                  factors.before, factors.by};
  }
};

// Codes 0 ... 2 most.
struct LevelCoding {
  float most;
  bool clips_to_own;
  constexpr unsigned code(const SharedBucket& at, float own, float x, unsigned draw) const {
    const float clip = clips_to_own ? own : std::bit_cast<float>(0x7f800000u);
    return level_code<float>({clip, at.before, at.by, most}, x, draw);
  }
};

struct CellCoding {
  float half;
  float grid;
  CellTable table;
  constexpr unsigned code(const SharedBucket& at, float, float x, unsigned draw) const {
    return cell_code<float>({at.before, at.by, half, grid}, table, x, draw);
  }
};

// Lanes of 32-bit words.
struct SharedLanes {
  int lanes;
  int width;
  std::uint64_t limit;  // of a sum

  constexpr std::uint32_t at(std::uint32_t word, int lane) const {
    const std::uint32_t rest = word >> (lane * width);
    return width == 32 ? rest : rest & ((std::uint32_t{1} << width) - 1);
  }
  // Whether nothing is set above the first `used` lanes.
  constexpr bool clear(std::uint32_t word, int used) const {
    return used * width >= 32 || word >> (used * width) == 0;
  }
};

// Codes in words, and what error feedback keeps: eight elements a thread, then a word a thread, of
// tiles that both fill. Memory: 4 bytes an element in and 4 / lanes out, twice; with feedback 8 in,
// and 4 more out.
template <class Coding>
struct SharedCodes {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    std::uint8_t codes[kThreads * kEight];
  };

  Source source;
  BucketPlaces places;
  Coding coding;
  int most;
  SharedLanes lanes;
  const SharedBucket* buckets;
  const std::byte* own_scales;
  RandomStream draws;
  std::byte* payload;
  std::uint32_t* own_words;
  bool packed;    // floats begin at 16 bytes
  bool in_words;  // the payload begins at 4
  std::uint64_t* verdict;

  // Of a tile.
  constexpr int words() const { return kEight * (static_cast<int>(kThreads) / lanes.lanes); }
  std::int64_t tiles() const {
    return blocks_for(source.count, std::int64_t{words()} * lanes.lanes);
  }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const int size = words() * lanes.lanes;
    const auto thread = static_cast<int>(block.thread());
    for (std::int64_t first = block.block() * size; first < source.count;
         first += block.blocks() * size) {
      if (kEight * thread < size) code(block, first + kEight * thread, shared);
      block.barrier();
      for (int w = thread; w < words(); w += static_cast<int>(kThreads)) {
        const std::int64_t begin = first + w * lanes.lanes;
        if (begin < source.count) put(begin / lanes.lanes, shared.codes + w * lanes.lanes);
      }
      block.barrier();
    }
  }

  template <class Block>
  GW_DEVICE void code(Block& block, std::int64_t begin, Shared& shared) const {
    std::uint8_t* const codes = shared.codes + kEight * block.thread();
    const int count = eight_or(begin, source.count);
    for (int j = count; j < kEight; ++j) codes[j] = 0;
    if (count == 0) return;
    float p[kEight];
    Eight::read(source, begin, count, packed, p);
    const auto words_of_draws = draws.block(static_cast<std::uint64_t>(begin) / kEight);
    std::int64_t b = places.of(begin);
    std::int64_t end = places.begin(b + 1);
    SharedBucket at = buckets[b];
    float own_scale = load_float(own_scales, b);
    for (int j = 0; j < kEight; ++j) {
      if (j >= count) continue;
      if (begin + j == end) {
        end = places.begin(++b + 1);
        at = buckets[b];
        own_scale = load_float(own_scales, b);
      }
      const unsigned draw = half_word(words_of_draws, static_cast<unsigned>(j));
      const unsigned mine = at.coded() ? coding.code(at, own_scale, p[j], draw) : 0;
      codes[j] = static_cast<std::uint8_t>(mine);
      if (source.next == nullptr) continue;
      const float own = at.coded() ? value_of_sum<float>(mine, most, at.own) : at.scale;
      p[j] = p[j] - own * source.own_scale;
      if (!is_finite(p[j])) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kSharedLeft));
      }
    }
    if (source.next != nullptr) Eight::write(source.next + begin, count, packed, p);
  }

  GW_DEVICE void put(std::int64_t w, const std::uint8_t* codes) const {
    std::uint32_t word = 0;
    for (int j = 0; j < lanes.lanes; ++j) word |= std::uint32_t{codes[j]} << (j * lanes.width);
    own_words[w] = word;
    if (in_words) {
      reinterpret_cast<std::uint32_t*>(payload)[w] = word;
    } else {
      store_word(payload, w, word);
    }
  }
};

// dst = what codes of one rank, or sums of all ranks', say: eight elements a thread. The words are
// checked on the way.
struct SharedValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* words;
  bool in_words;
  BucketPlaces places;
  SharedLanes lanes;
  const SharedBucket* buckets;
  bool mean;
  std::int64_t zero;  // the largest sum
  float* dst;
  bool packed;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    const int count = eight_or(begin, places.elems);
    if (count == 0) return;
    std::int64_t w = begin / lanes.lanes;
    auto lane = static_cast<int>(begin % lanes.lanes);
    std::uint32_t word = word_at(w);
    std::int64_t b = places.of(begin);
    std::int64_t end = places.begin(b + 1);
    SharedBucket at = buckets[b];
    float value[kEight] = {};
    for (int j = 0; j < kEight; ++j) {
      if (j >= count) continue;
      if (begin + j == end) {
        end = places.begin(++b + 1);
        at = buckets[b];
      }
      if (lane == lanes.lanes) {
        lane = 0;
        word = word_at(++w);
      }
      const std::int64_t left = places.elems - begin - j;
      const int used = left < lanes.lanes ? static_cast<int>(left) : lanes.lanes;
      const std::uint32_t sum = lanes.at(word, lane);
      if (sum > lanes.limit || (lane == 0 && !lanes.clear(word, used))) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kSharedSum));
      }
      ++lane;
      value[j] = at.coded() ? value_of_sum<float>(sum, zero, mean ? at.mean : at.own) : at.scale;
    }
    Eight::write(dst + begin, count, packed, value);
  }

  GW_DEVICE std::uint32_t word_at(std::int64_t w) const {
    return in_words ? reinterpret_cast<const std::uint32_t*>(words)[w] : load_word(words, w);
  }
};

// Whether a block of a transform has codes.
struct CodedBlocks {
  const SharedBucket* buckets;
  BucketPlaces places;
  constexpr bool operator()(std::int64_t i) const { return buckets[places.of(i)].coded(); }
};

// Looks whether all elements are finite: eight a thread.
struct SharedFinite {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  Source source;
  bool packed;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    const int count = eight_or(begin, source.count);
    if (count == 0) return;
    float p[kEight];
    Eight::read(source, begin, count, packed, p);
    for (int j = 0; j < kEight; ++j) {
      if (j >= count || is_finite(p[j])) continue;
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kSharedLeft));
    }
  }
};

}  // namespace gradwire::cuda
