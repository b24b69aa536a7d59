// How a value lies in its memory.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "csrc/core/dim.h"
#include "csrc/core/dtype.h"

namespace ort {

class Kernel;

// An order of elements that its provider's kernels know. Values of one have its sizes and dtype.
class BlockedLayout {
 public:
  virtual ~BlockedLayout() = default;
  virtual size_t bytes() const = 0;
  virtual bool equals(const BlockedLayout& other) const = 0;
  // Whether it holds the elements alone, once each: who takes them one by one may take any order.
  virtual bool only_elements() const = 0;
  // b where the value lies as [N, C / b, spatial axes.., b]; else 0.
  virtual int64_t channel_block() const { return 0; }
  // Whether the value lies as [N, spatial axes.., C].
  virtual bool channels_last() const { return false; }
  // The same order of a value of other sizes; null where there is none.
  virtual std::shared_ptr<const BlockedLayout> of_sizes(const Sizes& /*sizes*/) const {
    return nullptr;
  }
  virtual std::string text() const = 0;  // "aBcd16b": blocks of 16 channels
  // The same order of elements of another dtype; null: there is none.
  virtual std::shared_ptr<const BlockedLayout> of(DType dtype) const = 0;
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
  // The same order of elements of another dtype.
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
