#include "apps/generate/generate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "adapters/trainer/agreement.h"
#include "adapters/trainer/first_version.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/mesh/parallel_spec.h"
#include "adapters/trainer/pipeline/staged_forward.h"
#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/generate/saved_language_model.h"
#include "apps/job.h"
#include "apps/log_lines.h"
#include "apps/progress.h"
#include "apps/train/train_options.h"
#include "base/text.h"
#include "gradwire/config.h"
#include "trainer/data/next_token.h"
#include "trainer/data/token_text.h"

namespace gradwire {
namespace {

constexpr double kSecondsToRead = 600;  // that the slowest rank may take with the checkpoint

struct GenerateOptions {
  std::string checkpoint;
  std::string prompt;
  std::int64_t tokens = 200;
  SamplingOptions sampling;
  std::optional<ParallelSpec> parallel = {};  // none: all ranks are stages
  std::int64_t inproc = 0;
  std::string transport;
  double deadline = 15;
  bool quiet = false;
  std::string log_level;
};

// Where rank 0's text goes: each token as it is drawn.
class TextOutput {
 public:
  TextOutput(const GenerateOptions& options, const TokenText& tokens) : tokens_(tokens) {
    const bool shared = isatty(fileno(stdout)) == 1 && isatty(fileno(stderr)) == 1;
    if (options.quiet || options.tokens == 0) return;
    const Progress::Style style = shared ? Progress::Style::kSilent : Progress::style_for(stderr);
    progress_ = std::make_unique<Progress>(stderr, style, "token", options.tokens);
  }

  void write(std::uint32_t token) {
    const std::string text = tokens_.text(token, before_, begins_);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    before_ = token;
    begins_ = false;
  }
  void drawn(std::int64_t count) {
    if (progress_ != nullptr) progress_->update(count, rate(count));
  }
  void finish(std::int64_t count) {
    std::fputc('\n', stdout);
    std::fflush(stdout);
    const bool says = progress_ != nullptr;
    progress_.reset();
    if (says)
      std::fprintf(stderr, "%lld tokens, %s\n", static_cast<long long>(count), rate(count).c_str());
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string rate(std::int64_t count) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return format("%.1f per second", static_cast<double>(count) / std::max(seconds, 1e-9));
  }

  const TokenText& tokens_;
  std::uint32_t before_ = 0;
  bool begins_ = true;
  Clock::time_point start_ = Clock::now();
  std::unique_ptr<Progress> progress_;
};

// One rank's part: its stage of the model, or its share of that, and the text so far, which all
// ranks know.
class Generator {
 public:
  Generator(const GenerateOptions& options, Communicator& communicator, MeshGroups groups)
      : options_(options), communicator_(communicator), groups_(std::move(groups)) {}

  Status run() {
    // Before any rank may have failed: making them is collective.
    for (const MeshScope scope : {MeshScope::kPp, MeshScope::kTp}) {
      GW_TRY(groups_.group(scope).error());
    }
    GW_TRY(share_outcome(communicator_, open(), {}, kSecondsToRead).error());
    const bool tells = communicator_.rank() == 0;
    TextOutput output(options_, *tokens_);
    if (tells) {
      for (const std::uint32_t token : prompt_) output.write(token);
    }
    for (std::int64_t drawn = 0; drawn < options_.tokens; ++drawn) {
      GW_ASSIGN(const std::uint32_t token, next(drawn));
      text_.push_back(token);
      if (!tells) continue;
      output.write(token);
      output.drawn(drawn + 1);
    }
    if (tells) output.finish(options_.tokens);
    return {};
  }

 private:
  Status open() {
    GW_ASSIGN(CheckpointReader checkpoint, CheckpointReader::open(options_.checkpoint));
    checkpoint.describe_as(with_present_names(checkpoint.manifest()));
    auto saved = saved_language_model(checkpoint.manifest());
    if (!saved.has_value()) return saved.error().with_context(checkpoint.path());
    saved_ = std::move(saved).value();
    GW_TRY(make_models());
    GW_ASSIGN(stage_, StagedForward::create(*whole_, shared_ ? *shared_ : *whole_, groups_));
    GW_TRY(read_saved_parameters(checkpoint, saved_, stage_->model().parameters(),
                                 stage_->parameters()));
    GW_ASSIGN(tokens_, TokenText::create(saved_.tokens, saved_.vocabulary));
    auto prompt = tokens_->numbers(options_.prompt);
    if (!prompt.has_value()) return prompt.error().with_context("--prompt");
    prompt_ = std::move(prompt).value();
    text_ = prompt_.empty() ? std::vector<std::uint32_t>{tokens_->start()} : prompt_;
    window_.resize(static_cast<std::size_t>(saved_.context));
    return {};
  }

