// SPDX-License-Identifier: Apache-2.0
#include "qkv/trace.h"

namespace qkv {
namespace {

const char* name_of(TraceSite site) {
  switch (site) {
    case TraceSite::resid_pre:
      return "hook_resid_pre";
    case TraceSite::ln1_scale:
      return "ln1.hook_scale";
    case TraceSite::ln1_normalized:
      return "ln1.hook_normalized";
    case TraceSite::q:
      return "attn.hook_q";
    case TraceSite::k:
      return "attn.hook_k";
    case TraceSite::v:
      return "attn.hook_v";
    case TraceSite::rot_q:
      return "attn.hook_rot_q";
    case TraceSite::rot_k:
      return "attn.hook_rot_k";
    case TraceSite::products:
      return "attn.products";
    case TraceSite::scaled:
      return "attn.scaled";
    case TraceSite::scores:
      return "attn.hook_attn_scores";
    case TraceSite::pattern:
      return "attn.hook_pattern";
    case TraceSite::z:
      return "attn.hook_z";
    case TraceSite::attn_out:
      return "hook_attn_out";
    case TraceSite::resid_mid:
      return "hook_resid_mid";
    case TraceSite::ln2_scale:
      return "ln2.hook_scale";
    case TraceSite::ln2_normalized:
      return "ln2.hook_normalized";
    case TraceSite::mlp_pre:
      return "mlp.hook_pre";
    case TraceSite::mlp_pre_linear:
      return "mlp.hook_pre_linear";
    case TraceSite::mlp_post:
      return "mlp.hook_post";
    case TraceSite::mlp_out:
      return "hook_mlp_out";
    case TraceSite::resid_post:
      return "hook_resid_post";
    case TraceSite::embed:
      return "hook_embed";
    case TraceSite::pos_embed:
      return "hook_pos_embed";
    case TraceSite::embed_ln_scale:
      return "embed.ln.hook_scale";
    case TraceSite::embed_ln_normalized:
      return "embed.ln.hook_normalized";
    case TraceSite::ln_final_scale:
      return "ln_final.hook_scale";
    case TraceSite::ln_final_normalized:
      return "ln_final.hook_normalized";
  }
  return "";
}

}  // namespace

std::string hook_name(TraceSite site, std::int64_t layer) {
  if (static_cast<int>(site) >= kLayerSites) return name_of(site);
  return "blocks." + std::to_string(layer) + "." + name_of(site);
}

}  // namespace qkv
