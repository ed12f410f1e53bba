#include "apps/sweep/run_spec.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "apps/environment.h"
#include "apps/train/train_options.h"
#include "base/hash.h"
#include "base/text.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool is_toggle(const std::string& name) {
  const auto& flags = study_train_flags();
  return std::any_of(flags.begin(), flags.end(),
                     [&](const StudyFlag& flag) { return flag.name == name && flag.is_toggle; });
}

std::vector<std::string> train_words(const StudyCase& one, std::uint64_t seed) {
  std::vector<std::string> words;
  for (const auto& [name, value] : one.flags) {
    if (!is_toggle(name)) {
      words.insert(words.end(), {"--" + name, value});
    } else if (value == "true") {
      words.push_back("--" + name);
    }
  }
  // Some modes and optimizers do not compress gradients, and refuse to be asked.
  const bool by_default =
      one.compressor == "none" && one.flags.count("mode") + one.flags.count("optimizer") > 0;
  if (!by_default) words.insert(words.end(), {"--compressor", one.compressor});
  words.insert(words.end(), {"--seed", std::to_string(seed)});
  return words;
}

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Size and time of a file, or of the files of a folder and of its folders: enough to see that an
// input of a run is another one now.
std::string state_of(const std::string& path) {
  std::error_code ignored;
  std::vector<std::string> parts;
  const auto note = [&](const fs::path& file) {
    const auto time = fs::last_write_time(file, ignored).time_since_epoch().count();
    const auto size = static_cast<unsigned long long>(fs::file_size(file, ignored));
    parts.push_back(file.string() + format(" %llu %lld", size, static_cast<long long>(time)));
  };
  if (fs::is_regular_file(path, ignored)) note(path);
  if (fs::is_directory(path, ignored)) {
    fs::recursive_directory_iterator entry(path, ignored);
    for (; entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
      if (entry.depth() >= 1) entry.disable_recursion_pending();
      if (entry->is_regular_file(ignored)) note(entry->path());
    }
  }
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const std::string& part : parts) text += part + "\n";
  return text;
}

std::string hex(std::uint64_t value) {
  return format("%016llx", static_cast<unsigned long long>(value));
}

}  // namespace

RunCommand command_of(const StudyCase& one, std::uint64_t seed) {
  RunCommand command;
  const std::string ranks = std::to_string(one.ranks);
  if (one.transport == "inproc") {
    command.argv = {"gradwire", "train", "--inproc", ranks};
  } else {
    command.environment["GRADWIRE_TRANSPORT"] = one.transport;
    const auto lab = one.lab.empty() ? Result<LabLinks>(LabLinks{}) : parse_lab(one.lab);
    if (lab.has_value() && lab.value().hosts > 0) {
      const LabLinks& links = lab.value();
      command.argv = {"bench/lab",
                      std::to_string(links.hosts),
                      links.rate,
                      "--ranks",
                      std::to_string(one.ranks / links.hosts),
                      "--"};
    } else {
      command.argv = {"gradwire", "run", "-n", ranks, "--"};
    }
    append(command.argv, {"gradwire", "train"});
  }
  append(command.argv, train_words(one, seed));
  return command;
}

namespace {

// The largest divisor: a batch that all ranks can share can be shared among these.
int divisor_within(int ranks, int most) {
  int divisor = std::min(ranks, most);
  while (ranks % divisor != 0) --divisor;
  return divisor;
}

// The case on so many ranks: of its --parallel, all but the number of replicas.
StudyCase on_ranks(StudyCase one, int ranks) {
  const auto flag = one.flags.find("parallel");
  if (ranks == one.ranks || flag == one.flags.end()) return one;
  if (auto spec = ParallelSpec::parse(flag->second); spec.has_value()) {
    spec.value().dp = ParallelSpec::kUnsaid;
    flag->second = to_string(spec.value());
  }
  return one;
}

}  // namespace

