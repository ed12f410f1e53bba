// dgc on a device.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/dgc/dgc_device.h"
#include "compress/dgc/dgc_thread_kernels.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pairs_on_device.h"
#include "compress/threshold/threshold_selection.h"
#include "compress/topk/topk_selection.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

// Memory that lasts from step to step.
struct DgcRooms {
  Buffer u;
  Buffer v;
  Buffer next_u;  // of the step in work
  Buffer next_v;
  Buffer counts;  // pinned: the keys, and how many v's reach each

  static Result<DgcRooms> open(std::int64_t elems, Device device) {
    DgcRooms rooms;
    for (Buffer* const room : {&rooms.u, &rooms.v, &rooms.next_u, &rooms.next_v}) {
      GW_ASSIGN(*room, Buffer::allocate(static_cast<std::size_t>(elems) * sizeof(float), device));
    }
    GW_ASSIGN(rooms.counts, Buffer::allocate(2 * kDgcLows * sizeof(std::uint32_t),
                                             {MemorySpace::kPinnedHost, 0}));
    return Result<DgcRooms>(std::move(rooms));
  }
};

// Memory of one step's search for a magnitude.
struct DgcSearch {
  std::size_t samples;
  static constexpr std::size_t kFactor = 0;
  static constexpr std::size_t kLows = 64;  // and counts
  static constexpr std::size_t kState = 256;
  static constexpr std::size_t kSamples = kState + (sizeof(SelectState) + 255) / 256 * 256;
  std::size_t bytes() const { return kSamples + samples * sizeof(float); }
};

