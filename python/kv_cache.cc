// SPDX-License-Identifier: Apache-2.0
// qkv.KvCache: the KV cache of one attention layer.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <qkv/kv_cache.h>

#include <memory>
#include <mutex>
#include <string>

#include "array.h"
#include "bind.h"
#include "call.h"

namespace qkv::python {
namespace {

// Serializes calls from Python threads.
struct PythonCache {
  KvCache cache;
  std::int64_t d_v;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();

  template <class Work>
  auto alone(const Work& work) {
    const nb::gil_scoped_release released;
    const std::lock_guard<std::mutex> held(*mutex);
    return work();
  }
};

KvCache make(std::int64_t batch, std::int64_t n_kv_head, std::int64_t d_k, std::int64_t d_v, std::int64_t capacity,
             std::int64_t window, const std::string& dtype) {
  return KvCache(batch, n_kv_head, d_k, d_v, capacity, window, dtype_from_name(dtype));
}

nb::object attend(PythonCache& self, nb::handle q, std::optional<std::int64_t> window_left, bool return_lse,
                  const nb::kwargs& keywords) {
  const Borrowed queries("q", q);
  const ConstView& view = queries.view();
  if (view.rank() != 4)
    throw std::invalid_argument("[attention] q must be [batch, n_head, q_len, d_k]; found shape " +
                                to_string(view.shape));
  AttentionOptions options;
  options.window_left = window_left.value_or(-1);
  Options given(keywords);
  given.take_others(options);
  given.finish("attend");
  const DType dtype = self.cache.query_dtype(), sum = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Framework framework = framework_of(q);
  const DType out_dtype = view.dtype == dtype ? dtype : sum;
  const Result out(framework, q, Dims{view.shape[0], view.shape[1], view.shape[2], self.d_v}, out_dtype);
  const Result lse(framework, q, Dims{view.shape[0], view.shape[1], view.shape[2]}, sum);
  self.alone([&] { self.cache.attend(view, options, {.out = out.view(), .lse = lse.view(), .probs = {}}); });
  return return_lse ? nb::object(nb::make_tuple(out.object(), lse.object())) : out.object();
}

}  // namespace

void bind_kv_cache(nb::module_& m) {
  using nb::arg;
  nb::class_<PythonCache>(m, "KvCache", "KV cache of one attention layer: keys and values of the tokens so far.")
      .def(
          "__init__",
          [](PythonCache* self, std::int64_t batch, std::int64_t n_kv_head, std::int64_t d_k, std::int64_t d_v,
             std::int64_t capacity, std::int64_t window, const std::string& dtype) {
            new (self) PythonCache{make(batch, n_kv_head, d_k, d_v, capacity, window, dtype), d_v};
          },
          arg("batch"), arg("n_kv_head"), arg("d_k"), arg("d_v"), arg("capacity"), nb::kw_only(), arg("window") = 0,
          arg("dtype") = "f32",
          "Holds up to capacity tokens; window > 0: a rolling cache for models whose tokens see that many tokens, "
          "including themselves. dtype: 'f32', 'bf16', 'f16', 'q8_0' or 'f64'. Raises ValueError.")
      .def(
          "append",
          [](PythonCache& self, nb::handle k, nb::handle v) {
            const Borrowed keys("k", k), values("v", v);
            self.alone([&] { self.cache.append(keys.view(), values.view()); });
          },
          arg("k"), arg("v"), nb::sig("def append(self, k: Array, v: Array) -> None"),
          "Appends keys [batch, n_kv_head, new_len, d_k] and values [batch, n_kv_head, new_len, d_v], rounded to the "
          "cache's type. Raises ValueError and leaves the cache unchanged.")
      .def("attend", &attend, arg("q"), nb::kw_only(), arg("window_left").none() = nb::none(),
           arg("return_lse") = false, arg("options"),
           nb::sig("def attend(self, q: Array, *, scale: float | None = None, softcap: float = 0.0, window_left: int | "
                   "None = None, alibi: Array | None = None, sinks: Array | None = None, return_lse: bool = False) -> "
                   "typing.Any"),
           "Causal attention of the newest q_len tokens over the whole cache. q [batch, n_head, q_len, d_k]; their "
           "keys must already be in the cache. Bit-identical to a full pass.")
      .def_prop_ro(
          "size", [](PythonCache& self) { return self.cache.size(); }, "Tokens in the cache.")
      .def("__len__", [](PythonCache& self) { return self.cache.size(); })
      .def_prop_ro(
          "first_key", [](PythonCache& self) { return self.cache.first_key(); },
          "Absolute position of the oldest token in the cache.")
      .def_prop_ro("capacity", [](PythonCache& self) { return self.cache.capacity(); })
      .def_prop_ro("bytes_per_token", [](PythonCache& self) { return self.cache.bytes_per_token(); })
      .def(
          "discard_oldest",
          [](PythonCache& self, std::int64_t count) { self.alone([&] { self.cache.discard_oldest(count); }); },
          arg("count"))
      .def(
          "truncate", [](PythonCache& self, std::int64_t size) { self.alone([&] { self.cache.truncate(size); }); },
          arg("size"), "Keeps only the oldest size tokens.")
      .def("clear", [](PythonCache& self) { self.alone([&] { self.cache.clear(); }); });
}

}  // namespace qkv::python
