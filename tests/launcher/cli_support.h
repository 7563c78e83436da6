#pragma once

#include "base/strings.h"
#include "launcher/cli.h"

#include <unistd.h>
#include <cstdlib>
#include <fstream>
#include <string>

namespace dtrun {

using Environment = std::vector<std::string>;

/// Parses what a person would type after `dtrun`, quotes and all.
inline Result<CommandLine> parse_typed(std::string_view typed, const Environment& caller = {}) {
    return parse_command_line(shell_words(typed).value(), caller);
}

/// The options of a line that must be right.
inline Options options_of(std::string_view typed, const Environment& caller = {}) {
    const auto command = parse_typed(typed, caller);
    if (!command) throw std::runtime_error(command.error().message);
    return command->options;
}

/// What a wrong line is answered with.
inline std::string error_of(std::string_view typed, const Environment& caller = {}) {
    const auto command = parse_typed(typed, caller);
    return command ? "no error" : command.error().message;
}

/// "NAME=value NAME=value".
inline std::string show(const std::vector<Options::Variable>& variables) {
    std::string text;
    for (const auto& [name, value] : variables)
        text.append(text.empty() ? "" : " ").append(name).append("=").append(value);
    return text;
}

/// A file with some content, removed at the end of the scope.
class TempFile {
public:
    explicit TempFile(std::string_view content) {
        char name[] = "/tmp/dtrun-test-XXXXXX";
        ::close(::mkstemp(name));
        path_ = name;
        std::ofstream(path_, std::ios::binary) << content;
    }
    ~TempFile() { ::unlink(path_.c_str()); }
    TempFile(const TempFile&) = delete;
    TempFile& operator=(const TempFile&) = delete;

    const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace dtrun
