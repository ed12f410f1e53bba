#include "bench/goals/plain_peers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace gradwire::bench::peers {
namespace {

float largest(std::span<const float> x) {
  float most = 0;
  for (const float value : x) most = std::max(most, std::abs(value));
  return most;
}

std::uint32_t xorshift(std::uint32_t& state) {
  state ^= state << 13;
  state ^= state >> 17;
  return state ^= state << 5;
}

// Calls encode(bucket, its scale, place of its first element) for each bucket.
template <typename Encode>
void each_bucket(std::span<const float> x, std::span<float> scales, float levels,
                 const Encode& encode) {
  for (std::size_t b = 0; b * kBucket < x.size(); ++b) {
    const auto bucket = x.subspan(b * kBucket, std::min(kBucket, x.size() - b * kBucket));
    const float most = largest(bucket);
    scales[b] = most / levels;
    encode(bucket, most > 0 ? levels / most : 0.0f, b * kBucket);
  }
}

}  // namespace

float nth_element(std::span<const float> x, std::size_t k, std::vector<float>& scratch,
                  std::vector<std::uint32_t>& index) {
  scratch.resize(x.size());
  index.clear();
  for (std::size_t i = 0; i < x.size(); ++i) scratch[i] = std::abs(x[i]);
  const auto nth = scratch.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(scratch.begin(), nth, scratch.end(), std::greater<>());
  const float least = *nth;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::abs(x[i]) >= least) index.push_back(static_cast<std::uint32_t>(i));
  }
  return least;
}

void nth_pair(std::span<const float> x, std::size_t k, std::vector<Pair>& pairs) {
  pairs.resize(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    pairs[i] = {std::abs(x[i]), static_cast<std::uint32_t>(i)};
  }
  const auto nth = pairs.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(pairs.begin(), nth, pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.magnitude > b.magnitude; });
  std::sort(pairs.begin(), nth + 1, [](const Pair& a, const Pair& b) { return a.place < b.place; });
}

std::size_t feedback_threshold(std::span<const float> g, float threshold, std::span<float> e,
                               std::span<std::uint32_t> index, std::span<float> value) {
  for (std::size_t i = 0; i < g.size(); ++i) e[i] += g[i];
  std::size_t count = 0;
  for (std::size_t i = 0; i < g.size() && count < index.size(); ++i) {
    if (std::abs(e[i]) < threshold) continue;
    index[count] = static_cast<std::uint32_t>(i);
    value[count++] = e[i];
  }
  for (std::size_t i = 0; i < g.size(); ++i) e[i] = std::abs(e[i]) < threshold ? e[i] : 0.0f;
  return count;
}

void int8_nearest(std::span<const float> x, std::span<float> scales, std::span<std::int8_t> codes) {
  each_bucket(x, scales, 127, [&](std::span<const float> bucket, float by, std::size_t first) {
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      codes[first + i] = static_cast<std::int8_t>(std::lrintf(bucket[i] * by));
    }
  });
}

void int8_stochastic(std::span<const float> x, std::span<float> scales,
                     std::span<std::int8_t> codes) {
  std::uint32_t state = 1;
  each_bucket(x, scales, 127, [&](std::span<const float> bucket, float by, std::size_t first) {
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      const float draw = static_cast<float>(xorshift(state) >> 8) * 0x1p-24f;
      codes[first + i] = static_cast<std::int8_t>(std::floor(bucket[i] * by + draw));
    }
  });
}

void int8_decode(std::span<const float> scales, std::span<const std::int8_t> codes,
                 std::span<float> x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = scales[i / kBucket] * static_cast<float>(codes[i]);
  }
}

void int4_nearest(std::span<const float> x, std::span<float> scales,
                  std::span<std::uint8_t> codes) {
  each_bucket(x, scales, 7, [&](std::span<const float> bucket, float by, std::size_t first) {
    for (std::size_t i = 0; i + 1 < bucket.size(); i += 2) {
      const auto low = static_cast<unsigned>(std::lrintf(bucket[i] * by) + 8);
      const auto high = static_cast<unsigned>(std::lrintf(bucket[i + 1] * by) + 8);
      codes[(first + i) / 2] = static_cast<std::uint8_t>(low | high << 4);
    }
  });
}

void int4_decode(std::span<const float> scales, std::span<const std::uint8_t> codes,
                 std::span<float> x) {
  for (std::size_t i = 0; i + 1 < x.size(); i += 2) {
    const float scale = scales[i / kBucket];
    x[i] = scale * static_cast<float>((codes[i / 2] & 15) - 8);
    x[i + 1] = scale * static_cast<float>((codes[i / 2] >> 4) - 8);
  }
}

void int8_reduce(std::span<float> scales, std::span<std::int8_t> codes, std::span<const float> x,
                 std::span<float> sum) {
  int8_decode(scales, codes, sum);
  for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
  int8_nearest(sum, scales, codes);
}

float sign_pack(std::span<const float> x, std::span<std::uint8_t> bits) {
  float sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::abs(x[i]);
  for (std::size_t i = 0; i + 8 <= x.size(); i += 8) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < 8; ++j) byte |= (x[i + j] < 0 ? 1u : 0u) << j;
    bits[i / 8] = static_cast<std::uint8_t>(byte);
  }
  return sum / static_cast<float>(x.size());
}

void sign_unpack(std::span<const std::uint8_t> bits, float scale, std::span<float> x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (bits[i / 8] >> (i % 8) & 1) != 0 ? -scale : scale;
  }
}

void to_bf16(std::span<const float> x, std::span<std::uint16_t> half) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    half[i] = static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
}

void gram_schmidt(std::span<float> rows, std::size_t count) {
  const std::size_t length = rows.size() / count;
  for (std::size_t k = 0; k < count; ++k) {
    float* row = rows.data() + k * length;
    float square = 0;
    for (std::size_t j = 0; j < length; ++j) square += row[j] * row[j];
    const float by = 1 / std::sqrt(square);
    for (std::size_t j = 0; j < length; ++j) row[j] *= by;
    for (std::size_t l = k + 1; l < count; ++l) {
      float* later = rows.data() + l * length;
      float along = 0;
      for (std::size_t j = 0; j < length; ++j) along += row[j] * later[j];
      for (std::size_t j = 0; j < length; ++j) later[j] -= along * row[j];
    }
  }
}

}  // namespace gradwire::bench::peers
