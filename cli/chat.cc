// SPDX-License-Identifier: Apache-2.0
// qkv chat: a conversation with a model that was trained on conversations.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <memory>
#include <optional>

#include "cli.h"
#include "number_options.h"
#include "qkv/chat_file.h"
#include "qkv/conversation.h"
#include "qkv/engine.h"
#include "qkv/error.h"
#include "qkv/interrupt.h"
#include "qkv/model_file.h"
#include "sampler_options.h"
#include "texts_output.h"

namespace {

struct Options {
  std::string model;
  std::optional<std::string> form, system;
  std::optional<std::int64_t> keep;
  qkv::cli::WritingOptions writing;
};

constexpr const char* kHelp =
    "/reset  forget the conversation and begin a new one\n"
    "/exit   end (so does the end of the input, Ctrl-D)\n"
    "/help   this\n"
    "Ctrl-C stops an answer; while you write, it ends the program.\n";

qkv::ChatForm form_of(const Options& options, const std::string& jinja) {
  if (options.form) return qkv::chat_form_from_name(*options.form);
  const std::string hint = "; --template takes " + qkv::chat_form_names();
  if (jinja.empty()) throw qkv::FileError(options.model, "has no chat template" + hint);
  const std::optional<qkv::ChatForm> form = qkv::recognise_chat_form(jinja);
  if (!form) {
    throw qkv::FileError(options.model, "has a chat template that is not known: '" + jinja.substr(0, 60) +
                                            (jinja.size() > 60 ? "...'" : "'") + hint);
  }
  return *form;
}

class Chat {
 public:
  explicit Chat(const Options& options)
      : generate_(qkv::cli::checked_options(options.writing)),
        jinja_(qkv::load_chat_template(options.model)),
        loaded_(qkv::cli::load_for_generation(options.model, options.writing)),
        conversation_(qkv::ChatTemplate(form_of(options, jinja_), loaded_.tokenizer),
                      options.system ? *options.system : qkv::default_system_message(jinja_)),
        engine_(loaded_.model,
                {.slots = 1, .queue = 1, .chunk = 2048, .prefix_bytes = qkv::request_bytes(loaded_.model)},
                &loaded_.tokenizer) {
    generate_.end_tokens = loaded_.end_tokens;
    const std::vector<std::int32_t>& ends = conversation_.end_tokens();
    generate_.end_tokens.insert(generate_.end_tokens.end(), ends.begin(), ends.end());
    qkv::cli::require_known_tokens(generate_, loaded_);
    generate_.shift = true;
    generate_.keep = options.keep ? *options.keep : static_cast<std::int64_t>(conversation_.tokens().size());
    const std::int64_t ctx_len = loaded_.model.config().ctx_len;
    if (generate_.keep < 0 || generate_.keep > ctx_len - 2)
      throw qkv::cli::UsageError(
          fmt::format("--keep expected 0 to {} tokens, so that the context of {} has room; found {}", ctx_len - 2,
                      ctx_len, generate_.keep));
  }

  void run() {
    const bool terminal = isatty(STDIN_FILENO) == 1;
    if (terminal) qkv::cli::print_error("/help tells what can be said besides words\n");
    for (std::string line; prompt(terminal), std::getline(std::cin, line);) {
      if (line.ends_with('\r')) line.pop_back();
      if (line == "/exit") break;
      if (line == "/reset") {
        conversation_.reset();  // the engine still has the keys and values of the system message
      } else if (line == "/help") {
        qkv::cli::print(kHelp);
      } else if (!line.empty() && !answer(line)) {
        break;
      }
    }
    if (std::cin.bad()) throw qkv::FileError("standard input", "cannot be read");
    if (terminal && !std::cin) qkv::cli::print("\n");
    if (answers_ > 0) {
      qkv::cli::print_error(fmt::format("answers: {}; {} tokens read, {} written in {:.2f} s, {:.1f} tokens/s\n",
                                        answers_, read_, written_, seconds_,
                                        seconds_ > 0 ? static_cast<double>(written_) / seconds_ : 0));
    }
  }

 private:
  static void prompt(bool terminal) {
    if (terminal) qkv::cli::print("> ");
  }

  // Answers a question; false when something asked the program to end.
  bool answer(const std::string& words) {
    conversation_.ask(words);
    qkv::GenerateResult result;
    bool line_open = true;
    qkv::install_interrupt_latch();
    engine_.submit(conversation_.tokens(), generate_, [&](const qkv::EngineEvent& event) {
      if (event.result != nullptr) result = *event.result;
      if (!event.text.empty()) {
        qkv::cli::print_written(event.text);
        line_open = event.text.back() != '\n';
      }
      return true;
    });
    qkv::cli::run_engine(engine_);
    const int signal = qkv::interrupt_signal();
    qkv::remove_interrupt_latch();
    qkv::forget_interrupt();  // it ended the answer only
    if (result.error) std::rethrow_exception(result.error);
    if (line_open) qkv::cli::print("\n");
    conversation_.answered(std::move(result.context));
    ++generate_.sampler.stream;  // or every answer would begin with the same chance
    ++answers_;
    read_ += result.prompt_read;
    written_ += static_cast<std::int64_t>(result.tokens.size());
    seconds_ += result.generate_seconds;
    return signal == 0 || signal == SIGINT;
  }

  qkv::GenerateOptions generate_;
  std::string jinja_;
  qkv::LoadedModel loaded_;
  qkv::Conversation conversation_;
  qkv::Engine engine_;
  std::int64_t answers_ = 0, read_ = 0, written_ = 0;
  double seconds_ = 0;
};

void run(const Options& options) {
  if (options.form) {
    try {
      qkv::chat_form_from_name(*options.form);
    } catch (const std::invalid_argument& error) {
      throw qkv::cli::UsageError(error.what());
    }
  }
  Chat(options).run();
}

void add(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Chat with an instruction-tuned model");
  const auto options = std::make_shared<Options>();
  options->writing.generate.max_tokens = 1024;
  qkv::cli::add_model_option(*command, options->model);
  qkv::cli::add_dtype_option(*command, options->writing);
  command->add_option("--system", options->system, "System prompt [that of the template]")->type_name("TEXT");
  command
      ->add_option(
          "--template", options->form,
          "How a conversation is written down: " + qkv::chat_form_names() +
              "; without it, as the model's chat template says (tokenizer_config.json, chat_template.jinja, or "
              "tokenizer.chat_template of a GGUF file)")
      ->type_name("NAME");
  qkv::cli::add_max_tokens_option(*command, options->writing,
                                  "Tokens of an answer at most; -1: until the model ends it");
  qkv::cli::add_number(*command, "--keep", options->keep,
                       "First tokens to keep when the context is full [the system prompt]")
      ->type_name("N");
  qkv::cli::add_sampler_options(*command, options->writing);
  qkv::cli::add_threads_option(*command);
  command->footer("In the conversation:\n" + std::string(kHelp));
  command->callback([options] { run(*options); });
}

const qkv::cli::Subcommand kChat(35, add);

}  // namespace
