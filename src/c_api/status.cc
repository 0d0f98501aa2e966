// SPDX-License-Identifier: Apache-2.0
#include "c_api/status.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "qkv/error.h"
#include "qkv/sampler.h"
#include "qkv/threads.h"
#include "qkv/version.h"

namespace qkv::c_api {
namespace {

// Fixed size: reporting an error must not fail.
thread_local char last_error[2048] = "";

void remember(std::string_view what) noexcept {
  const std::size_t length = std::min(what.size(), sizeof(last_error) - 1);
  std::memcpy(last_error, what.data(), length);
  last_error[length] = '\0';
}

}  // namespace

qkv_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const TooSmall& error) {
    remember(error.what());
    return QKV_TOO_SMALL;
  } catch (const FileError& error) {
    remember(error.what());
    return QKV_FILE_ERROR;
  } catch (const SamplingError& error) {
    remember(error.what());
    return QKV_NOT_FINITE;
  } catch (const std::invalid_argument& error) {
    remember(error.what());
    return QKV_INVALID_ARGUMENT;
  } catch (const std::length_error&) {
    remember("not enough memory");
    return QKV_OUT_OF_MEMORY;
  } catch (const std::bad_alloc&) {
    remember("not enough memory");
    return QKV_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    remember(error.what());
    return QKV_FAILED;
  } catch (...) {
    remember("unknown exception");
    return QKV_FAILED;
  }
}

}  // namespace qkv::c_api

extern "C" {

const char* qkv_last_error(void) { return qkv::c_api::last_error; }

const char* qkv_status_name(qkv_status status) {
  switch (status) {
    case QKV_OK:
      return "ok";
    case QKV_INVALID_ARGUMENT:
      return "invalid argument";
    case QKV_FILE_ERROR:
      return "file error";
    case QKV_OUT_OF_MEMORY:
      return "out of memory";
    case QKV_NOT_FINITE:
      return "not finite";
    case QKV_TOO_SMALL:
      return "too small";
    case QKV_FAILED:
      return "failed";
  }
  return "unknown status";
}

const char* qkv_version(void) { return QKV_VERSION; }

qkv_status qkv_set_num_threads(int threads) {
  return qkv::c_api::guarded([&] { qkv::set_num_threads(threads); });
}

}  // extern "C"
