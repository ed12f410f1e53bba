#include "apps/report/html_page.h"

namespace gradwire {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// JSON inside a script element: "</" must not appear.
std::string script_json(const nlohmann::ordered_json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  for (std::size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at + 3))
    text.insert(at + 1, "\\");
  return text;
}

std::string filled(const std::string& page, const std::map<std::string, std::string>& values) {
  // One pass from left to right, so that a value that looks like a mark stays what it is.
  std::string out;
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t mark = page.find("@@", at);
    const std::size_t end = mark == std::string::npos ? mark : page.find("@@", mark + 2);
    if (end == std::string::npos) return out + page.substr(at);
    out += page.substr(at, mark - at);
    const auto value = values.find(page.substr(mark + 2, end - mark - 2));
    out += value == values.end() ? page.substr(mark, end + 2 - mark) : value->second;
    at = end + 2;
  }
  return out;
}

std::string breakable(const std::string& name) {
  std::string html;
  for (const char c : name) {
    html += escaped(std::string(1, c));
    if (c == ',' || c == ':' || c == ';') html += "<wbr>";
  }
  return html;
}

std::string scroll_box() {
  return "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\">";
}

}  // namespace gradwire
