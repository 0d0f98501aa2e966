// SPDX-License-Identifier: Apache-2.0
#include "os/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace qkv {
namespace {

// In a child process, since the second signal ends it.
int status_of(void (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(9);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(Interrupt, TheFirstSignalIsNoted) {
  const int status = status_of([] {
    install_interrupt_latch();
    if (interrupt_requested()) ::_exit(1);
    ::raise(SIGTERM);
    ::_exit(interrupt_requested() && interrupt_signal() == SIGTERM ? 0 : 2);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Interrupt, TheSecondEndsTheProcess) {
  const int status = status_of([] {
    install_interrupt_latch();
    ::raise(SIGTERM);
    ::raise(SIGINT);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(Interrupt, ATerminalThatClosesIsNotedUnlessItIsIgnored) {
  int status = status_of([] {
    ::signal(SIGHUP, SIG_DFL);
    install_interrupt_latch();
    ::raise(SIGHUP);
    ::_exit(interrupt_signal() == SIGHUP ? 0 : 1);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  status = status_of([] {
    ::signal(SIGHUP, SIG_IGN);
    install_interrupt_latch();
    ::raise(SIGHUP);
    if (interrupt_requested()) ::_exit(1);
    ::raise(SIGINT);  // after which all others have their default action
    ::raise(SIGHUP);
    ::_exit(interrupt_signal() == SIGINT ? 0 : 2);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace qkv
