#include "apps/train/run_checkpoints.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "adapters/trainer/agreement.h"
#include "adapters/trainer/own_momentum.h"
#include "apps/generate/saved_language_model.h"
#include "apps/log_lines.h"
#include "apps/train/rank_run.h"
#include "base/text.h"
#include "gradwire/version.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/store.h"

namespace gradwire {
namespace {

// That a run which was killed may still hold its folder.
constexpr double kSecondsToEnd = 2;

constexpr const char* kBestFolder = "/best";  // below --checkpoint
constexpr const char* kTestLoss = "test-loss";
constexpr const char* kJudged = "test-labels";  // that it is the mean of

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return text;
}

TrainingCheckpointOptions checkpoint_options(const TrainOptions& o, const std::string& compressor,
                                             const DataSet& data, std::int64_t steps) {
  TrainingCheckpointOptions c;
  c.files.folder = o.checkpoint;
  c.files.keep = static_cast<int>(o.checkpoint_keep);
  c.files.written_by = "gradwire " GRADWIRE_VERSION;
  c.batch = o.batch;
  c.accumulate = static_cast<int>(o.accumulate) / o.parallel.pipes();
  c.seed = o.seed;
  c.must_match = {{"batch", std::to_string(o.batch)},
                  {"context", std::to_string(o.context)},
                  {"heads", std::to_string(o.heads)},
                  {"text-file", o.text_file},
                  {"tokens", o.tokens},
                  {"compressor", compressor},
                  {"data", o.data},
                  {"model", o.model},
                  {"momentum-at", o.momentum_at},
                  {"optimizer", o.optimizer},
                  {"optimizer-compressor", o.optimizer_compressor},
                  {"parameter-compressor", o.parameter_compressor},
                  {"precision", o.precision},
                  {"seed", std::to_string(o.seed)},
                  {"shuffle", o.shuffle}};
  if (o.model == "mlp") c.must_match["hidden"] = joined(o.hidden);
  // The same names may stand for other contents by now.
  c.match_if_known = {
      {"contents", format("%016llx", static_cast<unsigned long long>(data.contents_hash()))},
      {"init", o.init}};
  if (data.is_text()) c.carried = language_settings(model_options(o), data);
  c.steps = steps;
  c.schedule = o.lr_schedule;
  c.leaves_momentum = o.momentum == 0 && !keeps_momentum(o.compressor).empty();
  const std::string policy = o.accumulate > 1 ? o.accumulate_policy : "sum-then-reduce";
  c.notes = {{"accumulate-policy", policy},
             {"algorithm", o.algorithm},
             {"clip", shortest(o.clip)},
             {"clip-worker", shortest(o.clip_worker)},
             {"loss-scale", o.loss_scale},
             {"device", o.device},
             {"dropout", shortest(o.dropout)},
             {"lr", shortest(o.lr)},
             {"main-grads", o.no_main_grads ? "no" : "yes"},
             {"lr-schedule", o.lr_schedule.text()},
             {"momentum", shortest(o.momentum)},
             {"weight-decay", shortest(o.weight_decay)},
             {"zero", std::to_string(o.zero)}};
  return c;
}

// What no two modes, and no two shapes of one, understand of each other.
ModeCheckpointOptions mode_options(const TrainOptions& o, const DataSet& data, std::int64_t steps) {
  ModeCheckpointOptions m;
  m.run = checkpoint_options(o, o.compressor, data, steps);
  m.run.must_match["mode"] = o.mode.name;
  m.run.must_match["asynchronous"] = o.mode.asynchronous ? "yes" : "no";
  m.run.must_match["pull-compressor"] = o.mode.pull_compressor;
  m.run.must_match["servers"] = std::to_string(o.mode.servers);
  m.run.notes["alpha"] = shortest(o.mode.alpha);
  m.run.notes["local-steps"] = std::to_string(o.mode.local_steps);
  m.run.notes["moving-rate"] = shortest(o.mode.moving_rate);
  m.run.notes["participation"] = shortest(o.mode.participation);
  m.run.notes["period"] = std::to_string(o.mode.period);
  m.run.notes["rho"] = shortest(o.mode.rho);
  m.run.notes["staleness"] = std::to_string(o.mode.staleness);
  m.steps = steps;
  m.every = o.checkpoint_every;
  m.lr = o.lr;
  return m;
}

std::string resuming(const ResumedFrom& from, const TrainOptions& o, std::int64_t steps) {
  std::string text = format("resuming from %s: %lld of %lld step(s) done, written by %d rank(s)",
                            from.path.c_str(), static_cast<long long>(from.step),
                            static_cast<long long>(steps), from.ranks);
  for (const auto& [name, before] : from.was) text += "; " + name + " was " + before;
  const std::string own = o.momentum == 0 ? keeps_momentum(o.compressor) : "";
  if (from.was.contains("momentum") && !own.empty())
    text += ", which " + own + " continues without";
  return text;
}
std::string from_nothing(const TrainOptions& o) {
  return "no complete checkpoint in " + o.checkpoint + ": starting from step 0";
}

Status cannot_write(const std::string& path, const std::string& why) {
  return {Code::kInvalidArgument,
          format("train: cannot write to --checkpoint %s (%s; expected a writable folder)",
                 path.c_str(), why.c_str())};
}

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? cannot_write(path, error.message()) : Status();
}

