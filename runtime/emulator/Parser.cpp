#include "runtime/emulator/Parser.h"

#include "runtime/emulator/DeclarationReader.h"
#include "runtime/emulator/Scopes.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace rho::emulator {

namespace {
// A text that declares more is refused rather than served: far above what ptxas accepts.
constexpr uint64_t maxRegisters = 1 << 20;

class Parser : private DeclarationReader {
public:
  Parser(std::string_view text, std::vector<Token> tokens)
      : DeclarationReader(std::move(tokens)), text(text) {}

  Result<Module> run() {
    scopes.emplace_back();
    while (!failed && peek().kind != Token::Kind::End)
      moduleItem();
    if (failed)
      return std::move(*failed);
    dropForeignLines();
    return std::move(module);
  }

private:
  using Kind = Token::Kind;

  // Module ------------------------------------------------------------------------------------

  void skipLine() {
    uint32_t line = peek().line;
    while (peek().kind != Kind::End && peek().line == line)
      next();
  }

  void skipBraces() {
    if (!expect('{'))
      return;
    for (int depth = 1; depth > 0;) {
      if (peek().kind == Kind::End)
        return fail("`}`");
      if (peek().is('{'))
        ++depth;
      if (peek().is('}'))
        --depth;
      next();
    }
  }

  void skipPragma() {
    while (peek().kind != Kind::End && !peek().is(';'))
      next();
    expect(';');
  }

  void moduleItem() {
    if (accept(';'))
      return;
    if (peek().kind != Kind::DotWord)
      return fail("a directive");
    if (peek().text == ".version") {
      versioned = true;
      return skipLine();
    }
    if (!versioned)
      return fail("`.version` before anything else");
    if (accept(".target")) {
      module.target = word("a target");
      while (accept(','))
        word("a target option");
      return;
    }
    if (module.target.empty())
      return fail("`.target` before anything else");
    directiveOfModule(peek().text);
  }

  void directiveOfModule(std::string_view directive) {
    if (directive == ".address_size") {
      next();
      if (peek().text != "64")
        return fail("64");
      return (void)next();
    }
    if (directive == ".file")
      return fileDirective();
    if (directive == ".loc")
      return locDirective();
    if (directive == ".section") {
      next();
      next(); // its name
      return skipBraces();
    }
    if (directive == ".pragma")
      return skipPragma();
    while (directive == ".visible" || directive == ".extern" || directive == ".weak" ||
           directive == ".common") {
      next();
      directive = peek().text;
    }
    if (directive == ".entry")
      return entry();
    if (directive == ".func") {
      // Kernels call nothing here: a call is refused as an instruction, a definition is not run.
      while (peek().kind != Kind::End && !peek().is(';') && !peek().is('{'))
        next();
      return peek().is('{') ? skipBraces() : (void)expect(';');
    }
    if (directive == ".global" || directive == ".const" || directive == ".shared")
      return variable();
    fail("a directive that the emulator knows");
  }

  void fileDirective() {
    next();
    uint64_t index = count("a file number", maxRegisters);
    if (peek().kind != Kind::String)
      return fail("a file name");
    std::string_view name = next().text;
    name = name.substr(1, name.size() - 2);
    size_t slash = name.find_last_of('/');
    if (slash != std::string_view::npos)
      name.remove_prefix(slash + 1);
    if (name == "rho")
      rhoFile = index;
    while (accept(','))
      count("a number", std::numeric_limits<uint64_t>::max());
  }

  // .loc file line column [, function_name label [+ offset], inlined_at file line column]
  void locDirective() {
    uint32_t textLine = peek().line;
    next();
    uint64_t file = count("a file number", maxRegisters);
    originLine = uint32_t(count("a line number", std::numeric_limits<uint32_t>::max()));
    originFile = uint32_t(file);
    while (peek().kind != Kind::End && peek().line == textLine)
      next();
  }

  // Where the module names a file "rho", lines of other files are no origins.
  void dropForeignLines() {
    if (!rhoFile)
      return;
    size_t index = 0;
    for (Function &function : module.entries)
      for (Statement &statement : function.statements)
        if (statementFiles[index++] != *rhoFile)
          statement.originLine = 0;
  }

  // Declarations ------------------------------------------------------------------------------

  // [.align N] .type name [dims] [= initial]
  void variable() {
    Space space = Space::Global;
    spaceOf(next().text, space);
    if (accept(std::string_view(".attribute")))
      return fail("a variable without attributes");
    do {
      declarator(space);
    } while (!failed && accept(','));
    expect(';');
  }

  void declarator(Space space) {
    Variable variable = variableDeclarator(space);
    if (failed)
      return;
    if (!scopes.back().variables.emplace(variable.name, uint32_t(module.variables.size())).second)
      return fail(variable.line, "`" + std::string(variable.name) + "` again",
                  "a name that is not declared in this scope");
    module.variables.push_back(std::move(variable));
  }

