// SPDX-License-Identifier: Apache-2.0
#include "qkv/inspect.h"

namespace qkv {
namespace {

Tensor TraceLayer::*member(TraceSite site) noexcept {
  switch (site) {
    case TraceSite::resid_pre:
      return &TraceLayer::resid_pre;
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
  }
  return &TraceLayer::resid_post;
}

}  // namespace

Tensor& TraceLayer::at(TraceSite site) noexcept { return this->*member(site); }
const Tensor& TraceLayer::at(TraceSite site) const noexcept { return this->*member(site); }

}  // namespace qkv
