#include "runtime/cuda/CudaBackend.h"

#include "runtime/Handles.h"
#include "runtime/Quantizer.h"
#include "runtime/cuda/Code.h"
#include "runtime/cuda/CudaQuantizer.h"
#include "tests/runtime/FakeDriver.h"
#include "tests/runtime/FakeNvrtc.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rho::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<Backend> open() {
  resetFakeNvrtc();
  return *openDevice(resetFake(), 0, fakeNvrtc);
}

compiler::KernelImage image() {
  compiler::KernelImage image;
  image.entry = "gemm";
  image.ptx = ".version 7.0\n.target sm_80\n";
  image.threads = 128;
  image.sharedBytes = 100000;
  return image;
}

TEST(CudaBackend, DescribesTheDevice) {
  std::shared_ptr<Backend> backend = open();
  const compiler::DeviceModel &model = backend->model();
  EXPECT_EQ(model.name, "Fake GPU");
  EXPECT_EQ(model.target, "sm_90a");
  EXPECT_EQ(model.smCount, 132);
  EXPECT_EQ(model.sharedPerCta, 227 * 1024);
  EXPECT_EQ(model.sharedPerSm, 228 * 1024);
  EXPECT_EQ(model.l2Bytes, 60 << 20);
  EXPECT_DOUBLE_EQ(model.clockGHz, 1.98);
  EXPECT_NEAR(model.bandwidthGBs, 4916.7, 0.1);
  EXPECT_FALSE(backend->emulated());
  EXPECT_EQ(backend->codeVersion(), "cuda 12040 ptx 84 sm 90");
}

TEST(CudaBackend, ClocksThatTheDriverHidesAreThePublishedOnes) {
  const Driver &driver = resetFake();
  fake().attributes[CLOCK_RATE_KHZ] = 0;
  fake().attributes[MEMORY_CLOCK_RATE_KHZ] = 0;
  std::shared_ptr<Backend> backend = *openDevice(driver, 0);
  EXPECT_GT(backend->model().clockGHz, 1);
  EXPECT_GT(backend->model().bandwidthGBs, 1000);
}

TEST(CudaBackend, RatesOfUndeclaredArchitecturesAreThoseOfTheKernelsThatTheyRun) {
  for (auto [major, minor, shipped] : {std::tuple{8, 7, "a40"}, {10, 3, "b200"}, {11, 0, "b200"}}) {
    const Driver &driver = resetFake();
    fake().attributes[COMPUTE_CAPABILITY_MAJOR] = major;
    fake().attributes[COMPUTE_CAPABILITY_MINOR] = minor;
    std::shared_ptr<Backend> backend = *openDevice(driver, 0);
    const compiler::DeviceModel &model = backend->model();
    const compiler::DeviceModel like = compiler::modelOf(*compiler::shippedDevice(shipped));
    EXPECT_EQ(model.target, like.target);
    EXPECT_EQ(model.registersPerSm, like.registersPerSm) << major << minor;
    EXPECT_EQ(model.threadsPerSm, like.threadsPerSm) << major << minor;
    EXPECT_EQ(model.rates.throughput, like.rates.throughput) << major << minor;
    EXPECT_EQ(model.smCount, 132);
  }
}

TEST(CudaBackend, RefusesOldDevices) {
  const Driver &driver = resetFake();
  fake().attributes[COMPUTE_CAPABILITY_MAJOR] = 7;
  fake().attributes[COMPUTE_CAPABILITY_MINOR] = 5;
  Result<std::shared_ptr<Backend>> backend = openDevice(driver, 0);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().str(), "error: Fake GPU has compute capability 7.5, kernels need at "
                                   "least 8.0 [cuda_device_too_old]\n");
  EXPECT_EQ(fake().retained, 0);
}

