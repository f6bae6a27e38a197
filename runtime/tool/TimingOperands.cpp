#include "runtime/tool/TimingOperands.h"

#include "compiler/LayoutMap.h"
#include "dsl/Division.h"
#include "kernels/Synthetic.h"
#include "kernels/quantize/Layer.h"
#include "runtime/Kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace rho::tool {

namespace {

constexpr int64_t sliceRows = 256;
constexpr int64_t patternNumbers = 4'000'000; // no power of two: rows differ

int64_t usedBytes(const compiler::LayoutSection &section) {
  return section.tilesN * section.tilesK * compiler::tileBytes(section);
}

// The layout of the first rows alone.
compiler::WeightLayout sliceOf(const compiler::WeightLayout &layout) {
  compiler::WeightLayout slice = layout;
  int64_t whole = 1; // tiles and blocks of a residual
  for (const compiler::LayoutSection &section : layout.sections)
    whole = std::lcm(whole, section.tileN);
  if (layout.residual)
    whole = std::lcm(whole, std::lcm(layout.residual->blockN, layout.residual->tileN));
  slice.n = std::min(roundUp(sliceRows, whole), layout.n);
  slice.bytes = 0;
  auto take = [&](int64_t bytes) {
    int64_t offset = slice.bytes;
    slice.bytes += roundUp(bytes, 256);
    return offset;
  };
  auto shorten = [&](std::vector<compiler::LayoutSection> &sections) {
    for (compiler::LayoutSection &section : sections) {
      section.tilesN = std::min(section.tilesN, divideUp(slice.n, section.tileN));
      section.bytes = roundUp(usedBytes(section), 256);
      section.offset = take(section.bytes);
    }
  };
  shorten(slice.sections);
  if (compiler::ResidualLayout *residual = slice.residual ? &*slice.residual : nullptr) {
    shorten(residual->sections);
    residual->tilesN = std::min(residual->tilesN, divideUp(slice.n, residual->tileN));
    int64_t tiles = residual->tilesN * residual->tilesK;
    residual->pieces =
        std::min(residual->pieces, tiles * residual->rowsOfPieces() * residual->piecesAlongK());
    residual->wordsOffset = take(residual->wordsBytes());
    residual->firstsOffset = take(residual->firstsBytes());
    residual->pieceOffset = take(residual->pieces * residual->pieceBytes);
  }
  return slice;
}

void repeat(std::span<const uint8_t> pattern, std::span<uint8_t> out) {
  for (size_t at = 0; at < out.size(); at += pattern.size())
    std::memcpy(out.data() + at, pattern.data(), std::min(pattern.size(), out.size() - at));
}

// The pieces of a slice, one after the other as often as they fit, and the words that say so.
void repeatResidual(const compiler::ResidualLayout &from, const uint8_t *packed,
                    const compiler::ResidualLayout &to, std::vector<uint8_t> &whole) {
  using compiler::BandWord;
  using compiler::storedMask;
  int64_t bands = to.rowsOfPieces(), tiles = to.tilesN * to.tilesK;
  std::vector<uint32_t> words(static_cast<size_t>(from.wordsBytes() / 4)),
      all(static_cast<size_t>(to.wordsBytes() / 4));
  std::memcpy(words.data(), packed + from.wordsOffset, static_cast<size_t>(from.wordsBytes()));
  std::vector<uint32_t> firsts(static_cast<size_t>(tiles) + 1, 0);
  int64_t pieces = 0; // of the slice
  for (uint32_t word : words)
    pieces += std::popcount(word & storedMask);
  uint32_t next = 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int64_t band = 0; band < bands; ++band) {
      auto place = static_cast<size_t>(compiler::wordOfBand(to, tile, band));
      uint32_t stored = words[place % words.size()] & storedMask;
      all[place] = stored | next << BandWord::storedBits;
      next += static_cast<uint32_t>(std::popcount(stored));
    }
    firsts[static_cast<size_t>(tile) + 1] = next;
  }
  std::memcpy(whole.data() + to.wordsOffset, all.data(), static_cast<size_t>(to.wordsBytes()));
  std::memcpy(whole.data() + to.firstsOffset, firsts.data(), static_cast<size_t>(to.firstsBytes()));
  if (pieces > 0)
    repeat({packed + from.pieceOffset, static_cast<size_t>(pieces * from.pieceBytes)},
           {whole.data() + to.pieceOffset, static_cast<size_t>(next * to.pieceBytes)});
}

} // namespace

Result<dsl::QuantizedMatrix> sliceCodes(const compiler::WeightLayout &layout,
                                        std::shared_ptr<const dsl::Format> format, uint64_t seed) {
  int64_t rows = sliceOf(layout).n;
  std::vector<float> values = kernels::syntheticWeight(rows, layout.k, seed);
  dsl::MatrixView view{values.data(), dsl::MatrixView::Type::F32, rows, layout.k, layout.k};
  dsl::QuantizeOptions options{.rejectNonFinite = true};
  std::vector<double> inputs;
  if (layout.residual) { // which blocks are stored depends on what they are multiplied with
    // The last slice may be cut off behind most of its blocks: all of it has room.
    auto sparser = std::make_shared<dsl::Format>(*format);
    if (std::optional<double> &budget = sparser->residual->part.budget)
      *budget *= static_cast<double>(layout.n) / static_cast<double>(roundUp(layout.n, rows));
    format = std::move(sparser);
    constexpr int64_t tokens = 64;
    inputs = kernels::hessianDiagonal(
        {tokens, layout.k, kernels::syntheticActivation(tokens, layout.k, seed)});
    options.columnWeights = inputs;
  }
  return dsl::quantize(std::move(format), view, options);
}

