#include "apps/profile/profile.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/machine.h"
#include "apps/profile/measurements.h"
#include "apps/profile/profile_table.h"
#include "apps/profile/rounds.h"
#include "apps/progress.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "planner/profile/profile_file.h"

namespace gradwire {
namespace {

struct ProfileFlags {
  std::string file = "profile.json";
  std::string images = "digits";
  std::string text = "grammar";
  std::string data_folder;
  ModelOptions mlp{"mlp"};
  ModelOptions gpt{"gpt"};
  std::int64_t width = 64;  // of the gpt
  std::int64_t context = 32;
  std::vector<std::int64_t> rows{8, 32};
  std::vector<std::int64_t> elements{65536, 1048576};
  std::int64_t rounds = 7;
  double seconds = 0.2;
  bool quick = false;
  bool again = false;
  bool no_links = false;
  std::string json;
};

void add_profile_flags(Flags& flags, ProfileFlags& f) {
  flags.positional("FILE", f.file,
                   "where the profile is kept: shown if it is there, else measured and written "
                   "[profile.json]",
                   true);
  flags.group("What is measured");
  flags.text("images", f.images, "data set of the mlp, the cnn and the resnet8", "digits", "NAME");
  flags.text("text", f.text, "data set of the gpt", "grammar", "NAME");
  flags.folder("data-dir", f.data_folder, "folder of the data sets' files",
               "GRADWIRE_DATA, else the sets that come with gradwire");
  flags.integers("hidden", f.mlp.hidden, {1, 65536}, "mlp: widths of the hidden layers, in units");
  flags.integer("layers", f.gpt.layers, {1, 1024}, "gpt: number of blocks");
  flags.integer("width", f.width, {1, 65536}, "gpt: embedding width");
  flags.integer("heads", f.gpt.heads, {1, 1024}, "gpt: number of attention heads");
  flags.integer("context", f.context, {1, 65536}, "gpt: length of a sample, in tokens");
  flags.integers("rows", f.rows, {1, 65536}, "micro-batches of layers, in samples");
  flags.integers("elements", f.elements, {1, 1 << 28},
                 "sizes of optimizers' and compressors' tensors, in elements");
  flags.toggle("no-links", f.no_links, "no messages between ranks");
  flags.group("Measurement and output");
  flags.integer("rounds", f.rounds, {1, 1000},
                "rounds over everything, of which the median counts");
  flags.number("seconds", f.seconds, {0.001, 60},
               "time for a product and for a size of messages, about, in all rounds, in seconds");
  flags.toggle("quick", f.quick,
               "one small model, small sizes and three rounds: to try the command, not to plan by");
  flags.toggle("again", f.again, "measured and written even if FILE is there");
  flags.json_output(f.json);
}

MeasurementOptions options_of(const ProfileFlags& f) {
  MeasurementOptions o{.rows = f.rows,
                       .widths = {32, 128, 512},
                       .optimizers = {"sgd", "adamw", "lamb"},
                       .compressors = {"none", "cast:fp16", "qsgd:bits=8", "qsgd:bits=4", "signsgd",
                                       "topk:ratio=0.01", "powersgd:rank=4"},
                       .elements = f.elements,
                       .transports = {"shm", "tcp"},
                       .rounds = static_cast<int>(f.rounds),
                       .seconds = f.seconds};
  const DataPlaces places{f.data_folder, environment("GRADWIRE_DATA").value_or("")};
  o.models.push_back({"mlp", f.mlp, f.images, places});
  for (const char* name : {"cnn", "resnet8"}) {
    o.models.push_back({name, ModelOptions{name}, f.images, places});
  }
  ModelOptions gpt = f.gpt;
  gpt.width = f.width;
  o.models.push_back({"gpt", gpt, f.text, places, f.context});
  if (f.quick) {
    o.models.resize(1);
    o.rows = {4, 8};
    o.widths = {16, 64};
    o.elements = {4096, 8192};
    o.rounds = 3;
    o.link_rounds = 1;
    o.seconds = 0.01;
  }
  if (f.no_links) o.transports.clear();
  return o;
}

Result<Profile> measured(const ProfileFlags& f) {
  const MeasurementOptions options = options_of(f);
  const std::vector<Measurement> all = measurements(options);
  const std::int64_t total = measured_in_all(all, options.rounds);
  Progress progress(stderr, Progress::style_for(stderr), "profile", total);
  GW_ASSIGN(Profile profile,
            measure_by_rounds(all, options.rounds,
                              [&progress](std::int64_t done, const std::string& name) {
                                progress.update(done, name);
                              }));
  progress.update(total, "done");
  profile.conditions = conditions_here();
  return profile;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

Status show(const ProfileFlags& f, const Profile& profile) {
  if (f.json == "-") {
    std::printf("%s", profile_lines(profile).c_str());
    return {};
  }
  std::printf("%s", profile_table(profile).c_str());
  const Status same = check_same_machine(profile, f.file, conditions_here());
  if (!same.ok()) std::printf("\nnot of this machine: %s\n", std::string(same.message()).c_str());
  return f.json.empty() ? Status() : write_whole_file(f.json, profile_lines(profile));
}

}  // namespace

ProfileConditions conditions_here() {
  const Machine here = machine();
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return {.host = host.data(),
          .processor = here.cpu,
          .cores = here.cores,
          .threads = 1,
          .kernel = here.kernel,
          .build = "gradwire " + here.gradwire + " (" + here.commit + "), " + here.compiler,
          .date = utc_now()};
}

Result<Profile> read_profile(const std::string& path) {
  GW_ASSIGN(const std::string text, read_whole_file(path));
  return parse_profile(text, path);
}

Result<Profile> read_own_profile(const std::string& path) {
  GW_ASSIGN(Profile profile, read_profile(path));
  GW_TRY(check_same_machine(profile, path, conditions_here()));
  return profile;
}

Result<int> profile_command(const std::vector<std::string>& args) {
  ProfileFlags f;
  Flags flags("profile",
              "Measures what training takes on this machine and keeps it in a file: layers of "
              "models, products, optimizers, compressors, and messages between two ranks. A file "
              "that is there is shown.");
  add_profile_flags(flags, f);
  flags.example("gradwire profile --quick quick.json");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  std::error_code error;
  if (!f.again && std::filesystem::exists(f.file, error)) {
    GW_ASSIGN(const Profile kept, read_profile(f.file));
    GW_TRY(show(f, kept));
    return 0;
  }
  GW_ASSIGN(const Profile profile, measured(f));
  GW_TRY(replace_whole_file(f.file, profile_text(profile)));
  GW_TRY(show(f, profile));
  if (f.json != "-") std::printf("\nkept in %s\n", f.file.c_str());
  return 0;
}

}  // namespace gradwire
