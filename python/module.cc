// SPDX-License-Identifier: Apache-2.0
// The compiled part of the Python package: what C++ throws, and the module's functions and classes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <qkv/engine.h>
#include <qkv/error.h>
#include <qkv/kernels.h>
#include <qkv/threads.h>
#include <qkv/train.h>
#include <qkv/version.h>

#include <string>

#include "bind.h"
#include "text.h"

namespace nb = nanobind;

namespace {

// qkv.FileError is an OSError that knows the path and the byte; qkv.TrainingDiverged a RuntimeError that knows the
// step; qkv.QueueFullError a RuntimeError.
void translate_error(const std::exception_ptr& pointer, void*) {
  const auto text = [](const std::string& bytes) { return qkv::python::unicode(bytes); };  // paths may be any bytes
  try {
    std::rethrow_exception(pointer);
  } catch (const qkv::FileError& error) {
    const nb::object type = nb::module_::import_("qkv._results").attr("FileError");
    PyErr_SetObject(type.ptr(), nb::object(type(text(error.what()), text(error.path()), error.offset())).ptr());
  } catch (const qkv::QueueFullError& error) {
    PyErr_SetString(nb::module_::import_("qkv._results").attr("QueueFullError").ptr(), error.what());
  } catch (const qkv::TrainingDiverged& error) {
    const nb::object type = nb::module_::import_("qkv._results").attr("TrainingDiverged");
    PyErr_SetObject(type.ptr(), nb::object(type(text(error.what()), error.step())).ptr());
  }
}

}  // namespace

NB_MODULE(_qkv, m) {
  m.doc() = "Attention and small language models: the compiled part of qkv.";
  nb::set_leak_warnings(false);  // what a program still holds when it ends is its own matter
  nb::register_exception_translator(translate_error);
  m.attr("__version__") = QKV_VERSION;
  m.def("set_num_threads", &qkv::set_num_threads, nb::arg("threads"),
        "How many threads later calls compute with, in the whole process; 0 means one a core. Results never depend on "
        "it. Not to be called while another thread computes.");
  m.def("num_threads", &qkv::num_threads, "How many threads calls compute with.");
  m.def("kernel_set", &qkv::kernel_set,
        "'portable', 'avx2', 'avx512' or 'avx512_bf16'; QKV_KERNELS forces one, QKV_CPU limits the processor.");
  qkv::python::bind_attention(m);
  qkv::python::bind_attention_backward(m);
  qkv::python::bind_kv_cache(m);
  qkv::python::bind_tokenizer(m);
  qkv::python::bind_model(m);
  qkv::python::bind_engine(m);
  qkv::python::bind_trainer(m);
  qkv::python::bind_inspect(m);
}
