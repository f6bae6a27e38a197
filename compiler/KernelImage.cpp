#include "compiler/KernelImage.h"

#include "compiler/TextFields.h"

#include <array>

namespace rho::compiler {

namespace {

constexpr std::string_view firstLine = "rho kernel 1";
constexpr int64_t maxExtent = int64_t(1) << 31;

using Kind = KernelParameter::Kind;
constexpr std::array<std::pair<Kind, std::string_view>, 6> parameterNames = {{
    {Kind::Weight, "weight"},
    {Kind::Activation, "activation"},
    {Kind::ActivationComponent, "activation_component"},
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

} // namespace

int64_t KernelImage::workspaceBytes(int64_t m) const {
  if (splitK == 1)
    return 0;
  int64_t tiles = tilesN() * tilesM(m);
  int64_t counters = (tiles * 4 + 255) / 256 * 256;
  return counters + tiles * splitK * tileM * tileN * 4;
}

std::string KernelImage::printFacts() const {
  std::string text(firstLine);
  text += "\nkernel entry=" + entry + " target=" + target + " threads=" + std::to_string(threads) +
          " shared=" + std::to_string(sharedBytes) + " n=" + std::to_string(n) +
          " k=" + std::to_string(k) + " tile_m=" + std::to_string(tileM) +
          " tile_n=" + std::to_string(tileN) + " tile_k=" + std::to_string(tileK) +
          " pipeline=" + std::to_string(pipeline) + " split_k=" + std::to_string(splitK) + "\n";
  for (const KernelParameter &parameter : parameters)
    text += "parameter kind=" + std::string(nameOf(parameter.kind)) +
            " index=" + std::to_string(parameter.index) + "\n";
  text += "activation k=" + std::to_string(activation.k) +
          " bits=" + std::to_string(activation.elementBits) +
          " pitch=" + std::to_string(activation.pitchBytes) + "\n";
  for (const std::string &origin : origins)
    text += "origin path=" + origin + "\n";
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
  image.n = head.number("n", 1, maxExtent);
  image.k = head.number("k", 1, maxExtent);
  image.tileM = head.number("tile_m", 1, 1 << 16);
  image.tileN = head.number("tile_n", 1, 1 << 16);
  image.tileK = head.number("tile_k", 1, maxExtent);
  image.pipeline = static_cast<int>(head.number("pipeline", 0, 64));
  image.splitK = head.number("split_k", 1, 65535);
  head.end();
  if (!head.ok())
    return fail(number, head.problem());
  if (image.entry.empty() || image.target.empty())
    return fail(number, "the entry or the target has no name");

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
    } else if (line->starts_with("parameter ")) {
      fields.word("parameter");
      std::optional<Kind> kind = kindOf(fields.text("kind"));
      int index = static_cast<int>(fields.number("index", 0, 255));
      if (fields.ok() && !kind)
        return fail(number, "there is no such kind of parameter");
      image.parameters.push_back({kind.value_or(Kind::M), index});
    } else {
      fields.word("activation");
      image.activation.k = fields.number("k", 1, maxExtent);
      image.activation.elementBits = static_cast<int>(fields.number("bits", 1, 32));
      image.activation.pitchBytes = fields.number("pitch", 0, int64_t(1) << 40);
      activationSeen = true;
    }
    fields.end();
    if (!fields.ok())
      return fail(number, fields.problem());
  }
}

} // namespace rho::compiler