TEST(CudaBackend, OrdinalsPastTheLastAreNoDevice) {
  for (int ordinal : {-1, 1}) {
    Result<std::shared_ptr<Backend>> backend = openDevice(resetFake(), ordinal);
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().str(), "error: no CUDA device: ordinal " + std::to_string(ordinal) +
                                         ", the driver has 1 device [cuda_not_available]\n");
  }
}

TEST(CudaBackend, MemoryIsZeroedAndReturned) {
  std::shared_ptr<Backend> backend = open();
  DevicePointer address = *backend->allocate(100);
  char bytes[100];
  ASSERT_TRUE(backend->read(address, bytes, 100));
  EXPECT_EQ(std::string(bytes, 100), std::string(100, '\0'));
  ASSERT_TRUE(backend->writeInOrder(address, "in order", 8, nullptr));
  ASSERT_TRUE(backend->read(address, bytes, 8));
  EXPECT_EQ(std::string(bytes, 8), "in order");
  EXPECT_EQ(fake().allocations, 1);
  backend->release(address);
  EXPECT_EQ(fake().allocations, 0);
}

// In another context calls would go to another GPU's memory.
TEST(CudaBackend, CallsNothingOutsideItsContext) {
  std::shared_ptr<Backend> backend = open();
  const DevicePointer address = *backend->allocate(100);
  char bytes[100] = {};
  fake().pushResult = CUDA_ERROR_OUT_OF_MEMORY;
  const Status statuses[] = {backend->write(address, bytes, 100),
                             backend->read(address, bytes, 100), backend->synchronize(nullptr),
                             backend->writeInOrder(address, bytes, 100, nullptr)};
  for (const Status &status : statuses) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().diagnostics[0].id, DiagId::cuda_call_failed);
    EXPECT_THAT(status.error().str(), testing::HasSubstr("cuCtxPushCurrent failed"));
  }
  EXPECT_FALSE(backend->allocate(100));
  EXPECT_FALSE(backend->load(image(), "cubin"));
  backend->release(address);
  EXPECT_EQ(fake().allocations, 1);
  fake().pushResult = CUDA_SUCCESS;
  backend->release(address);
  EXPECT_EQ(fake().allocations, 0);
}

TEST(CudaBackend, ReleasesItsContextLast) {
  std::shared_ptr<Backend> backend = open();
  auto kernel = backend->load(image(), "cubin");
  ASSERT_TRUE(kernel);
  backend.reset();
  EXPECT_EQ(fake().retained, 1); // the kernel keeps it
  EXPECT_EQ(fake().modules, 1);
  *kernel = nullptr;
  EXPECT_EQ(fake().modules, 0);
  EXPECT_EQ(fake().retained, 0);
}

TEST(CudaBackend, TooMuchMemoryNamesTheAmount) {
  Result<DevicePointer> address = open()->allocate(int64_t(1) << 30);
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().str(), "error: 1073741824 bytes do not fit into the memory of Fake GPU "
                                   "[out_of_memory]\n");
}

TEST(CudaBackend, AssemblesLoadsAndLaunches) {
  std::shared_ptr<Backend> backend = open();
  Result<std::string> code = backend->assemble(image());
  ASSERT_TRUE(code);
  EXPECT_EQ(*code, "cubin of " + image().ptx);
  auto kernel = backend->load(image(), *code);
  ASSERT_TRUE(kernel);
  EXPECT_EQ((*kernel)->registers, 77);
  EXPECT_EQ((*kernel)->localBytes, 16);
  EXPECT_EQ(fake().functionAttributes[MAX_DYNAMIC_SHARED_SIZE_BYTES], 100000);
  fake().expectedArguments = 2;
  const uint64_t values[] = {0x1234, 5};
  const LaunchArgument arguments[] = {{&values[0], 8}, {&values[1], 4}};
  int place = 0;
  Stream stream = &place;
  ASSERT_TRUE(backend->launch(**kernel, {{3, 2, 1}}, arguments, stream));
  ASSERT_EQ(fake().launches.size(), 1U);
  const FakeLaunch &launch = fake().launches[0];
  EXPECT_EQ(launch.gridX, 3U);
  EXPECT_EQ(launch.gridY, 2U);
  EXPECT_EQ(launch.gridZ, 1U);
  EXPECT_EQ(launch.threads, 128U);
  EXPECT_EQ(launch.sharedBytes, 100000U);
  EXPECT_EQ(static_cast<Stream>(launch.stream), stream);
  EXPECT_THAT(launch.arguments, ElementsAre(0x1234, 5));
  EXPECT_FALSE(launch.extended); // any driver will do
}

