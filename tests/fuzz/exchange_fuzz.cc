// What an aggregator believes of the other ranks' messages: how many pairs they have, how long
// their payloads are, where owners' sums belong, and what lies in them. One rank of three takes two
// steps; what "the others sent" is what it sent itself, changed as the input says.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "aggregate/exchange.h"
#include "base/check.h"
#include "base/elements.h"
#include "base/philox.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradwire::fuzz {
namespace {

constexpr int kRanks = 3;
constexpr const char* kSpecs[] = {"topk:k=3,combine=oktopk,ef=ef14",
                                  "topk:ratio=0.7,combine=oktopk",
                                  "threshold:tau=0.5,combine=oktopk,ef=ef21",
                                  "threshold:tau=0.5,ef=ef14",
                                  "topk:ratio=0.1,index=auto,ef=ef14|qsgd:bits=4,bucket=16",
                                  "block_sparse:block=4",
                                  "cltk:ratio=0.1,ef=ef14",
                                  "dgc:ratio=0.1",
                                  "randomk:ratio=0.3,ef=ef14",
                                  "qsgd:bits=4,bucket=16,combine=sra,ef=ef14",
                                  "signsgd:vote=majority,combine=sra",
                                  "terngrad:clip=2.5",
                                  "powersgd:rank=1,ef=ef14",
                                  "lossless:combine=gather",
                                  "atomo:budget=1,ef=ef14"};

// The input, byte by byte; zeros behind its end.
class Feed {
 public:
  explicit Feed(ConstByteSpan bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t next() {
    if (rest_.empty()) return 0;
    const auto byte = std::to_integer<std::uint8_t>(rest_.front());
    rest_ = rest_.subspan(1);
    return byte;
  }
  // Bytes that are skipped, and what is done to the one behind them.
  void spoil_bytes(ByteSpan data) {
    for (std::size_t at = 0; !empty(); ++at) {
      at += next();
      if (at >= data.size()) return;
      data[at] ^= static_cast<std::byte>(next());
    }
  }
  // Of each element one byte says: as it is, a little more or less, or something else.
  void spoil_elements(TensorView data) {
    const std::size_t width = size_of(data.dtype());
    for (std::size_t at = 0; !empty() && at < data.bytes().size(); at += width) {
      const std::uint8_t how = next();
      const ByteSpan element = data.bytes().subspan(at, width);
      if (how == 0) continue;
      if (how < 128) {
        element[0] = static_cast<std::byte>(std::to_integer<int>(element[0]) + how - 64);
      } else {
        for (std::byte& byte : element) byte = static_cast<std::byte>(next());
      }
    }
  }
  void spoil(TensorView data) {
    if (data.dtype() == DType::kU8) {
      spoil_bytes(data.bytes());
    } else {
      spoil_elements(data);
    }
  }

 private:
  ConstByteSpan rest_;
};

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  for (const std::int64_t count : counts) GW_CHECK(count >= 0);
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// A rank of a group whose others are the feed. Operations are done when they are started.
class FedCommunicator final : public Communicator {
 public:
  FedCommunicator(int rank, Feed& feed) : rank_(rank), feed_(feed) {}

  int rank() const override { return rank_; }
  int size() const override { return kRanks; }
  int job_rank(int r) const override { return r; }
  Status status() const override { return {}; }
  TransportStats transport_stats() const override { return {}; }
  std::uint64_t bytes_sent() const override { return 0; }
  std::string describe() const override { return "fed"; }
  Result<std::string_view> algorithm_for(OpKind, std::int64_t, std::string_view wanted) override {
    return wanted;
  }
  std::vector<int> nodes() const override { return {}; }
  LinkModel links() const override { return {}; }
  void set_link_parameters(const LinkModel&) override {}
  void abort(std::string_view) override {}
  Result<std::unique_ptr<Communicator>> shrink(std::optional<Deadline>) override { return none(); }
  Result<std::unique_ptr<Communicator>> split(int, int, const GroupOptions&) override {
    return none();
  }
  Result<PersistentWork> prepare(const OpCall&, const OpOptions&) override { return none(); }

  Result<Work> start(const OpCall& call, const OpOptions&) override {
    const auto row = [&call](int r) {
      const std::int64_t elems = call.out.elems() / kRanks;
      return call.out.slice(r * elems, elems);
    };
    switch (call.kind) {
      case OpKind::kAllReduce:
        if (call.in.data() != call.out.data()) copy(call.in, call.out);
        feed_.spoil_elements(call.out);
        break;
      case OpKind::kAllGather:
        for (int r = 0; r < kRanks; ++r) receive(call.in, row(r), r != rank_);
        break;
      case OpKind::kAllToAll:
        for (int r = 0; r < kRanks; ++r) {
          const std::int64_t elems = call.in.elems() / kRanks;
          const bool own = r == rank_;
          receive(own ? call.in.slice(r * elems, elems) : ConstTensorView(), row(r), !own);
        }
        break;
      case OpKind::kAllGatherV: gather(call); break;
      case OpKind::kAllToAllV: exchange(call); break;
      default: GW_CHECK(false);
    }
    return Work(nullptr);
  }
  Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options) override {
    for (const OpCall& call : calls) GW_CHECK(start(call, options).has_value());
    return Work(nullptr);
  }

 private:
  static Status none() { return {Code::kUnsupported, "not here"}; }

  // As much of `from` as there is, zeros behind it.
  static void copy(ConstTensorView from, TensorView to) {
    const std::size_t count = std::min(from.bytes().size(), to.bytes().size());
    std::fill(to.bytes().begin(), to.bytes().end(), std::byte{0});
    if (count > 0) std::memmove(to.data(), from.data(), count);
  }
  void receive(ConstTensorView from, TensorView to, bool spoilt) {
    copy(from, to);
    if (spoilt) feed_.spoil(to);
  }

