// Types of values inside of bodies, and what is known of them outside.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/graph/schema.h"

namespace ort {

// Inference inside a body: symbols that are made there mean nothing outside.
class Inside {
 public:
  Inside(InferContext& c, Graph& body) : c_(c), body_(body) {}

  size_t captures() const { return static_cast<size_t>(c_.attrs().i("captures", 0)); }
  size_t own() const { return body_.inputs().size() - captures(); }  // inputs before the captures
  Value input(size_t i) const { return body_.value(body_.inputs()[i]); }
  Value output(size_t i) const { return body_.value(body_.outputs()[i].value); }
  size_t outputs() const { return body_.outputs().size(); }

  void take_captures();  // the node's last inputs are the body's
  void set_input(size_t i, Type type);
  void infer() { body_.infer(); }
  // The type as the graph around it knows it: sizes made inside are fresh ones.
  Type outside(const Type& type) const;

 private:
  bool known_outside(const Dim& dim) const;

  InferContext& c_;
  Graph& body_;
};

// The type that two can both be, where an optional may be what it holds: sizes that differ are
// fresh, ranks that differ unknown. Nothing where they are of different kinds or dtypes.
std::optional<Type> joined(const Type& a, const Type& b, const std::function<Dim()>& fresh);

// What is taken out of a sequence or an optional. Items differ in their sizes, so a symbol in the
// type of what holds them is the size of none: each that is taken out has its own.
Type item_of(InferContext& c, const Type& holder);

// States of a loop: their types before any trip hold for every trip, once what a trip changes is
// open: a fresh size, an unknown rank.
class States {
 public:
  States(InferContext& c, Graph& body, size_t first_input, size_t first_body_input, size_t count,
         size_t first_output);
  void settle();
  // What is left of state i, outside.
  Type type(size_t i) const { return inside_.outside(types_[i]); }

 private:
  bool open(size_t i);
  bool take(Type& type, const Type& together);

  InferContext& c_;
  Graph& body_;
  Inside inside_;
  size_t first_, count_, first_output_;
  std::vector<Type> types_;
  std::set<std::string> opened_;
};

}  // namespace ort
