// The host's generator of random numbers.
//
// Of torch, in every version from 2.11 on: CPUGeneratorImpl::random64, for which at::Generator has
// no method (ATen/CPUGeneratorImpl.h).
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

namespace ort::bridge {

inline at::Generator host_generator() {
  return at::detail::getDefaultCPUGenerator();
}

// Of the host's generator, under its mutex: its next number.
inline uint64_t draw(const at::Generator& generator) {
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace ort::bridge
