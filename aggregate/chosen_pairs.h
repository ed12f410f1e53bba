// A sparse method's choice as pairs of index and value, for an exchange that adds pairs up.
//
// Stands between the method's coder and error feedback: begin() has the method choose, as if it
// were alone; the exchange takes pairs() and returns what became of the sums over ranks; finish()
// says that `own` is what was chosen here and kept by all. So error feedback keeps what either
// choice left out.
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
class ChosenPairs final : public Coder {
 public:
  // `method` has one gathered round. Errors as its open().
  static Result<std::unique_ptr<ChosenPairs>> open(const Compressor& method, const Shape& shape,
                                                   const Compressor::Placement& where);

  // From begin() to the next: elements other than 0 that the method would send, ascending.
  std::span<const std::uint32_t> index() const { return index_; }
  const T* own() const { return own_.data(); }  // what its payload decodes to, whole
  // Between begin() and finish(): the sums over ranks of the elements that are kept, ascending, or
  // of all elements. Lent until finish() returns.
  void keep(std::span<const std::uint32_t> index, std::span<const T> sums);
  void keep_all(std::span<const T> sums);

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) override;
  // kUnsupported: pairs do not travel as payloads.
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override;
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override;
  Status finish(TensorView mean, TensorView own, const Stream& stream) override;
  std::vector<NamedTensor> state() override { return method_->state(); }

 private:
  ChosenPairs(std::unique_ptr<Coder> method, const Shape& shape, std::size_t most_bytes, int size);

  std::unique_ptr<Coder> method_;
  Shape shape_;
  T share_;  // 1 / size
  std::vector<std::byte> payload_;
  std::vector<T> own_;
  std::vector<std::uint32_t> index_;
  std::span<const std::uint32_t> kept_;
  std::span<const T> sums_;
  bool all_ = false;
};
extern template class ChosenPairs<float>;
extern template class ChosenPairs<double>;

}  // namespace gradwire
