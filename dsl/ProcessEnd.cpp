#include "dsl/ProcessEnd.h"

#include <condition_variable>
#include <cstdlib>
#include <pthread.h>

namespace rho::dsl {

namespace {

thread_local int ofThisThread = 0;

class Calls {
public:
  static Calls &all() {
    static Calls &all = *new Calls(); // never destroyed
    return all;
  }

  bool begin() {
    const std::lock_guard lock(mutex);
    if (isOver)
      return false;
    ++running;
    ++ofThisThread;
    return true;
  }

  void end() {
    const std::lock_guard lock(mutex);
    --running;
    --ofThisThread;
    changed.notify_all();
  }

  void finish() {
    std::unique_lock lock(mutex);
    isOver = true;
    // LLVM ends the process over what it cannot do, in a call.
    changed.wait(lock, [&] { return running == ofThisThread; });
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

  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  bool isOver = false;
};

// Also where nothing was called: then a library's own static objects go behind this one.
const struct StaticObjects {
  ~StaticObjects() { Calls::all().finish(); }
} staticObjects;

} // namespace

DelaysProcessEnd::DelaysProcessEnd(std::once_flag &library)
    : library(library), isGranted(Calls::all().begin()) {}

DelaysProcessEnd::~DelaysProcessEnd() {
  if (!isGranted)
    return;
  std::call_once(library, [] { std::atexit([] { Calls::all().finish(); }); });
  Calls::all().end();
}

} // namespace rho::dsl
