// SPDX-License-Identifier: Apache-2.0
#include "model/non_finite.h"

#include "core/finite.h"
#include "qkv/error.h"

namespace qkv {

std::string non_finite_cause(const Model& model, const ModelState* state) {
  if (!model.inference_only()) {
    for (std::size_t i = 0; i < model.infos().size(); ++i) {
      const std::int64_t bad = first_non_finite(model.parameters()[i].view());
      if (bad >= 0)
        return "parameter '" + model.infos()[i].name + "': element " + std::to_string(bad) + " is not finite";
    }
  }
  if (state)
    for (std::size_t layer = 0; layer < state->layers.size(); ++layer)
      if (!state->layers[layer].finite())
        return "the " + std::string(dtype_name(state->layers[layer].k().dtype)) + " KV cache of layer " +
               std::to_string(layer) + " is not finite";
  return std::string("all parameters") + (state ? " and the KV cache" : "") +
         " are finite, so a sum is too large for " + std::string(dtype_name(model.dtype()));
}

void require_finite(const char* where, const char* what, const Model& model, const ConstView& result) {
  const std::int64_t bad = first_non_finite(result);
  if (bad < 0) return;
  throw NonFiniteError("[" + std::string(where) + "] expected finite " + what +
                       "; found NaN or infinity: " + non_finite_cause(model));
}

}  // namespace qkv