RunCommand check_command_of(const StudyCase& one, std::uint64_t seed) {
  RunCommand command;
  const int ranks = divisor_within(one.ranks, kMostThreadRanks);
  command.argv = {"gradwire", "train", "--dry-run", "--inproc", std::to_string(ranks)};
  append(command.argv, train_words(on_ranks(one, ranks), seed));
  return command;
}

std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain = std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 ||
             std::string_view("-_./=:,@+%").find(static_cast<char>(c)) != std::string_view::npos;
    });
    std::string quoted = word;
    if (!plain || word.empty()) {
      quoted = "'";
      for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      quoted += "'";
    }
    text += (text.empty() ? "" : " ") + quoted;
  }
  return text;
}

std::string shell_text(const RunCommand& command) {
  std::string text;
  for (const auto& [name, value] : command.environment) text += name + "=" + value + " ";
  return text + shell_text(command.argv);
}

Result<LabLinks> parse_lab(const std::string& text) {
  const std::size_t x = text.find('x');
  const auto hosts = to_int(text.substr(0, std::min(x, text.size())));
  const std::string rate = x == std::string::npos ? "" : text.substr(x + 1);
  const std::size_t digits = std::min(rate.find_first_not_of("0123456789."), rate.size());
  const std::string unit = rate.substr(digits);
  const auto number = to_double(rate.substr(0, digits));
  const bool shaped = number && *number > 0 &&
                      (unit == "bit" || unit == "kbit" || unit == "mbit" || unit == "gbit");
  if (!hosts || *hosts < 2 || *hosts > 250 || !(shaped || rate == "none"))
    return Status(Code::kInvalidArgument,
                  "lab must be HOSTSxRATE, e.g. 4x1gbit, 2x100mbit, 4xnone (got '" + text + "')");
  return LabLinks{static_cast<int>(*hosts), rate};
}

double lab_bits(const std::string& text) {
  const auto lab = parse_lab(text);
  if (!lab.has_value() || lab.value().rate == "none") return 0;
  const std::string& rate = lab.value().rate;
  const std::size_t digits = rate.find_first_not_of("0123456789.");
  const std::string unit = rate.substr(digits);
  const double scale = unit == "gbit" ? 1e9 : unit == "mbit" ? 1e6 : unit == "kbit" ? 1e3 : 1;
  return to_double(rate.substr(0, digits)).value_or(0) * scale;
}

Json spec_of(const StudyCase& one, std::uint64_t seed) {
  Json spec{{"compressor", one.compressor}, {"seed", seed},   {"ranks", one.ranks},
            {"transport", one.transport},   {"lab", one.lab}, {"flags", one.flags}};
  std::string inputs;
  for (const char* name : {"data-dir", "load-params", "text-file", "text-valid", "vocabulary"}) {
    const auto flag = one.flags.find(name);
    if (flag != one.flags.end()) inputs += state_of(flag->second);
  }
  Json variables = Json::object();
  for (const auto& [name, value] : environment_with({"GRADWIRE_DATA", "GRADWIRE_LINKS", "UCX_"})) {
    variables[name] = value;
    if (name == "GRADWIRE_DATA") inputs += state_of(value);
  }
  spec["environment"] = variables;
  spec["inputs"] = inputs.empty() ? "" : hex(hash_name(inputs));
  return spec;
}

std::string run_name(const StudyCase& one, std::uint64_t seed, const Json& spec) {
  std::string name;
  for (const unsigned char c : one.row + "-" + one.setting) {
    const bool kept = std::isalnum(c) != 0 || c == '.';
    if (kept) name += static_cast<char>(std::tolower(c));
    if (!kept && !name.empty() && name.back() != '-') name += '-';
    if (name.size() == 48) break;
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name + format("-s%llu-", static_cast<unsigned long long>(seed)) +
         hex(hash_name(spec.dump(-1, ' ', false, Json::error_handler_t::replace))).substr(0, 10);
}

}  // namespace gradwire
