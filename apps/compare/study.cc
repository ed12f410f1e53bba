#include "apps/compare/study.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>

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

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

Result<std::string> as_text(const Source& source, std::string_view key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return shortest(number->get());
  if (const auto* truth = node.as_boolean()) return std::string(truth->get() ? "true" : "false");
  return source.error(node, "key '" + std::string(key) +
                                "' holds a table or list (a string, number or boolean wanted)");
}

Status read_flags(const Source& source, const toml::table& table,
                  const std::set<std::string>& own_keys, TrainFlags& flags) {
  const auto& known = study_train_flags();
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (own_keys.count(name) != 0) continue;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::vector<std::string> wanted(own_keys.begin(), own_keys.end());
      wanted.insert(wanted.end(), known.begin(), known.end());
      return source.error(node, "unknown key '" + name + "' (" + joined(wanted) + " wanted)");
    }
    GW_ASSIGN(flags[name], as_text(source, name, node));
  }
  return {};
}

Status read_text(const Source& source, const toml::table& table, std::string_view key,
                 std::string& out) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return {};
  if (!node->is_string()) return source.error(*node, "key '" + std::string(key) + "' is no string");
  out = node->as_string()->get();
  return {};
}

Status read_bound(const Source& source, const toml::table& table, std::string_view key,
                  double& out) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return {};
  const auto value = node->value<double>();
  if (!value) return source.error(*node, "key '" + std::string(key) + "' is no number");
  out = *value;
  return {};
}

Status read_seeds(const Source& source, const toml::node& node, Study& study) {
  const auto add = [&](const toml::node& item) -> Status {
    const auto* number = item.as_integer();
    if (number == nullptr || number->get() < 0)
      return source.error(item, "a seed is a whole number from 0 on");
    const auto seed = static_cast<std::uint64_t>(number->get());
    if (std::find(study.seeds.begin(), study.seeds.end(), seed) != study.seeds.end())
      return source.error(item, "seed " + std::to_string(seed) + " is there already");
    study.seeds.push_back(seed);
    return {};
  };
  if (const auto* count = node.as_integer()) {
    if (count->get() < 1 || count->get() > kMostSeeds)
      return source.error(node, "key 'seeds' is no number of runs (1 to 1000 wanted)");
    for (std::int64_t seed = 1; seed <= count->get(); ++seed)
      study.seeds.push_back(static_cast<std::uint64_t>(seed));
    return {};
  }
  const auto* list = node.as_array();
  if (list == nullptr)
    return source.error(node, "key 'seeds' is neither a count nor a list of seeds");
  if (list->empty()) return source.error(node, "key 'seeds' lists none");
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

Status read_rows(const Source& source, const toml::table& root, Study& study) {
  GW_ASSIGN(const toml::array* list, tables_of(source, root, "row"));
  if (list == nullptr) return {};
  for (const toml::node& node : *list) {
    const toml::table& table = *node.as_table();
    StudyRow row;
    GW_TRY(read_text(source, table, "name", row.name));
    GW_TRY(read_text(source, table, "compressor", row.compressor));
    if (row.compressor.empty()) return source.error(node, "a [[row]] needs a compressor");
    GW_TRY(read_flags(source, table, {"name", "compressor"}, row.overrides));
    study.rows.push_back(std::move(row));
  }
  return {};
}

Status read_accept(const Source& source, const toml::table& root, Study& study) {
  GW_ASSIGN(const toml::array* list, tables_of(source, root, "accept"));
  if (list == nullptr) return {};
  for (const toml::node& node : *list) {
    const toml::table& table = *node.as_table();
    for (const auto& [key, value] : table) {
      const std::string_view name = key.str();
      if (name != "text" && name != "row" && name != "minus" && name != "at_least" &&
          name != "at_most") {
        return source.error(value, "unknown key '" + std::string(name) +
                                       "' (text, row, minus, at_least, at_most wanted)");
      }
    }
    AcceptRule rule;
    GW_TRY(read_text(source, table, "text", rule.text));
    GW_TRY(read_text(source, table, "row", rule.row));
    GW_TRY(read_text(source, table, "minus", rule.minus));
    GW_TRY(read_bound(source, table, "at_least", rule.at_least));
    GW_TRY(read_bound(source, table, "at_most", rule.at_most));
    study.accept.push_back(std::move(rule));
  }
  return {};
}

Status read_top(const Source& source, const toml::table& root, Study& study) {
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    if (name == "seeds") {
      GW_TRY(read_seeds(source, node, study));
    } else if (name == "ranks" || name == "inproc") {
      const auto* number = node.as_integer();
      if (number == nullptr || number->get() < 1 || number->get() > 4096) {
        return source.error(node, "key '" + name + "' is no number of ranks (1 to 4096 wanted)");
      }
      study.ranks = static_cast<int>(number->get());
      study.inproc = name == "inproc";
    } else if (name == "train") {
      if (!node.is_table()) return source.error(node, "'train' is written [train]");
      GW_TRY(read_flags(source, *node.as_table(), {}, study.train));
    } else if (name != "title" && name != "baseline" && name != "row" && name != "accept") {
      return source.error(
          node,
          "unknown key '" + name +
              "' (title, ranks, inproc, seeds, baseline, [train], [[row]], [[accept]] wanted)");
    }
  }
  return {};
}

