#include "runtime/cuda/CublasLt.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace rho::cuda {
namespace {

TEST(CublasLt, AbsenceSaysWhatIsMissing) {
  Result<CublasLt> library = CublasLt::openFrom({"libcublasLt-absent.so.13"});
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().str(),
            "error: no cuBLASLt: libcublasLt-absent.so.13: cannot open shared object "
            "file: No such file or directory [cublaslt_not_available]\n");
}

TEST(CublasLt, ALibraryWithoutTheSymbolsIsNone) {
  Result<CublasLt> library = CublasLt::openFrom({"libm.so.6"});
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().str(),
            "error: no cuBLASLt: libm.so.6 has no cublasLtGetVersion, it must be of CUDA 12 or "
            "later [cublaslt_not_available]\n");
}

// A library that knows algorithms for row counts that `rowMultiple` divides, numbered 100, 101, ...
struct FakeLt {
  int alive = 0; // handles, operations, layouts, preferences
  int rowMultiple = 1, known = 3, matmulStatus = 0;
  uint64_t workspaceBytes = 0;
  std::map<int, std::string> operationAttributes; // bytes
  struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t leadingDimension;
  };
  struct Launch {
    Layout a, b, d;
    uint64_t algorithm;
    std::string alpha, beta; // 4 bytes
    const void *weight, *x, *y;
  };
  std::vector<Launch> launches;
};
FakeLt fakeLt;

FakeLt::Layout &layoutOf(CublasLt::Layout layout) {
  return *reinterpret_cast<FakeLt::Layout *>(layout);
}

int destroyed() {
  --fakeLt.alive;
  return 0;
}

CublasLt resetFakeLt() {
  fakeLt = FakeLt();
  CublasLt table;
  table.statusString = [](int) { return "CUBLAS_STATUS_FAKE"; };
  table.create = [](CublasLt::Handle *handle) {
    *handle = reinterpret_cast<CublasLt::Handle>(&fakeLt);
    ++fakeLt.alive;
    return 0;
  };
  table.destroy = [](CublasLt::Handle) { return destroyed(); };
  table.operationCreate = [](CublasLt::Operation *operation, int compute, int scale) {
    *operation = reinterpret_cast<CublasLt::Operation>(&fakeLt);
    fakeLt.operationAttributes = {{0, std::to_string(compute)}, {1, std::to_string(scale)}};
    ++fakeLt.alive;
    return 0;
  };
  table.operationSet = [](CublasLt::Operation, int attribute, const void *value, size_t size) {
    fakeLt.operationAttributes[attribute] = std::string(static_cast<const char *>(value), size);
    return 0;
  };
  table.operationDestroy = [](CublasLt::Operation) { return destroyed(); };
  table.layoutCreate = [](CublasLt::Layout *layout, int type, uint64_t rows, uint64_t columns,
                          int64_t leadingDimension) {
    *layout = reinterpret_cast<CublasLt::Layout>(
        new FakeLt::Layout{type, rows, columns, leadingDimension});
    ++fakeLt.alive;
    return 0;
  };
  table.layoutDestroy = [](CublasLt::Layout layout) {
    delete &layoutOf(layout);
    return destroyed();
  };
  table.preferenceCreate = [](CublasLt::Preference *preference) {
    *preference = reinterpret_cast<CublasLt::Preference>(&fakeLt);
    ++fakeLt.alive;
    return 0;
  };
  table.preferenceSet = [](CublasLt::Preference, int, const void *value, size_t size) {
    std::memcpy(&fakeLt.workspaceBytes, value, size);
    return 0;
  };
  table.preferenceDestroy = [](CublasLt::Preference) { return destroyed(); };
  table.heuristic = [](CublasLt::Handle, CublasLt::Operation, CublasLt::Layout, CublasLt::Layout b,
                       CublasLt::Layout, CublasLt::Layout, CublasLt::Preference, int most,
                       LtHeuristicResult *results, int *count) {
    if (layoutOf(b).columns % static_cast<uint64_t>(fakeLt.rowMultiple) != 0)
      return 15;
    *count = std::min(most, fakeLt.known);
    for (int i = 0; i < *count; ++i)
      results[i] = {{{static_cast<uint64_t>(100 + i)}}, 0, i == 1 ? 15 : 0, 0, {}};
    return 0;
  };
  table.matmul = [](CublasLt::Handle, CublasLt::Operation, const void *alpha, const void *a,
                    CublasLt::Layout aLayout, const void *b, CublasLt::Layout bLayout,
                    const void *beta, const void *, CublasLt::Layout, void *d,
                    CublasLt::Layout dLayout, const LtAlgorithm *algorithm, void *, size_t,
                    Stream) {
    auto number = [](const void *at) { return std::string(static_cast<const char *>(at), 4); };
    fakeLt.launches.push_back({layoutOf(aLayout), layoutOf(bLayout), layoutOf(dLayout),
                               algorithm->data[0], number(alpha), number(beta), a, b, d});
    return fakeLt.matmulStatus;
  };
  return table;
}

