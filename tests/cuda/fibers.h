// The threads of a block as fibers of one thread of the host: each runs until it meets a barrier.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace cuda_double {

class Fibers {
 public:
  explicit Fibers(size_t most);
  // Runs work(i) for i below `count`; `before(i)` whenever i goes on. Throws what one throws, and
  // where some have ended while others wait at a barrier.
  void run(size_t count, const std::function<void(size_t)>& work,
           const std::function<void(size_t)>& before, uint64_t order);
  void barrier();  // called by a fiber

 private:
  struct Fiber {
    std::unique_ptr<uint8_t[]> stack;
    void* at = nullptr;  // where its stack is
    bool ended = false;
  };
  static void begin();
  void start(Fiber& fiber);
  void go_on(size_t i);

  std::vector<Fiber> fibers_;
  void* host_ = nullptr;
  size_t current_ = 0;
  const std::function<void(size_t)>* work_ = nullptr;
  std::exception_ptr error_;
};

}  // namespace cuda_double
