// SPDX-License-Identifier: Apache-2.0
// Looking inside a model: everything that one forward pass over one text made, and what can be told from it. The sink
// that a pass hands its activations to is qkv/trace.h's.
//
// Attention weights are coefficients for mixing values. They are no proof of what a head means; ablation and patching
// (below) change a head's output and show what follows.
//
// Functions that take a Model compute with it and are not thread-safe; the others may be called from several threads.
// Misuse throws std::invalid_argument.
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

// Sizes are those of the layer, whose numbers of heads may differ. All tensors f32, row-major. Those that were not
// asked for, or that the model does not have, are empty (size() == 0).
struct TraceLayer {
  Tensor q;               // [ctx, n_head, head_dim]      before rotary positions, after QK-norm
  Tensor k;               // [ctx, n_kv_head, head_dim]   query head h reads key head h / (n_head / n_kv_head)
  Tensor v;               // [ctx, n_kv_head, v_head_dim]
  Tensor rot_q;           // [ctx, n_head, head_dim]      after rotary positions; empty without them
  Tensor rot_k;           // [ctx, n_kv_head, head_dim]
  Tensor products;        // [n_head, ctx, ctx]           q . k (rot_q . rot_k): query, then key
  Tensor scaled;          // [n_head, ctx, ctx]           products / sqrt(head_dim), or times attention_scale
  Tensor scores;          // [n_head, ctx, ctx]           scaled, then softcap and ALiBi; -inf where key > query or
                          //                              outside the window
  Tensor pattern;         // [n_head, ctx, ctx]           softmax of scores, sinks among them; exactly 0 for -inf
  Tensor z;               // [ctx, n_head, v_head_dim]    pattern . v
  Tensor attn_out;        // [ctx, d_model]               what attention adds to the stream
  Tensor resid_pre;       // [ctx, d_model]
  Tensor ln1_scale;       // [ctx, 1]                     attention's norm: what each token's vector is divided by
  Tensor ln1_normalized;  // [ctx, d_model]               rmsnorm: before its gain; layernorm: its result
  Tensor ln2_scale;       // [ctx, 1]                     the MLP's norm
  Tensor ln2_normalized;  // [ctx, d_model]
  Tensor resid_mid;       // [ctx, d_model]               empty where attention and MLP are parallel
  Tensor resid_post;      // [ctx, d_model]
  Tensor mlp_pre;         // [ctx, d_ff]
  Tensor mlp_pre_linear;  // [ctx, d_ff]                  gated only
  Tensor mlp_post;        // [ctx, d_ff]
  Tensor mlp_out;         // [ctx, d_model]               what the MLP adds to the stream

  // Of one of the kLayerSites sites of a layer.
  Tensor& at(TraceSite site);
  const Tensor& at(TraceSite site) const;
};

// What belongs to no layer.
struct TraceAround {
  Tensor embed;                // [ctx, d_model]  the tokens' vectors
  Tensor pos_embed;            // [ctx, d_model]  the positions' vectors; learned positions only
  Tensor embed_ln_scale;       // [ctx, 1]        the norm after their sum, if there is one
  Tensor embed_ln_normalized;  // [ctx, d_model]
  Tensor ln_final_scale;       // [ctx, 1]        the norm before the head, if there is one
  Tensor ln_final_normalized;  // [ctx, d_model]

  // Of one of the other sites.
  Tensor& at(TraceSite site);
  const Tensor& at(TraceSite site) const;
};

// Next-token probabilities if the model stopped here (nostalgebraist, "logit lens", 2020): softmax of unembed(stream).
struct LensStage {
  Tensor top_ids;    // [ctx, top] i32   most probable tokens, falling; ties to the lowest id
  Tensor top_probs;  // [ctx, top] f32
  Tensor next_prob;  // [ctx] f32        of the token that does follow in the text; 0 at the last position
  Tensor last_prob;  // [ctx] f32        of the token that the last stage holds most probable
  Tensor entropy;    // [ctx] f32        of the whole distribution, in nats
};

// How much a head behaves in known ways: the mean weight of one key over the queries of random tokens that are read
// twice (Olsson et al., "In-context learning and induction heads", 2022). 0 ... 1 each. The text is
// [begin] r0 ... r(n-1) r0 ... r(n-1), random tokens all different where the vocabulary allows.
struct HeadScores {
  std::int64_t layer = 0, head = 0;
  double previous_token = 0;   // query i reads key i - 1
  double first_token = 0;      // query i reads key 0
  double duplicate_token = 0;  // in the second copy: query i reads key i - n, the same token
  double induction = 0;        // in the second copy: query i reads key i - n + 1, what followed the same token
};

