#include "dsl/Findings.h"
#include "runtime/tool/Probe.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Table.h"
#include "runtime/tool/Tool.h"

#include <cstdio>

namespace rho::tool {

Result<int> probeCommand(const Options &options) {
  if (!options.files().empty())
    return makeError(DiagId::option_conflict,
                     {"rho probe", dsl::shown(options.files()[0]), "it takes no files"});
  Result<Device> device = openDevice(options.text("--device", "auto"));
  if (!device)
    return device.error();
  Result<std::vector<ProbedFigure>> figures = probe(*device);
  if (!figures)
    return figures.error();
  printLine("device", deviceText(*device));
  std::vector<std::vector<std::string>> rows = {
      {"figure", "declared", "measured", "ratio", "unit"}};
  for (const ProbedFigure &figure : *figures)
    rows.push_back({figure.what, figure.declared ? shortNumber(*figure.declared) : "-",
                    shortNumber(figure.measured),
                    figure.declared ? fixedNumber(figure.measured / *figure.declared, 2) : "-",
                    figure.unit});
  std::printf("\n%s", table(rows).c_str());
  return success;
}

} // namespace rho::tool
