#include "runtime/EngineImpl.h"

#include "compiler/Candidates.h"
#include "compiler/Compiler.h"
#include "compiler/Parallel.h"
#include "dsl/Findings.h"
#include "runtime/Beside.h"
#include "runtime/Misfit.h"
#include "runtime/QuantizerOfGemm.h"

#include <algorithm>

namespace rho {
namespace {

// Of a gemm that was there already: what the kernel is, not how it once came about.
CompileReport fromMemory(const Prepared &built) {
  CompileReport report = built.report;
  report.source = CompileReport::Source::Memory;
  report.stages.clear();
  report.totalMilliseconds = 0;
  report.warnings.clear();
  warnOf(*built.quantizer, report);
  return report;
}

} // namespace

Result<const dsl::Gemm *> findGemm(const dsl::Module &module, std::string_view name) {
  std::vector<std::string> names;
  for (const dsl::Gemm &gemm : module.gemms)
    names.push_back(gemm.name);
  if (module.gemms.empty())
    return module.whyNoneOf("gemm", name).value_or(makeError(DiagId::no_gemm, {"the module"}));
  if (name.empty() && module.gemms.size() > 1)
    return makeError(DiagId::ambiguous_gemm,
                     {std::to_string(module.gemms.size()), dsl::join(names)});
  if (name.empty())
    return &module.gemms[0];
  if (const dsl::Gemm *gemm = module.findGemm(name))
    return gemm;
  return module.whyNoneOf("gemm", name)
      .value_or(makeError(DiagId::unknown_gemm, {dsl::shown(name), dsl::listed(name, names)}));
}

Result<const dsl::Gemm *> gemmOf(const Engine &engine, const Module &module,
                                 std::string_view name) {
  if (Status valid = checkHandle(engine, "engine"); !valid)
    return valid.error();
  if (Status valid = checkHandle(module, "module"); !valid)
    return valid.error();
  return findGemm(module.impl().module, name);
}

std::string Engine::Impl::kernelKey(const std::vector<std::string> &what,
                                    const std::string &target) const {
  cache::Sha256 hash;
  for (const std::string &each : what)
    hash.field(each);
  hash.field(compiler::buildId());
  hash.field(compiler::llvmVersion());
  hash.field(target);
  hash.field(backend->codeVersion());
  return cache::hex(hash.finish());
}

// What cannot be used is discarded with a warning, unless it is the GPU that cannot use anything.
Result<std::shared_ptr<const Kernel>> Engine::Impl::loadEntry(const WantedKernel &wanted,
                                                              CompileReport &report) {
  using Loaded = std::shared_ptr<const Kernel>;
  Stopwatch watch;
  std::optional<cache::Entry> entry = disk.load(wanted.key, report.warnings);
  if (!entry)
    return Loaded();
  auto discard = [&](const std::string &reason) {
    disk.discard(wanted.key, reason, report.warnings);
    return Loaded();
  };
  compiler::KernelImage image;
  std::string code;
  if (std::string reason = readKernel(*entry, image, code); !reason.empty())
    return discard(reason);
  if (std::string reason = wanted.misfit(image); !reason.empty())
    return discard(reason);
  double read = watch.lap();
  Result<std::shared_ptr<const LoadedKernel>> loaded = backend->load(image, code);
  if (!loaded && isFaultOfDevice(loaded.error()))
    return loaded.error();
  if (!loaded)
    return discard(loaded.error().diagnostics[0].message);
  report.source = CompileReport::Source::Disk;
  report.stages.push_back({"read", read});
  report.stages.push_back({"load", watch.lap()});
  return Loaded(std::make_shared<Kernel>(Kernel{std::move(image), std::move(*loaded)}));
}

Result<std::shared_ptr<const Kernel>> Engine::Impl::makeKernel(const WantedKernel &wanted,
                                                               CompileReport &report) {
  if (auto kernel = loadEntry(wanted, report); !kernel || *kernel)
    return kernel;
  Stopwatch watch;
  cache::FileLock lock = disk.lock(wanted.key, report.warnings);
  if (const double waited = watch.lap(); waited >= 1) // for a process that compiles it
    report.stages.push_back({"wait", waited});
  if (lock.held()) // another process may have published it meanwhile
    if (auto kernel = loadEntry(wanted, report); !kernel || *kernel)
      return kernel;
  report.source = CompileReport::Source::Compiled;
  Result<compiler::KernelImage> image = wanted.compile(report);
  if (!image)
    return image.error();
  EntryLabel made = wanted.label;
  made.target = image->target;
  made.device = backend->model().name + ", " + backend->codeVersion();
  Result<std::shared_ptr<const LoadedKernel>> loaded =
      assembler.load(*image, wanted.key, made, report);
  if (!loaded)
    return loaded.error();
  return std::shared_ptr<const Kernel>(
      std::make_shared<Kernel>(Kernel{std::move(*image), std::move(*loaded)}));
}

Result<std::shared_ptr<const Kernel>> Engine::Impl::kernel(const WantedKernel &wanted,
                                                           CompileReport &report) {
  Stopwatch watch;
  report.key = wanted.key;
  report.source = CompileReport::Source::Memory;
  Result<std::shared_ptr<const Kernel>> kernel =
      kernels.get(wanted.key, [&] { return makeKernel(wanted, report); });
  if (!kernel)
    return kernel;
  report.registers = (*kernel)->loaded->registers;
  report.localBytes = (*kernel)->loaded->localBytes;
  report.sharedBytes = (*kernel)->image.sharedBytes;
  report.totalMilliseconds = watch.milliseconds(); // of a gemm that of all stages takes its place
  return kernel;
}

Result<std::shared_ptr<Prepared>>
Engine::Impl::prepare(const Request &request, const dsl::Gemm &declared, const SourceMap *sources) {
  const GemmShape &shape = request.shape;
  const compiler::DeviceModel &model = backend->model();
  Wanted wanted{.request = request, .declared = declared, .sources = sources};
  std::string tunedKey;
  std::optional<Error> tunedError;
  if (useTuned) {
    tunedKey = TunedPlans::key(request.declaration, shape, model);
    if (auto found = tuned.find(tunedKey, wanted.start.warnings)) {
      Wanted byTuned = wanted;
      byTuned.tuned = found->plan.print();
      byTuned.start.planSource = CompileReport::PlanSource::Tuned;
      byTuned.start.tunedMicroseconds = found->microseconds;
      bool serves = true;
      auto made = prepareChosen(
          std::move(byTuned), [&](const compiler::TargetGemm &target) -> Result<ChosenPlan> {
            auto plan =
                tuned.adopt(*found, tunedKey, target.gemm, shape, model, wanted.start.warnings);
            serves = plan.has_value();
            if (!serves)
              return makeError(DiagId::bad_plan, {"m " + std::to_string(shape.m)});
            return ChosenPlan{*std::move(plan)};
          });
      if (made || (serves && isFaultOfDevice(made.error()))) // which says nothing of the plan
        return made;
      if (serves)
        tunedError = std::move(made.error());
      wanted.watch.lap();
    }
  }
  auto made = prepareChosen(
      std::move(wanted), [&](const compiler::TargetGemm &target) -> Result<ChosenPlan> {
        Result<compiler::Plan> plan =
            compiler::plan(target.gemm, {shape.m, shape.n, shape.k}, model, sources);
        if (!plan)
          return plan.error();
        return ChosenPlan{*std::move(plan)};
      });
  if (made && tunedError) // and only the tuned plan fails: no kernel can be made of it
    tuned.discard(tunedKey, tunedError->diagnostics[0].message, (*made)->report.warnings);
  return made;
}

// Bytes packed for one kernel are right for another where both have the same layout and make the
// same operands of them, which packing has checked.
static void nameWeightLayout(Prepared &prepared) {
  cache::Sha256 layout;
  layout.field(dsl::printWithParts(dsl::meaningOf(prepared.target->gemm.weight)));
  layout.field(prepared.kernel->image.weight.print());
  for (const compiler::OperandRange &range : prepared.operands)
    layout.field(range.print());
  prepared.weightLayout = cache::hex(layout.finish());
}

namespace {

WantedKernel wantedKernel(const Engine::Impl &engine, const dsl::Gemm &gemm,
                          const compiler::Plan &plan, const SourceMap *sources) {
  WantedKernel wanted;
  wanted.key = engine.kernelKey({"kernel", compiler::printSpec(gemm, plan)}, plan.target);
  wanted.label = {
      .kind = EntryKind::Kernel, .name = gemm.name, .problem = problemText("any", plan.problem)};
  wanted.misfit = [&gemm, &plan](const compiler::KernelImage &image) {
    return misfit(image, gemm, plan);
  };
  wanted.compile = [&gemm, &plan, sources](CompileReport &into) -> Result<compiler::KernelImage> {
    Result<compiler::Compiled> compiled = compiler::compile(gemm, plan, sources);
    if (!compiled)
      return compiled.error();
    for (const compiler::StageTime &stage : compiled->times)
      into.stages.push_back({stage.name, stage.milliseconds});
    return std::move(compiled->image);
  };
  return wanted;
}

} // namespace

Result<std::shared_ptr<Prepared>>
Engine::Impl::prepareAs(const dsl::Gemm &declared,
                        std::shared_ptr<const compiler::TargetGemm> target, const GemmShape &shape,
                        const compiler::Plan &plan, const SourceMap *sources, CompileReport start) {
  auto prepared = std::make_shared<Prepared>();
  CompileReport &report = prepared->report;
  report = std::move(start);
  if (Status fits = checkGrid(shape.m, plan.schedule.tileM); !fits)
    return fits.error();
  report.plan = plan.print();
  report.predictedMicroseconds = plan.predictedMicroseconds;
  prepared->plan = plan;
  QuantizerOfGemm ofActivations(*this, declared.activation, *target);
  ofActivations.begin(shape.k, plan);
  Result<std::shared_ptr<const Kernel>> kernel =
      this->kernel(wantedKernel(*this, target->gemm, plan, sources), report);
  if (!kernel)
    return kernel.error();
  QuantizerResult quantizer = ofActivations.finish((*kernel)->image.activation, report);
  if (!quantizer)
    return quantizer.error();
  prepared->operands = (*kernel)->image.operands;
  prepared->kernel = std::move(*kernel);
  prepared->quantizer = std::move(*quantizer);
  prepared->target = std::move(target);
  nameWeightLayout(*prepared);
  return prepared;
}

Result<std::shared_ptr<Prepared>> Engine::Impl::prepareBy(Wanted &wanted,
                                                          const ChosenPlan &chosen) {
  CompileReport report = wanted.start;
  report.stages.push_back({"plan", wanted.watch.lap()});
  auto made = prepareAs(wanted.declared, wanted.target, wanted.request.shape, chosen.plan,
                        wanted.sources, std::move(report));
  if (made && !chosen.operands.empty()) {
    (*made)->operands = chosen.operands;
    nameWeightLayout(**made);
  }
  return made;
}

Result<std::shared_ptr<Prepared>> Engine::Impl::prepareKept(Wanted &wanted,
                                                            const std::string &key) {
  const GemmShape &shape = wanted.request.shape;
  cache::Warnings &warnings = wanted.start.warnings;
  std::optional<ChosenPlan> kept =
      plans.load(key, {shape.m, shape.n, shape.k}, backend->model().target, warnings);
  if (!kept)
    return std::shared_ptr<Prepared>();
  if (!wanted.target)
    wanted.target =
        kept->asDeclared
            ? std::make_shared<const compiler::TargetGemm>(compiler::TargetGemm{wanted.declared})
            : onTarget(wanted.declared);
  std::string reason = misfit(kept->operands, wanted.target->gemm);
  if (reason.empty()) {
    auto made = prepareBy(wanted, *kept);
    if (made || isFaultOfDevice(made.error())) // which says nothing of the plan
      return made;
    reason = made.error().diagnostics[0].message;
  }
  wanted.target.reset(); // it may be that, too
  plans.discard(key, reason, warnings);
  return std::shared_ptr<Prepared>();
}

Result<std::shared_ptr<Prepared>> Engine::Impl::prepareChosen(
    Wanted wanted, const std::function<Result<ChosenPlan>(const compiler::TargetGemm &)> &choose) {
  const compiler::DeviceModel &model = backend->model();
  const std::string key =
      KeptPlans::key(wanted.request.declaration, wanted.request.shape, model, wanted.tuned);
  if (auto made = prepareKept(wanted, key); !made || *made)
    return made;
  if (!wanted.target)
    wanted.target = onTarget(wanted.declared);
  Result<ChosenPlan> chosen = choose(*wanted.target);
  if (!chosen)
    return chosen.error();
  chosen->asDeclared = wanted.target->isAsDeclared();
  // Beside the kernel, which takes longer.
  cache::Warnings ofKeeping;
  std::future<void> keeping = beside(assembler.isAlone(), [&, this] {
    plans.store(key, *chosen, wanted.declared.name, model.name, ofKeeping);
  });
  auto made = prepareBy(wanted, *chosen);
  keeping.get();
  if (made) {
    cache::Warnings &all = (*made)->report.warnings;
    all.insert(all.begin() + std::ssize(wanted.start.warnings), ofKeeping.begin(), ofKeeping.end());
  }
  return made;
}

Result<Engine> Engine::create(const Device &device, const EngineOptions &options) {
  if (Status valid = checkHandle(device, "device"); !valid)
    return valid.error();
  Result<CacheFolders> folders = cacheFolders(options);
  if (!folders)
    return folders.error();
  Engine engine;
  engine.pimpl = std::make_shared<Impl>(device, *folders, options);
  return engine;
}

Device Engine::device() const { return pimpl ? pimpl->device : Device(); }

Gemm Engine::Impl::makeGemm(std::shared_ptr<const Module::Impl> module, const dsl::Gemm &declared,
                            const GemmShape &shape, std::shared_ptr<const Prepared> prepared,
                            CompileReport report, double milliseconds) const {
  auto impl = std::make_shared<Gemm::Impl>();
  impl->backend = backend;
  impl->module = std::move(module);
  impl->gemm = &declared;
  impl->shape = shape;
  impl->threads = threads;
  impl->prepared = std::move(prepared);
  impl->report = std::move(report);
  impl->report.totalMilliseconds = milliseconds;
  Gemm gemm;
  gemm.pimpl = std::move(impl);
  return gemm;
}

Result<Gemm> Engine::Impl::compileAs(std::shared_ptr<const Module::Impl> module,
                                     const dsl::Gemm &declared,
                                     std::shared_ptr<const compiler::TargetGemm> target,
                                     const GemmShape &shape, const compiler::Plan &plan,
                                     double planned) {
  Stopwatch watch;
  const SourceMap *sources = module->module.sources.get();
  CompileReport report;
  report.stages.push_back({"plan", planned});
  auto prepared = onHost([&] {
    return prepareAs(declared, std::move(target), shape, plan, sources, std::move(report));
  });
  if (!prepared)
    return prepared.error();
  return makeGemm(std::move(module), declared, shape, *prepared, (*prepared)->report,
                  planned + watch.lap());
}

Result<Gemm>
Engine::Impl::compile(std::shared_ptr<const Module::Impl> module, const dsl::Gemm &declared,
                      const Request &request,
                      const std::function<Result<std::shared_ptr<Prepared>>()> &prepare) {
  Stopwatch watch;
  bool built = false;
  auto prepared = requests.get(request, [&]() -> Result<std::shared_ptr<const Prepared>> {
    built = true;
    auto made = onHost(prepare);
    if (!made)
      return made.error();
    return std::shared_ptr<const Prepared>(std::move(*made));
  });
  if (!prepared)
    return prepared.error();
  return makeGemm(std::move(module), declared, request.shape, *prepared,
                  built ? (*prepared)->report : fromMemory(**prepared), watch.lap());
}

namespace {

using SharedPlans = Engine::Impl::SharedPlans;

cache::Digest sharedKey(const cache::Digest &declaration, int64_t n, int64_t k,
                        std::span<const int64_t> batches) {
  cache::Sha256 all;
  all.field("shared");
  all.field(cache::hex(declaration));
  for (int64_t part : {n, k})
    all.field(std::to_string(part));
  for (int64_t m : batches)
    all.field(std::to_string(m));
  return all.finish();
}

// Plans that read one weight, one for each problem, and what they make of it.
Result<std::shared_ptr<const SharedPlans>>
planShared(const dsl::Gemm &gemm, const std::vector<compiler::Problem> &problems,
           const compiler::DeviceModel &model, const SourceMap *sources) {
  auto plans = compiler::sharedPlans(gemm, problems, model, sources);
  if (!plans)
    return plans.error();
  auto shared = std::make_shared<SharedPlans>();
  for (const compiler::Plan &plan : *plans) {
    auto operands = compiler::operandRanges(gemm, plan);
    if (!operands)
      return operands.error();
    for (compiler::OperandRange &range : *operands)
      if (std::find(shared->operands.begin(), shared->operands.end(), range) ==
          shared->operands.end())
        shared->operands.push_back(std::move(range));
  }
  shared->plans = *std::move(plans);
  return std::shared_ptr<const SharedPlans>(std::move(shared));
}

} // namespace

Result<std::vector<Gemm>> Engine::compileShared(const Module &module, std::string_view name,
                                                int64_t n, int64_t k,
                                                std::span<const int64_t> batches) const {
  Result<const dsl::Gemm *> found = gemmOf(*this, module, name);
  if (!found)
    return found.error();
  const dsl::Gemm &gemm = **found;
  const dsl::ThreadLimit threads(pimpl->threads);
  const SourceMap *sources = module.impl().module.sources.get();
  const cache::Digest key = sharedKey(module.impl().digestOf(gemm), n, k, batches);
  std::vector<compiler::Problem> problems;
  for (int64_t m : batches)
    problems.push_back({m, n, k});
  auto choose = [&](const compiler::TargetGemm &target, size_t at) -> Result<ChosenPlan> {
    auto shared = pimpl->sharedPlans.get(cache::hex(key), [&] {
      return planShared(target.gemm, problems, pimpl->backend->model(), sources);
    });
    if (!shared)
      return shared.error();
    return ChosenPlan{.plan = (*shared)->plans[at], .operands = (*shared)->operands};
  };
  auto requestOf = [&](int64_t m) { return Request{key, {m, n, k}}; };
  auto compileOne = [&](size_t at) {
    const Request one = requestOf(batches[at]);
    return pimpl->compile(module.pimpl, gemm, one, [&] {
      return pimpl->prepareChosen(
          {.request = one, .declared = gemm, .sources = sources},
          [&](const compiler::TargetGemm &target) { return choose(target, at); });
    });
  };
  std::vector<Result<Gemm>> compiled(batches.size(), Gemm());
  const bool known = std::all_of(batches.begin(), batches.end(),
                                 [&](int64_t m) { return pimpl->requests.find(requestOf(m)); });
  if (known) // no work for threads
    for (size_t at = 0; at < batches.size(); ++at)
      compiled[at] = compileOne(at);
  else
    parallelFor(static_cast<int64_t>(batches.size()), [&](int64_t i) {
      compiled[static_cast<size_t>(i)] = compileOne(static_cast<size_t>(i));
    });
  std::vector<Gemm> gemms;
  for (Result<Gemm> &each : compiled) {
    if (!each)
      return each.error();
    gemms.push_back(std::move(*each));
  }
  return gemms;
}

Result<Gemm> Engine::compileSharing(const Gemm &gemm, int64_t m) const {
  if (Status valid = checkHandle(*this, "engine"); !valid)
    return valid.error();
  if (Status valid = checkHandle(gemm, "gemm"); !valid)
    return valid.error();
  const Gemm::Impl &other = gemm.impl();
  if (other.backend != pimpl->backend)
    return makeError(DiagId::wrong_device, {"the engine"});
  cache::Sha256 shared;
  shared.field("sharing");
  shared.field(cache::hex(other.module->digestOf(*other.gemm)));
  shared.field(other.prepared->report.key);
  shared.field(other.prepared->weightLayout);
  const Request request{shared.finish(), {m, other.shape.n, other.shape.k}};
  return pimpl->compile(other.module, *other.gemm, request, [&] {
    const SourceMap *sources = other.module->module.sources.get();
    const Prepared &prepared = *other.prepared;
    auto choose = [&](const compiler::TargetGemm &) -> Result<ChosenPlan> {
      Result<compiler::Plan> sharing =
          compiler::planSharing(prepared.target->gemm, prepared.plan, prepared.operands, m,
                                pimpl->backend->model(), sources);
      if (!sharing)
        return sharing.error();
      return ChosenPlan{.plan = *std::move(sharing), .operands = prepared.operands};
    };
    return pimpl->prepareChosen({.request = request,
                                 .declared = *other.gemm,
                                 .sources = sources,
                                 .target = prepared.target},
                                choose);
  });
}

Result<Gemm> Engine::compile(const Module &module, std::string_view name,
                             const GemmShape &shape) const {
  Result<const dsl::Gemm *> found = gemmOf(*this, module, name);
  if (!found)
    return found.error();
  const Request request{module.impl().digestOf(**found), shape};
  return pimpl->compile(module.pimpl, **found, request, [&] {
    return pimpl->prepare(request, **found, module.impl().module.sources.get());
  });
}

} // namespace rho
