#include "runtime/QuantizerSource.h"

#include "dsl/DeriveEncode.h"
#include "dsl/Division.h"
#include "dsl/Evaluate.h"
#include "dsl/Findings.h"
#include "dsl/StoredValues.h"
#include "runtime/QuantizerExpressions.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace rho {
namespace {

using namespace quantizer;

// Numbers that a thread of the kernel takes at once (`chunk` there).
constexpr int64_t chunk = 8;

bool isOfTensor(const dsl::Component &component) { return component.extent == dsl::Extent::Tensor; }

std::string extentName(const dsl::Component &component) {
  return isOfTensor(component)                    ? "tensor"
         : component.extent == dsl::Extent::Group ? "k[" + std::to_string(component.group) + "]"
                                                  : "token";
}

std::string constant(const char *name, int64_t value) {
  return "  static constexpr int " + std::string(name) + " = " + std::to_string(value) + ";\n";
}

std::string flag(const char *name, bool is) {
  return "  static constexpr bool " + std::string(name) + (is ? " = true;\n" : " = false;\n");
}

// What a rule reads, once for all of its candidates, and what each candidate makes of it.
std::string ruleText(const dsl::ExprPtr &ptr) {
  const dsl::Expr &rule = *ptr;
  ExpressionWriter writer;
  std::string values;
  if (dsl::isBest(ptr)) {
    for (size_t i = 0; i + 1 < rule.operands.size(); ++i)
      values += "      if (candidate == " + std::to_string(i) + ")\n        return " +
                writer.rule(*rule.operands[i]) + ";\n";
    values += "      return " + writer.rule(*rule.operands.back()) + ";\n";
  } else {
    values = "      return " + writer.rule(rule) + ";\n";
  }
  return "  struct Rule {\n" +
         (writer.variables.empty() ? "" : "    double " + dsl::join(writer.variables) + ";\n") +
         "    template <class Values, class Team>\n"
         "    __device__ Rule(const Values &values, const Team &team) {\n" +
         writer.statements + "    }\n    __device__ double value(int candidate) const {\n" +
         values + "    }\n  };\n";
}

// The same of a component per tensor, whose reductions all rows make.
std::string reducedText(const dsl::ExprPtr &rule, ExpressionWriter &reductions) {
  return "  template <class Reduced, class Values>\n"
         "  static __device__ double value(const Reduced &reduced, const Values &values) {\n"
         "    return " +
         reductions.ofReduced(*rule) + ";\n  }\n";
}

std::string reductionsText(const ExpressionWriter &rules) {
  std::string text, names;
  for (size_t i = 0; i < rules.reductions.size(); ++i) {
    const auto &[operation, call] = rules.reductions[i];
    text +=
        "struct Reduction" + std::to_string(i) + " {\n  using Operation = " + operation +
        ";\n  template <class Team> static __device__ double value(const Team &team) { return " +
        call + "; }\n};\n";
    names += (i == 0 ? "Reduction" : ", Reduction") + std::to_string(i);
  }
  return text + "using Reductions = List<" + names + ">;\n";
}

// `tensorRules` is where the reductions of a component per tensor go; else null.
// `kept`: which of those it is whose codes are kept in scratch memory, or -1.
std::string componentText(const dsl::Format &format, int index, int position, int kept,
                          ExpressionWriter *tensorRules) {
  const dsl::Component &component = format.components[static_cast<size_t>(index)];
  const int unit = dsl::hostOf(format, index);
  const int unitBits = dsl::unitBits(format.components[static_cast<size_t>(unit)].type);
  const bool best = dsl::isBest(component.encode);
  return "struct " + componentName(index) + " { // " + std::string(component.type.name()) +
         " per " + extentName(component) + "\n  using Type = " + nameOf(component.type) +
         ";\n  using Unit = unsigned " +
         (unitBits == 8    ? "char"
          : unitBits == 16 ? "short"
                           : "int") +
         ";\n" + constant("index", index) + constant("position", position) +
         constant("buffer", unit) + constant("shift", component.shift) +
         constant("group", component.group) + constant("kept", kept) +
         flag("ofTensor", tensorRules != nullptr) +
         constant("candidates",
                  best ? static_cast<int64_t>(component.encode->operands.size()) : 1) +
         (tensorRules ? reducedText(component.encode, *tensorRules) : ruleText(component.encode)) +
         "};\n";
}

// The scales of a number, what they make of an element's number, and of a remapped code.
std::string valueText(const dsl::Format &format) {
  std::string members, reads, product;
  const std::optional<dsl::Remap> &remap = format.element().remap;
  for (size_t i = 1; i < format.components.size(); ++i) {
    const std::string member = "c" + std::to_string(i);
    members += (i == 1 ? " double " : ", ") + member;
    reads += (i == 1 ? "" : ", ") +
             ("values.template read<" + componentName(static_cast<int>(i)) + ">(column)");
    if (!remap || remap->selector != static_cast<int>(i))
      product += (product.empty() ? "scales." : " * scales.") + member;
  }
  const bool isProduct = dsl::isProduct(format) || dsl::isRemappedProduct(format);
  const bool isLine = format.element().type.isInteger() && !remap && isLineOfElement(*format.value);
  std::string special;
  for (size_t i = 0; remap && i + 1 < remap->entries.size(); ++i)
    special += "scales.c" + std::to_string(remap->selector) + " == " + std::to_string(i) + " ? " +
               literal(remap->entries[i].value) + " : ";
  special += remap ? literal(remap->entries.back().value) : "0.0";
  return std::string("  static constexpr Value valueForm = Value::") +
         (isProduct ? "Product"
          : isLine  ? "Line"
                    : "Other") +
         ";\n" + "  struct Scales {" + members + (members.empty() ? "" : ";") +
         " };\n"
         "  template <class Values>\n"
         "  static __device__ Scales scales(const Values &values, int column) {\n"
         "    return {" +
         reads +
         "};\n  }\n"
         "  static __device__ double product(const Scales &scales) { return " +
         (product.empty() ? "1.0" : product) +
         "; }\n"
         "  static __device__ double value(const Scales &scales, double element) { return " +
         ExpressionWriter().value(*format.value) +
         "; }\n"
         "  static __device__ double special(const Scales &scales) { return " +
         special + "; }\n";
}

// Which column lies at a place: the inverse of ActivationLayout::placeOf.
std::string columnText(const std::vector<uint8_t> &columnBits) {
  std::string column = "place";
  if (!columnBits.empty()) {
    const std::string bits = std::to_string(columnBits.size());
    column += " >> " + bits + " << " + bits;
    for (size_t bit = 0; bit < columnBits.size(); ++bit)
      column +=
          " | (place >> " + std::to_string(bit) + " & 1) << " + std::to_string(columnBits[bit]);
  }
  return constant("placeRun", int64_t{1} << columnBits.size()) +
         "  static constexpr __device__ int columnOf(int place) { return " + column + "; }\n";
}

// What a part says of the blocks that it takes.
std::string selectionText(const dsl::Part &part, ExpressionWriter &reductions) {
  std::string holds = "true";
  if (part.left) {
    holds = reductions.ofReduced(*part.left);
    holds += (part.atLeast ? " >= " : " <= ") + reductions.ofReduced(*part.right);
  }
  return flag("hasBudget", part.budget.has_value()) + flag("hasRule", part.left != nullptr) +
         "  template <class Reduced> static __device__ bool holds(const Reduced &reduced) {\n"
         "    return " +
         holds + ";\n  }\n";
}

// An element's type, with what a requirement leaves of an integer's range.
std::string elementName(const dsl::Format &format) {
  const dsl::ElementType type = format.element().type;
  const std::vector<uint8_t> clamped = dsl::clampedElements(format);
  if (clamped.empty())
    return nameOf(type);
  auto nearestTo = [&](double extreme) {
    return std::to_string(static_cast<int>(type.decode(clamped[type.encode(extreme)])));
  };
  const double infinity = std::numeric_limits<double>::infinity();
  return "Integer<" + std::to_string(type.bits()) + (type.hasSign() ? ", true, " : ", false, ") +
         nearestTo(-infinity) + ", " + nearestTo(infinity) + ">";
}

struct PartText {
  const dsl::Format &format, &stored;
  const compiler::ActivationLayout &layout;
  int index, firstBuffer;
  int64_t block; // of the partition, or 0
  std::string selection = {};
  // Of a part as it is measured, by the components that it stores otherwise: which of all of them
  // is the first to be kept in scratch memory.
  const dsl::Format *declared = nullptr;
  int firstKept = 0;
};

std::string partName(const PartText &part) {
  return (part.declared ? "measured" : "part") + std::to_string(part.index);
}

// How many components of a part are measured otherwise than they are stored.
int keptComponents(const dsl::Format &declared, const dsl::Format &measured) {
  int kept = 0;
  for (size_t i = 0; i < declared.components.size(); ++i)
    kept += declared.components[i].extent != measured.components[i].extent;
  return kept;
}

// What is stored of an element's number where that is not its code. Numbers may be of the element's
// own type.
std::string numberText(const dsl::Format &format, const dsl::Format &stored) {
  const bool asNumbers = dsl::meaningOf(format) != dsl::meaningOf(stored);
  const std::string number =
      asNumbers ? ExpressionWriter().value(*dsl::valueOfElement(format, stored).value) : "element";
  return flag("storesNumbers", asNumbers) + "  using Number = " + nameOf(stored.element().type) +
         ";\n  static __device__ double number(const Scales &scales, double element) { return " +
         number + "; }\n";
}

// Components per tensor come first in the order of encoding; they are not in `Order`, which is that
// of a row.
std::string partText(const PartText &part, ExpressionWriter &tensorRules) {
  const dsl::Format &format = part.format;
  int64_t run = chunk; // numbers of an aligned chunk that share all scales
  std::string components, order, ofTensor;
  for (const dsl::Component &component : format.components)
    if (component.extent == dsl::Extent::Group)
      run = std::gcd(run, component.group);
  int position = 0, kept = part.firstKept;
  for (int index : format.encodeOrder) {
    const bool isKept =
        part.declared && part.declared->component(index).extent != format.component(index).extent;
    const bool whole = isOfTensor(format.components[static_cast<size_t>(index)]);
    components += componentText(format, index, whole ? -1 : position++, isKept ? kept++ : -1,
                                whole ? &tensorRules : nullptr);
    std::string &list = whole ? ofTensor : order;
    list += (list.empty() ? "" : ", ") + componentName(index);
  }
  const std::optional<dsl::Remap> &remap = format.element().remap;
  const std::string name = partName(part);
  return "namespace " + name + " {\n" + components +
         "struct Part {\n  using Element = " + elementName(format) + ";\n  using Order = List<" +
         order + ">;\n  using OfTensor = List<" + ofTensor + ">;\n" +
         constant("index", part.index) + constant("firstBuffer", part.firstBuffer) +
         constant("components", static_cast<int64_t>(format.components.size())) +
         constant("elementBits", part.layout.elementBits) +
         constant("groupsPerWord", part.layout.groupsPerWord) + constant("scaleRun", run) +
         constant("remapped", remap ? static_cast<int64_t>(remap->code) : -1) +
         constant("block", part.block) + columnText(part.layout.columnBits) + valueText(format) +
         numberText(format, part.stored) + part.selection + "};\n} // namespace " + name + "\n";
}

std::string countsText(size_t parts, size_t buffers) {
  return "constexpr int partCount = " + std::to_string(parts) +
         ", bufferCount = " + std::to_string(buffers) + ";\n";
}

std::string partitionText(const dsl::Format &format, const dsl::Format &stored,
                          const compiler::ActivationLayout &layout) {
  const dsl::Partition &partition = *format.partition;
  std::string text, parts, measured;
  ExpressionWriter rules;
  int buffers = 0, kept = 0;
  std::vector<const dsl::Format *> formats;
  for (size_t i = 0; i < partition.parts.size(); ++i) {
    const dsl::Part &part = partition.parts[i];
    formats.push_back(part.format.get());
    const dsl::Format alone = measuredPart(partition.parts, i, partition.blocks.k);
    const int others = keptComponents(*part.format, alone);
    const PartText asStored{.format = *part.format,
                            .stored = *stored.partition->parts[i].format,
                            .layout = layout.parts[i],
                            .index = static_cast<int>(i),
                            .firstBuffer = buffers,
                            .block = partition.blocks.k,
                            .selection = selectionText(part, rules)};
    const PartText asMeasured{.format = alone,
                              .stored = alone,
                              .layout = layout.parts[i],
                              .index = static_cast<int>(i),
                              .firstBuffer = buffers,
                              .block = partition.blocks.k,
                              .declared = part.format.get(),
                              .firstKept = kept};
    text += partText(asStored, rules);
    if (others > 0)
      text += partText(asMeasured, rules);
    kept += others;
    measured += (i == 0 ? "" : ", ") + partName(others > 0 ? asMeasured : asStored) + "::Part";
    buffers += static_cast<int>(part.format->components.size());
    parts += (i == 0 ? "" : ", ") + partName(asStored) + "::Part";
  }
  return "#define RHO_PARTITION\n" + tablesText(formats) + text + reductionsText(rules) +
         "struct Partition {\n  using Parts = List<" + parts + ">;\n  using Measured = List<" +
         measured + ">;\n" + constant("block", partition.blocks.k) + "};\n" +
         countsText(partition.parts.size(), static_cast<size_t>(buffers));
}

bool hasTensorRules(const dsl::Format &format) {
  return std::any_of(format.components.begin(), format.components.end(), isOfTensor);
}

// What the program cannot do with a format that is not divided.
std::optional<std::string> problemOfWhole(const dsl::Format &format, const dsl::Format &stored) {
  const dsl::Component &element = format.element();
  if (element.remap &&
      std::any_of(element.remap->entries.begin(), element.remap->entries.end(),
                  [](const dsl::Remap::Entry &entry) { return entry.component >= 0; }))
    return "a code of '" + element.name + "' stands for a component's value";
  if (readsBits(*format.value))
    return "its value has bitwise operators or casts to integers";
  if (!format.requirements.empty() && dsl::clampedElements(format).empty())
    return "it has a requirement that is no bound of its element";
  if (format.residual)
    return "it has a residual";
  if (element.type.bits() > 8 && !dsl::isProduct(format))
    return "'" + element.name + "' has more than 256 codes and the value is no plain product";
  for (const dsl::Component &component : format.components) {
    if (isOfTensor(component) && (dsl::isBest(component.encode) ||
                                  reducesComponents(*component.encode) || component.host >= 0))
      return "'" + component.name +
             "' is per tensor, its rule has candidates or reduces other components";
    if (component.rows != 1)
      return "'" + component.name + "' is per " + dsl::printExtent(component);
    if (component.host >= 0 && !(format == stored) &&
        dsl::componentNamed(stored, format.components[static_cast<size_t>(component.host)].name))
      return "'" + component.name + "' lies in spare bits of a scale that is stored alone";
  }
  return std::nullopt;
}

} // namespace

