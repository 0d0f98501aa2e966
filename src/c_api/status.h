// SPDX-License-Identifier: Apache-2.0
// Converts exceptions to a status and a message; every function of qkv_c.h runs inside guarded().
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "qkv_c.h"

namespace qkv::c_api {

// The caller's buffer is too small.
class TooSmall : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The status of the exception being handled; its message becomes qkv_last_error().
qkv_status status_of_exception() noexcept;

template <class Work>
qkv_status guarded(Work&& work) noexcept {
  try {
    std::forward<Work>(work)();
    return QKV_OK;
  } catch (...) {
    return status_of_exception();
  }
}

// Throws std::invalid_argument for a null pointer.
inline void require_given(const void* pointer, const char* where, const char* name) {
  if (pointer == nullptr)
    throw std::invalid_argument(std::string("[") + where + "] expected " + name + "; found a null pointer");
}

}  // namespace qkv::c_api
