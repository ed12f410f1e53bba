#include "apps/completion/completion.h"

namespace gradwire {
namespace {

constexpr const char* kZshHead =
    "#compdef gradwire\n"
    "# zsh completion for gradwire, printed by: gradwire completion zsh\n"
    "\n";

constexpr const char* kZshTail = R"zsh(
_gradwire() {
  local cur=${words[CURRENT]} prev=${words[CURRENT-1]} command='' word i
  local -a parts flags values reply names
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    if [[ $word == -- ]]; then
      _command_names
      return
    fi
    _gradwire_parts "$command"
    names=("${(@)parts%%:*}")
    (( ${names[(Ie)$word]} )) && command="${command:+$command }$word"
  done
  if [[ $prev == --* ]]; then
    _gradwire_values "$command" "$prev"
    case ${values[1]} in
      @file) _files; return ;;
      @folder) _files -/; return ;;
      @any) return ;;
      ?*) compadd -- "${values[@]}"; return ;;
    esac
  fi
  if [[ $cur == -* ]]; then
    _gradwire_flags "$command"
    _describe flag flags
    return
  fi
  _gradwire_parts "$command"
  (( ${#parts} )) && _describe command parts
  _gradwire_values "$command" ''
  case ${values[1]} in
    @file) _files ;;
    @folder) _files -/ ;;
    ?*) compadd -- "${values[@]}" ;;
  esac
}
if [[ ${funcstack[1]} == _gradwire ]]; then
  _gradwire "$@"
elif (( ${+functions[compdef]} )); then
  compdef _gradwire gradwire
fi
)zsh";

// In single quotes, which zsh ends and begins anew around one.
std::string quoted(const std::string& text) {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

// A name and its help, as _describe wants them: colons in the name are escaped.
std::string described(const std::string& name, const std::string& help) {
  std::string escaped;
  for (const char c : name) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  return quoted(escaped + ":" + help);
}

std::string case_line(const std::string& key, const std::string& array, const std::string& words) {
  return "    " + quoted(key) + ") " + array + "=(" + words + ") ;;\n";
}

std::string zsh_words(const FlagFacts& flag) {
  std::string words;
  for (const std::string& value : flag.values) words += (words.empty() ? "" : " ") + quoted(value);
  if (!words.empty()) return words;
  const std::string& what = flag.is_positional ? flag.name : flag.placeholder;
  if (what == "DIR") return "@folder";
  return what == "FILE" || what == "STUDY.toml" ? "@file" : flag.is_positional ? "" : "@any";
}

}  // namespace

std::string zsh_completion(const std::vector<CommandEntry>& tree) {
  std::string parts = "_gradwire_parts() {\n  parts=()\n  case $1 in\n";
  std::string flags = "_gradwire_flags() {\n  flags=()\n  case $1 in\n";
  std::string values = "_gradwire_values() {\n  values=()\n  case \"$1 $2\" in\n";
  for (const CommandEntry& entry : tree) {
    std::string names;
    for (const auto& [name, help] : entry.parts) {
      names += (names.empty() ? "" : " ") + described(name, help);
    }
    if (!names.empty()) parts += case_line(entry.path, "parts", names);
    std::string own = described("--help", "print this help and exit");
    std::string arguments;
    for (const FlagFacts& flag : entry.facts.flags) {
      const std::string words = flag.is_toggle ? "" : zsh_words(flag);
      if (flag.is_positional) {
        arguments += (arguments.empty() || words.empty() ? "" : " ") + words;
        continue;
      }
      own += " " + described("--" + flag.name, flag.help);
      if (!words.empty() && !flag.has_optional_value) {
        values += case_line(entry.path + " --" + flag.name, "values", words);
      }
    }
    flags += case_line(entry.path, "flags", own);
    if (!arguments.empty()) values += case_line(entry.path + " ", "values", arguments);
  }
  const std::string end = "  esac\n}\n";
  return kZshHead + parts + end + flags + end + values + end + kZshTail;
}

}  // namespace gradwire
