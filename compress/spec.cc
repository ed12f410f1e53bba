// The spec grammar of registry.h. Errors quote the text with a caret under the offending column.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

#include "compress/size_range.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_identifier(std::string_view text) {
  if (text.empty() || !is_lower(text[0])) return false;
  for (const char c : text) {
    if (!is_lower(c) && !is_digit(c) && c != '_') return false;
  }
  return true;
}
bool is_glob_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._-/*?").find(c) != std::string_view::npos;
}

// A piece of the whole text that remembers where it stands.
struct Piece {
  std::string_view whole;
  std::size_t begin;
  std::size_t end;
  std::string_view text() const { return whole.substr(begin, end - begin); }
  Piece trimmed() const {
    Piece p = *this;
    while (p.begin < p.end && is_blank(whole[p.begin])) ++p.begin;
    while (p.end > p.begin && is_blank(whole[p.end - 1])) --p.end;
    return p;
  }
  Piece part(std::size_t from, std::size_t to) const { return {whole, begin + from, begin + to}; }
};

Status error_at(const Piece& piece, const std::string& what) {
  return {Code::kInvalidArgument,
          what + "\n  " + std::string(piece.whole) + "\n  " + std::string(piece.begin, ' ') + "^"};
}

// Splits at `separator`, outside [ ] when `brackets`.
std::vector<Piece> split(const Piece& piece, char separator, bool brackets = false) {
  std::vector<Piece> parts;
  std::size_t begin = piece.begin;
  int depth = 0;
  for (std::size_t i = piece.begin; i <= piece.end; ++i) {
    if (i < piece.end && brackets && piece.whole[i] == '[') ++depth;
    if (i < piece.end && brackets && piece.whole[i] == ']') --depth;
    if (i == piece.end || (piece.whole[i] == separator && depth == 0)) {
      parts.push_back(Piece{piece.whole, begin, i}.trimmed());
      begin = i + 1;
    }
  }
  return parts;
}

Status parse_arg(const Piece& arg, Spec& spec) {
  const std::string_view text = arg.text();
  const std::size_t equals = text.find('=');
  std::string key;
  Piece value = arg;
  if (equals != std::string_view::npos) {
    const Piece name = arg.part(0, equals).trimmed();
    key = std::string(name.text());
    if (!is_identifier(key))
      return error_at(name, "spec: '" + key + "' is no key (expected [a-z][a-z0-9_]*)");
    value = arg.part(equals + 1, text.size()).trimmed();
  }
  if (value.text().empty()) return error_at(value, "spec: a value is missing");
  for (std::size_t i = value.begin; i < value.end; ++i) {
    const char c = value.whole[i];
    if (std::string_view(",|;[]=").find(c) != std::string_view::npos || is_blank(c)) {
      return error_at({value.whole, i, i + 1},
                      std::string("spec: '") + c + "' cannot stand in a value");
    }
  }
  for (const auto& [seen, unused] : spec.params) {
    if (seen == key) {
      return error_at(arg, key.empty() ? "spec: only one bare value may be given"
                                       : "spec: key '" + key + "' is given twice");
    }
  }
  spec.params.emplace_back(std::move(key), std::string(value.text()));
  return {};
}

Result<SpecChain> parse_chain(const Piece& piece) {
  SpecChain chain;
  for (const Piece& stage : split(piece, '|')) {
    const std::size_t colon = stage.text().find(':');
    const Piece name =
        stage.part(0, colon == std::string_view::npos ? stage.text().size() : colon).trimmed();
    Spec spec{std::string(name.text()), {}};
    if (!is_identifier(spec.name)) {
      return error_at(name, spec.name.empty()
                                ? "spec: a method's name is missing"
                                : "spec: '" + spec.name +
                                      "' is no method's name (expected [a-z][a-z0-9_]*)" +
                                      (spec.name.find(',') == std::string::npos
                                           ? ""
                                           : "; ';' separates compressors, ',' the keys of one"));
    }
    if (colon != std::string_view::npos) {
      for (const Piece& arg : split(stage.part(colon + 1, stage.text().size()), ',')) {
        GW_TRY(parse_arg(arg, spec));
      }
    }
    chain.push_back(std::move(spec));
  }
  return chain;
}

// What stands before a rule's "=".
Status parse_which(const Piece& which, SpecRule& rule) {
  const std::size_t at = std::min(which.text().find('@'), which.text().size());
  const Piece glob = which.part(0, at).trimmed();
  if (which.text().empty()) return error_at(glob, "spec: a pattern is missing before '='");
  for (std::size_t i = glob.begin; i < glob.end; ++i) {
    if (!is_glob_char(glob.whole[i])) {
      return error_at({glob.whole, i, i + 1},
                      "spec: a pattern holds letters, digits and . _ - / * ? only");
    }
  }
  if (!glob.text().empty()) rule.glob = std::string(glob.text());
  if (at == which.text().size()) return {};
  const Piece sizes = which.part(at + 1, which.text().size()).trimmed();
  const Result<SizeRange> range = parse_size_range(sizes.text());
  if (!range.has_value()) return error_at(sizes, "spec: " + std::string(range.error().message()));
  rule.sizes = range.value();
  return {};
}

Result<std::vector<SpecRule>> parse_rules(const Piece& piece) {
  std::vector<SpecRule> rules;
  for (const Piece& text : split(piece, ';')) {
    const std::size_t equals = text.text().find('=');
    const std::size_t colon = text.text().find(':');
    SpecRule rule{.glob = "*", .spec = {}};
    Piece spec = text;
    if (equals != std::string_view::npos && (colon == std::string_view::npos || equals < colon)) {
      GW_TRY(parse_which(text.part(0, equals).trimmed(), rule));
      spec = text.part(equals + 1, text.text().size()).trimmed();
    }
    GW_ASSIGN(rule.spec, parse_chain(spec));
    rules.push_back(std::move(rule));
  }
  return rules;
}

// "ef=ef14", which would be a rule for the parameter of that name.
bool is_lone_key(std::string_view entry) {
  constexpr std::string_view kKeys[] = {"ef",   "combine", "ratio", "k",         "bits",
                                        "rank", "levels",  "seed",  "min_elems", "warmup_steps"};
  const std::string_view key = entry.substr(0, entry.find('='));
  return key.size() < entry.size() && std::ranges::find(kKeys, key) != std::ranges::end(kKeys);
}

Piece whole(std::string_view text) { return Piece{text, 0, text.size()}.trimmed(); }

}  // namespace

Result<SpecChain> parse_spec(std::string_view text) { return parse_chain(whole(text)); }

Result<std::vector<SpecRule>> parse_spec_rules(std::string_view text) {
  return parse_rules(whole(text));
}

Result<std::vector<std::string>> parse_spec_list(std::string_view text) {
  std::vector<std::string> list;
  for (Piece entry : split(whole(text), ';', true)) {
    const std::string_view inner = entry.text();
    if (!inner.empty() && inner.front() == '[') {
      if (inner.back() != ']') return error_at(entry, "spec: '[' has no ']'");
      entry = entry.part(1, inner.size() - 1).trimmed();
    }
    if (entry.text().data() == inner.data() && is_lone_key(inner))
      return error_at(entry, "spec: '" + std::string(inner) +
                                 "' is no compressor, but the key of " +
                                 "one: ',' separates keys (topk:ratio=0.01,ef=ef14), ';' "
                                 "compressors");
    auto rules = parse_rules(entry);
    if (!rules.has_value()) return rules.error();
    list.emplace_back(entry.text());
  }
  return list;
}

std::string to_string(const Spec& spec) {
  std::string text = spec.name;
  for (std::size_t i = 0; i < spec.params.size(); ++i) {
    const auto& [key, value] = spec.params[i];
    text += i == 0 ? ":" : ",";
    if (!key.empty()) text += key + "=";
    text += value;
  }
  return text;
}

std::string to_string(const SpecChain& chain) {
  std::string text;
  for (const Spec& spec : chain) text += (text.empty() ? "" : "|") + to_string(spec);
  return text;
}

std::string to_string(const SpecRule& rule) {
  return rule.glob + to_string(rule.sizes) + "=" + to_string(rule.spec);
}

bool glob_matches(std::string_view glob, std::string_view name) {
  std::size_t g = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t mark = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      mark = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace gradwire
