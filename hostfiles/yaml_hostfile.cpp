#include "hostfiles/yaml_hostfile.h"
#include "base/strings.h"

#include "hostfiles/host_item.h"
#include "hostfiles/host_merger.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>
#include <algorithm>
#include <array>
#include <istream>
#include <optional>
#include <span>
#include <streambuf>

namespace dtrun {

namespace {

constexpr std::size_t kDepthMax = 4;          // levels: top, hosts, host, settings
constexpr std::size_t kNodesMax = 8'000'000;  // bounds memory, with room for kHostsMax hosts
constexpr std::size_t kPathBytesMax = 1024;

/// A value of the document. yaml-cpp's own nodes are not used: they take quadratic time for large
/// maps, exponential for aliases, and throw on access.
struct Node {
    enum class Kind { none, scalar, list, map };
    Kind kind = Kind::none;
    std::size_t line = 0;
    std::size_t column = 0;
    std::string text;            ///< of a scalar
    std::vector<Node> children;  ///< of a list; of a map key, value, key, value, ...
};

/// What is wrong with the document, thrown through yaml-cpp and caught in read_document().
struct Refusal {
    YAML::Mark mark;
    std::string text;
};

/// \param number  0-based, or -1 where yaml-cpp does not know
std::size_t one_based(int number) {
    return static_cast<std::size_t>(std::max(number, 0)) + 1;
}

class TreeBuilder : public YAML::EventHandler {
public:
    bool empty() const { return root_.children.empty(); }
    Node take() { return std::move(root_.children.front()); }

    void OnDocumentStart(const YAML::Mark& mark) override {
        if (!root_.children.empty())
            throw Refusal{mark, "a second document begins; keep one '---'"};
    }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(mark, Node::Kind::none); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        throw Refusal{mark, "aliases (*name) are not supported; write the value out"};
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  const std::string& text) override {
        Node& node = add(mark, Node::Kind::scalar);
        node.text = text;
        if (tag == "!") ++node.column;  // quoted: the text begins after the quote
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                         YAML::EmitterStyle::value) override {
        open(mark, Node::Kind::list);
    }
    void OnSequenceEnd() override { open_.pop_back(); }
    void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                    YAML::EmitterStyle::value) override {
        open(mark, Node::Kind::map);
    }
    void OnMapEnd() override { open_.pop_back(); }

private:
    Node& add(const YAML::Mark& mark, Node::Kind kind) {
        if (++count_ > kNodesMax)
            throw Refusal{mark, "the file is too large for YAML; write lines: host slots=4"};
        Node node;
        node.kind = kind;
        node.line = one_based(mark.line);
        node.column = one_based(mark.column);
        return open_.back()->children.emplace_back(std::move(node));
    }
    // Pointers in open_ stay valid: a parent gets no more children while one of them is open.
    void open(const YAML::Mark& mark, Node::Kind kind) {
        if (open_.size() > kDepthMax)
            throw Refusal{mark, "nested too deeply; a host has only plain settings"};
        open_.push_back(&add(mark, kind));
    }

    Node root_;
    std::vector<Node*> open_ = {&root_};
    std::size_t count_ = 0;
};

/// Reads memory without a copy.
class ViewBuffer : public std::streambuf {
public:
    explicit ViewBuffer(std::string_view text) {
        char* begin = const_cast<char*>(text.data());  // only ever read
        setg(begin, begin, begin + text.size());
    }
};

/// A mistake that yaml-cpp found.
std::unexpected<Error> explain(const YAML::Exception& error, std::string_view text,
                               std::string_view name) {
    const auto lines = split(text, '\n');
    Position position{name, one_based(error.mark.line), one_based(error.mark.column)};
    // If something is missing at the end of the text, yaml-cpp gives the last line, but no column.
    if (position.line == lines.size() && position.column == 1 && error.msg.starts_with("end of "))
        position.column = lines.back().size() + 1;
    const std::string_view line = lines[std::min(position.line, lines.size()) - 1];
    const std::string_view indent = line.substr(0, line.find_first_not_of(" \t"));
    const bool has_tab = indent.find('\t') != std::string_view::npos;
    return fail_at(position, "not valid YAML: {}{}", escaped(error.msg),
                   has_tab ? "; indent with spaces, not tabs" : "");
}

