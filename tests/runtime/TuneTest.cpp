// Measured plans: kept, found again, and refused where they do not fit.
#include "compiler/Candidates.h"
#include "dsl/Parallel.h"
#include "runtime/Handles.h"
#include "runtime/TunedPlans.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace fs = std::filesystem;

namespace rho {
namespace {

using PlanSource = CompileReport::PlanSource;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TuneTest : public testing::Test {
protected:
  EngineOptions options() const {
    EngineOptions options;
    options.cacheDirectory = folder.path();
    return options;
  }
  Engine engine(const EngineOptions &options) const {
    return must(Engine::create(device, options));
  }
  Engine engine() const { return engine(options()); }
  CompileReport compiled(const Engine &engine, const GemmShape &shape) const {
    return must(engine.compile(module, "", shape)).report();
  }
  CompileReport compiled() const { return compiled(engine(), shape); }

  const compiler::DeviceModel &model() const { return device.impl().backend->model(); }
  std::string keyOf(const GemmShape &shape) const {
    return TunedPlans::key(module.impl().digests[0], shape, model());
  }
  std::string tunedFolder() const { return folder.path() + "/tuned"; }
  cache::DiskCacheOptions disk() const {
    cache::DiskCacheOptions disk;
    disk.directory = tunedFolder();
    return disk;
  }
  const dsl::Gemm &gemm() const { return module.impl().module.gemms[0]; }
  // The planner's second choice.
  compiler::Plan second() const {
    return must(compiler::planCandidates(gemm(), {shape.m, shape.n, shape.k}, model(), 2, nullptr))
        .at(1);
  }
  void keep(const compiler::Plan &plan, const GemmShape &shape) const {
    cache::Warnings warnings;
    EXPECT_TRUE(TunedPlans(disk()).store(keyOf(shape), {plan, 12.5}, warnings));
    EXPECT_THAT(warnings, IsEmpty());
  }
  void expectDropped(const std::string &reason) const {
    std::string path = tunedFolder() + "/" + keyOf(shape);
    EngineOptions readOnly = options();
    readOnly.cacheReadOnly = true;
    for (const EngineOptions &options : {readOnly, this->options()}) {
      ASSERT_TRUE(fs::exists(path));
      CompileReport report = compiled(engine(options), shape);
      EXPECT_EQ(report.planSource, PlanSource::Planned);
      ASSERT_EQ(report.warnings.size(), 1U);
      EXPECT_THAT(report.warnings[0], HasSubstr("cache entry " + path));
      EXPECT_THAT(report.warnings[0], HasSubstr(reason));
    }
    EXPECT_FALSE(fs::exists(path));
    EXPECT_THAT(compiled().warnings, IsEmpty());
  }

  TemporaryFolder folder;
  const Device device = must(Device::emulated("sm_80"));
  const Module module = parsed(w4a16);
  const GemmShape shape{3, 128, 256};
};

TEST_F(TuneTest, WhatIsKeptComesBackUntilItIsReplaced) {
  TunedPlans plans(disk());
  cache::Warnings warnings;
  std::string key = keyOf(shape);
  EXPECT_FALSE(plans.find(key, warnings));
  EXPECT_FALSE(fs::exists(tunedFolder())); // a look creates nothing
  compiler::Plan first = must(compiler::plan(gemm(), {3, 128, 256}, model(), nullptr));
  for (const auto &[plan, microseconds] : {std::pair{second(), 12.5}, std::pair{first, 0.125}}) {
    EXPECT_TRUE(plans.store(key, {plan, microseconds}, warnings));
    std::optional<TunedPlan> found = plans.find(key, warnings);
    ASSERT_TRUE(found);
    auto adopted = plans.adopt(*found, key, gemm(), shape, model(), warnings);
    ASSERT_TRUE(adopted);
    EXPECT_EQ(adopted->print(), plan.print());
    EXPECT_EQ(found->microseconds, microseconds);
  }
  EXPECT_THAT(warnings, IsEmpty());
}

// What another m of the same key has no kernel for is left to those that have one.
TEST_F(TuneTest, WhatOneBatchCannotUseIsKeptForOthers) {
  TunedPlans plans(disk());
  cache::Warnings warnings;
  const std::string key = keyOf(shape);
  compiler::Plan other = second();
  other.problem.m = shape.m + 1;
  other.schedule.tileM = 24; // no tile of this device's kernels
  other.mmaType = "s8";
  EXPECT_TRUE(plans.store(key, {other, 1}, warnings));
  std::optional<TunedPlan> found = plans.find(key, warnings);
  ASSERT_TRUE(found);
  EXPECT_FALSE(plans.adopt(*found, key, gemm(), shape, model(), warnings));
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_TRUE(fs::exists(tunedFolder() + "/" + key));

  // A grid has room for the tiles of some m that share a plan, not of all.
  const GemmShape tall{524288, 64, 128};
  compiler::Plan flat = must(compiler::plan(gemm(), {8, 64, 128}, model(), nullptr));
  flat.problem.m = 300000;
  keep(flat, tall);
  CompileReport report = compiled(engine(), tall);
  EXPECT_EQ(report.planSource, PlanSource::Planned);
  EXPECT_THAT(report.warnings, IsEmpty());
  EXPECT_TRUE(fs::exists(tunedFolder() + "/" + keyOf(tall)));
}

TEST_F(TuneTest, KeysAreOfDeclarationShapeAndDeviceClass) {
  std::string key = keyOf({3, 128, 256});
  EXPECT_EQ(keyOf({4, 128, 256}), key);
  EXPECT_NE(keyOf({2, 128, 256}), key);
  EXPECT_NE(keyOf({5, 128, 256}), key);
  EXPECT_EQ(keyOf({65, 128, 256}), keyOf({80, 128, 256})); // of other tiles than 128
  EXPECT_NE(keyOf({80, 128, 256}), keyOf({81, 128, 256}));
  EXPECT_NE(keyOf({3, 256, 256}), key);
  EXPECT_NE(keyOf({3, 128, 128}), key);
  auto of = [&](const Module &module, const compiler::DeviceModel &model) {
    return TunedPlans::key(module.impl().digests[0], {3, 128, 256}, model);
  };
  EXPECT_EQ(of(parsed(w4a16, "moved.rho"), model()), key);
  EXPECT_NE(of(parsed(w4a8), model()), key);
  std::string scheduled = w4a16;
  scheduled.insert(scheduled.rfind('}'), "schedule { pipeline: 4 }");
  EXPECT_NE(of(parsed(scheduled.c_str()), model()), key);
  compiler::DeviceModel other = model();
  other.clockGHz += 1; // the same GPU at another clock
  EXPECT_EQ(of(module, other), key);
  other.smCount += 1;
  EXPECT_NE(of(module, other), key);
  other = model();
  other.name += " SXM";
  EXPECT_NE(of(module, other), key);
  other = model();
  other.target = "sm_86";
  EXPECT_NE(of(module, other), key);
}

TEST_F(TuneTest, EnginesUseWhatIsKept) {
  CompileReport planned = compiled();
  EXPECT_EQ(planned.planSource, PlanSource::Planned);
  keep(second(), shape);
  Engine first = engine();
  CompileReport tuned = compiled(first, shape);
  EXPECT_EQ(tuned.planSource, PlanSource::Tuned);
  EXPECT_EQ(tuned.tunedMicroseconds, 12.5);
  EXPECT_EQ(tuned.plan, second().print());
  EXPECT_NE(tuned.key, planned.key);
  EXPECT_THAT(tuned.warnings, IsEmpty());
  CompileReport again = compiled(first, shape);
  EXPECT_EQ(again.source, CompileReport::Source::Memory);
  EXPECT_EQ(again.planSource, PlanSource::Tuned);
  EXPECT_EQ(again.tunedMicroseconds, 12.5);
  EXPECT_EQ(compiled(first, {4, 128, 256}).plan.substr(0, 4), "m 4\n");
  EXPECT_EQ(compiled(first, {5, 128, 256}).planSource, PlanSource::Planned);
}

TEST_F(TuneTest, EnginesIgnoreItWhenTold) {
  keep(second(), shape);
  EngineOptions untuned = options();
  untuned.useTuned = false;
  EXPECT_EQ(compiled(engine(untuned), shape).planSource, PlanSource::Planned);
  EngineOptions readOnly = options();
  readOnly.cacheReadOnly = true;
  EXPECT_EQ(compiled(engine(readOnly), shape).planSource, PlanSource::Tuned);
  EngineOptions elsewhere;
  elsewhere.diskCache = false;
  EXPECT_EQ(compiled(engine(elsewhere), shape).planSource, PlanSource::Planned);
  elsewhere.tunedDirectory = tunedFolder();
  EXPECT_EQ(compiled(engine(elsewhere), shape).planSource, PlanSource::Tuned);
}

TEST_F(TuneTest, DamagedPlansAreDroppedWithOneWarning) {
  keep(second(), shape);
  writeText(tunedFolder() + "/" + keyOf(shape) + "/plan", "nonsense");
  expectDropped("plan has fewer than its");
}

// Sound files that hold something else.
TEST_F(TuneTest, ForeignContentIsDroppedWithOneWarning) {
  std::string plan = second().print();
  std::string other = plan;
  other.replace(other.find("pipeline"), 10, "pipeline 1");
  std::string large = plan;
  large.replace(large.find("tile "), large.find("\nwarps") - large.find("tile "),
                "tile 256 x 256 x 256");
  cache::Warnings none;
  const std::vector<std::pair<cache::Entry, std::string>> cases = {
      {{{"plan", plan}}, "it holds no plan with its time"},
      {{{"plan", plan}, {"microseconds", "fast"}}, "it holds no plan with its time"},
      {{{"plan", plan}, {"microseconds", "0"}}, "it holds no plan with its time"},
      {{{"plan", plan}, {"microseconds", "-1"}}, "it holds no plan with its time"},
      {{{"plan", "hello"}, {"microseconds", "1"}}, "malformed plan at 'hello'"},
      {{{"plan", other}, {"microseconds", "1"}}, "malformed plan at 'pipeline 1'"},
      {{{"plan", large}, {"microseconds", "1"}}, "not used: "},
  };
  for (const auto &[entry, reason] : cases) {
    SCOPED_TRACE(reason);
    ASSERT_TRUE(cache::DiskCache(disk()).store(keyOf(shape), entry, none));
    expectDropped(reason);
  }
}

// 524288 rows in tiles of 8 are more than a grid has; the planner's own tiles are larger.
TEST_F(TuneTest, PlansOfWhichNoKernelCanBeMadeAreDropped) {
  const GemmShape tall{524288, 64, 128};
  compiler::Plan flat = must(compiler::plan(gemm(), {8, 64, 128}, model(), nullptr));
  ASSERT_EQ(flat.schedule.tileM, 8);
  flat.problem.m = tall.m;
  keep(flat, tall);
  CompileReport report = compiled(engine(), tall);
  EXPECT_EQ(report.planSource, PlanSource::Planned);
  EXPECT_THAT(report.warnings, ElementsAre(HasSubstr("m = 524288 needs 65536 rows of tiles")));
  EXPECT_FALSE(fs::exists(tunedFolder() + "/" + keyOf(tall)));
}

TEST_F(TuneTest, TheFastestCandidateIsKeptAndUsedFromThenOn) {
  Engine tuning = engine();
  EXPECT_EQ(compiled(tuning, shape).planSource, PlanSource::Planned);
  const std::string wanted = second().print();
  std::atomic<int64_t> ready = 0;
  int measured = 0;
  TuneOptions options;
  options.candidates = 4;
  options.compiled = [&](int64_t, int64_t total) {
    EXPECT_EQ(total, 4);
    ++ready;
  };
  TuneReport report = must(tuning.tune(
      module, "", shape,
      [&](const Gemm &candidate) -> Result<double> {
        EXPECT_EQ(ready, 4); // nothing is compiled any more
        EXPECT_EQ(candidate.shape().m, 3);
        return candidate.report().plan == wanted ? 7.5 : 10.0 + measured++;
      },
      options));
  EXPECT_EQ(measured, 3);
  ASSERT_EQ(report.candidates.size(), 4U);
  EXPECT_EQ(report.best, 1U);
  EXPECT_TRUE(report.kept);
  EXPECT_THAT(report.warnings, IsEmpty());
  EXPECT_EQ(report.candidates[1].plan, wanted);
  EXPECT_EQ(report.candidates[1].microseconds.value(), 7.5);
  for (const Engine &later : {tuning, engine()}) {
    CompileReport found = compiled(later, shape);
    EXPECT_EQ(found.planSource, PlanSource::Tuned);
    EXPECT_EQ(found.plan, wanted);
    EXPECT_EQ(found.tunedMicroseconds, 7.5);
  }
}

// An engine with a limit of one thread begins no others.
TEST_F(TuneTest, ThreadsAreAtMostThoseOfTheEngine) {
  EngineOptions alone = noDisk();
  alone.threads = 1;
  Engine tuning = must(Engine::create(must(Device::emulated("sm_80")), alone));
  const std::thread::id caller = std::this_thread::get_id();
  TuneOptions options;
  options.candidates = 4;
  options.compiled = [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); };
  must(tuning.tune(module, "", shape, [](const Gemm &) -> Result<double> { return 1.0; }, options));
  // Nor does what it calls; without a limit there are as many as asked for.
  auto threads = [](unsigned most) {
    const dsl::ThreadLimit limit(most);
    std::mutex mutex;
    std::set<std::thread::id> seen;
    dsl::parallel(64, 4, [&](const auto &next) {
      dsl::parallel(64, 4, [&](const auto &inner) {
        std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
        while (inner() < 64) {
        }
      });
      while (next() < 64) {
      }
    });
    return seen.size();
  };
  EXPECT_EQ(threads(1), 1U);
  EXPECT_LE(threads(3), 3U);
  {
    const dsl::ThreadLimit outer(1);
    EXPECT_EQ(threads(4), 1U); // what calls it may have no more
    EXPECT_EQ(threads(0), 1U);
  }
  EXPECT_EQ(dsl::ThreadLimit::most(), 0U);
}

TEST_F(TuneTest, WrongCandidatesAreNeverChosen) {
  TuneOptions options;
  options.candidates = 3;
  const std::string wrong = second().print();
  TuneReport report = must(engine().tune(
      module, "", shape,
      [&](const Gemm &candidate) -> Result<double> {
        if (candidate.report().plan == wrong)
          return makeError(DiagId::candidate_wrong, {"1", "2", "0", "0", "1", "2"});
        return 100;
      },
      options));
  EXPECT_NE(report.best, 1U);
  EXPECT_EQ(errorText(report.candidates[1].microseconds),
            "error: 1 of 2 checked outputs lie outside their bounds, the worst is y[0,0] = 1 in "
            "place of 2 [candidate_wrong]\n");
  Result<TuneReport> none = engine().tune(
      module, "", shape,
      [](const Gemm &) -> Result<double> { return makeError(DiagId::null_pointer, {"x"}); },
      options);
  EXPECT_EQ(errorText(none), "error: x is null [null_pointer]\n");
}

TEST_F(TuneTest, TimesAreFiniteAndPositive) {
  TuneOptions options;
  options.candidates = 4;
  int measured = 0;
  const double times[] = {std::nan(""), -INFINITY, 3, 2};
  TuneReport report = must(engine().tune(
      module, "", shape, [&](const Gemm &) -> Result<double> { return times[measured++]; },
      options));
  EXPECT_EQ(report.candidates[report.best].microseconds.value(), 2);
  EXPECT_TRUE(report.kept);
  int refused = 0;
  for (const auto &candidate : report.candidates)
    refused += !candidate.microseconds;
  EXPECT_EQ(refused, 2);
  Result<TuneReport> none =
      engine().tune(module, "", shape, [](const Gemm &) -> Result<double> { return 0; }, options);
  EXPECT_EQ(errorText(none), "error: the candidate is said to take 0.000000 us, a time is finite "
                             "and more than 0 [bad_time]\n");
}

TEST_F(TuneTest, TheCallersFunctionsMayBeMissingOrThrow) {
  EXPECT_EQ(errorText(engine().tune(module, "", shape, nullptr)),
            "error: measure is null [null_pointer]\n");
  TuneOptions options;
  options.candidates = 3;
  options.compiled = [](int64_t, int64_t) { throw std::runtime_error("cancelled"); };
  auto tune = [&] {
    return engine().tune(
        module, "", shape, [](const Gemm &) -> Result<double> { return 1; }, options);
  };
  EXPECT_THROW(tune().ok(), std::runtime_error);
}

// Candidates that were not begun are not compiled.
TEST_F(TuneTest, WhatACallbackThrowsEndsTheTuning) {
  std::atomic<int> calls = 0;
  TuneOptions options;
  options.candidates = 64;
  options.compiled = [&](int64_t, int64_t) {
    ++calls;
    throw std::runtime_error("cancelled");
  };
  EXPECT_THROW(engine()
                   .tune(
                       module, "", shape, [](const Gemm &) -> Result<double> { return 1; }, options)
                   .ok(),
               std::runtime_error);
  EXPECT_LE(calls, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

TEST_F(TuneTest, ErrorsAreThoseOfCompiling) {
  MeasureGemm measure = [](const Gemm &) -> Result<double> { return 1; };
  EXPECT_EQ(errorText(Engine().tune(module, "", shape, measure)),
            errorText(Engine().compile(module, "", shape)));
  for (const auto &[name, wrong] : {std::pair{"none", shape}, std::pair{"", GemmShape{0, 1, 1}}})
    EXPECT_EQ(errorText(engine().tune(module, name, wrong, measure)),
              errorText(engine().compile(module, name, wrong)));
  EXPECT_EQ(errorText(engine().tune(parsed(weightWithoutKernels), "", shape, measure)),
            errorText(engine().compile(parsed(weightWithoutKernels), "", shape)));
}

TEST_F(TuneTest, WithoutAFolderNothingIsKept) {
  EngineOptions none;
  none.diskCache = false;
  TuneOptions few;
  few.candidates = 1;
  MeasureGemm measure = [](const Gemm &) -> Result<double> { return 1; };
  Engine nowhere = engine(none);
  TuneReport homeless = must(nowhere.tune(module, "", shape, measure, few));
  EXPECT_FALSE(homeless.kept);
  EXPECT_THAT(homeless.warnings, ElementsAre("the tuned plan is not kept: the engine has no folder "
                                             "for it"));
  EXPECT_EQ(compiled(nowhere, shape).planSource, PlanSource::Planned);
  EngineOptions readOnly = options();
  readOnly.cacheReadOnly = true;
  EXPECT_THAT(must(engine(readOnly).tune(module, "", shape, measure, few)).warnings,
              ElementsAre("the tuned plan is not kept: " + tunedFolder() + " is read-only"));
  EXPECT_EQ(makeDiagnostic(DiagId::plan_not_kept, {"why"}).rendered,
            "error: the tuned plan is not kept: why [plan_not_kept]");

  writeText(folder.path() + "/file", "");
  none.tunedDirectory = folder.path() + "/file/tuned";
  TuneReport report = must(engine(none).tune(module, "", shape, measure, few));
  EXPECT_FALSE(report.kept);
  EXPECT_THAT(report.warnings, ElementsAre(HasSubstr("is not writable, nothing is kept on disk")));
}

// Of all candidates together, though each of them finds the folder of kernels as it is.
TEST_F(TuneTest, WhatCompilingWarnsOfIsReportedOnce) {
  writeText(folder.path() + "/file", "");
  EngineOptions unwritable;
  unwritable.cacheDirectory = folder.path() + "/file/cache";
  unwritable.tunedDirectory = tunedFolder();
  TuneReport report = must(
      engine(unwritable).tune(module, "", shape, [](const Gemm &) -> Result<double> { return 1; }));
  EXPECT_TRUE(report.kept);
  EXPECT_THAT(report.warnings, ElementsAre(HasSubstr("/file/cache is not writable")));
}

} // namespace
} // namespace rho