// Of rank 0, which the others hear of. A folder that cannot be locked is left open, and `open` says
// so: it may be read, and where it cannot be written to either, look_for_right() refuses those who
// want to.
struct TakenFolder {
  std::optional<FolderLock> lock;
  std::string open;
};
Result<TakenFolder> take_folder(const TrainOptions& o, Communicator& communicator) {
  Status taken;
  TakenFolder folder;
  if (communicator.rank() == 0) taken = make_folder(o.checkpoint);
  if (communicator.rank() == 0 && taken.ok()) {
    auto made = FolderLock::take(o.checkpoint, ".lock", "run", kSecondsToEnd);
    if (made.has_value()) {
      folder.lock.emplace(std::move(made).value());
    } else if (made.error().code() == Code::kUnsupported) {
      folder.open = "; " + std::string(made.error().message()) +
                    ", so a second run into this folder is not refused";
    } else {
      taken = Status(made.error().code(), "train: " + std::string(made.error().message()) +
                                              "; use another --checkpoint folder");
    }
  }
  GW_TRY(share_outcome(communicator, taken, {}, o.deadline + kSecondsToEnd).error());
  return folder;
}

// A run that could not save is better told so before it has trained. One with no step left to make
// saves nothing. Of rank 0, as above.
Status look_for_right(const TrainOptions& o, Communicator& communicator, std::int64_t steps_left) {
  if (steps_left <= 0) return {};
  const bool may = communicator.rank() != 0 || ::access(o.checkpoint.c_str(), W_OK | X_OK) == 0;
  const Status found = may ? Status() : cannot_write(o.checkpoint, std::strerror(errno));
  return share_outcome(communicator, found, {}, o.deadline).error();
}

// A run that was not asked to go on leaves what there is alone.
Result<std::string> anew(const TrainOptions& o, const std::optional<std::int64_t>& last) {
  if (!last) return "checkpoints are written to " + o.checkpoint;
  return Status(
      Code::kInvalidArgument,
      format("train: %s holds checkpoints, the most recent one after step %lld (use --resume "
             "to continue from it, or another folder)",
             o.checkpoint.c_str(), static_cast<long long>(*last)));
}

TrainingCheckpointOptions in_best_folder(TrainingCheckpointOptions options) {
  options.files.folder += kBestFolder;
  options.files.keep = 1;
  return options;
}

// Of the complete ones in the folder that of the lowest test loss: there may be two, where a run
// was killed before it had removed the one before. Losses of other test sets do not compare.
Result<std::optional<RunCheckpoints::Best>> find_best(const CheckpointStore& store,
                                                      std::int64_t judged) {
  GW_ASSIGN(const std::vector<std::int64_t> steps, store.complete());
  std::optional<RunCheckpoints::Best> best;
  for (const std::int64_t step : steps) {
    GW_ASSIGN(const CheckpointReader reader, CheckpointReader::open(store.path_of(step)));
    const auto& settings = reader.manifest().settings;
    const auto found = settings.find(kTestLoss);
    const auto loss = found == settings.end() ? std::nullopt : to_double(found->second);
    if (!loss) {
      return Status(Code::kCorruptPayload,
                    reader.path() + ": its " + kTestLoss + " is missing (expected a number)");
    }
    const auto labels = settings.find(kJudged);
    if (labels == settings.end() || labels->second != std::to_string(judged)) {
      return Status(Code::kInvalidArgument,
                    format("%s was judged on %s labels (expected %lld, as in this run: --eval)",
                           reader.path().c_str(),
                           labels == settings.end() ? "unknown" : labels->second.c_str(),
                           static_cast<long long>(judged)));
    }
    if (!best || *loss < best->test_loss) best = {step, *loss, store.path_of(step)};
  }
  return best;
}

}  // namespace

RunCheckpoints::RunCheckpoints(const TrainOptions& options, const std::string& compressor,
                               const DataSet& data, Communicator& communicator, Trainer& trainer,
                               DistributedStrategy& strategy)
    : options_(options),
      judged_(data.labels_of(data.evaluation())),
      trainer_(trainer),
      strategy_(strategy),
      communicator_(communicator),
      checkpoint_(communicator, trainer, strategy,
                  checkpoint_options(options, compressor, data, trainer.steps())) {
  if (!options.checkpoint_best) return;
  best_.emplace(communicator, trainer, strategy,
                in_best_folder(checkpoint_options(options, compressor, data, trainer.steps())));
}

