// Tensors on a device, for operations that the host drives.
//
// An operation begins when the device has done all that the caller's stream had enqueued before
// it. Then each cut of its schedule (executor.h) goes for itself: what it reads of the caller's
// tensors is copied to pinned memory of the host, it runs there, sums included, and what it wrote
// is copied back. A few cuts are under way at once, so that one is copied while another travels.
// The operation is done when the last copy is. Where a transport takes memory of the device
// ("direct"), operations that only move elements use the tensors themselves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/copy_lane.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// What copies between one device and the host, and how much it has. Any thread.
class StagingLane {
 public:
  StagingLane(Device device, std::unique_ptr<CopyLane> copies)
      : device_(device), copies_(std::move(copies)) {}
  Device device() const { return device_; }
  const CopyLane& copies() const { return *copies_; }
  void count(std::size_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // Both ways together.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  Device device_;
  std::unique_ptr<CopyLane> copies_;
  std::atomic<std::uint64_t> bytes_{0};
};

// The lanes of one rank, for all its communicators. Any thread.
class StagingLanes {
 public:
  // Made by the first call. Errors as CopyLane::create().
  Result<std::shared_ptr<StagingLane>> of(Device device);
  std::uint64_t bytes() const;
  // Devices of which there are lanes, ascending.
  std::vector<int> ordinals() const;
  // The first that had one; the host before there is any.
  Device first() const { return first_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<StagingLane>> lanes_;
  std::atomic<Device> first_{Device{}};
};

// Elements on a device, in pieces that follow one another as if they were one tensor.
class DevicePieces {
 public:
  void add(std::byte* data, std::int64_t elems);
  bool empty() const { return pieces_.empty(); }
  // Enqueues the copy of these elements, of `width` bytes each, to or from `host`.
  Status copy_out(Range elems, std::size_t width, Device device, std::byte* host,
                  const Stream& stream) const;
  Status copy_in(Range elems, std::size_t width, const std::byte* host, Device device,
                 const Stream& stream) const;

 private:
  struct Piece {
    std::byte* data;
    Range elems;
  };
  template <typename Copy>
  Status each(Range elems, std::size_t width, const Copy& copy) const;
  std::vector<Piece> pieces_;
};

// One operation's. The caller of the operation records `ready`; the thread that drives reads it.
struct Staging {
  std::shared_ptr<StagingLane> lane;
  std::unique_ptr<DevicePoint> ready;  // behind what the caller's stream had before the operation
  // What passes through the host; without pieces: none of it does.
  DevicePieces in = {};
  DevicePieces out = {};
  TensorView neutral = {};  // of the device: filled with neutral elements when all else is done
};

// What (a part of) a schedule reads of the caller's tensors before it has written there, and what
// it writes. kIn of an in-place schedule is named kOut. Ranges that may nest are merged.
struct TouchedCells {
  std::vector<Place> read = {};
  std::vector<Place> written = {};
};
TouchedCells touched_cells(const Schedule& part, bool in_place, bool divisible);

}  // namespace gradwire
