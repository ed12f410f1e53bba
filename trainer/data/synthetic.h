// Data that needs no file: the same on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/data/data_set.h"

namespace gradwire {

// Ten classes of 64 features around ten centres, far enough from one another that lines divide
// them: 4,096 samples to train, 1,024 to test.
DataSet make_separable();

// Two classes of 1,000 features, of which ten are 1 and the rest 0; the label is the sign of their
// summed weights, drawn once, wrong for one sample in twenty. 4,096 samples to train, 1,024 to
// test. Gradients of a linear model touch what its samples have.
// Source: the setting of Niu, Recht, Re, Wright, "Hogwild!", NeurIPS 2011, section 2 (sparse).
DataSet make_sparse();

// `sentences` lines of a small grammar: subject, verb that agrees with it, object; learnt within a
// few hundred steps, and never perfectly.
std::string grammar_text(std::int64_t sentences);

}  // namespace gradwire
