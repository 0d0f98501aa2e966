// SPDX-License-Identifier: Apache-2.0
// Converts Python strings and paths to bytes.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

namespace qkv::python {

// Bytes of a str or bytes object; nullopt for other objects. Lone surrogates (Python's surrogateescape) become the
// original bytes.
std::optional<std::string> text_bytes(nanobind::handle object);
// The same for an argument that must be a string. Throws nb::type_error.
std::string name_given(const char* argument, nanobind::handle object);
// ascii() of an object, for error messages.
std::string shown_text(nanobind::handle object);
// Converts bytes to str; the inverse of text_bytes.
nanobind::object unicode(const std::string& bytes);
// Path from str, bytes or os.PathLike. Throws nb::python_error.
std::string path_of(nanobind::handle path);

}  // namespace qkv::python
