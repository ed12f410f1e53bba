#include "apps/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "apps/config_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

// The text of a bad value's error, without the flag's name, which named() puts before it.
Status bad_value(const std::string& seen, const std::string& wanted) {
  return {Code::kInvalidArgument, "('" + seen + "' seen; " + wanted + " wanted)"};
}

// "bad value for --steps ('x' seen; ...)", or with a colon before a grammar's own words.
std::string named(const std::string& flag, std::string_view error) {
  return "bad value for " + flag + (error.starts_with("(") ? " " : ": ") + std::string(error);
}

std::string range_text(const Limits& limits) {
  const bool below = std::isfinite(limits.least);
  const bool above = std::isfinite(limits.most);
  if (below && above) return " from " + shortest(limits.least) + " to " + shortest(limits.most);
  if (below) return " of at least " + shortest(limits.least);
  if (above) return " of at most " + shortest(limits.most);
  return "";
}

bool inside(double value, const Limits& limits) {
  return value >= limits.least && value <= limits.most;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Levenshtein's distance, for "did you mean".
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

}  // namespace

Result<std::int64_t> parse_bytes(const std::string& text) {
  const std::string wanted = "a number of bytes such as 4096, 64K, 25M or 1G";
  int shift = 0;
  std::string digits = text;
  if (!digits.empty()) {
    const char last = digits.back();
    shift = last == 'K' ? 10 : last == 'M' ? 20 : last == 'G' ? 30 : 0;
    if (shift != 0) digits.pop_back();
  }
  const auto count = to_int(digits);
  if (!count || *count < 0 || *count > (std::numeric_limits<std::int64_t>::max() >> shift)) {
    return bad_value(text, wanted);
  }
  return *count << shift;
}

Flags::Flags(const std::string& command, const std::string& purpose)
    : command_(command),
      group_("Flags"),
      app_(std::make_unique<CLI::App>(purpose, "gradwire " + command)) {
  app_->allow_extras();
  app_->get_formatter()->column_width(34);
}
Flags::~Flags() = default;

Flags::Flag& Flags::add(const std::string& name, const std::string& placeholder,
                        const std::string& default_text, const std::string& help,
                        std::function<Status(const std::string&)> set) {
  Flag& flag = *flags_.emplace_back(std::make_unique<Flag>());
  flag.name = name;
  flag.set = std::move(set);
  flag.option = app_->add_option("--" + name, flag.text, help + " [" + default_text + "]");
  flag.option->type_name(placeholder)->group(group_);
  flag.option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  return flag;
}

void Flags::text(const std::string& name, std::string& value, const std::string& help,
                 const std::string& when_empty) {
  add(name, "TEXT", value.empty() ? when_empty : value, help, [&value](const std::string& text) {
    value = text;
    return Status();
  });
}

void Flags::choice(const std::string& name, std::string& value, std::vector<std::string> allowed,
                   const std::string& help) {
  const std::string names = joined(allowed, "|");
  add(name, names, value.empty() ? "unset" : value, help,
      [&value, allowed = std::move(allowed)](const std::string& text) {
        if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
          return bad_value(text, "one of " + joined(allowed, ", "));
        }
        value = text;
        return Status();
      });
}

