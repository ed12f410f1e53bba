// A sparse method's choice as pairs of index and value, for an exchange that adds pairs up.
//
// Stands between the method's coder and error feedback: begin() has the method choose, as if it
// were alone; the exchange takes the pairs and returns what became of the sums over ranks; finish()
// says that `own` is what was chosen here and kept by all. So error feedback keeps what either
// choice left out. Pairs and sums are the host's, wherever the tensor lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

// T is float or double.
template <typename T>
class ChosenPairs : public Coder {
 public:
  // `method` has one gathered round. Errors as its open().
  static Result<std::unique_ptr<ChosenPairs>> open(const Compressor& method, const Shape& shape,
                                                   const Compressor::Placement& where);

  // From begin() to the next: elements other than 0 that the method would send, ascending, and what
  // its payload decodes to there.
  std::span<const std::uint32_t> index() const { return index_; }
  std::span<const T> values() const { return values_; }
  // Between begin() and finish(): the sums over ranks of the elements that are kept, ascending, or
  // of all elements. Lent until what finish() enqueues has run.
  void keep(std::span<const std::uint32_t> index, std::span<const T> sums);
  void keep_all(std::span<const T> sums);

  // kUnsupported: pairs do not travel as payloads.
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override;
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override;
  std::vector<NamedTensor> state() override { return method_->state(); }

 protected:
  ChosenPairs(std::unique_ptr<Coder> method, const Shape& shape, int size)
      : method_(std::move(method)), shape_(shape), share_(static_cast<T>(1.0 / size)) {}

  std::unique_ptr<Coder> method_;
  Shape shape_;
  T share_;  // 1 / size
  std::vector<std::uint32_t> index_;
  std::vector<T> values_;
  std::span<const std::uint32_t> kept_;
  std::span<const T> sums_;
  bool all_ = false;
};
extern template class ChosenPairs<float>;
extern template class ChosenPairs<double>;

// Of a tensor of kF32 on a device: `method`, alone, writes at most `most_bytes` (device_pairs.cc).
Result<std::unique_ptr<ChosenPairs<float>>> open_pairs_on_device(
    std::unique_ptr<Coder> method, const Shape& shape, std::size_t most_bytes,
    const Compressor::Placement& where);

}  // namespace gradwire
