#include "kernels/quantize/QuantizedFile.h"
#include "kernels/ShippedFormats.h"
#include "kernels/Synthetic.h"
#include "kernels/quantize/CodeStreams.h"
#include "kernels/quantize/PackedCodes.h"
#include "tests/dsl/Formats.h"
#include "tests/kernels/TemporaryFiles.h"

#include <random>

using namespace rho;
using namespace rho::kernels;
using test::declared, test::FormatPtr;

namespace {

dsl::QuantizedMatrix quantized(const FormatPtr &format, int64_t rows, int64_t k) {
  WeightModel model;
  model.outlierFraction = 0.02;
  std::vector<float> w = syntheticWeight(rows, k, 3, model);
  Result<dsl::QuantizedMatrix> matrix =
      dsl::quantize(format, {w.data(), dsl::MatrixView::Type::F32, rows, k, k}, true);
  EXPECT_TRUE(matrix.ok()) << (matrix.ok() ? "" : matrix.error().str());
  return std::move(*matrix);
}

void expectSameCodes(const dsl::CodeArray &a, const dsl::CodeArray &b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(a.width(), b.width());
  if (a.size() > 0) // else the pointers may be null
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size() * a.width())), 0);
}

void expectSame(const dsl::QuantizedMatrix &a, const dsl::QuantizedMatrix &b) {
  EXPECT_TRUE(*a.format == *b.format);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.k, b.k);
  ASSERT_EQ(a.components.size(), b.components.size());
  for (size_t i = 0; i < a.components.size(); ++i)
    expectSameCodes(a.components[i], b.components[i]);
  expectSameCodes(a.choice, b.choice);
  ASSERT_EQ(a.parts.size(), b.parts.size());
}

// Bit j of code i is bit i * bits + j of the stream, looked at one by one.
TEST(PackedCodesTest, bitsFollowOneAnother) {
  std::mt19937 random(1);
  for (int bits : {1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 16, 32})
    for (int64_t count : {1, 7, 8, 9, 64, 101}) {
      dsl::CodeArray codes(bits, count);
      for (int64_t i = 0; i < count; ++i)
        codes.set(i, static_cast<uint32_t>(random() & ((uint64_t(1) << bits) - 1)));
      std::vector<uint8_t> packed(static_cast<size_t>(packedBytes(count, bits)), 0xff);
      packCodes(codes, bits, 0, count, packed.data());
      for (int64_t bit = 0; bit < static_cast<int64_t>(packed.size()) * 8; ++bit) {
        uint32_t expected = bit < count * bits ? codes.get(bit / bits) >> bit % bits & 1 : 0;
        ASSERT_EQ(packed[static_cast<size_t>(bit / 8)] >> bit % 8 & 1, expected)
            << bits << " bits, " << count << " codes, bit " << bit;
      }
      dsl::CodeArray back(bits, count);
      unpackCodes(packed.data(), bits, 0, count, back);
      expectSameCodes(codes, back);
    }
}

class QuantizedFileTest : public test::TemporaryFiles {
protected:
  // Writes a matrix as "w" and opens the file.
  SafetensorsFile written(const dsl::QuantizedMatrix &matrix, Metadata metadata = {}) {
    metadata[formatKey] = *dsl::printModule({matrix.format});
    metadata[std::string(tensorKey) + "w"] =
        describeQuantized(*matrix.format, matrix.rows, matrix.k, "F32");
    std::string path = folder + "q.safetensors";
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(
        path, planQuantized("w", *matrix.format, matrix.rows, matrix.k), metadata);
    EXPECT_TRUE(writer.ok());
    EXPECT_TRUE(writeQuantized(*writer, matrix).ok());
    EXPECT_TRUE(writer->complete().ok());
    EXPECT_TRUE(writer->output().commit().ok());
    EXPECT_EQ(writer->size(), static_cast<int64_t>(std::filesystem::file_size(path)));
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().str());
    return std::move(*file);
  }

  // The error of reading "w" from a file of this content.
  std::string readError(const std::string &content) {
    Result<SafetensorsFile> file = SafetensorsFile::open(put("q.safetensors", content));
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().str());
    Result<dsl::QuantizedMatrix> matrix = readQuantized(*file, "w");
    return matrix.ok() ? "read" : matrix.error().str();
  }
};

