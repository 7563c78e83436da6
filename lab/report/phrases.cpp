#include "lab/report/phrases.h"

#include "base/strings.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace dtrun::lab {
namespace {

using std::string_view;

struct Phrase {
    bool is_fact;
    string_view english, chinese;
};

constexpr Phrase kPhrases[] = {
#define PHRASE(english, chinese) {false, english, chinese},
#define FACT(english, chinese) {true, english, chinese},
#include "lab/report/phrases.def"
#undef FACT
#undef PHRASE
};

/// Phrases within phrases; more of them than that stand in no text of ours.
constexpr int kDepthMax = 8;

/// The next place of a pattern that stands for any text, "{0}", "{0:d}" or "{0:n}".
struct Gap {
    std::size_t begin, end;
    bool is_number;
    bool is_name;  ///< which is no fact, though it may be the same word
};

std::optional<Gap> next_gap(string_view pattern, std::size_t from) {
    const std::size_t begin = pattern.find('{', from);
    if (begin == string_view::npos) return std::nullopt;
    const std::size_t end = pattern.find('}', begin) + 1;
    const string_view gap = pattern.substr(begin, end - begin);
    return Gap{begin, end, gap.ends_with(":d}"), gap.ends_with(":n}")};
}

bool is_number(string_view text) {
    return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// What stands at the places of a pattern, in their order, if it fits the whole text: as little as fits at each.
std::optional<std::vector<string_view>> match(string_view text, string_view pattern) {
    std::vector<string_view> found;
    std::size_t done = 0;  // of the pattern
    for (auto gap = next_gap(pattern, 0); gap; gap = next_gap(pattern, done)) {
        const string_view before = pattern.substr(done, gap->begin - done);
        if (!text.starts_with(before)) return std::nullopt;
        text.remove_prefix(before.size());
        done = gap->end;
        const auto next = next_gap(pattern, done);
        const string_view behind =
            pattern.substr(done, next ? next->begin - done : string_view::npos);
        std::size_t size = text.find(behind, 1);
        if (!next && text.size() > behind.size() && text.ends_with(behind))
            size = text.size() - behind.size();
        if (size == 0 || size > text.size()) return std::nullopt;
        const string_view value = text.substr(0, size);
        if (gap->is_number && !is_number(value)) return std::nullopt;
        found.push_back(value);
        text.remove_prefix(size);
    }
    if (text != pattern.substr(done)) return std::nullopt;
    return found;
}

std::string translated(string_view text, bool may_be_fact, int depth);

std::string filled_in(string_view pattern, const std::vector<string_view>& values, int depth) {
    std::string text;
    std::size_t done = 0;
    for (auto gap = next_gap(pattern, 0); gap; gap = next_gap(pattern, done)) {
        text += pattern.substr(done, gap->begin - done);
        const auto number = static_cast<std::size_t>(pattern[gap->begin + 1] - '0');
        text += translated(values.at(number), !gap->is_name, depth + 1);
        done = gap->end;
    }
    return text.append(pattern.substr(done));
}

std::string translated(string_view text, bool may_be_fact, int depth) {
    if (depth > kDepthMax) return std::string(text);
    for (const bool is_fact : {true, false}) {
        if (is_fact && !may_be_fact) continue;
        for (const Phrase& phrase : kPhrases) {
            if (phrase.is_fact != is_fact) continue;
            if (const auto values = match(text, phrase.english))
                return filled_in(phrase.chinese, *values, depth);
        }
    }
    return std::string(text);
}

/// Kinds of links stand in one line.
std::string links_in(Language language, string_view links) {
    std::string told;
    for (std::size_t begin = 0; begin <= links.size();) {
        const std::size_t end = std::min(links.find(", ", begin), links.size());
        if (begin > 0) told += ", ";
        told += fact_in(language, links.substr(begin, end - begin));
        begin = end + 2;
    }
    return told;
}

}  // namespace

std::string told_in(Language language, string_view text) {
    if (language == Language::english) return std::string(text);
    constexpr string_view kQuote = "| ";
    constexpr string_view kQuoted = ". Its last lines:";
    std::string told;
    bool is_quoted = false;
    for (string_view line : split(text, '\n')) {
        if (line.data() != text.data()) told += '\n';
        const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
        told += line.substr(0, begin);
        const bool is_ours = !is_quoted && !line.substr(begin).starts_with(kQuote);
        is_quoted = is_quoted || line.ends_with(kQuoted);
        line.remove_prefix(begin);
        told += is_ours ? translated(line, false, 0) : std::string(line);
    }
    return told;
}

std::string fact_in(Language language, string_view text) {
    return language == Language::english ? std::string(text) : translated(text, true, 0);
}

LabReport told_in_its_language(LabReport report) {
    if (report.language == Language::english) return report;
    const auto tell = [&report](std::string& text) { text = told_in(report.language, text); };
    const auto tell_fact = [&report](std::string& text) { text = fact_in(report.language, text); };
    for (HostRecord& host : report.hosts)
        host.gpu_links = links_in(report.language, host.gpu_links);
    for (CommRecord& comm : report.comms) {
        tell_fact(comm.transport);
        tell_fact(comm.why);
        for (auto& [what, used] : comm.details) tell_fact(what), tell_fact(used);
    }
    for (TrainRecord& run : report.train) tell_fact(run.data);
    for (FailureRecord& failure : report.failures) tell(failure.error);
    for (std::string& reason : report.skipped) tell(reason);
    return report;
}

std::string backend_name_in(const ReportWords& words, string_view backend) {
    if (backend == kOwnBackend) return std::string(words.own_backend);
    return std::string(backend == "none" ? words.none : backend);
}

}  // namespace dtrun::lab
