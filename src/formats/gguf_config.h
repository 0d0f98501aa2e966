// SPDX-License-Identifier: Apache-2.0
// The configuration of a model in the keys of a GGUF file.
#pragma once

#include "formats/families/family.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"

namespace qkv {

// The keys "TYPE.NAME" of an architecture and the members they are about. The same calls read a file and write one, so
// that a family names each key once (families/family.h).
class GgufKeys {
 public:
  GgufKeys(const Gguf& file, const Family& family);
  GgufKeys(GgufWriter& file, const Family& family);

  bool reads() const noexcept { return from_ != nullptr; }
  const Gguf& file() const { return *from_; }   // where it reads
  GgufWriter& written() const { return *to_; }  // where it writes
  std::string full(const std::string& name);    // "llama.NAME", known from then on

  void size(const std::string& name, std::int64_t& member);                          // must be there
  void size(const std::string& name, std::int64_t& member, std::int64_t otherwise);  // if it is absent
  void positive(const std::string& name, double& member);
  void positive(const std::string& name, double& member, double otherwise);
  // Told by whether one of some tensors is there.
  void by_tensors(bool& member, std::initializer_list<const char*> tensors);
  // A key that may be there with this value only, since any other would change what is computed. Not written.
  void only(const std::string& name, std::int64_t value);
  void ignore(const std::string& name) { full(name); }
  void refuse_others() const;  // keys of the architecture that nobody has asked for

 private:
  const Gguf* from_ = nullptr;
  GgufWriter* to_ = nullptr;
  std::string prefix_;
  std::vector<std::string> known_;
};

// Whether a file says of itself that it holds a model of a known family: by its architecture and a key of it.
bool gguf_holds_model(const Gguf& file) noexcept;

const Family& read_gguf_family(const Gguf& file);  // throws qkv::FileError for another architecture, by its name

// Resolved. What the keys leave open (biases, a tied head, factors of rotary frequencies) is told by the tensors that
// are there. Every key of the architecture that changes the numbers is honoured, or refused by its name. Throws
// qkv::FileError. Whoever reads the tensors holds the sizes against theirs.
ModelConfig read_gguf_config(const Gguf& file, const Family& family);

// The family as which a configuration is written. Throws std::invalid_argument that names every member that does not
// fit.
const Family& gguf_family_of(const ModelConfig& config);
void write_gguf_config(GgufWriter& file, const Family& family, const ModelConfig& config);

// Where the parameters are that writers write: Q, K and V joined if the family has them so.
std::vector<TensorPlace> gguf_places(const Family& family, const ModelConfig& config,
                                     const std::vector<ParameterInfo>& infos);

}  // namespace qkv