// One forward pass over one text.
struct Trace {
  std::string model;                 // what the reader calls it; may be empty
  ModelConfig config;                // resolved
  std::vector<std::int32_t> tokens;  // [ctx]
  std::vector<std::string> pieces;   // [ctx] the tokens' bytes, which may be parts of characters
  std::vector<TraceLayer> layers;    // [n_layer]
  TraceAround around;
  Tensor logits;                // [ctx, vocab_size] f32: row t predicts token t + 1
  std::vector<LensStage> lens;  // [n_layer + 1]: stage 0 is what layer 0 reads, stage n_layer is the output; or empty
  Tensor rollout;               // [n_layer, ctx, ctx] f32: see attention_rollout; or empty
  std::vector<HeadScores> head_scores;  // of every head, by layer and head, or empty

  std::int64_t ctx() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
};

struct TraceOptions {
  std::vector<TraceSite> sites = {};  // what is recorded; empty: everything. The lens needs resid_pre and resid_post,
                                      // rollout needs pattern; those are then recorded too
  std::int64_t lens_top = 5;          // tokens a stage of the lens keeps; 0: no lens
  bool rollout = true;
  TraceSink* also = nullptr;  // sees the same pass, before it is recorded; may be null
};

// Records one forward pass: everything in it is what that pass made, nothing is computed a second time. Where one of
// attention's matrices is recorded, attention runs on its reference path, and all numbers equal those of the other
// paths to rounding. Memory: 4 matrices [n_head, ctx, ctx] f32 a layer, and the activations
// (trace_bytes). Throws std::invalid_argument on no tokens, a token outside the vocabulary, more tokens than ctx_len,
// and where so much memory cannot be had.
Trace trace_text(Model& model, std::span<const std::int32_t> tokens, const TraceOptions& options = {});
// The same, with what the tokens are in bytes.
Trace trace_text(Model& model, const Tokenizer& tokenizer, std::span<const std::int32_t> tokens,
                 const TraceOptions& options = {});

// The bytes of attention's matrices and of the logits that trace_text(..., options) would hold: nearly all of it.
std::int64_t trace_bytes(const ModelConfig& config, std::int64_t ctx, const TraceOptions& options);

// Copies what a pass over one sequence shows; the sink behind trace_text, for passes of one's own.
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

// Writes what a pass over one sequence shows as DIR/NAME.npy while it is made, so that a long text's matrices are in
// memory one layer at a time: f32, named and shaped as TransformerLens has it, a batch axis of 1 in front:
// blocks.0.attn.hook_q.npy [1, ctx, n_head, head_dim], blocks.0.attn.hook_pattern.npy [1, n_head, ctx, ctx],
// ln_final.hook_scale.npy [1, ctx, 1] and so on (hook_name); products and scaled, which it has no hooks for, are left
// out. Throws qkv::FileError.
class TraceSaver : public TraceSink {
 public:
  explicit TraceSaver(std::string directory);  // made if it is missing
  bool wants(TraceSite site, std::int64_t layer) const override;
  void visit(const Traced& traced) override;
  // tokens.npy [1, ctx] i64 and logits.npy [1, ctx, vocab_size]
  void save_ends(std::span<const std::int32_t> tokens, const Tensor& logits);

  std::int64_t files = 0;  // written so far

 private:
  std::string directory_;
};

// The lens of each stage, from the trace's streams and logits: stages 0 ... n_layer - 1 are unembed(resid_pre), and the
// last is the logits themselves. `top` is at least 1 and cut to vocab_size. Throws std::invalid_argument if the trace
// lacks one of them.
std::vector<LensStage> logit_lens(Model& model, const Trace& trace, std::int64_t top);
// One stage: logits [ctx, vocab_size] f32; next: [ctx - 1] the token that follows each position; last: [ctx] the token
// whose probability is last_prob.
LensStage lens_stage(const Tensor& logits, std::int64_t top, std::span<const std::int32_t> next,
                     std::span<const std::int32_t> last);

