#include "worker/ranks/python_command.h"

#include "base/fd.h"
#include "base/strings.h"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::ranks {
namespace {

constexpr std::string_view kElf =
    "\x7f"
    "ELF";

/// The first bytes of a file, as the kernel looks at them to execute it; empty if it cannot be read.
std::string first_bytes(const std::string& path) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text(256, '\0');
    const ssize_t n = file ? ::read(file.get(), text.data(), text.size()) : 0;
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
}

std::string base_name(const std::string& path) {
    return std::filesystem::path(path).filename().string();
}

/// "python3.11" and the like, also if the file's own name is so and a link has another.
bool is_named_python(const std::string& path) {
    std::error_code ignored;
    const std::filesystem::path real = std::filesystem::canonical(path, ignored);
    for (const std::string& name : {base_name(path), real.filename().string()})
        for (const std::string_view known : {"python", "pypy"})
            if (name.starts_with(known) &&
                name.find_first_not_of("0123456789.", known.size()) == std::string::npos)
                return true;
    return false;
}

/// The first of the interpreter's own options that keeps it from what is needed; empty: none.
/// \param words  what follows the interpreter, options first
std::string forbidding_option(std::span<const std::string> words) {
    constexpr std::string_view kForbidding = "IESVhx?";  // they isolate it, or run no program
    constexpr std::string_view kWithValue = "WX";
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word.size() < 2 || word[0] != '-' || word == "--") return {};
        if (word[1] == '-') return word;
        for (std::size_t at = 1; at < word.size(); ++at) {
            const char letter = word[at];
            if (letter == 'c' || letter == 'm') return {};
            if (kForbidding.find(letter) != std::string_view::npos)
                return fmt::format("-{}", letter);
            if (kWithValue.find(letter) == std::string_view::npos) continue;
            if (at + 1 == word.size()) ++i;  // its value is the next word
            break;
        }
    }
    return {};
}

std::string path_of(const RankCommand& command) {
    for (const std::string& entry : command.env)
        if (entry.starts_with("PATH=")) return entry.substr(5);
    return {};
}

/// Words of a script's first line, "#!" left out; the kernel makes one word of all that follow the first.
std::vector<std::string> interpreter_line(std::string_view text) {
    std::string_view line = trim(text.substr(2, text.find('\n') - 2));
    const std::size_t blank = line.find_first_of(" \t");
    std::vector<std::string> words{std::string(line.substr(0, blank))};
    if (blank != std::string_view::npos) words.emplace_back(trim(line.substr(blank)));
    return words;
}

/// Finds what the interpreter runs behind its own options, and sets it apart: "-Bm" becomes "-B" and "-m".
void find_python_program(PythonWords& python) {
    constexpr std::string_view kWithValue = "WX";
    std::vector<std::string>& words = python.words;
    for (python.program = 1; python.program < words.size(); ++python.program) {
        const std::string word = words[python.program];
        if (word.size() < 2 || word[0] != '-' || word == "-c" || word == "-m") return;
        if (word == "--")
            return void(words.erase(words.begin() + static_cast<std::ptrdiff_t>(python.program)));
        if (word[1] == '-') {
            if (word == "--check-hash-based-pycs") ++python.program;
            continue;
        }
        const std::size_t last = word.find_first_of("cmWX", 1);
        if (last == std::string::npos) continue;
        if (kWithValue.find(word[last]) != std::string_view::npos) {
            if (last + 1 == word.size()) ++python.program;
            continue;
        }
        words[python.program] = word.substr(0, last);
        words.insert(words.begin() + static_cast<std::ptrdiff_t>(++python.program),
                     "-" + word.substr(last));
        return;
    }
}

std::string file_of(const RankCommand& command) {
    return command.path.starts_with('/') ? command.path : command.directory + "/" + command.path;
}

/// The words of a script's first line that name its interpreter; with `env` those behind it.
std::vector<std::string> interpreter_of(const RankCommand& command, std::string_view text) {
    std::vector<std::string> words = interpreter_line(text);
    if (base_name(words[0]) != "env" || words.size() != 2) return words;
    const auto found = find_program(words[1], command.directory, path_of(command));
    if (!found) return {};
    return {*found};
}

std::string why_not(const RankCommand& command, const std::string& path,
                    std::span<const std::string> options) {
    if (!is_named_python(path)) return fmt::format("{} is no Python program", command.argv[0]);
    if (!first_bytes(path).starts_with(kElf))
        return fmt::format("{} is a script that starts an interpreter: name the interpreter itself",
                           path);
    const std::string option = forbidding_option(options);
    if (option.empty()) return {};
    return fmt::format("with {} Python does not import what keeps it waiting", option);
}

}  // namespace

std::string why_not_standby(const RankCommand& command) {
    const std::string path = file_of(command);
    const std::string text = first_bytes(path);
    if (!text.starts_with("#!") || is_named_python(path))
        return why_not(command, path, std::span(command.argv).subspan(1));
    const std::vector<std::string> words = interpreter_of(command, text);
    if (words.empty()) return fmt::format("{} is no Python program", command.argv[0]);
    return why_not(command, words[0], std::span(words).subspan(1));
}

std::optional<PythonWords> python_words(const RankCommand& command) {
    PythonWords python{file_of(command), command.argv};
    if (!is_named_python(python.path)) {
        const std::string text = first_bytes(python.path);
        if (!text.starts_with("#!")) return std::nullopt;
        std::vector<std::string> words = interpreter_of(command, text);
        if (words.empty() || !is_named_python(words[0])) return std::nullopt;
        words.push_back(std::exchange(python.path, words[0]));
        words.insert(words.end(), command.argv.begin() + 1, command.argv.end());
        python.words = std::move(words);
    }
    find_python_program(python);
    return python;
}

}  // namespace dtrun::ranks
