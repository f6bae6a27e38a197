#include "compiler/DecodeText.h"

#include "compiler/decode/ElementCore.h"
#include "compiler/plan/Placement.h"

#include <sstream>

namespace rho::compiler {

std::string explainDecode(const dsl::Gemm &gemm, const Plan &plan) {
  if (gemm.activation.partition) { // of one weight, what each part's instructions take
    Result<PlacedGemm> parts = place(gemm, plan, nullptr);
    std::string text;
    for (size_t part = 0; parts && part < parts->parts.size(); ++part) {
      const DecodeSequence &decode = parts->parts[part].decode;
      text += "weight." + gemm.weight.element().name + ", " +
              std::string(gemm.weight.element().type.name()) + " to " + parts->parts[part].mmaType +
              " for part '" + gemm.activation.partition->parts[part].name +
              "'\nin use: " + std::to_string(decode.instructions()) + " instructions for " +
              std::to_string(decode.codes) + " codes\n" + instructionLines(decode.program);
    }
    return text;
  }
  Result<PlacedGemm> placed = place(gemm, plan, nullptr);
  Result<Factors> factors = factorValue(gemm.weight, true, gemm.weightSpan, nullptr);
  if (!placed || !factors)
    return {};
  const dsl::Format weight = decodedWeight(gemm, *placed);
  const dsl::Component &element = weight.element();
  const DecodeSequence &decode = placed->decode;
  std::ostringstream out;
  out << "weight." << element.name << ", " << element.type.name() << " to " << placed->mmaType
      << "\nin use: " << decode.instructions() << " instructions for " << decode.codes << " codes\n"
      << instructionLines(decode.program);
  for (bool ofWeight : {true, false})
    if (placed->blockScaling && placed->blockScaling->split(ofWeight)) {
      const CodeSplit &split = *placed->blockScaling->split(ofWeight);
      out << (ofWeight ? "weight" : "activation") << ", as a sum of "
          << placed->blockScaling->parts(ofWeight)
          << " operands: " << split.split.instructions.size() << " instructions for 8 codes\n"
          << instructionLines(split.split);
    }
  int leastLog2 = smallestUsefulLog2;
  for (const DecodeParam &param : decode.params)
    if (param.form == DecodeParam::Form::Multiplier)
      leastLog2 = leastScaledLog2(gemm.weight.components[param.component].type, placed->mmaType);
  std::optional<ElementCore> alone = elementCore(weight, *factors->core);
  if (alone && !alone->values.empty() && decode.sparseBits == 0)
    out << "of the element alone\n"
        << describe(foundDecodes(*alone, placed->mmaType, leastLog2), 4);
  return out.str();
}

} // namespace rho::compiler
