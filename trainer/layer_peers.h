// The ranks that hold the other parts of a layer's tensors, as the layer sees them
// (Scope::kTensor).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/spans.h"

namespace gradwire {

// Collectives that a layer starts, and awaits when it needs what they bring: a derivative travels
// while a product is computed. All ranks make the same calls in the same order, each from the
// thread that trains. Memory, which lies where the layers compute, is lent until await() returns,
// on a device to the work that is enqueued before it. T is float or double.
//
// Layers have no outcome. So the first error sticks: later calls do nothing, what they would have
// written is undefined, and the code that walks through the layers asks for status() after each.
class LayerPeers {
 public:
  virtual ~LayerPeers() = default;

  virtual int ranks() const = 0;
  virtual int rank() const = 0;

  // In place over all ranks; the same bits on each.
  template <typename T>
  void start_sum(std::span<T> values) {
    sum(to_bytes(values), type_of<T>());
  }
  // Of any type.
  void start_sum(const TensorView& values) { sum(values.bytes(), values.dtype()); }
  template <typename T>
  void start_max(std::span<T> values) {
    max(to_bytes(values), type_of<T>());
  }
  // all: (ranks, n), whose block r is rank r's `mine`, (n).
  // Likewise of any type.
  void start_gather(const ConstTensorView& mine, const TensorView& all) {
    gather(mine.bytes(), all.bytes(), mine.dtype());
  }
  template <typename T>
  void start_gather(std::span<const T> mine, std::span<T> all) {
    gather(std::as_bytes(mine), to_bytes(all), type_of<T>());
  }
  // all: (ranks, n) on each rank. mine: (n), the sum over ranks of block rank().
  template <typename T>
  void start_scatter_sum(std::span<const T> all, std::span<T> mine) {
    scatter_sum(std::as_bytes(all), to_bytes(mine), type_of<T>());
  }
  // What goes to one rank, and comes from it.
  template <typename T>
  struct Message {
    int peer = 0;
    std::span<const T> sent;
    std::span<T> received;
  };
  // With ranks other than this one, each at most once, which make the call with this one among
  // theirs, and lengths that match. Either span may be empty.
  template <typename T>
  void start_exchange(std::span<const Message<T>> messages) {
    std::array<Bytes, kMostMessages> bytes{};
    for (std::size_t i = 0; i < messages.size(); ++i) {
      bytes[i] = {messages[i].peer, std::as_bytes(messages[i].sent),
                  to_bytes(messages[i].received)};
    }
    exchange(std::span(bytes).first(messages.size()), type_of<T>());
  }
  static constexpr std::size_t kMostMessages = 8;  // the neighbours of a tile
  // Until all that was started has ended; on a device what is enqueued behind it sees that, and the
  // host need not have waited.
  virtual void await() = 0;
  // What await() left to the device has ended, too: its errors are status() from here on. Called
  // where the host waits for the device anyway.
  virtual void finish() {}

  virtual Status status() const = 0;
  // In which await() has waited, since this object's birth; 0 where it is not counted.
  virtual double waited_seconds() const { return 0; }

  // To be told of a product that an exchange travels beside; null: no exchange is under way, or
  // nothing is told.
  virtual const OnTrainerSpan* told() const { return nullptr; }

 protected:
  struct Bytes {
    int peer = 0;
    ConstByteSpan sent;
    ByteSpan received;
  };

 private:
  template <typename T>
  static constexpr DType type_of() {
    static_assert(sizeof(T) == sizeof(float) || sizeof(T) == sizeof(double));
    return sizeof(T) == sizeof(float) ? DType::kF32 : DType::kF64;
  }
  template <typename T>
  static ByteSpan to_bytes(std::span<T> values) {
    return std::as_writable_bytes(values);
  }
  virtual void sum(ByteSpan values, DType type) = 0;
  virtual void max(ByteSpan values, DType type) = 0;
  virtual void gather(ConstByteSpan mine, ByteSpan all, DType type) = 0;
  virtual void scatter_sum(ConstByteSpan all, ByteSpan mine, DType type) = 0;
  virtual void exchange(std::span<const Bytes> messages, DType type) = 0;
};

}  // namespace gradwire
