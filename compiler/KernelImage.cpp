#include "compiler/KernelImage.h"

#include "compiler/TextFields.h"
#include "dsl/Division.h"
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
    return parameter.swizzle   ? "there is no box to swizzle"
           : parameter.trimmed ? "there is no box to trim"
                               : "";
  if (parameter.kind != Kind::Activation && parameter.kind != Kind::ActivationComponent &&
      parameter.kind != Kind::Output)
    return "no tensor map can be over this kind of parameter";
  if (parameter.trimmed && parameter.kind != Kind::Activation)
    return "boxes of activations alone have rows of the batch to trim";
  if (parameter.boxBytes % 16 != 0)
    return "the bytes of a box are not a multiple of 16";
  if (parameter.swizzle && parameter.boxBytes > swizzleSpan)
    return "a swizzled box is wider than 128 bytes";
  return "";
}

// What is wrong with the facts of the grid together; empty if nothing is.
std::string_view factsProblem(const KernelImage &image) {
  for (int64_t extent : {image.k, image.tileM, image.tileN, image.tileK})
    if ((extent > 0) != image.isGemm())
      return "of 'n', 'k' and the tile some are 0";
  return gridProblem(image.splitK, image.clusterN, image.clusterK, image.residentCtas);
}

// Of the first line, behind the names of the entry and the target.
constexpr NumberField<KernelImage> headFields[] = {
    {"threads", &KernelImage::threads, 1, 1024},
    {"shared", &KernelImage::sharedBytes, 0, maxExtent},
    {"n", &KernelImage::n, 0, maxExtent},
    {"k", &KernelImage::k, 0, maxExtent},
    {"tile_m", &KernelImage::tileM, 0, 1 << 16},
    {"tile_n", &KernelImage::tileN, 0, 1 << 16},
    {"tile_k", &KernelImage::tileK, 0, maxExtent},
    {"pipeline", &KernelImage::pipeline, 0, 64},
    {"split_k", &KernelImage::splitK, 0, 65535},
    {"cluster_n", &KernelImage::clusterN, 1, maxCluster},
    {"cluster_k", &KernelImage::clusterK, 1, maxCluster},
    {"resident_ctas", &KernelImage::residentCtas, 0, 1 << 16},
    {"dependent", &KernelImage::dependentLaunch, 0, 1},
    {"whole", &KernelImage::wholeProgram, 0, 1},
};

// What is wrong with the line; empty if nothing is.
std::string readHead(std::string_view line, KernelImage &image) {
  FieldReader head(line);
  head.word("kernel");
  image.entry = head.text("entry");
  image.target = head.text("target");
  readFields(headFields, head, image);
  head.end();
  if (!head.ok())
    return head.problem();
  if (std::string_view problem = factsProblem(image); !problem.empty())
    return std::string(problem);
  if (image.entry.empty() || image.target.empty())
    return "the entry or the target has no name";
  return "";
}

// Behind the name of its kind.
constexpr NumberField<KernelParameter> parameterFields[] = {
    {"index", &KernelParameter::index, 0, 255},
    {"box_bytes", &KernelParameter::boxBytes, 0, maxBox},
    {"box_rows", &KernelParameter::boxRows, 0, maxBox},
    {"swizzle", &KernelParameter::swizzle, 0, 1},
    {"trimmed", &KernelParameter::trimmed, 0, 1},
};

std::string printActivation(const std::string &word, const ActivationLayout &layout) {
  return word + " k=" + std::to_string(layout.k) + " bits=" + std::to_string(layout.elementBits) +
         " pitch=" + std::to_string(layout.pitchBytes) +
         " groups_per_word=" + std::to_string(layout.groupsPerWord) +
         " column_bits=" + printNumbers(layout.columnBits) +
         " tile_k=" + std::to_string(layout.tileK) + "\n";
}

std::string readActivation(FieldReader &fields, ActivationLayout &layout) {
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
    if (sorted[i] != i || i >= maxColumnBits)
      return "'column_bits' is no order of bits such as 1,0";
  layout.columnBits = *std::move(bits);
  return "";
}

std::string readParameter(FieldReader &fields, KernelImage &image) {
  std::optional<Kind> kind = kindOf(fields.text("kind"));
  if (fields.ok() && !kind)
    return "there is no such kind of parameter";
  KernelParameter &parameter = image.parameters.emplace_back();
  parameter.kind = kind.value_or(Kind::M);
  readFields(parameterFields, fields, parameter);
  return std::string(boxProblem(parameter));
}