TEST_F(QuantizedFileTest, everyShippedFormatComesBackBitForBit) {
  for (const std::string &name : shippedFormatNames()) {
    FormatPtr format = shippedFormat(name);
    if (format->hasParts())
      continue;
    // k is no multiple of any group, neither are the rows.
    dsl::QuantizedMatrix matrix = quantized(format, 5, 171);
    SafetensorsFile file = written(matrix);
    Result<dsl::QuantizedMatrix> back = readQuantized(file, "w");
    ASSERT_TRUE(back.ok()) << name << back.error().str();
    expectSame(matrix, *back);
    EXPECT_EQ(quantizedNames(file), std::vector<std::string>{"w"});
  }
}

// What a residual is added to may have a `choice` of its own.
TEST_F(QuantizedFileTest, everyChoiceHasItsName) {
  for (const char *text : {"format f { partition per k[64] { low: a4 high: a8 budget 20% }\n"
                           "residual fix: a4 per k[64] budget 10% }",
                           "format f { element: s4 choice: f16 per k[32] value = element * choice\n"
                           "residual fix: a4 per n[4] k[64] budget 25% }"}) {
    dsl::QuantizedMatrix matrix = quantized(
        declared(std::string(text) +
                 "\nformat a4 { element: s4 scale: f16 per k[64] value = element * scale }\n"
                 "format a8 { element: s8 scale: f16 per k[64] value = element * scale }"),
        9, 256);
    SafetensorsFile file = written(matrix);
    EXPECT_NE(file.find("w.choice"), nullptr);
    EXPECT_NE(file.find("w.choice.fix"), nullptr);
    Result<dsl::QuantizedMatrix> back = readQuantized(file, "w");
    ASSERT_TRUE(back.ok()) << back.error().str();
    expectSame(matrix, *back);
    for (int64_t row = 0; row < 9; ++row)
      EXPECT_EQ(back->rowValues(row), matrix.rowValues(row));
  }
}

TEST_F(QuantizedFileTest, componentsAreTensorsWithoutGaps) {
  SafetensorsFile file = written(quantized(shippedFormat("nvfp4"), 6, 64));
  const TensorEntry *element = file.find("w.element"), *block = file.find("w.block"),
                    *tensor = file.find("w.tensor");
  ASSERT_TRUE(element && block && tensor);
  EXPECT_EQ(element->type, "U8");
  EXPECT_EQ(element->shape, (std::vector<int64_t>{6, 32}));
  EXPECT_EQ(block->type, "F8_E4M3");
  EXPECT_EQ(block->shape, (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(tensor->type, "F32");
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{1}));
  EXPECT_EQ(file.metadata().at("rho.tensor.w"), "nvfp4 6 x 64 F32");
  EXPECT_TRUE(file.metadata().at("rho.format").starts_with("format nvfp4 {\n"));
}

constexpr const char *parts = R"(
format low { element: s4  scale: f16 per k[32]  value = element * scale }
format mid { element: s6  scale: f16 per channel  value = element * scale }
format high { element: s8  scale: f16 per k[32]  value = element * scale }
)";

const char *const partitions[] = {
    "format p { partition per k[32] { a: low b: high budget 20% } }",
    "format p { partition per n[4] k[64] { a: low b: mid budget 30% c: bf16 budget 10% } }",
    "format p { partition per tensor k[64] { a: low b: high budget 20% } }",
    "format p { element: s3 scale: f16 per k[64] value = element * scale "
    "residual fix: low per n[2] k[64] budget 10% }",
    "format p { element: s4 scale: f16 per k[64] value = element * scale "
    "residual fix: s4 / 16 per n[2] k[64] budget 10% }",
    // parts of parts
    "format p { partition per n[4] k[64] { a: inner b: mid budget 30% } } "
    "format inner { element: s2 scale: f16 per channel value = element * scale "
    "residual fix: s4 / 16 per n[2] k[64] budget 50% }",
    "format p { partition per k[64] { a: inner b: mid budget 30% } } "
    "format inner { partition per k[32] { a: low b: high budget 50% } }",
};

