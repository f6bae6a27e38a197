// What the planner chose, kept for the next process: found again, followed, and planned anew where
// it does not fit.
#include "compiler/Candidates.h"
#include "compiler/OnTarget.h"
#include "runtime/CacheEntries.h"
#include "runtime/Handles.h"
#include "runtime/Kernel.h"
#include "runtime/TunedPlans.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace fs = std::filesystem;

namespace rho {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class KeptPlansTest : public testing::Test {
protected:
  EngineOptions options() const {
    EngineOptions options;
    options.cacheDirectory = folder.path();
    return options;
  }
  Engine engine() const { return must(Engine::create(device, options())); }
  CompileReport compiled(const GemmShape &shape) const {
    return must(engine().compile(module, "", shape)).report();
  }
  const compiler::DeviceModel &model() const { return device.impl().backend->model(); }
  std::string keyOf(const GemmShape &shape, const std::string &tuned = "") const {
    return KeptPlans::key(module.impl().digests[0], shape, model(), tuned);
  }
  cache::DiskCache disk() const {
    cache::DiskCacheOptions options;
    options.directory = folder.path();
    return cache::DiskCache(options);
  }
  // The plans that are kept, by key.
  std::set<std::string> kept() const {
    std::set<std::string> keys;
    for (const cache::StoredEntry &entry : disk().entries())
      if (labelOf(*disk().inspect(entry.key).entry).kind == EntryKind::Plan)
        keys.insert(entry.key);
    return keys;
  }
  void keep(const std::string &key, const cache::Entry &entry) const {
    cache::Warnings warnings;
    EXPECT_TRUE(disk().store(key, entry, warnings));
    EXPECT_THAT(warnings, IsEmpty());
  }
  ChosenPlan secondChoice() const {
    const dsl::Gemm &gemm = module.impl().module.gemms[0];
    return {.plan = must(compiler::planCandidates(gemm, {shape.m, shape.n, shape.k}, model(), 2,
                                                  nullptr))
                        .at(1),
            .asDeclared = true};
  }

