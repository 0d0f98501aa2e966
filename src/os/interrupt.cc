// SPDX-License-Identifier: Apache-2.0
#include "os/interrupt.h"

#include <csignal>

#include <atomic>

namespace qkv {
namespace {

std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void set_handler(void (*handler)(int)) noexcept {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction former {};
    // Who is to outlive the terminal (nohup) ignores SIGHUP.
    if (number == SIGHUP && sigaction(number, nullptr, &former) == 0 && former.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
}

void on_signal(int number) {
  caught.store(number, std::memory_order_relaxed);
  set_handler(SIG_DFL);
}

}  // namespace

void install_interrupt_latch() {
  caught.store(0, std::memory_order_relaxed);
  set_handler(on_signal);
}

void remove_interrupt_latch() { set_handler(SIG_DFL); }

bool interrupt_requested() noexcept { return interrupt_signal() != 0; }
int interrupt_signal() noexcept { return caught.load(std::memory_order_relaxed); }

}  // namespace qkv