TEST_F(QuantizedFileTest, ofPartsOnlyStoredBlocksAreKept) {
  for (const char *text : partitions) {
    FormatPtr format = declared(text + std::string(parts));
    dsl::QuantizedMatrix matrix = quantized(format, 9, 300);
    SafetensorsFile file = written(matrix);
    Result<dsl::QuantizedMatrix> back = readQuantized(file, "w");
    ASSERT_TRUE(back.ok()) << text << back.error().str();
    expectSame(matrix, *back);
    for (int64_t row = 0; row < matrix.rows; ++row)
      EXPECT_EQ(matrix.rowValues(row), back->rowValues(row)) << text;
    // Every code that counts is the same; what does not is 0.
    for (const CodeStream &stream : streamsOf("w", *format, matrix.rows, matrix.k)) {
      const dsl::CodeArray &before = codesOf(matrix, stream), &after = codesOf(*back, stream);
      std::vector<bool> kept(static_cast<size_t>(before.size()), !stream.isSelective());
      if (stream.isSelective())
        forEachStored(stream, matrix, [&](int64_t at) { kept[static_cast<size_t>(at)] = true; });
      for (int64_t i = 0; i < before.size(); ++i)
        ASSERT_EQ(after.get(i), kept[static_cast<size_t>(i)] ? before.get(i) : 0U)
            << text << stream.name << " at " << i;
    }
  }
}

// Of s4 and s8 with 20% of s8: about 4.8 bits and the scales, not 12.
TEST_F(QuantizedFileTest, aPartitionTakesTheRoomOfItsBlocks) {
  FormatPtr format = declared(partitions[0] + std::string(parts));
  const int64_t rows = 64, k = 512;
  SafetensorsFile file = written(quantized(format, rows, k));
  int64_t bytes = 0;
  for (const TensorEntry &tensor : file.tensors())
    bytes += tensor.bytes;
  double bits = 8.0 * static_cast<double>(bytes) / static_cast<double>(rows * k);
  EXPECT_NEAR(bits, format->bitsPerElement(), 0.01);
}

TEST_F(QuantizedFileTest, whatIsNotThereIsNamed) {
  std::string path = put("a.safetensors", test::safetensors({{"w", "U8", "2", "ab"}}));
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(readQuantized(*file, "w").error().str(),
            "error: '" + path + "' holds no quantized matrix 'w' [not_quantized]\n");
}

TEST_F(QuantizedFileTest, refusesFilesThatLie) {
  auto file = [](const std::string &description, const std::string &format,
                 const std::vector<test::TensorBytes> &tensors) {
    std::string metadata = R"("__metadata__":{"rho.tensor.w":")" + description + "\"";
    if (!format.empty())
      metadata += R"(,"rho.format":")" + format + "\"";
    return test::safetensors(tensors, metadata + "}");
  };
  auto invalid = [&](const std::string &what) {
    return "error: '" + folder + "q.safetensors' is not a valid quantized file: " + what +
           " [quantized_file_invalid]\n";
  };
  const std::string f = "format f { element: s4 scale: f16 per k[8] value = element * scale }";
  const test::TensorBytes element{"w.element", "U8", "2,4", "12345678"};
  const test::TensorBytes scale{"w.scale", "F16", "2,1", "abcd"};
  EXPECT_EQ(readError(file("f 2 x 8 F32", f, {element, scale})), "read");
  for (const char *bad : {"", "f", "f 2 x 8", "f 2x8 F32", "f 0 x 8 F32", "f -2 x 8 F32",
                          "f 2 x 99999999999 F32", "f two x 8 F32"})
    EXPECT_EQ(readError(file(bad, f, {element, scale})),
              invalid(std::string("'") + bad + "' does not describe 'w'"));
  for (const auto &[scales, what] : {std::pair{std::string("ab\x01\x7e"), "NaN"},
                                     {"ab\xff\xff", "NaN"},
                                     {"ab@\xfc", "NaN"},
                                     {std::string("ab\0\xfc", 4), "infinity"}})
    EXPECT_EQ(readError(file("f 2 x 8 F32", f, {element, {"w.scale", "F16", "2,1", scales}})),
              invalid(std::string("'w.scale' has ") + what + " as code 1"));
  EXPECT_EQ(
      readError(file("g 2 x 8 F32",
                     "format g { element: s4 scale: f32 per k[8] value = element * scale }",
                     {element, {"w.scale", "F32", "2,1", std::string("\0\0\x80\xff----", 8)}})),
      invalid("'w.scale' has infinity as code 0"));
  EXPECT_EQ(readError(file("g 2 x 8 F32",
                           "format g { element: s4 scale: e8m0 per k[8] value = element * scale }",
                           {element, {"w.scale", "F8_E8M0", "2,1", "1\xff"}})),
            invalid("'w.scale' has NaN as code 1"));
  EXPECT_EQ(readError(file("f 2 x 8 F32", "", {element, scale})),
            invalid("its metadata has no 'rho.format'"));
  EXPECT_EQ(readError(file("g 2 x 8 F32", f, {element, scale})),
            invalid("'g', the format of 'w', is not in 'rho.format'"));
  EXPECT_NE(
      readError(file("f 2 x 8 F32", "format f {", {element, scale})).find("[unexpected_token]"),
      std::string::npos);
  EXPECT_NE(readError(file("f 2 x 8 F32", "import \\\"x.rho\\\"", {element, scale}))
                .find("[import_not_found]"),
            std::string::npos);
  EXPECT_EQ(readError(file("f 2 x 8 F32", f, {element})), invalid("'w.scale' is missing"));
  EXPECT_EQ(readError(file("f 2 x 8 F32", f, {element, {"w.scale", "F16", "1,2", "abcd"}})),
            invalid("'w.scale' is F16 of [1, 2], 4 bytes, it needs F16 of [2, 1], 4 bytes"));
  EXPECT_EQ(readError(file("f 3 x 8 F32", f, {element, scale})),
            invalid("'w.element' is U8 of [2, 4], 8 bytes, it needs U8 of [3, 4], 12 bytes"));
  EXPECT_EQ(readError(file("f 2000000000 x 2000000000 F32", f, {element, scale})),
            invalid("the codes of 'w' are fewer than its numbers"));
}

