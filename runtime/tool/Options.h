// The command line of `rho`: one table of options, read into a checked value.
#pragma once

#include "dsl/Error.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rho::tool {

enum class Command : uint8_t {
  Run,
  Check,
  Fmt,
  Lsp,
  Compile,
  Bench,
  Tune,
  Verify,
  Devices,
  Explain,
  Plan,
  Probe,
  Rotate,
  Quantize,
  Error,
  CacheList,
  CacheVerify,
  CacheClear,
  CacheExport,
  CacheImport,
  CacheWarm,
  Help,
  Version
};

struct CommandSpec {
  Command command;
  std::string_view name;  // one word or two
  std::string_view usage; // what follows the name
  std::string_view help;
};

// One option. Commands that it belongs to are bits 1 << Command.
struct OptionSpec {
  enum class Kind : uint8_t {
    Flag,   // no value
    Text,   // any text
    Texts,  // the same, may be given several times
    Input,  // a file that is read, perhaps with :NAME behind it, or a name of another kind
    Inputs, // the same, may be given several times
    Output, // the name of a file that is written
    Choice, // one of `value`, separated by '|'
    Count,  // a whole number, at least 1
    Counts, // counts separated by commas
    Pairs,  // pairs of counts such as 64x128, separated by commas
    Seed,   // a whole number, at least 0
    Bytes,  // a whole number, at least 1, alone or with K, M or G
  };
  std::string_view name; // with its dashes
  Kind kind;
  std::string_view value; // placeholder; for Choice the choices
  unsigned commands;
  bool changesCode; // whether the generated kernel can depend on it
  std::string_view help;
};

std::span<const CommandSpec> commandTable();
std::span<const OptionSpec> optionTable();

// A command line whose options are all known, complete and well-formed.
class Options {
public:
  // `arguments` without the program's name. Errors: unknown_command, unknown_option,
  // option_without_value, option_with_value, option_twice, bad_option_value, option_conflict.
  static Result<Options> parse(std::span<const std::string> arguments);

  Command command() const { return chosen; }
  std::string_view commandName() const;
  const std::vector<std::string> &files() const { return positional; }
  // The one file that a command works on; error wrong_file_count.
  Result<std::string> onlyFile() const;
  bool has(std::string_view name) const { return values.contains(name); }
  std::string text(std::string_view name, std::string_view otherwise = {}) const;
  // All of them, in order.
  std::vector<std::string> texts(std::string_view name) const;
  // Their parts before and behind the first =; without one, no part behind.
  std::vector<std::pair<std::string, std::string>> assignments(std::string_view name) const;
  std::optional<int64_t> count(std::string_view name) const; // also of a Seed
  unsigned threads() const; // of --threads; 0: not given, one for each core
  // `otherwise` where the option is not given.
  std::vector<int64_t> counts(std::string_view name, std::vector<int64_t> otherwise = {}) const;
  std::vector<std::pair<int64_t, int64_t>> pairs(std::string_view name) const;

  // That no output would replace one of these files, FILE or FILE:NAME, or what they import, which
  // are read besides those that the command line names. Errors: option_conflict.
  Status keeps(const std::vector<std::string> &read) const;
  // The same of those that it names, that no two outputs are one file, and checkWritable() of each.
  // Errors: option_conflict, file_not_writable.
  Status checkOutputs() const;

private:
  static Options helpOn(std::string_view name); // of a command
  // What stands behind the command's name.
  Status read(std::span<const std::string> arguments);

  Command chosen = Command::Help;
  std::vector<std::string> positional;
  std::map<std::string, std::vector<std::string>, std::less<>> values; // of Texts several
};

// All commands, or the options of one.
std::string helpText();
std::string helpText(Command command);

} // namespace rho::tool
