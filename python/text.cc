// SPDX-License-Identifier: Apache-2.0
#include "text.h"

namespace qkv::python {
namespace nb = nanobind;
namespace {

std::string contents(nb::handle bytes) {
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

}  // namespace

std::optional<std::string> text_bytes(nb::handle object) {
  if (PyBytes_Check(object.ptr())) return contents(object);
  if (!PyUnicode_Check(object.ptr())) return std::nullopt;
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(object.ptr(), "utf-8", "surrogateescape"));
  if (!bytes.is_valid()) throw nb::python_error();
  return contents(bytes);
}

std::string name_given(const char* argument, nb::handle object) {
  if (!PyUnicode_Check(object.ptr()))
    throw nb::type_error((std::string(argument) + " must be a string; found " + shown_text(object)).c_str());
  return *text_bytes(object);
}

std::string shown_text(nb::handle object) {
  const nb::object text = nb::steal(PyObject_ASCII(object.ptr()));
  const char* bytes = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (!bytes) throw nb::python_error();
  return bytes;
}

nb::object unicode(const std::string& bytes) {
  nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape"));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

std::string path_of(nb::handle path) {
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &bytes)) throw nb::python_error();
  const nb::object held = nb::steal(bytes);
  return contents(held);
}

}  // namespace qkv::python
