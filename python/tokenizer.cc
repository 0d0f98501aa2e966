// SPDX-License-Identifier: Apache-2.0
// qkv.Tokenizer.
#include <nanobind/stl/string.h>
#include <qkv/tokenizer.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "bind.h"
#include "model_core.h"
#include "text.h"

namespace qkv::python {
namespace {

std::string bytes_of(nb::handle given) {
  std::optional<std::string> bytes = text_bytes(given);
  if (!bytes) throw nb::type_error("[tokenizer] text must be str or bytes");
  return *std::move(bytes);
}

nb::object ids_array(const std::vector<std::int32_t>& ids) {
  Tensor tensor(Dims{static_cast<std::int64_t>(ids.size())}, DType::i32);  // [ids]
  std::copy(ids.begin(), ids.end(), tensor.data<std::int32_t>());
  return to_numpy(std::move(tensor));
}

std::string decoded(const Tokenizer& tokenizer, nb::handle ids) {
  const TokenRows rows = token_rows("ids", ids);
  return tokenizer.decode(rows.tokens);
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  using nb::arg;
  nb::class_<Tokenizer>(m, "Tokenizer", "Text to token ids and back. Text is str or arbitrary bytes.")
      .def_static("bytes", &Tokenizer::bytes, "256 tokens, id = byte, and an end token.")
      .def_static(
          "load", [](nb::handle path) { return Tokenizer::load(path_of(path)); }, arg("path"),
          nb::sig("def load(path: str | os.PathLike) -> Tokenizer"), "Loads tokenizer.json. Raises FileError.")
      .def_static(
          "train_bpe",
          [](nb::handle text, std::int64_t size) {
            const std::string bytes = bytes_of(text);
            const nb::gil_scoped_release released;
            return Tokenizer::train_bpe(bytes, size, {});
          },
          arg("text"), arg("size"), nb::sig("def train_bpe(text: str | Bytes, size: int) -> Tokenizer"),
          "Trains byte-level BPE on a text; size includes the 256 bytes and the end token.")
      .def_static(
          "train_harris",
          [](nb::handle text, std::int64_t size) {
            const std::string bytes = bytes_of(text);
            const nb::gil_scoped_release released;
            return Tokenizer::train_harris(bytes, size);
          },
          arg("text"), arg("size"), nb::sig("def train_harris(text: str | Bytes, size: int) -> Tokenizer"),
          "Morpheme segments by Zellig Harris's method; size as for train_bpe.")
      .def("__len__", &Tokenizer::size)
      .def_prop_ro("size", &Tokenizer::size, "Number of ids.")
      .def_prop_ro("end_token", &Tokenizer::end_token, "-1 if there is none.")
      .def_prop_ro("begin_token", &Tokenizer::begin_token, "Token that a model expects before every text; -1 if none.")
      .def(
          "encode",
          [](const Tokenizer& self, nb::handle text, bool special) {
            const std::string bytes = bytes_of(text);
            std::vector<std::int32_t> ids;
            {
              const nb::gil_scoped_release released;
              ids = self.encode(bytes, special ? SpecialTokens::as_ids : SpecialTokens::as_text);
            }
            return ids_array(ids);
          },
          arg("text"), nb::kw_only(), arg("special") = false,
          nb::sig("def encode(self, text: str | Bytes, *, special: bool = False) -> numpy.ndarray"),
          "Ids, i32. special: '<|endoftext|>' and the like in the text become control tokens.")
      .def(
          "decode", [](const Tokenizer& self, nb::handle ids) { return unicode(decoded(self, ids)); }, arg("ids"),
          nb::sig("def decode(self, ids: Integers) -> str"),
          "The text; invalid UTF-8 bytes become lone surrogates (surrogateescape), which encode() converts back.")
      .def(
          "decode_bytes",
          [](const Tokenizer& self, nb::handle ids) {
            const std::string bytes = decoded(self, ids);
            return nb::bytes(bytes.data(), bytes.size());
          },
          arg("ids"), nb::sig("def decode_bytes(self, ids: Integers) -> Bytes"), "The text's bytes.")
      .def(
          "save", [](const Tokenizer& self, nb::handle path) { self.save(path_of(path)); }, arg("path"),
          nb::sig("def save(self, path: str | os.PathLike) -> None"),
          "Writes tokenizer.json, atomically. Raises FileError.")
      .def("json", &Tokenizer::json, "The text of tokenizer.json.");
}

}  // namespace qkv::python
