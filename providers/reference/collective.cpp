// Collectives of a group of one process, who has everyone's numbers.
#include "providers/reference/reference.h"

namespace ort::reference {

static void register_collective(KernelTable& table) {
  const auto alone = [](const Node& node) {
    return require(node.attrs.i("size") == 1, "it knows no other processes");
  };
  for (const char* op :
       {"ort::AllReduce", "ort::AllGather", "ort::ReduceScatter", "ort::Broadcast", "ort::Reduce"})
    add(table, op, kNumbers, copy_all, alone);
  add(table, "ort::Wait", kNumbers, copy_all);
}

const Family<KernelTable> kCollectiveKernels("reference", "collective", register_collective);

}  // namespace ort::reference
