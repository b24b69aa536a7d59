// Elements are copied one by one, where the device sees both sides.
#include "tests/far/layout.h"

#include <cstring>
#include <vector>

#include "providers/kernel.h"
#include "tests/far/memory.h"
#include "tests/far/queue.h"

namespace far {
namespace {

// Before the first element.
constexpr size_t kHead = 1024;

class Scattered final : public ort::BlockedLayout {
 public:
  Scattered(ort::Sizes sizes, ort::DType dtype, bool turned)
      : sizes_(std::move(sizes)),
        dtype_(dtype),
        turned_(turned),
        count_(static_cast<size_t>(ort::element_count(sizes_))),
        size_(size_of(dtype)) {}

  size_t bytes() const override { return kHead + 2 * plain_bytes(); }
  bool equals(const BlockedLayout& other) const override {
    const auto& o = static_cast<const Scattered&>(other);
    return turned_ == o.turned_ && sizes_ == o.sizes_ && dtype_ == o.dtype_;
  }
  bool only_elements() const override { return false; }
  std::string text() const override { return turned_ ? "turned" : "backwards"; }
  std::optional<ort::Layout> of(ort::DType dtype) const override {
    return scattered(sizes_, dtype, turned_);
  }
  std::optional<ort::Layout> of(const ort::Sizes&) const override { return {}; }
  std::unique_ptr<ort::Kernel> from_plain() const override;
  std::unique_ptr<ort::Kernel> to_plain() const override;
  std::unique_ptr<ort::Kernel> to(const BlockedLayout& other) const override;

  size_t plain_bytes() const { return count_ * size_; }
  bool turned() const { return turned_; }
  // f(where element i lies here, where it lies in row-major order), in bytes.
  template <class F>
  void each(F f) const {
    for (size_t i = 0; i < count_; ++i)
      f(kHead + (turned_ ? 2 * ((i + count_ / 2) % count_) + 1 : 2 * (count_ - 1 - i)) * size_,
        i * size_);
  }
  size_t size() const { return size_; }

 private:
  const ort::Sizes sizes_;
  const ort::DType dtype_;
  const bool turned_;
  const size_t count_, size_;
};

const Scattered& as_scattered(const ort::Layout& layout) {
  return static_cast<const Scattered&>(*layout.blocked());
}

// Late, as all work of the device.
class Reorder final : public ort::Kernel {
 public:
  Reorder(ort::Layout from, ort::Layout to, size_t plain_bytes)
      : from_(std::move(from)), to_(std::move(to)), plain_bytes_(plain_bytes) {}
  std::string name() const override {
    return ort::format("reorder {} -> {}", from_.text(), to_.text());
  }
  void run(const ort::Args& args) const override {
    Mistakes& mistakes = Schedule::instance().mistakes;
    const int at = mistakes.reorders++;
    if (mistakes.leave_out(Mistakes::reorder, at)) return;
    const bool as_it_lies = mistakes.leave_out(Mistakes::unordered, at);
    const void* from = args.in[0];
    void* to = args.out[0];
    static_cast<Stream&>(args.stream).queue([this, from, to, as_it_lies] {
      const Bytes& memory = Bytes::instance();
      bring(memory.seen_by_kernels(from), memory.seen_by_kernels(to), as_it_lies);
    });
  }

 private:
  void bring(const void* from, void* to, bool as_it_lies) const {
    std::vector<uint8_t> plain(plain_bytes_);
    if (from_.blocked() && !as_it_lies)
      gather(from_, from, plain.data());
    else
      std::memcpy(plain.data(), from, plain_bytes_);
    if (to_.blocked() && !as_it_lies)
      scatter(to_, plain.data(), to);
    else
      std::memcpy(to, plain.data(), plain_bytes_);
  }

  ort::Layout from_, to_;
  size_t plain_bytes_;
};

std::unique_ptr<ort::Kernel> Scattered::from_plain() const {
  return std::make_unique<Reorder>(ort::Layout(), ort::Layout(std::make_shared<Scattered>(*this)),
                                   plain_bytes());
}

std::unique_ptr<ort::Kernel> Scattered::to_plain() const {
  return std::make_unique<Reorder>(ort::Layout(std::make_shared<Scattered>(*this)), ort::Layout(),
                                   plain_bytes());
}

// One of the two ways is there; the other goes by the row-major order.
std::unique_ptr<ort::Kernel> Scattered::to(const BlockedLayout& other) const {
  if (turned_) return nullptr;
  const auto& o = static_cast<const Scattered&>(other);
  return std::make_unique<Reorder>(ort::Layout(std::make_shared<Scattered>(*this)),
                                   ort::Layout(std::make_shared<Scattered>(o)), plain_bytes());
}

}  // namespace

ort::Layout scattered(const ort::Sizes& sizes, ort::DType dtype, bool turned) {
  return ort::Layout(std::make_shared<Scattered>(sizes, dtype, turned));
}

bool is_turned(const ort::Layout& layout) {
  return as_scattered(layout).turned();
}

void gather(const ort::Layout& layout, const void* from, void* to) {
  const Scattered& order = as_scattered(layout);
  order.each([&](size_t here, size_t plain) {
    std::memcpy(static_cast<char*>(to) + plain, static_cast<const char*>(from) + here,
                order.size());
  });
}

void scatter(const ort::Layout& layout, const void* from, void* to) {
  const Scattered& order = as_scattered(layout);
  order.each([&](size_t here, size_t plain) {
    std::memcpy(static_cast<char*>(to) + here, static_cast<const char*>(from) + plain,
                order.size());
  });
}

}  // namespace far
