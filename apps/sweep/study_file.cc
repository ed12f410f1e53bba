#include "apps/sweep/study_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/files.h"
#include "base/nearest.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostSeeds = 1000;

// Where a wrong key stands, and the file's name for every message.
struct Source {
  std::string path;
  Status error(const toml::node& node, const std::string& what) const {
    return {Code::kInvalidArgument,
            format("%s, line %u: %s", path.c_str(), static_cast<unsigned>(node.source().begin.line),
                   what.c_str())};
  }
};

Result<std::string> as_text(const Source& source, std::string_view key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return shortest(number->get());
  if (const auto* truth = node.as_boolean()) return std::string(truth->get() ? "true" : "false");
  return source.error(node, "key '" + std::string(key) + "' is not a string, number or boolean");
}

bool is_train_flag(const std::string& name) {
  const auto& flags = study_train_flags();
  return std::any_of(flags.begin(), flags.end(),
                     [&](const StudyFlag& flag) { return flag.name == name; });
}

// Where a key of the study itself stands, that looks like a training flag.
std::string place_of(const std::string& name) {
  if (name == "compressor") return "[grid] compressor = [\"none\", ...], or a [[row]] for each";
  if (name == "seed" || name == "seeds") return "seeds = 3 above the first table";
  if (name == "ranks" || name == "inproc" || name == "transport" || name == "lab")
    return name + " above the first table, or a list in [grid]";
  return {};
}

Status unknown_key(const Source& source, const toml::node& node, const std::string& name,
                   std::vector<std::string> wanted) {
  if (const std::string place = place_of(name); !place.empty())
    return source.error(node, "key '" + name + "' does not belong here (expected " + place + ")");
  for (const StudyFlag& flag : study_train_flags()) wanted.push_back(flag.name);
  return source.error(node, "unknown key '" + name + "'" + did_you_mean(name, wanted) +
                                " (expected one of " + joined(wanted) + ")");
}

Status check_value(const Source& source, const toml::node& node, const std::string& name,
                   const std::string& value) {
  const Status status = check_study_value(name, value);
  return status.ok() ? status : source.error(node, std::string(status.message()));
}

// "KEY and OTHER exclude one another", where the table has both.
Status check_apart(const Source& source, const toml::table& table, const std::string& key,
                   const std::string& other) {
  if (!table.contains(key) || !table.contains(other)) return {};
  return source.error(*table.get(other),
                      "keys '" + key + "' and '" + other + "' exclude each other (got both)");
}

Status read_flags(const Source& source, const toml::table& table,
                  const std::set<std::string>& own_keys, TrainFlags& flags) {
  GW_TRY(check_apart(source, table, "epochs", "steps"));
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (own_keys.count(name) != 0) continue;
    if (!is_train_flag(name))
      return unknown_key(source, node, name, {own_keys.begin(), own_keys.end()});
    GW_ASSIGN(flags[name], as_text(source, name, node));
    GW_TRY(check_value(source, node, name, flags[name]));
  }
  return {};
}

Status read_grid(const Source& source, const toml::table& table, Study& study) {
  GW_TRY(check_apart(source, table, "epochs", "steps"));
  // TOML tables are sorted by key; the order of the file is the order of the settings.
  std::vector<std::pair<std::uint32_t, StudyAxis>> axes;
  for (const auto& [key, node] : table) {
    StudyAxis axis{.key = std::string(key.str()), .values = {}};
    if (axis.key != "ranks" && axis.key != "transport" && axis.key != "lab" &&
        axis.key != "compressor" && !is_train_flag(axis.key))
      return unknown_key(source, node, axis.key, {"compressor", "ranks", "transport", "lab"});
    const auto* list = node.as_array();
    if (list == nullptr || list->empty())
      return source.error(node, "axis '" + axis.key + "' is not a list of values");
    for (const toml::node& value : *list) {
      GW_ASSIGN(std::string text, as_text(source, axis.key, value));
      if (std::find(axis.values.begin(), axis.values.end(), text) != axis.values.end())
        return source.error(value, "axis '" + axis.key + "' has '" + text + "' twice");
      if (axis.key != "ranks" && axis.key != "transport" && axis.key != "lab")
        GW_TRY(check_value(source, value, axis.key, text));
      axis.values.push_back(std::move(text));
    }
    axes.emplace_back(node.source().begin.line, std::move(axis));
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [line, axis] : axes) study.grid.push_back(std::move(axis));
  return {};
}