std::string quantizerHeader(const dsl::Format &format, const dsl::Format &stored,
                            const compiler::ActivationLayout &layout) {
  if (format.partition)
    return partitionText(format, stored, layout);
  ExpressionWriter rules;
  const std::string part =
      tablesText({&format}) + partText({format, stored, layout, 0, 0, 0}, rules);
  return (hasTensorRules(format) ? "#define RHO_TENSOR\n" + part + reductionsText(rules) : part) +
         "using Only = part0::Part;\n" + countsText(1, format.components.size());
}

// As the program's Arguments.
QuantizerLaunch quantizerLaunch(const Activations::Impl &out, DevicePointer x, ScalarType type,
                                int64_t stride) {
  QuantizerLaunch launch;
  auto add = [&](auto word) { launch.words[launch.count++] = static_cast<uint64_t>(word); };
  const compiler::ActivationLayout &layout = out.layout;
  const ActivationMemory &memory = *out.memory;
  const bool divided = !layout.parts.empty();
  add(x);
  add(type);
  add(stride);
  add(out.m);
  add(layout.k);
  add(compiler::activationGroupStride(out.m));
  add(layout.tileK);
  add(divided ? memory.tiles.address() : 0);
  add(memory.scratch.bytes() != 0 ? memory.scratch.address() : 0);
  uint64_t given = 0, ofTensor = 0;
  for (size_t i = 0; i < out.declared->components.size(); ++i) {
    if (isOfTensor(out.declared->components[i]))
      ofTensor |= uint64_t{1} << i;
    if (memory.given.contains(static_cast<int>(i)))
      given |= uint64_t{1} << i;
  }
  add(given);
  if (!divided)
    add(layout.pitchBytes);
  for (const compiler::ActivationLayout &part : layout.parts)
    add(part.pitchBytes);
  if (divided)
    for (const dsl::Part &part : out.declared->partition->parts)
      add(dsl::mostBlocks(part, divideUp(layout.k, out.declared->partition->blocks.k)));
  else
    add(0);
  for (DevicePointer component : out.quantized)
    add(component);
  const bool decided = divided ? !memory.choice.empty() : given == ofTensor;
  launch.ctas = static_cast<uint32_t>(decided ? out.m : 2 * out.m);
  return launch;
}

