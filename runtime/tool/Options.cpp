#include "runtime/tool/Options.h"

#include "dsl/Findings.h"
#include "dsl/Module.h"
#include "kernels/ShardIndex.h"
#include "kernels/TensorHeader.h"
#include "runtime/CacheEntries.h"
#include "runtime/ReadNumber.h"
#include "runtime/tool/Files.h"

#include <algorithm>
#include <filesystem>

namespace rho::tool {

namespace {

using Kind = OptionSpec::Kind;

constexpr unsigned bit(Command command) { return 1U << static_cast<unsigned>(command); }
constexpr unsigned run = bit(Command::Run);
constexpr unsigned fmt = bit(Command::Fmt);
constexpr unsigned lsp = bit(Command::Lsp);
constexpr unsigned compile = bit(Command::Compile);
constexpr unsigned bench = bit(Command::Bench);
constexpr unsigned tune = bit(Command::Tune);
constexpr unsigned verifying = bit(Command::Verify);
constexpr unsigned explain = bit(Command::Explain);
constexpr unsigned plan = bit(Command::Plan);
constexpr unsigned probing = bit(Command::Probe);
constexpr unsigned rotate = bit(Command::Rotate);
constexpr unsigned quantize = bit(Command::Quantize);
constexpr unsigned error = bit(Command::Error);
constexpr unsigned clearing = bit(Command::CacheClear);
constexpr unsigned importing = bit(Command::CacheImport);
constexpr unsigned warm = bit(Command::CacheWarm);
constexpr unsigned anyCache = bit(Command::CacheList) | bit(Command::CacheVerify) | clearing |
                              bit(Command::CacheExport) | importing | warm;

constexpr CommandSpec commands[] = {
    {Command::Run, "run", "FILE.rho [options]",
     "compile a gemm, run it and check the result against the exact reference"},
    {Command::Check, "check", "FILE.rho...", "print all diagnostics, or what the files declare"},
    {Command::Fmt, "fmt", "FILE.rho... [options]",
     "rewrite files in their canonical layout; - is standard input to standard output"},
    {Command::Lsp, "lsp", "[options]",
     "serve an editor: the Language Server Protocol over standard input"},
    {Command::Compile, "compile", "FILE --emit=STAGE [options]",
     "print a stage of the compilation, or go on from a printed one"},
    {Command::Bench, "bench", "[FILE.rho...] [options]",
     "time the compilation and the kernels; without files those in kernels/gemms"},
    {Command::Tune, "tune", "[FILE.rho...] --n-k NxK,... [options]",
     "measure the planner's best candidates on a GPU and keep the fastest for later compilations"},
    {Command::Verify, "verify", "[FILE.rho...] [options]",
     "check gemms at random shapes against the exact reference; without files those in "
     "kernels/gemms"},
    {Command::Devices, "devices", "[FILE.rho...]",
     "print the described devices and their rho for each operand type"},
    {Command::Explain, "explain", "FILE.rho --m M --n N --k K [options]",
     "print what each placement and kind of schedule is predicted to cost, and why the others "
     "lose"},
    {Command::Plan, "plan", "MODEL.json [FILE.rho...] [options]",
     "give each layer of a model one of several gemms, by rules or predicted time"},
    {Command::Probe, "probe", "[options]",
     "measure what a device declaration says on the GPU at hand"},
    {Command::Rotate, "rotate",
     "FILE.safetensors --inputs GLOB... --outputs GLOB... -o FILE.safetensors [options]",
     "rotate pairs of weights, which leaves what a model computes as it is"},
    {Command::Quantize, "quantize",
     "FILE.safetensors --format FORMAT -o FILE.safetensors [options]",
     "encode the weights of a file, or of those that FILE.safetensors.index.json joins"},
    {Command::Error, "error", "FILE.safetensors --format FORMAT... | --quantized FILE... [options]",
     "compare the errors that weights have in formats"},
    {Command::CacheList, "cache list", "[options]",
     "what is kept on disk, and when it was used last"},
    {Command::CacheVerify, "cache verify", "[options]", "check every byte of what is kept on disk"},
    {Command::CacheClear, "cache clear", "[options]", "remove compiled kernels from disk"},
    {Command::CacheExport, "cache export", "FILE [options]",
     "write what is kept on disk to one file"},
    {Command::CacheImport, "cache import", "FILE [options]",
     "add what such a file holds, if all of it is sound"},
    {Command::CacheWarm, "cache warm", "[FILE.rho...] --n-k NxK,... [options]",
     "compile gemms ahead of their first use; without files those in kernels/gemms"},
    {Command::Help, "help", "[COMMAND]", "print the commands, or the options of one"},
    {Command::Version, "--version", "", "print the versions of rho and of its compiler"},
};

constexpr OptionSpec options[] = {
    {"--check", Kind::Flag, "", fmt, false, "write nothing, list the files that would change"},
    {"--stdio", Kind::Flag, "", lsp, false, "what it does without, too; some editors say it"},
    {"--clientProcessId", Kind::Count, "ID", lsp, false,
     "of the editor, whose end is that of the input all the same"},
    {"--m", Kind::Count, "M", run | compile | explain, true,
     "rows of the activations and of the output"},
    {"--n", Kind::Count, "N", run | compile | explain, true,
     "rows of the weight, columns of the output"},
    {"--k", Kind::Count, "K", run | compile | explain, true, "columns of both operands"},
    {"--suite", Kind::Choice, "llama", bench, false,
     "kernels alone on a GPU at the shapes of such models, beside cuBLASLt"},
    {"--one-weight", Kind::Flag, "", bench, false,
     "of a suite: each gemm once more, with one packed weight for all m"},
    {"--m", Kind::Counts, "M,...", bench, true,
     "rows of the activations (default 1,16, of a suite 1 to 8192)"},
    {"--n", Kind::Counts, "N,...", bench, true, "rows of the weight (default 8192, emulated 256)"},
    {"--k", Kind::Counts, "K,...", bench, true,
     "columns of both operands (default 8192, emulated 256)"},
    {"--n-k", Kind::Pairs, "NxK,...", bench, true, "shapes of the weight in place of the suite's"},
    {"--kv", Kind::Text, "FORMAT[,FORMAT]", bench, true,
     "attention over a paged cache of keys and values in formats of the file, beside one of f16"},
    {"--batch", Kind::Counts, "B,...", bench, false, "sequences of --kv (default 64, emulated 1)"},
    {"--length", Kind::Counts, "L,...", bench, false,
     "tokens of each sequence (default 4096, emulated 160)"},
    {"--shortest", Kind::Count, "L", bench, false,
     "tokens of the shortest sequence, from which lengths are spread evenly to --length"},
    {"--heads", Kind::Pairs, "QxKV,...", bench, true,
     "query heads and heads of the cache (default 32x8, emulated 2x1)"},
    {"--head-dim", Kind::Count, "D", bench, true, "channels of a head, 64 or 128 (default 128)"},
    {"--page", Kind::Count, "T", bench, true, "tokens of a page (default 128)"},
    {"--parts", Kind::Count, "P", bench, false,
     "CTAs that share the pages of a sequence's head (default: those predicted fastest)"},
    {"--suite", Kind::Choice, "llama", tune, false, "tune for the shapes of such models"},
    {"--n-k", Kind::Pairs, "NxK,...", tune, false, "shapes of the weight to tune for"},
    {"--m", Kind::Counts, "M,...", tune, false,
     "rows of the activations; each stands for all up to the next multiple of 16, below 33 and "
     "above 1024 the next power of two (default 1 to 8192)"},
    {"--m", Kind::Counts, "M,...", warm, true, "rows of the activations (default 1)"},
    {"--n", Kind::Counts, "N,...", warm, true, "rows of the weight"},
    {"--k", Kind::Counts, "K,...", warm, true, "columns of both operands"},
    {"--n-k", Kind::Pairs, "NxK,...", warm, true, "shapes of the weight in place of --n and --k"},
    {"--launch", Kind::Choice, "serial|dependent|both", bench | tune | verifying | warm, true,
     "each gemm with serial launches, with programmatic dependent ones, or as two (default as "
     "declared)"},
    {"--launch", Kind::Choice, "serial|dependent", run | compile | explain, true,
     "plan for serial launches, or for programmatic dependent ones (default as declared)"},
    {"--candidates", Kind::Count, "COUNT", tune, false,
     "plans to measure for each shape, at most (default 24)"},
    {"--count", Kind::Count, "COUNT", verifying, false, "problems to draw (default 200)"},
    {"--m", Kind::Count, "M", verifying, true, "rows of the activations, at most (default 300)"},
    {"--n", Kind::Count, "N", verifying, true, "rows of the weight, at most (default 2000)"},
    {"--k", Kind::Count, "K", verifying, true, "columns of both operands, at most (default 4000)"},
    {"--m", Kind::Counts, "M,...", plan, false,
     "rows of the activations (default those of the model)"},
    {"--policy", Kind::Input, "FILE", plan, false,
     "candidates and rules (JSON; default what the model names)"},
    {"--gemm", Kind::Text, "NAME", run | compile | bench | tune | verifying | warm | explain, true,
     "which gemm of the file, if it declares several"},
    {"--device", Kind::Input, "DEVICE", tune | probing, true,
     "auto (the first GPU), cuda or cuda:I"},
    {"--device", Kind::Input, "DEVICE", run | bench | verifying | warm, true,
     "auto (the first GPU, else the emulator), cuda, cuda:I, or emulated: a target such as sm_80, "
     "a device of 'rho devices', FILE.rho that describes one"},
    {"--device", Kind::Input, "DEVICE", compile | explain | plan, true,
     "the device to plan for: as of 'rho run' (default of explain and plan auto, of compile "
     "--target)"},
    {"--target", Kind::Text, "TARGET", compile, true,
     "the architecture to compile for (default sm_80)"},
    {"--weights", Kind::Input, "FILE", run, false,
     "n x k numbers from FILE.npy or FILE.safetensors[:NAME] (default synthetic)"},
    {"--activations", Kind::Input, "FILE", run, false,
     "m x k numbers from FILE.npy or FILE.safetensors[:NAME] (default synthetic)"},
    {"--output", Kind::Output, "FILE", run, false,
     "write the output to FILE.npy or FILE.safetensors"},
    {"--seed", Kind::Seed, "S", run | bench | tune | verifying, false,
     "of synthetic numbers and random shapes (default 1)"},
    {"--verify", Kind::Choice, "full|sample|none", run, false,
     "outputs to check (default full, for large problems sample)"},
    {"--cache-dir", Kind::Text, "DIR", run | tune | anyCache, false,
     "folder of compiled kernels and tuned plans"},
    {"--cache-limit", Kind::Bytes, "BYTES", run | importing | warm, false,
     "remove the least recently used kernels past this size, such as 512M (default 1G)"},
    {"--tuned", Kind::Flag, "", clearing, false, "remove the plans that rho tune kept as well"},
    {"--damaged", Kind::Flag, "", clearing, false,
     "remove only what rho cache verify finds damaged"},
    {"--no-cache", Kind::Flag, "", run, false, "neither read nor write compiled kernels on disk"},
    {"--untuned", Kind::Flag, "", run | bench | warm, true,
     "the planner's choice even where rho tune kept another plan"},
    {"--emit", Kind::Choice, "ast|format|plan|decode|rho|tile|llvm|ptx", compile, false,
     "the stage to print (default ptx)"},
    {"--from", Kind::Choice, "rho|tile|llvm", compile, true,
     "FILE is the printed text of this stage"},
    {"--plan", Kind::Input, "FILE", compile, true, "follow this printed plan"},
    {"--format", Kind::Input, "FORMAT", quantize, false,
     "FILE.rho[:NAME], the name of a shipped format, f16, bf16 or f32; NAME(32) with arguments"},
    {"--format-of", Kind::Texts, "GLOB=FORMAT", quantize, false,
     "another format of the weights with such names, the first that matches; may be given several "
     "times"},
    {"--together", Kind::Texts, "NAME=GLOB", quantize, false,
     "encode weights with others as one, as q, k and v, so that they can be one weight; * of GLOB "
     "is what * of NAME was; may be given several times"},
    {"--format", Kind::Inputs, "FORMAT", error, false,
     "FILE.rho[:NAME], or the name of a shipped format; may be given several times"},
    {"--quantized", Kind::Inputs, "FILE", error, false,
     "what rho quantize made of FILE.safetensors; may be given several times"},
    {"--only", Kind::Texts, "GLOB", quantize | error, false,
     "the weights whose names match, such as 'model.layers.*'; may be given several times"},
    {"--skip", Kind::Texts, "GLOB", quantize | error, false,
     "not those that match; may be given several times"},
    {"--inputs", Kind::Texts, "GLOB", rotate, false,
     "weights that take rotated inputs, and the embedding; may be given several times"},
    {"--outputs", Kind::Texts, "GLOB", rotate, false,
     "weights that make rotated outputs; may be given several times"},
    {"--fuse", Kind::Texts, "NORM=GLOB", rotate, false,
     "multiply the gains of norms into the weights behind them; * of GLOB is what * of NORM was; "
     "may be "
     "given several times"},
    {"--block", Kind::Count, "SIZE", rotate, false,
     "rotate so many channels at a time, such as those of a head (default all)"},
    {"--seed", Kind::Seed, "SEED", rotate, false,
     "of random signs (default none: the exact Hadamard matrix)"},
    {"--threads", Kind::Count, "COUNT", quantize | rotate, false,
     "the output does not depend on it (default one for each core)"},
    {"--activations", Kind::Input, "FILE", quantize | error, false,
     "m x k inputs of weights, by the names of these, from FILE.safetensors"},
    {"--activation-format", Kind::Input, "FORMAT", quantize | error, false,
     "of the inputs when the layers run: what --smooth, --refine and output errors reckon with"},
    {"--rotate", Kind::Seed, "SEED", quantize, false,
     "rotate the inputs' channels by a random Hadamard matrix"},
    {"--rotate", Kind::Seed, "SEED", bench, false,
     "of suites: measure inputs that are rotated before they are quantized as well"},
    {"--smooth", Kind::Flag, "", quantize, false,
     "search factors of channels that move outliers of the inputs into the weights"},
    {"--permute", Kind::Count, "BLOCK", quantize, false,
     "put channels with outliers first, and count blocks of BLOCK channels without"},
    {"--refine", Kind::Flag, "", quantize, false,
     "lower the errors of the outputs by other scales and codes"},
    {"-o", Kind::Output, "FILE", quantize, false, "the quantized file; may be the input"},
    {"-o", Kind::Output, "FILE", rotate, false, "the rotated file; may be the input"},
    {"-o", Kind::Output, "FILE", compile, false, "write to FILE instead of standard output"},
    {"--csv", Kind::Output, "FILE", bench | tune | verifying | plan | error, false,
     "write the table to FILE as well"},
    {"--measured", Kind::Output, "FILE", tune, false,
     "write every candidate with its predicted and its measured time to FILE (CSV)"},
    {"--warm", Kind::Flag, "", explain | plan, false,
     "predict launches repeated on the same operands: L2 has what fits there"},
    {"--plot", Kind::Output, "FILE", explain, false,
     "draw the predicted time of each placement against m to FILE (SVG)"},
    {"--gemm", Kind::Text, "NAME", plan, false,
     "this candidate for all layers, whatever rules say"},
    {"--plot", Kind::Output, "FILE", plan, false,
     "draw the predicted speed-ups over f16 against m to FILE (SVG)"},
    {"--plot", Kind::Output, "FILE", error, false, "draw the signal to noise ratios to FILE (SVG)"},
    {"--plot", Kind::Output, "FILE", bench, false,
     "draw the kernels' bandwidth, speed or speed-ups to FILE (SVG)"},
};

std::string_view nameOf(Command command) {
  for (const CommandSpec &spec : commands)
    if (spec.command == command)
      return spec.name;
  return {};
}

const OptionSpec *findOption(Command command, std::string_view name) {
  for (const OptionSpec &spec : options)
    if (spec.name == name && (spec.commands & bit(command)) != 0)
      return &spec;
  return nullptr;
}

Error unknownOption(Command command, std::string_view name) {
  std::vector<std::string> known;
  for (const OptionSpec &spec : options)
    if ((spec.commands & bit(command)) != 0)
      known.emplace_back(spec.name);
  std::string list = known.empty() ? "none" : dsl::join(known);
  return makeError(DiagId::unknown_option, {dsl::shown(name), std::string(nameOf(command)),
                                            dsl::suggestion(name, known), list});
}

bool isCount(std::string_view text, int64_t least) {
  return readNumber<int64_t>(text).value_or(-1) >= least;
}

std::optional<std::pair<int64_t, int64_t>> readPair(std::string_view text) {
  std::vector<std::string_view> parts = dsl::split(text, 'x');
  if (parts.size() != 2 || !isCount(parts[0], 1) || !isCount(parts[1], 1))
    return std::nullopt;
  return std::pair{*readNumber<int64_t>(parts[0]), *readNumber<int64_t>(parts[1])};
}

// What a value of this kind must be; empty when it is.
std::string objection(const OptionSpec &spec, std::string_view value) {
  switch (spec.kind) {
  case Kind::Flag:
    return {};
  case Kind::Text:
  case Kind::Texts:
  case Kind::Input:
  case Kind::Inputs:
  case Kind::Output:
    return value.empty() ? "text is needed" : "";
  case Kind::Choice: {
    std::vector<std::string> known;
    for (std::string_view choice : dsl::split(spec.value, '|'))
      known.emplace_back(choice);
    for (const std::string &choice : known)
      if (choice == value)
        return {};
    return "valid values are " + dsl::listed(value, known);
  }
  case Kind::Count:
    return isCount(value, 1) ? "" : "a whole number of at least 1 and below 2^63 is needed";
  case Kind::Counts:
    for (std::string_view part : dsl::split(value, ','))
      if (!isCount(part, 1))
        return "whole numbers of at least 1 and below 2^63 with commas between them are needed";
    return {};
  case Kind::Pairs:
    for (std::string_view part : dsl::split(value, ','))
      if (!readPair(part))
        return "pairs of whole numbers of at least 1 such as 64x128 with commas between them are "
               "needed";
    return {};
  case Kind::Seed:
    return isCount(value, 0) ? "" : "a whole number of at least 0 and below 2^63 is needed";
  case Kind::Bytes:
    return parseByteCount(value) ? ""
                                 : "a whole number of at least 1 is needed, of bytes or with K, M "
                                   "or G, below 2^63 bytes";
  }
  return {};
}

std::string_view beforeEquals(std::string_view argument) {
  return argument.substr(0, argument.find('='));
}

bool isHelp(std::string_view argument) { return argument == "--help" || argument == "-h"; }

std::string helpOf(const OptionSpec &spec) {
  std::string left = "  " + std::string(spec.name);
  if (!spec.value.empty())
    left += " " + std::string(spec.value);
  left.resize(std::max<size_t>(left.size() + 2, 30), ' ');
  return left + std::string(spec.help) + (spec.changesCode ? " *" : "") + "\n";
}

} // namespace

std::span<const CommandSpec> commandTable() { return commands; }
std::span<const OptionSpec> optionTable() { return options; }

// A pipe or a device holds nothing that could be lost.
static bool isSameFile(const std::string &a, const std::string &b) {
  std::error_code ignored;
  bool holds = std::filesystem::is_regular_file(a, ignored) || !std::filesystem::exists(a, ignored);
  return holds && (resolved(a) == resolved(b) || std::filesystem::equivalent(a, b, ignored));
}

// The declarations that a file imports, and those that they import. None where it is no file of
// declarations, or has errors, which its reader says.
static std::vector<std::string> importsOf(const std::string &file) {
  std::vector<std::string> names;
  if (!file.ends_with(".rho"))
    return names;
  if (Result<dsl::Module> module = dsl::loadModule(file))
    for (uint32_t i = 1; i < module->sources->size(); ++i)
      names.push_back(module->sources->name(i));
  return names;
}

// What a value may name: a file, or with a colon a declaration or a tensor of one.
static std::vector<std::string> filesIn(const std::string &value) {
  const size_t colon = value.rfind(':');
  if (colon == std::string::npos)
    return {value};
  return {value, value.substr(0, colon), kernels::splitReference(value).path};
}

Status Options::keeps(const std::vector<std::string> &read) const {
  std::vector<std::string> kept;
  for (const std::string &value : read)
    for (const std::string &file : filesIn(value)) {
      const std::vector<std::string> imports = importsOf(file);
      kept.insert(kept.end(), imports.begin(), imports.end());
      kept.push_back(file);
    }
  for (const auto &[option, files] : values)
    for (const std::string &file : kept)
      if (findOption(chosen, option)->kind == Kind::Output && isSameFile(files[0], file))
        return makeError(DiagId::option_conflict,
                         {option, dsl::shown(file), "it would write over what is read"});
  return Done{};
}

Status Options::checkOutputs() const {
  struct File {
    std::string option, name; // option: what it is named by, in messages
  };
  std::vector<File> read, written;
  for (const auto &[name, all] : values)
    if (findOption(chosen, name)->kind == Kind::Output)
      written.push_back({name, all[0]});
  if (written.empty())
    return Done{};
  auto addRead = [&](const std::string &option, const std::string &name) {
    for (const std::string &file : filesIn(name)) {
      if (std::error_code ignored; !std::filesystem::is_regular_file(file, ignored))
        continue;
      read.push_back({option, file});
      for (const std::string &import : importsOf(file))
        read.push_back({dsl::shown(import), import});
      if (kernels::isShardIndex(file))
        if (auto joined = kernels::readShardIndex(file)) // else its reader says why
          for (const auto &[tensor, shard] : joined->weightMap)
            if (read.back().name != kernels::besideIndex(file, shard))
              read.push_back({option, kernels::besideIndex(file, shard)});
    }
  };
  for (const std::string &file : positional) {
    read.push_back({file, file});
    addRead(file, file);
  }
  for (const auto &[name, all] : values)
    if (Kind kind = findOption(chosen, name)->kind; kind == Kind::Input || kind == Kind::Inputs)
      for (const std::string &value : all)
        addRead(name, value);
  for (size_t i = 0; i < written.size(); ++i) {
    const auto &[option, file] = written[i];
    for (size_t j = i + 1; j < written.size(); ++j)
      if (isSameFile(file, written[j].name))
        return makeError(DiagId::option_conflict,
                         {option, written[j].option, "both write " + dsl::shown(file)});
    for (const File &input : read) {
      const bool replaces = // which it may, or says itself what of
          (chosen == Command::Quantize || chosen == Command::Rotate) && option == "-o" &&
          !input.option.starts_with("--");
      if (!replaces && isSameFile(file, input.name))
        return makeError(DiagId::option_conflict,
                         {option, input.option, "it would write over what is read"});
    }
    if (Status writable = checkWritable(file); !writable)
      return writable;
  }
  return Done{};
}

Options Options::helpOn(std::string_view name) {
  Options help;
  help.positional.emplace_back(name);
  return help;
}

Result<Options> Options::parse(std::span<const std::string> arguments) {
  if (arguments.empty())
    return Options();
  std::string first = isHelp(arguments[0]) ? "help" : arguments[0];
  size_t words = 1; // of the command's name
  if (first == "cache" && arguments.size() > 1 && !arguments[1].starts_with('-'))
    first += " " + arguments[words++];
  std::vector<std::string> known;
  for (const CommandSpec &spec : commands) {
    known.emplace_back(spec.name);
    if (spec.name != first)
      continue;
    Options options;
    options.chosen = spec.command;
    if (Status read = options.read(arguments.subspan(words)); !read)
      return read.error();
    return options;
  }
  auto isGroup = [&](const std::string &name) { return name.starts_with(first + " "); };
  if (std::none_of(known.begin(), known.end(), isGroup))
    return makeError(DiagId::unknown_command,
                     {dsl::shown(first), dsl::suggestion(first, known), dsl::join(known)});
  if (arguments.size() > 1 && !isHelp(arguments[1]))
    return makeError(DiagId::option_missing,
                     {"the command of 'rho " + first + "'",
                      "it comes before all options: rho " + first + " COMMAND " + arguments[1]});
  return helpOn(first);
}

Status Options::read(std::span<const std::string> arguments) {
  bool optionsEnded = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view argument = arguments[i];
    if (optionsEnded || argument.size() < 2 || argument[0] != '-') {
      positional.emplace_back(argument);
      continue;
    }
    if (argument == "--") {
      optionsEnded = true;
      continue;
    }
    const size_t equals = argument.find('=');
    std::string name(beforeEquals(argument));
    if (isHelp(name)) {
      *this = helpOn(nameOf(chosen));
      return Done{};
    }
    const OptionSpec *spec = findOption(chosen, name);
    if (!spec)
      return unknownOption(chosen, name);
    std::string value;
    if (equals != std::string_view::npos) {
      if (spec->kind == Kind::Flag)
        return makeError(DiagId::option_with_value, {name});
      value = argument.substr(equals + 1);
    } else if (spec->kind != Kind::Flag) {
      if (i + 1 == arguments.size() || findOption(chosen, beforeEquals(arguments[i + 1])))
        return makeError(DiagId::option_without_value, {name, std::string(spec->value)});
      value = arguments[++i];
    }
    if (std::string what = objection(*spec, value); !what.empty())
      return makeError(DiagId::bad_option_value, {name, dsl::shown(value), what});
    std::vector<std::string> &all = values[name];
    if (!all.empty() && spec->kind != Kind::Texts && spec->kind != Kind::Inputs)
      return makeError(DiagId::option_twice, {name});
    all.push_back(std::move(value));
  }
  return Done{};
}