class DgcDeviceCoder final : public PlacedCoder {
 public:
  DgcDeviceCoder(const DgcOptions& options, const Shape& shape, const Compressor::Placement& where,
                 PairsOnDevice payloads, TopkSelection largest, ThresholdSelection found,
                 DgcRooms rooms, Verdict verdict)
      : PlacedCoder("dgc", shape.elems(), where.device, DType::kF32),
        options_(options),
        shape_(shape),
        where_(where),
        payloads_(std::move(payloads)),
        largest_(std::move(largest)),
        found_(std::move(found)),
        rooms_(std::move(rooms)),
        verdict_(std::move(verdict)),
        k_(share_of(options.ratio, shape.elems())),
        samples_(dgc_samples(options.sample, static_cast<std::size_t>(shape.elems()))) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("dgc", round, 1));
    pairs_ = 0;
    const OnDevice here(device_);
    GW_TRY(here.status());
    std::uint32_t low = 0;
    if (elems_ > 0) {
      GW_ASSIGN(low, advance(stream));
    }
    GW_ASSIGN(const Scratch scratch, Scratch::allocate(low > 0 ? found_.room() : 0, stream));
    const Source sums{.grad = floats(rooms_.next_v), .count = elems_};
    if (low > 0) {
      GW_ASSIGN(pairs_, found_.count(sums, low, scratch, stream));
    } else if (elems_ > 0) {
      pairs_ = k_;
    }
    GW_TRY(check_room("dgc: payload", payload.size(), payloads_.bytes(pairs_)));
    GW_ASSIGN(const Scratch values, Scratch::allocate(payloads_.value_room(pairs_), stream));
    const PairTarget to = payloads_.target(pairs_, payload, values);
    if (pairs_ > 0) {
      GW_TRY(low > 0 ? found_.write(sums, scratch, to, stream) : largest_.select(sums, to, stream));
    }
    GW_TRY(payloads_.complete(pairs_, values, step_, payload, stream));
    encoded_ = true;
    return payloads_.bytes(pairs_);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round("dgc", round, 1));
    return payloads_.absorb(payloads, step_, stream);
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    if (!encoded_) return {Code::kInvalidArgument, "dgc: finish() before encode()"};
    GW_TRY(payloads_.finish(mean, own, stream));
    if (elems_ > 0) GW_TRY(take_away(stream));
    encoded_ = false;
    std::swap(rooms_.u, rooms_.next_u);
    std::swap(rooms_.v, rooms_.next_v);
    return {};
  }

  std::vector<NamedTensor> state() override {
    return {{"residual", view(rooms_.v)}, {"residual.momentum", view(rooms_.u)}};
  }

 private:
  void forget() override {
    encoded_ = false;
    payloads_.forget();
  }
  TensorView view(const Buffer& of) const {
    return {of.bytes().data(), shape_, DType::kF32, where_.device};
  }
  static float* floats(const Buffer& of) { return reinterpret_cast<float*>(of.bytes().data()); }

  // Moves to the next u and v. Returns from which key on elements are sent; 0: the k largest are.
  Result<std::uint32_t> advance(const Stream& stream) {
    const bool exact = 2 * samples_ > static_cast<std::size_t>(elems_);
    const DgcSearch search{exact ? 0 : samples_};
    GW_ASSIGN(const Scratch scratch, Scratch::allocate(search.bytes(), stream));
    GW_TRY(verdict_.clear(stream));
    const DgcStep step{reinterpret_cast<const float*>(grad_.data()),
                       floats(rooms_.u),
                       floats(rooms_.v),
                       options_.clip == 0 ? nullptr : scratch.as<float>(DgcSearch::kFactor),
                       static_cast<float>(options_.momentum),
                       options_.nesterov,
                       elems_};
    if (options_.clip != 0) {
      const ClipMeans means{{elems_, elems_},
                            options_.clip / std::sqrt(static_cast<double>(where_.size))};
      GW_TRY(put_chain_heads("dgc: norm", source_of(grad_, {}), means, scratch.as<std::byte>(),
                             verdict_.word(), stream));
    }
    std::uint32_t* const lows = scratch.as<std::uint32_t>(DgcSearch::kLows);
    if (!exact) GW_TRY(find_lows(step, scratch, lows, stream));
    const DgcAccumulate kernel{step,
                               floats(rooms_.next_u),
                               floats(rooms_.next_v),
                               exact ? nullptr : lows,
                               lows + kDgcLows,
                               starts_at(grad_.data(), 16),
                               verdict_.word()};
    GW_TRY(launch("dgc: momenta", kernel,
                  std::min(blocks_for(elems_, kEight * DgcAccumulate::kThreads), kMostBlocks),
                  stream));
    if (!exact) {
      const ConstByteSpan there(reinterpret_cast<const std::byte*>(lows),
                                rooms_.counts.bytes().size());
      GW_TRY(copy_bytes(there, device_, rooms_.counts.bytes(), rooms_.counts.device(), stream));
    }
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind != 0) return refused(finding);
    return exact ? std::uint32_t{0} : chosen_low();
  }

  Status find_lows(const DgcStep& step, const Scratch& scratch, std::uint32_t* lows,
                   const Stream& stream) {
    const auto count = static_cast<std::int64_t>(samples_);
    auto* const values = scratch.as<float>(DgcSearch::kSamples);
    auto* const state = scratch.as<SelectState>(DgcSearch::kState);
    const RandomStream draws(where_.seed, RandomUse::kPlaces, where_.tensor, where_.rank,
                             kDgcSampleStage, step_);
    GW_TRY(launch("dgc: sample", DgcSample{step, draws, count, values},
                  blocks_for(count, DgcSample::kThreads), stream));
    GW_CUDA(cudaMemsetAsync(state, 0, sizeof(SelectState), native(stream)));
    GW_CUDA(cudaMemsetAsync(lows, 0, 2 * kDgcLows * sizeof(std::uint32_t), native(stream)));
    const WholeItems items{{.grad = values, .count = count}};
    const auto wanted = static_cast<std::uint32_t>(dgc_rank(options_.ratio, samples_));
    for (int level = 0; level < kSelectLevels; ++level) {
      GW_TRY(launch("dgc: tally", SelectTally<WholeItems>{items, wanted, level, state},
                    std::min(blocks_for(count, kSelectTile), kTopkTallyBlocks), stream));
    }
    // Of no tiles: it finds the cut.
    const SelectCounts<WholeItems> cut{items, wanted, 0, state, nullptr, nullptr};
    GW_TRY(launch("dgc: cut", cut, 1, stream));
    return launch("dgc: keys", DgcLows{state, lows}, 1, stream);
  }

  // The first key that enough reach; 0 where more than k do.
  std::uint32_t chosen_low() const {
    const std::byte* const words = rooms_.counts.bytes().data();
    int j = 0;
    const double fewest = kDgcFewest * static_cast<double>(k_);
    while (j < kDgcMostRounds && load_word(words, kDgcLows + j) < fewest &&
           load_word(words, j) > 1) {
      ++j;
    }
    return load_word(words, kDgcLows + j) > k_ ? 0 : load_word(words, j);
  }

  Status refused(Finding finding) const {
    if (finding.kind == kChainNotFinite) {
      return {Code::kInvalidArgument,
              "dgc: the norm of the gradient is not finite (clip needs a finite norm)"};
    }
    const char* const what = finding.kind == kDgcGradient   ? "the gradient"
                             : finding.kind == kDgcMomentum ? "its momentum"
                             : finding.kind == kDgcSum      ? "the sum of its momenta"
                                                            : "the residual";
    return {
        Code::kInvalidArgument,
        format("dgc: element %llu of %s: %s is not finite (expected finite numbers); momentum and "
               "residual are kept as they were",
               static_cast<unsigned long long>(finding.place), to_string(shape_).c_str(), what)};
  }

  Status take_away(const Stream& stream) {
    if (payloads_.own_pairs() != pairs_) {
      return {Code::kCorruptPayload, "dgc: this rank's own payload came back changed"};
    }
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_TRY(verdict_.clear(stream));
    const auto pairs = static_cast<std::int64_t>(pairs_);
    const DgcTakeAway kernel{payloads_.own(),       pairs,
                             payloads_.in_words(),  options_.masking,
                             floats(rooms_.next_u), floats(rooms_.next_v),
                             verdict_.word()};
    GW_TRY(launch("dgc: what is left", kernel, blocks_for(pairs, DgcTakeAway::kThreads), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    return finding.kind == 0 ? Status() : refused(finding);
  }

  DgcOptions options_;
  Shape shape_;
  Compressor::Placement where_;
  PairsOnDevice payloads_;
  TopkSelection largest_;
  ThresholdSelection found_;
  DgcRooms rooms_;
  Verdict verdict_;
  std::size_t k_;
  std::size_t samples_;
  std::size_t pairs_ = 0;  // sent
  bool encoded_ = false;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_dgc_coder(const DgcOptions& options, const Shape& shape,
                                              const Compressor::Placement& where) {
  GW_TRY(check_device_placement("dgc", where));
  const std::int64_t elems = shape.elems();
  const std::size_t k = share_of(options.ratio, elems);
  GW_ASSIGN(auto payloads, PairsOnDevice::open("dgc", options.pairs, k, true, elems, where));
  GW_ASSIGN(auto largest, TopkSelection::open("dgc", k, elems, where.device));
  GW_ASSIGN(auto found, ThresholdSelection::open("dgc", elems, where.device));
  GW_ASSIGN(DgcRooms rooms, DgcRooms::open(elems, where.device));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<Coder>(std::make_unique<DgcDeviceCoder>(
      options, shape, where, std::move(payloads), std::move(largest), std::move(found),
      std::move(rooms), std::move(verdict)));
}

}  // namespace gradwire::cuda