Status check_rule(const Study& study, const AcceptRule& rule) {
  const auto known = [&study](const std::string& name) {
    return std::any_of(study.rows.begin(), study.rows.end(),
                       [&](const StudyRow& row) { return row.name == name; });
  };
  if (!known(rule.row))
    return {Code::kInvalidArgument, "accept: there is no row '" + rule.row + "'"};
  if (!rule.minus.empty() && !known(rule.minus))
    return {Code::kInvalidArgument, "accept: there is no row '" + rule.minus + "'"};
  if (std::isinf(rule.at_least) && std::isinf(rule.at_most))
    return {Code::kInvalidArgument, "accept: the rule about row '" + rule.row +
                                        "' accepts anything (at_least or at_most wanted)"};
  return {};
}

}  // namespace

const std::vector<std::string>& study_train_flags() {
  static const std::vector<std::string> flags{
      "model",       "data",        "data-dir",    "steps",       "epochs",
      "batch",       "hidden",      "lr",          "momentum",    "momentum-at",
      "lr-schedule", "eval-every",  "shuffle",     "algorithm",   "bucket-bytes",
      "deadline",    "check-every", "load-params", "allow-unsafe"};
  return flags;
}

Result<Study> load_study(const std::string& path) {
  const Source source{path};
  toml::table root;
  try {  // toml++ reports by exception; nothing leaves this function that way
    root = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    return Status(Code::kInvalidArgument, format("%s, line %u: %s", path.c_str(),
                                                 static_cast<unsigned>(error.source().begin.line),
                                                 std::string(error.description()).c_str()));
  }
  Study study;
  GW_TRY(read_text(source, root, "title", study.title));
  GW_TRY(read_text(source, root, "baseline", study.baseline));
  GW_TRY(read_top(source, root, study));
  GW_TRY(read_rows(source, root, study));
  GW_TRY(read_accept(source, root, study));
  return study;
}

Status complete_study(Study& study) {
  if (study.rows.empty())
    return {Code::kInvalidArgument,
            "compare: nothing to compare (--compressors or [[row]] wanted)"};
  if (study.seeds.empty()) study.seeds = {1};
  std::set<std::string> names;
  for (StudyRow& row : study.rows) {
    if (row.name.empty()) row.name = row.compressor;
    if (!names.insert(row.name).second)
      return {Code::kInvalidArgument, "compare: two rows are named '" + row.name + "'"};
  }
  if (study.baseline.empty()) {
    const auto dense = std::find_if(study.rows.begin(), study.rows.end(),
                                    [](const StudyRow& row) { return row.compressor == "none"; });
    study.baseline = dense == study.rows.end() ? study.rows.front().name : dense->name;
  }
  if (names.count(study.baseline) == 0) {
    return {Code::kInvalidArgument, "compare: the baseline '" + study.baseline + "' is no row"};
  }
  for (const AcceptRule& rule : study.accept) GW_TRY(check_rule(study, rule));
  return {};
}

}  // namespace gradwire
