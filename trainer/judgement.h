// How well parameters do on some samples.
#pragma once

#include <cstdint>

namespace gradwire {

struct Judgement {
  std::int64_t labels = 0;
  std::int64_t correct = 0;  // labels that are the first largest output
  double loss = 0;           // sum over labels
};

}  // namespace gradwire