std::string_view Options::commandName() const { return nameOf(chosen); }

Result<std::string> Options::onlyFile() const {
  if (positional.size() != 1)
    return makeError(DiagId::wrong_file_count,
                     {std::to_string(positional.size()), std::string(nameOf(chosen))});
  return positional[0];
}

std::string Options::text(std::string_view name, std::string_view otherwise) const {
  auto found = values.find(name);
  return found == values.end() ? std::string(otherwise) : found->second[0];
}

std::vector<std::string> Options::texts(std::string_view name) const {
  auto found = values.find(name);
  return found == values.end() ? std::vector<std::string>() : found->second;
}

std::vector<std::pair<std::string, std::string>> Options::assignments(std::string_view name) const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const std::string &text : texts(name)) {
    const size_t equals = std::min(text.find('='), text.size());
    result.emplace_back(text.substr(0, equals), text.substr(std::min(equals + 1, text.size())));
  }
  return result;
}

std::optional<int64_t> Options::count(std::string_view name) const {
  auto found = values.find(name);
  return found == values.end() ? std::nullopt : readNumber<int64_t>(found->second[0]);
}

unsigned Options::threads() const {
  constexpr int64_t most = 1024; // more help nowhere
  return static_cast<unsigned>(std::min<int64_t>(count("--threads").value_or(0), most));
}

