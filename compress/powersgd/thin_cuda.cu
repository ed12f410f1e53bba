// Thin factors on a device: what powersgd and acpsgd share there.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "compress/powersgd/orthonormal_thread_kernels.h"
#include "compress/powersgd/thin_on_device.h"
#include "compress/powersgd/thin_thread_kernels.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

// Directions that one pass over M serves.
constexpr std::size_t kMostWide = 8;
constexpr std::size_t kFewWide = 4;

ThinSizes sizes_of(const cpu::ThinShape& shape) {
  return {static_cast<std::int64_t>(shape.a), static_cast<std::int64_t>(shape.c),
          static_cast<std::int64_t>(shape.r)};
}

// Whether rows of `columns` elements from `m` on begin at 16 bytes.
bool rows_are_packed(const void* m, std::size_t columns) {
  return starts_at(m, 16) && columns % 4 == 0;
}

template <class Kernel>
Status enqueue(const char* name, const Kernel& kernel, const Stream& stream) {
  return launch(name, kernel, kernel.blocks(), stream);
}

template <class Kernel>
Status enqueue_each(const char* name, const Kernel& kernel, std::int64_t items,
                    const Stream& stream) {
  return launch(name, kernel, blocks_for(items, Kernel::kThreads), stream);
}

}  // namespace

Result<ThinOnDevice> ThinOnDevice::open(std::string method, const cpu::ThinShape& shape,
                                        const Compressor::Placement& where) {
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return ThinOnDevice(std::move(method), shape, where.device, std::move(verdict));
}

template <int Each>
Status ThinOnDevice::times_by(const Source& m, const float* qt, float* parts,
                              const Stream& stream) {
  Source from = m;
  for (std::size_t k = 0; k < shape_.r; k += kMostWide) {
    const std::size_t wide = std::min(kMostWide, shape_.r - k);
    const float* const q = qt + k * shape_.c;
    float* const to = parts + k * shape_.a;
    std::uint64_t* const word = verdict_.word();
    const auto count = static_cast<int>(wide);
    GW_TRY(wide > kFewWide
               ? enqueue("powersgd: M Q",
                         ThinTimes<8, Each>{from, q, sizes_of(shape_), count, to, word}, stream)
               : enqueue("powersgd: M Q",
                         ThinTimes<4, Each>{from, q, sizes_of(shape_), count, to, word}, stream));
    if (m.next != nullptr) from = {.grad = m.next, .count = m.count};  // it is there by now
  }
  return {};
}

Status ThinOnDevice::times(const Source& m, const float* qt, ByteSpan payload, float* keep,
                           const Stream& stream) {
  const OnDevice here(device_);
  GW_TRY(here.status());
  const auto number =
      static_cast<std::size_t>(blocks_for(static_cast<std::int64_t>(shape_.c), kDotBlock));
  GW_ASSIGN(const Scratch parts, Scratch::allocate(number * p_values() * sizeof(float), stream));
  const bool packed = rows_are_packed(m.grad, shape_.c) && starts_at(m.residual, 16) &&
                      starts_at(m.next, 16) && starts_at(qt, 16);
  GW_TRY(packed ? times_by<4>(m, qt, parts.as<float>(), stream)
                : times_by<1>(m, qt, parts.as<float>(), stream));
  const ThinTotals totals{parts.as<float>(),
                          static_cast<std::int64_t>(number),
                          static_cast<std::int64_t>(p_values()),
                          starts_at(payload.data(), 4),
                          payload.data(),
                          keep,
                          m.next == nullptr ? nullptr : verdict_.word()};
  return enqueue_each("powersgd: P", totals, totals.count, stream);
}

template <int Each>
Status ThinOnDevice::transposed_by(const float* m, const float* pt, float* parts,
                                   const Stream& stream) {
  for (std::size_t k = 0; k < shape_.r; k += kMostWide) {
    const std::size_t wide = std::min(kMostWide, shape_.r - k);
    const float* const p = pt + k * shape_.a;
    float* const to = parts + k * shape_.c;
    const auto count = static_cast<int>(wide);
    GW_TRY(wide > kFewWide
               ? enqueue("powersgd: P^T M",
                         ThinTransposedTimes<8, Each>{m, p, sizes_of(shape_), count, to}, stream)
               : enqueue("powersgd: P^T M",
                         ThinTransposedTimes<4, Each>{m, p, sizes_of(shape_), count, to}, stream));
  }
  return {};
}

Status ThinOnDevice::transposed_times(const float* m, const float* pt, ByteSpan payload,
                                      float* keep, const Stream& stream) {
  const OnDevice here(device_);
  GW_TRY(here.status());
  const auto number =
      static_cast<std::size_t>(blocks_for(static_cast<std::int64_t>(shape_.a), kRowBlock));
  GW_ASSIGN(const Scratch parts, Scratch::allocate(number * q_values() * sizeof(float), stream));
  GW_TRY(rows_are_packed(m, shape_.c) ? transposed_by<4>(m, pt, parts.as<float>(), stream)
                                      : transposed_by<1>(m, pt, parts.as<float>(), stream));
  const ThinTotals totals{parts.as<float>(),
                          static_cast<std::int64_t>(number),
                          static_cast<std::int64_t>(q_values()),
                          starts_at(payload.data(), 4),
                          payload.data(),
                          keep,
                          nullptr};
  return enqueue_each("powersgd: Q", totals, totals.count, stream);
}

