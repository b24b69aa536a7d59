// How many threads the kernels of the calling thread use, for as long as this lives.
#pragma once

#include <omp.h>

namespace ort {

class ThreadLimit {
 public:
  explicit ThreadLimit(int most) : before_(most > 0 ? omp_get_max_threads() : 0) {  // 0: no limit
    if (before_) omp_set_num_threads(most);
  }
  ~ThreadLimit() {
    if (before_) omp_set_num_threads(before_);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  const int before_;
};

}  // namespace ort
