// Recipes of `gradwire inspect nmse` as JSON.
#pragma once

#include <string_view>

#include "bench/nmse.h"

namespace gradwire {

// Errors name the row, the key, the value seen and the value wanted.
Result<NmseRecipe> parse_nmse_recipe(std::string_view text);

}  // namespace gradwire