  Status make_models() {
    const SampleShape window{saved_.context, 1, 1};
    const auto classes = static_cast<std::int64_t>(saved_.vocabulary.size());
    GW_ASSIGN(whole_, make_model<float>(saved_.model, window, classes));
    if (groups_.sizes().tp == 1) return {};
    ModelOptions part = saved_.model;
    part.share = {.ranks = groups_.sizes().tp,
                  .rank = groups_.coordinates().tp,
                  .sequence = options_.parallel->layout.sequence};
    auto shared = make_model<float>(part, window, classes);
    if (!shared.has_value()) {
      return shared.error().with_context("--parallel " + to_string(*options_.parallel));
    }
    shared_ = std::move(shared).value();
    return {};
  }

  // After the last `context` tokens of the text. What is behind them in the window is not seen.
  Result<std::uint32_t> next(std::int64_t drawn) {
    const std::size_t length = std::min(text_.size(), window_.size());
    std::fill(window_.begin(), window_.end(), 0.0F);
    std::transform(text_.end() - static_cast<std::ptrdiff_t>(length), text_.end(), window_.begin(),
                   [](std::uint32_t token) { return static_cast<float>(token); });
    GW_ASSIGN(const std::span<const float> logits,
              stage_->run(window_, static_cast<std::int64_t>(length) - 1, saved_.context));
    const int last = communicator_.size() - 1;
    std::int64_t token = 0;
    if (communicator_.rank() == last) {
      GW_ASSIGN(token, next_token(logits, options_.sampling, drawn));
    }
    if (last == 0) return static_cast<std::uint32_t>(token);
    const TensorView told(reinterpret_cast<std::byte*>(&token), Shape::vector(1), DType::kI64);
    GW_ASSIGN(Work work, communicator_.broadcast(told, last));
    GW_TRY(work.wait().with_context("the next token"));
    return static_cast<std::uint32_t>(token);
  }

