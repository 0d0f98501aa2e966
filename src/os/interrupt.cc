// SPDX-License-Identifier: Apache-2.0
#include "os/interrupt.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>

namespace qkv {
namespace {

std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

// Double-buffered, so that a handler never sees a text that is being written.
using Notice = std::array<char, 256>;
std::array<Notice, 2> notices{};
std::atomic<const char*> notice{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free);

void set_handler(void (*handler)(int)) noexcept {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction former {};
    // Processes meant to outlive the terminal (nohup) ignore SIGHUP.
    if (number == SIGHUP && sigaction(number, nullptr, &former) == 0 && former.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
}

void on_signal(int number) {
  caught.store(number, std::memory_order_relaxed);
  set_handler(SIG_DFL);
  if (const char* text = notice.load()) {
    const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text));
    static_cast<void>(ignored);
  }
}

}  // namespace

void install_interrupt_latch() {
  forget_interrupt();
  set_handler(on_signal);
}

void remove_interrupt_latch() { set_handler(SIG_DFL); }

void forget_interrupt() noexcept { caught.store(0, std::memory_order_relaxed); }

void set_interrupt_notice(std::string_view text) noexcept {
  Notice& next = notices[notice.load() == notices[0].data() ? 1 : 0];
  const std::size_t size = std::min(text.size(), next.size() - 1);
  std::copy_n(text.data(), size, next.data());
  next[size] = 0;
  notice.store(size > 0 ? next.data() : nullptr);
}

bool interrupt_requested() noexcept { return interrupt_signal() != 0; }
int interrupt_signal() noexcept { return caught.load(std::memory_order_relaxed); }

}  // namespace qkv
