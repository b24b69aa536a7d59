// Addresses are handed out and never reached; what is copied to the host is zeros: no mark is set.
#include "tests/cuda/dry.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "csrc/core/error.h"
#include "tests/cuda/faults.h"

namespace cuda_double {
namespace {

using namespace ort::cuda;

constexpr size_t kSpace = size_t{1} << 42;
constexpr size_t kAlign = 512;

int arch = 90;
Status (*create_really)(ProgramHandle*, const char*, const char*, int, const char* const*,
                        const char* const*) = nullptr;

// The double's device, of the architecture that was asked for.
Status attribute(int* value, int which, int) {
  *value = which == kMajor             ? arch / 10
           : which == kMinor           ? arch % 10
           : which == kMultiprocessors ? 132
                                       : 0;
  return kSuccess;
}

Status allocate(Address* address, size_t bytes, StreamHandle) {
  static const auto begin = reinterpret_cast<Address>(
      mmap(nullptr, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  static std::atomic<size_t> used = 0;
  *address = begin + used.fetch_add((bytes + kAlign) / kAlign * kAlign);
  return *address + bytes < begin + kSpace ? kSuccess : kOutOfMemory;
}
Status release(Address, StreamHandle) {
  return kSuccess;
}
Status fill(Address, unsigned char, size_t, StreamHandle) {
  return kSuccess;
}
Status fill_words(Address, unsigned, size_t, StreamHandle) {
  return kSuccess;
}
Status upload(Address, const void*, size_t, StreamHandle) {
  return kSuccess;
}
Status download(void* to, Address, size_t bytes, StreamHandle) {
  std::memset(to, 0, bytes);
  return kSuccess;
}
Status move(Address, Address, size_t, StreamHandle) {
  return kSuccess;
}
Status load_module(ModuleHandle* module, const void* image) {
  *module = reinterpret_cast<ModuleHandle>(const_cast<void*>(image));
  return kSuccess;
}
Status get_function(FunctionHandle* function, ModuleHandle module, const char*) {
  *function = reinterpret_cast<FunctionHandle>(module);
  return kSuccess;
}
Status launch(FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
              StreamHandle, void**, void**) {
  return kSuccess;
}
Status matmul(LtHandle, LtDesc, const void*, const void*, LtDesc, const void*, LtDesc, const void*,
              const void*, LtDesc, void*, LtDesc, const LtAlgo*, void*, size_t, StreamHandle) {
  return kSuccess;
}

Status create_program(ProgramHandle* program, const char* text, const char* name, int headers,
                      const char* const* contents, const char* const* names) {
  note_text(text);
  if (create_really) return create_really(program, text, name, headers, contents, names);
  *program = nullptr;
  return kSuccess;
}
Status compile_program(ProgramHandle, int, const char* const*) {
  return kSuccess;
}
Status one_byte(ProgramHandle, size_t* bytes) {
  *bytes = 1;
  return kSuccess;
}
Status none(ProgramHandle, char* code) {
  *code = 0;
  return kSuccess;
}
Status destroy_program(ProgramHandle*) {
  return kSuccess;
}

void take_nvrtc(Api& t, const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  ort::check(library != nullptr, "{} cannot be opened", path);
#define ORT_TAKE(NAME, PARAMETERS) \
  t.NAME = reinterpret_cast<decltype(t.NAME)>(dlsym(library, #NAME));
  ORT_CUDA_NVRTC(ORT_TAKE)
  create_really = t.nvrtcCreateProgram;
}

}  // namespace

Api without_runs(Api t, const char* nvrtc, int of) {
  arch = of;
  create_really = nullptr;
  t.cuDeviceGetAttribute = attribute;
  t.cuMemAllocAsync = allocate;
  t.cuMemFreeAsync = release;
  t.cuMemsetD8Async = fill;
  t.cuMemsetD32Async = fill_words;
  t.cuMemcpyHtoDAsync_v2 = upload;
  t.cuMemcpyDtoHAsync_v2 = download;
  t.cuMemcpyDtoDAsync_v2 = move;
  t.cuModuleLoadData = load_module;
  t.cuModuleGetFunction = get_function;
  t.cuLaunchKernel = launch;
  t.cublasLtMatmul = matmul;
  t.nvrtcCompileProgram = compile_program;
  t.nvrtcGetCUBINSize = t.nvrtcGetProgramLogSize = one_byte;
  t.nvrtcGetCUBIN = t.nvrtcGetProgramLog = none;
  t.nvrtcDestroyProgram = destroy_program;
  if (nvrtc) take_nvrtc(t, nvrtc);
  t.nvrtcCreateProgram = create_program;
  return t;
}

}  // namespace cuda_double
