#include "hostfiles/hostfile.h"

#include "base/fd.h"
#include "hostfiles/host_item.h"
#include "hostfiles/host_merger.h"
#include "hostfiles/yaml_hostfile.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

namespace dtrun {

namespace {

constexpr std::size_t kFileBytesMax = 64u << 20;

enum class Setting { slots, limit, user, port };

struct Key {
    std::string_view name;
    Setting setting;
};
/// The first four are those that messages tell to write. The others are what Open MPI and Hydra take.
constexpr std::array<Key, 18> kKeys = {{
    {"slots", Setting::slots},
    {"max_slots", Setting::limit},
    {"user", Setting::user},
    {"port", Setting::port},
    {"max-slots", Setting::limit},
    {"slots_max", Setting::limit},
    {"slots-max", Setting::limit},
    {"cpu", Setting::slots},
    {"cpu_max", Setting::limit},
    {"cpu-max", Setting::limit},
    {"max_cpu", Setting::limit},
    {"max-cpu", Setting::limit},
    {"count", Setting::slots},
    {"count_max", Setting::limit},
    {"count-max", Setting::limit},
    {"username", Setting::user},
    {"user_name", Setting::user},
    {"user-name", Setting::user},
}};
constexpr std::span<const Key> kToldKeys = std::span(kKeys).first<4>();

/// Null if there is no such key.
const Key* find_key(std::string_view name) {
    const auto found =
        std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& key) { return key.name == name; });
    return found == kKeys.end() ? nullptr : &*found;
}

/// How to write a setting.
std::string example(const Key& key) {
    const std::string_view value = key.setting == Setting::user   ? "alice"
                                   : key.setting == Setting::port ? "22"
                                                                  : "4";
    return fmt::format("{}={} without blanks around '='", key.name, value);
}

/// "[workers]", of an inventory; "[::1]" and "[1-3]" are hosts.
bool is_group(std::string_view text) {
    const auto stands_in_group = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    return text.size() > 2 && text.front() == '[' && text.back() == ']' &&
           std::ranges::all_of(text.substr(1, text.size() - 2), stands_in_group);
}

/// One line of a hostfile that names a host; parse() reads it from left to right.
class HostLine {
public:
    explicit HostLine(const Position& position) : position_(position) {}

    Result<void> parse(std::string_view line);

    const NamePattern& names() const { return item_.names; }
    const Position& host_position() const { return host_position_; }
    Host host() const;
    bool has_slots() const { return item_.slots.has_value(); }

private:
    Result<void> parse_host(std::string_view text, const Position& position);
    Result<void> parse_setting(std::string_view text, const Position& position);
    Result<void> set(const Key& key, std::string_view value, const Position& position);
    static Result<void> explain_no_setting(std::string_view text, const Position& position);
    Result<void> check_limit() const;

    Position position_;
    Position host_position_;
    Position limit_position_;
    HostItem item_;
    std::optional<int> slots_max_;
    std::optional<int> port_;
};

Result<void> HostLine::parse(std::string_view line) {
    bool is_host = true;
    for (const Token& word : split_outside_brackets(line, " \t\r\v\f")) {
        if (word.text.empty()) continue;
        const Position position = position_.after(word.offset);
        const auto parsed =
            is_host ? parse_host(word.text, position) : parse_setting(word.text, position);
        if (!parsed) return parsed;
        is_host = false;
    }
    return check_limit();
}

Result<void> HostLine::parse_host(std::string_view text, const Position& position) {
    host_position_ = position;
    if (text.find(',') != std::string_view::npos) {  // seldom; a range may hold commas
        const auto tokens = split_outside_brackets(text, ",");
        if (tokens.size() > 1)
            return fail_at(position.after(tokens[0].text.size()),
                           "a hostfile has one host on each line; lists with commas are for -H");
    }
    if (is_group(text))
        return fail_at(
            position,
            "{} is a group of an Ansible inventory; a hostfile has one host on each line, "
            "as in: s1 slots=4",
            in_quotes(text));
    auto item = parse_host_item(text, position);
    if (!item) return std::unexpected(item.error());
    item_ = std::move(*item);
    return {};
}

Result<void> HostLine::parse_setting(std::string_view text, const Position& position) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) return explain_no_setting(text, position);
    const std::string_view name = text.substr(0, equals);
    const Key* key = find_key(name);
    if (key == nullptr)
        return fail_at(position, "unknown key {}{}; the keys are slots, max_slots, user and port",
                       in_quotes(name),
                       did_you_mean(name, kToldKeys, [](const Key& told) { return told.name; }));
    const bool known = key->setting == Setting::slots   ? item_.slots.has_value()
                       : key->setting == Setting::limit ? slots_max_.has_value()
                       : key->setting == Setting::user  ? !item_.user.empty()
                                                        : port_.has_value();
    if (known) return fail_at(position, "{} is given twice on this line; keep one", name);
    if (key->setting == Setting::limit) limit_position_ = position;
    return set(*key, text.substr(equals + 1), position.after(equals + 1));
}

