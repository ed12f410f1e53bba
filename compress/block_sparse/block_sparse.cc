#include "compress/block_sparse/block_sparse.h"

#include <string>
#include <utility>

#include "compress/block_sparse/block_coder.h"
#include "compress/block_sparse/block_device.h"
#include "compress/contract.h"
#include "compress/sparse/chosen_count.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kDefaultBlock = 256;
constexpr std::int64_t kMostBlock = 1 << 20;

class BlockSparse final : public Compressor {
 public:
  explicit BlockSparse(BlockOptions options) : options_(std::move(options)) {}

  std::string spec() const override {
    const std::string end = spec_end(options_.pairs);
    if (options_.block == kDefaultBlock && !end.starts_with(',')) return "block_sparse" + end;
    return "block_sparse:block=" + std::to_string(options_.block) + end;
  }
  Traits traits() const override {
    Traits traits{.fixed_payload = false,
                  .sparse = true,
                  .lossless = true,
                  .unbiased = true,
                  .needs_error_feedback = false,
                  .bitwise_on_all_devices = true};
    if (options_.pairs.values == nullptr) return traits;
    const Traits second = options_.pairs.values->traits();
    traits.lossless = second.lossless;
    traits.unbiased = second.unbiased;
    traits.needs_error_feedback = second.needs_error_feedback;
    traits.bitwise_on_all_devices = second.bitwise_on_all_devices;
    return traits;
  }
  // Blocks of zeros are exact: the error is that of the others, all of them in the worst case.
  ErrorBound bound(const Shape& shape) const override {
    if (options_.pairs.values == nullptr) return {ErrorBound::Kind::kContraction, 1.0};
    return options_.pairs.values->bound(Shape::vector(shape.elems()));
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    return most_block_bytes(options_, shape.elems(), dtype);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_TRY(check_index_range("block_sparse", shape, (kMostSparseElems - 1) * options_.block));
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_block_coder(options_, shape, where);
      }
    }
    GW_TRY(check_placement("block_sparse", where));
    return make_block_coder(options_, shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    GW_TRY(check_placement("block_sparse", where));
    return Status(Code::kUnsupported,
                  "block_sparse: payloads have the length that the gradient gives them, and a "
                  "slice's must be known before; write combine=gather");
  }

 private:
  BlockOptions options_;
};

Result<std::unique_ptr<Compressor>> make_composed_blocks(const Spec& spec,
                                                         std::shared_ptr<const Compressor> values) {
  const SpecReader reader(spec);
  GW_ASSIGN(const std::int64_t block, reader.integer("block", kDefaultBlock, 1, kMostBlock));
  GW_ASSIGN(const IndexCoding index, read_index_key(reader));
  return std::unique_ptr<Compressor>(
      std::make_unique<BlockSparse>(BlockOptions{block, {index, std::move(values)}}));
}

Result<std::unique_ptr<Compressor>> make_blocks(const Spec& spec) {
  return make_composed_blocks(spec, nullptr);
}

}  // namespace

Registry::Method block_sparse_method() {
  SpecKey index = index_key();
  index.meaning = "encoding of block numbers: u32, bitmap, gaps or auto (the shortest)";
  return {"block_sparse", "blocks that are not all zero, bit for bit; length varies",
          "block",        {{"block", "256", "elements in a block, 1 to 1048576"}, index},
          make_blocks,    make_composed_blocks};
}

}  // namespace gradwire
