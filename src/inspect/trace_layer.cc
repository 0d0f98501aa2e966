// SPDX-License-Identifier: Apache-2.0
#include "inspect/checks.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

Tensor TraceLayer::*member(TraceSite site) {
  switch (site) {
    case TraceSite::resid_pre:
      return &TraceLayer::resid_pre;
    case TraceSite::ln1_scale:
      return &TraceLayer::ln1_scale;
    case TraceSite::ln1_normalized:
      return &TraceLayer::ln1_normalized;
    case TraceSite::q:
      return &TraceLayer::q;
    case TraceSite::k:
      return &TraceLayer::k;
    case TraceSite::v:
      return &TraceLayer::v;
    case TraceSite::rot_q:
      return &TraceLayer::rot_q;
    case TraceSite::rot_k:
      return &TraceLayer::rot_k;
    case TraceSite::products:
      return &TraceLayer::products;
    case TraceSite::scaled:
      return &TraceLayer::scaled;
    case TraceSite::scores:
      return &TraceLayer::scores;
    case TraceSite::pattern:
      return &TraceLayer::pattern;
    case TraceSite::z:
      return &TraceLayer::z;
    case TraceSite::attn_out:
      return &TraceLayer::attn_out;
    case TraceSite::resid_mid:
      return &TraceLayer::resid_mid;
    case TraceSite::ln2_scale:
      return &TraceLayer::ln2_scale;
    case TraceSite::ln2_normalized:
      return &TraceLayer::ln2_normalized;
    case TraceSite::mlp_pre:
      return &TraceLayer::mlp_pre;
    case TraceSite::mlp_pre_linear:
      return &TraceLayer::mlp_pre_linear;
    case TraceSite::mlp_post:
      return &TraceLayer::mlp_post;
    case TraceSite::mlp_out:
      return &TraceLayer::mlp_out;
    case TraceSite::resid_post:
      return &TraceLayer::resid_post;
    default:
      refuse_inspect("a site of a layer", hook_name(site, 0));
  }
}

Tensor TraceAround::*member_around(TraceSite site) {
  switch (site) {
    case TraceSite::embed:
      return &TraceAround::embed;
    case TraceSite::pos_embed:
      return &TraceAround::pos_embed;
    case TraceSite::embed_ln_scale:
      return &TraceAround::embed_ln_scale;
    case TraceSite::embed_ln_normalized:
      return &TraceAround::embed_ln_normalized;
    case TraceSite::ln_final_scale:
      return &TraceAround::ln_final_scale;
    case TraceSite::ln_final_normalized:
      return &TraceAround::ln_final_normalized;
    default:
      refuse_inspect("a site outside the layers", hook_name(site, 0));
  }
}

}  // namespace

Tensor& TraceLayer::at(TraceSite site) { return this->*member(site); }
const Tensor& TraceLayer::at(TraceSite site) const { return this->*member(site); }
Tensor& TraceAround::at(TraceSite site) { return this->*member_around(site); }
const Tensor& TraceAround::at(TraceSite site) const { return this->*member_around(site); }

}  // namespace qkv