Result<std::vector<uint8_t>> packRepeated(const compiler::WeightLayout &layout,
                                          const dsl::QuantizedMatrix &codes) {
  compiler::WeightLayout slice = sliceOf(layout);
  std::vector<uint8_t> packed(static_cast<size_t>(slice.bytes));
  if (Status done = compiler::pack(slice, codes, packed.data()); !done)
    return done.error();
  std::vector<uint8_t> whole(static_cast<size_t>(layout.bytes));
  auto repeatSections = [&](const std::vector<compiler::LayoutSection> &some,
                            const std::vector<compiler::LayoutSection> &all) {
    for (size_t i = 0; i < all.size(); ++i)
      repeat({packed.data() + some[i].offset, static_cast<size_t>(usedBytes(some[i]))},
             {whole.data() + all[i].offset, static_cast<size_t>(usedBytes(all[i]))});
  };
  repeatSections(slice.sections, layout.sections);
  if (layout.residual) {
    repeatSections(slice.residual->sections, layout.residual->sections);
    repeatResidual(*slice.residual, packed.data(), *layout.residual, whole);
  }
  return whole;
}

std::vector<uint8_t> randomNumbers(dsl::ElementType type, uint64_t seed) {
  kernels::WeightModel model{.deviation = type.isInteger() ? type.maxFinite() / 4 : 1};
  std::vector<float> values = kernels::syntheticWeight(1, patternNumbers, seed, model);
  dsl::CodeArray codes(type.bits(), patternNumbers);
  for (int64_t i = 0; i < patternNumbers; ++i)
    codes.set(i, type.encode(values[static_cast<size_t>(i)]));
  return {codes.data(), codes.data() + codes.size() * codes.width()};
}

const std::vector<uint8_t> &TimingOperands::pattern(dsl::ElementType type) {
  std::vector<uint8_t> &known = patterns[type.name()];
  if (known.empty())
    known = randomNumbers(type, seed);
  return known;
}

Result<const dsl::QuantizedMatrix *> TimingOperands::codes(const Gemm &gemm) {
  std::shared_ptr<const dsl::Format> format = gemm.impl().weight();
  const compiler::WeightLayout &layout = gemm.impl().image().weight;
  std::string key = dsl::printWithParts(*format) + " " + std::to_string(sliceOf(layout).n) + " x " +
                    std::to_string(layout.k);
  if (layout.residual) // how much of it is stored depends on all rows
    key += " of " + std::to_string(layout.n);
  if (key == sliceKey)
    return &slice;
  sliceKey.clear();
  Result<dsl::QuantizedMatrix> made = sliceCodes(layout, std::move(format), seed);
  if (!made)
    return made.error();
  slice = std::move(*made);
  sliceKey = std::move(key);
  return &slice;
}

Result<const WeightCopies *> TimingOperands::weight(const Gemm &gemm) {
  const compiler::WeightLayout &layout = gemm.impl().image().weight;
  std::string key = dsl::printWithParts(*gemm.impl().weight()) + layout.print();
  if (key == weightKey)
    return &copies;
  weightKey.clear();
  copies.clear(); // first: both may not fit
  Result<const dsl::QuantizedMatrix *> rows = codes(gemm);
  if (!rows)
    return rows.error();
  Result<std::vector<uint8_t>> packed = packRepeated(layout, **rows);
  if (!packed)
    return packed.error();
  Result<WeightCopies> made = copyWeight(device, layout.bytes, *packed);
  if (!made)
    return made.error();
  copies = std::move(*made);
  weightKey = std::move(key);
  return &copies;
}

Result<const WeightCopies *> TimingOperands::plainWeight(dsl::ElementType type, int64_t n,
                                                         int64_t k) {
  std::string key = std::string(type.name()) + " " + std::to_string(n) + " x " + std::to_string(k);
  if (key == weightKey)
    return &copies;
  weightKey.clear();
  copies.clear();
  Result<WeightCopies> made = copyWeight(device, n * k * type.bits() / 8, pattern(type));
  if (!made)
    return made.error();
  copies = std::move(*made);
  weightKey = std::move(key);
  return &copies;
}

Result<DevicePointer> TimingOperands::numbers(dsl::ElementType type, int64_t count) {
  int64_t bytes = count * type.bits() / 8;
  if (numbersType != type || numbersBuffer.bytes() < bytes) {
    numbersType.reset();
    numbersBuffer = Buffer();
    Result<Buffer> made = filledBuffer(device, bytes, pattern(type));
    if (!made)
      return made.error();
    numbersBuffer = std::move(*made);
    numbersType = type;
  }
  return numbersBuffer.address();
}

Result<TimingOperands::Input> TimingOperands::input(const Gemm &gemm) {
  const dsl::Format &activation = gemm.impl().gemm->activation;
  dsl::ElementType type =
      dsl::isPlain(activation) ? activation.element().type : dsl::ElementType::get("bf16");
  Result<DevicePointer> x = numbers(type, gemm.shape().m * gemm.shape().k);
  if (!x)
    return x.error();
  return Input{*x, type.bits() == 32      ? ScalarType::F32
                   : type.name() == "f16" ? ScalarType::F16
                                          : ScalarType::BF16};
}

Result<TimingOperands::OfLaunches> TimingOperands::ofLaunches(const Gemm &gemm) {
  Result<const WeightCopies *> weight = this->weight(gemm);
  if (!weight)
    return weight.error();
  Result<Input> x = input(gemm);
  if (!x)
    return x.error();
  Result<ReadyGemm> ready = makeReady(device, gemm, x->x, x->type);
  if (!ready)
    return ready.error();
  return OfLaunches{*weight, *x, std::move(*ready)};
}

} // namespace rho::tool
