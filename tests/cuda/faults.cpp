// Counts of calls from the moment a fault was chosen; texts in the order of their compilation.
#include "tests/cuda/faults.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <vector>

namespace cuda_double {
namespace {

std::mutex mutex;
std::array<int, static_cast<size_t>(Fault::kinds)> counts{};
Fault chosen = Fault::none;
int chosen_at = 0;
std::string original, replacement;
std::vector<std::string> texts;
std::set<std::string> launched;  // "<kernel> <text>"

}  // namespace

bool goes_wrong(Fault kind) {
  const std::lock_guard lock(mutex);
  const int at = counts[static_cast<size_t>(kind)]++;
  return kind == chosen && at == chosen_at;
}

std::string mutated(const std::string& text) {
  const std::lock_guard lock(mutex);
  return text == original ? replacement : text;
}

void note_text(const std::string& text) {
  const std::lock_guard lock(mutex);
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
}

void note_launch(const std::string& kernel, const std::string& text) {
  const std::lock_guard lock(mutex);
  launched.insert(kernel + " " + text);
}

}  // namespace cuda_double

// For Python, by ctypes.
extern "C" {
// The at-th call of a kind goes wrong from now on; counts start anew.
void cuda_double_fault(int kind, int at) {
  const std::lock_guard lock(cuda_double::mutex);
  cuda_double::counts.fill(0);
  cuda_double::chosen = static_cast<cuda_double::Fault>(kind);
  cuda_double::chosen_at = at;
}
int cuda_double_calls(int kind) {
  const std::lock_guard lock(cuda_double::mutex);
  return cuda_double::counts[static_cast<size_t>(kind)];
}
void cuda_double_replace(const char* text, const char* by) {
  const std::lock_guard lock(cuda_double::mutex);
  cuda_double::original = text;
  cuda_double::replacement = by;
}
size_t cuda_double_texts() {
  return cuda_double::texts.size();
}
const char* cuda_double_text(size_t i) {
  return cuda_double::texts.at(i).c_str();
}
bool cuda_double_launched(const char* kernel, const char* text) {
  return cuda_double::launched.count(std::string(kernel) + " " + text) > 0;
}
void cuda_double_forget_texts() {
  cuda_double::texts.clear();
  cuda_double::launched.clear();
}
}
