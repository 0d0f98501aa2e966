// SPDX-License-Identifier: Apache-2.0
#include "page/training_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/assets.h"
#include "page/text.h"
#include "page/training_data.h"
#include "qkv/version.h"

namespace qkv {
namespace {

constexpr std::string_view kIcon =
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 3l4 8 3-4 5 5' "
    "fill='none' stroke='%232b7fd4' stroke-width='2' stroke-linecap='round' stroke-linejoin='round'/%3E%3C/svg%3E";

std::string or_dash(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "–";
}

double share_done(const TrainingPage& p) {
  if (p.steps <= 0) return 0;
  return std::clamp(static_cast<double>(p.step) / static_cast<double>(p.steps), 0.0, 1.0);
}

std::string head(const TrainingPage& p) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  text += fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n",
      kTrainingScriptHash);
  if (p.refresh_seconds > 0) {
    text += fmt::format("<noscript><meta http-equiv=\"refresh\" content=\"{}\"></noscript>\n", p.refresh_seconds);
  }
  text += fmt::format("<title>{} · {:.0f} %{}</title>\n<link rel=\"icon\" href=\"{}\">\n<style>\n{}</style>\n</head>\n",
                      html_text(p.title), std::floor(100 * share_done(p)),
                      std::isfinite(p.loss) ? fmt::format(" · loss {:.3f}", p.loss) : "", kIcon, kTrainingStyle);
  return text;
}

std::string page_header(const TrainingPage& p) {
  std::string text = fmt::format(
      "<header>\n<div class=\"top\"><div><p class=\"eyebrow\">Training run</p><h1 id=\"title\" "
      "dir=\"auto\">{}</h1></div>"
      "\n<div class=\"facts\">",
      html_text(p.title));
  if (!p.phase.empty()) text += fmt::format("<span class=\"pill {0}\" id=\"phase\">{0}</span>", html_text(p.phase));
  if (p.refresh_seconds > 0) {
    text += "<label><input type=\"checkbox\" id=\"live\" checked> auto-refresh</label>";
  }
  const double percent = 100 * share_done(p);
  text += fmt::format(
      "</div></div>\n<div class=\"progress\" role=\"progressbar\" aria-label=\"Steps done\" aria-valuemin=\"0\" "
      "aria-valuemax=\"{}\" aria-valuenow=\"{}\"><div style=\"width:{:.2f}%\"></div></div>\n<div class=\"facts\">"
      "<span><b id=\"step\">{}</b> of <b id=\"steps\">{}</b> steps</span><span><b>{:.1f} %</b></span>",
      p.steps, p.step, percent, grouped(p.step), grouped(p.steps), std::floor(10 * percent) / 10);
  if (std::isfinite(p.seconds_done)) text += fmt::format("<span>after <b>{}</b></span>", duration(p.seconds_done));
  if (std::isfinite(p.seconds_left) && p.step < p.steps) {
    text += fmt::format("<span>about <b id=\"left\">{}</b> left</span>", duration(p.seconds_left));
  }
  text += fmt::format("<span>written <time id=\"age\" datetime=\"{0}\">{0}</time></span></div>\n", utc_time(p.written));
  text +=
      "<p class=\"note\" id=\"silent\" role=\"status\" hidden>No update for a while: the run may have been killed, or "
      "the machine is suspended. <code>qkv train --resume</code> continues from the last checkpoint.</p>\n";
  if (!p.message.empty()) {
    text += fmt::format("<p class=\"note {}\" id=\"message\" dir=\"auto\">{}</p>\n", html_text(p.phase),
                        html_text(p.message));
  }
  return text + "</header>\n";
}

std::string tile(const char* id, const char* name, const std::string& number, const std::string& below) {
  return fmt::format(
      "<div class=\"card tile\"><h2>{}</h2><p class=\"number\" id=\"{}\">{}</p><p class=\"small\">{}</p></div>\n", name,
      id, number, below);
}