TEST(CudaBackend, ClustersAndDependenceAreLaunchAttributes) {
  std::shared_ptr<Backend> backend = open();
  auto kernel = backend->load(image(), "cubin");
  ASSERT_TRUE(kernel);
  int place = 0;
  Stream stream = &place;
  ASSERT_TRUE(backend->launch(**kernel, {{4, 3, 2}, {2, 1, 2}, true}, {}, stream));
  ASSERT_TRUE(backend->launch(**kernel, {{4, 3, 2}, {2, 1, 1}, false}, {}, stream));
  ASSERT_TRUE(backend->launch(**kernel, {{4, 3, 2}, {}, true}, {}, stream));
  ASSERT_EQ(fake().launches.size(), 3U);
  const FakeLaunch &both = fake().launches[0];
  EXPECT_TRUE(both.extended);
  EXPECT_EQ(both.gridX, 4U);
  EXPECT_EQ(both.gridY, 3U);
  EXPECT_EQ(both.gridZ, 2U);
  EXPECT_EQ(both.threads, 128U);
  EXPECT_EQ(both.sharedBytes, 100000U);
  EXPECT_EQ(static_cast<Stream>(both.stream), stream);
  ASSERT_EQ(both.attributes.size(), 2U);
  EXPECT_EQ(both.attributes[0].id, CLUSTER_DIMENSION);
  EXPECT_EQ(both.attributes[0].value.clusterDim.x, 2U);
  EXPECT_EQ(both.attributes[0].value.clusterDim.y, 1U);
  EXPECT_EQ(both.attributes[0].value.clusterDim.z, 2U);
  EXPECT_EQ(both.attributes[1].id, PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(both.attributes[1].value.programmaticStreamSerializationAllowed, 1);
  ASSERT_EQ(fake().launches[1].attributes.size(), 1U);
  EXPECT_EQ(fake().launches[1].attributes[0].id, CLUSTER_DIMENSION);
  ASSERT_EQ(fake().launches[2].attributes.size(), 1U);
  EXPECT_EQ(fake().launches[2].attributes[0].id, PROGRAMMATIC_STREAM_SERIALIZATION);
}

// The others would begin when the first have done all work.
TEST(CudaBackend, PersistentClustersAreThoseThatFindRoom) {
  std::shared_ptr<Backend> backend = open();
  compiler::KernelImage persistent = image();
  persistent.clusterN = 4;
  persistent.residentCtas = 128;
  auto gridOf = [&](const compiler::KernelImage &image, uint32_t ctas) {
    auto kernel = backend->load(image, "cubin");
    EXPECT_TRUE(kernel && backend->launch(**kernel, {{ctas}, image.cluster()}, {}, nullptr));
    return fake().launches.back().gridX;
  };
  fake().activeClusters = 30;
  EXPECT_EQ(gridOf(persistent, 128), 120U);
  EXPECT_EQ(gridOf(persistent, 64), 64U);
  ASSERT_EQ(fake().asked.size(), 2U);
  EXPECT_EQ(fake().asked[0].gridX, 4U);
  EXPECT_EQ(fake().asked[0].threads, 128U);
  EXPECT_EQ(fake().asked[0].sharedBytes, 100000U);
  ASSERT_EQ(fake().asked[0].attributes.size(), 1U);
  EXPECT_EQ(fake().asked[0].attributes[0].value.clusterDim.x, 4U);
  fake().activeClusters = 0;
  EXPECT_EQ(gridOf(persistent, 128), 128U) << "a driver that does not say";
  fake().activeClusters = 30;
  persistent.residentCtas = 0;
  EXPECT_EQ(gridOf(persistent, 128), 128U) << "waits for room";
  EXPECT_EQ(fake().asked.size(), 3U);
}

TEST(CudaBackend, OnlyLargeClustersAskForTheirSize) {
  std::shared_ptr<Backend> backend = open();
  compiler::KernelImage clustered = image();
  clustered.clusterN = 2;
  clustered.clusterK = clustered.splitK = 4;
  ASSERT_TRUE(backend->load(clustered, "cubin"));
  EXPECT_EQ(fake().functionAttributes.count(NON_PORTABLE_CLUSTER_SIZE_ALLOWED), 0U);
  clustered.clusterN = 4;
  ASSERT_TRUE(backend->load(clustered, "cubin"));
  EXPECT_EQ(fake().functionAttributes[NON_PORTABLE_CLUSTER_SIZE_ALLOWED], 1);
}

constexpr TensorMapShape someRows = {0x1000, 96, 5, 128, 64, 8, true};

TEST(CudaBackend, TensorMapsAreMatricesOfBytes) {
  std::shared_ptr<Backend> backend = open();
  ASSERT_TRUE(backend->makeTensorMap(someRows));
  TensorMapShape plain = someRows;
  plain.swizzle = false;
  Result<TensorMap> second = backend->makeTensorMap(plain);
  ASSERT_TRUE(second);
  EXPECT_THAT(second->bytes, testing::Each(1)); // what the driver wrote, all of it
  ASSERT_EQ(fake().tensorMaps.size(), 2U);
  const FakeTensorMap &map = fake().tensorMaps[0];
  EXPECT_EQ(map.dataType, TENSOR_MAP_UINT8);
  EXPECT_EQ(map.address, 0x1000U);
  EXPECT_THAT(map.dims, ElementsAre(96, 5));
  EXPECT_THAT(map.strides, ElementsAre(128));
  EXPECT_THAT(map.box, ElementsAre(64, 8));
  EXPECT_THAT(map.elementStrides, ElementsAre(1, 1));
  EXPECT_EQ(map.interleave, TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(map.swizzle, TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(map.l2Promotion, TENSOR_MAP_L2_PROMOTION_256B);
  EXPECT_EQ(map.outsideFill, TENSOR_MAP_FILL_ZEROS);
  EXPECT_EQ(fake().tensorMaps[1].swizzle, TENSOR_MAP_SWIZZLE_NONE);
  fake().tensorMapResult = 1;
  Result<TensorMap> refused = backend->makeTensorMap(plain);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().str(), "error: cuTensorMapEncodeTiled failed with CUDA_ERROR_FAKE (as "
                                   "the test wants it) [cuda_call_failed]\n");
}

TEST(CudaBackend, OldDriversLackOnlyWhatClustersAndTensorMapsNeed) {
  std::shared_ptr<Backend> backend = *openDevice(resetOldFake(), 0);
  auto kernel = backend->load(image(), "cubin");
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(backend->launch(**kernel, {{1, 1, 1}}, {}, nullptr));
  for (const LaunchShape &shape :
       {LaunchShape{{2, 1, 1}, {2, 1, 1}}, LaunchShape{{1, 1, 1}, {}, true}}) {
    Status launched = backend->launch(**kernel, shape, {}, nullptr);
    ASSERT_FALSE(launched);
    EXPECT_EQ(launched.error().str(), "error: the driver (CUDA 11.4) has no cuLaunchKernelEx, "
                                      "kernels for sm_90a need it [cuda_call_missing]\n");
  }
  EXPECT_EQ(fake().launches.size(), 1U);
  Result<TensorMap> map = backend->makeTensorMap(someRows);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().str(), "error: the driver (CUDA 11.4) has no cuTensorMapEncodeTiled, "
                               "kernels for sm_90a need it [cuda_call_missing]\n");
}

TEST(CudaBackend, NewerPtxThanTheDriverReadsIsRefusedEarly) {
  compiler::KernelImage newer = image();
  newer.ptx = ".version 8.7\n";
  Result<std::string> code = open()->assemble(newer);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().str(),
            "error: kernel of PTX ISA 8.7, the driver (CUDA 12.4) accepts up to "
            "8.4 [ptx_version_too_new]\n");
}

