// SPDX-License-Identifier: Apache-2.0
// Reads and writes a model's configuration as keys of a GGUF file.
#pragma once

#include "formats/families/family.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"

namespace qkv {

// Maps keys "TYPE.NAME" of an architecture to configuration members. The same calls read and write, so that a family
// names each key once (families/family.h).
class GgufKeys {
 public:
  GgufKeys(const Gguf& file, const Family& family);
  GgufKeys(GgufWriter& file, const Family& family);

  bool reads() const noexcept { return from_ != nullptr; }
  const Gguf& file() const { return *from_; }   // only when reading
  GgufWriter& written() const { return *to_; }  // only when writing
  std::string full(const std::string& name);    // "llama.NAME"; marks the key as known

  void size(const std::string& name, std::int64_t& member);                          // required
  void size(const std::string& name, std::int64_t& member, std::int64_t otherwise);  // default if absent
  void positive(const std::string& name, double& member);
  void positive(const std::string& name, double& member, double otherwise);
  // Set if any of the tensors exists.
  void by_tensors(bool& member, std::initializer_list<const char*> tensors);
  // If present, the key must have this value, since any other would change the computation. Not written.
  void only(const std::string& name, std::int64_t value);
  void ignore(const std::string& name) { full(name); }
  void refuse_others() const;  // fails on keys of the architecture not named above

 private:
  const Gguf* from_ = nullptr;
  GgufWriter* to_ = nullptr;
  std::string prefix_;
  std::vector<std::string> known_;
};

// Whether the file claims to contain a model of a known family: the architecture and at least one key of it.
bool gguf_holds_model(const Gguf& file) noexcept;

const Family& read_gguf_family(const Gguf& file);  // throws qkv::FileError for an unknown architecture

// Resolved. Members without a key (biases, a tied head, rotary frequency factors) follow from the tensors present.
// Every key of the architecture that affects the computation is honoured or rejected by name. Throws qkv::FileError.
// The caller must check the tensors' sizes.
ModelConfig read_gguf_config(const Gguf& file, const Family& family);

// The family to write a configuration as. Throws std::invalid_argument that lists every unsupported member.
const Family& gguf_family_of(const ModelConfig& config);
void write_gguf_config(GgufWriter& file, const Family& family, const ModelConfig& config);

// Where parameters are written: Q, K and V joined if the family does so.
std::vector<TensorPlace> gguf_places(const Family& family, const ModelConfig& config,
                                     const std::vector<ParameterInfo>& infos);

}  // namespace qkv
