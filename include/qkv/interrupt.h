// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a request: long work looks at it between two steps, finishes the step, saves and says so.
#pragma once

namespace qkv {

// Latches SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP from now on. The first of them is only noted; after
// it all have their default effect again, so that a second one ends the process. To be called from one thread, by the
// program and not the library.
void install_interrupt_latch();
// Gives the signals their default effect again; what was noted stays noted until the latch is installed anew.
void remove_interrupt_latch();
// Whether one has come since. May be called from any thread.
bool interrupt_requested() noexcept;
// The signal that came, or 0.
int interrupt_signal() noexcept;

}  // namespace qkv
