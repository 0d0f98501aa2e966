// SPDX-License-Identifier: Apache-2.0
#include "qkv/trace.h"

#include <array>

namespace qkv {
namespace {

// Indexed by TraceSite.
constexpr std::array<const char*, kTraceSites> kNames = {
    "hook_resid_pre", "ln1.hook_scale", "ln1.hook_normalized", "attn.hook_q", "attn.hook_k", "attn.hook_v",
    "attn.hook_rot_q", "attn.hook_rot_k", "attn.products", "attn.scaled", "attn.hook_attn_scores", "attn.hook_pattern",
    "attn.hook_z", "hook_attn_out", "hook_resid_mid", "ln2.hook_scale", "ln2.hook_normalized", "mlp.hook_pre",
    "mlp.hook_pre_linear", "mlp.hook_post", "hook_mlp_out", "hook_resid_post",
    // Outside the layers.
    "hook_embed", "hook_pos_embed", "embed.ln.hook_scale", "embed.ln.hook_normalized", "ln_final.hook_scale",
    "ln_final.hook_normalized"};
static_assert(kNames.back() != nullptr, "every site needs a name");

}  // namespace

std::string hook_name(TraceSite site, std::int64_t layer) {
  const auto at = static_cast<std::size_t>(site);
  return at < kLayerSites ? "blocks." + std::to_string(layer) + "." + kNames[at] : kNames[at];
}

}  // namespace qkv
