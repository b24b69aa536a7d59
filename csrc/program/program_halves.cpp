// A program with gradients whose forward runs in stages: its joint graph is cut in two.
#include <algorithm>
#include <numeric>

#include "csrc/passes/verify.h"
#include "csrc/program/program.h"
#include "csrc/program/split.h"

namespace ort {
namespace {

ProgramHalves::Given given(const Halves& halves, const Halves::Item<Read>& read) {
  using From = ProgramHalves::Given::From;
  switch (read.kind) {
    case Read::input:
      return {From::input, read.index};
    case Read::gradient:
      return {From::gradient, read.index};
    case Read::size:
      return {From::size, halves.kept.back().index, read.index};
    case Read::stash:
      break;
  }
  return {From::output, halves.kept.at(read.index).index};
}

}  // namespace

Program::Program(std::unique_ptr<Graph> half, const Program& joint, const CompileOptions& options,
                 std::vector<const Provider*> providers)
    : n_inputs_(half->inputs().size()),
      gradient_inputs_(joint.gradient_inputs_),
      gradient_outputs_(joint.gradient_outputs_),
      cut_outputs_(joint.cut_outputs_),
      segments_(joint.segments_),
      first_reads_(joint.first_reads_),
      dump_(options.dump, options.dump_part) {
  const double start = now_us();
  for (std::vector<int>* outputs : {&gradient_outputs_, &cut_outputs_})
    for (int& output : *outputs)
      if (output >= 0) output -= static_cast<int>(joint.n_outputs_);
  const std::vector<ValueId>& inputs = half->inputs();
  const auto first = std::find_if(inputs.begin(), inputs.end(),
                                  [&](ValueId id) { return half->role(id) == Role::gradient; });
  first_gradient_ = static_cast<size_t>(first - inputs.begin());
  if (options.check) verify(*half, "halves");
  lower(std::move(half), options, std::move(providers), {});
  seconds_ = (now_us() - start) / 1e6;
}

void Program::cut_in_halves(const Graph& joint, const CompileOptions& options,
                            const std::vector<const Provider*>& providers) {
  std::vector<size_t> inputs(n_inputs_);
  std::iota(inputs.begin(), inputs.end(), 0);
  Halves halves =
      ort::cut_in_halves(joint, n_inputs_, n_outputs_, {inputs.begin(), inputs.end()}, true);
  auto made = std::make_unique<ProgramHalves>();
  for (const auto& read : halves.reads) made->given.push_back(given(halves, read));
  CompileOptions forward = options, backward = options;
  forward.dump_part += ".forward";
  backward.dump_part += ".backward";
  made->forward = std::make_unique<Program>(*halves.forward, forward, std::vector<size_t>{},
                                            std::vector<size_t>{});
  made->backward.reset(new Program(std::move(halves.backward), *this, backward, providers));
  halves_ = std::move(made);
}

}  // namespace ort
