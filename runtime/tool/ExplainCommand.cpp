#include "compiler/Explain.h"
#include "dsl/Module.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/LineChart.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Table.h"
#include "runtime/tool/Tool.h"

#include <cstdio>
#include <map>

namespace rho::tool {

namespace {

using compiler::Alternative;

std::string rolesOf(const Alternative &alternative) {
  const std::string roles(dsl::name(alternative.roles)), tables(dsl::name(alternative.tables));
  return alternative.tables == dsl::ScheduleDecl::Tables::Registers ? roles
                                                                    : roles + ", tables " + tables;
}

std::string nameOf(const Alternative &alternative) {
  return rolesOf(alternative) + ", scales " + std::string(dsl::name(alternative.scales));
}

std::vector<std::string> rowOf(const Alternative &alternative) {
  std::vector<std::string> row = {std::string(dsl::name(alternative.scales)), rolesOf(alternative)};
  if (alternative.plan) {
    const compiler::Schedule &s = alternative.plan->schedule;
    row.insert(row.end(), {microseconds(alternative.plan->predictedMicroseconds),
                           extentsText({s.tileM, s.tileN, s.tileK}),
                           extentsText({s.warpsM, s.warpsN, s.warpsK}),
                           extentsText({s.clusterN, s.clusterK}), std::to_string(s.pipeline),
                           s.streamsK() ? "stream, " + std::to_string(s.residentCtas) + " CTAs"
                                        : std::to_string(s.splitK)});
  } else {
    row.insert(row.end(), {"-", "-", "-", "-", "-", "-"});
  }
  row.push_back(alternative.reason);
  return row;
}

// Predicted time against m, few and many rows apart.
Result<std::string> plotOf(const dsl::Gemm &gemm, const compiler::Problem &problem,
                           const compiler::DeviceModel &device, const SourceMap *sources) {
  std::vector<LineFigure> figures;
  for (auto [from, to] : {std::pair<int64_t, int64_t>{1, 128}, {128, 8192}}) {
    std::map<std::string, Line> lines;
    Line &plain = lines["~"]; // after all others
    plain.name = "f16 of a library";
    for (int64_t m = from; m <= to; m *= 2) {
      compiler::Problem at{m, problem.n, problem.k};
      Result<std::vector<Alternative>> all = compiler::explain(gemm, at, device, sources);
      if (!all) // of the gemm's own schedule, which may be for other m
        continue;
      for (const Alternative &alternative : *all) {
        if (!alternative.plan)
          continue;
        Line &line = lines[nameOf(alternative)];
        line.name = nameOf(alternative);
        line.points.emplace_back(m, alternative.plan->predictedMicroseconds);
      }
      if (auto f16 = compiler::predictLibraryMicroseconds(at, "f16", device))
        plain.points.emplace_back(m, *f16);
    }
    Panel panel{device.name, {}};
    for (auto &[name, line] : lines)
      panel.lines.push_back(std::move(line));
    figures.push_back({gemm.name + ", " + weightText(problem.n, problem.k),
                       "m, rows of the activations",
                       "predicted time, us",
                       0,
                       {panel}});
  }
  return lineCharts(figures);
}

} // namespace

Result<int> explainCommand(const Options &options) {
  Result<std::string> path = options.onlyFile();
  if (!path)
    return path.error();
  Result<compiler::Problem> given = plannedProblem(options);
  if (!given)
    return given.error();
  const compiler::Problem &problem = *given;
  Result<dsl::Module> module = dsl::loadModule(*path);
  if (!module)
    return module.error();
  Result<dsl::Gemm> gemm = plannedGemm(*module, options);
  if (!gemm)
    return gemm.error();
  Result<compiler::DeviceModel> device = plannedModel(options);
  if (!device)
    return device.error();
  const SourceMap *sources = module->sources.get();
  const compiler::TargetGemm target = compiler::onTarget(*gemm, device->target);
  Result<std::vector<Alternative>> all = compiler::explain(*gemm, problem, *device, sources);
  if (!all)
    return all.error();

  const std::string &type = all->front().plan->mmaType;
  std::optional<double> rho = device->rates.rho(type);
  printLine("gemm", gemm->name + ", " + shapeText({problem.m, problem.n, problem.k}));
  printLine("device",
            plannedFor(*device) + (rho ? ", rho of " + type + " " + shortNumber(*rho) : ""));
  if (auto f16 = compiler::predictLibraryMicroseconds(problem, "f16", *device))
    printLine("f16", microseconds(*f16) + " us, a library's plain product");
  printStored(target);
  if (std::optional<double> more =
          compiler::residualMicroseconds(target.gemm, *all->front().plan, *device)) {
    const dsl::Part &part = gemm->weight.residual->part;
    printLine("residual", "'" + part.name + "' of at most " +
                              shortNumber(part.budget.value_or(100)) + "% of the blocks, " +
                              microseconds(*more) + " us of the winner's");
  }
  std::vector<std::vector<std::string>> rows = {
      {"scales", "roles", "us", "tile", "warps", "cluster", "pipeline", "split_k", "why"}};
  for (const Alternative &alternative : *all)
    rows.push_back(rowOf(alternative));
  std::printf("\n%s", table(rows).c_str());
  if (options.has("--plot")) {
    Result<std::string> plot = plotOf(*gemm, problem, *device, sources);
    if (!plot)
      return plot.error();
    if (Status written = writeText(options.text("--plot"), *plot); !written)
      return written.error();
  }
  return success;
}

} // namespace rho::tool
