// SPDX-License-Identifier: Apache-2.0
// PyTorch's results for the tiny models; scripts/make_golden.py makes the files and documents their contents.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "model/tiny_models.h"
#include "qkv/array_file.h"

namespace qkv::test {

inline Tensor golden(const std::string& name, const std::string& what) {
  return load_npy(std::string(QKV_GOLDEN_DIR) + "/" + name + "_" + what + ".npy");
}

inline Tokens golden_tokens(const std::string& name) {
  const Tensor tokens = golden(name, "tokens"), targets = golden(name, "targets");
  Tokens t{tokens.shape()[0], tokens.shape()[1], {}, {}, {}};
  t.tokens.assign(tokens.data<std::int32_t>(), tokens.data<std::int32_t>() + tokens.size());
  t.targets.assign(targets.data<std::int32_t>(), targets.data<std::int32_t>() + targets.size());
  return t;
}

template <class T>
void set_parameters(Model& model, const std::string& name) {
  const Tensor flat = golden(name, "parameters");
  std::int64_t at = 0;
  for (Tensor& p : *model.change_parameters())
    for (std::int64_t i = 0; i < p.size(); ++i) {
      ASSERT_LT(at, flat.size());
      p.data<T>()[i] = flat.data()[at++];
    }
  ASSERT_EQ(at, flat.size());
}

}  // namespace qkv::test
