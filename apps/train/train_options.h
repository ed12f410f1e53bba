// What `gradwire train` is asked to do, and its flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/trainer/mesh/parallel_spec.h"
#include "apps/flags.h"
#include "apps/train/mode_flags.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/optimizers/lr_schedule.h"
#include "trainer/step/loss_scale.h"

namespace gradwire {

inline constexpr int kMostThreadRanks = 64;  // of one process: --inproc

struct TrainOptions {
  std::string model = "mlp";
  std::vector<std::int64_t> hidden{128, 64};
  std::int64_t width = 0;   // 0: the model's own
  std::int64_t layers = 2;  // of the gpt
  std::int64_t heads = 4;
  bool tied = false;
  double dropout = -1;  // below 0: the model's own
  std::string init = "model";

  std::string data = "digits";
  std::string data_dir;   // "" asks GRADWIRE_DATA, then the folder that carries the set
  std::string text_file;  // of --data text
  std::string text_valid;
  std::string tokens = "characters";
  std::int64_t context = 64;
  std::int64_t vocabulary_size = 4096;
  std::string vocabulary;

  std::int64_t steps = 200;
  std::int64_t epochs = 0;   // > 0: instead of steps
  std::int64_t batch = 128;  // samples of all ranks together
  std::uint64_t seed = 1;
  double lr = 0.05;
  double momentum = 0.9;
  std::string momentum_of;  // the method that keeps it in place of the optimizer, of dgc's kind
  std::string momentum_at = "server";
  std::string optimizer = "sgd";     // in the grammar of optimizer_spec.h
  std::string optimizer_compressor;  // "": the optimizer's own
  std::string device = "cpu";        // as launch::parse_device() says
  Device place = {};                 // what that is on this rank, once the rank knows
  std::int64_t zero = 0;             // stage of ZeRO, 0 to 3
  std::string parameter_compressor = "none";
  std::string recompute = "none";        // as recompute_segments() says
  std::string offload = "none";          // none, optimizer, parameters
  std::int64_t offload_chunk = 1 << 18;  // elements
  std::string offload_overlap = "on";    // on, off
  double weight_decay = 0;
  double clip = 0;  // global norms, 0: none
  double clip_worker = 0;
  std::string precision = "fp32";
  bool no_main_grads = false;
  std::string loss_scale;  // "": dynamic for fp16, else none
  LrSchedule lr_schedule;
  std::string shuffle = "auto";
  std::int64_t eval_every = 0;  // steps; 0: at the end only
  // Windows of a text that follow one another; 0: all; none: some, drawn at random.
  std::optional<std::int64_t> evaluated_windows = {};

  std::string traffic;  // what it says is settled into this and other compressors
  std::string compressor = "none";
  std::string algorithm = "auto";
  std::string transport;  // "": GRADWIRE_TRANSPORT, else messages alone
  std::int64_t bucket_bytes = 4 << 20;
  std::int64_t threads = 1;
  bool allow_unsafe = false;
  std::int64_t accumulate = 1;                        // micro-batches of one rank
  std::string accumulate_policy = "sum-then-reduce";  // or reduce-each
  std::int64_t inproc = 0;                            // ranks as threads; 0: the launcher decides
  std::string plan = {};                              // a file; what it says is applied
  ParallelSpec parallel = {};                         // how ranks are divided
  bool parallel_auto = false;                         // as the profile says is fastest
  std::string profile = "profile.json";               // of this machine, for that
  double deadline = 15;                               // seconds, of one operation
  std::string flight = {};                            // folder for flight records
  std::int64_t check_every = 10;
  std::int64_t measure_every = 0;  // steps between measurements of the average's error; 0: never
  bool memory = false;             // a table of what was held
  bool allow_overcommit = false;   // a warning where it seems not to fit
  bool dry_run = false;            // ends before the first step

  ModeFlags mode;

  std::string checkpoint;             // folder; "": none are saved
  std::int64_t checkpoint_every = 0;  // steps; 0: at the end only
  std::int64_t checkpoint_keep = 2;   // that stay
  bool checkpoint_best = false;       // that of the lowest test loss is kept beside
  bool resume = false;

  std::string load_params;
  std::string save_params;
  std::string metrics;
  std::string trace;               // file; "": none is written
  std::int64_t trace_steps = 100;  // that it shows, of this run's first
  bool quiet = false;
  std::string log_level;  // "" asks GRADWIRE_LOG
};

// Declares every flag of `train` but --config; `options` holds the defaults and outlives the flags.
void add_train_flags(Flags& flags, TrainOptions& options);

// What --algorithm says of dense gradients: "auto" is the ring, which sends least, so that runs of
// one study differ in their compressors alone, whatever a tensor's size; on a device that has NCCL
// it is NCCL's.
std::string dense_algorithm(const TrainOptions& options);
// As metrics name it: "nccl" where NCCL chooses.
std::string all_reduce_name(const TrainOptions& options);

// Whether --batch divides among so many ranks that compute gradients, with --accumulate
// micro-batches each.
Status check_batch_shares(const TrainOptions& options, int workers);

// The same of the ranks that there are, as far as flags say: those of a launcher look at it again
// when they meet.
Status check_batch(const TrainOptions& options);

// What an optimizer takes, and a model, that others do not.
Status check_optimizer(const Flags& flags, const TrainOptions& options);
Status check_model_flags(const Flags& flags, const TrainOptions& options);
// The first flag of a model that is not trained, without dashes; empty where there is none.
std::string misplaced_model_flag(const Flags& flags, const TrainOptions& options);

// These three, and what else single flags cannot tell: pairs that exclude one another, batches that
// do not divide.
Status check_train_options(const Flags& flags, const TrainOptions& options);

}  // namespace gradwire
