#include "runtime/InputTransform.h"

#include "dsl/Numbers.h"
#include "runtime/InputTransformImpl.h"
#include "runtime/Misfit.h"
#include "runtime/Scalar.h"

#include <bit>
#include <cmath>

namespace rho {
namespace {

// From so many rows on a CTA has more of a rotation, and other CTAs other rows.
constexpr int64_t manyRows = 64;

Error badSteps(const std::string &why) { return makeError(DiagId::bad_input_steps, {why}); }

std::string countOf(size_t count, const char *what, int64_t k) {
  return std::to_string(count) + " " + what + " for " + std::to_string(k) + " channels";
}

Status checkChannels(const std::vector<int32_t> &channels) {
  std::vector<bool> seen(channels.size());
  for (size_t i = 0; i < channels.size(); ++i) {
    const int32_t channel = channels[i];
    if (channel < 0 || channel >= std::ssize(seen))
      return badSteps("channel " + std::to_string(channel) + " at place " + std::to_string(i) +
                      " of " + std::to_string(seen.size()));
    if (seen[static_cast<size_t>(channel)])
      return badSteps("channel " + std::to_string(channel) + " has two places");
    seen[static_cast<size_t>(channel)] = true;
  }
  return Done{};
}

// The order of a core. Errors: bad_input_steps.
Result<int64_t> checkRotation(const InputSteps::Rotation &rotation, int64_t k) {
  constexpr int64_t mostCore = InputSteps::Rotation::mostCore;
  const auto size = std::ssize(rotation.factors), entries = std::ssize(rotation.core);
  const auto core = static_cast<int64_t>(std::sqrt(static_cast<double>(entries)));
  if (core < 1 || core > mostCore || core * core != entries)
    return badSteps("a core has " + std::to_string(entries) +
                    " entries, the square of an order from 1 to " + std::to_string(mostCore));
  const bool isWhole = size > 0 && k % size == 0;
  if (!isWhole || size % core != 0 || !std::has_single_bit(static_cast<uint64_t>(size / core)))
    return badSteps("a rotation of " + std::to_string(size) + " numbers with a core of " +
                    std::to_string(core) + ", they are it times a power of two and divide " +
                    std::to_string(k));
  for (int8_t entry : rotation.core)
    if (entry != 1 && (entry != -1 || core == 1))
      return badSteps("a core of order " + std::to_string(core) + " has the entry " +
                      std::to_string(entry) + ", it has 1" + (core == 1 ? "" : " and -1"));
  for (float factor : rotation.factors)
    if (!std::isfinite(factor))
      return badSteps("a rotation has the factor " + dsl::printNumber(factor));
  return core;
}

Result<compiler::InputTransform> checkSteps(int64_t k, const InputSteps &steps) {
  if (k < 1 || k > compiler::largestExtent)
    return badSteps("k is " + std::to_string(k) + ", it is between 1 and " +
                    std::to_string(compiler::largestExtent));
  compiler::InputTransform transform{k, !steps.divisors.empty(), !steps.channels.empty()};
  if (transform.divides && std::ssize(steps.divisors) != k)
    return badSteps(countOf(steps.divisors.size(), "divisors", k));
  for (float divisor : steps.divisors)
    if (!std::isfinite(divisor) || divisor == 0)
      return badSteps("a divisor is " + dsl::printNumber(divisor));
  if (transform.permutes && std::ssize(steps.channels) != k)
    return badSteps(countOf(steps.channels.size(), "places", k));
  if (Status good = checkChannels(steps.channels); !good)
    return good.error();
  if (!steps.rotation)
    return transform;
  Result<int64_t> core = checkRotation(*steps.rotation, k);
  if (!core)
    return core.error();
  transform.size = std::ssize(steps.rotation->factors);
  transform.core = *core;
  return transform;
}

Result<std::shared_ptr<const Kernel>> kernelOf(Engine::Impl &engine,
                                               const compiler::InputTransform &transform,
                                               const compiler::InputPass &pass,
                                               CompileReport &report) {
  const std::string &target = engine.backend->model().target;
  std::vector<std::string> content{"inputs", pass.isFirst ? "first" : "rotate"};
  for (int64_t part : {transform.k, static_cast<int64_t>(transform.divides),
                       static_cast<int64_t>(transform.permutes), transform.size, transform.core,
                       pass.begin, pass.end})
    content.push_back(std::to_string(part));
  WantedKernel wanted;
  wanted.key = engine.kernelKey(content, target);
  wanted.label = {.kind = EntryKind::Kernel,
                  .name = pass.isFirst ? "transform inputs" : "rotate inputs",
                  .problem = "k " + std::to_string(transform.k)};
  wanted.misfit = misfitOfPlain;
  wanted.compile = [&](CompileReport &) { return compileInputPass(transform, pass, target); };
  return engine.kernel(wanted, report);
}

} // namespace

Result<InputTransform> InputTransform::create(const Engine &engine, int64_t k,
                                              const InputSteps &steps) {
  if (Status valid = checkHandle(engine, "engine"); !valid)
    return valid.error();
  auto impl = std::make_shared<Impl>();
  impl->backend = engine.impl().backend;
  Status made = onHost([&]() -> Status {
    Result<compiler::InputTransform> transform = checkSteps(k, steps);
    if (!transform)
      return transform.error();
    impl->transform = *std::move(transform);
    return impl->makePasses(engine.impl());
  });
  if (!made)
    return made.error();
  if (Status uploaded = impl->upload(engine.device(), steps); !uploaded)
    return uploaded.error();
  InputTransform result;
  result.pimpl = std::move(impl);
  return result;
}

Status InputTransform::Impl::makePasses(Engine::Impl &engine) {
  for (auto [passes, mostShared] : {std::pair{&ofFewRows, compiler::fewSharedInputs},
                                    {&ofManyRows, compiler::mostSharedInputs}})
    for (const compiler::InputPass &pass : inputPasses(transform, mostShared)) {
      auto kernel = kernelOf(engine, transform, pass, reports.emplace_back());
      if (!kernel)
        return kernel.error();
      passes->push_back({pass, std::move(*kernel)});
    }
  return Done{};
}

Status InputTransform::Impl::upload(const Device &device, const InputSteps &steps) {
  auto put = [&](Buffer &to, const auto &numbers) -> Status {
    Result<Buffer> buffer = rho::upload(device, numbers);
    if (!buffer)
      return buffer.error();
    to = std::move(*buffer);
    return Done{};
  };
  Status done = put(divisors, steps.divisors);
  if (done)
    done = put(channels, steps.channels);
  if (done && steps.rotation)
    done = put(factors, steps.rotation->factors);
  if (done && transform.core > 1)
    done = put(signs, compiler::coreSigns(steps.rotation->core, transform.core));
  return done;
}

Status InputTransform::Impl::run(DevicePointer x, ScalarType type, int64_t stride, int64_t m,
                                 DevicePointer results, Stream stream) const {
  const int64_t rowBytes = stride * scalarBytes(type);
  const auto typeCode = static_cast<int32_t>(type);
  const DevicePointer tables[] = {divisors.address(), channels.address(), factors.address(),
                                  signs.address()};
  const LaunchArgument all[] = {{&x, 8},         {&rowBytes, 8},  {&typeCode, 4},  {&results, 8},
                                {&tables[0], 8}, {&tables[1], 8}, {&tables[2], 8}, {&tables[3], 8}};
  const LaunchArgument inPlace[] = {{&results, 8}};
  for (const auto &[pass, kernel] : m < manyRows ? ofFewRows : ofManyRows) {
    const LaunchShape shape{.grid = inputGrid(transform, pass, m)};
    Status launched =
        backend->launch(*kernel->loaded, shape,
                        pass.isFirst ? std::span<const LaunchArgument>(all) : inPlace, stream);
    if (!launched)
      return launched;
  }
  return Done{};
}

int64_t InputTransform::k() const { return pimpl ? pimpl->transform.k : 0; }
const std::vector<CompileReport> &InputTransform::reports() const {
  static const std::vector<CompileReport> none;
  return pimpl ? pimpl->reports : none;
}

} // namespace rho
