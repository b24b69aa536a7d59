// Two phases: what must be compiled is collected from all claims, then kernels are linked.
#include "csrc/plan/prepare.h"

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "csrc/plan/layouts.h"

namespace ort {
namespace {

// Calls f(claim); an error names the claim's last node.
template <class F>
auto at_claim(const Claim& claim, F&& f) {
  try {
    return f(claim);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& error) {
    fail_at(error, claim.region.nodes.back()->describe());
  }
}

// Each source once, by as many threads as the machine has; the first error is thrown at the end.
class Compilation {
 public:
  void add(const Claim& claim, const Source& source) {
    if (results_.try_emplace(source.key).second) work_.push_back({&claim, &source});
  }
  void run() {
    {
      std::vector<std::jthread> threads;  // they end with this block, whatever is thrown in it
      const size_t count = std::min<size_t>(work_.size(), std::thread::hardware_concurrency());
      for (size_t i = 1; i < count; ++i) threads.emplace_back([this] { take(); });
      take();
    }
    if (error_) std::rethrow_exception(error_);
  }
  Prepared::Compiled of(const Prepared& prepared) const {
    Prepared::Compiled compiled;
    for (const Source& source : prepared.sources) compiled.push_back(results_.at(source.key));
    return compiled;
  }

 private:
  void take() {
    for (size_t i = next_++; i < work_.size(); i = next_++) try {
        const Source& source = *work_[i].source;
        results_.find(source.key)->second =
            at_claim(*work_[i].claim, [&](const Claim&) { return source.compile(); });
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
  }

  struct Work {
    const Claim* claim;  // the first that asks for it
    const Source* source;
  };
  std::vector<Work> work_;
  std::map<std::string, std::shared_ptr<const void>> results_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

std::vector<std::unique_ptr<Kernel>> prepare_kernels(const LoweredGraph& lowered,
                                                     const BoundValues& values) {
  std::vector<Prepared> prepared;
  prepared.reserve(lowered.order.size());  // sources are referred to
  Compilation compilation;
  Layouts layouts(lowered, values);
  for (size_t i = 0; i < lowered.order.size(); ++i) {
    const Claim& claim = lowered.claim(i);
    prepared.push_back(at_claim(claim, [&](const Claim&) {
      return claim.provider->prepare(claim.region, layouts.binding(claim));
    }));
    if (prepared.back().kernel) layouts.made(claim, *prepared.back().kernel);
    for (const Source& source : prepared.back().sources) compilation.add(claim, source);
  }
  compilation.run();
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (size_t i = 0; i < prepared.size(); ++i)
    kernels.push_back(at_claim(lowered.claim(i), [&](const Claim&) {
      Prepared& p = prepared[i];
      return p.link ? p.link(compilation.of(p)) : std::move(p.kernel);
    }));
  return kernels;
}

}  // namespace ort