TEST(CudaBackend, PtxasErrorsAreQuoted) {
  std::shared_ptr<Backend> backend = open();
  fake().linkError = "ptxas application ptx input, line 3; error: nonsense\nptxas fatal\n";
  Result<std::string> code = backend->assemble(image());
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().str(),
            "error: kernel 'gemm' is refused by the driver: cuLinkAddData failed with "
            "CUDA_ERROR_INVALID_IMAGE (as the test wants it): ptxas application ptx input, line 3; "
            "error: nonsense; ptxas fatal [kernel_refused]\n");
}

TEST(CudaBackend, RefusedCodeIsAnErrorAndLeavesNothing) {
  std::shared_ptr<Backend> backend = open();
  fake().loadError = "device kernel image is invalid";
  auto kernel = backend->load(image(), "damaged");
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().str(),
            "error: kernel 'gemm' is refused by the driver: cuModuleLoadData failed with "
            "CUDA_ERROR_INVALID_IMAGE (as the test wants it): device kernel image is invalid "
            "[kernel_refused]\n");
  fake().loadError.clear();
  compiler::KernelImage missing = image();
  missing.entry = "missing";
  kernel = backend->load(missing, "cubin");
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().diagnostics[0].message,
            "kernel 'missing' is refused by the driver: cuModuleGetFunction failed with "
            "CUDA_ERROR_NOT_FOUND (as the test wants it)");
  EXPECT_EQ(fake().modules, 0);
  EXPECT_FALSE(backend->load(image(), ""));
}

