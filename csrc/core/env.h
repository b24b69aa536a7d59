// Every ORTMODULE_* variable that the engine reads: nothing else calls getenv.
#pragma once

#include <string>

namespace ort::env {

int debug();         // ORTMODULE_DEBUG: 1 summary, 2 step times, 3 passes, 4 generated source
std::string why();   // ORTMODULE_WHY: an op whose refusals are printed
std::string near();  // ORTMODULE_NEAR: a rule whose near-misses are printed
bool poison();       // ORTMODULE_POISON: memory that is handed out is filled with NaNs

}  // namespace ort::env