  TemporaryFolder folder;
  const Device device = must(Device::emulated("sm_80"));
  const Module module = parsed(w4a16);
  const GemmShape shape{3, 128, 256};
};

TEST_F(KeptPlansTest, TheNextEngineFollowsWhatIsKept) {
  const CompileReport first = compiled(shape);
  EXPECT_THAT(kept(), ElementsAre(keyOf(shape)));
  const CompileReport next = compiled(shape);
  EXPECT_EQ(next.source, CompileReport::Source::Disk);
  EXPECT_EQ(next.plan, first.plan);
  EXPECT_EQ(next.predictedMicroseconds, first.predictedMicroseconds); // to the last digit
  EXPECT_EQ(next.planSource, CompileReport::PlanSource::Planned);

  const ChosenPlan other = secondChoice();
  keep(keyOf(shape), chosenPlanEntry(other));
  const CompileReport followed = compiled(shape);
  EXPECT_EQ(followed.plan, other.plan.print());
  EXPECT_NE(followed.key, first.key);
  EXPECT_THAT(followed.warnings, IsEmpty());
}

TEST_F(KeptPlansTest, KeysAreOfDeclarationProblemDeviceAndTunedPlan) {
  std::set<std::string> keys = {keyOf(shape)};
  auto isNew = [&](const std::string &key) { return keys.insert(key).second; };
  for (const GemmShape &other : {GemmShape{4, 128, 256}, {3, 64, 256}, {3, 128, 128}})
    EXPECT_TRUE(isNew(keyOf(other)));
  EXPECT_TRUE(isNew(keyOf(shape, secondChoice().plan.print())));
  auto of = [&](const Module &module, const compiler::DeviceModel &model) {
    return KeptPlans::key(module.impl().digests[0], shape, model, "");
  };
  EXPECT_EQ(of(parsed(w4a16, "moved.rho"), model()), keyOf(shape));
  EXPECT_TRUE(isNew(of(parsed(w4a8), model())));
  using Model = compiler::DeviceModel;
  const std::function<void(Model &)> edits[] = {
      [](Model &m) { m.name += " SXM"; },
      [](Model &m) { m.target = "sm_86"; },
      [](Model &m) { m.architecture = "sm_86"; },
      [](Model &m) { m.smCount += 1; },
      [](Model &m) { m.sharedPerCta += 1; },
      [](Model &m) { m.sharedPerSm += 1; },
      [](Model &m) { m.l2Bytes += 1; },
      [](Model &m) { m.l2BandwidthGBs += 1; },
      [](Model &m) { m.registersPerSm += 1; },
      [](Model &m) { m.threadsPerSm += 1; },
      [](Model &m) { m.clockGHz += 0.125; },
      [](Model &m) { m.bandwidthGBs += 1; },
      [](Model &m) { m.rates.tensor["f16"] += 1; },
      [](Model &m) { m.rates.mma["f16"] += 1; },
      [](Model &m) { m.rates.throughput[3] += 1; },
      [](Model &m) { m.warm = true; },
  };
  for (const auto &edit : edits) {
    Model other = model();
    edit(other);
    EXPECT_TRUE(isNew(of(module, other))) << compiler::print(other);
  }
}

TEST_F(KeptPlansTest, WhatDoesNotFitIsPlannedAnewWithOneWarning) {
  const CompileReport first = compiled(shape);
  cache::Warnings none;
  const cache::Entry good = disk().load(keyOf(shape), none).value();
  auto edited = [&](const char *file, const std::string &from, const std::string &to) {
    cache::Entry entry = good;
    std::string &text = entry.at(file);
    text.replace(text.find(from), from.size(), to);
    return entry;
  };
  auto withOperands = [&](const std::string &lines) {
    cache::Entry entry = good;
    entry["operands"] = lines;
    return entry;
  };
  cache::Entry without = good;
  without.erase("operands");
  const std::pair<cache::Entry, std::string> cases[] = {
      {{{"note", "hello"}}, "it holds no plan with its time"},
      {edited("plan", "m 3\n", "m 4\n"), "its plan is for another problem or target"},
      {edited("plan", "n=128", "n=64"), "its plan is for another problem or target"},
      {edited("plan", "target sm_80", "target sm_86"), "its plan is for another problem or target"},
      {edited("plan", "mma f16", "mma bf16"), "malformed plan at 'mma bf16'"},
      {edited("plan", "place weight.element in operand", "place weight.element in air"),
       "malformed plan at 'place weight.element in air"},
      {edited("plan", "pipeline ", "pipeline x"), "malformed plan at 'pipeline x"},
      {edited("microseconds", "", "-"), "it holds no plan with its time"},
      {without, "it does not say what operands its kernel makes"},
      {withOperands("type=f16 log2=0 outside=- of=0 small=0 numbers=-"),
       "its operands are cut off"},
      {withOperands("type=f16 log2=0 outside=- of=0 small=0 numbers=- x=1\n"),
       "nothing may follow its last field"},
      {withOperands("type=f17 log2=0 outside=- of=0 small=0 numbers=-\n"),
       "there are no such operands"},
      {withOperands("type=f16 log2=0 outside=9 of=0 small=0 numbers=-\n"),
       "it takes numbers of components that the weight has not"},
      {withOperands("type=f16 log2=0 outside=- of=1 small=0 numbers=-\n"),
       "it is for a weight with a residual"},
  };
  for (const auto &[entry, reason] : cases) {
    keep(keyOf(shape), entry);
    const CompileReport report = compiled(shape);
    EXPECT_EQ(report.plan, first.plan);
    EXPECT_THAT(report.warnings,
                ElementsAre(testing::AllOf(HasSubstr(folder.path() + "/" + keyOf(shape)),
                                           HasSubstr(reason))));
    EXPECT_EQ(disk().load(keyOf(shape), none), good) << reason;
  }
}

TEST_F(KeptPlansTest, TunedPlansHaveTheirOwn) {
  const CompileReport planned = compiled(shape);
  TunedPlans tuned(cacheFolders(options()).value().tuned);
  const compiler::Plan second = secondChoice().plan;
  cache::Warnings none;
  EXPECT_TRUE(
      tuned.store(TunedPlans::key(module.impl().digests[0], shape, model()), {second, 12.5}, none));
  for (int engines = 0; engines < 2; ++engines) {
    const CompileReport report = compiled(shape);
    EXPECT_EQ(report.plan, second.print());
    EXPECT_EQ(report.planSource, CompileReport::PlanSource::Tuned);
    EXPECT_EQ(report.tunedMicroseconds, 12.5);
    EXPECT_THAT(report.warnings, IsEmpty());
  }
  EXPECT_EQ(kept(), (std::set<std::string>{keyOf(shape), keyOf(shape, second.print())}));
  fs::remove_all(folder.path() + "/tuned");
  EXPECT_EQ(compiled(shape).plan, planned.plan);
}

// Also of a weight that several kernels read, and where activations are stored as other numbers.
TEST_F(KeptPlansTest, ComeBackForSharedWeightsAndOtherActivations) {
  const Module numbers =
      parsed("format w { element: s4 scale: f16 per k[64] value = element * scale } "
             "format a { element: u8 scale: f32 per token zero: u8 per token value = "
             "(element - zero) * scale } "
             "gemm g { weight: w activation: a output: f32 }");
  const std::vector<int64_t> batches = {1, 64};
  for (const Module *each : {&module, &numbers}) {
    const Engine first = engine(), next = engine();
    const std::vector<Gemm> made = must(first.compileShared(*each, "", 128, 256, batches));
    const Gemm more = must(first.compileSharing(made[0], 9));
    const std::vector<Gemm> found = must(next.compileShared(*each, "", 128, 256, batches));
    const Gemm foundMore = must(next.compileSharing(found[0], 9));
    for (const auto &[a, b] :
         {std::pair{made[0], found[0]}, {made[1], found[1]}, {more, foundMore}}) {
      EXPECT_NE(b.report().source, CompileReport::Source::Compiled);
      EXPECT_EQ(b.report().plan, a.report().plan);
      EXPECT_EQ(b.weightLayout(), a.weightLayout());
      EXPECT_EQ(b.impl().prepared->operands, a.impl().prepared->operands);
      EXPECT_EQ(b.impl().prepared->target->reason, a.impl().prepared->target->reason);
    }
  }
  EXPECT_EQ(kept().size(), 6U);
}

} // namespace
} // namespace rho
