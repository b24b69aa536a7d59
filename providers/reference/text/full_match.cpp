// Texts that a regular expression matches as a whole.
#include "csrc/ops/text/regex.h"
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

std::unique_ptr<Kernel> full_match(const Request& r) {
  const auto pattern = std::make_shared<const regex::Pattern>(r.attrs().s("pattern"));
  const int64_t count = element_count(r.sizes(0));
  return make_kernel("regular expression", [=](const Args& args) {
    static const std::string kEmpty;
    for (int64_t i = 0; i < count; ++i) {
      const std::string* text = input<const std::string*>(args, 0)[i];
      output<bool>(args)[i] = pattern->matches(text ? *text : kEmpty);
    }
  });
}

}  // namespace

static void register_reference_full_match(KernelTable& table) {
  table.op("RegexFullMatch").add("regular expression", kAny, full_match);
}

const Family<KernelTable> kFullMatchKernels("reference", "text/full_match",
                                            register_reference_full_match);

}  // namespace ort::reference
