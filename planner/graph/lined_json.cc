#include "planner/graph/lined_json.h"

#include <cctype>
#include <cstddef>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace gradwire {
namespace {

// The characters of a text; counts the line of the last one that is no blank. The parser reads one
// character beyond a number, which may be the end of its line.
class CountingCharacters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  struct Lines {
    int current = 1;
    int of_last = 1;
  };

  explicit CountingCharacters(const char* at) : at_(at) {}
  CountingCharacters(const char* at, Lines* lines) : at_(at), lines_(lines) {}
  reference operator*() const { return *at_; }
  CountingCharacters& operator++() {
    if (*at_ == '\n') {
      ++lines_->current;
    } else if (std::isspace(static_cast<unsigned char>(*at_)) == 0) {
      lines_->of_last = lines_->current;
    }
    ++at_;
    return *this;
  }
  CountingCharacters operator++(int) {
    const CountingCharacters before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingCharacters& a, const CountingCharacters& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingCharacters& a, const CountingCharacters& b) {
    return !(a == b);
  }

 private:
  const char* at_;
  Lines* lines_ = nullptr;
};

// Builds the tree. Functions answer whether to go on; their names are the parser's.
class LinedBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  LinedBuilder(const CountingCharacters::Lines& lines, std::string name)
      : lines_(lines), name_(std::move(name)) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override {
    LinedJson one;
    one.kind = LinedJson::Kind::kFlag;
    one.flag = value;
    return add(std::move(one));
  }
  bool number_integer(number_integer_t value) override {
    LinedJson one;
    one.kind = LinedJson::Kind::kInteger;
    one.integer = value;
    one.number = static_cast<double>(value);
    return add(std::move(one));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail(format("%llu is out of range (expected less than 2^63)",
                         static_cast<unsigned long long>(value)));
    }
    return number_integer(static_cast<number_integer_t>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    LinedJson one;
    one.kind = LinedJson::Kind::kNumber;
    one.number = value;
    return add(std::move(one));
  }
  bool string(string_t& value) override {
    LinedJson one;
    one.kind = LinedJson::Kind::kText;
    one.text = value;
    return add(std::move(one));
  }
  bool binary(binary_t& /*value*/) override { return fail("binary data (expected text)"); }
  bool start_object(std::size_t /*elements*/) override { return open(LinedJson::Kind::kObject); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*elements*/) override { return open(LinedJson::Kind::kArray); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (open_.back().find(value) != nullptr) {
      return fail("'" + value + "' stands twice (expected once)");
    }
    keys_.back() = value;
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& token,
                   const nlohmann::detail::exception& /*error*/) override {
    return fail("not JSON at '" + token + "'");
  }

  Result<LinedJson> finish() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  bool fail(const std::string& what) {
    status_ = Status(Code::kInvalidArgument,
                     format("%s:%d: %s", name_.c_str(), lines_.of_last, what.c_str()));
    return false;
  }
  bool add(LinedJson value) {
    if (value.line == 0) value.line = lines_.of_last;
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().kind == LinedJson::Kind::kObject) {
      open_.back().members.emplace_back(keys_.back(), std::move(value));
    } else {
      open_.back().elements.push_back(std::move(value));
    }
    return true;
  }
  bool open(LinedJson::Kind kind) {
    LinedJson one;
    one.kind = kind;
    one.line = lines_.of_last;
    open_.push_back(std::move(one));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    LinedJson one = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return add(std::move(one));
  }

  const CountingCharacters::Lines& lines_;
  std::string name_;
  Status status_;
  LinedJson root_;
  std::vector<LinedJson> open_;    // arrays and objects that have not ended
  std::vector<std::string> keys_;  // of each the last key
};

}  // namespace

const LinedJson* LinedJson::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<LinedJson> parse_lined_json(const std::string& text, const std::string& name) {
  CountingCharacters::Lines lines;
  LinedBuilder builder(lines, name);
  nlohmann::json::sax_parse(CountingCharacters(text.data(), &lines),
                            CountingCharacters(text.data() + text.size()), &builder);
  return builder.finish();
}

}  // namespace gradwire