// A kept kernel that the driver refuses is discarded, not one for which the GPU has no room or that
// comes after a fault: others may load it.
TEST(CudaBackend, FaultsOfTheGpuLeaveKeptKernels) {
  constexpr CUresult outOfMemory = 2, illegalAddress = 700, captured = 900, clientGone = 810,
                     unknown = 999;
  TemporaryFolder folder;
  Device device = *Device::emulated("sm_90a");
  device.impl().backend = open();
  Module module = *Module::parse("gemm g { weight: f16 activation: f16 output: f32 }");
  auto compile = [&] { // by an engine that has none in memory
    EngineOptions options;
    options.cacheDirectory = folder.path();
    Result<Engine> engine = Engine::create(device, options);
    return engine->compile(module, "", {.m = 16, .n = 64, .k = 64});
  };
  ASSERT_TRUE(compile());
  for (CUresult fault : {outOfMemory, illegalAddress, captured, clientGone, unknown}) {
    fake().loadResult = fault;
    Result<Gemm> gemm = compile();
    ASSERT_FALSE(gemm);
    EXPECT_EQ(gemm.error().diagnostics[0].id, DiagId::cuda_call_failed);
  }
  fake().loadResult = CUDA_SUCCESS;
  Result<Gemm> kept = compile();
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->report().source, CompileReport::Source::Disk);
  fake().loadError = "device kernel image is invalid";
  EXPECT_FALSE(compile());
  fake().loadError.clear();
  Result<Gemm> anew = compile();
  ASSERT_TRUE(anew);
  EXPECT_EQ(anew->report().source, CompileReport::Source::Compiled);
}

