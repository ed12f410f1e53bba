// Sharded tensors as they are: rows of all members' shards, one row a rank, reduced and scattered
// or gathered in place. The only member of a bucket is its own rows. Rows of 16 bits are added in
// fp32, and the mean is rounded once.
#include <utility>

#include "aggregate/shards.h"
#include "device/ops.h"
#include "device/pages.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

class DenseShards final : public BucketExchange {
 public:
  DenseShards(const ExchangeContext& context, Members members)
      : context_(context),
        members_(std::move(members)),
        rank_(context.communicator.rank()),
        size_(context.communicator.size()) {
    for (int r = 0; r < size_; ++r) {
      std::int64_t elems = 0;
      for (const Parameter* member : members_) elems += shard_of(*member, size_, r).size();
      if (r == rank_) own_ = {total_, total_ + elems};
      counts_.push_back(elems);
      total_ += elems;
    }
  }

  Status open() {
    if (members_.size() == 1) return {};  // its rows are this step's gradient
    const DType dtype = members_.front()->grad.dtype();
    const std::size_t bytes = static_cast<std::size_t>(total_) * size_of(dtype);
    // What ranks share cannot be given back page by page, and what a device has at all.
    const bool own = context_.lean || context_.lane != nullptr;
    GW_ASSIGN(buffer_, own ? Buffer::allocate(bytes, stream().device)
                           : context_.communicator.allocate(bytes));
    rows_ = buffer_.tensor(Shape::vector(total_), dtype);
    return {};
  }

  int phases() const override { return 1; }

  Result<std::size_t> encode(int, std::uint64_t) override {
    if (members_.size() == 1) rows_ = members_.front()->grad;
    GW_TRY(copy(true, scatters() ? kAll : rank_));
    return (scatters() ? rows_ : own()).bytes().size();
  }

  Result<std::optional<Work>> issue(int) override {
    Communicator& communicator = context_.communicator;
    if (scatters()) {
      GW_ASSIGN(Work work,
                communicator.reduce_scatter_v(
                    rows_, own(), counts_, narrow() ? ReduceOp::kMean : ReduceOp::kSum,
                    {.algorithm = algorithm(), .deadline = std::nullopt, .stream = stream()}));
      return std::optional<Work>(std::move(work));
    }
    GW_ASSIGN(Work work,
              communicator.all_gather_v(own(), rows_, counts_, context_.payload_options()));
    return std::optional<Work>(std::move(work));
  }

  Status absorb(int, std::uint64_t) override {
    if (scatters() && size_ > 1 && !narrow()) GW_TRY(scale(own(), 1.0 / size_, stream()));
    GW_TRY(copy(false, scatters() ? rank_ : kAll));
    if (drops_pages()) (void)drop_pages(buffer_.bytes());
    return context_.await_lane();
  }

  std::size_t held_bytes() const override { return drops_pages() ? 0 : buffer_.bytes().size(); }

 private:
  static constexpr int kAll = -1;

  Stream stream() const { return context_.stream(); }
  bool drops_pages() const { return context_.lean && context_.lane == nullptr; }
  bool narrow() const { return is_narrow(rows_.dtype()); }
  bool scatters() const { return context_.form == AggregateForm::kReduceScatter; }
  TensorView own() const { return rows_.slice(own_.begin, own_.size()); }

  // Names that all-reduce and reduce-scatter share.
  std::string_view algorithm() const {
    if (narrow()) return "canonical";
    const bool shared = context_.algorithm == "ring" || context_.algorithm == "canonical";
    return shared ? std::string_view(context_.algorithm) : "auto";
  }

  // Between gradients and the rows of `rank`, or of all.
  Status copy(bool to_rows, int rank) {
    if (members_.size() == 1) return {};
    std::int64_t begin = 0;
    for (int r = 0; r < size_; ++r) {
      for (const Parameter* member : members_) {
        const Range shard = shard_of(*member, size_, r);
        const TensorView row = rows_.slice(begin, shard.size());
        const TensorView grad = member->grad.slice(shard.begin, shard.size());
        begin += shard.size();
        if (rank != kAll && rank != r) continue;
        const TensorView& from = to_rows ? grad : row;
        const TensorView& to = to_rows ? row : grad;
        GW_TRY(copy_bytes(from.bytes(), from.device(), to.bytes(), to.device(), stream()));
      }
    }
    return {};
  }

  const ExchangeContext& context_;
  Members members_;
  int rank_;
  int size_;
  std::vector<std::int64_t> counts_;  // elements of each rank's row
  std::int64_t total_ = 0;
  Range own_;
  Buffer buffer_;  // empty with one member
  TensorView rows_;
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_dense_shards(const ExchangeContext& context,
                                                          Members members) {
  auto exchange = std::make_unique<DenseShards>(context, std::move(members));
  GW_TRY(exchange->open());
  return std::unique_ptr<BucketExchange>(std::move(exchange));
}

}  // namespace gradwire
