// The version of the engine, as ortmodule/__init__.py states it. Called by both Python modules.
#pragma once

namespace ort {

const char* version();

}  // namespace ort