Result<Node> read_document(std::string_view text, std::string_view name) {
    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    TreeBuilder builder;
    try {
        YAML::Parser parser(stream);
        while (parser.HandleNextDocument(builder)) {
        }
    } catch (const Refusal& refusal) {
        return fail_at(Position{name, one_based(refusal.mark.line), one_based(refusal.mark.column)},
                       "{}", refusal.text);
    } catch (const YAML::Exception& error) {
        return explain(error, text, name);
    } catch (const std::exception& error) {
        return fail_at(Position{name}, "not valid YAML: {}", escaped(error.what()));
    }
    if (builder.empty())
        return fail_at(Position{name}, "the document is empty; write hosts: and a list");
    return builder.take();
}

std::string_view kind_of(const Node& node) {
    constexpr std::array<std::string_view, 4> kNames = {"nothing", "a plain value", "a list",
                                                        "a map"};
    return kNames[static_cast<std::size_t>(node.kind)];
}

/// What was written about one host, or as defaults.
struct Settings {
    const Node* host = nullptr;  ///< the key "host"'s value
    std::optional<int> slots;
    std::optional<int> slots_max;
    int port = 0;
    std::string user;
    std::string identity_file;
    std::string address;
};

using Keys = std::span<const std::string_view>;
constexpr std::array<std::string_view, 2> kTopKeys = {"hosts", "defaults"};
// Prefixes of this list are allowed: 6 keys in defaults, 7 for a host named by a map key, all for
// others.
constexpr std::array<std::string_view, 8> kHostKeyNames = {
    "slots", "max_slots", "max-slots", "user", "port", "identity_file", "address", "host"};
constexpr Keys kHostKeys = kHostKeyNames;
constexpr Keys kNamedHostKeys = kHostKeys.first(7);
constexpr Keys kDefaultsKeys = kHostKeys.first(6);

/// Converts a document to hosts.
class YamlReader {
public:
    explicit YamlReader(std::string_view name) : name_(name) {}

    Result<HostList> read(const Node& document);

private:
    Position position_of(const Node& node) const { return {name_, node.line, node.column}; }

    Result<void> read_hosts(const Node& hosts);
    Result<void> read_list_item(const Node& item);
    Result<void> read_named_host(const Node& name, const Node& value);
    Result<void> add_host(const Node& name, const Settings& settings);
    Result<Host> combine(const HostItem& item, const Settings& settings,
                         const Position& position) const;
    Result<Settings> read_settings(const Node& map, Keys keys) const;
    Result<void> read_setting(const Node& key, const Node& value, Settings& settings) const;
    Result<void> check_keys(const Node& map, Keys keys) const;

    std::string_view name_;
    Settings defaults_;
    HostMerger hosts_{0};
};

Result<HostList> YamlReader::read(const Node& document) {
    if (document.kind != Node::Kind::map)
        return fail_at(position_of(document), "the document is {}; write hosts: and a list",
                       kind_of(document));
    if (const auto ok = check_keys(document, kTopKeys); !ok) return std::unexpected(ok.error());
    const Node* hosts = nullptr;
    for (std::size_t i = 0; i < document.children.size(); i += 2) {
        const Node& value = document.children[i + 1];
        if (document.children[i].text == "hosts") {
            hosts = &value;
        } else {
            auto defaults = read_settings(value, kDefaultsKeys);
            if (!defaults) return std::unexpected(defaults.error());
            defaults_ = std::move(*defaults);
        }
    }
    if (hosts == nullptr)
        return fail_at(position_of(document), "no hosts in the file; write hosts: and a list");
    if (const auto ok = read_hosts(*hosts); !ok) return std::unexpected(ok.error());
    return hosts_.take();
}