template <class T> std::string bytesOf(T value) {
  return {reinterpret_cast<const char *>(&value), sizeof value};
}

constexpr LtResources resources{0x1000, 32 << 20, 0x2000};

Result<LtMatmul> create(const CublasLt &library, const LtProblem &problem, int most = 8) {
  return LtMatmul::create(library, library.makeHandle().value(), problem, resources, most);
}

TEST(LtMatmul, RowMajorOperandsAreTransposedColumnMajorOnes) {
  CublasLt library = resetFakeLt();
  {
    Result<LtMatmul> matmul = create(library, {LtType::Bf16, 3, 64, 128});
    ASSERT_TRUE(matmul) << matmul.error().str();
    EXPECT_EQ(matmul->rows(), 3);
    EXPECT_EQ(matmul->algorithms(), 2) << "the second of three is not for this problem";
    EXPECT_EQ(fakeLt.workspaceBytes, 32U << 20);
    ASSERT_TRUE(matmul->launch(1, 0x10, 0x20, 0x30, nullptr));
  }
  ASSERT_EQ(fakeLt.launches.size(), 1U);
  const FakeLt::Launch &launch = fakeLt.launches[0];
  auto shape = [](const FakeLt::Layout &layout) {
    return std::to_string(layout.type) + ": " + std::to_string(layout.rows) + " x " +
           std::to_string(layout.columns) + ", " + std::to_string(layout.leadingDimension);
  };
  EXPECT_EQ(shape(launch.a), "14: 128 x 64, 128");
  EXPECT_EQ(shape(launch.b), "14: 128 x 3, 128");
  EXPECT_EQ(shape(launch.d), "14: 64 x 3, 64");
  EXPECT_EQ(launch.algorithm, 102U);
  EXPECT_EQ(launch.alpha, bytesOf(1.0F));
  EXPECT_EQ(launch.beta, bytesOf(0.0F));
  EXPECT_EQ(launch.weight, reinterpret_cast<void *>(0x10));
  EXPECT_EQ(launch.x, reinterpret_cast<void *>(0x20));
  EXPECT_EQ(launch.y, reinterpret_cast<void *>(0x30));
  EXPECT_EQ(fakeLt.operationAttributes,
            (std::map<int, std::string>{{0, "68"}, {1, "0"}, {3, bytesOf(int32_t(1))}}));
  EXPECT_EQ(fakeLt.alive, 0);
}

TEST(LtMatmul, Fp8HasScalesAndFastAccumulation) {
  CublasLt library = resetFakeLt();
  ASSERT_TRUE(create(library, {LtType::E4m3, 16, 64, 128}));
  EXPECT_EQ(fakeLt.operationAttributes[17], bytesOf(DevicePointer(0x2000)));
  EXPECT_EQ(fakeLt.operationAttributes[18], bytesOf(DevicePointer(0x2000)));
  EXPECT_EQ(fakeLt.operationAttributes[25], std::string(1, '\1'));
}

TEST(LtMatmul, IntegersAreScaledByIntegers) {
  CublasLt library = resetFakeLt();
  Result<LtMatmul> matmul = create(library, {LtType::S8, 16, 64, 128});
  ASSERT_TRUE(matmul && matmul->launch(0, 0x10, 0x20, 0x30, nullptr));
  EXPECT_EQ(fakeLt.launches[0].alpha, bytesOf(int32_t(1)));
  EXPECT_EQ(fakeLt.launches[0].d.type, 10);
  EXPECT_EQ(fakeLt.operationAttributes[0], "72");
}

TEST(LtMatmul, RowsArePaddedWhereNothingElseIsSupported) {
  CublasLt library = resetFakeLt();
  fakeLt.rowMultiple = 4;
  EXPECT_EQ(create(library, {LtType::S8, 17, 64, 128})->rows(), 32);
  EXPECT_EQ(create(library, {LtType::S8, 20, 64, 128})->rows(), 20);
  fakeLt.rowMultiple = 64;
  Result<LtMatmul> none = create(library, {LtType::S8, 17, 64, 128});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().str(), "error: cuBLASLt has no int8 algorithm for m = 17, n = 64, k = 128 "
                                "[cublaslt_no_algorithm]\n");
  EXPECT_EQ(fakeLt.alive, 0);
}

TEST(LtMatmul, AFailureNamesTheCall) {
  CublasLt library = resetFakeLt();
  fakeLt.matmulStatus = 13;
  Status launched = create(library, {LtType::Bf16, 1, 64, 128})->launch(0, 1, 2, 3, nullptr);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().str(),
            "error: cublasLtMatmul failed with CUBLAS_STATUS_FAKE [cublaslt_failed]\n");
}

} // namespace
} // namespace rho::cuda
