// Checked mode's test of a rewrite: both sides of the rule on random data. Called by the driver.
#pragma once

#include "csrc/passes/rule.h"

namespace ort {

// Evaluates the matched nodes and their replacement on one set of random inputs of the types at
// hand (symbols get small values) and throws, naming rule and nodes, when the values differ. Nodes
// whose first output is `first_new` or later are the replacement's. A "no" says why the sides could
// not be compared. A rule is compared once for the same ops, attributes and types.
Verdict compare_sides(const Rule& rule, const Match& match, Value replacement, ValueId first_new,
                      Evaluator& evaluator);

}  // namespace ort
