#include "dsl/ProcessEnd.h"

#include <condition_variable>
#include <cstdlib>
#include <pthread.h>
#include <unistd.h>

namespace rho::dsl {

namespace {

// Calls that run, and those of them behind which nothing waits yet.
struct Running {
  int all = 0, first = 0;
};
thread_local Running ofThisThread;

class Calls {
public:
  static Calls &all() {
    static Calls &all = *new Calls(); // never destroyed
    return all;
  }

  bool begin(bool isFirst) {
    const std::lock_guard lock(mutex);
    if (isOver)
      return false;
    count(1, isFirst);
    return true;
  }

  void end(bool isFirst) {
    const std::lock_guard lock(mutex);
    count(-1, isFirst);
    changed.notify_all();
  }

  void finishFirst() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running.first == ofThisThread.first; });
  }

  void finish() {
    std::unique_lock lock(mutex);
    isOver = true;
    // LLVM ends the process over what it cannot do, in a call.
    changed.wait(lock, [&] { return running.all == ofThisThread.all; });
  }

private:
  Calls() {
    // A forked process has the forking thread alone.
    pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                   [] {
                     all().running = ofThisThread;
                     all().mutex.unlock();
                   });
  }

  void count(int by, bool isFirst) {
    for (Running *each : {&running, &ofThisThread}) {
      each->all += by;
      each->first += isFirst ? by : 0;
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  Running running;
  bool isOver = false;
};

// What a thread keeps goes before all static objects where it is the one that ends the process.
void watchMainThread() {
  struct End {
    ~End() { Calls::all().finishFirst(); }
  };
  if (gettid() == getpid()) {
    [[maybe_unused]] static thread_local const End end;
  }
}

// Also where nothing was called: then a library's own static objects go behind this one.
const struct StaticObjects {
  StaticObjects() { watchMainThread(); }
  ~StaticObjects() { Calls::all().finish(); }
} staticObjects;

} // namespace

DelaysProcessEnd::DelaysProcessEnd(EndingLibrary &library)
    : library(library), isFirst(!library.isHooked), isGranted(Calls::all().begin(isFirst)) {
  watchMainThread();
}

DelaysProcessEnd::~DelaysProcessEnd() {
  if (!isGranted)
    return;
  std::call_once(library.once, [&] {
    std::atexit([] { Calls::all().finish(); });
    library.isHooked = true;
  });
  Calls::all().end(isFirst);
}

} // namespace rho::dsl
