// SPDX-License-Identifier: Apache-2.0
#include "model/lora.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "core/parallel.h"

namespace qkv {
namespace {

constexpr std::int64_t kRows = 16;     // rows of a matrix per tile
constexpr std::int64_t kColumns = 64;  // columns of a matrix per tile

// One matrix of a module: its columns are rows first ... first + columns - 1 of B.
struct Part {
  std::int64_t in, columns, first;
};

// b [out, rank], rows first ... first + columns - 1, as [rank, columns]
template <class T>
std::vector<T> transposed(const Tensor& b, const Part& part, std::int64_t rank) {
  std::vector<T> bt(static_cast<std::size_t>(rank * part.columns));
  const T* rows = b.data<T>() + part.first * rank;
  for (std::int64_t j = 0; j < part.columns; ++j)
    for (std::int64_t r = 0; r < rank; ++r) bt[static_cast<std::size_t>(r * part.columns + j)] = rows[j * rank + r];
  return bt;
}

// base [in, columns] -> to [in, columns]
template <class T>
void merge(const Part& part, std::int64_t rank, T scale, const Tensor& a, const Tensor& b, const Tensor& base,
           Tensor& to) {
  const std::vector<T> bt = transposed<T>(b, part, rank);  // [rank, columns]
  const T *av = a.data<T>(), *from = base.data<T>();
  T* w = to.data<T>();
  parallel_ranges(part.in, kRows, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> change(static_cast<std::size_t>(part.columns));  // [columns]
    for (std::int64_t i = begin; i < end; ++i) {
      std::fill(change.begin(), change.end(), T{0});
      for (std::int64_t r = 0; r < rank; ++r) {
        const T x = av[r * part.in + i];
        const T* row = bt.data() + r * part.columns;
        for (std::int64_t j = 0; j < part.columns; ++j) change[static_cast<std::size_t>(j)] += x * row[j];
      }
      for (std::int64_t j = 0; j < part.columns; ++j) {
        const std::int64_t at = i * part.columns + j;
        const T c = change[static_cast<std::size_t>(j)];
        w[at] = c == 0 ? from[at] : from[at] + scale * c;  // -0 stays -0
      }
    }
  });
}

// dw [in, columns]: adds its contribution to da [rank, in] and overwrites its rows of db [out, rank]
template <class T>
void project(const Part& part, std::int64_t rank, T scale, const Tensor& a, const Tensor& b, const Tensor& dw,
             Tensor& da, Tensor& db) {
  const std::vector<T> bt = transposed<T>(b, part, rank);  // [rank, columns]
  const T *g = dw.data<T>(), *av = a.data<T>();
  T *dav = da.data<T>(), *dbv = db.data<T>() + part.first * rank;
  parallel_ranges(part.in, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t r = 0; r < rank; ++r) {
        const T *row = g + i * part.columns, *other = bt.data() + r * part.columns;
        double sum = 0;
        for (std::int64_t j = 0; j < part.columns; ++j)
          sum += static_cast<double>(row[j]) * static_cast<double>(other[j]);
        dav[r * part.in + i] += scale * static_cast<T>(sum);
      }
  });
  parallel_ranges(part.columns, kColumns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = end - begin;
    std::vector<double> sums(static_cast<std::size_t>(rank * count));  // [rank, count]
    for (std::int64_t i = 0; i < part.in; ++i)
      for (std::int64_t r = 0; r < rank; ++r) {
        const double x = static_cast<double>(av[r * part.in + i]);
        const T* row = g + i * part.columns + begin;
        double* to = sums.data() + r * count;
        for (std::int64_t j = 0; j < count; ++j) to[j] += x * static_cast<double>(row[j]);
      }
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t r = 0; r < rank; ++r)
        dbv[(begin + j) * rank + r] = scale * static_cast<T>(sums[static_cast<std::size_t>(r * count + j)]);
  });
}

// Calls f.template operator()<T>(part, i) for each matrix of a module.
template <class F>
void each_part(const LoraAdapters& adapters, std::size_t module, const std::vector<const Tensor*>& matrices,
               const F& f) {
  const std::int64_t in = adapters.values[2 * module].shape()[1];
  std::int64_t first = 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Part part{in, matrices[i]->shape()[1], first};
    if (matrices[i]->dtype() == DType::f64)
      f.template operator()<double>(part, i);
    else
      f.template operator()<float>(part, i);
    first += part.columns;
  }
}

void check_fits(const Model& model, const LoraAdapters& adapters) {
  bool fits = adapters.values.size() == 2 * adapters.modules.size();
  for (std::size_t m = 0; fits && m < adapters.modules.size(); ++m) {
    const Tensor &a = adapters.values[2 * m], &b = adapters.values[2 * m + 1];
    std::int64_t out = 0, in = -1;
    for (const std::size_t p : adapters.modules[m].parameters) {
      fits = fits && p < model.infos().size() && model.infos()[p].shape.rank() == 2;
      if (!fits) break;
      fits = in < 0 || in == model.infos()[p].shape[0];
      in = model.infos()[p].shape[0];
      out += model.infos()[p].shape[1];
    }
    fits = fits && in > 0 && a.shape() == Dims{adapters.rank, in} && b.shape() == Dims{out, adapters.rank} &&
           a.dtype() == model.dtype() && b.dtype() == model.dtype();
  }
  if (!fits) throw std::invalid_argument("[lora] expected adapters of this model; found other names or shapes");
}

}  // namespace

std::string LoraAdapters::tensor_name(std::size_t value) const {
  return "base_model.model." + modules[value / 2].name + (value % 2 == 0 ? ".lora_A.weight" : ".lora_B.weight");
}

void merge_lora(const LoraAdapters& adapters, std::size_t module, const std::vector<const Tensor*>& base,
                const std::vector<Tensor*>& to) {
  each_part(adapters, module, base, [&]<class T>(const Part& part, std::size_t i) {
    merge<T>(part, adapters.rank, static_cast<T>(adapters.scale), adapters.values[2 * module],
             adapters.values[2 * module + 1], *base[i], *to[i]);
  });
}

void lora_gradients(const LoraAdapters& adapters, std::size_t module, const std::vector<const Tensor*>& dw, Tensor& da,
                    Tensor& db) {
  std::fill_n(static_cast<char*>(da.raw()), da.bytes(), char{0});
  each_part(adapters, module, dw, [&]<class T>(const Part& part, std::size_t i) {
    project<T>(part, adapters.rank, static_cast<T>(adapters.scale), adapters.values[2 * module],
               adapters.values[2 * module + 1], *dw[i], da, db);
  });
}

void add_lora(Model& model, const LoraAdapters& adapters) {
  check_fits(model, adapters);
  const Model::ParameterAccess parameters = model.change_parameters();
  for (std::size_t m = 0; m < adapters.modules.size(); ++m) {
    std::vector<const Tensor*> base;
    std::vector<Tensor*> to;
    for (const std::size_t p : adapters.modules[m].parameters) {
      base.push_back(&parameters[p]);
      to.push_back(&parameters[p]);
    }
    merge_lora(adapters, m, base, to);
  }
}

}  // namespace qkv
