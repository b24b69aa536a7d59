// The weight gradient of a convolution with one channel in each group, over values whose channels
// lie side by side: oneDNN pads every group to a vector there. conv_grad.cpp asks for it first.
#pragma once

#include "providers/cpu/conv/window.h"

namespace ort::cpu {

// dw[c, k] = sum over n, o of dy[n, c, o] x[n, c, o stride + k dilation - before], float32 and two
// spatial axes. Null for others, and where neither operand comes in blocks of channels or with its
// channels last.
std::unique_ptr<Kernel> depthwise_grad_w(const Request& r, const Window& window);

}  // namespace ort::cpu