  void gather(const OpCall& call) {
    GW_CHECK(sum_of(call.counts) == call.out.elems());
    GW_CHECK(call.counts[static_cast<std::size_t>(rank_)] == call.in.elems());
    std::int64_t begin = 0;
    for (int r = 0; r < kRanks; ++r) {
      const std::int64_t count = call.counts[static_cast<std::size_t>(r)];
      if (count > 0) receive(call.in, call.out.slice(begin, count), r != rank_);
      begin += count;
    }
  }

  void exchange(const OpCall& call) {
    GW_CHECK(sum_of(call.counts) == call.in.elems());
    GW_CHECK(sum_of(call.recv_counts) == call.out.elems());
    const auto own = static_cast<std::size_t>(rank_);
    GW_CHECK(call.counts[own] == call.recv_counts[own]);
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (std::size_t r = 0; r < kRanks; ++r) {
      if (const std::int64_t count = call.recv_counts[r]; count > 0) {
        const ConstTensorView mine =
            r == own ? call.in.slice(from, count) : call.in.slice(0, call.in.elems());
        receive(mine, call.out.slice(to, count), r != own);
      }
      from += call.counts[r];
      to += call.recv_counts[r];
    }
  }

  int rank_;
  Feed& feed_;
};

// Whatever came, it is taken or named.
Status judged(const Status& status) {
  const bool unfinite = status.code() == Code::kInvalidArgument &&
                        status.message().find("finite") != std::string_view::npos;
  GW_CHECK(status.ok() || status.code() == Code::kCorruptPayload || unfinite);
  return status;
}

Status take_step(BucketExchange& exchange, std::uint64_t step) {
  for (int phase = 0; phase < exchange.phases(); ++phase) {
    GW_ASSIGN([[maybe_unused]] const std::size_t wrote, exchange.encode(phase, step));
    GW_ASSIGN(auto work, exchange.issue(phase));
    if (work.has_value()) GW_TRY(work->wait());
    GW_TRY(exchange.absorb(phase, step));
  }
  return {};
}

// Gradients of a bucket, in memory of their exact size.
class Gradients {
 public:
  explicit Gradients(DType dtype) : dtype_(dtype) {
    for (const Shape& shape : {Shape::matrix(6, 7), Shape::vector(11)}) {
      shapes_.push_back(shape);
      memory_.emplace_back(static_cast<std::size_t>(shape.elems()) * size_of(dtype));
    }
  }
  std::size_t count() const { return shapes_.size(); }
  TensorView view(std::size_t i) { return {memory_[i].data(), shapes_[i], dtype_}; }
  void fill(std::uint64_t step) {
    for (std::size_t i = 0; i < count(); ++i) {
      const RandomStream random(1, RandomUse::kTest, i, 0, 0, step);
      for (std::int64_t e = 0; e < shapes_[i].elems(); ++e) {
        const double x = random.normal(static_cast<std::uint64_t>(e));
        if (dtype_ == DType::kF64) {
          elements<double>(view(i))[static_cast<std::size_t>(e)] = x;
        } else {
          elements<float>(view(i))[static_cast<std::size_t>(e)] = static_cast<float>(x);
        }
      }
    }
  }

 private:
  DType dtype_;
  std::vector<Shape> shapes_;
  std::vector<std::vector<std::byte>> memory_;
};

// Byte 0: the spec; byte 1: the rank and the element type.
Status run(ConstByteSpan input) {
  Feed feed(input);
  AggregatorOptions options;
  const std::string spec = kSpecs[feed.next() % std::size(kSpecs)];
  const auto end = std::min(spec.find('|'), spec.size());
  options.compressor = spec.substr(0, end) + ",min_elems=0,dense_1d=false" + spec.substr(end);
  const std::uint8_t place = feed.next();
  FedCommunicator world(place % kRanks, feed);
  Gradients gradients(place >= 128 ? DType::kF64 : DType::kF32);
  const ExchangeContext context{world, "ring"};
  auto plan = read_plan(Registry::builtin(), options);
  GW_CHECK(plan.has_value());
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < gradients.count(); ++i) {
    auto parameter = plan_parameter(plan.value(), options, i == 0 ? "w" : "b", gradients.view(i));
    GW_CHECK(parameter.has_value());
    parameters.push_back(std::move(parameter).value());
  }
  std::vector<std::unique_ptr<BucketExchange>> buckets;
  for (const BucketPlan& bucket : plan_buckets(parameters, 1 << 20, kRanks)) {
    Members members;
    for (const int i : bucket.parameters)
      members.push_back(&parameters[static_cast<std::size_t>(i)]);
    auto exchange = make_exchange(context, bucket.path, members);
    GW_CHECK(exchange.has_value());
    buckets.push_back(std::move(exchange).value());
  }
  for (std::uint64_t step = 0; step < 2; ++step) {
    gradients.fill(step);
    for (const auto& bucket : buckets) GW_TRY(judged(take_step(*bucket, step)));
  }
  return {};
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all{
      // Rank 1's block has 2^40 bytes; a rank chose 2^62 elements of a tensor.
      {3, 0, 200, 0, 0, 0, 0, 0, 1, 0, 0},
      {0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0, 0x40},
  };
  for (std::uint8_t spec = 0; spec < std::size(kSpecs); ++spec) {
    all.push_back({spec, 0});
    all.push_back({spec, 130, 0, 0, 0, 1, 70, 3, 0, 66, 0, 0, 9, 1, 200, 1, 2, 3, 4, 5, 6, 7, 8});
  }
  return all;
}

}  // namespace gradwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)gradwire::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