  const GenerateOptions& options_;
  Communicator& communicator_;
  MeshGroups groups_;
  SavedLanguageModel saved_;
  std::optional<Model<float>> whole_;
  std::optional<Model<float>> shared_;  // this rank's, where ranks share tensors
  std::unique_ptr<StagedForward> stage_;
  std::optional<TokenText> tokens_;
  std::vector<std::uint32_t> prompt_;
  std::vector<std::uint32_t> text_;
  std::vector<float> window_;
};

// All ranks read what rank 0 found: a training that goes on may be writing the next one.
Status generate_rank(GenerateOptions options, Communicator& communicator) {
  Status found;
  std::string path;
  if (communicator.rank() == 0) {
    auto at = checkpoint_at(options.checkpoint);
    found = at.error();
    if (at.has_value()) path = std::move(at).value();
  }
  GW_ASSIGN(const std::vector<std::string> paths,
            share_outcome(communicator, found, path, kSecondsToRead));
  options.checkpoint = paths.front();
  MeshSizes sizes{.pp = communicator.size()};
  if (options.parallel) sizes = {.pp = options.parallel->pp, .tp = options.parallel->tp};
  GW_ASSIGN(MeshGroups groups, MeshGroups::create(communicator, sizes));
  return Generator(options, communicator, std::move(groups)).run();
}

CommunicatorOptions group_options(const GenerateOptions& options, const Log& log) {
  CommunicatorOptions c;
  c.deadline_seconds = options.deadline;
  c.warn = [log](std::string_view line) { log(LogLevel::kWarn, line); };
  return c;
}

Status generate_in_threads(const GenerateOptions& options, int ranks, const Log& log) {
  GW_ASSIGN(auto communicators, make_inproc_groups(ranks, group_options(options, log)));
  std::mutex mutex;
  Status first;
  std::vector<std::jthread> threads;
  for (auto& own : communicators) {
    threads.emplace_back([&, world = std::move(own)] {
      const Status status = generate_rank(options, *world);
      const std::lock_guard lock(mutex);
      if (first.ok()) first = status;
    });
  }
  threads.clear();
  return first;
}

Result<int> generate_in_process(const GenerateOptions& options, const LaunchInfo& launch,
                                const Log& log) {
  const std::string transport =
      options.transport.empty() ? environment("GRADWIRE_TRANSPORT").value_or(messages_of("auto"))
                                : options.transport;
  GW_ASSIGN(JoinedJob job, join_job(launch, transport, group_options(options, log), log));
  const Status status = generate_rank(options, *job.communicator);
  return status.ok() ? Result<int>(0) : Result<int>(fail_promptly(status));
}

void add_generate_flags(Flags& flags, GenerateOptions& o) {
  flags.positional("CHECKPOINT", o.checkpoint,
                   "folder of train --checkpoint, of which the last complete checkpoint is taken, "
                   "or of one checkpoint");
  flags.group("Text");
  flags.text("prompt", o.prompt, "text to continue");
  flags.integer("tokens", o.tokens, {0, 1 << 30}, "number of tokens to generate");
  flags.number("temperature", o.sampling.temperature, {0, 1e6},
               "divisor of the logits; 0: the most likely token, always");
  flags.integer("top-k", o.sampling.top_k, {0, 1 << 30},
                "number of most likely tokens to draw from; 0: all");
  flags.seed("seed", o.sampling.seed, "seed of the drawn tokens");
  flags.group("Ranks");
  flags.custom(
      "parallel", "pp=N,tp=N", "all ranks are stages",
      [&o](const std::string& text) {
        GW_ASSIGN(o.parallel, ParallelSpec::parse(text));
        return Status();
      },
      "how ranks divide the model: pipeline stages, ranks that share tensors; without a launcher "
      "they are threads");
  flags.integer("inproc", o.inproc, {1, kMostThreadRanks},
                "number of ranks as threads of this process", "the launcher's ranks, else 1");
  flags.text("transport", o.transport, "transport between processes: ucx, tcp, shm, auto",
             "GRADWIRE_TRANSPORT, else ucx, or tcp in a build without UCX", "NAME");
  flags.number("deadline", o.deadline, {0.1, 86400},
               "timeout of one communication operation, in seconds",
               shortest(o.deadline) + ", or the deadline of gradwire run");
  flags.group("Reports");
  flags.toggle("quiet", o.quiet, "no progress");
  flags.choice("log-level", o.log_level, {"trace", "debug", "info", "warn", "error", "off"},
               "level of the log on standard error", "GRADWIRE_LOG, else warn");
}

// How many threads are ranks; of a launcher's processes 1.
Result<int> threads_of(const GenerateOptions& o, const LaunchInfo& launch) {
  const bool launched = launch.size > 1;
  if (launched && o.inproc > 0) {
    return Status(Code::kInvalidArgument,
                  format("generate: --inproc %lld needs a single process (got %d from %s)",
                         static_cast<long long>(o.inproc), launch.size, launch.source.c_str()));
  }
  const int said = o.inproc > 0 ? static_cast<int>(o.inproc) : launched ? launch.size : 0;
  if (!o.parallel) return launched ? 1 : std::max(said, 1);
  const auto refuse = [&o](const std::string& why) {
    return Status(Code::kInvalidArgument,
                  "generate: --parallel " + to_string(*o.parallel) + ": " + why);
  };
  const ParallelSpec& spec = *o.parallel;
  if (spec.dp > 1 || spec.zero != ParallelSpec::kUnsaid) {
    return refuse("a text has one replica (expected pp=N, tp=N or both)");
  }
  if (spec.layout.kind != TensorLayout::Kind::kMegatron) {
    return refuse("a layout of images (expected tp=N/megatron)");
  }
  if (spec.order != PipelineOrder()) {
    return refuse("text is made in one order (expected pp=N without a schedule)");
  }
  const std::int64_t ranks = std::int64_t{spec.pp} * spec.tp;
  if (said > 0 && said != ranks) {
    return refuse(format("%d ranks (expected %lld, stages times ranks that share tensors)", said,
                         static_cast<long long>(ranks)));
  }
  if (ranks > kMostThreadRanks) {
    return refuse(format("%lld ranks (expected at most %d as threads of this process)",
                         static_cast<long long>(ranks), kMostThreadRanks));
  }
  return launched ? 1 : static_cast<int>(ranks);
}

}  // namespace

Result<int> generate_command(const std::vector<std::string>& args) {
  GenerateOptions options;
  Flags flags("generate",
              "Generates text with a language model that train saved with --checkpoint. The text "
              "is written to standard output as it is drawn, and is the same for any number of "
              "stages. Ranks that share tensors round sums otherwise, which may change a draw.");
  add_generate_flags(flags, options);
  flags.example(
      "gradwire train --model gpt --data grammar --steps 20 --checkpoint run && gradwire generate "
      "run");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (!flags.given("deadline")) {
    GW_ASSIGN(options.deadline, deadline_from_environment(options.deadline));
  }
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  GW_ASSIGN(const int threads, threads_of(options, launch));
  GW_ASSIGN(const Log log, make_log(options.log_level, launch.rank));
  if (launch.size > 1) return generate_in_process(options, launch, log);
  const Status status = generate_in_threads(options, threads, log);
  if (!status.ok()) return status.with_context("generate");
  return 0;
}

}  // namespace gradwire