  // Entries -----------------------------------------------------------------------------------

  void entry() {
    next();
    functionStart = module.entries.size();
    module.entries.emplace_back();
    Function &function = module.entries.back();
    uint32_t line = peek().line;
    function.name = word("an entry's name");
    if (std::any_of(module.entries.begin(), module.entries.end() - 1,
                    [&](const Function &each) { return each.name == function.name; }))
      return fail(line, "entry `" + std::string(function.name) + "` again",
                  "each entry once per module");
    if (accept('(')) {
      while (!failed && !accept(')')) {
        parameter(function);
        if (!peek().is(')'))
          expect(',');
      }
    }
    while (!failed && peek().kind == Kind::DotWord) {
      if (accept(".maxntid"))
        threeCounts(function.maxThreads);
      else if (accept(".reqntid"))
        threeCounts(function.requiredThreads);
      else if (accept(".reqnctapercluster"))
        threeCounts(function.requiredCluster);
      else if (accept(".explicitcluster") || accept(".blocksareclusters"))
        continue; // the launch says the grid in CTAs and the shape of a cluster
      else if (accept(".maxnreg"))
        function.registersPerThread = static_cast<uint32_t>(count("a number", 1 << 20));
      else if (accept(".minnctapersm") || accept(".maxnctapersm"))
        count("a number", 1 << 20);
      else
        return fail("a directive of entries that the emulator knows");
    }
    if (failed || accept(';'))
      return;
    if (peek().is('{'))
      body();
    else
      fail("`{`");
  }

  // Body --------------------------------------------------------------------------------------

  Function &function() { return module.entries[functionStart]; }

  void openScope() {
    Scope scope;
    scope.id = uint32_t(function().scopeParents.size());
    function().scopeParents.push_back(scope.id == 0 ? 0 : scopes.back().id);
    scopes.push_back(std::move(scope));
  }

  void body() {
    originLine = originFile = 0;
    expect('{');
    openScope();
    for (const Variable &parameter : function().parameters) {
      scopes.back().variables.emplace(parameter.name, uint32_t(module.variables.size()));
      module.variables.push_back(parameter);
    }
    while (!failed && scopes.size() > 1) {
      if (accept('}'))
        scopes.pop_back();
      else if (accept('{'))
        openScope();
      else
        bodyItem();
    }
  }

  void bodyItem() {
    if (accept(';'))
      return;
    if (peek().kind == Kind::DotWord) {
      std::string_view directive = peek().text;
      Space space;
      if (directive == ".reg")
        return registers();
      if (spaceOf(directive, space))
        return variable();
      if (directive == ".loc")
        return locDirective();
      if (directive == ".file")
        return fileDirective();
      if (directive == ".pragma")
        return skipPragma();
      return fail("a directive that the emulator knows");
    }
    if (peek().kind == Kind::Word && peek(1).is(':')) {
      uint32_t line = peek().line;
      std::string_view name = next().text;
      next();
      if (accept(".branchtargets"))
        return branchTargets(name);
      if (!function()
               .labels
               .emplace(std::pair(scopes.back().id, name), uint32_t(function().statements.size()))
               .second)
        fail(line, "label `" + std::string(name) + "` again", "each label once per scope");
      return;
    }
    instruction();
  }

  void branchTargets(std::string_view name) {
    std::vector<Operand> &targets = function().targetLists[{scopes.back().id, name}];
    do {
      Operand &target = targets.emplace_back();
      target.kind = Operand::Kind::Label;
      target.name = word("a label");
      target.scope = scopes.back().id;
    } while (!failed && accept(','));
    expect(';');
  }

  void registers() {
    next();
    if (accept(".v2") || accept(".v4"))
      return fail("scalar registers");
    Type type = peek().kind == Kind::DotWord ? typeNamed(peek().text.substr(1)) : Type::None;
    bool scalar =
        type == Type::Pred || (bits(type) >= 8 && std::has_single_bit(unsigned(bits(type))));
    if (type == Type::None || !scalar)
      return fail("a register type that the emulator knows");
    next();
    do {
      std::string_view name = word("a register name");
      if (failed)
        return;
      std::vector<Type> &all = function().registers;
      uint64_t amount = 1;
      bool fresh;
      if (accept('<')) {
        amount = count("a number of registers", maxRegisters);
        expect('>');
        fresh = scopes.back()
                    .ranges.emplace(name, Scope::Range{uint32_t(all.size()), uint32_t(amount)})
                    .second;
      } else {
        fresh = scopes.back().registers.emplace(name, uint32_t(all.size())).second;
      }
      if (!failed && !fresh)
        fail(peek().line, "`" + std::string(name) + "` again",
             "a name that is not declared in this scope");
      if (!failed && all.size() + amount > maxRegisters)
        fail(peek().line, std::to_string(all.size() + amount) + " registers",
             "at most " + std::to_string(maxRegisters) + " in one entry");
      if (!failed)
        all.resize(all.size() + amount, type);
    } while (!failed && accept(','));
    expect(';');
  }

