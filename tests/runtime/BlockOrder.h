// PTX in an order of blocks that the emulator takes: it runs the lanes of a warp by least pc, so
// that they meet again only where a block stands before those that it leads to and a loop in one
// piece. clang's blocks stand where they fall through most.
#pragma once

#include <map>
#include <ranges>
#include <sstream>
#include <string>
#include <vector>

namespace rho {

class BlockOrder {
public:
  // The same module; `bra` and `ret` are the only ends of a block that it knows.
  static std::string sorted(const std::string &ptx) {
    std::istringstream lines(ptx);
    std::string out;
    std::vector<std::string> body;
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      if (inside && line == "}") {
        out += BlockOrder(body).text();
        body.clear();
        inside = false;
      }
      if (inside)
        body.push_back(line);
      else
        out += line + "\n";
      if (line == "{")
        inside = true;
    }
    return out;
  }

private:
  struct Block {
    std::string label, text;
    std::vector<std::string> targets; // the one that it falls into, if any, is the last
    bool falls = true;
  };

  explicit BlockOrder(const std::vector<std::string> &body) {
    blocks.emplace_back();
    for (const std::string &line : body) {
      if (line.starts_with("$L")) {
        open(line.substr(0, line.find(':')));
        continue;
      }
      Block &block = blocks.back();
      block.text += line + "\n";
      const size_t branch = line.find("bra");
      const bool isBranch = branch != std::string::npos && line.find("$L") > branch &&
                            line.find("$L") != std::string::npos;
      const bool always = line.find("\tret;") == 0 || (isBranch && line.find('@') > branch);
      if (isBranch)
        block.targets.push_back(line.substr(line.find("$L"), line.find(';') - line.find("$L")));
      if (always)
        block.falls = false;
      if (isBranch || always)
        open("$Lafter_" + std::to_string(blocks.size()));
    }
    for (size_t i = 0; i < blocks.size(); ++i)
      at[blocks[i].label] = i;
    found.resize(blocks.size());
  }

  // Of functions in one module the labels are different; those made here are not, so they are
  // numbered on.
  void open(const std::string &label) {
    static size_t made = 0;
    const bool own = label.starts_with("$Lafter");
    std::string name = own ? "$Lafter_" + std::to_string(made++) : label;
    if (blocks.back().falls)
      blocks.back().targets.push_back(name);
    blocks.push_back({name, {}, {}, true});
  }

  // Bourdoncle 1993, "Efficient chaotic iteration strategies with widenings": a weak topological
  // order, back to front.
  size_t visit(size_t block, std::vector<size_t> &order) {
    stack.push_back(block);
    const size_t mine = found[block] = ++count;
    size_t head = mine;
    bool loops = false;
    for (const std::string &target : blocks[block].targets) {
      const size_t next = at.at(target), least = found[next] ? found[next] : visit(next, order);
      if (least <= head) {
        head = least;
        loops = true;
      }
    }
    if (head != mine)
      return head;
    found[block] = SIZE_MAX;
    size_t top = stack.back();
    stack.pop_back();
    std::vector<size_t> component;
    if (loops) {
      for (; top != block; stack.pop_back()) {
        found[top] = 0;
        top = stack.back();
      }
      for (const std::string &target : blocks[block].targets)
        if (found[at.at(target)] == 0)
          visit(at.at(target), component);
    }
    order.insert(order.end(), component.begin(), component.end());
    order.push_back(block);
    return head;
  }

  std::string text() {
    std::vector<size_t> order;
    blocks.back().falls = false; // behind the last instruction
    blocks.back().targets.clear();
    visit(0, order);
    std::string out;
    for (size_t block : std::views::reverse(order)) {
      const Block &each = blocks[block];
      out += (each.label.empty() ? "" : each.label + ":\n") + each.text;
      if (each.falls)
        out += "\tbra.uni \t" + each.targets.back() + ";\n";
    }
    return out;
  }

  std::vector<Block> blocks;
  std::map<std::string, size_t> at;
  std::vector<size_t> found, stack; // when a block was found; 0: not yet, or to be once more
  size_t count = 0;
};

} // namespace rho