Status read_text(const Source& source, const toml::table& table, std::string_view key,
                 std::string& out) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return {};
  if (!node->is_string())
    return source.error(*node, "key '" + std::string(key) + "' is not a string");
  out = node->as_string()->get();
  return {};
}

Status read_bound(const Source& source, const toml::table& table, std::string_view key,
                  double& out) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return {};
  const auto value = node->value<double>();
  if (!value) return source.error(*node, "key '" + std::string(key) + "' is not a number");
  out = *value;
  return {};
}

Status read_seeds(const Source& source, const toml::node& node, Study& study) {
  const auto add = [&](const toml::node& item) -> Status {
    const auto* number = item.as_integer();
    if (number == nullptr || number->get() < 0)
      return source.error(item, "a seed must be a whole number of at least 0");
    const auto seed = static_cast<std::uint64_t>(number->get());
    if (std::find(study.seeds.begin(), study.seeds.end(), seed) != study.seeds.end())
      return source.error(item, "seed " + std::to_string(seed) + " is listed twice");
    study.seeds.push_back(seed);
    return {};
  };
  if (const auto* count = node.as_integer()) {
    if (count->get() < 1 || count->get() > kMostSeeds)
      return source.error(node, "key 'seeds' must be 1 to 1000, or a list of seeds");
    for (std::int64_t seed = 1; seed <= count->get(); ++seed)
      study.seeds.push_back(static_cast<std::uint64_t>(seed));
    return {};
  }
  const auto* list = node.as_array();
  if (list == nullptr)
    return source.error(node, "key 'seeds' must be 1 to 1000, or a list of seeds");
  if (list->empty()) return source.error(node, "key 'seeds' lists no seed");
  for (const toml::node& item : *list) GW_TRY(add(item));
  return {};
}

Result<const toml::array*> tables_of(const Source& source, const toml::table& root,
                                     std::string_view key) {
  const toml::node* node = root.get(key);
  if (node == nullptr) return static_cast<const toml::array*>(nullptr);
  const auto* list = node->as_array();
  if (list == nullptr || !list->is_homogeneous(toml::node_type::table)) {
    return source.error(*node,
                        "'" + std::string(key) + "' is written [[" + std::string(key) + "]]");
  }
  return list;
}

Result<int> number_of_ranks(const Source& source, const std::string& key, const toml::node& node) {
  const auto* number = node.as_integer();
  if (number == nullptr || number->get() < 1 || number->get() > 4096)
    return source.error(node, "key '" + key + "' must be 1 to 4096 ranks");
  return static_cast<int>(number->get());
}

Status read_rows(const Source& source, const toml::table& root, Study& study) {
  GW_ASSIGN(const toml::array* list, tables_of(source, root, "row"));
  if (list == nullptr) return {};
  for (const toml::node& node : *list) {
    const toml::table& table = *node.as_table();
    StudyRow row;
    GW_TRY(read_text(source, table, "name", row.name));
    GW_TRY(read_text(source, table, "compressor", row.compressor));
    GW_TRY(read_text(source, table, "setting", row.setting));
    if (row.compressor.empty()) return source.error(node, "a [[row]] needs a compressor");
    GW_TRY(check_value(source, *table.get("compressor"), "compressor", row.compressor));
    if (const toml::node* ranks = table.get("ranks"); ranks != nullptr) {
      GW_ASSIGN(row.ranks, number_of_ranks(source, "ranks", *ranks));
    }
    GW_TRY(read_flags(source, table, {"name", "compressor", "setting", "ranks"}, row.overrides));
    study.rows.push_back(std::move(row));
  }
  return {};
}

