#include "compress/threaded_format.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace gradwire {
namespace {

// Elements of a part at least: a few hundred kilobytes, which a core's own caches hold.
constexpr std::int64_t kLeastPart = 1 << 16;
// Of long slices: enough for every core, and long enough for LineWriter to write results past the
// caches, without which cores that share a memory read what they are about to overwrite.
constexpr std::int64_t kLongPart = 1 << 20;
constexpr std::int64_t kLongSlice = 8 * kLongPart;

struct Part {
  std::int64_t first = 0;  // from the slice's first element
  std::int64_t elems = 0;
};

Slice slice_of(const Slice& whole, const Part& part) {
  Slice slice = whole;
  slice.first += part.first;
  return slice;
}

class ThreadedFormat final : public WireFormat {
 public:
  // `formats`: one per worker, all alike.
  ThreadedFormat(Workers& workers, std::vector<std::unique_ptr<WireFormat>> formats)
      : workers_(workers), formats_(std::move(formats)), room_(formats_.size()) {}

  std::size_t bytes(std::int64_t elems, int stage) const override {
    return one().bytes(elems, stage);
  }
  std::int64_t seam(int stage) const override { return one().seam(stage); }
  std::vector<std::size_t> sections(std::int64_t elems, int stage) const override {
    return one().sections(elems, stage);
  }
  bool turn_to(std::uint64_t step) override {
    bool follows = false;
    for (const auto& format : formats_) follows = format->turn_to(step);
    return follows;
  }
  bool takes_feedback() const override { return one().takes_feedback(); }
  bool folds() const override { return one().folds(); }

  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream& stream) override {
    const std::int64_t elems = src.elems();
    const bool packed = in_parts(elems, slice.stage, wire.size(), [&](const Part& part, int w) {
      return pack_part(part, elems, slice.stage, wire, w, [&](ByteSpan room) {
        return format(w).pack(src.slice(part.first, part.elems), slice_of(slice, part), room,
                              stream);
      });
    });
    if (packed) return bytes(elems, slice.stage);
    return one().pack(src, slice, wire, stream);
  }

  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice& slice, ByteSpan wire,
                                         const Stream& stream) override {
    const std::int64_t elems = src.elems();
    const bool fits = feedback.residual.elems() == elems && feedback.next.elems() == elems;
    const bool packed =
        fits && in_parts(elems, slice.stage, wire.size(), [&](const Part& part, int w) {
          return pack_part(part, elems, slice.stage, wire, w, [&](ByteSpan room) {
            const Feedback own{feedback.residual.slice(part.first, part.elems),
                               feedback.next.slice(part.first, part.elems), feedback.scale};
            return format(w).pack_with_feedback(src.slice(part.first, part.elems), own,
                                                slice_of(slice, part), room, stream);
          });
        });
    if (packed) return bytes(elems, slice.stage);
    return one().pack_with_feedback(src, feedback, slice, wire, stream);
  }

  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst,
                const Stream& stream) override {
    const auto one_part = [&](WireFormat& format, ConstByteSpan bytes, const Slice& of,
                              TensorView values) {
      return format.unpack(bytes, of, values, stream);
    };
    return unpack_parts(wire, slice, dst, one_part);
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream& stream) override {
    const auto one_part = [&](WireFormat& format, ConstByteSpan bytes, const Slice& of,
                              TensorView values) {
      return format.unpack_add(bytes, of, values, stream);
    };
    return unpack_parts(wire, slice, acc, one_part);
  }

  Result<std::size_t> fold(std::span<const Addend> addends, std::int64_t elems, const Slice& sum,
                           ByteSpan wire, const Stream& stream) override {
    const bool folded = fit(addends, elems) &&
                        in_parts(elems, sum.stage, wire.size(), [&](const Part& part, int w) {
                          return fold_part(addends, elems, part, sum, wire, w, stream);
                        });
    return folded ? bytes(elems, sum.stage) : one().fold(addends, elems, sum, wire, stream);
  }

 private:
  WireFormat& one() const { return *formats_.front(); }
  WireFormat& format(int worker) { return *formats_[static_cast<std::size_t>(worker)]; }
  std::vector<std::byte>& room(int worker) { return room_[static_cast<std::size_t>(worker)]; }

  // Calls do(part, worker) for every part of a slice. False when there is but one part, when the
  // payload has another length, or when a part fails: the whole says so in its own words then.
  template <typename Do>
  bool in_parts(std::int64_t elems, int stage, std::size_t room, const Do& one_part) {
    const std::int64_t seam = one().seam(stage);
    if (seam < 1 || elems <= kLeastPart || room < bytes(elems, stage)) return false;
    const std::int64_t least = elems >= kLongSlice ? kLongPart : kLeastPart;
    const std::int64_t step = (least + seam - 1) / seam * seam;
    const auto parts = static_cast<std::size_t>((elems + step - 1) / step);
    std::atomic<bool> good = true;
    workers_.run(parts, [&](std::size_t i, int worker) {
      const std::int64_t first = static_cast<std::int64_t>(i) * step;
      if (!one_part(Part{first, std::min(step, elems - first)}, worker).ok()) good = false;
    });
    return good;
  }

  // Calls each(payload's place, part's place, length) for every section of a part.
  template <typename Each>
  void for_sections(const Part& part, std::int64_t elems, int stage, const Each& each) const {
    const auto whole = one().sections(elems, stage);
    const auto before = one().sections(part.first, stage);
    const auto own = one().sections(part.elems, stage);
    std::size_t start = 0;
    std::size_t place = 0;
    for (std::size_t s = 0; s < whole.size(); ++s) {
      each(start + before[s], place, own[s]);
      start += whole[s];
      place += own[s];
    }
  }

  // pack(room) into the part's sections of `wire`.
  template <typename Pack>
  Status pack_part(const Part& part, std::int64_t elems, int stage, ByteSpan wire, int worker,
                   const Pack& pack) {
    const std::size_t count = bytes(part.elems, stage);
    const bool together = one().sections(elems, stage).size() == 1;
    ByteSpan into;
    if (together) {
      into = wire.subspan(bytes(part.first, stage), count);
    } else {
      room(worker).resize(std::max(count, room(worker).size()));
      into = ByteSpan(room(worker)).first(count);
    }
    const Result<std::size_t> wrote = pack(into);
    if (!wrote.has_value()) return wrote.error();
    if (wrote.value() != count) return {Code::kInternal, "a part of another length"};
    if (together) return {};
    for_sections(part, elems, stage, [&](std::size_t at, std::size_t from, std::size_t length) {
      if (length > 0) std::memcpy(wire.data() + at, into.data() + from, length);
    });
    return {};
  }

  // The part's payload: of `wire` itself, or put together at `room`.
  ConstByteSpan part_of(ConstByteSpan wire, const Part& part, std::int64_t elems, int stage,
                        std::byte* room) const {
    const std::size_t count = bytes(part.elems, stage);
    if (room == nullptr) return wire.subspan(bytes(part.first, stage), count);
    for_sections(part, elems, stage, [&](std::size_t at, std::size_t to, std::size_t length) {
      if (length > 0) std::memcpy(room + to, wire.data() + at, length);
    });
    return {room, count};
  }

  // Room for `payloads` of a part's, side by side; null where sections need none.
  std::byte* room_for(const Part& part, std::int64_t elems, int stage, std::size_t payloads,
                      int worker) {
    if (one().sections(elems, stage).size() == 1) return nullptr;
    const std::size_t count = bytes(part.elems, stage) * payloads;
    room(worker).resize(std::max(count, room(worker).size()));
    return room(worker).data();
  }

  template <typename Unpack>
  Status unpack_parts(ConstByteSpan wire, const Slice& slice, TensorView values,
                      const Unpack& unpack) {
    const std::int64_t elems = values.elems();
    const bool fits = wire.size() == bytes(elems, slice.stage);
    const bool done =
        fits && in_parts(elems, slice.stage, wire.size(), [&](const Part& part, int w) {
          const ConstByteSpan own =
              part_of(wire, part, elems, slice.stage, room_for(part, elems, slice.stage, 1, w));
          return unpack(format(w), own, slice_of(slice, part),
                        values.slice(part.first, part.elems));
        });
    return done ? Status() : unpack(one(), wire, slice, values);
  }

  bool fit(std::span<const Addend> addends, std::int64_t elems) const {
    return std::all_of(addends.begin(), addends.end(), [&](const Addend& addend) {
      return addend.values.empty() ? addend.wire.size() == bytes(elems, addend.slice.stage)
                                   : addend.values.elems() == elems;
    });
  }

  Status fold_part(std::span<const Addend> addends, std::int64_t elems, const Part& part,
                   const Slice& sum, ByteSpan wire, int worker, const Stream& stream) {
    // Behind the addends' payloads the sum's: pack_part() would take the same room.
    std::byte* room = room_for(part, elems, sum.stage, addends.size() + 1, worker);
    const std::size_t count = bytes(part.elems, sum.stage);
    std::vector<Addend> own;
    for (std::size_t a = 0; a < addends.size(); ++a) {
      Addend addend{.values = {}, .wire = {}, .slice = slice_of(addends[a].slice, part)};
      if (addends[a].values.empty()) {
        addend.wire = part_of(addends[a].wire, part, elems, sum.stage,
                              room == nullptr ? nullptr : room + a * count);
      } else {
        addend.values = addends[a].values.slice(part.first, part.elems);
      }
      own.push_back(addend);
    }
    const ByteSpan into = room == nullptr ? wire.subspan(bytes(part.first, sum.stage), count)
                                          : ByteSpan(room + addends.size() * count, count);
    const auto wrote = format(worker).fold(own, part.elems, slice_of(sum, part), into, stream);
    if (!wrote.has_value()) return wrote.error();
    if (room == nullptr) return {};
    for_sections(part, elems, sum.stage, [&](std::size_t at, std::size_t from, std::size_t length) {
      if (length > 0) std::memcpy(wire.data() + at, into.data() + from, length);
    });
    return {};
  }

  Workers& workers_;
  std::vector<std::unique_ptr<WireFormat>> formats_;
  std::vector<std::vector<std::byte>> room_;  // by worker: a part's payload, its sections together
};

