#include "compiler/KernelImage.h"

#include "compiler/TextFields.h"
#include "dsl/Findings.h"
#include "dsl/Format.h"

#include <algorithm>
#include <array>

namespace rho::compiler {

namespace {

constexpr std::string_view firstLine = "rho kernel 2";
constexpr int64_t maxCluster = 16; // CTAs; past 8 a device may have none
constexpr int64_t maxBox = 256;    // elements of a tensor map's box along one axis
constexpr int64_t swizzleSpan = 128;
constexpr size_t maxColumnBits = 16;

using Kind = KernelParameter::Kind;
constexpr std::array<std::pair<Kind, std::string_view>, 7> parameterNames = {{
    {Kind::Weight, "weight"},
    {Kind::Activation, "activation"},
    {Kind::ActivationComponent, "activation_component"},
    {Kind::ActivationTiles, "activation_tiles"},
    {Kind::Output, "output"},
    {Kind::Workspace, "workspace"},
    {Kind::M, "m"},
}};

std::string_view nameOf(Kind kind) {
  for (const auto &[candidate, name] : parameterNames)
    if (candidate == kind)
      return name;
  return {};
}

std::optional<Kind> kindOf(std::string_view text) {
  for (const auto &[kind, name] : parameterNames)
    if (name == text)
      return kind;
  return std::nullopt;
}

// What is wrong with the parameter's tensor map; empty if nothing is.
std::string_view boxProblem(const KernelParameter &parameter) {
  if ((parameter.boxBytes > 0) != (parameter.boxRows > 0))
    return "a box has bytes and rows or neither";
  if (!parameter.isTensorMap())
    return parameter.swizzle ? "there is no box to swizzle" : "";
  if (parameter.kind != Kind::Activation && parameter.kind != Kind::ActivationComponent &&
      parameter.kind != Kind::Output)
    return "no tensor map can be over this kind of parameter";
  if (parameter.boxBytes % 16 != 0)
    return "the bytes of a box are not a multiple of 16";
  if (parameter.swizzle && parameter.boxBytes > swizzleSpan)
    return "a swizzled box is wider than 128 bytes";
  return "";
}

// What is wrong with the facts of the grid together; empty if nothing is.
std::string_view gridProblem(const KernelImage &image) {
  for (int64_t extent : {image.k, image.tileM, image.tileN, image.tileK})
    if ((extent > 0) != image.isGemm())
      return "of 'n', 'k' and the tile some are 0";
  if (image.clusterK != 1 && image.clusterK != image.splitK)
    return "'cluster_k' is neither 1 nor 'split_k'";
  if (image.clusterN * image.clusterK > maxCluster)
    return "a cluster has more than 16 CTAs";
  if (image.residentCtas % image.clusterN != 0)
    return "'resident_ctas' is not a multiple of 'cluster_n'";
  if (image.residentCtas > 0 && image.splitK > 1)
    return "a persistent kernel splits k";
  if (image.splitK == dsl::ScheduleDecl::streamK &&
      (image.residentCtas == 0 || image.clusterN * image.clusterK > 1))
    return "equal shares of k need a persistent kernel without clusters";
  return "";
}

std::string printActivation(const std::string &word, const ActivationLayout &layout) {
  return word + " k=" + std::to_string(layout.k) + " bits=" + std::to_string(layout.elementBits) +
         " pitch=" + std::to_string(layout.pitchBytes) +
         " groups_per_word=" + std::to_string(layout.groupsPerWord) +
         " column_bits=" + printNumbers(layout.columnBits) +
         " tile_k=" + std::to_string(layout.tileK) + "\n";
}

// What is wrong with the line; empty if nothing is.
std::string readActivation(FieldReader &fields, std::string_view word, ActivationLayout &layout) {
  fields.word(word);
  layout.k = fields.number("k", 1, maxExtent);
  layout.elementBits = static_cast<int>(fields.number("bits", 0, 32));
  layout.pitchBytes = fields.number("pitch", 0, int64_t(1) << 40);
  layout.groupsPerWord = static_cast<int>(fields.number("groups_per_word", 1, 4));
  std::optional<std::vector<uint8_t>> bits = parseNumbers(fields.text("column_bits"));
  layout.tileK = fields.number("tile_k", 0, maxExtent);
  if (!fields.ok())
    return fields.problem();
  std::vector<uint8_t> sorted = bits.value_or(std::vector<uint8_t>{1});
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != i || i > maxColumnBits)
      return "'column_bits' is no order of bits such as 1,0";
  layout.columnBits = *std::move(bits);
  return "";
}

// Tiles along n with those that only fill the last cluster.
int64_t wholeClusters(const KernelImage &image) {
  return (image.tilesN() + image.clusterN - 1) / image.clusterN * image.clusterN;
}

} // namespace