Result<AcceptRule> read_rule(const Source& source, const toml::table& table) {
  static const std::set<std::string> known{"text",   "row",      "minus",  "setting",
                                           "metric", "at_least", "at_most"};
  for (const auto& [key, value] : table) {
    if (known.count(std::string(key.str())) != 0) continue;
    const std::string name(key.str());
    const std::vector<std::string> expected(known.begin(), known.end());
    return source.error(value, "unknown key '" + name + "'" + did_you_mean(name, expected) +
                                   " (expected one of " + joined(expected) + ")");
  }
  AcceptRule rule;
  GW_TRY(read_text(source, table, "text", rule.text));
  GW_TRY(read_text(source, table, "row", rule.row));
  GW_TRY(read_text(source, table, "minus", rule.minus));
  GW_TRY(read_text(source, table, "setting", rule.setting));
  GW_TRY(read_text(source, table, "metric", rule.metric));
  GW_TRY(read_bound(source, table, "at_least", rule.at_least));
  GW_TRY(read_bound(source, table, "at_most", rule.at_most));
  return rule;
}

Status read_accept(const Source& source, const toml::table& root, Study& study) {
  GW_ASSIGN(const toml::array* list, tables_of(source, root, "accept"));
  if (list == nullptr) return {};
  for (const toml::node& node : *list) {
    GW_ASSIGN(AcceptRule rule, read_rule(source, *node.as_table()));
    study.accept.push_back(std::move(rule));
  }
  return {};
}

Status read_ranks(const Source& source, const std::string& key, const toml::node& node,
                  Study& study) {
  GW_ASSIGN(study.ranks, number_of_ranks(source, key, node));
  if (key == "inproc") study.transport = "inproc";
  return {};
}

// Of keys at the top each says how many ranks there are, or what they are.
Status check_ranks(const Source& source, const toml::table& root) {
  GW_TRY(check_apart(source, root, "ranks", "inproc"));
  const toml::node* transport = root.get("transport");
  const bool threads = transport == nullptr || transport->value_or(std::string()) == "inproc";
  return threads ? Status() : check_apart(source, root, "inproc", "transport");
}

Status read_top(const Source& source, const toml::table& root, Study& study) {
  GW_TRY(check_ranks(source, root));
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    if (name == "seeds") {
      GW_TRY(read_seeds(source, node, study));
    } else if (name == "ranks" || name == "inproc") {
      GW_TRY(read_ranks(source, name, node, study));
    } else if (name == "target") {
      const auto value = node.value<double>();
      if (!value) return source.error(node, "key 'target' is not a number");
      if (!(*value >= 0 && *value <= 100))
        return source.error(node, format("key 'target' must be 0 to 100 percent (got %g)", *value));
      study.target = *value;
    } else if (name == "train" || name == "grid") {
      if (!node.is_table()) return source.error(node, "'" + name + "' is written [" + name + "]");
      GW_TRY(name == "train" ? read_flags(source, *node.as_table(), {}, study.train)
                             : read_grid(source, *node.as_table(), study));
    } else if (name == "title" || name == "expected" || name == "baseline" || name == "transport" ||
               name == "lab") {
      std::string& text = name == "title"      ? study.title
                          : name == "expected" ? study.expected
                          : name == "baseline" ? study.baseline
                          : name == "lab"      ? study.lab
                                               : study.transport;
      GW_TRY(read_text(source, root, name, text));
    } else if (name != "row" && name != "accept") {
      const std::vector<std::string> known{"title", "expected", "target",    "ranks", "inproc",
                                           "lab",   "seeds",    "transport", "train", "baseline",
                                           "grid",  "row",      "accept"};
      return source.error(node, "unknown key '" + name + "'" + did_you_mean(name, known) +
                                    " (expected title, expected, target, ranks, inproc, transport, "
                                    "lab, seeds, baseline, [train], [grid], [[row]], [[accept]])");
    }
  }
  return {};
}

}  // namespace

Result<Study> load_study(const std::string& path) {
  const Source source{path};
  GW_ASSIGN(const std::string text, gradwire::read_text(path));
  toml::table root;
  try {  // toml++ reports by exception; nothing leaves this function that way
    root = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return Status(Code::kInvalidArgument, format("%s, line %u: %s", path.c_str(),
                                                 static_cast<unsigned>(error.source().begin.line),
                                                 std::string(error.description()).c_str()));
  }
  Study study;
  GW_TRY(read_top(source, root, study));
  GW_TRY(read_rows(source, root, study));
  GW_TRY(read_accept(source, root, study));
  return study;
}

}  // namespace gradwire
