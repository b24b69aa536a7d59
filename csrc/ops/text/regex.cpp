// Steps of a regular expression, all that are possible taken at once: Thompson 1968.
#include "csrc/ops/text/regex.h"

#include <algorithm>
#include <map>

#include "csrc/core/error.h"
#include "csrc/ops/text/case.h"
#include "csrc/ops/text/regex_tree.h"

namespace ort::regex {
namespace {

constexpr size_t kMostSteps = 20000, kMostVisits = 10 * kMostSteps;

class Compiler {
 public:
  Compiler(std::vector<Ranges>& sets, std::vector<Step>& steps) : sets_(sets), steps_(steps) {}

  void add(const Part& part) {
    check(++visits_ < kMostVisits, "its repetitions are too many");
    switch (part.kind) {
      case Part::Kind::set:
        step({Step::Kind::set, set_of(part)});
        return;
      case Part::Kind::at:
        step({Step::Kind::at, 0, 0, part.at});
        return;
      case Part::Kind::sequence:
        for (const auto& each : part.parts) add(*each);
        return;
      case Part::Kind::choice:
        return add_choice(part);
      case Part::Kind::repeat:
        return add_repeat(part);
    }
  }

  size_t step(Step next) {
    check(steps_.size() < kMostSteps, "it is too large: more than {} steps", kMostSteps);
    steps_.push_back(next);
    return steps_.size() - 1;
  }

 private:
  void add_choice(const Part& part) {
    std::vector<size_t> ends;
    for (size_t i = 0; i + 1 < part.parts.size(); ++i) {
      const size_t fork = step({Step::Kind::fork});
      steps_[fork].a = steps_.size();
      add(*part.parts[i]);
      ends.push_back(step({Step::Kind::jump}));
      steps_[fork].b = steps_.size();
    }
    add(*part.parts.back());
    for (const size_t end : ends) steps_[end].a = steps_.size();
  }

  void add_repeat(const Part& part) {
    const Part& inner = *part.parts[0];
    for (int i = 0; i < part.least; ++i) add(inner);
    if (part.most < 0) {
      const size_t fork = step({Step::Kind::fork, steps_.size() + 1});
      add(inner);
      step({Step::Kind::jump, fork});
      steps_[fork].b = steps_.size();
      return;
    }
    std::vector<size_t> forks;
    for (int i = part.least; i < part.most; ++i) {
      forks.push_back(step({Step::Kind::fork, steps_.size() + 1}));
      add(inner);
    }
    for (const size_t fork : forks) steps_[fork].b = steps_.size();
  }

  // The same one wherever the part is repeated.
  size_t set_of(const Part& part) {
    const auto [found, added] = known_.emplace(&part, sets_.size());
    if (added) sets_.push_back(part.set);
    return found->second;
  }

  std::vector<Ranges>& sets_;
  std::vector<Step>& steps_;
  std::map<const Part*, size_t> known_;
  size_t visits_ = 0;
};

bool is_word(uint32_t code) {
  return code == '_' || (code < 0x80 && std::isalnum(static_cast<int>(code)));
}

using Codes = std::vector<uint32_t>;

bool holds(At at, const Codes& text, size_t i) {
  const bool begins = i == 0, ends = i == text.size();
  const bool edge = (!begins && is_word(text[i - 1])) != (!ends && is_word(text[i]));
  switch (at) {
    case At::begin:
      return begins;
    case At::end:
      return ends;
    case At::line_begin:
      return begins || text[i - 1] == '\n';
    case At::line_end:
      return ends || text[i] == '\n';
    case At::word_edge:
      return edge;
    case At::no_word_edge:
      return !edge;
  }
  return false;
}

// The steps that the run is at, each once, and where the match began that first came there. Those
// that began first come first.
struct Places {
  std::vector<size_t> list, begins;
  std::vector<size_t> open;  // that enter() has not followed yet
  std::vector<bool> has;
  explicit Places(size_t steps) : has(steps) {}
  void clear() {
    for (const size_t step : list) has[step] = false;
    list.clear();
    begins.clear();
  }
};

// Adds a step and what it leads to without a character.
void enter(const std::vector<Step>& steps, const Codes& text, size_t i, size_t first, size_t begin,
           Places& places) {
  std::vector<size_t>& open = places.open;
  open.push_back(first);
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    if (places.has[at]) continue;
    places.has[at] = true;
    places.list.push_back(at);
    places.begins.push_back(begin);
    const Step& step = steps[at];
    if (step.kind == Step::Kind::jump || step.kind == Step::Kind::fork) open.push_back(step.a);
    if (step.kind == Step::Kind::fork) open.push_back(step.b);
    if (step.kind == Step::Kind::at && holds(step.at, text, i)) open.push_back(at + 1);
  }
}

}  // namespace

Pattern::Pattern(const std::string& pattern) {
  try {
    Compiler compiler(sets_, steps_);
    compiler.add(*parsed(pattern));
    compiler.step({Step::Kind::match});
  } catch (const Error& error) {
    fail("pattern '{}': {}", pattern.substr(0, 100), error.what());
  }
}

bool Pattern::matches(const std::string& text) const {
  const Codes codes = utf8::characters(text);
  Places now(steps_.size()), next(steps_.size());
  enter(steps_, codes, 0, 0, 0, now);
  for (size_t i = 0; i < codes.size() && !now.list.empty(); ++i) {
    next.clear();
    for (const size_t at : now.list)
      if (steps_[at].kind == Step::Kind::set && holds(sets_[steps_[at].a], codes[i]))
        enter(steps_, codes, i + 1, at + 1, 0, next);
    std::swap(now, next);
  }
  return now.has[steps_.size() - 1];
}

std::optional<std::pair<size_t, size_t>> Pattern::find(const Codes& text, size_t from) const {
  std::optional<std::pair<size_t, size_t>> found;
  Places now(steps_.size()), next(steps_.size());
  for (size_t i = from; i <= text.size(); ++i) {
    if (!found) enter(steps_, text, i, 0, i, now);
    for (size_t k = 0; k < now.list.size(); ++k)
      if (steps_[now.list[k]].kind == Step::Kind::match &&
          (!found || now.begins[k] <= found->first))
        found = {now.begins[k], i};
    next.clear();
    for (size_t k = 0; i < text.size() && k < now.list.size(); ++k) {
      if (found && now.begins[k] > found->first) break;
      const Step& step = steps_[now.list[k]];
      if (step.kind == Step::Kind::set && holds(sets_[step.a], text[i]))
        enter(steps_, text, i + 1, now.list[k] + 1, now.begins[k], next);
    }
    std::swap(now, next);
    if (found && now.list.empty()) break;
  }
  return found;
}

}  // namespace ort::regex
