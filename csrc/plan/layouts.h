// In which layout each value is made. A kernel is prepared after those that make what it reads: it
// sees how that lies, takes it or asks for another layout, and says how its own results lie.
#pragma once

#include <set>

#include "csrc/plan/values.h"

namespace ort {

class Layouts {
 public:
  Layouts(const LoweredGraph& lowered, const BoundValues& values);

  // The operands of a claim. A result may lie otherwise than row-major where a reader could take
  // it.
  Binding binding(const Claim& claim) const;
  void made(const Claim& claim, const Kernel& kernel);

 private:
  bool may_move(ValueId id) const;

  const BoundValues& values_;
  const bool on_;
  std::set<ValueId> taken_;  // by a kernel that may take it in another layout
  struct Made {
    Layout layout;
    Device device;  // a copy on another one is row-major
  };
  std::map<ValueId, Made> made_;  // what is not row-major
};

}  // namespace ort
