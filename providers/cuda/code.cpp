// Code is kept by its text and architecture for the rest of the process, and on disk by all that it
// is made from.
#include "providers/cuda/code.h"

#include <algorithm>
#include <atomic>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "providers/cuda/code_cache.h"

namespace ort::cuda {
namespace {

std::atomic<size_t> compiled = 0;

class NvrtcProgram {
 public:
  explicit NvrtcProgram(const std::string& text) {
    check_nvrtc(
        api().nvrtcCreateProgram(&handle_, text.c_str(), "ortmodule.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  }
  ~NvrtcProgram() { api().nvrtcDestroyProgram(&handle_); }
  NvrtcProgram(const NvrtcProgram&) = delete;

  std::vector<char> cubin(const std::vector<const char*>& options) {
    const Status status =
        api().nvrtcCompileProgram(handle_, static_cast<int>(options.size()), options.data());
    check(status == kSuccess, "cuda: a kernel's text does not compile: {}", log());
    size_t bytes = 0;
    check_nvrtc(api().nvrtcGetCUBINSize(handle_, &bytes), "nvrtcGetCUBINSize");
    std::vector<char> cubin(bytes);
    check_nvrtc(api().nvrtcGetCUBIN(handle_, cubin.data()), "nvrtcGetCUBIN");
    return cubin;
  }

 private:
  std::string log() {
    size_t bytes = 0;
    api().nvrtcGetProgramLogSize(handle_, &bytes);
    std::string text(bytes, '\0');
    if (bytes > 0) api().nvrtcGetProgramLog(handle_, text.data());
    return text;
  }

  ProgramHandle handle_ = nullptr;
};

std::vector<char> cubin_of(const std::string& text, int arch) {
  const std::string target = format("--gpu-architecture=sm_{}", arch);
  // No sum and product are joined but where a text says so: results are those of other devices.
  const std::vector<const char*> options{target.c_str(), "--std=c++17", "--fmad=false",
                                         "-default-device"};
  int major = 0, minor = 0;
  check_nvrtc(api().nvrtcVersion(&major, &minor), "nvrtcVersion");
  std::string key = format("nvrtc {}.{}", major, minor);
  for (const char* option : options) key += format(" {}", option);
  key += "\n" + text;
  const CodeCache cache(env::code_cache());
  if (auto found = cache.find(key)) return std::move(*found);
  std::vector<char> cubin = NvrtcProgram(text).cubin(options);
  ++compiled;
  cache.keep(key, cubin);
  return cubin;
}

}  // namespace

size_t texts_compiled() {
  return compiled;
}

std::shared_ptr<const Code> Code::of(const std::string& text, int arch) {
  static std::mutex mutex;
  static auto* known = new std::map<std::pair<int, std::string>, std::shared_ptr<const Code>>();
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known->find({arch, text}); found != known->end()) return found->second;
  }
  if (env::debug() >= 4) ort::log("a kernel's text for sm_{}\n{}", arch, text);
  std::shared_ptr<const Code> code(new Code(cubin_of(prelude() + text, arch)));
  const std::lock_guard lock(mutex);
  return known->try_emplace({arch, text}, std::move(code)).first->second;
}

FunctionHandle Code::function(Gpu& gpu, const char* name) const {
  const Current current(gpu);
  const std::lock_guard lock(mutex_);
  ModuleHandle& module = modules_[gpu.index()];
  if (!module) ORT_DRIVER(cuModuleLoadData, &module, cubin_.data());
  FunctionHandle function = nullptr;
  ORT_DRIVER(cuModuleGetFunction, &function, module, name);
  return function;
}

Grid grid_for(const Gpu& gpu, int64_t units, int64_t per_block, int threads) {
  const int64_t wanted = (units + per_block - 1) / per_block;
  const int64_t most = int64_t{gpu.multiprocessors()} * 2048 / threads;
  return {std::clamp<int64_t>(wanted, 1, most), threads};
}

Launch::Launch(std::shared_ptr<const Code> code, Gpu& gpu, const char* name)
    : code_(std::move(code)), function_(code_->function(gpu, name)) {}

void Launch::operator()(const Grid& grid, const Words& words, ort::Stream& stream) const {
  auto& own = static_cast<Stream&>(stream);
  const Current current(own.gpu());
  if (api().launch_reaches) api().launch_reaches(words.reaches().data(), words.reaches().size());
  void* arguments[] = {const_cast<void*>(words.data())};
  ORT_DRIVER(cuLaunchKernel, function_, static_cast<unsigned>(grid.blocks), 1, 1,
             static_cast<unsigned>(grid.threads), 1, 1, 0, own.handle(), arguments, nullptr);
}

const char* index_type(int64_t most) {
  return most < (int64_t{1} << 31) ? "unsigned" : "u64";
}

Gpu& gpu_of(const Device& device) {
  return Gpu::of(device.index);
}

}  // namespace ort::cuda