std::vector<int64_t> Options::counts(std::string_view name, std::vector<int64_t> otherwise) const {
  auto found = values.find(name);
  if (found == values.end())
    return otherwise;
  std::vector<int64_t> result;
  for (std::string_view part : dsl::split(found->second[0], ','))
    result.push_back(readNumber<int64_t>(part).value_or(0));
  return result;
}

std::vector<std::pair<int64_t, int64_t>> Options::pairs(std::string_view name) const {
  std::vector<std::pair<int64_t, int64_t>> result;
  if (auto found = values.find(name); found != values.end())
    for (std::string_view part : dsl::split(found->second[0], ','))
      result.push_back(readPair(part).value_or(std::pair<int64_t, int64_t>()));
  return result;
}

std::string helpText() {
  std::string text = "rho compiles declarations of quantized GEMMs into GPU kernels.\n\n";
  for (const CommandSpec &spec : commands) {
    std::string left = "  rho " + std::string(spec.name) + " " + std::string(spec.usage);
    left.resize(std::max<size_t>(left.size() + 2, 44), ' ');
    text += left + std::string(spec.help) + "\n";
  }
  return text;
}

std::string helpText(Command command) {
  std::string text;
  for (const CommandSpec &spec : commands)
    if (spec.command == command)
      text = "rho " + std::string(spec.name) + " " + std::string(spec.usage) + "\n  " +
             std::string(spec.help) + "\n";
  bool any = false, changesCode = false;
  for (const OptionSpec &spec : options)
    if ((spec.commands & bit(command)) != 0) {
      text += any ? "" : "\n";
      text += helpOf(spec);
      any = true;
      changesCode = changesCode || spec.changesCode;
    }
  return changesCode ? text + "\n  * the generated kernel can depend on it\n" : text;
}

} // namespace rho::tool
