// Mistakes that are made on purpose, one in a process: in a call of the driver's, or in a text.
#pragma once

#include <string>

namespace cuda_double {

enum class Fault { none, context, release, synchronize, fill, copy, kinds };

// Whether this call is the one that goes wrong; each is counted.
bool goes_wrong(Fault kind);
// The text that is compiled in place of this one.
std::string mutated(const std::string& text);
void note_text(const std::string& text);
void note_launch(const std::string& kernel, const std::string& text);

}  // namespace cuda_double
