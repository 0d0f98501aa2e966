// SPDX-License-Identifier: Apache-2.0
// qkv chat: a conversation with an instruction-tuned model.
#include <fmt/format.h>

#include <csignal>
#include <memory>
#include <optional>
#include <random>

#include "chat_commands.h"
#include "chat_history.h"
#include "cli.h"
#include "line_reader.h"
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
  bool no_history = false, seed_given = false;
  qkv::cli::WritingOptions writing;
};

qkv::ChatForm form_of(const Options& options, const std::string& jinja) {
  if (options.form) return qkv::chat_form_from_name(*options.form);
  const std::string hint = "; use --template " + qkv::chat_form_names();
  if (jinja.empty()) throw qkv::FileError(options.model, "has no chat template" + hint);
  const std::optional<qkv::ChatForm> form = qkv::recognise_chat_form(jinja);
  if (!form) {
    throw qkv::FileError(options.model, "has an unknown chat template: '" + jinja.substr(0, 60) +
                                            (jinja.size() > 60 ? "...'" : "'") + hint);
  }
  return *form;
}

class Chat {
 public:
  explicit Chat(const Options& options)
      : model_(options.model),
        keep_history_(!options.no_history),
        generate_(qkv::cli::checked_options(options.writing)),
        jinja_(qkv::load_chat_template(options.model)),
        loaded_(qkv::cli::load_for_generation(options.model, options.writing)),
        form_(form_of(options, jinja_)),
        conversation_(qkv::ChatTemplate(form_, loaded_.tokenizer),
                      options.system ? *options.system : qkv::default_system_message(jinja_)),
        engine_(loaded_.model,
                {.slots = 1, .queue = 1, .chunk = 2048, .prefix_bytes = qkv::request_bytes(loaded_.model)},
                &loaded_.tokenizer) {
    generate_.end_tokens = loaded_.end_tokens;
    const std::vector<std::int32_t>& ends = conversation_.end_tokens();
    generate_.end_tokens.insert(generate_.end_tokens.end(), ends.begin(), ends.end());
    qkv::cli::require_known_tokens(generate_, loaded_);
    if (!options.seed_given && qkv::cli::input_is_terminal()) generate_.sampler.seed = std::random_device()();
    generate_.shift = true;
    generate_.keep = options.keep ? *options.keep : static_cast<std::int64_t>(conversation_.tokens().size());
    const std::int64_t ctx_len = loaded_.model.config().ctx_len;
    if (generate_.keep < 0 || generate_.keep > ctx_len - 2)
      throw qkv::cli::UsageError(fmt::format("--keep expected 0 to {} tokens for a context of {}; found {}",
                                             ctx_len - 2, ctx_len, generate_.keep));
  }

  void run() {
    const bool terminal = qkv::cli::input_is_terminal();
    if (terminal) introduce();
    qkv::cli::LineReader reader("> ");
    qkv::cli::ChatHistory history(keep_history_ && reader.edits());
    for (const std::string& line : history.lines()) reader.remember(line);
    bool go_on = true;
    for (std::int64_t number = 1; go_on; ++number) {
      const std::optional<std::string> line = reader.next();
      if (!line) {
        if (terminal) qkv::cli::print("\n");
        break;
      }
      if (line->find_first_not_of(" \t") == std::string::npos) continue;
      reader.remember(*line);
      history.add(*line);
      try {
        go_on = qkv::cli::is_chat_command(*line) ? obey(qkv::cli::chat_command_from(*line)) : answer(*line);
      } catch (const qkv::cli::UnknownChatCommand& error) {
        if (!terminal) throw qkv::FileError("standard input", fmt::format("line {}: {}", number, error.what()));
        qkv::cli::print_error(qkv::cli::without_controls(error.what()) + "\n");
      }
    }
    if (answers_ > 0) {
      qkv::cli::print_error(fmt::format("replies: {}; prompt tokens: {}; generated: {} in {:.2f} s, {:.1f} tokens/s\n",
                                        answers_, read_, written_, seconds_,
                                        seconds_ > 0 ? static_cast<double>(written_) / seconds_ : 0));
    }
  }

 private:
  void introduce() const {
    qkv::cli::print_error(qkv::cli::without_controls(
        fmt::format("{}: context {} tokens, template {}\nseed {} (repeat this conversation with -s {})\n"
                    "Type /help for commands.\n",
                    model_, loaded_.model.config().ctx_len, qkv::chat_form_name(form_), generate_.sampler.seed,
                    generate_.sampler.seed)));
  }

  // Runs a command; false if it ends the program.
  bool obey(qkv::cli::ChatCommand command) {
    using qkv::cli::ChatCommand;
    if (command == ChatCommand::help) qkv::cli::print(qkv::cli::chat_help());
    if (command == ChatCommand::reset) conversation_.reset();  // the engine keeps the cache of the system message
    return command != ChatCommand::exit;
  }

  // Generates a reply; false if the program was asked to end.
  bool answer(const std::string& words) {
    conversation_.ask(words);
    qkv::GenerateResult result;
    bool line_open = true;
    qkv::install_interrupt_latch();
    engine_.submit(conversation_.tokens(), generate_, [&](const qkv::EngineEvent& event) {
      if (event.result != nullptr) result = *event.result;
      if (!event.text.empty()) {
        qkv::cli::print_generated(event.text);
        line_open = event.text.back() != '\n';
      }
      return true;
    });
    qkv::cli::run_engine(engine_);
    const int signal = qkv::interrupt_signal();
    qkv::remove_interrupt_latch();
    qkv::forget_interrupt();  // it ended only the reply
    if (result.error) std::rethrow_exception(result.error);
    if (line_open) qkv::cli::print("\n");
    conversation_.answered(std::move(result.context));
    ++generate_.sampler.stream;  // so that replies use different random numbers
    ++answers_;
    read_ += result.prompt_evaluated;
    written_ += static_cast<std::int64_t>(result.tokens.size());
    seconds_ += result.generate_seconds;
    return signal == 0 || signal == SIGINT;
  }

  std::string model_;
  bool keep_history_;
  qkv::GenerateOptions generate_;
  std::string jinja_;
  qkv::LoadedModel loaded_;
  qkv::ChatForm form_;
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
  command->add_option("--system", options->system, "System prompt [the template's default]")->type_name("TEXT");
  command
      ->add_option(
          "--template", options->form,
          "Chat template: " + qkv::chat_form_names() +
              " [the model's: tokenizer_config.json, chat_template.jinja, or tokenizer.chat_template of a GGUF file]")
      ->type_name("NAME");
  qkv::cli::add_max_tokens_option(*command, options->writing, "Maximum tokens per reply; -1 = until the model ends it");
  qkv::cli::add_number(*command, "--keep", options->keep,
                       "First tokens to keep when the context is full [the system prompt]")
      ->type_name("N");
  qkv::cli::add_sampler_options(*command, options->writing);
  CLI::Option* seed = command->get_option("--seed")->default_str("random at a terminal, else 0");
  command->add_flag("--no-history", options->no_history, "Do not load or store the input history");
  qkv::cli::add_threads_option(*command);
  command->footer("\nIn the conversation:\n" + qkv::cli::chat_help());
  command->callback([options, seed] {
    options->seed_given = seed->count() > 0;
    run(*options);
  });
}

const qkv::cli::Subcommand kChat(35, add);

}  // namespace
