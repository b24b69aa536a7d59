// Two orders of elements that are far's own, after a gap and with gaps between the elements:
// backwards, or turned by half. A value that is read as if it lay otherwise is another one.
#pragma once

#include "providers/layout.h"

namespace far {

ort::Layout scattered(const ort::Sizes& sizes, ort::DType dtype, bool turned);
bool is_turned(const ort::Layout& layout);

// From such an order to the row-major one and back, where a kernel of the device sees both.
void gather(const ort::Layout& layout, const void* from, void* to);
void scatter(const ort::Layout& layout, const void* from, void* to);

}  // namespace far