TEST_F(QuantizedFileTest, refusesPartsThatLie) {
  const std::string text =
      "format a { element: s4 scale: f16 per k[8] value = element * scale } "
      "format b { element: s8 scale: f16 per k[8] value = element * scale } "
      "format c { element: s2 scale: f16 per k[8] value = element * scale } "
      "format p { partition per k[8] { o: a p: b budget 50% q: c budget 50% } }";
  auto error = [&](const std::string &choice, const std::string &x, const std::string &xs,
                   const std::string &y, const std::string &ys) {
    auto u8 = [](const std::string &name, const std::string &data) {
      return test::TensorBytes{name, "U8", std::to_string(data.size()), data};
    };
    return readError(test::safetensors(
        {u8("w.choice", choice), u8("w.o.element", x), u8("w.o.scale", xs), u8("w.p.element", y),
         u8("w.p.scale", ys), u8("w.q.element", ""), u8("w.q.scale", "")},
        R"("__metadata__":{"rho.tensor.w":"p 1 x 16 F32","rho.format":")" + text + "\"}"));
  };
  auto invalid = [&](const std::string &what) {
    return "error: '" + folder + "q.safetensors' is not a valid quantized file: " + what +
           " [quantized_file_invalid]\n";
  };
  // The second block in part y, the first in x: choices 0 and 1 of 2 bits.
  EXPECT_EQ(error("\x04", "1234", "ab", "12345678", "cd"), "read");
  EXPECT_EQ(error("\x0c", "1234", "ab", "12345678", "cd"),
            invalid("'w.choice' chooses part 3 of 3"));
  EXPECT_EQ(error("\x04", "123", "ab", "12345678", "cd"),
            invalid("'w.o.element' has 3 bytes, the 8 codes of its blocks need 4"));
  EXPECT_EQ(error("\x04", "1234", "ab", "12345678", "cdef"),
            invalid("'w.p.scale' has 4 bytes, the 1 codes of its blocks need 2"));
}

// Whatever is changed: the file is refused, or what is read has the size that it claims.
TEST_F(QuantizedFileTest, survivesEveryCutAndEveryChangedByteOfAHeader) {
  FormatPtr format = declared(partitions[1] + std::string(parts));
  written(quantized(format, 3, 100));
  const std::string good = contentOf(folder + "q.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  auto check = [&](const std::string &content) {
    Result<SafetensorsFile> file = SafetensorsFile::open(put("q.safetensors", content));
    if (!file)
      return;
    for (const std::string &name : quantizedNames(*file))
      if (Result<dsl::QuantizedMatrix> matrix = readQuantized(*file, name))
        for (int64_t row = 0; row < matrix->rows; ++row)
          ASSERT_EQ(static_cast<int64_t>(matrix->rowValues(row).size()), matrix->k);
  };
  for (size_t length = 0; length < good.size(); length += 7)
    check(good.substr(0, length));
  for (size_t at = 0; at < 8 + header; at += 2)
    for (char byte : {'9', '"', '\xff'}) {
      std::string changed = good;
      changed[at] = byte;
      check(changed);
    }
}

} // namespace
