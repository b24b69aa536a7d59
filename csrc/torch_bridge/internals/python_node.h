// What Python sees of a node of ours: a type with torch's methods, but for the one that refuses.
#pragma once

#include <initializer_list>
#include <typeinfo>

namespace ort::bridge {

// Nodes of these C++ types are objects of one Python type. `why`: said by its register_hook, and
// kept. Once, before the first of them is seen.
void name_node_types(const char* name, const char* why,
                     std::initializer_list<const std::type_info*> nodes);

}  // namespace ort::bridge