Dim3 KernelImage::grid(int64_t m) const {
  int64_t columns = wholeClusters(*this), rows = tilesM(m);
  if (splitK == dsl::ScheduleDecl::streamK)
    return {static_cast<uint32_t>(std::min(columns * rows * tilesK(), residentCtas)), 1, 1};
  if (residentCtas > 0)
    return {static_cast<uint32_t>(std::min(columns * rows, residentCtas)), 1, 1};
  return {static_cast<uint32_t>(columns), static_cast<uint32_t>(rows),
          static_cast<uint32_t>(splitK)};
}

Dim3 KernelImage::cluster() const {
  return {static_cast<uint32_t>(clusterN), 1, static_cast<uint32_t>(clusterK)};
}

int64_t KernelImage::workspaceBytes(int64_t m) const {
  if (splitK == clusterK)
    return 0;
  int64_t tiles = wholeClusters(*this) * tilesM(m);
  // Equal shares: one begins with each CTA and with each tile.
  int64_t shares = splitK == dsl::ScheduleDecl::streamK ? tiles + residentCtas : tiles * splitK;
  return counterBytes + shares * tileM * tileN * 4;
}

std::string KernelImage::printFacts() const {
  std::string text(firstLine);
  text += "\nkernel entry=" + entry + " target=" + target + " threads=" + std::to_string(threads) +
          " shared=" + std::to_string(sharedBytes) + " n=" + std::to_string(n) +
          " k=" + std::to_string(k) + " tile_m=" + std::to_string(tileM) +
          " tile_n=" + std::to_string(tileN) + " tile_k=" + std::to_string(tileK) +
          " pipeline=" + std::to_string(pipeline) + " split_k=" + std::to_string(splitK) +
          " cluster_n=" + std::to_string(clusterN) + " cluster_k=" + std::to_string(clusterK) +
          " resident_ctas=" + std::to_string(residentCtas) +
          " dependent=" + std::to_string(int(dependentLaunch)) +
          " whole=" + std::to_string(int(wholeProgram)) + "\n";
  if (!isGemm())
    return text;
  for (const KernelParameter &parameter : parameters)
    text += "parameter kind=" + std::string(nameOf(parameter.kind)) +
            " index=" + std::to_string(parameter.index) +
            " box_bytes=" + std::to_string(parameter.boxBytes) +
            " box_rows=" + std::to_string(parameter.boxRows) +
            " swizzle=" + std::to_string(int(parameter.swizzle)) + "\n";
  text += printActivation("activation", activation);
  for (const ActivationLayout &part : activation.parts)
    text += printActivation("part", part);
  for (const std::string &origin : origins)
    text += "origin path=" + origin + "\n";
  for (const OperandRange &range : operands)
    text += "operands " + range.print() + "\n";
  return text + weight.print();
}

