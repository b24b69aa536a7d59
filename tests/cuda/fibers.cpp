// A switch saves the registers that a call must leave as they are, on the stack it leaves.
#include "tests/cuda/fibers.h"

#include <stdexcept>

#ifndef __x86_64__
#error "the fibers of the double are written for x86-64"
#endif

namespace cuda_double {
namespace {

constexpr size_t kStack = 64 << 10;
thread_local Fibers* running = nullptr;

extern "C" void ort_switch_fiber(void** from, void* to);
asm(R"(
.text
.globl ort_switch_fiber
.hidden ort_switch_fiber
.type ort_switch_fiber, @function
ort_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ort_switch_fiber, .-ort_switch_fiber
)");

}  // namespace

Fibers::Fibers(size_t most) : fibers_(most) {}

void Fibers::begin() {
  Fibers& fibers = *running;
  const size_t own = fibers.current_;
  try {
    (*fibers.work_)(own);
  } catch (...) {
    if (!fibers.error_) fibers.error_ = std::current_exception();
  }
  fibers.fibers_[own].ended = true;
  ort_switch_fiber(&fibers.fibers_[own].at, fibers.host_);
}

void Fibers::start(Fiber& fiber) {
  if (!fiber.stack) fiber.stack = std::make_unique<uint8_t[]>(kStack);
  auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStack) & ~uintptr_t{15};
  auto** at = reinterpret_cast<void**>(top);
  *--at = nullptr;  // where begin() would return to
  *--at = reinterpret_cast<void*>(&Fibers::begin);
  for (int k = 0; k < 6; ++k) *--at = nullptr;
  fiber.at = at;
  fiber.ended = false;
}

void Fibers::go_on(size_t i) {
  current_ = i;
  ort_switch_fiber(&host_, fibers_[i].at);
}

void Fibers::barrier() {
  ort_switch_fiber(&fibers_[current_].at, host_);
}

void Fibers::run(size_t count, const std::function<void(size_t)>& work,
                 const std::function<void(size_t)>& before, uint64_t order) {
  running = this;
  work_ = &work;
  error_ = nullptr;
  for (size_t i = 0; i < count; ++i) start(fibers_[i]);
  for (size_t ended = 0; ended < count;) {
    const size_t had_ended = ended;
    for (size_t k = 0; k < count; ++k) {
      const size_t i =
          (k * (2 * (order % 512) + 1) + order) % count;  // odd: of powers of two, each
      if (fibers_[i].ended) continue;
      before(i);
      go_on(i);
      ended += fibers_[i].ended;
      if (error_) std::rethrow_exception(error_);
    }
    if (ended < count && ended != had_ended)
      throw std::runtime_error(
          "some threads of a block wait at a barrier that others do not reach");
  }
}

}  // namespace cuda_double
