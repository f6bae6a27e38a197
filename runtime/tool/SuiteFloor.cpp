#include "runtime/tool/SuiteFloor.h"

#include "compiler/Targets.h"
#include "runtime/Handles.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/ProbeKernels.h"

namespace rho::tool {

namespace {

constexpr const char *entry = "rho_read";
constexpr int vectorBytes = 16;
constexpr int inFlight = 8; // loads of a thread
constexpr std::array<int, 3> ctasPerSm = {2, 3, 4};
constexpr int64_t warps = ReadKernel::threads / 32;

// "%v4, %v5, %v6, %v7": the registers of the i-th vector.
std::string registers(int i) {
  std::string list;
  for (int j = 0; j < 4; ++j)
    list += (j == 0 ? "%v" : ", %v") + std::to_string(4 * i + j);
  return list;
}

// All loads of a round are issued before the first is used; without a limit on registers ptxas
// keeps to 32 of them and issues three or four loads at a time. Vectors past the end are zero.
std::string readPtx(const std::string &target, bool dependent) {
  std::string loads, sums;
  for (int i = 0; i < inFlight; ++i) {
    std::string index = "%i" + std::to_string(i), inside = "%p" + std::to_string(i);
    loads += "  mad.lo.u32 " + index + ", %stride, " + std::to_string(i) + ", %at;\n";
    loads += "  setp.lt.u32 " + inside + ", " + index + ", %count;\n";
    loads +=
        "  mad.wide.u32 %address, " + index + ", " + std::to_string(vectorBytes) + ", %data;\n";
    for (int j = 0; j < 4; ++j) {
      std::string value = "%v" + std::to_string(4 * i + j);
      loads += "  mov.b32 " + value + ", 0;\n";
      sums += "  xor.b32 %sum, %sum, " + value + ";\n";
    }
    loads += "  @" + inside + " ld.global.nc.L1::no_allocate.v4.u32 {" + registers(i) +
             "}, [%address];\n";
  }
  std::string thread = std::to_string(ReadKernel::threads);
  return ptxHeader(target) + ".visible .entry " + entry +
         "(.param .u64 data, .param .u64 words, .param .u32 count)\n.reqntid " + thread + R"(
.maxnreg 64
{
  .reg .pred %p<9>;
  .reg .b32 %v<32>, %i<8>, %at, %stride, %count, %sum, %thread, %cta, %lane, %warp;
  .reg .b64 %data, %words, %address;
)" + (dependent ? "  griddepcontrol.launch_dependents;\n" : "") +
         R"(  ld.param.u64 %data, [data];
  ld.param.u64 %words, [words];
  ld.param.u32 %count, [count];
  mov.u32 %thread, %tid.x;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %stride, %nctaid.x;
  mov.b32 %sum, 0;
  mad.lo.u32 %at, %cta, )" +
         thread + ", %thread;\n  shr.u32 %warp, %at, 5;\n  mul.lo.u32 %stride, %stride, " + thread +
         ";\nROUND:\n" + loads + sums + "  mad.lo.u32 %at, %stride, " + std::to_string(inFlight) +
         R"(, %at;
  setp.lt.u32 %p8, %at, %count;
  @%p8 bra ROUND;
  redux.sync.xor.b32 %sum, %sum, -1;
  and.b32 %lane, %thread, 31;
  setp.eq.u32 %p8, %lane, 0;
  mad.wide.u32 %address, %warp, 4, %words;
)" + (dependent ? "  griddepcontrol.wait;\n" : "") +
         R"(  @%p8 st.global.u32 [%address], %sum;
  ret;
}
)";
}

} // namespace

Result<ReadKernel> ReadKernel::create(const Device &device, bool dependent) {
  ReadKernel read;
  read.backend = device.impl().backend;
  read.dependent = dependent;
  compiler::KernelImage image;
  image.entry = entry;
  image.target = device.target();
  image.ptx = readPtx(image.target, dependent);
  image.threads = threads;
  image.wholeProgram = true; // heed the limit on registers
  Result<std::string> code = read.backend->assemble(image);
  if (!code)
    return code.error();
  Result<std::shared_ptr<const LoadedKernel>> loaded = read.backend->load(image, *code);
  if (!loaded)
    return loaded.error();
  read.kernel = std::move(*loaded);
  return read;
}

Status ReadKernel::launch(DevicePointer data, int64_t bytes, int64_t ctas, DevicePointer words,
                          Stream stream) const {
  auto count = static_cast<uint32_t>(bytes / vectorBytes);
  const std::array<LaunchArgument, 3> arguments = {{{&data, 8}, {&words, 8}, {&count, 4}}};
  const LaunchShape shape{{static_cast<uint32_t>(ctas)}, {}, dependent, data, bytes};
  return backend->launch(*kernel, shape, arguments, stream);
}

Result<SuiteFloor> SuiteFloor::create(const Device &device) {
  int64_t ctas = int64_t(ctasPerSm.back()) * device.impl().backend->model().smCount;
  Result<Buffer> words = device.allocate(ctas * warps * 4);
  if (!words)
    return words.error();
  return SuiteFloor(device, std::move(*words));
}

std::vector<bool> SuiteFloor::launches(const Device &device) {
  return compiler::targetOf(device.target()).hasDependentLaunch ? std::vector{false, true}
                                                                : std::vector{false};
}

Result<SuiteRow> SuiteFloor::measure(bool dependent, const WeightShape &shape,
                                     const WeightCopies &weight) {
  const Result<ReadKernel> &kernel = kernels[dependent];
  if (!kernel)
    return kernel.error();
  const compiler::DeviceModel &model = device->impl().backend->model();
  int64_t bytes = weight[0].bytes(); // packed weights have a multiple of 256
  Result<FastestTime> fastest = timeFastest(
      *device, static_cast<int>(ctasPerSm.size()), static_cast<int>(weight.size()),
      [&](int choice, int copy, Stream stream) {
        return kernel->launch(weight[static_cast<size_t>(copy)].address(), bytes,
                              int64_t(ctasPerSm[static_cast<size_t>(choice)]) * model.smCount,
                              words.address(), stream);
      });
  if (!fastest)
    return fastest.error();
  SuiteRow row;
  row.launch = launchName(dependent);
  row.name = "floor_" + row.launch;
  row.peer = SuiteRow::Peer::Floor;
  row.device = device->name();
  row.shape = {0, shape.n, shape.k};
  row.time = fastest->time;
  row.weightBytes = bytes;
  if (model.bandwidthGBs > 0)
    row.roofline = static_cast<double>(bytes) / model.bandwidthGBs / 1e3;
  row.algorithm = fastest->place();
  return row;
}

} // namespace rho::tool
