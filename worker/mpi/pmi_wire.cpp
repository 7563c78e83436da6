#include "worker/mpi/pmi_wire.h"

#include "base/strings.h"

#include <algorithm>

namespace dtrun::mpi {
namespace {

constexpr std::size_t kLengthBytes = 6;  // in front of a message of PMI-2

/// "KEY=" at the beginning of `text`, which loses it.
Result<std::string_view> take_key(std::string_view& text, std::string_view ends) {
    const auto end = text.find_first_of(ends);
    if (end == std::string_view::npos || text[end] != '=' || end == 0)
        return fail(Errc::invalid_input, "a value without a key");
    const std::string_view key = text.substr(0, end);
    text.remove_prefix(end + 1);
    return key;
}

/// "KEY=VALUE KEY=VALUE"
Result<PmiCommand::Values> parse_words(std::string_view line) {
    PmiCommand::Values values;
    for (;;) {
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        if (line.empty()) return values;
        const auto key = take_key(line, "= ");
        if (!key) return fail(key.error(), "a line of PMI-1");
        const std::string_view value = line.substr(0, line.find(' '));
        values.emplace_back(*key, value);
        line.remove_prefix(value.size());
    }
}

/// "KEY=VALUE;KEY=VALUE;"
Result<PmiCommand::Values> parse_message(std::string_view text) {
    PmiCommand::Values values;
    while (!text.empty()) {
        const auto key = take_key(text, "=;");
        if (!key) return fail(key.error(), "a message of PMI-2");
        std::string value;
        for (;;) {
            const auto end = text.find(';');
            if (end == std::string_view::npos)
                return fail(Errc::invalid_input, "a message of PMI-2: a value without its end");
            value += text.substr(0, end);
            text.remove_prefix(end + 1);
            if (!text.starts_with(';')) break;
            value += ';';
            text.remove_prefix(1);
        }
        values.emplace_back(*key, std::move(value));
    }
    return values;
}

/// The first value names the command. \param marker  which "cmd" it must be, or "mcmd"
std::optional<PmiCommand> command_of(PmiCommand::Values values, std::string_view marker) {
    if (values.empty() || values.front().first != marker) return {};
    PmiCommand command;
    command.name = std::move(values.front().second);
    values.erase(values.begin());
    command.values = std::move(values);
    return command;
}

}  // namespace

const std::string* PmiCommand::find(std::string_view key) const {
    const auto at = std::ranges::find(values, key, [](const auto& value) { return value.first; });
    return at == values.end() ? nullptr : &at->second;
}

std::string_view PmiCommand::value(std::string_view key) const {
    const std::string* const found = find(key);
    return found == nullptr ? std::string_view() : std::string_view(*found);
}

bool is_pmi1_word(std::string_view text) {
    return text.find_first_of(std::string_view(" \n\0", 3)) == std::string_view::npos;
}

std::string encode_pmi1(const PmiCommand& command) {
    std::string line = "cmd=" + command.name;
    for (const auto& [key, value] : command.values) line += ' ' + key + '=' + value;
    return line + '\n';
}

std::string encode_pmi2(const PmiCommand& command) {
    std::string text = "cmd=" + command.name + ';';
    for (const auto& [key, value] : command.values) {
        text += key + '=';
        for (const char c : value) text.append(c == ';' ? 2 : 1, c);
        text += ';';
    }
    return fmt::format("{:>{}}", text.size(), kLengthBytes) + text;
}

void PmiReader::feed(std::string_view bytes) {
    if (begin_ == in_.size()) {
        in_.clear();
        begin_ = 0;
    } else if (begin_ > kLineBytesMax) {
        in_.erase(0, begin_);
        begin_ = 0;
    }
    in_ += bytes;
}

Result<std::optional<PmiCommand>> PmiReader::next() {
    return version_ == PmiVersion::one ? next_line() : next_message();
}

Result<std::optional<PmiCommand>> PmiReader::next_line() {
    for (;;) {
        const std::string_view rest = std::string_view(in_).substr(begin_);
        const auto end = rest.find('\n', looked_);
        if (std::min(end, rest.size()) > kLineBytesMax)
            return fail(Errc::invalid_input, "a line of PMI-1 with more than {} bytes",
                        kLineBytesMax);
        if (end == std::string_view::npos) {
            looked_ = rest.size();
            return std::nullopt;
        }
        begin_ += end + 1;
        looked_ = 0;
        auto command = take_line(rest.substr(0, end));
        if (!command || *command) return command;
    }
}

Result<std::optional<PmiCommand>> PmiReader::take_line(std::string_view line) {
    if (in_lines_) {
        if (line == "endcmd") return std::exchange(in_lines_, std::nullopt);
        const std::string_view key = line.substr(0, line.find('='));
        if (key == "totspawns" || key == "spawnssofar")
            in_lines_->values.emplace_back(key, line.substr(std::min(line.size(), key.size() + 1)));
        if (in_lines_->values.size() > 2)
            return fail(Errc::invalid_input, "a command of PMI-1 that counts itself twice");
        return std::nullopt;
    }
    auto values = parse_words(line);
    if (!values) return std::unexpected(values.error());
    if (values->empty()) return std::nullopt;
    if (values->front().first == "mcmd") {
        in_lines_ = command_of(std::move(*values), "mcmd");
        in_lines_->values.clear();
        return std::nullopt;
    }
    auto command = command_of(std::move(*values), "cmd");
    if (!command) return fail(Errc::invalid_input, "a line of PMI-1 that is no command");
    return command;
}

Result<std::optional<PmiCommand>> PmiReader::next_message() {
    const std::string_view rest = std::string_view(in_).substr(begin_);
    if (rest.size() < kLengthBytes) return std::nullopt;
    const auto length =
        to_int(trim(rest.substr(0, kLengthBytes)), 0, static_cast<long long>(kMessageBytesMax));
    if (!length) return fail(Errc::invalid_input, "a message of PMI-2 without its length");
    const auto bytes = static_cast<std::size_t>(*length);
    if (rest.size() - kLengthBytes < bytes) return std::nullopt;
    begin_ += kLengthBytes + bytes;
    auto values = parse_message(rest.substr(kLengthBytes, bytes));
    if (!values) return std::unexpected(values.error());
    auto command = command_of(std::move(*values), "cmd");
    if (!command) return fail(Errc::invalid_input, "a message of PMI-2 that is no command");
    return command;
}

}  // namespace dtrun::mpi
