// The data sets by name, and where their files may lie.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "trainer/data/data_set.h"
#include "trainer/data/text.h"

namespace gradwire {

// Folders to look in before the ones that are built in; empty means not given. Each may be the
// set's own folder or the parent of a folder of the set's name.
struct DataPlaces {
  std::string data_dir;         // named by the user for this run
  std::string environment_dir;  // named by the user's environment
};

// How texts are read.
struct DataOptions {
  TextOptions text = {};
  std::string text_file = {};   // of the set `text`
  std::string valid_file = {};  // likewise: what tests; "": the last tenth of text_file
};

// digits: 1,437 + 360 images of 8x8 grey pixels, carried by the project.
// fashion-mnist: 60,000 + 10,000 of 28x28, four IDX files (plain or .gz).
// cifar10-subset: 8,000 + 2,000 of 3x32x32, train_jpeg_8000.bin and test_jpeg_2000.bin (or .gz).
// tinyshakespeare: a text, input.txt (or .gz). text: the one in options.text_file.
// grammar, separable, sparse: made, without a file (synthetic.h).
std::vector<std::string> data_set_names();
// Whether the set of that name is a text, which a gpt reads.
bool is_text_set(std::string_view name);

// The folder that holds all files of the set: the first of data_dir, environment_dir, the source
// tree's data folder and the installed one. kInvalidArgument for an unknown name, or lists every
// folder searched and the files wanted, or says that data_dir is no folder. Empty for a set that
// lies in none.
Result<std::string> find_data_set(std::string_view name, const DataPlaces& places);

// find_data_set(), then reads and checks every file.
Result<DataSet> load_data_set(std::string_view name, const DataPlaces& places,
                              const DataOptions& options = {});

}  // namespace gradwire