Result<KernelImage> KernelImage::parse(std::string_view facts, std::string ptx) {
  auto fail = [](int line, const std::string &problem) {
    return makeError(DiagId::kernel_facts_invalid, {std::to_string(line), problem});
  };
  KernelImage image;
  image.ptx = std::move(ptx);
  std::string_view rest = facts;
  int number = 1;
  if (takeLine(rest) != firstLine)
    return fail(number, "'" + std::string(firstLine) + "' is missing");

  ++number;
  FieldReader head(takeLine(rest).value_or(""));
  head.word("kernel");
  image.entry = head.text("entry");
  image.target = head.text("target");
  image.threads = static_cast<int>(head.number("threads", 1, 1024));
  image.sharedBytes = head.number("shared", 0, maxExtent);
  image.n = head.number("n", 0, maxExtent);
  image.k = head.number("k", 0, maxExtent);
  image.tileM = head.number("tile_m", 0, 1 << 16);
  image.tileN = head.number("tile_n", 0, 1 << 16);
  image.tileK = head.number("tile_k", 0, maxExtent);
  image.pipeline = static_cast<int>(head.number("pipeline", 0, 64));
  image.splitK = head.number("split_k", 0, 65535);
  image.clusterN = head.number("cluster_n", 1, maxCluster);
  image.clusterK = head.number("cluster_k", 1, maxCluster);
  image.residentCtas = head.number("resident_ctas", 0, 1 << 16);
  image.dependentLaunch = head.number("dependent", 0, 1) != 0;
  image.wholeProgram = head.number("whole", 0, 1) != 0;
  head.end();
  if (!head.ok())
    return fail(number, head.problem());
  if (std::string_view problem = gridProblem(image); !problem.empty())
    return fail(number, std::string(problem));
  if (image.entry.empty() || image.target.empty())
    return fail(number, "the entry or the target has no name");
  if (!image.isGemm()) {
    if (!rest.empty())
      return fail(number + 1, "nothing may follow the facts of a kernel that is no gemm");
    return image;
  }

  bool activationSeen = false;
  while (true) {
    std::string_view before = rest;
    std::optional<std::string_view> line = takeLine(rest);
    ++number;
    if (!line)
      return fail(number, "'weight' is missing");
    if (line->starts_with("weight ")) {
      if (!activationSeen)
        return fail(number, "'activation' is missing");
      Result<WeightLayout> layout = WeightLayout::parse(before);
      if (!layout)
        return std::move(layout.error());
      image.weight = std::move(*layout);
      return image;
    }
    FieldReader fields(*line);
    if (line->starts_with("origin ")) {
      fields.word("origin");
      image.origins.emplace_back(fields.text("path"));
    } else if (line->starts_with("operands ")) {
      fields.word("operands");
      OperandRange range;
      if (std::string problem = range.read(fields); fields.ok() && !problem.empty())
        return fail(number, problem);
      image.operands.push_back(std::move(range));
    } else if (line->starts_with("parameter ")) {
      fields.word("parameter");
      std::optional<Kind> kind = kindOf(fields.text("kind"));
      int index = static_cast<int>(fields.number("index", 0, 255));
      if (fields.ok() && !kind)
        return fail(number, "there is no such kind of parameter");
      KernelParameter parameter{kind.value_or(Kind::M), index};
      parameter.boxBytes = fields.number("box_bytes", 0, maxBox);
      parameter.boxRows = fields.number("box_rows", 0, maxBox);
      parameter.swizzle = fields.number("swizzle", 0, 1) != 0;
      if (std::string_view problem = boxProblem(parameter); fields.ok() && !problem.empty())
        return fail(number, std::string(problem));
      image.parameters.push_back(parameter);
    } else {
      ActivationLayout read;
      bool part = activationSeen && line->starts_with("part ");
      if (std::string problem = readActivation(fields, part ? "part" : "activation", read);
          !problem.empty())
        return fail(number, problem);
      if (part)
        image.activation.parts.push_back(std::move(read));
      else
        image.activation = std::move(read);
      activationSeen = true;
    }
    fields.end();
    if (!fields.ok())
      return fail(number, fields.problem());
  }
}

} // namespace rho::compiler