Result<void> YamlReader::read_hosts(const Node& hosts) {
    const bool is_list = hosts.kind == Node::Kind::list;
    if (!is_list && hosts.kind != Node::Kind::map)
        return fail_at(position_of(hosts), "hosts: is {}; write a list or a map of hosts",
                       kind_of(hosts));
    if (hosts.children.empty())
        return fail_at(position_of(hosts), "no hosts in the file; write at least one under hosts:");
    for (std::size_t i = 0; i < hosts.children.size(); i += is_list ? 1 : 2) {
        const auto ok = is_list ? read_list_item(hosts.children[i])
                                : read_named_host(hosts.children[i], hosts.children[i + 1]);
        if (!ok) return ok;
    }
    return {};
}

Result<void> YamlReader::read_list_item(const Node& item) {
    if (item.kind == Node::Kind::scalar) return add_host(item, {});
    if (item.kind != Node::Kind::map)
        return fail_at(position_of(item),
                       "a host is {}; write a name or a map, and '[::1]:4' in quotes",
                       kind_of(item));
    const bool is_setting =
        item.children.empty() ||
        std::find(kHostKeys.begin(), kHostKeys.end(), item.children[0].text) != kHostKeys.end();
    if (item.children.size() == 2 && !is_setting)
        return read_named_host(item.children[0], item.children[1]);
    const auto settings = read_settings(item, kHostKeys);
    if (!settings) return std::unexpected(settings.error());
    if (settings->host == nullptr)
        return fail_at(position_of(item), "this host has no name; write {{host: name, slots: 4}}");
    return add_host(*settings->host, *settings);
}

Result<void> YamlReader::read_named_host(const Node& name, const Node& value) {
    if (name.kind != Node::Kind::scalar)
        return fail_at(position_of(name), "a host name is {}; write a plain name", kind_of(name));
    if (value.kind == Node::Kind::none) return add_host(name, {});
    if (value.kind == Node::Kind::scalar) {
        const auto slots = parse_slots(value.text, position_of(value), "host: 4");
        if (!slots) return std::unexpected(slots.error());
        Settings settings;
        settings.slots = *slots;
        return add_host(name, settings);
    }
    const auto settings = read_settings(value, kNamedHostKeys);
    if (!settings) return std::unexpected(settings.error());
    return add_host(name, *settings);
}

Result<void> YamlReader::add_host(const Node& name, const Settings& settings) {
    const Position position = position_of(name);
    const auto item = parse_host_item(name.text, position);
    if (!item) return std::unexpected(item.error());
    const auto host = combine(*item, settings, position);
    if (!host) return std::unexpected(host.error());
    return hosts_.add(item->names, *host, position);
}

Result<Host> YamlReader::combine(const HostItem& item, const Settings& settings,
                                 const Position& position) const {
    if (item.slots && settings.slots)
        return fail_at(position, "slots are given twice, with the name and as a setting; keep one");
    if (!item.user.empty() && !settings.user.empty())
        return fail_at(position,
                       "the user is given twice, with the name and as a setting; keep one");
    if (item.names.count() > 1 && !settings.address.empty())
        return fail_at(position, "{} hosts cannot have one address; write them one by one",
                       item.names.count());
    const auto first_of = [](const auto& a, const auto& b) { return a.empty() ? b : a; };
    Host host;
    host.slots = item.slots.value_or(settings.slots.value_or(defaults_.slots.value_or(1)));
    host.slots_max = settings.slots_max ? settings.slots_max : defaults_.slots_max;
    host.user = first_of(first_of(item.user, settings.user), defaults_.user);
    host.port = settings.port != 0 ? settings.port : defaults_.port;
    host.identity_file = first_of(settings.identity_file, defaults_.identity_file);
    host.address = settings.address;
    if (host.slots_max && *host.slots_max < host.slots)
        return fail_at(position, "max_slots={} is less than slots={}; raise it or lower slots",
                       *host.slots_max, host.slots);
    return host;
}

