#include "launcher/cli/man.h"

#include "base/strings.h"
#include "launcher/cli/help.h"

#include <dtrun_version.h>
#include <fmt/format.h>
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::cli {

extern const char* const kCommitDate;  // of a file that CMake makes: "2026-11-25", or another day

namespace {

using std::string_view;

/// A line of text: what would be orders to roff is not.
std::string roff(string_view line) {
    std::string text;
    if (line.starts_with('.') || line.starts_with('\'')) text += "\\&";
    for (const char c : line) {
        if (c == '\\')
            text += "\\e";
        else if (c == '-')
            text += "\\-";
        else if (c == '~')
            text += "\\(ti";
        else if (c == '^')
            text += "\\(ha";
        else if (c == '`')
            text += "\\(ga";
        else
            text += c;
    }
    return text;
}

std::string page_name(Commands commands, const Command& command) {
    return &command == &commands.front() ? "dtrun" : fmt::format("dtrun-{}", command.name);
}

/// An indented line of two columns: "  dtrun top    what ranks use". \return empty if it has only one
std::pair<string_view, string_view> columns_of(string_view line) {
    constexpr std::size_t kIndent = 2;
    if (!line.starts_with("  ") || line.substr(kIndent, 1) == " ") return {};
    const std::size_t gap = line.find("  ", kIndent);
    if (gap == string_view::npos) return {};
    return {line.substr(kIndent, gap - kIndent), trim(line.substr(gap))};
}

/// Text as roff: paragraphs are filled, lists of two columns are lists, and other lines that are indented stand as
/// they are.
class Prose {
public:
    std::string of(const std::vector<string_view>& lines) {
        for (const string_view line : lines) add(line);
        end_block();
        return text_;
    }

private:
    enum class Block { none, paragraph, list, as_is };

    void add(string_view line) {
        if (trim(line).empty()) return end_block();
        const auto [left, right] = columns_of(line);
        const bool goes_on = block_ == Block::list && line.starts_with("        ");
        if (!left.empty() && block_ != Block::as_is) {
            begin(Block::list, "");
            text_ += fmt::format(".TP\n.B {}\n{}\n", roff(left), roff(right));
        } else if (goes_on) {
            text_ += roff(trim(line)) + "\n";
        } else if (line.starts_with(' ')) {
            begin(Block::as_is, ".RS 2\n.nf\n");
            text_ += roff(line.substr(std::min<std::size_t>(2, line.size()))) + "\n";
        } else {
            begin(Block::paragraph, text_.empty() ? "" : ".PP\n");
            text_ += roff(line) + "\n";
        }
    }
    void begin(Block block, string_view opening) {
        if (block_ == block) return;
        end_block();
        block_ = block;
        text_ += opening;
    }
    void end_block() {
        if (block_ == Block::as_is) text_ += ".fi\n.RE\n";
        block_ = Block::none;
    }

    std::string text_;
    Block block_ = Block::none;
};

std::string options(std::span<const Flag> flags) {
    std::string text;
    for (auto flag = flags.begin(); flag != flags.end(); ++flag) {
        if (flag->help.empty() || !flag->refused.empty() || flag->group == FlagGroup::foreign)
            continue;
        const auto head = [](const Flag& one) {
            std::string names = comma_separated(one.names);
            const auto value = one.value();
            const bool apart = value == Flag::Value::required || value == Flag::Value::choice;
            if (!one.metavar.empty()) names += fmt::format("{}{}", apart ? " " : "", one.metavar);
            return names;
        };
        std::string title = head(*flag);
        const auto next = flag + 1;
        if (next != flags.end() && next->help.empty() && next->refused.empty())
            title += ", " + head(*next);
        text += fmt::format(".TP\n.B {}\n{}\n", roff(title), roff(flag->help));
    }
    const std::string refused = refusals(flags);
    if (refused.empty()) return text;
    text += ".SS What dtrun does not take\n";
    bool is_new = false;
    for (const string_view line : split(refused, '\n')) {
        if (line.empty()) continue;
        text += (is_new ? ".br\n" : "") + roff(trim(line)) + "\n";
        is_new = line.ends_with('.');
    }
    return text;
}

/// A help text in its parts: the usage, the text, and what it says of exit codes. Its options come from the table.
struct Parts {
    std::vector<string_view> usage, text, exit;
};

Parts parts_of(string_view help, bool has_options) {
    Parts parts;
    std::vector<string_view>* into = help.starts_with("usage: ") ? &parts.usage : &parts.text;
    const std::vector<string_view> lines = split(help, '\n');
    for (std::size_t i = 0; i < lines.size(); ++i) {
        string_view line = lines[i];
        // "Options:", and then its rows
        const bool is_title = has_options && line.ends_with(':') && i + 1 < lines.size() &&
                              lines[i + 1].starts_with("  -");
        if (is_title) {
            while (i + 1 < lines.size() && !lines[i + 1].empty()) ++i;
            into = &parts.text;
            continue;
        }
        if (into == &parts.usage) {
            if (line.empty() && !parts.usage.empty()) into = &parts.text;
            if (line.starts_with("usage: ")) line.remove_prefix(7);
        } else if (line.starts_with("Exit code: ")) {
            into = &parts.exit;
            line.remove_prefix(11);
        } else if (line.empty() && into == &parts.exit) {
            into = &parts.text;
        }
        into->push_back(line);
    }
    return parts;
}

}  // namespace

bool has_man_page(Commands commands, const Command& command) {
    return &command == &commands.front() || (command.run != nullptr && !command.summary.empty());
}

std::string man_file(Commands commands, const Command& command) {
    return page_name(commands, command) + ".1";
}

std::string man_page(Commands commands, const Command& command) {
    const bool is_run = &command == &commands.front();
    const std::string name = page_name(commands, command);
    std::string capitals = name;
    for (char& c : capitals)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    const std::span<const Flag> flags =
        command.flags != nullptr ? command.flags() : std::span<const Flag>();
    const std::string help = command.help();
    const Parts parts = parts_of(help, !flags.empty());
    std::string page = fmt::format(
        ".TH {} 1 {} \"dtrun {}\" \"dtrun\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.nf\n",
        roff(capitals), kCommitDate, DTRUN_VERSION, roff(name),
        roff(is_run ? "start a program on many machines, with a rank for each" : command.summary));
    if (parts.usage.empty()) page += fmt::format("dtrun {} [options]\n", command.name);
    for (const string_view line : parts.usage)
        if (!trim(line).empty()) page += roff(trim(line)) + "\n";
    page += ".fi\n.SH DESCRIPTION\n" + Prose().of(parts.text);
    if (!flags.empty()) page += ".SH OPTIONS\n" + options(flags);
    if (!parts.exit.empty()) page += ".SH EXIT STATUS\n" + Prose().of(parts.exit);
    if (is_run) {
        page +=
            ".SH FILES\n.TP\n.I ~/.ssh/config\nwhat OpenSSH says of hosts\n.TP\n"
            ".I ~/.config/dtrun/secret\nthe secret of daemons\n";
        page +=
            ".SH ENVIRONMENT\nWhat ranks find in their environment: "
            ".B dtrun help environment\n";
    }
    page += ".SH SEE ALSO\n";
    std::vector<std::string> others;
    for (const Command& each : commands)
        if (&each != &command && has_man_page(commands, each))
            others.push_back(page_name(commands, each));
    std::ranges::sort(others);
    for (const std::string& other : others)
        page += fmt::format(".BR {} (1){}\n", roff(other), &other == &others.back() ? "" : ",");
    return page;
}

}  // namespace dtrun::cli