template <class Ending>
Status ThinOnDevice::multiply(const float* pt, const float* qt, const void* m, const Ending& ending,
                              const Stream& stream) const {
  const OnDevice here(device_);
  GW_TRY(here.status());
  const ThinSizes sizes = sizes_of(shape_);
  return rows_are_packed(m, shape_.c) && starts_at(qt, 16)
             ? enqueue("powersgd: P Q^T", ThinProduct<Ending, 4>{pt, qt, sizes, ending}, stream)
             : enqueue("powersgd: P Q^T", ThinProduct<Ending, 1>{pt, qt, sizes, ending}, stream);
}

Status ThinOnDevice::product(const float* pt, const float* qt, float* m, const Stream& stream) {
  return multiply(pt, qt, m, StoreProduct{m}, stream);
}
Status ThinOnDevice::take_product_away(const float* pt, const float* qt, float scale, float* next,
                                       const Stream& stream) {
  return multiply(pt, qt, next, TakeProduct{next, scale, verdict_.word()}, stream);
}

Status ThinOnDevice::receive(ConstByteSpan sum, float factor, float* to, const Stream& stream) {
  const OnDevice here(device_);
  GW_TRY(here.status());
  const auto count = static_cast<std::int64_t>(sum.size() / sizeof(float));
  const ThinReceived kernel{sum.data(), starts_at(sum.data(), 4), factor, count,
                            to,         verdict_.word()};
  return enqueue_each("powersgd: sum", kernel, count, stream);
}

// What Cholesky-QR multiplies `rows` by. Waits.
template <typename From>
Result<Finding> ThinOnDevice::invert(const From* rows, std::size_t length, double enough, double* t,
                                     const Stream& stream) {
  const auto count = static_cast<std::int64_t>(shape_.r);
  const auto parts =
      static_cast<std::size_t>(blocks_for(static_cast<std::int64_t>(length), cpu::kGramBlock));
  const std::size_t pairs = shape_.r * shape_.r;
  GW_ASSIGN(const Scratch scratch,
            Scratch::allocate((parts * pairs + pairs + 2 * shape_.r) * sizeof(double), stream));
  auto* const sums = scratch.as<double>();
  auto* const gram = sums + parts * pairs;
  GW_TRY(enqueue("powersgd: Gram matrix",
                 GramBlocks<From>{rows, count, static_cast<std::int64_t>(length), sums}, stream));
  const InvertFactor factor{
      sums,           static_cast<std::int64_t>(parts), count, enough, gram, gram + pairs, t,
      verdict_.word()};
  GW_TRY(launch("powersgd: factor", factor, 1, stream));
  return verdict_.read(stream);
}

Status ThinOnDevice::orthonormalise(float* rows, std::size_t length, const char* what,
                                    const RandomStream& fresh, const Stream& stream) {
  const OnDevice here(device_);
  GW_TRY(here.status());
  const std::size_t pairs = shape_.r * shape_.r;
  GW_ASSIGN(const Scratch t, Scratch::allocate(pairs * sizeof(double), stream));
  GW_ASSIGN(const Finding finding, invert(rows, length, cpu::kOneRound, t.as<double>(), stream));
  if (finding.kind == kThinFactor) return corrupt(finding, what);
  if (finding.kind == kThinDependent) return on_the_host(rows, length, fresh, stream);
  const auto count = static_cast<std::int64_t>(shape_.r);
  const auto many = static_cast<std::int64_t>(length);
  if (finding.kind != kThinOnceMore) {
    return enqueue("powersgd: P^",
                   MultiplyLower<float, float>{t.as<double>(), rows, count, many, rows}, stream);
  }
  GW_ASSIGN(const Scratch again, Scratch::allocate(shape_.r * length * sizeof(double), stream));
  GW_TRY(enqueue(
      "powersgd: P^",
      MultiplyLower<float, double>{t.as<double>(), rows, count, many, again.as<double>()}, stream));
  return once_more(rows, length, t.as<double>(), again.as<double>(), fresh, stream);
}

// The second round, of what the first one made.
Status ThinOnDevice::once_more(float* rows, std::size_t length, double* t, const double* again,
                               const RandomStream& fresh, const Stream& stream) {
  GW_TRY(clear(stream));
  GW_ASSIGN(const Finding finding, invert(again, length, 0, t, stream));
  if (finding.kind == kThinDependent) return on_the_host(rows, length, fresh, stream);
  return enqueue("powersgd: P^",
                 MultiplyLower<double, float>{t, again, static_cast<std::int64_t>(shape_.r),
                                              static_cast<std::int64_t>(length), rows},
                 stream);
}

Status ThinOnDevice::on_the_host(float* rows, std::size_t length, const RandomStream& fresh,
                                 const Stream& stream) {
  const std::size_t bytes = shape_.r * length * sizeof(float);
  GW_ASSIGN(const Buffer here, Buffer::allocate(bytes, {MemorySpace::kPinnedHost, 0}));
  const ByteSpan there(reinterpret_cast<std::byte*>(rows), bytes);
  const Stream waited{device_, stream.native};
  GW_TRY(copy_bytes(there, device_, here.bytes().first(bytes), here.device(), stream));
  GW_TRY(synchronize(waited));
  const std::span<float> values(reinterpret_cast<float*>(here.bytes().data()), shape_.r * length);
  cpu::orthonormalise<float>(values, shape_.r, fresh, scratch_);
  GW_TRY(copy_bytes(here.bytes().first(bytes), here.device(), there, device_, stream));
  return synchronize(waited);  // before the pinned memory goes
}

Status ThinOnDevice::corrupt(Finding finding, const char* what) const {
  return {Code::kCorruptPayload,
          method_ + format(": value %llu of the sum of %s is not finite (expected a finite number: "
                           "a rank's gradient is not finite, or the sum overflowed)",
                           static_cast<unsigned long long>(finding.place - kFactorPlaces), what)};
}

}  // namespace gradwire::cuda
