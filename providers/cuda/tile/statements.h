// The text of a tile program's instructions, as the kernel around them has its values at hand.
#pragma once

#include <set>
#include <string>

#include "providers/cuda/tile/form.h"

namespace ort::cuda {

class Statements {
 public:
  Statements(const tile::TileProgram& program, const TileForm& form)
      : p_(program), form_(form), type_(type_name(program.element)) {}
  void line(const std::string& text) { text_ += text + "\n"; }
  std::string take() { return std::move(text_); }

  const tile::TileProgram& program() const { return p_; }
  const TileForm& form() const { return form_; }
  const char* type() const { return type_; }  // of the elements

  std::string number(const tile::Number& n) const;  // of the program or of an instruction
  // Where a cell of a port lies, at the row and column at hand.
  std::string place(const tile::Port& port, size_t input) const;
  std::string operand(int slot) const;
  std::string expression(const tile::Instruction& i) const;
  void element(const tile::Instruction& i);  // at the element at hand
  void find_places();                        // of strided inputs, at the row at hand
  size_t sum_of(int slot) const;             // which sum over rows a slot is
  // The pack of an input at `first` (its number of the element), or at `left` (of the column).
  void load_packs(const std::set<size_t>& inputs);
  void begin_packs(const std::set<size_t>& outputs);
  void store_packs(const std::set<size_t>& outputs);

  // How the kernel around has them.
  bool loops_over_cells = false;  // its values of a row or a column come more than once
  bool packed = false;            // operands are in packs of lanes
  bool leaves = true;             // what is an output is stored where it is made
  std::set<int> arrays;           // slots with a value for each cell of a thread

 private:
  std::string name(int slot) const;
  size_t dropouts_before(int slot) const;
  void store(int slot, const std::string& value);
  const tile::TileProgram& p_;
  const TileForm& form_;
  const char* type_;
  std::string text_;
};

// The body of a kernel with threads for each row.
void write_rows(Statements& out);

}  // namespace ort::cuda