bool hasActivation(const KernelImage &image) { return image.activation.k > 0; }

// The lines between the head and the weight's, in any order but for parts, which follow what they
// are parts of. What is wrong with one, where its fields can be read; empty if nothing is.
struct LineReader {
  std::string_view word;
  std::string (*read)(FieldReader &fields, KernelImage &image);
};
constexpr LineReader lineReaders[] = {
    {"parameter", readParameter},
    {"activation",
     [](FieldReader &fields, KernelImage &image) -> std::string {
       if (hasActivation(image))
         return "there is an 'activation' already";
       return readActivation(fields, image.activation);
     }},
    {"part",
     [](FieldReader &fields, KernelImage &image) -> std::string {
       if (!hasActivation(image))
         return "'activation' is missing";
       return readActivation(fields, image.activation.parts.emplace_back());
     }},
    {"origin",
     [](FieldReader &fields, KernelImage &image) -> std::string {
       image.origins.emplace_back(fields.text("path"));
       return "";
     }},
    {"operands", [](FieldReader &fields,
                    KernelImage &image) { return image.operands.emplace_back().read(fields); }},
};

// What is wrong with such a line; empty if nothing is.
std::string readLine(std::string_view line, KernelImage &image) {
  const std::string_view word = line.substr(0, line.find(' '));
  for (const LineReader &reader : lineReaders) {
    if (reader.word != word)
      continue;
    FieldReader fields(line);
    fields.word(word);
    std::string problem = reader.read(fields, image);
    if (fields.ok() && !problem.empty())
      return problem;
    fields.end();
    return fields.problem();
  }
  return "no line begins with '" + std::string(word) + "'";
}

// Tiles along n with those that only fill the last cluster.
int64_t wholeClusters(const KernelImage &image) { return roundUp(image.tilesN(), image.clusterN); }

} // namespace

std::string_view gridProblem(int64_t splitK, int64_t clusterN, int64_t clusterK,
                             int64_t residentCtas) {
  if (clusterK != 1 && clusterK != splitK)
    return "'cluster_k' is neither 1 nor 'split_k'";
  if (clusterN * clusterK > maxCluster)
    return "a cluster has more than 16 CTAs";
  if (residentCtas % clusterN != 0)
    return "'resident_ctas' is not a multiple of 'cluster_n'";
  if (residentCtas > 0 && splitK > 1)
    return "a persistent kernel splits k";
  if (splitK == dsl::ScheduleDecl::streamK && (residentCtas == 0 || clusterN * clusterK > 1))
    return "equal shares of k need a persistent kernel without clusters";
  return "";
}

Dim3 KernelImage::grid(int64_t m) const {
  int64_t columns = wholeClusters(*this), rows = tilesM(m);
  if (streamsK())
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
  if (!sumsInWorkspace())
    return 0;
  int64_t tiles = wholeClusters(*this) * tilesM(m);
  // Equal shares: one begins with each CTA and with each tile.
  int64_t shares = streamsK() ? tiles + residentCtas : tiles * splitK;
  return counterBytes + shares * tileM * tileN * 4;
}

std::string KernelImage::printFacts() const {
  std::string text(firstLine);
  text += "\nkernel entry=" + entry + " target=" + target + printFields(headFields, *this) + "\n";
  if (!isGemm())
    return text;
  for (const KernelParameter &parameter : parameters)
    text += "parameter kind=" + std::string(nameOf(parameter.kind)) +
            printFields(parameterFields, parameter) + "\n";
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
  if (takeLine(rest) != firstLine)
    return fail(1, "'" + std::string(firstLine) + "' is missing");
  if (std::string problem = readHead(takeLine(rest).value_or(""), image); !problem.empty())
    return fail(2, problem);
  if (!image.isGemm()) {
    if (!rest.empty())
      return fail(3, "nothing may follow the facts of a kernel that is no gemm");
    return image;
  }
  for (int number = 3;; ++number) {
    const std::string_view fromHere = rest;
    std::optional<std::string_view> line = takeLine(rest);
    if (!line)
      return fail(number, "'weight' is missing");
    if (!line->starts_with("weight ")) {
      if (std::string problem = readLine(*line, image); !problem.empty())
        return fail(number, problem);
      continue;
    }
    if (!hasActivation(image))
      return fail(number, "'activation' is missing");
    Result<WeightLayout> layout = WeightLayout::parse(fromHere);
    if (!layout)
      return std::move(layout.error());
    image.weight = std::move(*layout);
    return image;
  }
}

} // namespace rho::compiler
