#include "runtime/tool/Options.h"
#include "dsl/Findings.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Tool.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace rho;
using namespace rho::tool;

namespace {

Result<Options> parse(std::vector<std::string> arguments) { return Options::parse(arguments); }

std::string parseError(std::vector<std::string> arguments) {
  Result<Options> options = parse(std::move(arguments));
  return options.ok() ? "parsed" : options.error().str();
}

// Of a command line that parses.
std::string outputsError(std::vector<std::string> arguments) {
  Status kept = Options::parse(arguments)->checkOutputs();
  return kept ? "kept" : kept.error().str();
}

TEST(OptionsTest, readsFilesAndValuesInAnyOrder) {
  Result<Options> options = parse(
      {"run", "--m", "16", "a.rho", "--n=256", "--no-cache", "--verify", "sample", "--gemm=x=y"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->command(), Command::Run);
  EXPECT_EQ(options->onlyFile().value(), "a.rho");
  EXPECT_EQ(options->count("--m"), 16);
  EXPECT_EQ(options->count("--n"), 256);
  EXPECT_EQ(options->count("--k"), std::nullopt);
  EXPECT_TRUE(options->has("--no-cache"));
  EXPECT_FALSE(options->has("--seed"));
  EXPECT_EQ(options->text("--verify"), "sample");
  EXPECT_EQ(options->text("--gemm"), "x=y");
  EXPECT_EQ(options->text("--device", "auto"), "auto");
}

TEST(OptionsTest, listsOfCountsAreForBench) {
  Result<Options> options = parse({"bench", "--m", "1,16,64"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->counts("--m"), (std::vector<int64_t>{1, 16, 64}));
  EXPECT_TRUE(options->counts("--n").empty());
  EXPECT_EQ(parseError({"bench", "--m", "1,,2"}),
            "error: --m is '1,,2', whole numbers of at least 1 and below 2^63 with commas between "
            "them are needed "
            "[bad_option_value]\n");
}

TEST(OptionsTest, pairsOfCountsAreForSuites) {
  Result<Options> options = parse({"bench", "--suite=llama", "--n-k", "64x128,8x16"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->pairs("--n-k"),
            (std::vector<std::pair<int64_t, int64_t>>{{64, 128}, {8, 16}}));
  EXPECT_EQ(options->counts("--m", {3}), std::vector<int64_t>{3});
  for (const char *bad : {"64", "64x", "64x128x2", "0x8", "8x16,", "8 x 16"})
    EXPECT_EQ(parseError({"bench", "--n-k", bad}),
              std::string("error: --n-k is '") + bad +
                  "', pairs of whole numbers of at least 1 such as 64x128 with commas between them "
                  "are needed [bad_option_value]\n");
}

TEST(OptionsTest, theTunerHasShapesAndCandidates) {
  Result<Options> options = parse({"tune", "a.rho", "--n-k=64x128", "--m=1,16", "--candidates=8"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->command(), Command::Tune);
  EXPECT_EQ(options->count("--candidates"), 8);
  EXPECT_EQ(options->pairs("--n-k").size(), 1U);
  EXPECT_TRUE(parseError({"tune", "--n", "64"})
                  .starts_with("error: unknown option '--n' of 'rho tune', did you mean "));
}

TEST(OptionsTest, aLaunchIsOneOfThree) {
  EXPECT_EQ(parse({"bench", "--suite=llama", "--launch=both"})->text("--launch"), "both");
  EXPECT_EQ(parseError({"tune", "--launch", "parallel"}),
            "error: --launch is 'parallel', valid values are serial, dependent, both "
            "[bad_option_value]\n");
}

TEST(OptionsTest, theVerifierHasLimitsAndACount) {
  Result<Options> options =
      parse({"verify", "a.rho", "b.rho", "--count=8", "--m=4", "--csv=v.csv"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->command(), Command::Verify);
  EXPECT_EQ(options->count("--count"), 8);
  EXPECT_EQ(options->files().size(), 2U);
  EXPECT_EQ(parseError({"verify", "--m", "1,2"}),
            "error: --m is '1,2', a whole number of at least 1 and below 2^63 is needed "
            "[bad_option_value]\n");
}

TEST(OptionsTest, commandsOfTheCacheAreTwoWords) {
  Result<Options> options = parse({"cache", "import", "x.bundle", "--cache-limit", "2M"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->command(), Command::CacheImport);
  EXPECT_EQ(options->commandName(), "cache import");
  EXPECT_EQ(options->onlyFile().value(), "x.bundle");
  EXPECT_EQ(engineOptions(*options)->cacheLimitBytes, 2 << 20);
  EXPECT_EQ(parseError({"cache", "list", "--tuned"}),
            "error: unknown option '--tuned' of 'rho cache list'; valid options are --cache-dir "
            "[unknown_option]\n");
  EXPECT_EQ(parseError({"cache", "--cache-dir", "/c", "clear"}),
            "error: the command of 'rho cache' is missing, it comes before all options: rho cache "
            "COMMAND --cache-dir [option_missing]\n");
  EXPECT_EQ(parse({"cache", "-h"})->command(), Command::Help);
  for (const char *bad : {"0", "1KB", "-1", "K"})
    EXPECT_EQ(parseError({"cache", "import", "--cache-limit", bad}),
              std::string("error: --cache-limit is '") + bad +
                  "', a whole number of at least 1 is needed, of bytes or with K, M or G, below "
                  "2^63 bytes "
                  "[bad_option_value]\n");
}

TEST(OptionsTest, aFileNameMayStartWithADashAfterTwo) {
  Result<Options> options = parse({"check", "--", "--m", "-"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->files(), (std::vector<std::string>{"--m", "-"}));
}

TEST(OptionsTest, helpIsHelpFromEverywhere) {
  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{{}, {"help"}, {"--help"}, {"-h"}}) {
    Result<Options> options = parse(arguments);
    ASSERT_TRUE(options.ok());
    EXPECT_EQ(options->command(), Command::Help);
    EXPECT_TRUE(options->files().empty());
  }
  Result<Options> options = parse({"run", "--m", "1", "--help", "--what"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->command(), Command::Help);
  EXPECT_EQ(options->files(), std::vector<std::string>{"run"});
  EXPECT_FALSE(options->has("--m"));
  EXPECT_TRUE(options->checkOutputs());
}

TEST(OptionsTest, unknownNamesListTheValidOnesAndTheNearest) {
  EXPECT_EQ(
      parseError({"rum"}),
      "error: unknown command 'rum', did you mean 'run'; valid commands are run, check, "
      "fmt, lsp, compile, bench, tune, verify, devices, explain, plan, probe, rotate, quantize, "
      "error, cache "
      "list, cache "
      "verify, cache clear, cache "
      "export, "
      "cache import, cache warm, help, --version [unknown_command]\n");
  EXPECT_EQ(parseError({"frobnicate"}),
            "error: unknown command 'frobnicate'; valid commands are "
            "run, check, fmt, lsp, compile, bench, tune, verify, devices, explain, plan, probe, "
            "rotate, quantize, "
            "error, cache list, cache verify, cache clear, cache export, cache import, "
            "cache warm, help, --version [unknown_command]\n");
  EXPECT_EQ(parseError({"run", "--weigths", "w.npy"}),
            "error: unknown option '--weigths' of 'rho run', did you mean '--weights'; valid "
            "options are --m, --n, --k, --launch, --gemm, --device, --weights, --activations, "
            "--output, --seed, --verify, --cache-dir, --cache-limit, --no-cache, --untuned "
            "[unknown_option]\n");
  EXPECT_EQ(parseError({"check", "--m", "1"}),
            "error: unknown option '--m' of 'rho check'; valid options are none "
            "[unknown_option]\n");
}

TEST(OptionsTest, valuesAreChecked) {
  EXPECT_EQ(parseError({"run", "--m"}), "error: --m has no value, M must follow it "
                                        "[option_without_value]\n");
  EXPECT_EQ(parseError({"run", "--m", "--n", "64"}), "error: --m has no value, M must follow it "
                                                     "[option_without_value]\n");
  EXPECT_EQ(parseError({"compile", "g.rho", "-o", "--emit=tile"}),
            "error: -o has no value, FILE must follow it [option_without_value]\n");
  EXPECT_EQ(parse({"compile", "g.rho", "-o", "--=tile"})->text("-o"), "--=tile");
  EXPECT_EQ(parseError({"run", "--no-cache=1"}),
            "error: --no-cache has a value, it takes none [option_with_value]\n");
  EXPECT_EQ(parseError({"run", "--m", "1", "--m=2"}),
            "error: --m is given twice, once is allowed [option_twice]\n");
  for (const char *bad : {"0", "-1", "", "1x", "99999999999999999999", "1.5", " 1"})
    EXPECT_EQ(parseError({"run", "--m", bad}),
              std::string("error: --m is '") + bad +
                  "', a whole number of at least 1 and below 2^63 is needed [bad_option_value]\n");
  EXPECT_EQ(parseError({"run", "--seed", "-3"}),
            "error: --seed is '-3', a whole number of at least 0 and below 2^63 is needed "
            "[bad_option_value]\n");
  EXPECT_EQ(parseError({"run", "--verify", "some"}),
            "error: --verify is 'some', valid values are full, sample, none [bad_option_value]\n");
  EXPECT_EQ(parseError({"run", "--verify", "smaple"}),
            "error: --verify is 'smaple', valid values are full, sample, none, did you mean "
            "'sample' [bad_option_value]\n");
  EXPECT_EQ(parseError({"run", "--output="}),
            "error: --output is '', text is needed [bad_option_value]\n");
}

TEST(OptionsTest, someTextsMayBeGivenSeveralTimes) {
  Result<Options> options =
      parse({"error", "a.safetensors", "--format", "nvfp4", "--only=a*", "--format=mxfp4"});
  ASSERT_TRUE(options.ok()) << options.error().str();
  EXPECT_EQ(options->texts("--format"), (std::vector<std::string>{"nvfp4", "mxfp4"}));
  EXPECT_EQ(options->texts("--only"), std::vector<std::string>{"a*"});
  EXPECT_TRUE(options->texts("--skip").empty());
  EXPECT_EQ(parseError({"quantize", "--format=a", "--format=b"}),
            "error: --format is given twice, once is allowed [option_twice]\n");
}

TEST(OptionsTest, oneFileWhereOneIsWorkedOn) {
  for (const auto &[arguments, count] :
       {std::pair<std::vector<std::string>, std::string>{{"run"}, "0"},
        std::pair<std::vector<std::string>, std::string>{{"run", "a", "b"}, "2"}}) {
    Result<Options> options = parse(arguments);
    ASSERT_TRUE(options.ok());
    EXPECT_EQ(options->onlyFile().error().str(),
              "error: " + count + " files are given, 'rho run' works on one [wrong_file_count]\n");
  }
}

TEST(OptionsTest, everyCommandAndOptionIsInTheHelp) {
  for (const CommandSpec &command : commandTable()) {
    EXPECT_NE(helpText().find("  rho " + std::string(command.name) + " "), std::string::npos);
    for (const OptionSpec &option : optionTable()) {
      bool belongs = (option.commands >> static_cast<unsigned>(command.command) & 1) != 0;
      if (belongs)
        EXPECT_NE(helpText(command.command).find("  " + std::string(option.name) + " "),
                  std::string::npos)
            << option.name;
    }
  }
}

// docs/CLI.md names every option of every command.
TEST(OptionsTest, theManualNamesEveryOption) {
  Result<std::string> manual = readText(std::string(RHO_SOURCE_DIR) + "/docs/CLI.md");
  ASSERT_TRUE(manual.ok()) << manual.error().str();
  for (const OptionSpec &option : optionTable())
    EXPECT_NE(manual->find("`" + std::string(option.name)), std::string::npos) << option.name;
}

TEST(DeviceTest, namesAreChecked) {
  for (const char *bad : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "sm_10", ""}) {
    std::string error = openDevice(bad).error().str();
    EXPECT_TRUE(error.starts_with(std::string("error: there is no device '") + bad +
                                  "', valid are auto, cuda, cuda:INDEX, the emulated targets "
                                  "sm_80"))
        << error;
    EXPECT_NE(error.find(", the described devices a100_80g, a100_40g, "), std::string::npos)
        << error;
    EXPECT_NE(error.find(" and a path to FILE.rho that describes one"), std::string::npos) << error;
    EXPECT_TRUE(error.ends_with(" [bad_device]\n")) << error;
  }
  for (auto [bad, meant] : {std::pair("h20", "h200"), {"rtx3090", "rtx_3090"}}) {
    std::string error = openDevice(bad).error().str();
    EXPECT_TRUE(error.ends_with(std::string(", did you mean '") + meant + "' [bad_device]\n"))
        << error;
  }
  EXPECT_TRUE(openDevice("sm_80").ok());
}

TEST(FilesTest, whatCannotBeReadOrWrittenIsNamed) {
  EXPECT_EQ(readText("/none/x.txt").error().str(),
            "error: '/none/x.txt' cannot be read: No such file or directory [file_not_readable]\n");
  EXPECT_EQ(readText("/").error().str(),
            "error: '/' cannot be read: Is a directory [file_not_readable]\n");
  EXPECT_EQ(
      writeText("/none/x.txt", "a").error().str(),
      "error: '/none/x.txt' cannot be written: No such file or directory [file_not_writable]\n");
}

TEST(OptionsTest, outputsReplaceNoInputAndNoOtherOutput) {
  EXPECT_EQ(
      outputsError({"error", "m.safetensors", "--format", "nvfp4", "--csv", "a", "--plot", "a"}),
      "error: --csv and --plot do not go together: both write a [option_conflict]\n");
  EXPECT_EQ(outputsError({"error", "m.safetensors", "--format", "nvfp4", "--csv", "m.safetensors"}),
            "error: --csv and m.safetensors do not go together: it would write over what is read "
            "[option_conflict]\n");
  EXPECT_EQ(outputsError({"compile", "/proc/self/exe", "--emit", "ptx", "-o",
                          std::filesystem::read_symlink("/proc/self/exe").string()}),
            "error: -o and /proc/self/exe do not go together: it would write over what is read "
            "[option_conflict]\n");
  EXPECT_EQ(outputsError({"quantize", "m.safetensors", "--format", "nvfp4", "-o", "m.safetensors"}),
            "kept");
  // Files that options name, too, with a tensor's name behind them or without.
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  auto conflict = [](const std::string &output, const std::string &input) {
    return "error: " + output + " and " + input +
           " do not go together: it would write over what is read [option_conflict]\n";
  };
  EXPECT_EQ(outputsError({"quantize", "m", "--format", "nvfp4", "--activations", self, "-o", self}),
            conflict("-o", "--activations"));
  EXPECT_EQ(outputsError({"run", "m", "--weights", self + ":a", "--output", self}),
            conflict("--output", "--weights"));
  EXPECT_EQ(outputsError({"error", "m", "--format", "q", "--activations", "x",
                          "--activation-format", self, "--csv", self}),
            conflict("--csv", "--activation-format"));
  EXPECT_EQ(outputsError({"plan", "m", "--policy", self, "--csv", self}),
            conflict("--csv", "--policy"));
  EXPECT_EQ(outputsError({"error", "m", "--quantized", "q", "--quantized", self, "--plot", self}),
            conflict("--plot", "--quantized"));
  EXPECT_EQ(outputsError(
                {"error", "m", "--format", "nvfp4", "--csv", "/dev/null", "--plot", "/dev/null"}),
            "kept");
}

TEST(OptionsTest, outputsReplaceNoShardAndHaveAFolder) {
  std::string folder = testing::TempDir() + "rho-options-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string index = folder + "/m.safetensors.index.json", shard = folder + "/a.safetensors";
  std::ofstream(index) << R"({"metadata": {}, "weight_map": {"w": "a.safetensors"}})";
  std::ofstream(shard) << "numbers";
  EXPECT_EQ(outputsError({"error", index, "--format", "nvfp4", "--csv", shard}),
            "error: --csv and " + index +
                " do not go together: it would write over what is read [option_conflict]\n");
  EXPECT_EQ(outputsError({"run", "g.rho", "--weights", index + ":w", "--output", shard}),
            "error: --output and --weights do not go together: it would write over what is read "
            "[option_conflict]\n");
  EXPECT_EQ(outputsError({"quantize", index, "--format", "nvfp4", "-o", index}), "kept");
  for (const char *tensor : {":w", ":layers:0", ":a:.safetensors:0"}) // names may have colons
    EXPECT_EQ(outputsError({"run", "g.rho", "--weights", shard + tensor, "--output", shard}),
              "error: --output and --weights do not go together: it would write over what is read "
              "[option_conflict]\n");
  // Through a link as well, while there is no such file yet.
  std::filesystem::create_directory(folder + "/real");
  std::filesystem::create_symlink("real", folder + "/linked");
  EXPECT_EQ(outputsError({"error", "m", "--format", "nvfp4", "--csv", folder + "/real/n", "--plot",
                          folder + "/linked/n"}),
            "error: --csv and --plot do not go together: both write " + folder +
                "/real/n [option_conflict]\n");
  EXPECT_EQ(outputsError({"error", "m", "--format", "nvfp4", "--csv", "a", "--plot", "./a"}),
            "error: --csv and --plot do not go together: both write a [option_conflict]\n");
  EXPECT_EQ(outputsError({"error", "m", "--format", "nvfp4", "--csv", "/none/a"}),
            "error: '/none/a' cannot be written: No such file or directory [file_not_writable]\n");
  const Options plan = *Options::parse(std::vector<std::string>{"plan", "m.json", "--csv", shard});
  EXPECT_TRUE(plan.keeps({index}));
  EXPECT_FALSE(plan.keeps({index, shard}));
  std::filesystem::remove_all(folder);
}

// What holds only for others than root is tried as another.
int asNobody(const std::function<bool()> &good) {
  const pid_t child = fork();
  if (child == 0)
    _exit((geteuid() != 0 || setuid(65534) == 0) && good() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OptionsTest, outputsThatCannotBeWrittenAreToldBeforeAnyWork) {
  std::string folder = testing::TempDir() + "rho-options-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string locked = folder + "/locked";
  std::ofstream(locked) << "theirs";
  ASSERT_EQ(chmod(locked.c_str(), 0444), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  auto error = [](const std::string &file) {
    return outputsError({"verify", "a.rho", "--csv", file});
  };
  auto text = [](const std::string &file, const std::string &reason) {
    return "error: '" + dsl::shown(file) + "' cannot be written: " + reason +
           " [file_not_writable]\n";
  };
  EXPECT_EQ(error(folder), text(folder, "Is a directory"));
  EXPECT_EQ(error(locked + "/a"), text(locked + "/a", "Not a directory"));
  EXPECT_EQ(error(folder + "/none/a"), text(folder + "/none/a", "No such file or directory"));
  EXPECT_EQ(asNobody([&] {
              return error(locked) == text(locked, "Permission denied") &&
                     error(folder + "/a") == text(folder + "/a", "Permission denied");
            }),
            0);
  std::filesystem::remove_all(folder);
}

// Declarations that a file imports, and that those import, are read as well.
TEST(OptionsTest, outputsReplaceNoImport) {
  std::string folder = testing::TempDir() + "rho-options-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string gemm = folder + "/g.rho", format = folder + "/w.rho", scale = folder + "/s.rho";
  std::ofstream(scale) << "format s { element: s8 value = element }";
  std::ofstream(format) << R"(import "s.rho" format w { element: s4 value = element })";
  std::ofstream(gemm) << R"(import "w.rho" gemm g { weight: w activation: f16 output: f16 })";
  auto conflict = [](const std::string &output, const std::string &input) {
    return "error: " + output + " and " + input +
           " do not go together: it would write over what is read [option_conflict]\n";
  };
  EXPECT_EQ(outputsError({"compile", gemm, "-o", format}), conflict("-o", format));
  EXPECT_EQ(outputsError({"explain", gemm, "--plot", scale}), conflict("--plot", scale));
  EXPECT_EQ(outputsError({"error", "m", "--format", format + ":w", "--csv", scale}),
            conflict("--csv", scale));
  EXPECT_EQ(outputsError({"compile", gemm, "-o", folder + "/g.ptx"}), "kept");
  const Options plan = *Options::parse(std::vector<std::string>{"plan", "m.json", "--csv", scale});
  EXPECT_EQ(plan.keeps({gemm}).error().str(), conflict("--csv", scale));
  std::filesystem::remove_all(folder);
}

TEST(FilesTest, writingKeepsPermissionsAndLinks) {
  std::string pattern = testing::TempDir() + "rho-files-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  std::string path = pattern + "/x.txt", link = pattern + "/link.txt";
  ASSERT_TRUE(writeText(path, "before").ok());
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_EQ(symlink("x.txt", link.c_str()), 0);
  ASSERT_TRUE(writeText(link, "after").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(readText(path).value(), "after");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0640));
  std::filesystem::remove(path);
  Status dangling = writeText(link, "again");
  ASSERT_FALSE(dangling);
  EXPECT_EQ(dangling.error().str(), "error: '" + link +
                                        "' cannot be written: it is a symbolic link to nothing "
                                        "[file_not_writable]\n");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::filesystem::remove_all(pattern);
}

// No other can take its place, but it can be written.
TEST(FilesTest, aWritableFileInAFolderThatIsNotIsWrittenInPlace) {
  std::string folder = testing::TempDir() + "rho-files-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/x.txt";
  std::ofstream(path) << "a longer text";
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0555), 0);
  EXPECT_EQ(
      asNobody([&] { return writeText(path, "new").ok() && !writeText(path + "2", "new").ok(); }),
      0);
  EXPECT_EQ(readText(path).value(), "new");
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  std::filesystem::remove_all(folder);
}

// Neither where there is no room nor where a write fails all the same.
TEST(FilesTest, whatCannotBeWrittenInPlaceStaysAsItIs) {
  std::string folder = testing::TempDir() + "rho-files-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/x.txt", unreadable = folder + "/y.txt";
  const std::string before(4000, 'a');
  for (const std::string &file : {path, unreadable}) {
    std::ofstream(file) << before;
    ASSERT_EQ(chmod(file.c_str(), file == path ? 0666 : 0222), 0);
  }
  ASSERT_EQ(chmod(folder.c_str(), 0555), 0);
  auto fails = [](const std::string &file, size_t bytes, const std::string &lost) {
    const Status written = writeText(file, std::string(bytes, 'b'));
    return !written && written.error().str() == "error: '" + file +
                                                    "' cannot be written: File too large" + lost +
                                                    " [file_not_writable]\n";
  };
  EXPECT_EQ(asNobody([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit = {1000, 1000};
              return setrlimit(RLIMIT_FSIZE, &limit) == 0 && fails(path, 5000, "") &&
                     fails(path, 3000, "") && fails(unreadable, 3000, "; what was there is lost");
            }),
            0);
  EXPECT_EQ(readText(path).value(), before);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  std::filesystem::remove_all(folder);
}

TEST(FilesTest, aMountedFileIsWrittenInPlace) {
  std::string folder = testing::TempDir() + "rho-files-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/x.txt", mounted = folder + "/mounted.txt";
  std::ofstream(path) << "a longer text";
  std::ofstream(mounted) << "below";
  constexpr int noMounts = 9;
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(path.c_str(), mounted.c_str(), nullptr, MS_BIND, nullptr) != 0)
      _exit(noMounts);
    _exit(writeText(mounted, "new").ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const bool skipped = WEXITSTATUS(status) == noMounts;
  if (!skipped) {
    EXPECT_EQ(status, 0);
    EXPECT_EQ(readText(path).value(), "new");
    EXPECT_EQ(readText(mounted).value(), "below");
  }
  std::filesystem::remove_all(folder);
  if (skipped)
    GTEST_SKIP() << "only root mounts";
}

TEST(FilesTest, writingReplacesTheWholeFileAndLeavesNothingBeside) {
  std::string pattern = testing::TempDir() + "rho-files-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  std::string path = pattern + "/x.txt";
  ASSERT_TRUE(writeText(path, "a longer text").ok());
  ASSERT_TRUE(writeText(path, "short").ok());
  EXPECT_EQ(readText(path).value(), "short");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(pattern), {}), 1);
  EXPECT_TRUE(writeText("/dev/null", "gone").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  std::filesystem::remove_all(pattern);
}

} // namespace
