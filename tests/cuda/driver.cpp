// CUDA's driver and NVRTC as the provider calls them, over the memory and the late streams of
// `far`. A call without a current context, or with what was never made, is refused as the driver
// does.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "providers/cuda/api.h"
#include "providers/cuda/code.h"
#include "tests/cuda/blas.h"
#include "tests/cuda/dry.h"
#include "tests/cuda/faults.h"
#include "tests/cuda/kernels.h"
#include "tests/far/memory.h"
#include "tests/far/queue.h"

namespace cuda_double {
namespace {

using namespace ort::cuda;

constexpr Status kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500,
                 kCaptureUnsupported = 900;
constexpr int kDevices = 1;

thread_local ContextHandle current = nullptr;
ContextHandle the_context() {
  static int place;
  return reinterpret_cast<ContextHandle>(&place);
}

ContextHandle foreign_context() {
  static int place;
  return reinterpret_cast<ContextHandle>(&place);
}

far::Stream& stream_of(StreamHandle handle) {
  // Null is the legacy stream: one of the callers'.
  return handle ? *reinterpret_cast<far::Stream*>(handle)
                : far::Schedule::instance().stream(ort::kStreams);
}

struct Event {
  std::unique_ptr<ort::Event> recorded;
};
Event* event_of(EventHandle handle) {
  return reinterpret_cast<Event*>(handle);
}

struct Module {
  void* library;
  bool meets;
  std::string text;
};
std::mutex text_mutex;
std::map<std::string, std::string> text_of_library;  // by the path of what was compiled

struct Program {
  std::string text, library, log;
};
Program* program_of(ProgramHandle handle) {
  return reinterpret_cast<Program*>(handle);
}

std::atomic<int> launches = 0;
std::mutex launched_mutex;
std::map<std::string, int> launched;  // by the kernel's name

const char* pointer(Address address) {
  return reinterpret_cast<const char*>(address);
}
bool has(Address address, size_t bytes) {
  return far::Bytes::instance().has(pointer(address), bytes);
}
void* seen(Address address) {
  return far::Bytes::instance().seen_by_kernels(pointer(address));
}

#define ORT_NEEDS_CONTEXT \
  if (current != the_context()) return kInvalidContext;

// --- devices and contexts ---

Status init(unsigned) {
  return kSuccess;
}
Status driver_version(int* version) {
  *version = 13000;
  return kSuccess;
}
Status error_string(Status status, const char** text) {
  *text = status == kOutOfMemory      ? "out of memory"
          : status == kInvalidContext ? "invalid device context"
          : status == kInvalidValue   ? "invalid argument"
                                      : "an error of the double";
  return kSuccess;
}
Status device_count(int* count) {
  *count = kDevices;
  return kSuccess;
}
Status device_get(int* device, int index) {
  *device = index;
  return index < kDevices ? kSuccess : 101;
}
Status device_name(char* name, int bytes, int) {
  std::strncpy(name, "double", static_cast<size_t>(bytes));
  return kSuccess;
}
Status device_attribute(int* value, int which, int) {
  *value = which == kMajor ? 9 : which == kMinor ? 0 : which == kMultiprocessors ? 9 : 0;
  return kSuccess;
}
Status retain(ContextHandle* context, int) {
  *context = the_context();
  return kSuccess;
}
Status get_current(ContextHandle* context) {
  *context = current;
  return kSuccess;
}
Status set_current(ContextHandle context) {
  if (!goes_wrong(Fault::context)) current = context;
  return kSuccess;
}
Status synchronize() {
  ORT_NEEDS_CONTEXT
  far::Schedule::instance().run_all();
  return kSuccess;
}

// --- memory ---

Status default_pool(PoolHandle* pool, int) {
  *pool = nullptr;
  return kSuccess;
}
Status pool_attribute(PoolHandle, int, void*) {
  return kSuccess;
}
Status trim(PoolHandle, size_t) {
  return kSuccess;
}
Status allocate(Address* address, size_t bytes, StreamHandle) {
  ORT_NEEDS_CONTEXT
  if (bytes == 0) return kInvalidValue;
  void* data = far::Bytes::instance().allocate(bytes);
  if (!data) return kOutOfMemory;
  *address = reinterpret_cast<Address>(data);
  return kSuccess;
}
Status release(Address address, StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  if (!has(address, 1)) return kInvalidValue;
  const auto free = [=] { far::Bytes::instance().free(reinterpret_cast<void*>(address)); };
  goes_wrong(Fault::release) ? free() : stream_of(stream).queue(free);
  return kSuccess;
}
Status allocate_on_host(void** data, size_t bytes, unsigned flags) {
  ORT_NEEDS_CONTEXT
  if (flags != (kPortable | kMapped)) return kInvalidValue;
  *data = far::Bytes::instance().allocate_mapped(bytes);
  return kSuccess;
}
Status fill(Address to, unsigned char byte, size_t bytes, StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  if (!has(to, bytes)) return kInvalidValue;
  if (goes_wrong(Fault::fill)) return kSuccess;
  stream_of(stream).queue([=] { std::memset(seen(to), byte, bytes); });
  return kSuccess;
}
Status fill_words(Address to, unsigned word, size_t count, StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  if (!has(to, count * sizeof word) || to % sizeof word != 0) return kInvalidValue;
  if (goes_wrong(Fault::fill)) return kSuccess;
  stream_of(stream).queue([=] {
    for (size_t i = 0; i < count; ++i)
      std::memcpy(static_cast<uint8_t*>(seen(to)) + i * sizeof word, &word, sizeof word);
  });
  return kSuccess;
}
// The host's memory is read and written late, as pinned memory is.
Status upload(Address to, const void* from, size_t bytes, StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  if (!has(to, bytes) || far::Bytes::instance().holds(from)) return kInvalidValue;
  if (goes_wrong(Fault::copy)) return kSuccess;
  stream_of(stream).queue([=] { std::memcpy(seen(to), from, bytes); });
  return kSuccess;
}
Status download(void* to, Address from, size_t bytes, StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  if (!has(from, bytes) || far::Bytes::instance().holds(to)) return kInvalidValue;
  if (goes_wrong(Fault::copy)) return kSuccess;
  stream_of(stream).queue([=] { std::memcpy(to, seen(from), bytes); });
  return kSuccess;
}
Status move(Address to, Address from, size_t bytes, StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  if (!has(from, bytes) || !has(to, bytes)) return kInvalidValue;
  if (goes_wrong(Fault::copy)) return kSuccess;
  stream_of(stream).queue([=] { std::memmove(seen(to), seen(from), bytes); });
  return kSuccess;
}

// --- streams and events ---

Status make_stream(StreamHandle* stream, unsigned) {
  ORT_NEEDS_CONTEXT
  *stream = reinterpret_cast<StreamHandle>(&far::Schedule::instance().make());
  return kSuccess;
}
Status synchronize_stream(StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  if (!goes_wrong(Fault::synchronize)) stream_of(stream).synchronize();
  return kSuccess;
}
Status wait_event(StreamHandle stream, EventHandle event, unsigned) {
  ORT_NEEDS_CONTEXT
  if (event_of(event)->recorded) stream_of(stream).wait(*event_of(event)->recorded);
  return kSuccess;
}
Status make_event(EventHandle* event, unsigned) {
  ORT_NEEDS_CONTEXT
  *event = reinterpret_cast<EventHandle>(new Event());
  return kSuccess;
}
Status record_event(EventHandle event, StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  event_of(event)->recorded = stream_of(stream).record();
  return kSuccess;
}
Status synchronize_event(EventHandle event) {
  ORT_NEEDS_CONTEXT
  if (goes_wrong(Fault::synchronize)) return kSuccess;
  if (event_of(event)->recorded) event_of(event)->recorded->synchronize();
  return kSuccess;
}

Status query_event(EventHandle event) {
  ORT_NEEDS_CONTEXT
  const auto& recorded = event_of(event)->recorded;
  return !recorded || far::Schedule::instance().is_done(*recorded) ? kSuccess : kNotReady;
}

// --- graphs ---

// The legacy stream records nothing.
Status begin_capture(StreamHandle stream, int mode) {
  ORT_NEEDS_CONTEXT
  if (!stream || mode != kCaptureThreadLocal) return kCaptureUnsupported;
  return stream_of(stream).begin_recording() ? kSuccess : kInvalidValue;
}
Status end_capture(StreamHandle stream, GraphHandle* graph) {
  ORT_NEEDS_CONTEXT
  *graph = reinterpret_cast<GraphHandle>(stream_of(stream).end_recording().release());
  return *graph ? kSuccess : kInvalidValue;
}
// What is made of a graph has what the graph had.
Status instantiate(GraphExecHandle* made, GraphHandle graph, unsigned long long flags) {
  ORT_NEEDS_CONTEXT
  if (!graph || flags != 0) return kInvalidValue;
  *made = reinterpret_cast<GraphExecHandle>(
      new far::Recording(*reinterpret_cast<far::Recording*>(graph)));
  return kSuccess;
}
Status launch_graph(GraphExecHandle graph, StreamHandle stream) {
  ORT_NEEDS_CONTEXT
  reinterpret_cast<far::Recording*>(graph)->replay(stream_of(stream));
  return kSuccess;
}
Status destroy_graph(GraphHandle graph) {
  ORT_NEEDS_CONTEXT
  delete reinterpret_cast<far::Recording*>(graph);
  return kSuccess;
}
Status destroy_instance(GraphExecHandle graph) {
  return destroy_graph(reinterpret_cast<GraphHandle>(graph));
}

// --- code ---

Status load_module(ModuleHandle* module, const void* image) {
  ORT_NEEDS_CONTEXT
  const char* path = static_cast<const char*>(image);
  void* library = dlopen(path + 1, RTLD_NOW | RTLD_LOCAL);
  if (!library) return kInvalidValue;
  const std::lock_guard lock(text_mutex);
  const std::string& text = text_of_library[path + 1];
  *module = reinterpret_cast<ModuleHandle>(new Module{library, path[0] == 'm', text});
  return kSuccess;
}
Status get_function(FunctionHandle* function, ModuleHandle module, const char* name) {
  ORT_NEEDS_CONTEXT
  const auto* of = reinterpret_cast<const Module*>(module);
  if (!dlsym(of->library, (std::string(name) + "_host").c_str())) return kNotFound;
  *function =
      reinterpret_cast<FunctionHandle>(new Function(of->library, name, of->meets, of->text));
  return kSuccess;
}
thread_local std::vector<Reach> reaches;  // of the launch that comes
void take_reaches(const Reach* first, size_t count) {
  reaches.assign(first, first + count);
}

// The argument is copied now, the threads run late.
Status launch(FunctionHandle handle, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty,
              unsigned tz, unsigned shared, StreamHandle stream, void** arguments, void** extra) {
  ORT_NEEDS_CONTEXT
  const bool fits = x > 0 && y == 1 && z == 1 && tx > 0 && tx <= 1024 && ty == 1 && tz == 1;
  const auto* function = reinterpret_cast<const Function*>(handle);
  if (!fits || tx > function->most_threads() || shared > 0 || extra) return kInvalidValue;
  const auto* bytes = static_cast<const uint8_t*>(arguments[0]);
  const auto argument = std::make_shared<std::vector<uint64_t>>(function->argument_bytes() / 8);
  std::memcpy(argument->data(), bytes, function->argument_bytes());
  ++launches;
  note_launch(function->name(), function->text());
  {
    const std::lock_guard lock(launched_mutex);
    ++launched[function->name()];
  }
  stream_of(stream).queue([=, own = reaches] { function->run(x, tx, argument->data(), own); });
  return kSuccess;
}

// One that NVRTC never had: what is kept on disk of the double is nobody else's.
Status nvrtc_version(int* major, int* minor) {
  *major = 0;
  *minor = 0;
  return kSuccess;
}
Status create_program(ProgramHandle* program, const char* text, const char*, int,
                      const char* const*, const char* const*) {
  *program = reinterpret_cast<ProgramHandle>(new Program{text, {}, {}});
  return kSuccess;
}
Status compile_program(ProgramHandle handle, int, const char* const*) {
  Program* program = program_of(handle);
  note_text(program->text);
  program->library = compile(mutated(program->text), program->log);
  const std::lock_guard lock(text_mutex);
  text_of_library[program->library] = program->text;
  return program->library.empty() ? 6 : kSuccess;
}
Status log_size(ProgramHandle program, size_t* bytes) {
  *bytes = program_of(program)->log.size() + 1;
  return kSuccess;
}
Status log_text(ProgramHandle program, char* text) {
  std::strcpy(text, program_of(program)->log.c_str());
  return kSuccess;
}
// In place of code its library's path, after a letter: threads of it meet, or never.
Status cubin_size(ProgramHandle program, size_t* bytes) {
  *bytes = program_of(program)->library.size() + 2;
  return kSuccess;
}
Status cubin(ProgramHandle handle, char* code) {
  const Program* program = program_of(handle);
  const std::string& all = program->text;
  const size_t own = all.find("typedef", all.find("row_min(T x)"));
  const auto uses = [&](const char* what) { return all.find(what, own) != std::string::npos; };
  const bool meets = uses("barrier();") || uses("row_sum<") || uses("row_fold<") ||
                     uses("row_max<") || uses("row_min<");
  std::strcpy(code, ((meets ? "m" : "n") + program->library).c_str());
  return kSuccess;
}
Status destroy_program(ProgramHandle* program) {
  delete program_of(*program);
  return kSuccess;
}

Api table_of(ort::DeviceKind kind) {
  Api t;
  t.kind = kind;
  t.cuInit = init;
  t.cuDriverGetVersion = driver_version;
  t.cuGetErrorString = error_string;
  t.cuDeviceGetCount = device_count;
  t.cuDeviceGet = device_get;
  t.cuDeviceGetName = device_name;
  t.cuDeviceGetAttribute = device_attribute;
  t.cuDevicePrimaryCtxRetain = retain;
  t.cuCtxGetCurrent = get_current;
  t.cuCtxSetCurrent = set_current;
  t.cuCtxSynchronize = synchronize;
  t.cuDeviceGetDefaultMemPool = default_pool;
  t.cuMemPoolSetAttribute = pool_attribute;
  t.cuMemPoolTrimTo = trim;
  t.cuMemAllocAsync = allocate;
  t.cuMemFreeAsync = release;
  t.cuMemHostAlloc = allocate_on_host;
  t.cuMemsetD8Async = fill;
  t.cuMemsetD32Async = fill_words;
  t.cuStreamBeginCapture_v2 = begin_capture;
  t.cuStreamEndCapture = end_capture;
  t.cuGraphInstantiateWithFlags = instantiate;
  t.cuGraphLaunch = launch_graph;
  t.cuGraphDestroy = destroy_graph;
  t.cuGraphExecDestroy = destroy_instance;
  t.cuMemcpyHtoDAsync_v2 = upload;
  t.cuMemcpyDtoHAsync_v2 = download;
  t.cuMemcpyDtoDAsync_v2 = move;
  t.cuStreamCreate = make_stream;
  t.cuStreamSynchronize = synchronize_stream;
  t.cuStreamWaitEvent = wait_event;
  t.cuEventCreate = make_event;
  t.cuEventRecord = record_event;
  t.cuEventSynchronize = synchronize_event;
  t.cuEventQuery = query_event;
  t.cuModuleLoadData = load_module;
  t.cuModuleGetFunction = get_function;
  t.cuLaunchKernel = launch;
  t.launch_reaches = take_reaches;
  t.nvrtcVersion = nvrtc_version;
  t.nvrtcCreateProgram = create_program;
  t.nvrtcCompileProgram = compile_program;
  t.nvrtcGetProgramLogSize = log_size;
  t.nvrtcGetProgramLog = log_text;
  t.nvrtcGetCUBINSize = cubin_size;
  t.nvrtcGetCUBIN = cubin;
  t.nvrtcDestroyProgram = destroy_program;
  fill_blas(t);
  return t;
}

}  // namespace
}  // namespace cuda_double

// For Python, by ctypes.
extern "C" {
// In place of CUDA's libraries: for tensors of torch's device of this kind, or of the host.
void cuda_double_use(int kind) {
  ort::cuda::set_api(cuda_double::table_of(static_cast<ort::DeviceKind>(kind)));
}
// As that, and nothing is run.
void cuda_double_use_without_runs(int kind, const char* nvrtc, int arch) {
  const auto table = cuda_double::table_of(static_cast<ort::DeviceKind>(kind));
  ort::cuda::set_api(cuda_double::without_runs(table, nvrtc, arch));
}
// The calling thread's context becomes one that is somebody else's; whether it is that one.
void cuda_double_enter_foreign() {
  cuda_double::current = cuda_double::foreign_context();
}
bool cuda_double_in_foreign() {
  return cuda_double::current == cuda_double::foreign_context();
}
size_t cuda_double_compiled() {
  return ort::cuda::texts_compiled();
}
int cuda_double_launches() {
  return cuda_double::launches;
}
int cuda_double_launches_of(const char* name) {
  const std::lock_guard lock(cuda_double::launched_mutex);
  return cuda_double::launched[name];
}
int cuda_double_products() {
  return cuda_double::products();
}
}
