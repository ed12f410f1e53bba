// Tokens and their places as vectors.
#include "trainer/cuda/cuda_layer_kernels.h"
#include "trainer/cuda/each.h"

namespace gradwire::cuda {
namespace {

struct EmbedTokens {
  const float* tokens;
  std::int64_t positions;
  std::int64_t width;
  const float* token;
  const float* position;
  float* y;
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t at = i / width;
    const std::int64_t k = i % width;
    const auto number = static_cast<std::int64_t>(tokens[at]);
    y[i] = token[number * width + k] + position[at % positions * width + k];
  }
};

// Of a part of the vocabulary.
struct LookUp {
  const float* tokens;
  std::int64_t first;
  std::int64_t count;
  std::int64_t width;
  const float* token;
  float* y;
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t number = static_cast<std::int64_t>(tokens[i / width]) - first;
    y[i] = number < 0 || number >= count ? 0 : token[number * width + i % width];
  }
};

// A block to each word of the vocabulary: it looks for its places, 128 at a time, and each thread
// adds up one feature after another of what comes back there, in the order of places as the host
// does.
struct TokenSums {
  static constexpr unsigned kThreads = 128;
  struct Shared {
    bool here[kThreads];
  };

  const float* tokens;
  std::int64_t first;  // word of the first block
  std::int64_t places;
  std::int64_t width;
  const float* dy;
  float* token;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const auto word = static_cast<float>(first + block.block());
    for (std::int64_t begin = 0; begin < width; begin += kThreads) {
      const std::int64_t k = begin + block.thread();
      float* to = token + block.block() * width + k;
      float sum = 0;
      for (std::int64_t from = 0; from < places; from += kThreads) {
        const std::int64_t own = from + block.thread();
        shared.here[block.thread()] = own < places && tokens[own] == word;
        block.barrier();
        for (unsigned i = 0; i < kThreads; ++i) {
          if (shared.here[i] && k < width) sum += dy[(from + i) * width + k];
        }
        block.barrier();
      }
      if (k < width) *to = sum;
    }
  }
};

struct PositionSums {
  std::int64_t rows;
  std::int64_t elems;  // positions * width
  const float* dy;
  float* position;
  GW_DEVICE void operator()(std::int64_t i) const {
    float sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) sum += dy[r * elems + i];
    position[i] = sum;
  }
};

}  // namespace

void CudaLayerKernels::embed(In tokens, std::int64_t positions, std::int64_t width, In token,
                             In position, Out y) {
  const EmbedTokens each{tokens.data(), positions, width, token.data(), position.data(), y.data()};
  enqueue([&] { return for_each("embed", count_of(y), each, stream_); });
}

void CudaLayerKernels::embed_params(In tokens, std::int64_t width, In dy, Out token, Out position) {
  look_up_params(tokens, 0, width, dy, token);
  const std::int64_t elems = count_of(position);
  const PositionSums each{count_of(dy) / elems, elems, dy.data(), position.data()};
  enqueue([&] { return for_each("embed_positions", elems, each, stream_); });
}

void CudaLayerKernels::look_up(In tokens, std::int64_t first, std::int64_t width, In token, Out y) {
  const LookUp each{tokens.data(), first, count_of(token) / width, width, token.data(), y.data()};
  enqueue([&] { return for_each("look_up", count_of(y), each, stream_); });
}

void CudaLayerKernels::look_up_params(In tokens, std::int64_t first, std::int64_t width, In dy,
                                      Out token) {
  const TokenSums words{tokens.data(), first, count_of(tokens), width, dy.data(), token.data()};
  enqueue([&] { return launch("embed_tokens", words, count_of(token) / width, stream_); });
}

}  // namespace gradwire::cuda