Result<std::string> RunCheckpoints::start() {
  GW_ASSIGN(TakenFolder folder, take_folder(options_, communicator_));
  lock_ = std::move(folder.lock);
  if (best_) GW_TRY(start_best());
  if (options_.resume) {
    GW_ASSIGN(const std::optional<ResumedFrom> from, checkpoint_.resume());
    if (from) notices_ = from->notices;
    GW_TRY(look_for_right(options_, communicator_, trainer_.steps() - (from ? from->step : 0)));
    return (from ? resuming(*from, options_, trainer_.steps()) : from_nothing(options_)) +
           folder.open;
  }
  GW_ASSIGN(const std::optional<std::int64_t> last, checkpoint_.last_step());
  GW_TRY(look_for_right(options_, communicator_, trainer_.steps()));
  GW_ASSIGN(const std::string what, anew(options_, last));
  return what + folder.open;
}

// Rank 0 looks, all ranks know.
Status RunCheckpoints::start_best() {
  Status looked;
  std::string found;
  const CheckpointStore store(options_.checkpoint + kBestFolder);
  if (communicator_.rank() == 0) {
    const auto best = find_best(store, judged_);
    looked = best.error();
    if (!looked.ok()) {
      looked =
          Status(looked.code(), std::string(looked.message()) + "; remove " + options_.checkpoint +
                                    kBestFolder + ", or leave --checkpoint-best away");
    }
    if (best.has_value() && best.value()) {
      found = std::to_string(best.value()->step) + " " + shortest(best.value()->test_loss);
    }
  }
  GW_ASSIGN(const std::vector<std::string> all,
            share_outcome(communicator_, looked, found, options_.deadline));
  if (all[0].empty()) return {};
  const std::size_t blank = all[0].find(' ');
  const std::int64_t step = to_int(all[0].substr(0, blank)).value_or(0);
  if (!options_.resume) return anew(options_, step).error();
  kept_ = {step, to_double(all[0].substr(blank + 1)).value_or(0), store.path_of(step)};
  return {};
}

// Where ranks step alone for a while what was judged is no checkpoint. A step that is made anew,
// from an earlier checkpoint, is there already.
Status RunCheckpoints::keep_best(const StepReport& step) {
  const std::int64_t done = step.step + 1;
  if (!best_ || !step.test_loss || !step.averaged || !strategy_.replicas_equal()) return {};
  if (kept_ && (*step.test_loss >= kept_->test_loss || done == kept_->step)) return {};
  best_->carry(kTestLoss, shortest(*step.test_loss));
  best_->carry(kJudged, std::to_string(judged_));
  GW_TRY(best_->save(step.lr, step.loss_scale.value_or(1)));
  GW_TRY(best_->keep_only(done));
  const CheckpointStore store(options_.checkpoint + kBestFolder);
  kept_ = {done, *step.test_loss, store.path_of(done)};
  if (communicator_.rank() != 0) return {};
  GW_ASSIGN(const Log log, make_log(options_.log_level, 0));
  log(LogLevel::kInfo,
      format("after step %lld the test loss is the lowest so far, %.4f: kept in %s",
             static_cast<long long>(done), *step.test_loss, kept_->path.c_str()));
  return {};
}

Status RunCheckpoints::after_step(const StepReport& step) {
  GW_TRY(keep_best(step));
  const std::int64_t done = step.step + 1;
  const bool last = interruption_ != nullptr && interruption_->agreed() != 0;
  due_ = due_ || last || done == trainer_.steps() ||
         (options_.checkpoint_every > 0 && done % options_.checkpoint_every == 0);
  // Where losses still wait for their average so do the rows of these steps, which a run that goes
  // on would not have. Ranks that step alone, and left their update out, are equal and wait.
  if (!due_ || !step.averaged || !strategy_.replicas_equal()) return {};
  due_ = false;
  if (last) interruption_->meet();
  GW_TRY(checkpoint_.save(step.lr, step.loss_scale.value_or(1)));
  return last ? interruption_->end(done) : Status();
}

Result<OpenedCheckpoint> open_mode_checkpoint(const TrainOptions& options, const DataSet& data,
                                              Communicator& communicator, std::int64_t steps) {
  OpenedCheckpoint opened;
  if (options.checkpoint.empty()) return opened;
  GW_ASSIGN(TakenFolder folder, take_folder(options, communicator));
  opened.lock = std::move(folder.lock);
  opened.saver = std::make_unique<ModeCheckpoint>(communicator, mode_options(options, data, steps));
  if (options.resume) {
    GW_ASSIGN(const std::optional<ResumedFrom> from, opened.saver->open_last());
    opened.says = (from ? resuming(*from, options, steps) : from_nothing(options)) + folder.open;
    opened.steps_done = from ? from->step : 0;
    GW_TRY(look_for_right(options, communicator, steps - opened.steps_done));
    return opened;
  }
  GW_ASSIGN(const std::optional<std::int64_t> last, opened.saver->last_step());
  GW_TRY(look_for_right(options, communicator, steps));
  GW_ASSIGN(opened.says, anew(options, last));
  opened.says += folder.open;
  return opened;
}

}  // namespace gradwire
