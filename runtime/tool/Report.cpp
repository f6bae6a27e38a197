#include "runtime/tool/Report.h"

#include "dsl/Findings.h"
#include "dsl/Utf8.h"
#include "runtime/files/SignalsHeld.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

namespace rho::tool {

size_t lettersOf(std::string_view text) {
  return text.size() -
         static_cast<size_t>(std::count_if(text.begin(), text.end(), dsl::continuesCharacter));
}

// Of the first letters of a text, so many at most.
static size_t bytesOfLetters(std::string_view text, size_t letters) {
  size_t bytes = 0;
  while (bytes < text.size() && (dsl::continuesCharacter(text[bytes]) || letters-- > 0))
    ++bytes;
  return bytes;
}

std::string shellWord(const std::string &text) {
  const bool isPlain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./:,+@").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (isPlain)
    return text;
  std::string quoted = "'";
  for (char c : text)
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string fixedNumber(double value, int digits) {
  char text[400];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string significantNumber(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string shortNumber(double value) {
  double size = std::fabs(value);
  if (!std::isfinite(value) || (size != 0 && (size < 1e-4 || size >= 1e9)))
    return significantNumber(value, 3);
  int before = size < 1e-4 ? 0 : static_cast<int>(std::floor(std::log10(size)));
  return fixedNumber(value, std::clamp(2 - before, 0, 6));
}

std::string numberOrNone(const std::optional<double> &value) {
  return value ? shortNumber(*value) : "";
}

std::string microseconds(double value) { return fixedNumber(value, value < 100 ? 2 : 1); }

std::string bitCount(double bits) { return significantNumber(bits, 6) + " bits per element"; }

std::string byteCount(int64_t bytes) {
  static constexpr const char *units[] = {" bytes", " KB", " MB", " GB", " TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(units); ++unit)
    value /= 1000;
  return (unit == 0 ? std::to_string(bytes) : shortNumber(value)) + units[unit];
}

std::string weightText(int64_t n, int64_t k) {
  return "n = " + std::to_string(n) + ", k = " + std::to_string(k);
}

std::string shapeText(const GemmShape &shape) {
  return "m = " + std::to_string(shape.m) + ", " + weightText(shape.n, shape.k);
}

std::string extentsText(std::initializer_list<int64_t> extents) {
  std::string text;
  for (int64_t extent : extents)
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

std::string deviceText(const Device &device) {
  return dsl::visible(device.name()) + ", " + device.target();
}

static int firstLineFailure = 0;

void printLine(std::string_view label, std::string_view text) {
  constexpr size_t width = 12;
  std::string line(label);
  line.resize(std::max(width, line.size() + 1), ' ');
  line += text;
  line += '\n';
  if ((std::fputs(line.c_str(), stdout) < 0 || std::fflush(stdout) != 0) && firstLineFailure == 0)
    firstLineFailure = errno;
}

int lineFailure() { return firstLineFailure; }

std::string_view name(CompileReport::Source source) {
  switch (source) {
  case CompileReport::Source::Memory:
    return "memory";
  case CompileReport::Source::Disk:
    return "disk";
  case CompileReport::Source::Compiled:
    break;
  }
  return "compiled";
}

std::string_view name(CompileReport::PlanSource source) {
  return source == CompileReport::PlanSource::Tuned ? "tuned" : "planned";
}

std::string progressBar(int64_t done, int64_t total) {
  constexpr int64_t width = 24;
  auto filled = static_cast<size_t>(width * std::min(done, total) / std::max<int64_t>(total, 1));
  std::string bar(filled, '#');
  bar.resize(width, ' ');
  return "[" + bar + "] " + std::to_string(done) + " of " + std::to_string(total);
}

struct Progress::Ticker {
  std::string what;
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;
  bool changed = false; // since the last line
  std::thread thread;
};

Progress::Progress(std::string what) {
  if (isatty(STDERR_FILENO) == 0)
    return;
  ticker = std::make_unique<Ticker>();
  ticker->what = std::move(what);
  const files::SignalsHeld inTheTicker; // who holds them while files take their places is another
  ticker->thread = std::thread([state = ticker.get()] {
    std::unique_lock lock(state->mutex);
    Stopwatch watch;
    while (!state->done) {
      auto seconds = static_cast<int64_t>(watch.milliseconds() / 1e3);
      std::string time = seconds > 0 ? " " + std::to_string(seconds) + " s" : "";
      // What does not fit a line could not be erased.
      std::string line = state->what + " ..." + time;
      winsize window{};
      if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        line.resize(bytesOfLetters(line, window.ws_col - 1U));
      std::fprintf(stderr, "\r\033[K%s", line.c_str());
      state->changed = false;
      state->wake.wait_for(lock, std::chrono::seconds(1),
                           [&] { return state->done || state->changed; });
    }
    std::fputs("\r\033[K", stderr);
  });
}

void Progress::update(std::string what) {
  if (!ticker)
    return;
  {
    std::lock_guard lock(ticker->mutex);
    ticker->what = std::move(what);
    ticker->changed = true;
  }
  ticker->wake.notify_all();
}

Progress::~Progress() {
  if (!ticker)
    return;
  {
    std::lock_guard lock(ticker->mutex);
    ticker->done = true;
  }
  ticker->wake.notify_all();
  ticker->thread.join();
}

} // namespace rho::tool
