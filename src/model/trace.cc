// SPDX-License-Identifier: Apache-2.0
#include "qkv/trace.h"

namespace qkv {
namespace {

const char* name_of(TraceSite site) {
  switch (site) {
    case TraceSite::resid_pre:
      return "hook_resid_pre";
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
  }
  return "";
}

}  // namespace

std::string hook_name(TraceSite site, std::int64_t layer) {
  return "blocks." + std::to_string(layer) + "." + name_of(site);
}

}  // namespace qkv