std::string tiles(const TrainingPage& p) {
  const std::string best = p.best_step == 0 ? "no evaluation yet"
                                            : fmt::format("best, at step {}<br>{} bits per byte", grouped(p.best_step),
                                                          or_dash(p.best_bits_per_byte, "{:.3f}"));
  // Above 100 % the peak was measured on a busy machine; it is not shown.
  const std::string peak = p.peak_fraction <= 1 ? fmt::format("{:.1f} % of the machine's peak", 100 * p.peak_fraction)
                                                : std::string("of the latest step");
  return "<section class=\"tiles\" aria-label=\"Current state\">\n" +
         tile("now-loss", "Training loss", or_dash(p.loss, "{:.4f}"), "nats/token") +
         tile("now-val", "Validation loss", or_dash(p.best_loss, "{:.4f}"), best) +
         tile("now-speed", "Tokens per second",
              std::isfinite(p.tokens_per_second) ? grouped(std::llround(p.tokens_per_second)) : "–", peak) +
         tile("now-ms", "Time per step",
              std::isfinite(p.ms) ? (p.ms < 10000 ? fmt::format("{:.1f} <small>ms</small>", p.ms)
                                                  : fmt::format("{:.1f} <small>s</small>", p.ms / 1000))
                                  : "–",
              "of the latest step") +
         tile("now-norm", "Gradient norm", or_dash(p.grad_norm, "{:.4g}"), "before clipping") +
         tile("now-rate", "Learning rate", or_dash(p.learning_rate, "{:.2e}"), "of the latest step") + "</section>\n";
}

std::string chart(const char* name, const char* title, bool wide) {
  return fmt::format(
      "<figure class=\"card{0}\"><figcaption><h3>{2}</h3><div class=\"readout\" id=\"read-{1}\"></div></figcaption>"
      "<div class=\"plot\" id=\"plot-{1}\" tabindex=\"0\" role=\"slider\" aria-label=\"{2}\" "
      "aria-orientation=\"horizontal\"></div></figure>\n",
      wide ? " wide" : "", name, title);
}

std::string charts() {
  return "<section id=\"charts\" aria-label=\"Charts\">\n<div class=\"toolbar\"><h2>Charts</h2>\n"
         "<label><input type=\"checkbox\" id=\"smooth\" checked> smooth</label>"
         "<label>by <input type=\"range\" id=\"strength\" min=\"0\" max=\"99\" value=\"90\" "
         "aria-label=\"Smoothing strength\"></label>"
         "<label><input type=\"checkbox\" id=\"log\"> log scale</label>\n"
         "<div class=\"buttons\" role=\"group\" aria-label=\"Steps shown\">"
         "<button type=\"button\" data-span=\"all\" id=\"span-all\" aria-pressed=\"true\">all</button>"
         "<button type=\"button\" data-span=\"half\" id=\"span-half\" aria-pressed=\"false\">last half</button>"
         "<button type=\"button\" data-span=\"tenth\" id=\"span-tenth\" aria-pressed=\"false\">last "
         "tenth</button></div>"
         "<button type=\"button\" class=\"lone\" id=\"whole\" hidden>reset zoom</button></div>\n"
         "<noscript><p class=\"note\">The charts need JavaScript; the numbers below do not.</p></noscript>\n"
         "<div class=\"charts\">\n" +
         chart("loss", "Loss", true) + chart("rate", "Learning rate", false) + chart("norm", "Gradient norm", false) +
         chart("speed", "Speed", false) +
         "</div>\n<p class=\"small keys\">Drag over a chart to zoom in, double-click to reset. "
         "Keyboard: "
         "<kbd>Tab</kbd> to a chart, <kbd>←</kbd> <kbd>→</kbd> <kbd>Page Up</kbd> <kbd>Home</kbd> <kbd>End</kbd> "
         "to move, <kbd>+</kbd> <kbd>−</kbd> to zoom, <kbd>Esc</kbd> to reset.</p>\n</section>\n";
}

std::string samples(const TrainingPage& p) {
  if (p.samples.empty()) return "";
  std::string text =
      "<section aria-labelledby=\"samples\">\n<h2 id=\"samples\">Samples</h2>\n"
      "<div class=\"samples\">\n";
  for (std::size_t i = p.samples.size(); i-- > 0;) {  // newest first
    const PageSample& sample = p.samples[i];
    text += fmt::format(
        "<article class=\"card sample\" data-at=\"{}\"><header><span>after step {}</span>{}</header><p dir=\"auto\" "
        "tabindex=\"0\">{}</p></article>\n",
        sample.step, grouped(sample.step), sample.repeats ? "<span class=\"flag\">repetitive</span>" : "",
        html_text(
            std::string_view(sample.text).substr(std::min(sample.text.find_first_not_of('\n'), sample.text.size()))));
  }
  text += "</div>\n";
  if (p.samples.size() > 6) {
    text +=
        fmt::format("<p class=\"keys\"><button type=\"button\" class=\"lone\" id=\"more\">show all {}</button></p>\n",
                    p.samples.size());
  }
  if (p.samples_left_out > 0) {
    text += fmt::format("<p class=\"small keys\">{} more are in metrics.jsonl.</p>\n", grouped(p.samples_left_out));
  }
  return text + "</section>\n";
}

