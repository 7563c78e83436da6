#include "launcher/transport/known_hosts.h"

#include "base/fd.h"
#include "base/strings.h"
#include "launcher/transport/ssh_patterns.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

namespace dtrun::transport {
namespace {

constexpr std::size_t kDigestBytes = 20;  // of SHA-1
constexpr std::size_t kBlockBytes = 64;

/// Takes the next word from a line.
std::string_view take_word(std::string_view& line) {
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    const std::size_t end = std::min(line.size(), line.find_first_of(" \t"));
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(end);
    return word;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0 || text.size() > 64) return {};
    std::array<unsigned char, 64> bytes{};
    const int n =
        ::EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                          static_cast<int>(text.size()));
    if (n < 0) return {};
    const auto padding = static_cast<std::size_t>(std::ranges::count(text, '='));
    return std::string(reinterpret_cast<const char*>(bytes.data()),
                       static_cast<std::size_t>(n) - std::min<std::size_t>(padding, 2));
}

/// HMAC-SHA1 (RFC 2104) of one text under many keys. OpenSSL's own looks the algorithm up again for
/// each key, which takes longer than all the rest.
class NameHash {
public:
    explicit NameHash(std::string_view name)
        : name_(name),
          sha1_(::EVP_MD_fetch(nullptr, "SHA1", nullptr), ::EVP_MD_free),
          context_(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free) {}

    /// \param key  at most kBlockBytes
    bool is(std::string_view key, std::string_view digest) {
        std::array<unsigned char, kDigestBytes> inner{}, outer{};
        return sha1_ && hash(key, 0x36, name_, inner) &&
               hash(key, 0x5c, {reinterpret_cast<const char*>(inner.data()), inner.size()},
                    outer) &&
               digest ==
                   std::string_view(reinterpret_cast<const char*>(outer.data()), outer.size());
    }

private:
    bool hash(std::string_view key, unsigned char pad, std::string_view text,
              std::array<unsigned char, kDigestBytes>& digest) {
        std::array<unsigned char, kBlockBytes> block;
        block.fill(pad);
        for (std::size_t i = 0; i < key.size(); ++i) block[i] ^= static_cast<unsigned char>(key[i]);
        return ::EVP_DigestInit_ex2(context_.get(), sha1_.get(), nullptr) == 1 &&
               ::EVP_DigestUpdate(context_.get(), block.data(), block.size()) == 1 &&
               ::EVP_DigestUpdate(context_.get(), text.data(), text.size()) == 1 &&
               ::EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1;
    }

    std::string_view name_;
    std::unique_ptr<EVP_MD, void (*)(EVP_MD*)> sha1_;
    std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

KeyVerdict judge(const KnownHost& host, const HostKey& key) {
    if (std::ranges::find(host.revoked, key) != host.revoked.end()) return KeyVerdict::revoked;
    if (std::ranges::find(host.keys, key) != host.keys.end()) return KeyVerdict::known;
    if (!host.keys.empty()) return KeyVerdict::changed;
    return host.has_authority ? KeyVerdict::needs_authority : KeyVerdict::unknown;
}

std::string known_hosts_name(std::string_view host, unsigned int port) {
    const std::string name = lower(host);
    return port == 22 ? name : fmt::format("[{}]:{}", name, port);
}

void KnownHosts::add(std::string_view text) {
    for (const std::string_view line : split(text, '\n')) add_line(trim(line));
}

void KnownHosts::add_line(std::string_view line) {
    if (line.empty() || line.front() == '#') return;
    Line parsed;
    if (line.front() == '@') {
        const std::string_view marker = take_word(line);
        if (marker == "@revoked")
            parsed.marker = Marker::revoked;
        else if (marker == "@cert-authority")
            parsed.marker = Marker::authority;
        else
            return;
    }
    const std::string_view names = take_word(line);
    parsed.key.type = take_word(line);
    parsed.key.base64 = take_word(line);
    // Keys of SSH 1 begin with a number of bits.
    if (parsed.key.base64.empty() || (parsed.key.type[0] >= '0' && parsed.key.type[0] <= '9'))
        return;
    lines_.push_back(std::move(parsed));
    add_names(names, static_cast<LineId>(lines_.size() - 1));
}

void KnownHosts::add_names(std::string_view names, LineId line) {
    if (names.starts_with('|')) {
        const auto parts = split(names, '|');
        if (parts.size() != 4 || parts[1] != "1") return;
        auto salt = from_base64(parts[2]);
        auto digest = from_base64(parts[3]);
        if (salt && digest && digest->size() == kDigestBytes)
            hashed_.push_back({std::move(*salt), std::move(*digest), line});
    } else if (names.find_first_of("*?!") != std::string_view::npos) {
        patterns_.push_back({lower(names), line});
    } else {
        for (const std::string_view name : split(names, ',')) plain_.emplace(lower(name), line);
    }
}

KnownHost KnownHosts::find(std::string_view name) const {
    std::vector<LineId> found;
    const auto [first, last] = plain_.equal_range(std::string(name));
    for (auto at = first; at != last; ++at) found.push_back(at->second);
    for (const Patterns& patterns : patterns_)
        if (matches_any(patterns.text, name)) found.push_back(patterns.line);
    NameHash hash(name);
    for (const Hashed& hashed : hashed_)
        if (hash.is(hashed.salt, hashed.digest)) found.push_back(hashed.line);
    std::ranges::sort(found);  // as the file has them
    KnownHost host;
    for (const LineId id : found) {
        const Line& line = lines_[id];
        if (line.marker == Marker::revoked)
            host.revoked.push_back(line.key);
        else if (line.marker == Marker::authority)
            host.has_authority = true;
        else
            host.keys.push_back(line.key);
    }
    return host;
}

std::shared_ptr<const KnownHosts> KnownHostsFiles::read(const std::vector<std::string>& files) {
    auto& known = read_[files];
    if (known) return known;
    auto table = std::make_shared<KnownHosts>();
    for (const std::string& file : files)
        if (const auto text = read_file(file)) table->add(*text);
    return known = std::move(table);
}

Result<void> KnownHostsFiles::add(const std::string& file, const std::string& name,
                                  const HostKey& key) {
    added_.emplace(name, key);
    auto written = append(file, fmt::format("{} {} {}\n", name, key.type, key.base64));
    if (!written && !unwritable_.insert(file).second) return {};
    return written;
}

Result<void> KnownHostsFiles::append(const std::string& file, std::string_view line) {
    std::error_code ignored;
    const auto directory = std::filesystem::path(file).parent_path();
    if (std::filesystem::create_directory(directory, ignored))
        std::filesystem::permissions(directory, std::filesystem::perms::owner_all, ignored);
    const Fd fd(::open(file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) return fail(Errc::denied, "{}: {}", file, strerror(errno));
    char last = '\n';
    if (::lseek(fd.get(), -1, SEEK_END) >= 0) static_cast<void>(::read(fd.get(), &last, 1));
    const std::string whole = fmt::format("{}{}", last == '\n' ? "" : "\n", line);
    if (const auto written = write_all(fd.get(), whole); !written)
        return fail(Errc::denied, "{}: {}", file, written.error().message);
    return {};
}

bool KnownHostsFiles::has_added(const std::string& name, const HostKey& key) const {
    const auto [first, last] = added_.equal_range(name);
    return std::any_of(first, last, [&](const auto& entry) { return entry.second == key; });
}

}  // namespace dtrun::transport