int64_t quantizerScratchBytes(const dsl::Format &format, const dsl::Format &stored, int64_t m,
                              int64_t k) {
  ExpressionWriter rules;
  if (!stored.partition) {
    if (!hasTensorRules(format) || quantizerSourceProblem(format, stored))
      return 0;
    for (const dsl::Component &component : format.components)
      if (isOfTensor(component))
        reducedText(component.encode, rules);
    return quantizerChoiceOffset + static_cast<int64_t>(rules.reductions.size()) * m * 8;
  }
  const dsl::Partition &partition = *format.partition;
  int kept = 0;
  for (size_t i = 0; i < partition.parts.size(); ++i) {
    selectionText(partition.parts[i], rules);
    kept += keptComponents(*partition.parts[i].format,
                           measuredPart(partition.parts, i, partition.blocks.k));
  }
  const int64_t blocks = divideUp(k, partition.blocks.k);
  const auto terms = static_cast<int64_t>(partition.parts.size() + rules.reductions.size());
  const int64_t keptBytes = divideUp(blocks, 8) * 8 * compiler::activationGroupStride(m) * 4;
  return quantizerChoiceOffset + (blocks + 1) / 2 * 8 + (1 + terms * m) * blocks * 8 +
         kept * keptBytes;
}

std::optional<std::string> quantizerSourceProblem(const dsl::Format &format,
                                                  const dsl::Format &stored) {
  if (!format.partition)
    return problemOfWhole(format, stored);
  if (!stored.partition)
    return "its parts are stored as one";
  if (format.partition->blocks.rows != 0 || format.partition->blocks.k % chunk != 0)
    return "its blocks are per " + dsl::print(format.partition->blocks) +
           ", not per tensor k[G] with G a multiple of " + std::to_string(chunk);
  for (size_t i = 0; i < format.partition->parts.size(); ++i) {
    const dsl::Part &part = format.partition->parts[i];
    const std::string of = "of part '" + part.name + "' ";
    if (std::optional<std::string> problem =
            problemOfWhole(*part.format, *stored.partition->parts[i].format))
      return of + *problem;
    for (const dsl::Component &component : part.format->components)
      if (isOfTensor(component))
        return of + "'" + component.name + "' is per tensor";
  }
  return std::nullopt;
}

} // namespace rho
