// DeMo: momentum stays at home but for its strongest waves.
//
//   d <- momentum d + lr g_i                              every rank its own
//   in every chunk of d (up to 64 x 64): the DCT's `topk` largest coefficients travel, and their
//   part is taken out of d
//   mean per place, over the ranks that sent it; back by the inverse DCT: q
//   x <- x - lr (sign(q) + weight_decay x)                 sign(0) = 0
//
// A tensor is a matrix of its first dimension by the rest, cut into chunks of the largest divisors
// up to `chunk`; a vector is one row. Values travel as bf16, and it is their rounded form that is
// taken out of d: all ranks decode the same bytes in rank order, so replicas are bit-identical.
//
// Payload, little-endian, equally long on all ranks:
//
//   payload := chunk{all tensors' chunks, row by row}
//   chunk   := places values        k = min(topk, elements of the chunk)
//   places  := u12{k}               bits 12 j and up are place j, ascending; padded to whole bytes
//   values  := bf16{k}              finite
//
// 0.22 bits an element of 64 x 64 chunks at topk = 32.
// Source: Peng, Quesnelle, Kingma, "Decoupled momentum optimization", 2024, algorithm 1, with signs
// for the update. Ties go to the lower place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "adapters/trainer/optimizers/dct.h"
#include "adapters/trainer/optimizers/method.h"
#include "trainer/optimizers/flat_state.h"

namespace gradwire {

class Demo final : public Method {
 public:
  static Result<std::unique_ptr<Method>> create(Parts parts);

  Status before_step(double learning_rate) override;
  Status finish(const Stream& stream) override;
  Status make_step(std::span<float> x, std::span<const float> g, double lr) override;
  AggregateStats stats() const override;
  TrafficBytes traffic_bytes() const override;

 protected:
  std::vector<Kept> kept() override;

 private:
  // How one tensor is cut.
  struct Cut {
    std::int64_t rows;  // of the matrix
    std::int64_t columns;
    std::int64_t height;  // of a chunk
    std::int64_t width;
    std::int64_t topk;
    std::size_t payload;  // bytes of a chunk's
    std::int64_t chunks() const { return rows / height * (columns / width); }
  };

  explicit Demo(Parts parts);
  static Cut cut_of(const Shape& shape, const MethodOptions& options);
  const Dct& dct(std::int64_t n) const { return dcts_.at(n); }
  void move(const Cut& cut, std::int64_t chunk, std::span<float> tensor, bool gather);
  Status encode(int tensor, std::span<std::byte> payload);
  Status encode_chunk(const Cut& cut, std::span<std::byte> payload);
  Status decode();
  Status decode_chunk(const Cut& cut, std::size_t at);

  std::vector<Cut> cuts_;             // by tensor
  std::map<std::int64_t, Dct> dcts_;  // by length
  std::size_t payload_bytes_ = 0;
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;  // all ranks', in rank order
  FlatState momentum_;               // d
  std::vector<float> chunk_;         // values of one chunk
  std::vector<float> coefficients_;
  std::vector<float> kept_chunk_;  // the chunk before what was sent leaves it
  std::vector<float> scratch_;
  std::vector<int> counts_;           // ranks that sent a place
  std::vector<std::uint16_t> order_;  // places of a chunk, strongest first
  float rate_ = 0;
  AggregateStats own_;
};

}  // namespace gradwire
