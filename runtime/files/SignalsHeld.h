// Signals that end the process, held back for a while.
#pragma once

#include <csignal>
#include <initializer_list>

namespace rho::files {

// While it lives SIGHUP, SIGINT and SIGTERM wait, in this thread and in those that it starts.
// Another thread of the process that takes them ends it as ever.
class SignalsHeld {
public:
  SignalsHeld() {
    sigset_t ending = set();
    pthread_sigmask(SIG_BLOCK, &ending, &before);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  SignalsHeld(const SignalsHeld &) = delete;
  SignalsHeld &operator=(const SignalsHeld &) = delete;

  static sigset_t set() {
    sigset_t ending;
    sigemptyset(&ending);
    for (int signal : {SIGHUP, SIGINT, SIGTERM})
      sigaddset(&ending, signal);
    return ending;
  }

private:
  sigset_t before{};
};

} // namespace rho::files
