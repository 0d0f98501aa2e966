// SPDX-License-Identifier: Apache-2.0
// Inspecting a model: the activations of one forward pass over one text, and analyses of them. qkv/trace.h has the sink
// interface that receives the activations.
//
// Attention weights are coefficients for mixing values. They do not prove what a head does; ablation and patching
// (below) change a head's output and measure the effect.
//
// Functions that take a Model run it and are not thread-safe; the others are. Misuse throws std::invalid_argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qkv/model.h"
#include "qkv/tensor.h"
#include "qkv/tokenizer.h"
#include "qkv/trace.h"

namespace qkv {

// Sizes are those of the layer; layers may have different numbers of heads. All tensors are f32, row-major. Tensors
// that were not requested, or that the model does not have, are empty (size() == 0).
struct TraceLayer {
  Tensor q;               // [ctx, n_head, head_dim]      before RoPE, after QK-norm
  Tensor k;               // [ctx, n_kv_head, head_dim]   query head h uses key head h / (n_head / n_kv_head)
  Tensor v;               // [ctx, n_kv_head, v_head_dim]
  Tensor rot_q;           // [ctx, n_head, head_dim]      after RoPE; empty without it
  Tensor rot_k;           // [ctx, n_kv_head, head_dim]
  Tensor products;        // [n_head, ctx, ctx]           q . k (rot_q . rot_k): query, then key
  Tensor scaled;          // [n_head, ctx, ctx]           products / sqrt(head_dim), or times attention_scale
  Tensor scores;          // [n_head, ctx, ctx]           scaled, then softcap and ALiBi; -inf where key > query or
                          //                              outside the window
  Tensor pattern;         // [n_head, ctx, ctx]           softmax of scores, including sinks; exactly 0 for -inf
  Tensor z;               // [ctx, n_head, v_head_dim]    pattern . v
  Tensor attn_out;        // [ctx, d_model]               attention's addition to the residual stream
  Tensor resid_pre;       // [ctx, d_model]
  Tensor ln1_scale;       // [ctx, 1]                     attention's norm: divisor of each token's vector
  Tensor ln1_normalized;  // [ctx, d_model]               rmsnorm: before its gain; layernorm: its result
  Tensor ln2_scale;       // [ctx, 1]                     the MLP's norm
  Tensor ln2_normalized;  // [ctx, d_model]
  Tensor resid_mid;       // [ctx, d_model]               empty if attention and MLP are parallel
  Tensor resid_post;      // [ctx, d_model]
  Tensor mlp_pre;         // [ctx, d_ff]
  Tensor mlp_pre_linear;  // [ctx, d_ff]                  gated MLPs only
  Tensor mlp_post;        // [ctx, d_ff]
  Tensor mlp_out;         // [ctx, d_model]               the MLP's addition to the residual stream

  // The tensor of one of the kLayerSites layer sites.
  Tensor& at(TraceSite site);
  const Tensor& at(TraceSite site) const;
};

// Activations outside the layers.
struct TraceAround {
  Tensor embed;                // [ctx, d_model]  token embeddings
  Tensor pos_embed;            // [ctx, d_model]  position embeddings; learned positions only
  Tensor embed_ln_scale;       // [ctx, 1]        the norm after their sum, if there is one
  Tensor embed_ln_normalized;  // [ctx, d_model]
  Tensor ln_final_scale;       // [ctx, 1]        the norm before the head, if there is one
  Tensor ln_final_normalized;  // [ctx, d_model]

  // The tensor of one of the other sites.
  Tensor& at(TraceSite site);
  const Tensor& at(TraceSite site) const;
};

// Logit lens (nostalgebraist, 2020): next-token probabilities if the model ended here, softmax of unembed(stream).
struct LensStage {
  Tensor top_ids;    // [ctx, top] i32   most probable tokens, descending; ties to the lowest id
  Tensor top_probs;  // [ctx, top] f32
  Tensor next_prob;  // [ctx] f32        of the actual next token in the text; 0 at the last position
  Tensor last_prob;  // [ctx] f32        of the last stage's most probable token
  Tensor entropy;    // [ctx] f32        of the whole distribution, in nats
};

// How much a head behaves in known ways: the mean attention weight on one key, over the queries of a repeated sequence
// of random tokens (Olsson et al., "In-context learning and induction heads", 2022). 0 ... 1 each. The sequence is
// [begin] r0 ... r(n-1) r0 ... r(n-1); the random tokens are distinct if the vocabulary allows.
struct HeadScores {
  std::int64_t layer = 0, head = 0;
  double previous_token = 0;   // query i attends to key i - 1
  double first_token = 0;      // query i attends to key 0
  double duplicate_token = 0;  // in the second copy: query i attends to key i - n, the same token
  double induction = 0;        // in the second copy: query i attends to key i - n + 1, the token after the same token
};

// One forward pass over one text.
struct Trace {
  std::string model;                 // display name; may be empty
  ModelConfig config;                // resolved
  std::vector<std::int32_t> tokens;  // [ctx]
  std::vector<std::string> pieces;   // [ctx] the tokens' bytes; may be partial characters
  std::vector<TraceLayer> layers;    // [n_layer]
  TraceAround around;
  Tensor logits;                // [ctx, vocab_size] f32: row t predicts token t + 1
  std::vector<LensStage> lens;  // [n_layer + 1]: stage 0 is layer 0's input, stage n_layer is the output; or empty
  Tensor rollout;               // [n_layer, ctx, ctx] f32: see attention_rollout; or empty
  std::vector<HeadScores> head_scores;  // of every head, by layer, then head; or empty

