// Decodes as text for people.
#include "compiler/decode/Synthesis.h"
#include "compiler/plan/Placement.h"

#include <sstream>

namespace rho::compiler {

std::string explainDecode(const dsl::Gemm &gemm, const Plan &plan) {
  const dsl::Component &element = gemm.weight.element();
  Result<PlacedGemm> placed = place(gemm, plan.groupScales, plan.schedule.roles, nullptr);
  Result<Factors> factors = factorValue(gemm.weight, true, gemm.weightSpan, nullptr);
  if (!placed || !factors)
    return {};
  const DecodeSequence &decode = placed->decode;
  std::ostringstream out;
  out << "weight." << element.name << ", " << element.type.name() << " to " << placed->mmaType
      << "\nin use: " << decode.instructions() << " instructions for " << decode.codes << " codes\n"
      << instructionLines(decode.program);
  int leastLog2 = smallestUsefulLog2;
  for (const DecodeParam &param : decode.params)
    if (param.form == DecodeParam::Form::Multiplier)
      leastLog2 = leastScaledLog2(gemm.weight.components[param.component].type, placed->mmaType);
  if (isBareElement(*factors->core) && !element.remap)
    out << "of the element alone\n"
        << describe(elementDecodes(element.type, placed->mmaType, leastLog2), 4);
  return out.str();
}

} // namespace rho::compiler
