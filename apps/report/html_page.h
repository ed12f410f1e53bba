// Self-contained HTML pages out of templates with @@marks@@.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace gradwire {

// Text as HTML shows it.
std::string escaped(const std::string& text);

// For a script element.
std::string script_json(const nlohmann::ordered_json& value);

// `page` with every @@name@@ of `values` replaced.
std::string filled(const std::string& page, const std::map<std::string, std::string>& values);

// A specification as HTML that may break after a comma, colon or semicolon.
std::string breakable(const std::string& name);

// Opens a box that scrolls where its table is wider than the screen, by keyboard too.
std::string scroll_box();

}  // namespace gradwire
