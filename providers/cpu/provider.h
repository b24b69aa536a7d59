// The CPU provider: oneDNN, tile programs and kernels of our own. Families register their kernels.
#pragma once

#include "providers/kernel_table.h"

namespace ort::cpu {

void register_matmul(KernelTable& table);
void register_movement(KernelTable& table);
void register_index(KernelTable& table);
void register_reduce(KernelTable& table);
void register_order(KernelTable& table);
void register_plain(KernelTable& table);
void register_loss(KernelTable& table);
void register_attention(KernelTable& table);
void register_conv(KernelTable& table);
void register_pool(KernelTable& table);
void register_batch_norm(KernelTable& table);
void register_rnn(KernelTable& table);
void register_quantized(KernelTable& table);

const KernelTable& kernel_table();

}  // namespace ort::cpu
