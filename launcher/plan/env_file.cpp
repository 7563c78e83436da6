#include "launcher/plan/env_file.h"

#include "launcher/plan/environment.h"

#include <algorithm>

namespace dtrun::plan {

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Reads one file from front to back.
class EnvFileReader {
public:
    EnvFileReader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

    Result<Variables> read() {
        Variables variables;
        for (;;) {
            skip_blanks();
            if (at_end()) return variables;
            if (at_line_end() || peek() == '#') {
                skip_line();
                continue;
            }
            auto variable = assignment();
            if (!variable) return std::unexpected(variable.error());
            variables.push_back(std::move(*variable));
        }
    }

private:
    bool at_end() const { return at_ == text_.size(); }
    char peek() const { return text_[at_]; }
    bool at_line_end() const {
        return at_end() || peek() == '\n' || text_.substr(at_).starts_with("\r\n");
    }
    static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
    void skip_blanks() {
        while (!at_end() && is_blank(peek())) ++at_;
    }
    void skip_line() { at_ = std::min(text_.find('\n', at_), text_.size() - 1) + 1; }

    template <class... A>
    std::unexpected<Error> fail_at(std::size_t where, fmt::format_string<A...> text, A&&... args) {
        const std::string_view before = text_.substr(0, where);
        const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
        return fail(Errc::invalid_input, "{}:{}:{}: {}", file_,
                    std::ranges::count(before, '\n') + 1, where - line_start + 1,
                    fmt::format(text, std::forward<A>(args)...));
    }

    Result<std::pair<std::string, std::string>> assignment() {
        constexpr std::string_view kExport = "export";
        if (text_.substr(at_).starts_with(kExport) && at_ + kExport.size() < text_.size() &&
            is_blank(text_[at_ + kExport.size()])) {
            at_ += kExport.size();
            skip_blanks();
        }
        const std::size_t start = at_;
        while (!at_line_end() && peek() != '=' && !is_blank(peek())) ++at_;
        const std::string_view name = text_.substr(start, at_ - start);
        if (at_end() || peek() != '=') return fail_at(at_, "expected NAME=VALUE");
        if (!is_variable_name(name)) return fail_at(start, "'{}' is not a variable's name", name);
        if (const auto settable = check_settable(name); !settable)
            return fail_at(start, "{}", settable.error().message);
        ++at_;
        auto value = this->value();
        if (!value) return std::unexpected(value.error());
        return std::pair(std::string(name), std::move(*value));
    }

    Result<std::string> value() {
        skip_blanks();
        const std::size_t start = at_;
        Result<std::string> value;
        if (!at_end() && (peek() == '\'' || peek() == '"')) {
            value = quoted(peek());
            if (!value) return value;
            skip_blanks();
            if (!at_line_end() && peek() != '#')
                return fail_at(at_, "text after the closing quote");
        } else {
            value = plain();
        }
        if (const std::size_t zero = text_.substr(start, at_ - start).find('\0');
            zero != std::string_view::npos)
            return fail_at(start + zero, "a NUL byte, which no variable can hold");
        skip_line();
        return value;
    }

    std::string plain() {
        const std::size_t start = at_;
        while (!at_line_end() && !(peek() == '#' && (at_ == start || is_blank(text_[at_ - 1]))))
            ++at_;
        std::string_view value = text_.substr(start, at_ - start);
        while (!value.empty() && is_blank(value.back())) value.remove_suffix(1);
        return std::string(value);
    }

    Result<std::string> quoted(char quote) {
        const std::size_t start = at_++;
        std::string value;
        for (; !at_end(); ++at_) {
            if (peek() == quote) {
                ++at_;
                return value;
            }
            if (peek() == '\\' && quote == '"' && at_ + 1 < text_.size())
                append_escape(value);
            else
                value += peek();
        }
        return fail_at(start, "this quote is never closed");
    }

    void append_escape(std::string& value) {
        constexpr std::string_view kCodes = "ntr\"\\$";
        constexpr std::string_view kMeanings = "\n\t\r\"\\$";
        const std::size_t code = kCodes.find(text_[++at_]);
        if (code == std::string_view::npos)
            value += {'\\', text_[at_]};
        else
            value += kMeanings[code];
    }

    std::string_view text_;
    std::string_view file_;
    std::size_t at_ = 0;
};

}  // namespace

Result<Variables> parse_env_file(std::string_view text, std::string_view name) {
    return EnvFileReader(text, name).read();
}

}  // namespace dtrun::plan