  std::int64_t ctx() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
};

struct TraceOptions {
  std::vector<TraceSite> sites = {};  // sites to record; empty: all. The lens needs resid_pre and resid_post, rollout
                                      // needs pattern; these are then recorded too
  std::int64_t lens_top = 5;          // tokens per stage of the lens; 0: no lens
  bool rollout = true;
  TraceSink* also = nullptr;  // receives the same pass, before it is recorded; may be null
};

// Records one forward pass; nothing is recomputed. If one of attention's matrices is recorded, attention runs on its
// reference path, and all values equal those of the other paths up to rounding. Memory: 4 matrices [n_head, ctx, ctx]
// f32 per layer, and the activations (trace_bytes). Throws std::invalid_argument for no tokens, a token outside the
// vocabulary, more tokens than ctx_len, or insufficient memory.
Trace trace_text(Model& model, std::span<const std::int32_t> tokens, const TraceOptions& options = {});
// The same, filling in the tokens' bytes (pieces).
Trace trace_text(Model& model, const Tokenizer& tokenizer, std::span<const std::int32_t> tokens,
                 const TraceOptions& options = {});

// Bytes of attention's matrices and logits in trace_text(..., options): nearly all of its memory.
std::int64_t trace_bytes(const ModelConfig& config, std::int64_t ctx, const TraceOptions& options);

// Records the activations of a pass over one sequence; the sink behind trace_text, for use with your own passes.
class TraceRecorder : public TraceSink {
 public:
  explicit TraceRecorder(std::int64_t n_layer, std::vector<TraceSite> sites = {});  // empty: everything
  bool wants(TraceSite site, std::int64_t layer) const override;
  void visit(const Traced& traced) override;

  std::vector<TraceLayer> layers;
  TraceAround around;

 private:
  std::vector<bool> wanted_;  // [kTraceSites]
};

// Writes the activations of a pass over one sequence to DIR/NAME.npy during the pass, so that only one layer's matrices
// are in memory at a time. f32, with TransformerLens names and shapes and a leading batch axis of 1:
// blocks.0.attn.hook_q.npy [1, ctx, n_head, head_dim], blocks.0.attn.hook_pattern.npy [1, n_head, ctx, ctx],
// ln_final.hook_scale.npy [1, ctx, 1] and so on (hook_name); products and scaled, which TransformerLens has no hooks
// for, are omitted. Throws qkv::FileError.
class TraceSaver : public TraceSink {
 public:
  explicit TraceSaver(std::string directory);  // created if missing
  bool wants(TraceSite site, std::int64_t layer) const override;
  void visit(const Traced& traced) override;
  // tokens.npy [1, ctx] i64 and logits.npy [1, ctx, vocab_size]
  void save_ends(std::span<const std::int32_t> tokens, const Tensor& logits);

  std::int64_t files = 0;  // written so far

