#include "apps/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <utility>

#include "apps/config_file.h"
#include "base/nearest.h"
#include "base/text.h"

namespace gradwire {
namespace {

thread_local Flags::Probe* probe = nullptr;

// "--steps must be ...", or with a colon before a grammar's own words.
std::string named(const std::string& flag, std::string_view error) {
  return flag + (error.starts_with("must be ") ? " " : ": ") + std::string(error);
}

void tell_new_name(const std::string& old_name, const std::string& name) {
  std::fprintf(stderr, "gradwire: warning: %s is now called %s\n", old_name.c_str(), name.c_str());
}

std::string with_dashes(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

}  // namespace

Flags::Probe::Probe(std::function<void(const CommandFacts&)> take) : take_(std::move(take)) {
  probe = this;
}
Flags::Probe::~Probe() { probe = nullptr; }

Flags::Flags(const std::string& command, const std::string& purpose)
    : app_(std::make_unique<CLI::App>(purpose, "gradwire " + command)) {
  facts_.command = command;
  facts_.purpose = purpose;
  app_->allow_extras();
  app_->set_help_flag();
}
Flags::~Flags() = default;

Flags::Flag& Flags::add(FlagFacts shown, std::function<Status(const std::string&)> set) {
  shown.group = group_;
  Flag& flag = *flags_.emplace_back(std::make_unique<Flag>());
  flag.name = shown.name;
  flag.placeholder = shown.placeholder;
  flag.is_toggle = shown.is_toggle;
  flag.is_positional = shown.is_positional;
  flag.is_optional = shown.is_optional;
  flag.set = std::move(set);
  if (flag.is_toggle) {
    flag.option = app_->add_flag("--" + flag.name, flag.flag_seen);
  } else {
    flag.option = app_->add_option((flag.is_positional ? "" : "--") + flag.name, flag.text);
    flag.option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  facts_.flags.push_back(std::move(shown));
  return flag;
}

void Flags::text(const std::string& name, std::string& value, const std::string& help,
                 const std::string& when_empty, const std::string& placeholder) {
  add({.name = name,
       .placeholder = placeholder,
       .default_text = value.empty() ? when_empty : value,
       .help = help},
      [&value](const std::string& text) {
        value = text;
        return Status();
      });
}

void Flags::file(const std::string& name, std::string& value, const std::string& help,
                 const std::string& when_empty) {
  text(name, value, help, when_empty, "FILE");
}

void Flags::folder(const std::string& name, std::string& value, const std::string& help,
                   const std::string& when_empty) {
  text(name, value, help, when_empty, "DIR");
}

void Flags::choice(const std::string& name, std::string& value, std::vector<std::string> allowed,
                   const std::string& help, const std::string& when_empty) {
  std::string placeholder = name;
  std::ranges::transform(placeholder, placeholder.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  add({.name = name,
       .placeholder = placeholder,
       .default_text = value.empty() ? when_empty : value,
       .help = help,
       .values = allowed},
      [&value, allowed](const std::string& text) {
        if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
          return bad_value(text, "one of " + list_text(allowed), did_you_mean(text, allowed));
        }
        value = text;
        return Status();
      });
}

void Flags::integer(const std::string& name, std::int64_t& value, Limits limits,
                    const std::string& help, const std::string& default_text) {
  add({.name = name,
       .placeholder = "N",
       .default_text = default_text.empty() ? std::to_string(value) : default_text,
       .help = help},
      [&value, limits](const std::string& text) {
        const auto number = to_int(text);
        if (!number || !inside(static_cast<double>(*number), limits)) {
          return bad_value(text, "a whole number" + range_text(limits));
        }
        value = *number;
        return Status();
      });
}

void Flags::seed(const std::string& name, std::uint64_t& value, const std::string& help) {
  add({.name = name, .placeholder = "N", .default_text = std::to_string(value), .help = help},
      [&value](const std::string& text) {
        const auto number = to_int(text);
        if (!number || *number < 0) return bad_value(text, "a whole number of at least 0");
        value = static_cast<std::uint64_t>(*number);
        return Status();
      });
}

void Flags::number(const std::string& name, double& value, Limits limits, const std::string& help,
                   const std::string& default_text) {
  add({.name = name,
       .placeholder = "X",
       .default_text = default_text.empty() ? shortest(value) : default_text,
       .help = help},
      [&value, limits](const std::string& text) {
        const auto number = to_double(text);
        if (!number || !inside(*number, limits)) {
          return bad_value(text, "a number" + range_text(limits));
        }
        value = *number;
        return Status();
      });
}

void Flags::bytes(const std::string& name, std::int64_t& value, Limits limits,
                  const std::string& help) {
  add({.name = name, .placeholder = "BYTES", .default_text = std::to_string(value), .help = help},
      [&value, limits](const std::string& text) {
        GW_ASSIGN(const std::int64_t count, parse_bytes(text));
        if (!inside(static_cast<double>(count), limits)) {
          return bad_value(text, "a number of bytes" + range_text(limits));
        }
        value = count;
        return Status();
      });
}

void Flags::toggle(const std::string& name, bool& value, const std::string& help) {
  add({.name = name, .default_text = "off", .help = help, .is_toggle = true},
      [&value](const std::string& text) {
        if (text != "true" && text != "false") return bad_value(text, "true or false");
        value = text == "true";
        return Status();
      });
}

void Flags::integers(const std::string& name, std::vector<std::int64_t>& values, Limits limits,
                     const std::string& help) {
  std::vector<std::string> shown;
  for (const std::int64_t value : values) shown.push_back(std::to_string(value));
  add({.name = name, .placeholder = "N,N,...", .default_text = list_text(shown, ","), .help = help},
      [&values, limits](const std::string& text) {
        std::vector<std::int64_t> numbers;
        for (const std::string& part : split_commas(text)) {
          const auto number = to_int(part);
          if (!number || !inside(static_cast<double>(*number), limits)) {
            return bad_value(text, "whole numbers" + range_text(limits) + " separated by commas");
          }
          numbers.push_back(*number);
        }
        values = std::move(numbers);
        return Status();
      });
}

void Flags::custom(const std::string& name, const std::string& placeholder,
                   const std::string& default_text, std::function<Status(const std::string&)> set,
                   const std::string& help, std::vector<std::string> values) {
  add({.name = name,
       .placeholder = placeholder,
       .default_text = default_text,
       .help = help,
       .values = std::move(values)},
      std::move(set));
}

void Flags::json_output(std::string& value) {
  add({.name = "json",
       .placeholder = "FILE",
       .default_text = "off",
       .help = "results as JSON lines: on standard output in place of the table, or in FILE "
               "beside it",
       .has_optional_value = true},
      [&value](const std::string& text) {
        value = text;
        return Status();
      });
}

void Flags::positional(const std::string& name, std::string& value, const std::string& help,
                       bool optional, std::vector<std::string> values) {
  FlagFacts shown{.name = name,
                  .help = help,
                  .values = std::move(values),
                  .is_positional = true,
                  .is_optional = optional};
  add(std::move(shown), [&value](const std::string& text) {
    value = text;
    return Status();
  });
}

void Flags::config_file() {
  app_->add_option("--config", config_path_);
  facts_.flags.push_back({.name = "config",
                          .placeholder = "FILE",
                          .default_text = "none",
                          .help = "TOML file whose keys are flags of this command; flags of the "
                                  "command line win",
                          .group = group_});
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> all{"help"};
  for (const FlagFacts& flag : facts_.flags) {
    if (!flag.is_positional) all.push_back(flag.name);
  }
  return all;
}

std::string Flags::present_name(const std::string& name) const {
  const auto found = aliases_.find(name);
  return found == aliases_.end() ? name : found->second;
}

Status Flags::unknown_word(const std::string& word) const {
  const std::string help = "see gradwire " + facts_.command + " --help";
  const std::string name = word.substr(0, word.find('='));
  if (!name.starts_with("-")) {
    return {Code::kInvalidArgument,
            facts_.command + ": unexpected argument '" + word + "' (" + help + ")"};
  }
  const std::string plain = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  return {Code::kInvalidArgument, facts_.command + ": unknown flag '" + name + "'" +
                                      did_you_mean(plain, names(), "--") + " (" + help + ")"};
}

// `what` begins with the flag, as CLI11 says it.
Status Flags::missing_value(const std::string& what) const {
  const std::string name = what.substr(0, what.find(':'));
  std::string expected = "a value";
  for (const auto& flag : flags_) {
    if ("--" + flag->name == name) expected = flag->placeholder;
  }
  return {Code::kInvalidArgument,
          facts_.command + ": " + name + " has no value (expected " + name + " " + expected + ")"};
}

// Earlier names of flags become their names, and --json without a file --json=-.
std::vector<std::string> Flags::with_present_names(const std::vector<std::string>& args) const {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string word = args[i];
    if (word.starts_with("--")) {
      const std::size_t equals = std::min(word.find('='), word.size());
      const std::string old_name = word.substr(2, equals - 2);
      const std::string name = present_name(old_name);
      if (name != old_name) tell_new_name("--" + old_name, "--" + name);
      word = "--" + name + word.substr(equals);
    }
    const bool alone = i + 1 == args.size() || args[i + 1].starts_with("--");
    for (const FlagFacts& flag : facts_.flags) {
      if (alone && flag.has_optional_value && word == "--" + flag.name) word += "=-";
    }
    words.push_back(std::move(word));
  }
  return words;
}

Status Flags::read_words(const std::vector<std::string>& args) {
  std::vector<std::string> words = with_present_names(args);
  std::ranges::reverse(words);  // CLI11 takes them from the back
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ArgumentMismatch& mismatch) {
    return missing_value(mismatch.what());
  } catch (const CLI::ParseError& other) {
    return {Code::kInvalidArgument, facts_.command + ": " + other.what()};
  }
  const std::vector<std::string> rest = app_->remaining();
  return rest.empty() ? Status() : unknown_word(rest.front());
}

Status Flags::apply_words() {
  for (const auto& flag : flags_) {
    const std::string name = (flag->is_positional ? "" : "--") + flag->name;
    if (flag->option->count() == 0) {
      if (!flag->is_positional || flag->is_optional) continue;
      return {Code::kInvalidArgument,
              facts_.command + ": " + name + " is missing (" + usage_line(facts_) + ")"};
    }
    if (!flag->is_toggle && flag->option->count() > 1) {
      return {Code::kInvalidArgument, facts_.command + ": " + name + " is given " +
                                          std::to_string(flag->option->count()) +
                                          " times (expected once)"};
    }
    const std::string text = flag->is_toggle ? (flag->flag_seen ? "true" : "false") : flag->text;
    if (const Status set = flag->set(text); !set.ok()) {
      return {set.code(), facts_.command + ": " + named(name, set.message())};
    }
    flag->given = true;
  }
  return {};
}

Status Flags::set(const std::string& name, const std::string& value) {
  const std::string present = present_name(name);
  for (const auto& flag : flags_) {
    if (flag->is_positional || flag->name != present) continue;
    if (const Status set = flag->set(value); !set.ok()) {
      return {set.code(), named(name, set.message())};
    }
    flag->given = true;
    return {};
  }
  return {Code::kInvalidArgument, "unknown flag '" + name + "'" + did_you_mean(name, names()) +
                                      " (expected a flag of gradwire " + facts_.command + ")"};
}

Status Flags::apply_file(const std::string& path) {
  GW_ASSIGN(const auto entries, read_config_file(path));
  for (const ConfigEntry& entry : entries) {
    const std::string written = with_dashes(entry.key);
    const std::string name = present_name(written);
    const std::string where = path + ":" + std::to_string(entry.line) + ": ";
    if (name != written) tell_new_name(where + entry.key, name);
    const auto found = std::ranges::find_if(
        flags_, [&](const auto& flag) { return !flag->is_positional && flag->name == name; });
    if (found == flags_.end()) {
      return {Code::kInvalidArgument, where + "unknown key '" + entry.key + "'" +
                                          did_you_mean(name, names()) +
                                          " (expected a flag of gradwire " + facts_.command + ")"};
    }
    Flag& flag = **found;
    if (flag.given) continue;  // the command line wins
    if (const Status set = flag.set(entry.value); !set.ok()) {
      return {set.code(), where + named(entry.key, set.message())};
    }
    flag.given = true;
  }
  return {};
}

Result<Flags::Outcome> Flags::parse(const std::vector<std::string>& args) {
  if (probe != nullptr) {
    probe->take_(facts_);
    return Outcome::kHelp;
  }
  if (std::ranges::find(args, "--help") != args.end() ||
      std::ranges::find(args, "-h") != args.end()) {
    std::fputs(help_text(facts_).c_str(), stdout);
    return Outcome::kHelp;
  }
  GW_TRY(read_words(args));
  GW_TRY(apply_words());
  if (!config_path_.empty()) GW_TRY(apply_file(config_path_));
  return Outcome::kRun;
}

bool Flags::given(const std::string& name) const {
  for (const auto& flag : flags_) {
    if (flag->name == name) return flag->given;
  }
  return false;
}

}  // namespace gradwire
