// Printing and parsing graphs. One node a line; %7 is value 7, %name an input; # starts a comment.
#include "csrc/graph/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "csrc/graph/schema.h"

namespace ort {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {
    std::set<std::string> taken;
    for (const ValueId id : graph.inputs()) {
      const std::string& name = graph.value(id).name();
      const bool plain = !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
                         std::all_of(name.begin(), name.end(), is_word);
      names_[id] = plain && taken.insert(name).second ? name : std::to_string(id);
    }
  }

  std::string print(const std::string& indent = "") {
    std::string text = "graph (";
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const ValueId id = graph_.inputs()[i];
      text += format("{}{}: {} {}", i ? ", " : "", ref(id), graph_.value(id).type().text(),
                     name_of(graph_.role(id)));
    }
    text += ")\n";
    for (const Node* node : graph_.order()) {
      text += indent + "  " + line(*node) + "\n";
      for (const auto& [name, body] : node->bodies)
        text += indent + "    with " + name + " = " + Printer(*body).print(indent + "    ");
    }
    text += indent + "return (";
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      text += format("{}\"{}\" = {}", i ? ", " : "", graph_.outputs()[i].name,
                     ref(graph_.outputs()[i].value));
    return text + ")\n";
  }

 private:
  std::string ref(ValueId id) const {
    if (id == kNone) return "_";
    const auto named = names_.find(id);
    return "%" + (named != names_.end() ? named->second : std::to_string(id));
  }

  std::string line(const Node& node) const {
    std::string text, types;
    for (size_t i = 0; i < node.out.size(); ++i) {
      text += (i ? ", " : "") + ref(node.out[i]);
      types += (i ? ", " : "") + (node.out[i] == kNone ? "_" : node.output(i).type().text());
    }
    text += (text.empty() ? "= " : " = ") + node.qualified() + "(";
    for (size_t i = 0; i < node.in.size(); ++i) text += (i ? ", " : "") + ref(node.in[i]);
    text += ")" + attrs(node);
    if (node.segment >= 0) text += format(" @{}", node.segment);
    if (node.recompute) text += " again";
    text += "  # " + types;
    if (node.where) text += "; " + node.where->text();
    if (!node.by.empty()) text += "; by " + node.by;
    return text;
  }

  static std::string attrs(const Node& node) {
    std::string text;
    for (const auto& [name, value] : node.attrs) {
      const auto& specs = node.schema->attrs();
      const auto spec =
          std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.name == name; });
      if (spec != specs.end() && spec->otherwise && same_attr(*spec->otherwise, value)) continue;
      text += (text.empty() ? " {" : ", ") + name + "=" + attr_text(value);
    }
    return text.empty() ? "" : text + "}";
  }

  const Graph& graph_;
  std::map<ValueId, std::string> names_;
};

class TextParser {
 public:
  TextParser(std::string_view text, const OpSet* ops) : text_(text), ops_(ops) {}

  std::unique_ptr<Graph> graph() {
    auto graph = std::make_unique<Graph>(*ops_);
    fill(*graph);
    return graph;
  }

  void fill(Graph& target) {
    graph_ = &target;
    expect("graph");
    expect("(");
    while (!eat(")")) {
      const std::string name = reference();
      expect(":");
      const Type type = this->type();
      define(name, graph_->input(name, type, role()));
      eat(",");
    }
    while (!eat("return")) node();
    expect("(");
    while (!eat(")")) {
      const std::string name = string();
      expect("=");
      graph_->output(use(), name);
      eat(",");
    }
  }

  Type type() {
    const std::string head = word();
    if (head == "opaque") return Type::opaque();
    if (head == "seq" || head == "optional" || head == "map") {
      expect("(");
      const DType keys = head == "map" ? dtype_named(word()) : DType::undefined;
      if (head == "map") expect(",");
      Type inner = type();
      expect(")");
      return head == "seq"   ? Type::sequence(std::move(inner))
             : head == "map" ? Type::map(keys, std::move(inner))
                             : Type::optional(std::move(inner));
    }
    const DType dtype = dtype_named(head);
    expect("[");
    if (eat("..]")) return Type::tensor(dtype, std::nullopt);
    return Type::tensor(dtype, dims());
  }

  void end() {
    skip();
    if (at_ != text_.size()) complain("unexpected text");
  }