std::string events(const TrainingPage& p) {
  struct Event {
    std::int64_t first;
    std::string text;
  };
  std::vector<Event> list;
  for (const Marks& marks : p.marks) {
    for (const Marks::Mark& mark : marks.marks()) {
      std::string text = html_text(mark_label(marks.kind()));
      if (mark.count > 1) text += fmt::format(", {} times up to step {}", grouped(mark.count), grouped(mark.last));
      if (!mark.text.empty()) text += " <span class=\"soft\" dir=\"auto\">" + html_text(mark.text) + "</span>";
      list.push_back({mark.first, text});
    }
  }
  if (list.empty()) return "";
  std::stable_sort(list.begin(), list.end(), [](const Event& a, const Event& b) { return a.first > b.first; });
  std::string text =
      "<section aria-labelledby=\"events\">\n<h2 id=\"events\">Events</h2>\n"
      "<ul class=\"card events scroll\" id=\"event-list\">\n";
  for (const Event& event : list) {
    text += fmt::format("<li><button type=\"button\" data-step=\"{}\">step {}</button><span>{}</span></li>\n",
                        event.first, grouped(event.first), event.text);
  }
  return text + "</ul>\n</section>\n";
}

std::string evaluations(const TrainingPage& p) {
  const std::vector<Series::Bucket>& losses = p.validation_losses.buckets();
  const std::vector<Series::Bucket>& bits = p.bits_per_byte.buckets();
  if (losses.empty()) return "";
  std::string text = fmt::format(
      "<section>\n<details class=\"card\" id=\"evaluations\"><summary>Evaluations ({})</summary>\n"
      "<div class=\"table scroll\" id=\"evaluation-table\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">step</th>"
      "<th scope=\"col\">validation loss</th><th scope=\"col\">bits per byte</th></tr></thead><tbody>\n",
      grouped(static_cast<std::int64_t>(losses.size())));
  for (std::size_t i = losses.size(); i-- > 0;) {
    const bool paired = bits.size() == losses.size();  // some are missing in a damaged file
    text += fmt::format("<tr><td>{}</td><td>{:.4f}</td><td>{}</td></tr>\n", grouped(losses[i].last), losses[i].mean(),
                        paired ? fmt::format("{:.4f}", bits[i].mean()) : "–");
  }
  return text + "</tbody></table></div></details>\n</section>\n";
}

std::string facts(const TrainingPage& p) {
  if (p.facts.empty()) return "";
  std::string text =
      "<section aria-labelledby=\"facts\">\n<h2 id=\"facts\">Configuration</h2>\n<div class=\"groups\">\n";
  for (const PageFacts& group : p.facts) {
    text += "<div class=\"card group\"><h3>" + html_text(group.title) + "</h3><dl>";
    for (const auto& [name, value] : group.rows) {
      text += "<dt>" + html_text(name) + "</dt><dd dir=\"auto\">" + html_text(value) + "</dd>";
    }
    text += "</dl></div>\n";
  }
  return text + "</div>\n</section>\n";
}

}  // namespace

std::string training_page(const TrainingPage& p) {
  std::string text = head(p);
  text += "<body>\n<a class=\"skip\" href=\"#plot-loss\">to the charts</a>\n<div class=\"frame\">\n" + page_header(p) +
          "<main>\n" + tiles(p) + charts() + samples(p) + events(p) + evaluations(p) + facts(p) + "</main>\n";
  text += fmt::format(
      "<footer class=\"small\">Written by qkv {} from this run's metrics.jsonl and run.json. A point "
      "that covers several steps shows their mean; the band shows their minimum and maximum."
      "</footer>\n</div>\n",
      QKV_VERSION);
  text += "<script type=\"application/json\" id=\"data\">" + training_data(p) + "</script>\n<script>";
  text += kTrainingScript;
  return text + "</script>\n</body>\n</html>\n";
}

}  // namespace qkv
