// Every ORTMODULE_* variable: nothing else calls getenv, and Python asks none of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ort::env {

int debug();  // ORTMODULE_DEBUG: 1 summary, 2 step times, 3 passes, 4 tile programs and generated
              // source
std::string why();   // ORTMODULE_WHY: an op whose refusals are printed
std::string near();  // ORTMODULE_NEAR: a rule whose near-misses are printed
bool poison();       // ORTMODULE_POISON: memory that is handed out is filled with NaNs

// What holds where Options (csrc/program/options.h) are silent.
std::vector<std::string> providers();  // ORTMODULE_PROVIDERS: claim order
bool check();                          // ORTMODULE_CHECK: verify after each pass
std::optional<int> fuel();             // ORTMODULE_FUEL: only the first n rewrites
std::vector<std::string> off();        // ORTMODULE_OFF: rules and passes to leave out
std::string dump();                    // ORTMODULE_DUMP: folder for every stage; empty: none

// ORTMODULE_CACHE: folder of compiled kernels, by its absolute path, or `off`; else `ortmodule` in
// the user's folder of caches. Empty: there is none.
std::string code_cache();

}  // namespace ort::env
