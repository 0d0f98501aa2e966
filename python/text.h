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
// The same of a name that an argument must be. Throws nb::type_error.
std::string name_given(const char* argument, nanobind::handle object);
// What Python shows of an object, for errors.
std::string shown_text(nanobind::handle object);
// Bytes as str, the other way round.
nanobind::object unicode(const std::string& bytes);
// A str, bytes or os.PathLike. Throws nb::python_error.
std::string path_of(nanobind::handle path);

}  // namespace qkv::python
