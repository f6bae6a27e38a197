// Files, imports, limits, and texts that nobody would write.
#include "dsl/Module.h"

#include "dsl/StandardLibrary.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

namespace rho::dsl {
namespace {

FileReader from(const std::map<std::string, std::string> &files) {
  return [files](const std::string &path) -> std::optional<std::string> {
    auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string errorsOf(const std::string &text, const FileReader &reader = nullptr) {
  Result<Module> module = parseModule(text, "a.rho", reader);
  return module.ok() ? "no error" : module.error().str();
}

constexpr const char *one = "format one { element: s4  value = element }\n";

TEST(Module, ImportsAreRelativeToTheImportingFile) {
  auto reader =
      from({{"lib/b.rho", "import \"deep/c.rho\"\nimport \"../d.rho\""},
            {"lib/deep/c.rho", one},
            {"d.rho", "import \"lib/deep/c.rho\" format two { element: s8 value = element }"
                      "gemm inner { weight: two activation: f16 output: f16 }"}});
  Result<Module> module =
      parseModule("gemm g { weight: one activation: two output: f16 }\nimport \"lib/./b.rho\"",
                  "a.rho", reader);
  ASSERT_TRUE(module.ok()) << module.error().str();
  ASSERT_EQ(module->formats.size(), 2u); // c.rho is read once
  EXPECT_EQ(module->formats[0].name, "one");
  EXPECT_EQ(module->formats[1].name, "two");
  ASSERT_EQ(module->gemms.size(), 1u); // gemms of imports are their own file's affair
  EXPECT_EQ(module->findGemm("g")->weight, *module->findFormat("one"));
  EXPECT_EQ(module->findGemm("inner"), nullptr);
  EXPECT_EQ(module->findFormat("f16"), nullptr);
}

TEST(Module, OfSeveralFormatsNamesEachOnce) {
  auto formatsOf = [](const std::string &text) {
    std::vector<std::shared_ptr<const Format>> formats;
    Result<Module> module = parseModule(text, "a.rho", nullptr);
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
    for (const Format &format : module->formats)
      formats.push_back(std::make_shared<const Format>(format));
    return formats;
  };
  const std::string text = "format one {\n  element: s4\n  scale:   f16 per k[64]\n"
                           "  value = element * scale\n}\n";
  const std::string parts = "\nformat two {\n  partition per k[64] {\n    low:  one\n"
                            "    high: f16 budget 5.0%\n  }\n}\n";
  auto formats = formatsOf(text + parts);
  Result<std::string> whole = printModule({formats[1], formats[0], formatsOf(text)[0]});
  ASSERT_TRUE(whole.ok()) << whole.error().str();
  EXPECT_EQ(formatsOf(*whole).size(), 2U) << *whole;
  EXPECT_EQ(*whole, printWithParts(*formats[1]));
  EXPECT_EQ(*printModule({std::make_shared<const Format>(plainFormat(ElementType::get("f16")))}),
            "");
  auto other =
      formatsOf("format one { element: s4 scale: bf16 per k[64] value = element * scale }");
  EXPECT_EQ(
      printModule({formats[1], other[0]}).error().str(),
      "error: two formats named 'one', one with 'scale: f16 per k[64]', one with 'scale: bf16 "
      "per k[64]', cannot be told apart in one file [formats_share_name]\n");
}

// Without a reader of files, and whoever imports what from it by which name.
TEST(Module, TheStandardLibraryIsInTheBinary) {
  Result<Module> module = parseModule("import \"rho:comet_token\" import \"rho:int8_token\"\n"
                                      "gemm g { weight: f16 activation: int8_token output: f16 }",
                                      "deep/er/a.rho", nullptr);
  ASSERT_TRUE(module.ok()) << module.error().str();
  for (const char *name : {"comet_token", "int4_token", "int8_token"})
    EXPECT_NE(module->findFormat(name), nullptr) << name;
  EXPECT_EQ(module->formats.size(), 3U);
  EXPECT_EQ(errorsOf("import \"rho:nvpf4\""),
            "a.rho:1:1: error: the standard library has no 'nvpf4', did you mean 'nvfp4' "
            "[import_not_shipped]\nimport \"rho:nvpf4\"\n^~~~~~~~~~~~~~~~~~\n");
  EXPECT_NE(
      errorsOf("import \"rho:nvfp4\" import \"rho:nvfp4\"").find("a.rho:1:20: error: 'rho:nvfp4' "),
      std::string::npos);
  EXPECT_EQ(errorsOf("gemm g { weight: f16 activation: int8_token output: f16 }"),
            "a.rho:1:34: error: unknown format 'int8_token', import \"rho:int8_token\" declares it "
            "[unknown_name]\n"
            "gemm g { weight: f16 activation: int8_token output: f16 }\n"
            "                                 ^~~~~~~~~~\n");
  for (const LibraryFile &file : libraryFiles())
    EXPECT_EQ(errorsOf("import \"rho:" + std::string(file.name) + "\""), "no error") << file.name;
}

// A file whose name begins like those of the library is none of it.
TEST(Module, FilesMayBeNamedLikeTheLibrary) {
  auto reader = from({{"rho:mine/a.rho", "import \"b.rho\""}, {"rho:mine/b.rho", one}});
  EXPECT_EQ(errorsOf("import \"./rho:mine/a.rho\"", reader), "no error");
}

TEST(Module, LiteralsMayBeNegativeAndZeroPointsHaveRules) {
  EXPECT_EQ(
      errorsOf("format n { element: f16 scale: f32 per token value = element * scale * -0.125 "
               "encode { scale = absmax(x) / 100 } }"),
      "no error");
  for (const char *order :
       {"zero: u4 per k[64] scale: f16 per k[64]", "scale: f16 per k[64] zero: u4 per k[64]"})
    EXPECT_EQ(errorsOf("format z { element: u4 " + std::string(order) +
                       " value = (element - zero) * scale encode { zero = 8 } }"),
              "no error");
}

TEST(Module, TooManyFilesAreRefused) {
  std::map<std::string, std::string> files;
  std::string all;
  for (int i = 0; i < 256; ++i) {
    files[std::to_string(i)] = "";
    all += "import \"" + std::to_string(i) + "\"\n";
  }
  EXPECT_EQ(errorsOf(all, from(files)),
            "a.rho:256:1: error: import of '255' makes more than 256 files, the limit of a module "
            "[too_many_imports]\n"
            "import \"255\"\n"
            "^~~~~~~~~~~~\n");
  for (int i = 0; i < 256; ++i)
    files[std::to_string(i)] = "import \"" + std::to_string(i + 1) + "\"";
  EXPECT_EQ(errorsOf("import \"0\"", from(files)),
            "30:1:1: error: import of '31' makes a chain of more than 32 files, the limit of a "
            "module [import_too_deep]\n"
            "import \"31\"\n"
            "^~~~~~~~~~~\n");
}

TEST(Module, LargeFilesAreRefused) {
  std::string large(size_t(1) << 20, ' ');
  EXPECT_EQ(errorsOf(large), "no error");
  large += ' ';
  EXPECT_EQ(errorsOf(large), "error: 'a.rho' has more than 1048576 bytes, the limit of a source "
                             "file [file_too_large]\n");
  EXPECT_EQ(errorsOf("import \"b.rho\"", from({{"b.rho", large}})),
            "a.rho:1:1: error: 'b.rho' has more than 1048576 bytes, the limit of a source file "
            "[file_too_large]\n"
            "import \"b.rho\"\n"
            "^~~~~~~~~~~~~~\n");
  EXPECT_FALSE(printAst(large, "a.rho").ok());
}

TEST(Module, NonsenseGivesAHundredErrorsAtMost) {
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += "$\n";
  Result<Module> module = parseModule(text, "a.rho", nullptr);
  ASSERT_FALSE(module.ok());
  ASSERT_EQ(module.error().diagnostics.size(), 101u);
  EXPECT_EQ(module.error().diagnostics[99].rendered,
            "a.rho:100:1: error: unexpected character '$' [unexpected_character]\n$\n^");
  EXPECT_EQ(module.error().diagnostics[100].rendered,
            "error: more than 100 errors, the others are not shown [too_many_errors]");
}

TEST(Module, MissingFilesAreNamed) {
  EXPECT_EQ(
      loadModule("no/such.rho").error().str(),
      "error: cannot read file 'no/such.rho': No such file or directory [module_not_found]\n");
  EXPECT_EQ(loadModule("").error().str(),
            "error: cannot read file '': No such file or directory [module_not_found]\n");
  EXPECT_EQ(loadModule("/").error().str(),
            "error: cannot read file '/': Is a directory [module_not_found]\n");
  EXPECT_EQ(loadModule("/proc/self/mem").error().str(),
            "error: cannot read file '/proc/self/mem': Input/output error [module_not_found]\n");
}

// What is read of a file that cannot be read to its end is no module, and the name is the whole
// name.
TEST(LoadModule, ReadsFilesWholeOrNot) {
  const std::string shippedFile = (test::sourceDir() / "kernels/gemms/nvfp4_f16.rho").string();
  for (const std::string &path : {std::string("/proc/self/mem"), shippedFile + '\0' + "junk"}) {
    Result<Module> none = loadModule(path);
    ASSERT_FALSE(none.ok()) << visible(path);
    EXPECT_EQ(none.error().diagnostics[0].id, DiagId::module_not_found);
  }
}

std::string repeated(const std::string &text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i)
    out += text;
  return out;
}

TEST(Module, DeepExpressionsAreRefused) {
  auto value = [](const std::string &expr) {
    return "format f {\n element: s4\n value =\n" + expr + "\n}";
  };
  EXPECT_EQ(errorsOf(value("element" + repeated("+1", 200))), "no error");
  EXPECT_EQ(errorsOf(value(repeated("(", 200) + "element" + repeated(")", 200))), "no error");
  std::string rest = ": error: expression nests deeper than 200 operations, the limit "
                     "[expression_too_deep]\n";
  EXPECT_EQ(errorsOf(value(repeated("-", 300) + "element")), "a.rho:4:202" + rest + "..." +
                                                                 repeated("-", 159) + "e...\n   " +
                                                                 repeated(" ", 60) + "^\n");
  EXPECT_EQ(errorsOf(value("element" + repeated("+1", 201))).substr(0, 11), "a.rho:4:408");
  for (const std::string &text : {repeated("(", 100000), repeated("-", 100000),
                                  repeated("s8(", 100000), "element" + repeated("+1", 100000),
                                  "1" + repeated("*(1", 100000), repeated("f32(1+", 9999)})
    EXPECT_NE(errorsOf(value(text)).find("[expression_too_deep]"), std::string::npos);
}

TEST(Module, MovingADeclarationDoesNotChangeIt) {
  Result<Module> a = parseModule(one, "a.rho", nullptr);
  Result<Module> b = parseModule(std::string("\n\n// moved\n  ") + one, "b.rho", nullptr);
  EXPECT_EQ(a->formats[0], b->formats[0]);
  EXPECT_EQ(print(*a), print(*b));
  Result<Module> c = parseModule("format one { element: s4  value = -element }", "a.rho", nullptr);
  ASSERT_TRUE(c.ok());
  EXPECT_FALSE(a->formats[0] == c->formats[0]);
}

// A kernel is found by the text of its declaration: no entry of a schedule may be left out of it.
TEST(Module, EveryScheduleEntryIsInTheText) {
  const std::string before =
      "format w { element: s4 scale: f16 per k[64] value = element * scale } "
      "gemm g { weight: w activation: f16 output: f16 schedule { ";
  std::set<std::string> texts;
  for (const char *entry :
       {"", "pipeline: 3", "tile: 16 x 64 x 64", "warps: 1 x 4", "warps: 1 x 4 x 2", "split_k: 2",
        "split_k: stream", "ctas: 7", "scales: operand", "sums: biased", "roles: imfp",
        "balance: cost", "packing: panels", "tables: shared", "cluster: 2 x 1", "launch: serial",
        "launch: dependent"}) {
    Result<Module> module = parseModule(before + entry + " } }", "a.rho", nullptr);
    ASSERT_TRUE(module.ok()) << entry << module.error().str();
    const std::string text = print(*module);
    EXPECT_TRUE(texts.insert(text).second) << entry;
    Result<Module> again = parseModule(text, "b.rho", nullptr);
    ASSERT_TRUE(again.ok()) << text << again.error().str();
    EXPECT_EQ(again->gemms[0].schedule, module->gemms[0].schedule) << entry;
  }
}

TEST(Module, EqualInstancesAreOneFormat) {
  std::string text = "format int4(G: int = 128, T: type = f16) {\n"
                     "  element: s4  scale: T per k[G]  value = element * scale\n}\n";
  auto gemm = [&](const std::string &weight, const std::string &activation) {
    return text + "gemm g { weight: " + weight + " activation: " + activation + " output: f16 }";
  };
  Result<Module> a = parseModule(gemm("int4(64)", "int4(G = 64)"), "a.rho", nullptr);
  Result<Module> b =
      parseModule(gemm("int4(T = f16, G = 0x40)", "int4(64, f16)"), "b.rho", nullptr);
  ASSERT_TRUE(a.ok()) << a.error().str();
  ASSERT_TRUE(b.ok()) << b.error().str();
  EXPECT_EQ(print(*a), print(*b));
  EXPECT_EQ(a->gemms[0].weight, a->gemms[0].activation);
  ASSERT_EQ(a->formats.size(), 2u); // the defaults and one instance
  // An instance is what its text says with the parameters replaced by hand.
  Result<Module> byHand =
      parseModule("format int4__64_f16 {\n"
                  "  element: s4  scale: f16 per k[64]  value = element * scale }",
                  "c.rho", nullptr);
  EXPECT_EQ(a->formats[1], byHand->formats.at(0));
  Result<Module> defaults = parseModule(gemm("int4", "int4(128)"), "a.rho", nullptr);
  EXPECT_EQ(defaults->formats.size(), 1u);
  EXPECT_EQ(defaults->gemms[0].weight, defaults->gemms[0].activation);
}

// However the values are written.
TEST(Module, EqualValuesMakeEqualInstances) {
  Result<Module> module = parseModule(
      "format f(T: type = e5m2) { element: s4 scale: T per k[64] value = element * scale }\n"
      "format h(T: type) { element: T scale: f16 per k[64] value = element * scale }\n"
      "format j(N: int) { element: s4 scale: f16 per k[64] value = element * scale * (N + 1)\n"
      "encode { scale = absmax(x) / 7 } }\n"
      "format c(N: int) { element: codebook [-N, 0, N, 3] value = element }\n"
      "format all { partition per k[64] { a: f b: f(e5m2i) c: h(codebook [0, 1, 2, 3])\n"
      "d: h(codebook [0x0,1,2,3.0]) e: h(e8m0) g: h(ue8m0) i: j(-0) k: j(0) } }\n"
      "format signs { partition per k[64] { a: c(-1) b: c(1) } }",
      "a.rho", nullptr);
  ASSERT_TRUE(module.ok()) << module.error().str();
  const std::vector<Part> &parts = module->findFormat("all")->partition->parts;
  for (size_t i = 0; i < 8; i += 2)
    EXPECT_EQ(parts[i].format->name, parts[i + 1].format->name);
  EXPECT_EQ(parts[1].format->name, "f");
  const std::vector<Part> &signs = module->findFormat("signs")->partition->parts;
  EXPECT_EQ(signs[0].format->element().type.decode(0), 1); // -(-1)
  EXPECT_EQ(signs[1].format->element().type.decode(0), -1);
}

// A file is one however it is reached, and what never ends is none.
TEST(Module, LinksAndPipesAsImports) {
  std::string folder = testing::TempDir() + "rho-module-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/base.rho") << one;
  ASSERT_EQ(symlink("base.rho", (folder + "/link.rho").c_str()), 0);
  ASSERT_EQ(mkfifo((folder + "/pipe.rho").c_str(), 0600), 0);
  std::ofstream(folder + "/both.rho") << "import \"base.rho\" import \"other.rho\"\n";
  std::ofstream(folder + "/other.rho") << "import \"link.rho\"\n";
  std::ofstream(folder + "/twice.rho") << "import \"base.rho\" import \"link.rho\"\n";
  std::ofstream(folder + "/piped.rho") << "import \"pipe.rho\"\n";
  Result<Module> both = loadModule(folder + "/both.rho");
  ASSERT_TRUE(both.ok()) << both.error().str();
  EXPECT_EQ(both->formats.size(), 1u);
  EXPECT_NE(loadModule(folder + "/twice.rho").error().str().find("[duplicate_import]"),
            std::string::npos);
  EXPECT_NE(loadModule(folder + "/piped.rho").error().str().find("[import_not_found]"),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Module, InstancesAreBounded) {
  std::string text = "format large(G: int) {\n  element: u4\n  value = element\n" +
                     repeated("  require element + G <= 1000\n", 2000) + "}\n";
  for (int i = 0; i < 30; ++i)
    text += "format g" + std::to_string(i) + " = large(" + std::to_string(i) + ")\n";
  std::string first =
      "a.rho:2023:14: error: instances of more than 262144 tokens together, the limit "
      "of a module [too_many_instances]\nformat g18 = large(18)\n"
      "             ^~~~~~~~~\na.rho:2024:14: ";
  EXPECT_EQ(errorsOf(text).substr(0, first.size()), first);
}

TEST(Module, DeclarationsNestInAnyOrder) {
  auto chain = [](int length, bool fromTheEnd) {
    std::string text = fromTheEnd ? "" : one;
    for (int i = 0; i < length; ++i) {
      int at = fromTheEnd ? length - 1 - i : i;
      text += "format a" + std::to_string(at) + " = " +
              (at ? "a" + std::to_string(at - 1) : "one") + "\n";
    }
    return fromTheEnd ? text + one : text;
  };
  EXPECT_EQ(errorsOf(chain(31, false)), "no error");
  EXPECT_EQ(errorsOf(chain(31, true)), "no error");
  EXPECT_EQ(errorsOf(chain(32, false)),
            "a.rho:33:8: error: format 'a31' is made of others that nest deeper than 32, the limit "
            "[declarations_too_deep]\nformat a31 = a30\n       ^~~\n");
  EXPECT_NE(errorsOf(chain(32, true)).find("[declarations_too_deep]"), std::string::npos);
  EXPECT_NE(errorsOf(chain(40000, true)).find("[declarations_too_deep]"), std::string::npos);
}

// A default value is looked up once, however many declarations lead to it, and no deeper than
// others.
TEST(Module, DefaultValuesOfDefaultValuesAreBounded) {
  std::string ways = "format a0(F: format = f16) = F\n", deep = "format a0(F: format = f16) = F\n";
  for (int i = 1; i <= 15; ++i)
    ways += "format a" + std::to_string(i) + "(F: format = a" + std::to_string(i - 1) + "(a" +
            std::to_string(i - 1) + ")) = F\n";
  for (int i = 0; i < 2000; ++i)
    ways += "format b" + std::to_string(i) + "(F: format = a15(a15)) = F\n";
  for (int i = 20000; i > 0; --i)
    deep += "format a" + std::to_string(i) + "(F: format = a" + std::to_string(i - 1) + ") = F\n";
  for (const std::string &text : {ways, deep}) {
    Result<Module> module = parseModule(text, "t.rho", [](const auto &) { return std::nullopt; });
    ASSERT_FALSE(module.ok());
    EXPECT_NE(module.error().str().find("[declarations_too_deep]"), std::string::npos);
  }
}

// Megabytes of nonsense and numbers beyond all bounds: a few errors, soon and of readable length.
TEST(Module, AValueWithoutAnyComponentIsAnError) {
  for (const char *text : {"format f { value = 8 }", "format f { elemer k[128]\n value = 8 }"}) {
    Result<Module> module = parseModule(text, "t.rho", [](const auto &) { return std::nullopt; });
    ASSERT_FALSE(module.ok()) << text;
    EXPECT_NE(module.error().str().find("t.rho:1:"), std::string::npos) << module.error().str();
  }
}

TEST(Module, HostileTextsGiveErrors) {
  constexpr size_t size = (size_t(1) << 20) - 100;
  auto full = [](const std::string &begin, const std::string &again) {
    std::string text = begin;
    while (text.size() + again.size() <= size)
      text += again;
    return text;
  };
  auto numbered = [](const std::string &begin, const std::string &before,
                     const std::string &after) {
    std::string text = begin;
    for (int i = 0; text.size() + before.size() + after.size() + 8 <= size; ++i)
      text += before + std::to_string(i) + after;
    return text;
  };
  std::string deep = repeated("(", 95) + "element" + repeated("+1)*1", 95);
  std::string name(size / 2, 'n');
  std::mt19937_64 random = test::generator(3);
  std::string bytes;
  while (bytes.size() < size)
    bytes += static_cast<char>(random());
  const std::string element = "element: s4\nvalue = element\n";
  const std::vector<std::string> texts = {
      bytes,
      full("", "format "),
      full("", "{"),
      full("", "}"),
      full("", "("),
      full("", "format f {"),
      full("", "format f("),
      full("", "format f = "),
      full("format f {", "encode {"),
      full("format f(", "a:int,"),
      full("format f(a: int = ", "-"),
      full("format f = ", "f("),
      full("format f = ", "f(f,"),
      full("format f {", "a: "),
      full("format f {", "a: s4\n"),
      full("format f { partition per k[64] {", "a: f16\n"),
      full("format f {", "residual r: f16 per k[64]\n"),
      full("format f {" + element + "require ", "element +"),
      full("format f {" + element, "require x >= 1\n"),
      full("format f {" + element + "require nothing >= 0\n", "require " + deep + " <= 1\n"),
      full("format f {" + element + "encode {", "element = 1\n"),
      full("gemm g { schedule {", "tile: 1 x 1 x 1\n"),
      full("gemm g { schedule { tile: ", "1 x "),
      full("gemm g {", "weight: nothing\n"),
      full("", "gemm g { }\n"),
      full("", "import \"a.rho\"\n"),
      numbered("", "import \"", "\"\n"),
      numbered("format f(", "a", ": int = 1, "),
      numbered("", "format f", " = g\n"),
      numbered("", "format f", " { element: s4 value = element }\ngemm a { weight: nobody }"),
      numbered("format f(a: int) { element: s4 value = element * a }\n", "gemm g {weight: f(",
               ")}"),
      numbered("format f(a: type) = a\nformat x = ", "f(x", ")"),
      "format " + name + " { } format " + name + " { }",
      "format f { element: s4 value = " + name + " }",
      "import \"" + name + "\"",
      "\"" + name,
      "format f { element: s4 scale: f16 per k[" + std::string(size / 2, '9') + "] }",
      "format f { element: s4 value = element * 0x" + std::string(size / 2, 'f') + " }",
      "format f { element: s4 value = element * 1." + std::string(size / 2, '0') + "e999999999 }",
      "format f { element: s4 value = element require element >= -9223372036854775808 }",
      "format f { element: s4 value = element + 9223372036854775807 * 9223372036854775807 }",
      "format f { " + element + " residual r: f16 per n[9223372036854775807] k[0] budget 1e308% }",
      "gemm g { weight: f16 activation: f16 output: f16 schedule { pipeline: 9223372036854775807 "
      "tile: 9223372036854775807 x 0 x 1 warps: 9223372036854775807 x 2 split_k: 0 } }",
  };
  for (const std::string &text : texts) {
    SCOPED_TRACE(text.substr(0, 60));
    std::string errors = errorsOf(text);
    EXPECT_NE(errors, "no error");
    EXPECT_LT(errors.size(), size_t(200000));
    EXPECT_NE(errors, "");
  }
}

// Whatever the bytes: a module that prints and parses back, or errors in order.
TEST(Module, MutatedTextsNeverCrash) {
  std::string seed;
  for (const char *path : {"tests/dsl/pass/everything.rho", "kernels/formats/liquidquant.rho"})
    seed += test::text(test::sourceDir() / path);
  std::mt19937_64 random = test::generator(1);
  int good = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = seed;
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
      size_t at = random() % text.size(), length = random() % 12;
      switch (random() % 3) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, seed.substr(random() % seed.size(), length));
        break;
      default:
        text[at] = static_cast<char>(random());
      }
    }
    Result<Module> module = parseModule(text, "a.rho", nullptr);
    if (module.ok()) {
      ++good;
      Result<Module> again = parseModule(print(*module), "b.rho", nullptr);
      ASSERT_TRUE(again.ok()) << again.error().str() << text;
      ASSERT_EQ(print(*module), print(*again));
    } else {
      ASSERT_FALSE(module.error().diagnostics.empty());
      uint32_t last = 0;
      for (const Diagnostic &diagnostic : module.error().diagnostics) {
        ASSERT_TRUE(diagnostic.span.begin >= last || diagnostic.id == DiagId::too_many_errors);
        last = diagnostic.span.begin;
      }
    }
  }
  EXPECT_GT(good, 50); // the mutations leave something to look at
}

} // namespace
} // namespace rho::dsl
