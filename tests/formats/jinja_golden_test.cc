// SPDX-License-Identifier: Apache-2.0
// Templates render conversations as `transformers` does (scripts/make_jinja_golden.py), and fail where it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "jinja/template.h"

namespace qkv::jinja {
namespace {

std::tm noon() {
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 2, now.tm_mday = 5, now.tm_wday = 4, now.tm_yday = 63;
  now.tm_hour = 14, now.tm_min = 7, now.tm_sec = 9;
  return now;
}

Value messages_of(const nlohmann::json& talk) {
  std::vector<Value> messages;
  for (const auto& one : talk)
    messages.push_back(
        make_dict({{Value::text("role"), Value::text(one["role"].get<std::string>())},
                   {Value::text("content"), Value::text(one["content"].get<std::string>(), Mark::said)}}));
  return make_list(std::move(messages));
}

MarkedText render(std::string_view text, std::vector<std::pair<std::string, Value>> variables = {},
                  const Limits& limits = {}) {
  return Template(text).render(variables, noon(), limits);
}

TEST(JinjaGolden, TextsAreThoseOfTransformers) {
  std::ifstream in(QKV_SOURCE_DIR "/tests/formats/golden/jinja.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  EXPECT_GE(golden["cases"].size(), 60u);
  for (const auto& one : golden["cases"])
    for (std::size_t i = 0; i < one["texts"].size(); ++i) {
      SCOPED_TRACE(one["name"].get<std::string>() + ", conversation " + std::to_string(i));
      const auto text = [&] {
        return render(one["template"].get<std::string>(), {{"messages", messages_of(golden["conversations"][i])},
                                                           {"tools", Value::none()},
                                                           {"documents", Value::none()},
                                                           {"add_generation_prompt", Value(i % 5 != 4)},
                                                           {"bos_token", Value::text("<s>")},
                                                           {"eos_token", Value::text("</s>")}});
      };
      if (one["texts"][i].is_null())
        EXPECT_THROW(text(), TemplateError);
      else
        EXPECT_EQ(text().bytes, one["texts"][i].get<std::string>());
    }
}

TEST(Jinja, ErrorsNameLineAndColumn) {
  const auto error = [](std::string_view text) {
    try {
      render(text);
    } catch (const TemplateError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(error("a\n  {{ x.y }}"),
              testing::StartsWith("line 2, column 7: expected a value with 'y'; found 'x', which is undefined"));
  EXPECT_THAT(error("\n{% if %}"), testing::StartsWith("line 2, column 7: expected an expression; found %}"));
  EXPECT_THAT(error("{{ raise_exception('No.') }}"), testing::EndsWith("the template says: No."));
  EXPECT_THAT(error("{{ [].append(1) }}"), testing::HasSubstr("immutable sandbox"));
}

// Who wrote a byte is known after every operation.
TEST(Jinja, BytesRememberWhoWroteThem) {
  const auto marks = [](std::string_view text) {
    const MarkedText out = render(text, {{"c", Value::text(" <|x|> ", Mark::said)}});
    std::string said;
    for (std::size_t i = 0; i < out.bytes.size(); ++i)
      said += out.marks[i] ? std::string{'(', out.bytes[i], ')'} : std::string(1, out.bytes[i]);
    return said;
  };
  EXPECT_EQ(marks("<{{ c[1:3] | upper }}{{ '|' ~ c.strip()[-1] }}"), "<(<)(|)|(>)");
  EXPECT_EQ(marks("{{ c.replace('x', '<').split('|') | join('+') | trim }}"), "(<)+<+(>)");
  EXPECT_EQ(marks("{{ ('%s!' % c.strip()[0]) }}{{ {'a': c[1]} | tojson }}{{ '{}.'.format(c[2]) }}"),
            "(<)!{\"a\": \"(<)\"}(|).");
}

TEST(Jinja, IsBounded) {
  EXPECT_THROW(render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"), TemplateError);
  EXPECT_THROW(
      render(
          "{% set ns = namespace(t='0123456789') %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}"),
      TemplateError);
  EXPECT_THROW(render("{{ 'x' * 1000000000000 }}"), TemplateError);
  EXPECT_THROW(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), TemplateError);
  EXPECT_THROW(render("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"),
               TemplateError);
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.self = ns %}a").bytes, "a");
  std::string deep = "{{ ";
  for (const char* part : {"(", "not ", "[", "-", "x.", "a+"}) {
    std::string text = deep;
    for (int i = 0; i < 200000; ++i) text += part;
    EXPECT_THROW(render(text), TemplateError) << part;
  }
}

}  // namespace
}  // namespace qkv::jinja
