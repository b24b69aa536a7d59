// How a value lies in its memory.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "csrc/core/dim.h"
#include "csrc/core/dtype.h"

namespace ort {

class Kernel;
class Layout;

// An order of elements that its provider's kernels know. Values of one have its sizes and dtype.
class BlockedLayout {
 public:
  virtual ~BlockedLayout() = default;
  virtual size_t bytes() const = 0;
  virtual bool equals(const BlockedLayout& other) const = 0;
  // Whether it holds the elements alone, once each: who takes them one by one may take any order.
  virtual bool only_elements() const = 0;
  // How many channels lie side by side: b where the value lies as [N, C / b, spatial axes.., b], C
  // where it does as [N, spatial axes.., C]; else 0.
  virtual int64_t channels_in_row() const { return 0; }
  virtual bool channels_last() const { return false; }
  int64_t channel_block() const { return channels_last() ? 0 : channels_in_row(); }
  virtual std::string text() const = 0;  // "aBcd16b": blocks of 16 channels
  // The same order of elements of another dtype, and of other sizes; nullopt: there is none.
  virtual std::optional<Layout> of(DType dtype) const = 0;
  virtual std::optional<Layout> of(const Sizes& sizes) const = 0;
  // Kernels of one input and one output.
  virtual std::unique_ptr<Kernel> from_plain() const = 0;
  virtual std::unique_ptr<Kernel> to_plain() const = 0;
  // Null: only by way of the plain one.
  virtual std::unique_ptr<Kernel> to(const BlockedLayout& other) const = 0;
};

// Row-major, where nothing else is said.
class Layout {
 public:
  enum class Kind : uint8_t {
    plain,
    blocked,
    opaque  // an object that only its provider can read, in no memory of the plan's
  };
  Layout() = default;
  explicit Layout(std::shared_ptr<const BlockedLayout> blocked)
      : kind_(Kind::blocked), blocked_(std::move(blocked)) {}
  static Layout opaque() {
    Layout layout;
    layout.kind_ = Kind::opaque;
    return layout;
  }

  bool is_plain() const { return kind_ == Kind::plain; }
  bool is_opaque() const { return kind_ == Kind::opaque; }
  const BlockedLayout* blocked() const { return blocked_.get(); }
  // The same order of elements of another dtype; nullopt: there is none.
  std::optional<Layout> of(DType dtype) const;
  // Of a value of these sizes.
  size_t bytes(const Sizes& sizes, DType dtype) const;
  std::string text() const;
  bool operator==(const Layout& other) const {
    return kind_ == other.kind_ && (!blocked_ || blocked_->equals(*other.blocked_));
  }

 private:
  Kind kind_ = Kind::plain;
  std::shared_ptr<const BlockedLayout> blocked_;
};

// A kernel that brings a value from one layout to another; one of the two is blocked.
std::unique_ptr<Kernel> reorder(const Layout& from, const Layout& to);

}  // namespace ort
