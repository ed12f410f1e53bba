// onebit: one bit per element, and for each group the mean of its elements at or above zero and the
// mean of those below: 1-bit SGD.
//
//   onebit                 bucket=4096
//   onebit:bucket=row      a group for each row of a matrix (what lies under one index of the first
//                          dimension: the weights into one neuron); vectors, and rows of fewer than
//                          32 elements, have buckets of 4096
//   onebit:bucket=tensor   one group per slice: the whole tensor, or a rank's chunk under sra
//
// Payload of a slice of m elements; groups start at the slice's start:
//
//   payload := group{m/g}
//   group   := plus minus signs{n/8}     n: the group's elements, g but in the last
//   plus    := element: the mean of the elements >= 0 (0 if there are none), finite and >= 0
//   minus   := element: the mean magnitude of the elements < 0 (0 if there are none), likewise
//   signs   := bit i % 8 of byte i / 8 is 1 where x_i < 0; unused bits are 0
//
// An element decodes to plus or to -minus; a group of zeros decodes to zeros. Sums are made in
// double over 16 lanes, element i of the group in lane i % 16. Elements that are not finite, and
// groups whose magnitudes add up to more than a double or whose mean is more than the element
// holds, are refused.
// Bound: |x - C(x)|^2 = |x|^2 - |x+|_1^2/n+ - |x-|_1^2/n-, a contraction with value 1/n, n elements
// a group. Source: Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient descent and its
// application to data-parallel distributed training of speech DNNs", Interspeech 2014, section 3.1.
// Deviation: buckets.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method onebit_method();

}  // namespace gradwire
