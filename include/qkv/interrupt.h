// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a request: long work looks at it between two steps, finishes the step, saves and says so.
#pragma once

#include <string_view>

namespace qkv {

// Latches SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP from now on. The first of them is only noted; after
// it all have their default effect again, so that a second one ends the process. To be called from one thread, by the
// program and not the library.
void install_interrupt_latch();
// Restores the default effect of the signals; what was noted stays noted.
void remove_interrupt_latch();
// Forgets a noted signal.
void forget_interrupt() noexcept;
// What the first signal writes to standard error at once, a line with its end of at most 255 bytes; "": nothing. Only
// one thread may call this.
void set_interrupt_notice(std::string_view text) noexcept;
// Whether one has come since. May be called from any thread.
bool interrupt_requested() noexcept;
// The signal that came, or 0.
int interrupt_signal() noexcept;

}  // namespace qkv
