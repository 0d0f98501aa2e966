// SPDX-License-Identifier: Apache-2.0
// Python's texts and paths as bytes.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

namespace qkv::python {

// str or bytes; nothing for other objects. Lone surrogates are what Python made of bytes that were no UTF-8, and go
// back to those bytes.
std::optional<std::string> text_bytes(nanobind::handle object);
// Bytes as str, the other way round.
nanobind::object unicode(const std::string& bytes);
// A str, bytes or os.PathLike. Throws nb::python_error.
std::string path_of(nanobind::handle path);

}  // namespace qkv::python
