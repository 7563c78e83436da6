#include "hostfiles/write_hosts.h"

#include "base/json_writer.h"
#include "base/strings.h"
#include "hostfiles/nodelist.h"
#include "hostfiles/scan.h"

#include <fmt/format.h>
#include <array>
#include <unordered_set>

namespace dtrun {

namespace {

constexpr std::array<NamedHostFormat, 9> kFormats = {{
    {"deepspeed", HostFormat::deepspeed},
    {"openmpi", HostFormat::openmpi},
    {"mpich", HostFormat::mpich},
    {"horovod", HostFormat::horovod},
    {"yaml", HostFormat::yaml},
    {"json", HostFormat::json},
    {"plain", HostFormat::plain},
    {"nodelist", HostFormat::nodelist},
    {"ansible", HostFormat::ansible},
}};

/// What a format can say of a host besides its name.
struct Room {
    bool names_only = false;  ///< everything but the name is left out on purpose
    bool user = false;
    bool reach = false;     ///< port, key and address of a connection
    bool slot_ids = false;  ///< chosen slots, or the format has no slots at all
    bool ipv6 = false;      ///< an IPv6 address as name
};

Room room_of(HostFormat format) {
    switch (format) {
        case HostFormat::openmpi:
            return {.user = true};
        case HostFormat::yaml:
            return {.user = true, .reach = true, .ipv6 = true};
        case HostFormat::json:
        case HostFormat::ansible:
            return {.user = true, .reach = true, .slot_ids = true, .ipv6 = true};
        case HostFormat::plain:
            return {.names_only = true, .ipv6 = true};
        case HostFormat::nodelist:
            return {.names_only = true};
        default:
            return {};
    }
}

std::string_view name_of(HostFormat format) {
    return std::find_if(kFormats.begin(), kFormats.end(),
                        [&](const NamedHostFormat& known) { return known.format == format; })
        ->name;
}

/// What `host` has that the format cannot say, and what to do; "" if nothing.
std::string unsayable(const Host& host, HostFormat format) {
    const Room room = room_of(format);
    if (!room.ipv6 && host.name.find(':') != std::string::npos)
        return "an IPv6 address cannot be its name; give it a name in /etc/hosts";
    if (room.names_only) return {};
    constexpr std::string_view kConfig = "put it into ~/.ssh/config, or take yaml or json";
    if (!room.user && !host.user.empty())
        return fmt::format("no place for user {}; {}", in_quotes(host.user), kConfig);
    if (!room.reach && host.port != 0)
        return fmt::format("no place for port {}; {}", host.port, kConfig);
    if (!room.reach && !host.identity_file.empty())
        return fmt::format("no place for key {}; {}", in_quotes(host.identity_file), kConfig);
    if (!room.reach && !host.address.empty())
        return fmt::format("no place for address {}; --resolve puts it in place of the name",
                           in_quotes(host.address));
    if (room.slot_ids || host.slot_ids.empty()) return {};
    if (format == HostFormat::deepspeed)
        return fmt::format(
            "no place for chosen slots; write all of them, and give deepspeed --include {}:{}",
            host.name, fmt::join(host.slot_ids, ","));
    return fmt::format("no place for chosen slots {}; take json", fmt::join(host.slot_ids, ","));
}

Result<void> check(const HostList& hosts, HostFormat format) {
    std::unordered_set<std::string_view> seen;
    for (const Host& host : hosts) {
        if (const std::string why = unsayable(host, format); !why.empty())
            return fail(Errc::invalid_input, "host {}: format {}: {}", in_quotes(host.name),
                        name_of(format), why);
        if (!seen.insert(host.name).second)
            return fail(Errc::invalid_input, "host {} is listed twice; keep one line for it",
                        in_quotes(host.name));
    }
    return {};
}

/// A YAML value that every reader takes for the same text.
std::string yaml_text(std::string_view text) {
    constexpr std::array<std::string_view, 9> kWords = {"null", "true", "false", "yes", "no",
                                                        "on",   "off",  "y",     "n"};
    std::string lower;
    bool plain = !text.empty() && !is_digit(text[0]) && text[0] != '-' && text[0] != '.';
    for (const char c : text) {
        const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        lower += small;
        plain = plain && ((small >= 'a' && small <= 'z') || is_digit(c) ||
                          std::string_view("._-/").find(c) != std::string_view::npos);
    }
    if (plain && std::find(kWords.begin(), kWords.end(), lower) == kWords.end())
        return std::string(text);
    std::string quoted_text = "'";
    for (const char c : text) quoted_text += c == '\'' ? "''" : std::string(1, c);
    return quoted_text + "'";
}

std::string yaml_host(const Host& host) {
    const bool is_ipv6 = host.name.find(':') != std::string::npos;
    std::string text =
        fmt::format("  - {{host: {}, slots: {}",
                    yaml_text(is_ipv6 ? "[" + host.name + "]" : host.name), host.slots);
    if (host.slots_max) text += fmt::format(", max_slots: {}", *host.slots_max);
    if (!host.user.empty()) text += ", user: " + yaml_text(host.user);
    if (host.port != 0) text += fmt::format(", port: {}", host.port);
    if (!host.identity_file.empty()) text += ", identity_file: " + yaml_text(host.identity_file);
    if (!host.address.empty()) text += ", address: " + yaml_text(host.address);
    return text + "}\n";
}

std::string json_host(const Host& host) {
    JsonWriter object;
    object.add("host", host.name).add("slots", host.slots);
    if (host.slots_max) object.add("max_slots", *host.slots_max);
    if (!host.slot_ids.empty())
        object.raw("slot_ids", fmt::format("[{}]", fmt::join(host.slot_ids, ",")));
    if (!host.user.empty()) object.add("user", host.user);
    if (host.port != 0) object.add("port", host.port);
    if (!host.identity_file.empty()) object.add("identity_file", host.identity_file);
    if (!host.address.empty()) object.add("address", host.address);
    return object.text();
}

std::string json_hosts(const HostList& hosts) {
    std::string text = "{\"hosts\":[";
    std::string_view separator = "\n";
    for (const Host& host : hosts) {
        text += separator;
        text += json_host(host);
        separator = ",\n";
    }
    return text + "\n]}\n";
}

/// Ansible reads brackets in a name as a range and ':' as a port, so IPv6 addresses get an alias.
std::string ansible_host(const Host& host) {
    const bool is_ipv6 = host.name.find(':') != std::string::npos;
    std::string alias = is_ipv6 ? "ipv6-" + host.name : host.name;
    for (char& c : alias)
        if (c == ':' || c == '%') c = '-';
    const std::string& address = host.address.empty() && is_ipv6 ? host.name : host.address;
    std::string text = alias;
    if (!address.empty()) text += " ansible_host=" + address;
    if (!host.user.empty()) text += " ansible_user=" + shell_quote(host.user);
    if (host.port != 0) text += fmt::format(" ansible_port={}", host.port);
    if (!host.identity_file.empty())
        text += " ansible_ssh_private_key_file=" + shell_quote(host.identity_file);
    return text + "\n";
}

std::string openmpi_host(const Host& host) {
    std::string text = host.user.empty() ? host.name : host.user + "@" + host.name;
    text += fmt::format(" slots={}", host.slots);
    if (host.slots_max) text += fmt::format(" max_slots={}", *host.slots_max);
    return text + "\n";
}

std::string slots_line(const Host& host) {
    return fmt::format("{} slots={}\n", host.name, host.slots);
}

std::string mpich_host(const Host& host) {
    return fmt::format("{}:{}\n", host.name, host.slots);
}

std::string name_line(const Host& host) {
    return host.name + "\n";
}

std::string lines(std::string_view head, const HostList& hosts, std::string (*line)(const Host&)) {
    std::string text(head);
    for (const Host& host : hosts) text += line(host);
    return text;
}

std::string nodelist_of(const HostList& hosts) {
    std::vector<std::string> names;
    for (const Host& host : hosts) names.push_back(host.name);
    return compress_nodelist(names) + "\n";
}

}  // namespace

std::span<const NamedHostFormat> host_formats() {
    return kFormats;
}

bool holds_addresses(HostFormat format) {
    return room_of(format).reach;
}

Result<std::string> write_hosts(const HostList& hosts, HostFormat format) {
    if (const auto ok = check(hosts, format); !ok) return std::unexpected(ok.error());
    switch (format) {
        case HostFormat::deepspeed:
        case HostFormat::horovod:
            return lines("", hosts, slots_line);
        case HostFormat::openmpi:
            return lines("", hosts, openmpi_host);
        case HostFormat::mpich:
            return lines("", hosts, mpich_host);
        case HostFormat::yaml:
            return lines("hosts:\n", hosts, yaml_host);
        case HostFormat::json:
            return json_hosts(hosts);
        case HostFormat::plain:
            return lines("", hosts, name_line);
        case HostFormat::nodelist:
            return nodelist_of(hosts);
        case HostFormat::ansible:
            return lines("[dtrun]\n", hosts, ansible_host);
    }
    return fail(Errc::internal, "format {}", static_cast<int>(format));
}

}  // namespace dtrun
