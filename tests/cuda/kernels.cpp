// What a thread loads and stores is looked up: it lies in a block of the device's memory, aligned.
#include "tests/cuda/kernels.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "csrc/core/error.h"
#include "tests/cuda/fibers.h"
#include "tests/far/memory.h"

namespace cuda_double {
namespace {

Fibers& fibers() {
  static Fibers fibers(1024);
  return fibers;
}

const std::vector<ort::cuda::Reach>* reachable = nullptr;

bool is_reachable(const void* at, uint64_t bytes) {
  const auto* first = static_cast<const char*>(at);
  return std::any_of(reachable->begin(), reachable->end(), [&](const ort::cuda::Reach& memory) {
    const auto* begin = static_cast<const char*>(memory.begin);
    return first >= begin && first + bytes <= begin + memory.bytes;
  });
}

void* seen(const void* at, uint64_t bytes, bool) {
  const far::Bytes& memory = far::Bytes::instance();
  ort::check(memory.has(at, bytes), "a kernel touches {} bytes at {} that no block has", bytes,
             reinterpret_cast<uintptr_t>(at));
  ort::check(reinterpret_cast<uintptr_t>(at) % bytes == 0, "a kernel touches {} bytes at {}", bytes,
             reinterpret_cast<uintptr_t>(at));
  ort::check(is_reachable(at, bytes), "a kernel touches {} bytes at {} that no operand of it has",
             bytes, reinterpret_cast<uintptr_t>(at));
  return memory.seen_by_kernels(at);
}

void meet() {
  fibers().barrier();
}

std::string folder() {
  const char* given = std::getenv("ORT_CUDA_DOUBLE_FOLDER");
  ort::check(given != nullptr, "ORT_CUDA_DOUBLE_FOLDER names no folder for compiled texts");
  const std::string path = given;
  mkdir(path.c_str(), 0700);
  return path;
}

}  // namespace

std::string compile(const std::string& text, std::string& log) {
  char name[32];
  std::snprintf(name, sizeof name, "/%016zx", std::hash<std::string>()(text));
  const std::string base = folder() + name, library = base + ".so";
  if (access(library.c_str(), R_OK) == 0) return library;
  const std::string own = base + "." + std::to_string(getpid());
  std::ofstream(own + ".cpp") << text;
  const char* compiler = std::getenv("CXX");
  const std::string command =
      std::string(compiler ? compiler : "g++") +
      " -std=gnu++17 -O1 -fPIC -shared -ffp-contract=off -w -DORT_HOST -o " + own + ".so " + own +
      ".cpp 2> " + own + ".log";
  const bool made = std::system(command.c_str()) == 0;
  std::stringstream said;
  said << std::ifstream(own + ".log").rdbuf();
  log = said.str();
  unlink((own + ".log").c_str());
  std::rename((own + ".cpp").c_str(), (base + ".cpp").c_str());
  if (!made) return {};
  std::rename((own + ".so").c_str(), library.c_str());
  return library;
}

struct Function::Host {
  uint32_t block, blocks, thread, threads;
  void* (*seen)(const void*, uint64_t, bool);
  void (*barrier)();
};

Function::Function(void* library, const std::string& name, bool meets, const std::string& text)
    : name_(name), text_(text), meets_(meets) {
  entry_ = reinterpret_cast<void (*)(const void*)>(dlsym(library, (name + "_host").c_str()));
  host_ = static_cast<Host*>(dlsym(library, "ort_host"));
  const auto* bytes = static_cast<const uint64_t*>(dlsym(library, (name + "_bytes").c_str()));
  const auto* threads = static_cast<const uint32_t*>(dlsym(library, (name + "_threads").c_str()));
  ort::check(entry_ && host_ && bytes && threads, "the library has no kernel {}", name);
  bytes_ = *bytes;
  most_threads_ = *threads;
}

void Function::run(uint32_t blocks, uint32_t threads, const void* argument,
                   const std::vector<ort::cuda::Reach>& reaches) const {
  reachable = &reaches;
  *host_ = {0, blocks, 0, threads, &seen, &meet};
  const auto before = [this](size_t i) { host_->thread = static_cast<uint32_t>(i); };
  const auto work = [&](size_t) { entry_(argument); };
  for (uint32_t k = 0; k < blocks; ++k) {
    host_->block = blocks - 1 - k;
    if (meets_) {
      fibers().run(threads, work, before, k * 7 + 3);
      continue;
    }
    for (uint32_t t = threads; t-- > 0;) {
      before(t);
      work(t);
    }
  }
}

}  // namespace cuda_double
