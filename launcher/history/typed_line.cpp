#include "launcher/history/typed_line.h"

#include "base/strings.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace dtrun::history {
namespace {

/// HF_TOKEN, WANDB_API_KEY, DB_PASSWORD; not TOKENIZERS_PARALLELISM or MAX_TOKENS.
bool looks_secret(std::string_view name) {
    std::string upper(name);
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    constexpr std::string_view kEnds[] = {
        "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS", "APIKEY",
        "_KEY",  "_PAT",   "_PASS",    "_PWD",   "_AUTH",      "_CREDS"};
    return upper == "KEY" ||
           std::ranges::any_of(kEnds, [&](std::string_view end) { return upper.ends_with(end); });
}

bool is_name(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    });
}

/// Where the name of a variable begins in "NAME=VALUE", "-x=NAME=VALUE" or "--env=NAME=VALUE".
std::size_t begin_of_name(std::string_view word) {
    for (const std::string_view flag : {"-x=", "--x=", "--env=", "-env="})
        if (word.starts_with(flag)) return flag.size();
    return 0;
}

/// The name of the variable to which a word gives a value; empty: it is no such word.
std::string_view variable_of(std::string_view word) {
    const std::size_t begin = begin_of_name(word);
    const std::size_t equals = word.find('=', begin);
    if (equals == std::string_view::npos) return {};
    const std::string_view name = word.substr(begin, equals - begin);
    return is_name(name) ? name : std::string_view();
}

/// A list has such a name, as `--export=ALL,HF_TOKEN=abc` or `--mca mca_base_env_list "A=1;HF_TOKEN=abc"`.
bool lists_secret(std::string_view word) {
    for (std::size_t equals = word.find('='); equals != std::string_view::npos;
         equals = word.find('=', equals + 1)) {
        const std::string_view before = word.substr(0, equals);
        const std::size_t begin = before.find_last_of(",;= :");
        const std::string_view name =
            before.substr(begin == std::string_view::npos ? 0 : begin + 1);
        if (is_name(name) && looks_secret(name)) return true;
    }
    return false;
}

/// Two words behind one of these are a name and its value.
bool takes_two(std::string_view word) {
    while (word.starts_with('-')) word.remove_prefix(1);
    return word == "env" || word == "genv";
}

}  // namespace

TypedLine without_secrets(std::vector<std::string> words, std::size_t program_words) {
    TypedLine line{std::move(words)};
    const std::size_t end = line.words.size() - std::min(program_words, line.words.size());
    for (std::size_t i = 0; i < end; ++i) {
        const std::string_view name = variable_of(line.words[i]);
        const bool is_pair = i + 2 < line.words.size() && takes_two(line.words[i]) &&
                             looks_secret(line.words[i + 1]);
        if (is_pair || (!looks_secret(name) && lists_secret(line.words[i]))) return {};
        if (!looks_secret(name)) continue;
        line.words[i].resize(line.words[i].find('=', begin_of_name(line.words[i])) + 1);
        line.hidden.push_back(i);
    }
    return line;
}

Result<std::vector<std::string>> with_secrets(
    const TypedLine& line,
    const std::function<std::optional<std::string>(std::string_view)>& variable) {
    std::vector<std::string> words = line.words;
    for (const std::size_t at : line.hidden) {
        const std::string name(variable_of(words.at(at)));
        const auto value = variable(name);
        if (!value)
            return fail(Errc::invalid_input,
                        "the value of {} is not kept, as its name looks like that of a secret: "
                        "export {}=... and try again",
                        name, name);
        words[at] += *value;
    }
    return words;
}

std::string shell_text(const TypedLine& line) {
    std::string text = "dtrun";
    for (std::size_t i = 0; i < line.words.size(); ++i) {
        const bool is_hidden = std::ranges::find(line.hidden, i) != line.hidden.end();
        text += " " + (is_hidden ? line.words[i] + "..." : shell_quote(line.words[i]));
    }
    return text;
}

}  // namespace dtrun::history