Result<void> HostLine::set(const Key& key, std::string_view value, const Position& position) {
    if (key.setting == Setting::user) {
        item_.user = value;
        return check_user(value, position);
    }
    if (key.setting == Setting::port) {
        const auto port = to_int(value, 1, 65'535);
        if (!port) return fail_at(position, "{} is not a port; write 1 to 65535", in_quotes(value));
        port_ = static_cast<int>(*port);
        return {};
    }
    const auto number = parse_slots(value, position, example(key));
    if (!number) return std::unexpected(number.error());
    (key.setting == Setting::slots ? item_.slots : slots_max_) = *number;
    return {};
}

Result<void> HostLine::explain_no_setting(std::string_view text, const Position& position) {
    const Key* key = text[0] == '=' ? &kKeys[0] : find_key(text);
    if (key != nullptr) return fail_at(position, "write {}", example(*key));
    if (std::all_of(text.begin(), text.end(), is_digit))
        return fail_at(position, "{} has no key; write slots={}", in_quotes(text), text);
    return fail_at(position,
                   "{} is not a setting; a line is one host, then slots=4, max_slots=8, user=alice "
                   "or port=22, then "
                   "a # comment",
                   in_quotes(text));
}

Result<void> HostLine::check_limit() const {
    const int slots = host().slots;
    if (slots_max_ && *slots_max_ < slots)
        return fail_at(limit_position_,
                       "max_slots={} is less than slots={}; raise it or lower slots", *slots_max_,
                       slots);
    return {};
}

Host HostLine::host() const {
    Host host;
    host.user = item_.user;
    host.slots = item_.slots.value_or(host.slots);
    host.slots_max = slots_max_;
    host.port = port_.value_or(0);
    return host;
}

std::string_view without_byte_order_mark(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    return text;
}

/// A line up to its comment: '#' anywhere, or "//" as a word begins, as Open MPI has it.
std::string_view without_comment(std::string_view line) {
    line = line.substr(0, line.find('#'));
    for (std::size_t at = line.find("//"); at != std::string_view::npos;
         at = line.find("//", at + 1))
        if (at == 0 || is_blank(line[at - 1])) return line.substr(0, at);
    return line;
}

/// Calls `add` with every line that names a host, until it fails.
template <class Add>
Result<void> each_line(std::string_view text, std::string_view name, Add add) {
    Position position{name, 0};
    while (!text.empty()) {
        ++position.line;
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const std::string_view content = without_comment(line);
        if (trim(content).empty()) continue;
        if (auto plain = check_characters(content, position); !plain) return plain;
        HostLine parsed(position);
        if (auto ok = parsed.parse(content); !ok) return ok;
        if (auto added = add(parsed); !added) return added;
    }
    return {};
}

}  // namespace

Result<HostList> parse_hostfile(std::string_view text, std::string_view name) {
    if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
        return fail_at(Position{name}, "this is UTF-16; convert it: iconv -f UTF-16 -t UTF-8");
    text = without_byte_order_mark(text);
    if (looks_like_yaml(text)) return parse_yaml_hostfile(text, name);
    HostMerger hosts(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
    bool any = false;
    const auto done = each_line(text, name, [&](const HostLine& line) {
        any = true;
        return hosts.add(line.names(), line.host(), line.host_position());
    });
    if (!done) return std::unexpected(done.error());
    if (!any)
        return fail_at(Position{name}, "no hosts in the file; write lines such as: host slots=4");
    return hosts.take();
}

Result<HostList> parse_host_listing(std::string_view text, std::string_view name, int slots) {
    HostList list;
    const auto done = each_line(text, name, [&](const HostLine& line) -> Result<void> {
        Host host = line.host();
        if (!line.has_slots()) host.slots = slots;
        HostMerger mentioned(1);
        if (auto added = mentioned.add(line.names(), host, line.host_position()); !added)
            return added;
        for (Host& each : mentioned.take()) {
            const auto known = std::ranges::find(list, each.name, &Host::name);
            if (known == list.end())
                list.push_back(std::move(each));
            else
                *known = std::move(each);
        }
        return {};
    });
    if (!done) return std::unexpected(done.error());
    return list;
}

Result<std::string> read_standard_input() {
    std::string text;
    std::array<char, 64u << 10> chunk;
    while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), stdin)) {
        text.append(chunk.data(), n);
        if (text.size() > kFileBytesMax)
            return fail(Errc::invalid_input, "stdin: larger than {} bytes", kFileBytesMax);
    }
    if (std::ferror(stdin) != 0) return fail(Errc::internal, "stdin: cannot be read");
    return text;
}

Result<HostList> read_hostfile(const std::string& path) {
    const bool is_stdin = path == "-";
    const auto text = is_stdin ? read_standard_input() : read_file(path, kFileBytesMax);
    if (!text) return fail(text.error(), "--hostfile");
    return parse_hostfile(*text, is_stdin ? "stdin" : path);
}

}  // namespace dtrun
