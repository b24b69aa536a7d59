// Libraries by name; those that stand beside one that the process has already, as torch's wheels
// bring them, by its folder.
#include "providers/cuda/api.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/core/error.h"

namespace ort::cuda {
namespace {

// The folder of a loaded library, with the last slash; empty: it is not loaded.
std::string folder_of(const char* name) {
  void* handle = dlopen(name, RTLD_NOLOAD | RTLD_NOW);
  if (!handle) return {};
  link_map* map = nullptr;
  std::string path = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
  dlclose(handle);
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::vector<std::string> folders() {
  std::vector<std::string> result{""};
  for (const char* neighbour : {"libcublasLt.so.13", "libcudart.so.13", "libcublasLt.so.12"})
    if (std::string folder = folder_of(neighbour); !folder.empty()) {
      result.push_back(folder);
      result.push_back(folder + "../../cuda_nvrtc/lib/");  // as wheels of CUDA 12 lay it
    }
  result.emplace_back("/usr/local/cuda/lib64/");
  result.emplace_back("/usr/local/cuda/lib/");
  return result;
}

void* open_library(const std::vector<std::string>& names) {
  for (const std::string& folder : folders())
    for (const std::string& name : names)
      if (void* handle = dlopen((folder + name).c_str(), RTLD_NOW)) return handle;
  fail(
      "cuda: {} is not there, expected beside torch's libraries, in /usr/local/cuda/lib64 or on "
      "the loader's path",
      names.front());
}

void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  check(found, "cuda: the library has no {}: it is too old", name);
  return found;
}

Api load() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  check(driver, "cuda: there is no driver: libcuda.so.1 cannot be opened");
  void* nvrtc = open_library({"libnvrtc.so.13", "libnvrtc.so.12"});
  void* blas = open_library({"libcublasLt.so.13", "libcublasLt.so.12"});
  Api table;
#define ORT_FROM(LIBRARY, NAME) \
  table.NAME = reinterpret_cast<decltype(table.NAME)>(symbol(LIBRARY, #NAME));
#define ORT_FROM_DRIVER(NAME, PARAMETERS) ORT_FROM(driver, NAME)
#define ORT_FROM_NVRTC(NAME, PARAMETERS) ORT_FROM(nvrtc, NAME)
#define ORT_FROM_BLAS(NAME, PARAMETERS) ORT_FROM(blas, NAME)
  ORT_CUDA_DRIVER(ORT_FROM_DRIVER)
  ORT_CUDA_NVRTC(ORT_FROM_NVRTC)
  ORT_CUDA_BLAS(ORT_FROM_BLAS)
  ORT_FROM(blas, cublasLtGetVersion)
  return table;
}

std::mutex mutex;
std::atomic<const Api*> current = nullptr;
std::atomic<DeviceKind> current_kind = DeviceKind::cuda;

void use(const Api& table) {
  current_kind = table.kind;
  current = new Api(table);  // for the rest of the process: work may be queued when it ends
}

}  // namespace

const Api& api() {
  if (const Api* table = current) return *table;
  const std::lock_guard lock(mutex);
  if (!current) {
    const Api table = load();
    const Status status = table.cuInit(0);
    const char* text = "";
    if (status != kSuccess) table.cuGetErrorString(status, &text);
    check(status == kSuccess, "cuda: there is no device that works: cuInit says {} ({})", status,
          text);
    use(table);
  }
  return *current.load();
}

DeviceKind kind() {
  return current_kind;
}

void set_api(const Api& table) {
  const std::lock_guard lock(mutex);
  use(table);
}

void check_driver(Status status, const char* what) {
  if (status == kSuccess || status == kDeinitialized) return;  // the process ends
  const char* text = nullptr;
  api().cuGetErrorString(status, &text);
  const std::string message =
      format("cuda: {} says {} ({})", what, status, text ? text : "unknown");
  if (status == kOutOfMemory) throw OutOfMemory(message);
  fail("{}", message);
}

void check_nvrtc(Status status, const char* what) {
  check(status == kSuccess, "cuda: {} says {}", what, status);
}

void check_blas(Status status, const char* what) {
  check(status == kSuccess, "cuda: {} says {}", what, status);
}

}  // namespace ort::cuda
