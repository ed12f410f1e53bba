// topk: the k elements of largest magnitude, exactly, with their indices.
//
//   payload := pairs                        compress/sparse/sparse_coding.h
//
// With index=u32 and no second stage: u32{k} value{k}, values in the gradient's own type.
// k = ceil(ratio * elements), at least 1; or k=K, at most the number of elements. Magnitudes
// compare by their bits without the sign, so that infinity is above every number and NaN above
// infinity: a NaN travels first and shows in the mean. Equal magnitudes: the lowest index wins. The
// index type does not depend on the element type; tensors of more than 2^32 elements are refused. A
// second stage codes the values ("topk:ratio=0.01|qsgd:bits=4").
// Source: Aji, Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017;
// Stich, Cordonnier, Jaggi, "Sparsified SGD with memory", NeurIPS 2018 (top-k).
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method topk_method();

}  // namespace gradwire
