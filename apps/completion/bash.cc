#include "apps/completion/completion.h"

namespace gradwire {
namespace {

// Before the generated functions: _gradwire_parts PATH, _gradwire_flags PATH, _gradwire_values
// PATH FLAG (or PATH "" for arguments), which print words, @file or @folder.
constexpr const char* kBashHead =
    "# bash completion for gradwire, printed by: gradwire completion bash\n"
    "\n";

constexpr const char* kBashTail = R"bash(
_gradwire() {
  local cur prev path='' word parts flag='' reply i
  COMPREPLY=()
  cur=${COMP_WORDS[COMP_CWORD]}
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -- ]]; then
      COMPREPLY=($(compgen -c -- "$cur"))
      return
    fi
    parts=" $(_gradwire_parts "$path") "
    [[ $parts == *" $word "* ]] && path="${path:+$path }$word"
  done
  prev=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $cur == = ]]; then
    flag=$prev cur=''
  elif [[ $prev == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $prev == --* ]]; then
    flag=$prev
  fi
  reply=''
  [[ -n $flag ]] && reply=$(_gradwire_values "$path" "$flag")
  if [[ -z $reply && $cur == -* ]]; then
    reply=$(_gradwire_flags "$path")
  elif [[ -z $reply ]]; then
    reply="$(_gradwire_parts "$path") $(_gradwire_values "$path" '')"
  fi
  case $reply in
    *@file*) COMPREPLY=($(compgen -f -- "$cur")) ;;
    *@folder*) COMPREPLY=($(compgen -d -- "$cur")) ;;
    *@any*) ;;
    *) COMPREPLY=($(compgen -W "$reply" -- "$cur")) ;;
  esac
}
complete -o bashdefault -o default -F _gradwire gradwire
)bash";

std::string case_line(const std::string& key, const std::string& words) {
  return "    '" + key + "') echo '" + words + "' ;;\n";
}

std::string bash_words(const FlagFacts& flag) {
  std::string words;
  for (const std::string& value : flag.values) words += (words.empty() ? "" : " ") + value;
  if (!words.empty()) return words;
  const std::string& what = flag.is_positional ? flag.name : flag.placeholder;
  if (what == "DIR") return "@folder";
  return what == "FILE" || what == "STUDY.toml" ? "@file" : flag.is_positional ? "" : "@any";
}

}  // namespace

std::string bash_completion(const std::vector<CommandEntry>& tree) {
  std::string parts = "_gradwire_parts() {\n  case $1 in\n";
  std::string flags = "_gradwire_flags() {\n  case $1 in\n";
  std::string values = "_gradwire_values() {\n  case \"$1 $2\" in\n";
  for (const CommandEntry& entry : tree) {
    std::string names;
    for (const auto& [name, help] : entry.parts) names += (names.empty() ? "" : " ") + name;
    if (!names.empty()) parts += case_line(entry.path, names);
    std::string own = "--help";
    std::string arguments;
    for (const FlagFacts& flag : entry.facts.flags) {
      const std::string words = flag.is_toggle ? "" : bash_words(flag);
      if (flag.is_positional) {
        arguments += (arguments.empty() || words.empty() ? "" : " ") + words;
        continue;
      }
      own += " --" + flag.name;
      if (!words.empty() && !flag.has_optional_value) {
        values += case_line(entry.path + " --" + flag.name, words);
      }
    }
    flags += case_line(entry.path, own);
    if (!arguments.empty()) values += case_line(entry.path + " ", arguments);
  }
  const std::string end = "  esac\n}\n";
  return kBashHead + parts + end + flags + end + values + end + kBashTail;
}

}  // namespace gradwire
