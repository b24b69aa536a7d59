// The parameters of one group as torch tensors: checked, laid in one order and handed to the drive.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optim/drive.h"

namespace ort::optim {

// One parameter. What it has none of is undefined.
struct Row {
  at::Tensor param, grad, master, mean, step;
  std::array<at::Tensor, kStates> states;
  bool fresh = false;       // its states were made for this step
  bool fresh_mean = false;  // its mean was
};

// What the step of a group does whatever its rule.
struct Around {
  double grad_factor = 1;  // of the gradients, the sign of maximize among it
  double mean_rest = 0;    // 1 - decay of the parameters' means, where there are any
  bool zero_grad = false;
};

DType dtype_of(at::ScalarType type);
// Fails unless t's numbers lie where a kernel reads them. Before any other check: sizes of what
// another class makes up, such as a DTensor, are none of its memory's. `what` is for messages.
void check_place(const std::string& name, std::string_view what, const at::Tensor& t);
// Fails where two elements share memory, as those of an expanded tensor, which no step can write.
void check_written(const std::string& name, std::string_view what, const at::Tensor& t);

// Whether two of them lie in the same memory.
bool overlap(std::span<const at::Tensor> tensors);

class Group {
 public:
  // Checks all; `name` is the optimizer's, `states` those of its rule, for messages.
  Group(const std::string& name, const std::vector<std::string>& states, std::vector<Row> rows,
        const Around& around);

  // One step: `factors_of(step, fresh)` of each, then `run(parameters, factors)`.
  template <class FactorsOf, class Run>
  void step(FactorsOf factors_of, Run run) {
    if (shares_memory()) {  // as torch, one after the other
      for (Row& row : rows_) Group(std::move(row), around_).step(factors_of, run);
      return;
    }
    std::vector<decltype(factors_of(0.0, false))> factors;
    factors.reserve(rows_.size());
    double before = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const double now = count(rows_[i]);
      // Powers once for equal steps.
      const bool same = i > 0 && now == before && rows_[i].fresh == rows_[i - 1].fresh;
      factors.push_back(same ? factors.back() : factors_of(now, rows_[i].fresh));
      before = now;
    }
    lay();
    std::vector<Parameter> parameters;
    parameters.reserve(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i)
      parameters.push_back(parameter_of(rows_[i], &factors[i]));
    run(std::span<const Parameter>(parameters), factors);
    put_back();
  }

 private:
  // Of a row that lies in another order than its kernel walks.
  struct Original {
    size_t row;
    Row tensors;
  };

  Group(Row row, const Around& around) : rows_{std::move(row)}, around_(around) {}
  bool shares_memory() const;
  static double count(const Row& row);
  Parameter parameter_of(const Row& row, const void* factors) const;
  void lay();
  void put_back();

  std::vector<Row> rows_;
  Around around_;
  std::vector<Original> originals_;
};

}  // namespace ort::optim
