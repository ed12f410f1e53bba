// Thin factors on a CUDA device: what powersgd_kernels.h computes, in the host's bits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/philox.h"
#include "compress/cuda/slices.h"
#include "compress/cuda/verdict.h"
#include "compress/powersgd/powersgd_kernels.h"
#include "device/cuda/memory.h"
#include "gradwire/buffer.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// For one tensor of kF32. Matrices and factors are of the device's memory and of shape(). Calls
// enqueue, unless they say that they wait. Not thread-safe.
class ThinOnDevice {
 public:
  // `method` names errors.
  static Result<ThinOnDevice> open(std::string method, const cpu::ThinShape& shape,
                                   const Compressor::Placement& where);

  const cpu::ThinShape& shape() const { return shape_; }
  std::size_t p_values() const { return shape_.r * shape_.a; }
  std::size_t q_values() const { return shape_.r * shape_.c; }

  // Enqueues that nothing was found yet; waits and says what kernels since then have found.
  Status clear(const Stream& stream) { return verdict_.clear(stream); }
  Result<Finding> read(const Stream& stream) { return verdict_.read(stream); }

  // payload = (M Q)^T, with `keep` there, too. Where m keeps a sum (m.next), what is not finite of
  // M and of the payload is found.
  Status times(const Source& m, const float* qt, ByteSpan payload, float* keep,
               const Stream& stream);
  // payload = keep = P^T M
  Status transposed_times(const float* m, const float* pt, ByteSpan payload, float* keep,
                          const Stream& stream);
  // m = P Q^T
  Status product(const float* pt, const float* qt, float* m, const Stream& stream);
  // next -= scale * P Q^T; what is not finite then is found.
  Status take_product_away(const float* pt, const float* qt, float scale, float* next,
                           const Stream& stream);
  // to = factor * sum; what is not finite in it is found.
  Status receive(ConstByteSpan sum, float factor, float* to, const Stream& stream);
  // cpu::orthonormalise(). Waits, and answers kCorruptPayload, naming `what` the rows are, if
  // something that is not finite was found since clear(). Rows that are close to dependent are
  // fetched, made orthonormal by the host, and put back.
  Status orthonormalise(float* rows, std::size_t length, const char* what,
                        const RandomStream& fresh, const Stream& stream);
  // kCorruptPayload: what receive() found of the sum of `what`.
  Status corrupt(Finding finding, const char* what) const;

 private:
  ThinOnDevice(std::string method, const cpu::ThinShape& shape, Device device, Verdict verdict)
      : method_(std::move(method)), shape_(shape), device_(device), verdict_(std::move(verdict)) {}

  template <int Each>
  Status times_by(const Source& m, const float* qt, float* parts, const Stream& stream);
  template <int Each>
  Status transposed_by(const float* m, const float* pt, float* parts, const Stream& stream);
  template <class Ending>
  Status multiply(const float* pt, const float* qt, const void* m, const Ending& ending,
                  const Stream& stream) const;
  template <typename From>
  Result<Finding> invert(const From* rows, std::size_t length, double enough, double* t,
                         const Stream& stream);
  Status once_more(float* rows, std::size_t length, double* t, const double* again,
                   const RandomStream& fresh, const Stream& stream);
  Status on_the_host(float* rows, std::size_t length, const RandomStream& fresh,
                     const Stream& stream);

  std::string method_;
  cpu::ThinShape shape_;
  Device device_;
  Verdict verdict_;
  std::vector<double> scratch_;  // of the host
};

}  // namespace gradwire::cuda
