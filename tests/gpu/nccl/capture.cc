#include "tests/gpu/nccl/capture.h"

#include <cmath>
#include <limits>

#include "base/text.h"
#include "device/ops.h"
#include "gradwire/registry.h"
#include "tests/gpu/on_device.h"
#include "tests/support/names.h"

namespace gradwire::gpu {
namespace {

constexpr std::size_t kElems = 1000;
constexpr int kLaunches = 3;

// Another gradient for each rank and launch.
std::vector<float> gradient_of(int rank, int launch) {
  std::vector<float> values(kElems);
  for (std::size_t i = 0; i < kElems; ++i) {
    values[i] = static_cast<float>((i * 37 + 11) % 101) * 0.01F + static_cast<float>(rank) -
                0.3F * static_cast<float>(launch);
  }
  return values;
}

Status put(const std::vector<float>& values, const OnDevice& to) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  GW_TRY(copy_bytes({bytes, values.size() * sizeof(float)}, Device{}, to.bytes(), kFirst, kStream));
  return cuda::synchronize(kStream);
}

Status end_of(Result<Work> work) { return work.has_value() ? work.value().wait() : work.error(); }

// Launches `captured` once for each gradient, and `plain` on the same stream, which no other rank
// has; their results are alike.
std::string compare(int rank, CapturedWork& captured, const OnDevice& in, const OnDevice& out,
                    const OnDevice& plain_in, const OnDevice& plain_out,
                    const std::function<Status()>& plain) {
  for (int launch = 0; launch < kLaunches && captured.error().empty(); ++launch) {
    const std::vector<float> values = gradient_of(rank, launch);
    for (const OnDevice* each : {&in, &plain_in}) {
      if (const Status status = put(values, *each); !status.ok()) {
        return std::string(status.message());
      }
    }
    captured.run();
    Status done = plain();
    if (done.ok()) done = cuda::synchronize(captured.stream());
    if (!done.ok()) return std::string(done.message());
    if (out.read() != plain_out.read()) return format("launch %d: other bits", launch);
    if (out.values<float>() == values) return format("launch %d: nothing was done", launch);
  }
  return captured.error();
}

// A compressed sum: encoded, gathered, decoded, added up.
class Exchange {
 public:
  Exchange(Communicator& world, WireFormat& format, const OnDevice& in, const OnDevice& out)
      : world_(world),
        format_(format),
        in_(in),
        out_(out),
        own_(format.bytes(kElems, 0)),
        all_(format.bytes(kElems, 0) * static_cast<std::size_t>(world.size())) {}

  Status run(const Stream& stream) {
    const Slice slice{.step = 1, .tensor = 7, .rank = world_.rank(), .stage = 0, .first = 0};
    GW_ASSIGN(const std::size_t bytes,
              format_.pack(in_.tensor<float>(), slice, own_.bytes(), stream));
    GW_TRY(end_of(world_.all_gather(own_.tensor<std::uint8_t>(), all_.tensor<std::uint8_t>(),
                                    {.deadline = std::nullopt, .stream = stream})));
    GW_TRY(fill_neutral(ReduceOp::kSum, out_.tensor<float>(), stream));
    for (int r = 0; r < world_.size(); ++r) {
      Slice from = slice;
      from.rank = r;
      const ByteSpan row = all_.bytes().subspan(bytes * static_cast<std::size_t>(r), bytes);
      GW_TRY(format_.unpack_add(row, from, out_.tensor<float>(), stream));
    }
    return {};
  }

 private:
  Communicator& world_;
  WireFormat& format_;
  const OnDevice& in_;
  const OnDevice& out_;
  OnDevice own_;
  OnDevice all_;
};

Result<std::unique_ptr<WireFormat>> format_of(const std::string& spec, Communicator& world) {
  GW_ASSIGN(const auto method, Registry::builtin().make(spec));
  return method->open_slices(
      Shape::vector(1),
      {.device = kFirst, .rank = world.rank(), .size = world.size(), .seed = 3, .tensor = 7});
}

}  // namespace

std::string check_captured_sums(Communicator& world) {
  const std::vector<float> zeros(kElems);
  const OnDevice sum = uploaded(zeros);
  const OnDevice plain = uploaded(zeros);
  const auto call = [&](const OnDevice& tensor, const Stream& stream) {
    return end_of(world.all_reduce(tensor.tensor<float>(), ReduceOp::kPreMulSum,
                                   {.deadline = std::nullopt, .stream = stream, .factor = 0.25}));
  };
  CapturedWork captured([&](const Stream& stream) { return call(sum, stream); });
  return compare(world.rank(), captured, sum, sum, plain, plain,
                 [&] { return call(plain, captured.stream()); });
}

// Rank 0 has a NaN, which a graph's maxima keep.
std::string check_captured_maxima(Communicator& world) {
  std::vector<float> values = gradient_of(world.rank(), 0);
  if (world.rank() == 0) values[3] = std::numeric_limits<float>::quiet_NaN();
  const OnDevice in = uploaded(values);
  const OnDevice out = uploaded(std::vector<float>(kElems));
  CapturedWork captured([&](const Stream& stream) {
    return end_of(world.all_reduce(in.tensor<float>(), out.tensor<float>(), ReduceOp::kMax,
                                   {.deadline = std::nullopt, .stream = stream}));
  });
  for (int launch = 0; launch < kLaunches; ++launch) {
    captured.run();
    if (!captured.error().empty()) return captured.error();
    const std::vector<float> found = out.values<float>();
    const std::vector<float> most = gradient_of(world.size() - 1, 0);
    for (std::size_t i = 0; i < kElems; ++i) {
      if (i == 3 ? !std::isnan(found[i]) : found[i] != most[i]) {
        return format("launch %d, element %zu: %g", launch, i, static_cast<double>(found[i]));
      }
    }
  }
  return {};
}

std::string check_captured_payloads(Communicator& world) {
  for (const std::string spec : {"cast:type=fp16", "cast:type=bf16"}) {
    auto format = format_of(spec, world);
    if (!format.has_value()) return std::string(format.error().message());
    const std::vector<float> zeros(kElems);
    const OnDevice tensors[] = {uploaded(zeros), uploaded(zeros), uploaded(zeros), uploaded(zeros)};
    Exchange exchange(world, *format.value(), tensors[0], tensors[1]);
    Exchange plain(world, *format.value(), tensors[2], tensors[3]);
    CapturedWork captured([&](const Stream& stream) { return exchange.run(stream); });
    const std::string fault = compare(world.rank(), captured, tensors[0], tensors[1], tensors[2],
                                      tensors[3], [&] { return plain.run(captured.stream()); });
    if (!fault.empty()) return spec + ": " + fault;
  }
  return {};
}

std::string check_what_no_graph_takes(Communicator& world) {
  auto format = format_of("qsgd:bits=8", world);
  if (!format.has_value()) return std::string(format.error().message());
  const OnDevice in = uploaded(gradient_of(0, 0));
  const OnDevice out = uploaded(gradient_of(0, 0));
  Exchange exchange(world, *format.value(), in, out);
  const CapturedWork captured([&](const Stream& stream) { return exchange.run(stream); });
  const bool named = names_all(captured.error(), "CUDA graph");
  return named ? "" : "qsgd was captured, or refused so: " + captured.error();
}

}  // namespace gradwire::gpu