void Flags::integer(const std::string& name, std::int64_t& value, Limits limits,
                    const std::string& help, const std::string& default_text) {
  add(name, "N", default_text.empty() ? std::to_string(value) : default_text, help,
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
  add(name, "N", std::to_string(value), help, [&value](const std::string& text) {
    const auto number = to_int(text);
    if (!number || *number < 0) return bad_value(text, "a whole number of at least 0");
    value = static_cast<std::uint64_t>(*number);
    return Status();
  });
}

void Flags::number(const std::string& name, double& value, Limits limits, const std::string& help,
                   const std::string& default_text) {
  add(name, "X", default_text.empty() ? shortest(value) : default_text, help,
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
  add(name, "BYTES", std::to_string(value), help, [&value, limits](const std::string& text) {
    GW_ASSIGN(const std::int64_t count, parse_bytes(text));
    if (!inside(static_cast<double>(count), limits)) {
      return bad_value(text, "a number of bytes" + range_text(limits));
    }
    value = count;
    return Status();
  });
}

void Flags::toggle(const std::string& name, bool& value, const std::string& help) {
  Flag& flag = *flags_.emplace_back(std::make_unique<Flag>());
  flag.name = name;
  flag.is_toggle = true;
  flag.set = [&value](const std::string& text) {
    if (text != "true" && text != "false") return bad_value(text, "true or false");
    value = text == "true";
    return Status();
  };
  flag.option = app_->add_flag("--" + name, flag.flag_seen, help + " [off]");
  flag.option->group(group_);
}

void Flags::integers(const std::string& name, std::vector<std::int64_t>& values, Limits limits,
                     const std::string& help) {
  std::string shown;
  for (const std::int64_t value : values)
    shown += (shown.empty() ? "" : ",") + std::to_string(value);
  add(name, "N,N,...", shown, help, [&values, limits](const std::string& text) {
    std::vector<std::int64_t> numbers;
    for (const std::string& part : split_commas(text)) {
      const auto number = to_int(part);
      if (!number || !inside(static_cast<double>(*number), limits)) {
        return bad_value(text, "whole numbers" + range_text(limits) + " with commas between");
      }
      numbers.push_back(*number);
    }
    values = std::move(numbers);
    return Status();
  });
}

void Flags::custom(const std::string& name, const std::string& placeholder,
                   const std::string& default_text, std::function<Status(const std::string&)> set,
                   const std::string& help) {
  add(name, placeholder, default_text, help, std::move(set));
}

void Flags::positional(const std::string& name, std::string& value, const std::string& help,
                       bool optional) {
  Flag& flag = *flags_.emplace_back(std::make_unique<Flag>());
  flag.name = name;
  flag.is_positional = true;
  flag.set = [&value](const std::string& text) {
    value = text;
    return Status();
  };
  flag.option = app_->add_option(name, flag.text, help);
  flag.option->type_name("");
  if (!optional) flag.option->required();
}

void Flags::config_file() {
  app_->add_option("--config", config_path_,
                   "a TOML file whose keys are flags of this command; flags win [none]")
      ->type_name("FILE")
      ->group(group_);
}

std::string Flags::nearest(const std::string& name) const {
  std::string best;
  std::size_t best_distance = 3;  // further away is no misspelling
  for (const auto& flag : flags_) {
    if (flag->is_positional) continue;
    const std::size_t d = distance(name, flag->name);
    if (d < best_distance) {
      best_distance = d;
      best = flag->name;
    }
  }
  return best;
}

Status Flags::unknown_word(const std::string& word) const {
  std::string name = word.substr(0, word.find('='));
  const bool is_flag = name.starts_with("-");
  if (!is_flag) {
    return {Code::kInvalidArgument, command_ + ": unexpected word ('" + word +
                                        "' seen; flags wanted, see gradwire " + command_ +
                                        " --help)"};
  }
  const std::string close = nearest(name.substr(name.find_first_not_of('-') == std::string::npos
                                                    ? name.size()
                                                    : name.find_first_not_of('-')));
  return {Code::kInvalidArgument, command_ + ": unknown flag ('" + name + "' seen; " +
                                      (close.empty() ? "" : "perhaps --" + close + " wanted, ") +
                                      "see gradwire " + command_ + " --help)"};
}

Status Flags::read_words(const std::vector<std::string>& args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 takes them from the back
  try {
    app_->parse(std::move(reversed));
  } catch (const CLI::ArgumentMismatch& mismatch) {
    return {Code::kInvalidArgument,
            command_ + ": a flag without its value (" + mismatch.what() + ")"};
  } catch (const CLI::RequiredError& missing) {
    return {Code::kInvalidArgument, command_ + ": a word is missing (" + missing.what() +
                                        "; see gradwire " + command_ + " --help)"};
  } catch (const CLI::ParseError& other) {
    return {Code::kInvalidArgument, command_ + ": " + other.what()};
  }
  const std::vector<std::string> rest = app_->remaining();
  return rest.empty() ? Status() : unknown_word(rest.front());
}

Status Flags::apply_words() {
  for (const auto& flag : flags_) {
    if (flag->option->count() == 0) continue;
    if (!flag->is_toggle && flag->option->count() > 1) {
      return {Code::kInvalidArgument, command_ + ": --" + flag->name + " is given " +
                                          std::to_string(flag->option->count()) +
                                          " times (once wanted)"};
    }
    const std::string text = flag->is_toggle ? (flag->flag_seen ? "true" : "false") : flag->text;
    if (const Status set = flag->set(text); !set.ok()) {
      return {set.code(), command_ + ": " +
                              named((flag->is_positional ? "" : "--") + flag->name, set.message())};
    }
    flag->given = true;
  }
  return {};
}

Status Flags::set(const std::string& name, const std::string& value) {
  for (const auto& flag : flags_) {
    if (flag->is_positional || flag->name != name) continue;
    if (const Status set = flag->set(value); !set.ok()) {
      return {set.code(), named(name, set.message())};
    }
    flag->given = true;
    return {};
  }
  return {Code::kInvalidArgument,
          "unknown flag ('" + name + "' seen; the flags of gradwire " + command_ + " wanted)"};
}

Status Flags::apply_file(const std::string& path) {
  GW_ASSIGN(const auto entries, read_config_file(path));
  for (const ConfigEntry& entry : entries) {
    std::string name = entry.key;
    std::replace(name.begin(), name.end(), '_', '-');
    const auto found = std::find_if(flags_.begin(), flags_.end(), [&](const auto& flag) {
      return !flag->is_positional && flag->name == name;
    });
    const std::string where = path + ":" + std::to_string(entry.line);
    if (found == flags_.end()) {
      const std::string close = nearest(name);
      return {Code::kInvalidArgument, where + ": unknown key ('" + entry.key + "' seen; " +
                                          (close.empty() ? "" : "perhaps " + close + " wanted, ") +
                                          "the flags of gradwire " + command_ + " wanted)"};
    }
    Flag& flag = **found;
    if (flag.given) continue;  // the command line wins
    if (const Status set = flag.set(entry.value); !set.ok()) {
      return {set.code(), where + ": " + named(entry.key, set.message())};
    }
    flag.given = true;
  }
  return {};
}

Result<Flags::Outcome> Flags::parse(const std::vector<std::string>& args) {
  for (const std::string& word : args) {
    if (word != "--help" && word != "-h") continue;
    std::fputs(app_->help().c_str(), stdout);
    return Outcome::kHelp;
  }
  GW_TRY(read_words(args));
  GW_TRY(apply_words());
  if (!config_path_.empty()) GW_TRY(apply_file(config_path_));
  return Outcome::kRun;
}

std::vector<std::pair<std::string, bool>> Flags::declared() const {
  std::vector<std::pair<std::string, bool>> names;
  for (const auto& flag : flags_) {
    if (!flag->is_positional) names.emplace_back(flag->name, flag->is_toggle);
  }
  return names;
}

bool Flags::given(const std::string& name) const {
  for (const auto& flag : flags_) {
    if (flag->name == name) return flag->given;
  }
  return false;
}

}  // namespace gradwire