Result<Settings> YamlReader::read_settings(const Node& map, Keys keys) const {
    if (map.kind != Node::Kind::map)
        return fail_at(position_of(map), "the settings are {}; write a map such as {{slots: 4}}",
                       kind_of(map));
    if (const auto ok = check_keys(map, keys); !ok) return std::unexpected(ok.error());
    Settings settings;
    for (std::size_t i = 0; i < map.children.size(); i += 2) {
        const auto ok = read_setting(map.children[i], map.children[i + 1], settings);
        if (!ok) return std::unexpected(ok.error());
    }
    return settings;
}

Result<void> check_identity_file(std::string_view path, const Position& position) {
    const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
    if (path.empty() || path.size() > kPathBytesMax ||
        std::any_of(path.begin(), path.end(), is_control))
        return fail_at(position, "{} is not a path; write the path of a private key",
                       in_quotes(path));
    return {};
}

Result<void> check_address(std::string_view address, const Position& position) {
    if (is_ipv6(address)) return {};
    const bool is_range = address.find('[') != std::string_view::npos;
    if (is_range || !NamePattern::parse(address, position))
        return fail_at(position, "{} is not an address; write a host name, 10.0.0.2 or '::1'",
                       in_quotes(address));
    return {};
}

Result<void> YamlReader::read_setting(const Node& key, const Node& value,
                                      Settings& settings) const {
    const Position position = position_of(value);
    if (value.kind != Node::Kind::scalar)
        return fail_at(position, "{} is {}; write a plain value", key.text, kind_of(value));
    if (key.text == "host") {
        settings.host = &value;
    } else if (key.text == "port") {
        const auto port = to_int(value.text, 1, 65'535);
        if (!port)
            return fail_at(position, "{} is not a port; write 1 to 65535", in_quotes(value.text));
        settings.port = static_cast<int>(*port);
    } else if (key.text == "user") {
        settings.user = value.text;
        return check_user(value.text, position);
    } else if (key.text == "identity_file") {
        settings.identity_file = value.text;
        return check_identity_file(value.text, position);
    } else if (key.text == "address") {
        settings.address = value.text;
        return check_address(value.text, position);
    } else {
        const auto slots = parse_slots(value.text, position, fmt::format("{}: 4", key.text));
        if (!slots) return std::unexpected(slots.error());
        (key.text == "slots" ? settings.slots : settings.slots_max) = *slots;
    }
    return {};
}

Result<void> YamlReader::check_keys(const Node& map, Keys keys) const {
    std::vector<std::string_view> seen;  // at most keys.size(), so searching it is fast
    for (std::size_t i = 0; i < map.children.size(); i += 2) {
        const Node& key = map.children[i];
        if (key.kind != Node::Kind::scalar)
            return fail_at(position_of(key), "a key is {}; write a plain word", kind_of(key));
        if (std::find(keys.begin(), keys.end(), key.text) == keys.end())
            return fail_at(position_of(key), "unknown key {}{}; the keys are {}",
                           in_quotes(key.text),
                           did_you_mean(key.text, keys, [](std::string_view name) { return name; }),
                           join_names({keys.begin(), keys.end()}));
        const std::string_view written = key.text;
        const std::string_view name = written == "max-slots" ? "max_slots" : written;
        if (std::find(seen.begin(), seen.end(), name) != seen.end())
            return fail_at(position_of(key), "{} is given twice; keep one", name);
        seen.push_back(name);
    }
    return {};
}

}  // namespace

Result<HostList> parse_yaml_hostfile(std::string_view text, std::string_view name) {
    const auto document = read_document(text, name);
    if (!document) return std::unexpected(document.error());
    return YamlReader(name).read(*document);
}

bool looks_like_yaml(std::string_view text) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        if (trim(line).empty() || trim(line).starts_with('#')) continue;
        if (line.starts_with('{')) return true;
        for (const std::string_view start : {"---", "hosts:", "defaults:"}) {
            if (line.starts_with(start) &&
                (line.size() == start.size() || is_blank(line[start.size()])))
                return true;
        }
        return false;
    }
    return false;
}

}  // namespace dtrun
