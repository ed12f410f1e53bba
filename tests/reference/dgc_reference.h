// One rank's loop of deep gradient compression, element by element, exact selection.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/reference/topk_reference.h"

namespace gradwire::testing {

template <typename T>
class DgcReference {
 public:
  struct Rules {
    T momentum = static_cast<T>(0.9);
    bool nesterov = false;
    bool masking = true;
  };

  DgcReference(std::size_t elems, Rules rules) : rules_(rules), u(elems), v(elems) {}

  // What is sent of `grad`, zeros elsewhere.
  std::vector<T> step(const std::vector<T>& grad, std::size_t k) {
    for (std::size_t i = 0; i < grad.size(); ++i) {
      if (rules_.nesterov) {
        u[i] = rules_.momentum * (u[i] + grad[i]);
        v[i] = v[i] + u[i] + grad[i];
      } else {
        u[i] = rules_.momentum * u[i] + grad[i];
        v[i] = v[i] + u[i];
      }
    }
    std::vector<T> sent(grad.size());
    for (const std::size_t i : topk_reference<T>(v, k)) {
      sent[i] = v[i];
      v[i] = 0;
      if (rules_.masking) u[i] = 0;
    }
    return sent;
  }

 private:
  Rules rules_;

 public:
  std::vector<T> u;
  std::vector<T> v;
};

}  // namespace gradwire::testing
