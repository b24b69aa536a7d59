// Tables that files fill by themselves: each says its part at file scope, and whoever makes the
// table adds them all, in the order of their names. No list names them.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace ort {

// A part of the table of this name: `const Family<OpSet> family("ops", "norm", add_norm);`.
template <class Table>
class Family {
 public:
  using Add = void (*)(Table&);

  Family(std::string table, std::string name, Add add) {
    all()[{std::move(table), std::move(name)}] = add;
  }

  static void add_all(const std::string& name, Table& table) {
    for (const auto& [family, add] : all())
      if (family.first == name) add(table);
  }

 private:
  static std::map<std::pair<std::string, std::string>, Add>& all() {
    static std::map<std::pair<std::string, std::string>, Add> families;
    return families;
  }
};

}  // namespace ort