  void instruction() {
    Statement statement;
    statement.begin = peek().begin;
    statement.line = peek().line;
    statement.originLine = originLine;
    if (accept('@')) {
      statement.guarded = true;
      statement.guardNegated = accept('!');
      Operand guard;
      if (!operand(guard))
        return;
      if (guard.kind != Operand::Kind::Register || function().registers[guard.index] != Type::Pred)
        return fail(statement.line, "a guard that is no predicate register",
                    "a predicate register after `@`");
      statement.guard = guard.index;
      statement.line = peek().line;
    }
    statement.opcode.push_back(word("an instruction"));
    while (!failed && peek().kind == Kind::DotWord && !peek().spaceBefore)
      statement.opcode.push_back(next().text.substr(1));
    while (!failed && !peek().is(';')) {
      statement.operands.emplace_back();
      if (!operand(statement.operands.back()))
        return;
      if (!peek().is(';'))
        expect(',');
    }
    statement.end = peek().begin;
    expect(';');
    statementFiles.push_back(originFile);
    function().statements.push_back(std::move(statement));
  }

  bool operand(Operand &out) {
    if (accept('{'))
      return vector(out);
    if (accept('['))
      return address(out);
    if (accept('!'))
      out.negated = true;
    if (!simple(out))
      return false;
    if (accept('|')) {
      Operand pair;
      pair.kind = Operand::Kind::Pair;
      pair.parts.push_back(std::move(out));
      pair.parts.emplace_back();
      out = std::move(pair);
      return simple(out.parts.back());
    }
    return out.kind != Operand::Kind::Symbol || offset(out);
  }

  // Behind its `{`.
  bool vector(Operand &out) {
    out.kind = Operand::Kind::Vector;
    do {
      out.parts.emplace_back();
      if (peek().is('{') || peek().is('[')) { // nothing nests deeper than a tensor's coordinates
        fail("a register");
        return false;
      }
      if (!operand(out.parts.back()))
        return false;
    } while (accept(','));
    return expect('}');
  }

  // Behind its `[`.
  bool address(Operand &out) {
    out.kind = Operand::Kind::Address;
    out.parts.emplace_back();
    if (!simple(out.parts.back()))
      return false;
    if (peek().is('+') && peek(1).is('-'))
      next();
    if (!offset(out))
      return false;
    if (accept(',')) {
      if (!peek().is('{')) {
        fail("`{` and the coordinates in a tensor");
        return false;
      }
      if (!operand(out.parts.emplace_back()))
        return false;
    }
    return expect(']');
  }

  // What is added to an address, if anything.
  bool offset(Operand &out) {
    if (!peek().is('+') && !peek().is('-'))
      return true;
    Operand number;
    if (!signedNumber(number))
      return false;
    out.value = number.value;
    return true;
  }

  // A register, number or name.
  bool simple(Operand &out) {
    if (peek().kind == Kind::Number || peek().is('-'))
      return signedNumber(out);
    if (peek().kind != Kind::Word) {
      fail("an operand");
      return false;
    }
    const Token &token = next();
    out.name = token.text;
    if (token.text == "_") {
      out.kind = Operand::Kind::Sink;
      return true;
    }
    if (token.text == "WARP_SZ") {
      out.kind = Operand::Kind::Integer;
      out.value = 32;
      return true;
    }
    if (std::optional<uint32_t> found = findRegister(scopes, token.text)) {
      out.kind = Operand::Kind::Register;
      out.index = *found;
      return true;
    }
    if (token.text[0] == '%') {
      out.kind = Operand::Kind::Special;
      if (peek().kind == Kind::DotWord && !peek().spaceBefore) {
        const Token &member = next();
        out.name = text.substr(token.begin, member.begin + member.text.size() - token.begin);
      }
      return true;
    }
    if (std::optional<uint32_t> found = findVariable(scopes, token.text)) {
      out.kind = Operand::Kind::Symbol;
      out.index = *found;
      return true;
    }
    out.kind = Operand::Kind::Label;
    out.scope = scopes.back().id;
    return true;
  }

  std::string_view text;
  Module module;
  std::vector<Scope> scopes; // [0]: the module
  size_t functionStart = 0;
  bool versioned = false;
  std::optional<uint64_t> rhoFile;
  uint32_t originLine = 0, originFile = 0;
  std::vector<uint32_t> statementFiles; // per statement, in order
};
} // namespace

Result<Module> parseModule(std::string_view ptx) {
  Result<std::vector<Token>> tokens = lex(ptx);
  if (!tokens)
    return std::move(tokens.error());
  return Parser(ptx, std::move(*tokens)).run();
}

} // namespace rho::emulator