 private:
  [[noreturn]] void complain(const std::string& what) const {
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<long>(at_), '\n') + 1;
    fail("graph text, line {}: {} before '{}'", line, what, text_.substr(at_, 30));
  }
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  bool peek(std::string_view token) {
    skip();
    return text_.substr(at_, token.size()) == token;
  }
  bool eat(std::string_view token) {
    if (!peek(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!eat(token)) complain(format("expected '{}'", token));
  }
  std::string word() {
    skip();
    const size_t start = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || text_.substr(at_, 2) == "::"))
      at_ += text_.substr(at_, 2) == "::" ? 2 : 1;
    if (at_ == start) complain("expected a name");
    return std::string(text_.substr(start, at_ - start));
  }
  std::string reference() {
    expect("%");
    return word();
  }
  std::string string() {
    expect("\"");
    std::string result;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && ++at_ < text_.size() && text_[at_] == 'n') {
        result += '\n';
        ++at_;
        continue;
      }
      if (at_ < text_.size()) result += text_[at_++];
    }
    expect("\"");
    return result;
  }
  Role role() {
    skip();
    size_t end = at_;
    while (end < text_.size() && std::isalpha(static_cast<unsigned char>(text_[end]))) ++end;
    const auto role = role_named(text_.substr(at_, end - at_));
    if (role) at_ = end;
    return role.value_or(Role::user);
  }
  void define(const std::string& name, Value value) {
    if (!values_.emplace(name, value).second) complain(format("'%{}' is defined twice", name));
  }
  Value use() {
    if (eat("_")) return {};
    const std::string name = reference();
    const auto found = values_.find(name);
    if (found == values_.end()) complain(format("'%{}' is not defined", name));
    return found->second;
  }
  // Dims up to the closing bracket.
  Dims dims() {
    Dims result;
    while (!eat("]")) {
      skip();
      size_t end = at_;
      for (int depth = 0; end < text_.size(); ++end) {
        if (text_[end] == '(') ++depth;
        if (text_[end] == ')') --depth;
        if (depth == 0 && (text_[end] == ',' || text_[end] == ']')) break;
      }
      result.push_back(Dim::parse(text_.substr(at_, end - at_)));
      at_ = end;
      eat(",");
    }
    return result;
  }
  void node() {
    std::vector<std::string> names;
    while (!eat("=")) {
      names.push_back(eat("_") ? "" : reference());
      eat(",");
    }
    const std::string op = word();
    expect("(");
    std::vector<Value> in;
    while (!eat(")")) {
      in.push_back(use());
      eat(",");
    }
    Attrs attrs;
    if (eat("{"))
      while (!eat("}")) {
        const std::string name = word();
        expect("=");
        attrs.set(name, attribute());
        eat(",");
      }
    graph_->context.segment = eat("@") ? static_cast<int>(number()) : -1;
    graph_->context.recompute = eat("again");
    const auto out =
        graph_->emit(op, in, std::move(attrs), static_cast<int>(names.size()), bodies());
    graph_->context = {};
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i].empty())
        out[i].producer()->out[i] = kNone;
      else
        define(names[i], out[i]);
  }
  // The graphs of a node, each with values of its own.
  Bodies bodies() {
    Bodies result;
    while (eat("with ")) {
      if (++depth_ > kMaxDepth) complain("graphs are nested too deeply");
      const std::string name = word();
      expect("=");
      auto outer = std::exchange(values_, {});
      Graph* around = graph_;
      result.emplace_back(name, around->new_body());
      fill(*result.back().second);
      graph_ = around;
      values_ = std::move(outer);
      --depth_;
    }
    return result;
  }
  // A number; `integral` says whether it was written as an int.
  double number(bool* integral = nullptr) {
    skip();
    size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) ||
            std::string_view("+-.").find(text_[end]) != std::string_view::npos))
      ++end;
    const std::string token(text_.substr(at_, end - at_));
    char* stop = nullptr;
    const double value = std::strtod(token.c_str(), &stop);
    if (token.empty() || *stop) complain("expected a number");
    at_ = end;
    if (integral) *integral = token.find_first_of(".eEni") == std::string::npos;
    if (integral && *integral) last_int_ = std::strtoll(token.c_str(), nullptr, 10);
    return value;
  }
  Attr attribute() {
    if (peek("\"")) return string();
    if (eat("dims[")) return dims();
    if (eat("[")) return list();
    skip();
    if (std::isalpha(static_cast<unsigned char>(text_[at_])) && !peek("inf") && !peek("nan"))
      return tensor();
    bool integral = false;
    const double value = number(&integral);
    if (integral) return last_int_;
    return value;
  }
  Attr list() {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<std::string> strings;
    bool all_ints = true;
    while (!eat("]")) {
      if (peek("\"")) {
        strings.push_back(string());
      } else {
        bool integral = false;
        floats.push_back(number(&integral));
        ints.push_back(integral ? last_int_ : 0);
        all_ints = all_ints && integral;
      }
      eat(",");
    }
    if (!strings.empty()) return strings;
    if (all_ints) return ints;
    return floats;
  }
  Attr tensor() {
    const DType dtype = dtype_named(word());
    expect("[");
    const Sizes sizes = numbers_of(dims(), {});
    Tensor result = Tensor::empty(dtype, sizes);
    if (eat("x")) return bytes(std::move(result));
    expect("{");
    if (peek("...")) complain("the constant's elements were left out");
    for (int64_t i = 0; !eat("}"); ++i) {
      if (i >= result.count()) complain("the constant has too many elements");
      bool integral = false;
      const double value = number(&integral);
      if (dtype == DType::i64 && integral)
        result.as<int64_t>()[i] = last_int_;
      else
        set_element(result, i, value);
      eat(",");
    }
    return result;
  }
  Attr bytes(Tensor tensor) {
    for (size_t i = 0; i < tensor.bytes(); ++i, at_ += 2) {
      unsigned value = 0;
      const auto pair = text_.substr(at_, 2);
      if (std::from_chars(pair.data(), pair.data() + pair.size(), value, 16).ec != std::errc() ||
          pair.size() != 2)
        complain("the constant has too few bytes");
      tensor.as<uint8_t>()[i] = static_cast<uint8_t>(value);
    }
    return tensor;
  }

  std::string_view text_;
  const OpSet* ops_;
  static constexpr int kMaxDepth = 64;
  Graph* graph_ = nullptr;
  int depth_ = 0;
  size_t at_ = 0;
  int64_t last_int_ = 0;
  std::map<std::string, Value> values_;
};

}  // namespace

Type parse_type(std::string_view text) {
  TextParser parser(text, nullptr);
  Type type = parser.type();
  parser.end();
  return type;
}

std::string print(const Graph& graph) {
  return Printer(graph).print();
}

std::unique_ptr<Graph> parse(std::string_view text, const OpSet& ops) {
  TextParser parser(text, &ops);
  auto graph = parser.graph();
  parser.end();
  return graph;
}

}  // namespace ort
