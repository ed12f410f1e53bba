#include "apps/train/parallel/parallel_flag.h"

#include "base/text.h"

namespace gradwire {
namespace {

Status refuse_parallel(const TrainOptions& options, const std::string& why) {
  return {Code::kInvalidArgument, "train: --parallel " + to_string(options.parallel) + ": " + why};
}

}  // namespace

Status settle_parallel(const Flags& flags, TrainOptions& options, int launched) {
  if (!flags.given("parallel")) return {};
  const ParallelSpec& spec = options.parallel;
  if (spec.zero != ParallelSpec::kUnsaid) {
    if (flags.given("zero")) {
      return refuse_parallel(
          options, format("zero=%d and --zero %lld exclude each other (got both)", spec.zero,
                          static_cast<long long>(options.zero)));
    }
    options.zero = spec.zero;
  }
  const bool says_ranks = spec.dp != ParallelSpec::kUnsaid || spec.pp > 1 || spec.tp > 1;
  if (options.inproc == 0 && launched == 0 && says_ranks) {
    const std::int64_t ranks =
        std::int64_t{spec.pp} * spec.tp * (spec.dp == ParallelSpec::kUnsaid ? 1 : spec.dp);
    if (ranks > kMostThreadRanks) {
      return refuse_parallel(
          options,
          format("without a launcher, ranks are threads of this process (got %lld, "
                 "expected at most %d; or use gradwire run -n %lld)",
                 static_cast<long long>(ranks), kMostThreadRanks, static_cast<long long>(ranks)));
    }
    options.inproc = ranks;
  }
  const std::int64_t ranks = options.inproc > 0 ? options.inproc : launched > 0 ? launched : 1;
  const auto mesh = spec.mesh(static_cast<int>(ranks));
  return mesh.has_value() ? Status()
                          : refuse_parallel(options, std::string(mesh.error().message()));
}

}  // namespace gradwire
