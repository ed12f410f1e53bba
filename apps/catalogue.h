// The models and data sets that `gradwire train` takes, one line each.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gradwire {

struct CatalogueEntry {
  std::string name;
  std::string help;
  bool is_there = true;  // a data set whose files were found
};

// All of model_names() and data_set_names(), in their order.
std::vector<CatalogueEntry> model_catalogue();
std::vector<CatalogueEntry> data_catalogue();

// As a table for people, and as JSON lines {"kind": "model", "name": ..., "help": ...}.
std::string model_list();
std::string data_list();
std::string model_json_lines();
std::string data_json_lines();

}  // namespace gradwire
