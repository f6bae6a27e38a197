#include "compiler/DecodeText.h"

#include "compiler/decode/ElementCore.h"
#include "compiler/plan/Placement.h"

#include <sstream>

namespace rho::compiler {

namespace {

std::string inUse(const dsl::Component &element, const PlacedGemm &placed, const std::string &of) {
  const DecodeSequence &decode = placed.decode;
  return "weight." + element.name + ", " + std::string(element.type.name()) + " to " +
         placed.mmaType + of + "\nin use: " + std::to_string(decode.instructions()) +
         " instructions for " + std::to_string(decode.codes) + " codes\n" +
         instructionLines(decode.program);
}

} // namespace

std::string explainDecode(const dsl::Gemm &gemm, const Plan &plan) {
  Result<PlacedGemm> placed = place(gemm, plan, nullptr);
  if (!placed)
    return {};
  std::string ofParts; // of one weight, what each part's instructions take
  for (size_t part = 0; part < placed->parts.size(); ++part)
    ofParts += inUse(gemm.weight.element(), placed->parts[part],
                     " for part '" + gemm.activation.partition->parts[part].name + "'");
  Result<Factors> factors = factorValue(gemm.weight, true, gemm.weightSpan, nullptr);
  if (!ofParts.empty() || !factors)
    return ofParts;
  const dsl::Format weight = decodedWeight(gemm, *placed);
  std::ostringstream out;
  out << inUse(weight.element(), *placed, "");
  for (bool ofWeight : {true, false})
    if (placed->blockScaling && placed->blockScaling->split(ofWeight)) {
      const CodeSplit &split = *placed->blockScaling->split(ofWeight);
      out << (ofWeight ? "weight" : "activation") << ", as a sum of "
          << placed->blockScaling->parts(ofWeight)
          << " operands: " << split.split.instructions.size() << " instructions for 8 codes\n"
          << instructionLines(split.split);
    }
  int leastLog2 = smallestUsefulLog2;
  for (const DecodeParam &param : placed->decode.params)
    if (param.form == DecodeParam::Form::Multiplier)
      leastLog2 = leastScaledLog2(gemm.weight.components[param.component].type, placed->mmaType);
  std::optional<ElementCore> alone = elementCore(weight, *factors->core);
  if (alone && !alone->values.empty() && placed->decode.sparseBits == 0)
    out << "of the element alone\n"
        << describe(foundDecodes(*alone, placed->mmaType, leastLog2), 4);
  return out.str();
}

} // namespace rho::compiler