// Attention rollout (Abnar and Zuidema, "Quantifying attention flow in transformers", 2020): how much of each token's
// first stream is in each position's stream after a layer, if heads weigh alike and a residual counts half:
// R[l] = (mean over heads of pattern[l] + I) / 2 . R[l - 1], R[-1] = I.
// patterns: [n_layer] of [the layer's n_head, ctx, ctx] f32 -> [n_layer, ctx, ctx] f32, each row sums to 1.
Tensor attention_rollout(std::span<const Tensor* const> patterns);

struct HeadScoreOptions {
  // Tokens that are repeated; 0: as many as fit twice into ctx_len, at most 64 and at most the alphabet's, so that all
  // of them are different.
  std::int64_t length = 0;
  std::int64_t sequences = 4;               // random texts, of which the scores are a mean
  std::int32_t begin_token = -1;            // stands before the text; -1: none
  std::int64_t vocab_limit = 0;             // random tokens are below it; 0: vocab_size
  std::vector<std::int32_t> alphabet = {};  // random tokens are drawn from these instead; empty: from the vocabulary
  std::uint64_t seed = 1;
};
// By layer, then head. Query 0, which can read itself alone, and query 1, whose previous token is the first one, count
// for none of the scores. A model that was trained on few of its vocabulary's tokens (bytes, say) is at home in those
// alone: give them as the alphabet. Throws std::invalid_argument unless 3 <= length and both copies fit into ctx_len.
std::vector<HeadScores> head_scores(Model& model, const HeadScoreOptions& options = {});

struct HeadId {
  std::int64_t layer = 0, head = 0;
};
std::vector<HeadId> all_heads(const ModelConfig& config);  // resolved; by layer, then head

// A query's attention weights: their entropy in nats, and the weights of the first token, of the one before the query
// and of the query's own.
struct PatternFacts {
  double entropy = 0, first = 0, previous = 0, own = 0;
};
// row [query + 1]: the keys up to the query's own.
PatternFacts pattern_facts(std::span<const float> row);
// Mean over the queries of a pattern [ctx, ctx] from 2 on, in which the three tokens differ; over all if there are
// none.
PatternFacts mean_pattern_facts(std::span<const float> pattern, std::int64_t ctx);
// The `top` keys of a row with the largest weights, falling; ties to the lowest position, NaN last.
std::vector<std::int64_t> top_keys(std::span<const float> row, std::size_t top);

// What becomes of the next token after the text when the outputs (z) of heads are changed at every position.
struct HeadEffect {
  std::vector<float> before, after;  // [vocab_size] probabilities
  double kl = 0;                     // sum of before * ln(before / after), in nats: 0 if nothing changes
};
// zeroed: heads whose z becomes 0. patched: heads whose z becomes what it is in the other text; the two texts are laid
// end to end at their last tokens, and where the other one is shorter z stays. Throws std::invalid_argument on a head
// that the model lacks, one that is in both lists, and patched heads without another text.
HeadEffect head_effect(Model& model, std::span<const std::int32_t> tokens, std::span<const HeadId> zeroed,
                       std::span<const HeadId> patched = {}, std::span<const std::int32_t> other = {});

// Every activation of a trace as TraceSaver writes it, with tokens and logits. Returns the number of files; throws
// qkv::FileError.
std::int64_t save_trace(const std::string& directory, const Trace& trace);

struct InspectPageOptions {
  std::size_t most_bytes = 5'000'000;
  std::vector<HeadId> first = {};  // heads whose q, k, v and z are kept where not all of them fit
};
// The page: one self-contained HTML file of at most most_bytes (docs/inspect.md), made from what the trace holds alone.
// The more there is, the coarser its numbers are; the page tells how far off each may be. Needs q, k, v, z, scaled and
// pattern of every layer; the lens, rollout and head_scores where the trace has them. Throws std::invalid_argument
// where they are missing or not finite, where the text is too long for so many bytes, and where layers have different
// heads or scores other than q . k / sqrt(head_dim) under a causal mask (a window, a softcap, ALiBi, sinks, a scale).
std::string inspect_page(const Trace& trace, const Tokenizer& tokenizer, const InspectPageOptions& options = {});

// Throws std::invalid_argument where no page of these tokens keeps to most_bytes, and says about how many tokens do,
// before all of them are read: a token reads none after it, so that the weights of a text's beginning are the first
// rows of the text's, and a page of the text is larger than they are. They are read where the text is so long that its
// weights would have less than 3 bits each; what passes may still be too large for inspect_page.
void require_page_fits(Model& model, std::span<const std::int32_t> tokens, const InspectPageOptions& options = {});

}  // namespace qkv
