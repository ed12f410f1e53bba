#include "compress/dgc/dgc.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/dgc/dgc_coder.h"
#include "compress/dgc/dgc_device.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_payloads.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostElems = kMostSparseElems - 1;  // so that a count has 32 bits

class Dgc final : public Compressor {
 public:
  explicit Dgc(DgcOptions options) : options_(std::move(options)) {}

  std::string spec() const override {
    const DgcOptions usual;
    std::string text = "dgc:ratio=" + shortest(options_.ratio);
    const auto number = [&text](const char* key, double value, double fallback) {
      if (value != fallback) text += "," + std::string(key) + "=" + shortest(value);
    };
    number("momentum", options_.momentum, usual.momentum);
    if (options_.nesterov) text += ",nesterov=true";
    if (!options_.masking) text += ",masking=false";
    number("clip", options_.clip, usual.clip);
    number("sample", options_.sample, usual.sample);
    return text + spec_end(options_.pairs);
  }
  Traits traits() const override {
    const auto& values = options_.pairs.values;
    return {.fixed_payload = false,
            .sparse = true,
            .own_feedback = true,
            .needs_error_feedback = false,
            .stateful = true,
            .bitwise_on_all_devices = !values || values->traits().bitwise_on_all_devices};
  }
  // What travels is of earlier gradients as much as of this one.
  ErrorBound bound(const Shape&) const override { return {}; }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    const std::size_t most = share_of(options_.ratio, shape.elems());
    return PairPayloads<float>::kCountBytes +
           most_pair_bytes_up_to(options_.pairs, most, static_cast<std::size_t>(shape.elems()),
                                 dtype);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_TRY(check_index_range("dgc", shape, kMostElems));
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_dgc_coder(options_, shape, where);
      }
    }
    GW_TRY(check_placement("dgc", where));
    return make_dgc_coder(options_, shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "dgc: sends values that its coder has accumulated, and a slice accumulates none; "
                  "use combine=gather");
  }

 private:
  DgcOptions options_;
};

Result<std::unique_ptr<Compressor>> make_composed_dgc(const Spec& spec,
                                                      std::shared_ptr<const Compressor> values) {
  const SpecReader reader(spec);
  DgcOptions options;
  GW_ASSIGN(options.ratio, reader.number("ratio", options.ratio, 0, 1));
  GW_ASSIGN(options.momentum, reader.number("momentum", options.momentum, 0, 0.999999));
  GW_ASSIGN(options.nesterov, reader.boolean("nesterov", false));
  GW_ASSIGN(options.masking, reader.boolean("masking", true));
  GW_ASSIGN(options.clip, reader.number_from_zero("clip", 0, std::numeric_limits<float>::max()));
  GW_ASSIGN(options.sample, reader.number("sample", options.sample, 0, 1));
  GW_ASSIGN(options.pairs.index, read_index_key(reader));
  options.pairs.values = std::move(values);
  return std::unique_ptr<Compressor>(std::make_unique<Dgc>(std::move(options)));
}

Result<std::unique_ptr<Compressor>> make_dgc(const Spec& spec) {
  return make_composed_dgc(spec, nullptr);
}

}  // namespace

Registry::Method dgc_method() {
  return {"dgc",
          "the elements with the largest accumulated momentum, with their indices",
          "ratio",
          {{"ratio", "0.001", "share of the elements, above 0, at most 1"},
           {"momentum", "0.9", "momentum factor, in (0, 1)"},
           {"nesterov", "false", "Nesterov's momentum"},
           {"masking", "true", "true: reset the momentum of elements that were sent"},
           {"clip", "0",
            "gradient clipping: largest norm of a tensor's gradient summed over ranks; 0: off"},
           {"sample", "0.01", "share of the elements sampled to choose the threshold; 1: all"},
           index_key()},
          make_dgc,
          make_composed_dgc};
}

}  // namespace gradwire
