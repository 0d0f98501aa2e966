// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a request: long-running work checks it between steps, finishes the step, saves and reports it.
#pragma once

#include <string_view>

namespace qkv {

// Latches SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP from now on. The first of them is only recorded;
// then all have their default action again, so that a second one ends the process. Call from one thread, in the
// program, not in a library.
void install_interrupt_latch();
// Restores the default action of the signals; a recorded signal stays recorded.
void remove_interrupt_latch();
// Clears a recorded signal.
void forget_interrupt() noexcept;
// Text that the first signal immediately writes to standard error, at most 255 bytes including the newline; "":
// nothing. Call from one thread only.
void set_interrupt_notice(std::string_view text) noexcept;
// Whether a signal was received. Thread-safe.
bool interrupt_requested() noexcept;
// The received signal, or 0.
int interrupt_signal() noexcept;

}  // namespace qkv