 private:
  std::string directory_;
};

// The lens of each stage, from the trace's residual stream and logits: stages 0 ... n_layer - 1 are unembed(resid_pre),
// the last is the logits themselves. `top` is at least 1, clamped to vocab_size. Throws std::invalid_argument if the
// trace does not have them.
std::vector<LensStage> logit_lens(Model& model, const Trace& trace, std::int64_t top);
// One stage: logits [ctx, vocab_size] f32; next: [ctx - 1] the token after each position; last: [ctx] the token for
// last_prob.
LensStage lens_stage(const Tensor& logits, std::int64_t top, std::span<const std::int32_t> next,
                     std::span<const std::int32_t> last);

// Attention rollout (Abnar and Zuidema, "Quantifying attention flow in transformers", 2020): the share of each input
// token in each position's residual stream after a layer, weighting all heads equally and the residual by a half:
// R[l] = (mean over heads of pattern[l] + I) / 2 . R[l - 1], R[-1] = I.
// patterns: [n_layer] of [the layer's n_head, ctx, ctx] f32 -> [n_layer, ctx, ctx] f32, each row sums to 1.
Tensor attention_rollout(std::span<const Tensor* const> patterns);

struct HeadScoreOptions {
  // Tokens in the repeated sequence; 0: as many as fit twice into ctx_len, at most 64 and at most the alphabet's size,
  // so that they are distinct.
  std::int64_t length = 0;
  std::int64_t sequences = 4;               // random sequences; the scores are means over them
  std::int32_t begin_token = -1;            // put before the sequence; -1: none
  std::int64_t vocab_limit = 0;             // random tokens are below it; 0: vocab_size
  std::vector<std::int32_t> alphabet = {};  // sample random tokens only from these; empty: the vocabulary
  std::uint64_t seed = 1;
};
// By layer, then head. Query 0, which only sees itself, and query 1, whose previous token is also the first, are
// excluded from all scores. For a model trained on only part of its vocabulary (e.g. bytes), pass that part as the
// alphabet. Throws std::invalid_argument unless 3 <= length and both copies fit into ctx_len.
std::vector<HeadScores> head_scores(Model& model, const HeadScoreOptions& options = {});

struct HeadId {
  std::int64_t layer = 0, head = 0;
};
std::vector<HeadId> all_heads(const ModelConfig& config);  // resolved; by layer, then head

// Statistics of a query's attention weights: entropy in nats, and the weights on the first token, the previous token
// and the query's own token.
struct PatternFacts {
  double entropy = 0, first = 0, previous = 0, own = 0;
};
// row [query + 1]: the weights on keys 0 ... query.
PatternFacts pattern_facts(std::span<const float> row);
// Mean over queries 2 and later of a pattern [ctx, ctx], where the three tokens differ; over all queries if ctx <= 2.
PatternFacts mean_pattern_facts(std::span<const float> pattern, std::int64_t ctx);
// The `top` keys of a row with the largest weights, descending; ties to the lowest position, NaN last.
std::vector<std::int64_t> top_keys(std::span<const float> row, std::size_t top);

// Effect on the prediction after the text of changing heads' outputs (z) at every position.
struct HeadEffect {
  std::vector<float> before, after;  // [vocab_size] probabilities
  double kl = 0;                     // sum of before * ln(before / after), in nats; 0: no change
};
// zeroed: heads whose z is set to 0. patched: heads whose z is taken from the other text; the two texts are aligned at
// their last tokens, and z is unchanged where the other is shorter. Throws std::invalid_argument for a head that does
// not exist or is in both lists, and for patched heads without another text.
HeadEffect head_effect(Model& model, std::span<const std::int32_t> tokens, std::span<const HeadId> zeroed,
                       std::span<const HeadId> patched = {}, std::span<const std::int32_t> other = {});

// Writes every activation of a trace as TraceSaver does, with tokens and logits. Returns the number of files; throws
// qkv::FileError.
std::int64_t save_trace(const std::string& directory, const Trace& trace);

struct InspectPageOptions {
  std::size_t most_bytes = 5'000'000;
  std::vector<HeadId> first = {};  // heads whose q, k, v and z are stored first if not all fit
};
// The inspect page: one self-contained HTML file of at most most_bytes (docs/inspect.md), made only from the trace. The
// more data, the lower its precision; the page states the error bounds. Needs q, k, v, z, scaled and pattern of every
// layer; uses lens, rollout and head_scores if the trace has them. Throws std::invalid_argument if required tensors are
// missing or not finite, if the text is too long for most_bytes, if layers have different heads, or if scores are not q
// . k / sqrt(head_dim) under a causal mask (window, softcap, ALiBi, sinks, custom scale).
std::string inspect_page(const Trace& trace, const Tokenizer& tokenizer, const InspectPageOptions& options = {});

// Throws std::invalid_argument, with about how many tokens would fit, if a page of these tokens cannot fit in
// most_bytes; for use before the full pass. Because attention is causal, the weights of a prefix are the first rows of
// the full text's weights, so the page is larger than they are. That prefix is evaluated only if the text is so long
// that its weights would get less than 3 bits each. Text that passes may still be too large for inspect_page.
void require_page_fits(Model& model, std::span<const std::int32_t> tokens, const InspectPageOptions& options = {});

}  // namespace qkv
