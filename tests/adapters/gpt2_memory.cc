// Whether a rank takes the memory that its account says, at a size where it matters: GPT-2's 12
// layers of width 768 (124 million parameters, tied, 50,257 tokens, 256 to a window) in bf16 on
// random tokens, one sample a rank, AdamW at stage 1 of ZeRO, every layer computed again. Three
// steps and no evaluation. Not a part of ./check: it takes minutes, and 2 GiB a rank.
//
//   ninja -C build tests/adapters/gpt2_memory apps/gradwire
//   build/apps/gradwire run -n 2 -- build/tests/adapters/gpt2_memory
//
// Prints the account by class, what the arena counted and the most that the process had resident,
// and ends with status 0 if the latter is at most 15 % above the account.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/sharded/sharded.h"
#include "base/philox.h"
#include "gradwire/gradwire.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/models.h"
#include "trainer/training.h"

namespace gradwire {
namespace {

constexpr std::int64_t kTokens = 50257;
constexpr std::int64_t kContext = 256;
constexpr int kSteps = 3;
constexpr double kMore = 1.15;

DataSet random_tokens(std::int64_t windows) {
  const RandomStream random(1, RandomUse::kTest, 0, 0, 0, 0);
  const auto samples = [&](std::int64_t count) {
    Samples made;
    made.context = kContext;
    for (std::int64_t i = 0; i < count * kContext + 1; ++i) {
      made.tokens.push_back(static_cast<std::uint32_t>(
          random.uniform(static_cast<std::uint64_t>(i)) * static_cast<float>(kTokens - 1)));
    }
    return made;
  };
  std::vector<std::string> vocabulary;
  for (std::int64_t i = 0; i < kTokens; ++i) vocabulary.push_back("t" + std::to_string(i));
  return {"random", std::move(vocabulary), samples(windows), samples(1)};
}

// VmHWM of the process.
std::int64_t most_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

TrainingOptions training_options(const Communicator& world) {
  TrainingOptions options;
  options.rank = world.rank();
  options.ranks = world.size();
  options.batch = world.size();
  options.steps = kSteps + 1;
  options.lr = 1e-4;
  options.precision = Precision::kBF16;
  options.recompute = "full";
  options.shuffle = Shuffle::kNone;
  return options;
}

ShardedOptions sharded_options() {
  ShardedOptions options;
  options.stage = 1;
  options.optimizer.name = "adamw";
  options.parallel.check_every = 0;
  return options;
}

Result<RunMemory> account(const Model<float>& model, const Communicator& world) {
  RunMemoryQuestion question;
  question.recompute = "full";
  question.precision = Precision::kBF16;
  question.stage = 1;
  question.rank = world.rank();
  question.ranks = world.size();
  question.labels = kContext;
  return run_memory(model, question);
}

// Ends before the step after the last one is evaluated.
Status train(Communicator& world, const Model<float>& model, const DataSet& data, MemoryUse& use) {
  const TrainingOptions options = training_options(world);
  const ShardedOptions sharded = sharded_options();
  GW_ASSIGN(Trainer trainer,
            Trainer::create(model, data, options, ShardedStrategy::demands_of(sharded)));
  GW_ASSIGN(auto strategy, ShardedStrategy::create(MeshGroups::of_replicas(world),
                                                   Registry::builtin(), sharded, trainer.memory()));
  GW_TRY(strategy->start(ReplicaStart::kCompare));
  const auto ran = trainer.run(*strategy, [&](const StepReport& report) -> Status {
    if (world.rank() == 0) {
      std::printf("step %lld of %d, loss %.3f\n", static_cast<long long>(report.step + 1), kSteps,
                  report.loss);
      std::fflush(stdout);
    }
    use = trainer.places().device.use();
    return report.step + 1 < kSteps ? Status() : Status(Code::kCancelled, "enough");
  });
  return ran.error().code() == Code::kCancelled ? Status() : ran.error();
}

Result<bool> run() {
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  const std::string secret = environment("GRADWIRE_SECRET").value_or("");
  GW_ASSIGN(const Rendezvous rendezvous, open_rendezvous(launch, secret));
  GW_ASSIGN(const auto world, make_communicator("auto", rendezvous));
  ModelOptions gpt{"gpt", {}, 768};
  gpt.layers = gpt.heads = 12;
  gpt.tied = true;
  const DataSet data = random_tokens((kSteps + 1) * world->size());
  GW_ASSIGN(const Model<float> model, make_model<float>(gpt, data.shape(), data.classes()));
  GW_ASSIGN(const RunMemory planned, account(model, *world));
  MemoryUse use;
  GW_TRY(train(*world, model, data, use));
  std::int64_t wanted = 0;
  for (const std::int64_t bytes : planned.device) wanted += bytes;
  const std::int64_t resident = most_resident();
  const bool fits = static_cast<double>(resident) <= kMore * static_cast<double>(wanted);
  std::string table;
  for (std::size_t i = 0; i < kMemoryClasses; ++i) {
    std::array<char, 128> line{};
    std::snprintf(line.data(), line.size(), "  %-15s account %7.1f MB, arena %7.1f MB\n",
                  std::string(to_string(static_cast<MemoryClass>(i))).c_str(),
                  static_cast<double>(planned.device[i]) / 1e6,
                  static_cast<double>(use.peak[i]) / 1e6);
    table += line.data();
  }
  std::printf(
      "rank %d: %lld parameters\n%s  account %.1f MB, resident at most %.1f MB: %.3f times %s\n",
      world->rank(), static_cast<long long>(parameter_elems(model.parameters())), table.c_str(),
      static_cast<double>(wanted) / 1e6, static_cast<double>(resident) / 1e6,
      static_cast<double>(resident) / static_cast<double>(wanted),
      fits ? "(expected at most 1.15)" : "(expected at most 1.15): too much");
  return fits;
}

}  // namespace
}  // namespace gradwire

int main() {
  const auto fits = gradwire::run();
  if (fits.has_value()) return fits.value() ? 0 : 1;
  std::fprintf(stderr, "gpt2_memory: %s\n", std::string(fits.error().message()).c_str());
  return 2;
}