bool on_one_thread(const Workers* workers) { return workers == nullptr || workers->threads() < 2; }

}  // namespace

Result<std::unique_ptr<WireFormat>> open_slices_on(Workers* workers, const Compressor& method,
                                                   const Shape& shape,
                                                   const Compressor::Placement& where) {
  GW_ASSIGN(auto first, method.open_slices(shape, where));
  if (on_one_thread(workers)) return first;
  std::vector<std::unique_ptr<WireFormat>> formats;
  formats.push_back(std::move(first));
  while (formats.size() < static_cast<std::size_t>(workers->threads())) {
    GW_ASSIGN(auto format, method.open_slices(shape, where));
    formats.push_back(std::move(format));
  }
  return std::unique_ptr<WireFormat>(
      std::make_unique<ThreadedFormat>(*workers, std::move(formats)));
}

Result<std::unique_ptr<Coder>> open_on(Workers* workers, const Compressor& method,
                                       const Shape& shape, const Compressor::Placement& where) {
  const Traits traits = method.traits();
  const bool slices = traits.elementwise && traits.exchange == Exchange::kAllGather &&
                      traits.mean_is_average_of_own;
  if (on_one_thread(workers) || !slices) return method.open(shape, where);
  GW_ASSIGN(auto format, open_slices_on(workers, method, shape, where));
  if (format->seam(0) < 1) return method.open(shape, where);
  return make_slice_coder(std::move(format), shape, where);
}

}  // namespace gradwire
