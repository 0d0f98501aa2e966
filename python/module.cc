// SPDX-License-Identifier: Apache-2.0
// The compiled part of the Python package: exception translation, and the module's functions and classes.
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

// qkv.FileError is an OSError with the path and byte offset; qkv.TrainingDiverged is a RuntimeError with the step;
// qkv.QueueFullError is a RuntimeError.
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
  nb::set_leak_warnings(false);  // objects still alive at exit are not an error
  nb::register_exception_translator(translate_error);
  m.attr("__version__") = QKV_VERSION;
  m.def("set_num_threads", &qkv::set_num_threads, nb::arg("threads"),
        "Sets the number of threads for all later calls, process-wide; 0 = one per core. Results do not depend on it. "
        "Do not call while another thread computes.");
  m.def("num_threads", &qkv::num_threads, "Number of compute threads.");
  m.def("kernel_set", &qkv::kernel_set,
        "'portable', 'avx2', 'avx512' or 'avx512_bf16'; QKV_KERNELS selects one, QKV_CPU limits the processor level.");
  qkv::python::bind_attention(m);
  qkv::python::bind_attention_backward(m);
  qkv::python::bind_kv_cache(m);
  qkv::python::bind_tokenizer(m);
  qkv::python::bind_model(m);
  qkv::python::bind_engine(m);
  qkv::python::bind_trainer(m);
  qkv::python::bind_inspect(m);
}
