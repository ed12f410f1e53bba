#include "apps/help_text.h"

#include <algorithm>

#include "apps/flag_values.h"

namespace gradwire {
namespace {

constexpr std::size_t kColumn = 30;         // where the help of a flag begins
constexpr std::size_t kInlineChoices = 24;  // as many characters of choices fit beside the flag

bool choices_fit(const FlagFacts& flag) {
  return list_text(flag.values, "|").size() <= kInlineChoices;
}

// "--model NAME", "--init a|b", "--json [FILE]"
std::string head_of(const FlagFacts& flag) {
  if (flag.is_positional) return flag.name;
  std::string text = "--" + flag.name;
  if (flag.is_toggle) return text;
  if (flag.has_optional_value) return text + " [" + flag.placeholder + "]";
  if (flag.values.empty() || !choices_fit(flag)) return text + " " + flag.placeholder;
  return text + " " + list_text(flag.values, "|");
}

std::string row(const std::string& head, const std::string& help) {
  std::string line = "  " + head;
  if (line.size() + 2 > kColumn) {
    line += "\n" + std::string(kColumn, ' ');
  } else {
    line += std::string(kColumn - line.size(), ' ');
  }
  return line + wrapped(help, kColumn) + "\n";
}

std::string row_of(const FlagFacts& flag) {
  std::string help = flag.help;
  if (!flag.values.empty() && !choices_fit(flag)) help += "; one of " + list_text(flag.values);
  if (!flag.default_text.empty()) help += " [" + flag.default_text + "]";
  return row(head_of(flag), help);
}

std::vector<std::string> groups_of(const CommandFacts& facts) {
  std::vector<std::string> groups;
  for (const FlagFacts& flag : facts.flags) {
    if (flag.is_positional || std::ranges::find(groups, flag.group) != groups.end()) continue;
    groups.push_back(flag.group);
  }
  return groups;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string all;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    if (!all.empty() && all.back() != '\n' && all.back() != ' ') {
      const bool fits = column + 1 + word.size() <= width;
      all += fits ? " " : "\n" + std::string(indent, ' ');
      column = fits ? column + 1 : indent;
    }
    all += word;
    column += word.size();
    const bool line_end = end < text.size() && text[end] == '\n';
    if (line_end) {
      all += "\n" + std::string(indent, ' ');
      column = indent;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

std::string usage_line(const CommandFacts& facts) {
  std::string line = "usage: gradwire " + facts.command;
  bool has_flags = false;
  for (const FlagFacts& flag : facts.flags) {
    if (flag.is_positional) line += flag.is_optional ? " [" + flag.name + "]" : " " + flag.name;
    has_flags = has_flags || !flag.is_positional;
  }
  if (has_flags) line += " [flags]";
  return line + (facts.trailer.empty() ? "" : " " + facts.trailer);
}

std::string help_text(const CommandFacts& facts) {
  std::string text = usage_line(facts) + "\n\n" + wrapped(facts.purpose, 0) + "\n";
  bool has_arguments = false;
  for (const FlagFacts& flag : facts.flags) {
    if (!flag.is_positional) continue;
    if (!has_arguments) text += "\nArguments:\n";
    has_arguments = true;
    text += row_of(flag);
  }
  for (const std::string& group : groups_of(facts)) {
    text += "\n" + group + ":\n";
    for (const FlagFacts& flag : facts.flags) {
      if (!flag.is_positional && flag.group == group) text += row_of(flag);
    }
  }
  text += "\n" + row("--help", "print this help and exit");
  if (facts.examples.empty()) return text;
  text += facts.examples.size() == 1 ? "\nExample:\n" : "\nExamples:\n";
  for (const std::string& example : facts.examples) text += "  " + example + "\n";
  return text;
}

}  // namespace gradwire
