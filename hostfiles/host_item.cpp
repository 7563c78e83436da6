#include "hostfiles/host_item.h"

#include "base/strings.h"

#include <arpa/inet.h>
#include <algorithm>

namespace dtrun {

namespace {

// A name that would change the command if a remote shell saw it; OpenSSH refuses these as well.
constexpr std::string_view kNotInUser = "'`\";&<>|(){}\\$";

Result<NamePattern> parse_ipv6(std::string_view address, const Position& position) {
    if (!is_ipv6(address))
        return fail_at(position, "{} is not an IPv6 address; write one as in [::1]:4",
                       in_quotes(address));
    return NamePattern::verbatim(address);
}

Result<void> check_no_scheme(std::string_view text, const Position& position) {
    const std::size_t scheme = text.find("://");
    if (scheme == std::string_view::npos) return {};
    const std::size_t word = text.rfind('@', scheme) + 1;  // 0, if there is no user before it
    const std::string_view rest = text.substr(scheme + 3);
    const std::size_t colon = std::min(rest.rfind(':'), rest.size());
    const auto port = to_int(rest.substr(std::min(colon + 1, rest.size())), 1, 65'535);
    if (port && text.substr(word, scheme - word) == "ssh")  // behind a colon slots would stand
        return fail_at(position,
                       "{} is an address of the web; write {}, and ssh's port as -p {}, or as "
                       "port={} in a hostfile",
                       in_quotes(text), rest.substr(0, colon), *port, *port);
    return fail_at(position, "{} is an address of the web; write {}{}", in_quotes(text),
                   text.substr(0, word), rest.empty() ? "the host's name" : rest);
}

}  // namespace

bool is_ipv6(std::string_view text) {
    const std::size_t percent = text.find('%');
    if (percent != std::string_view::npos) {
        const std::string_view zone = text.substr(percent + 1);
        const auto allowed = [](char c) {
            return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                   c == '-' || c == '_';
        };
        if (zone.empty() || zone.size() > 32 || !std::all_of(zone.begin(), zone.end(), allowed))
            return false;
    }
    const std::string address(text.substr(0, percent));
    in6_addr parsed;
    return address.find('\0') == std::string::npos &&
           ::inet_pton(AF_INET6, address.c_str(), &parsed) == 1;
}

bool is_address(const std::string& text) {
    in_addr parsed;
    return is_ipv6(text) || ::inet_pton(AF_INET, text.c_str(), &parsed) == 1;
}

Result<void> check_user(std::string_view user, const Position& position) {
    if (user.empty()) return fail_at(position, "the user name is missing");
    if (user[0] == '-')
        return fail_at(position, "user name {} starts with '-': ssh would read it as an option",
                       in_quotes(user));
    if (user.size() > kNameBytesMax)
        return fail_at(position, "user name {} is longer than {} bytes", in_quotes(user),
                       kNameBytesMax);
    for (std::size_t i = 0; i < user.size(); ++i) {
        const auto byte = static_cast<unsigned char>(user[i]);
        if (byte <= ' ' || byte == 0x7f || kNotInUser.find(user[i]) != std::string_view::npos)
            return fail_at(position.after(i), "{} cannot stand in a user name",
                           in_quotes(user.substr(i, 1)));
    }
    return {};
}

Result<NamePattern> parse_host_name(std::string_view text, const Position& position,
                                    std::string_view& rest) {
    const std::size_t close = text.starts_with('[') ? text.find(']') : std::string_view::npos;
    if (close != std::string_view::npos) {
        const std::string_view address = text.substr(1, close - 1);
        if (address.find(':') != std::string_view::npos) {
            rest = text.substr(close + 1);
            if (!rest.empty() && rest[0] != ':')
                return fail_at(position.after(close + 1),
                               "after ']' comes ':' and the slots, or nothing");
            return parse_ipv6(address, position.after(1));
        }
    }
    if (auto plain = check_no_scheme(text, position); !plain) return std::unexpected(plain.error());
    const std::size_t colon = std::min(text.find(':'), text.size());
    rest = text.substr(colon);
    if (!rest.empty() && rest.find(':', 1) != std::string_view::npos)
        return fail_at(position,
                       "{} has several ':'; write host:slots, and an IPv6 address in brackets, as "
                       "in [::1]:4",
                       in_quotes(text));
    return NamePattern::parse(text.substr(0, colon), position);
}

Result<HostItem> parse_host_item(std::string_view text, const Position& position) {
    HostItem item;
    std::string_view host = text;
    Position host_position = position;
    if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
        if (auto plain = check_no_scheme(text, position); !plain)
            return std::unexpected(plain.error());
        item.user = text.substr(0, at);
        if (item.user.find(':') != std::string::npos)
            return fail_at(
                position, "{} before '@' is a user; write user@host:slots, and ssh's port as -p 22",
                in_quotes(item.user));
        const auto checked = check_user(item.user, position);
        if (!checked) return std::unexpected(checked.error());
        host = text.substr(at + 1);
        host_position = position.after(at + 1);
    }
    std::string_view rest;
    auto names = parse_host_name(host, host_position, rest);
    if (!names) return std::unexpected(names.error());
    item.names = std::move(*names);
    if (!rest.empty()) {
        const std::size_t digits = host.size() - rest.size() + 1;
        const auto slots = parse_slots(rest.substr(1), host_position.after(digits), "host:4");
        if (!slots) return std::unexpected(slots.error());
        item.slots = *slots;
    }
    return item;
}

}  // namespace dtrun