// NVRTC refuses the program, there is none, or the driver refuses its cubin: the gemm works.
TEST(CudaBackend, QuantizesOnTheHostWhereNoKernelCanBeBuilt) {
  std::shared_ptr<Backend> backend = open();
  Result<Module> module = Module::parse("gemm g { weight: f16 activation: f16 output: f32 }");
  ASSERT_TRUE(module) << module.error().str();
  const dsl::Format &format = module->impl().module.gemms[0].activation;
  cache::DiskCache disk({});
  cache::Warnings warnings;
  const compiler::ActivationLayout layout = {.k = 64, .elementBits = 16};
  auto make = [&](const dsl::Format &of, OpenNvrtc nvrtc) {
    return makeCudaQuantizer(contextOf(*backend), 90, of, of, layout, nvrtc, disk, warnings);
  };
  FakeNvrtc &nvrtc = resetFakeNvrtc();
  nvrtc.compiles = false;
  auto unknown = make(format, fakeNvrtc);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().str(),
            "error: NVRTC refuses the activation quantizer of 'f16': NVRTC_ERROR_COMPILATION: "
            "a.cu(3): error: nonsense [nvrtc_failed]\n");
  EXPECT_EQ(nvrtc.options,
            (std::vector<std::string>{"--gpu-architecture=sm_90", "--std=c++17", "--fmad=false"}));
  auto absent = make(format, [] {
    return Result<const Nvrtc *>(makeError(DiagId::nvrtc_not_available, {"absent"}));
  });
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().str(), "error: no NVRTC: absent [nvrtc_not_available]\n");
  nvrtc.compiles = true;
  EXPECT_TRUE(make(format, fakeNvrtc));
  fake().loadError = "no quantizer today";
  auto refused = make(format, fakeNvrtc);
  ASSERT_FALSE(refused);
  dsl::Format demanding = format;
  demanding.requirements.emplace_back();
  auto required = make(demanding, fakeNvrtc);
  ASSERT_FALSE(required);
  EXPECT_EQ(required.error().str(),
            "error: no kernel quantizes to format 'f16': it has a requirement that is "
            "no bound of its element [no_quantizer_kernel]\n");
  auto quantizer = backend->makeQuantizer(std::make_shared<const dsl::Format>(format), format,
                                          layout, disk, warnings);
  ASSERT_TRUE(quantizer);
  EXPECT_EQ((*quantizer)->warning, "activations are quantized on the host, slowly: " +
                                       refused.error().diagnostics[0].message);
  EXPECT_THAT(warnings, testing::IsEmpty());
  EXPECT_EQ(makeDiagnostic(DiagId::host_quantization, {"why"}).rendered,
            "error: activations are quantized on the host, slowly: why [host_quantization]");
}

// Whichever gemm makes the quantizer, and wherever its kernel comes from.
TEST(CudaBackend, EveryReportSaysThatTheHostQuantizes) {
  Device device = *Device::emulated("sm_90a");
  device.impl().backend = open();
  Module module = *Module::parse(
      "format t8 { element: s8 scale: f32 per token value = element * scale "
      "require (element & 1) <= 0 } "
      "format w4 { element: s4 value = element } format w8 { element: s8 value = element } "
      "gemm a { weight: w4 activation: t8 output: f32 } "
      "gemm b { weight: w8 activation: t8 output: f32 }");
  EngineOptions options;
  options.diskCache = false;
  Result<Engine> engine = Engine::create(device, options);
  for (const char *gemm : {"a", "b", "a"}) {
    Result<Gemm> compiled = engine->compile(module, gemm, {.m = 16, .n = 64, .k = 64});
    ASSERT_TRUE(compiled) << compiled.error().str();
    EXPECT_THAT(compiled->report().warnings,
                ElementsAre(HasSubstr("activations are quantized on the host, slowly")))
        << gemm;
  }
}

} // namespace
} // namespace rho::cuda
