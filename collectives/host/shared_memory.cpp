#include "collectives/host/shared_memory.h"

#include "base/fd.h"
#include "base/ids.h"
#include "base/strings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace dtrun::collectives {
namespace {

/// Names the kernel and the process numbers that this process sees: both have to be the same where one
/// process opens another one's memory.
std::string place_of_process() {
    std::string boot = read_file("/proc/sys/kernel/random/boot_id").value_or("?");
    while (!boot.empty() && boot.back() == '\n') boot.pop_back();
    std::array<char, 64> target{};
    const ssize_t size = ::readlink("/proc/self/ns/pid", target.data(), target.size());
    return boot + "/" + std::string(target.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
}

bool is_unwanted() {
    const char* const wish = std::getenv("DTRUN_SHARED_MEMORY");
    return wish != nullptr && std::string_view(wish) == "no";
}

/// Where ranks of one host meet in the store.
class Meeting {
public:
    Meeting(const GroupSpec& spec, const Sharers& sharers) : spec_(spec), sharers_(sharers) {}

    Result<void> say(const std::string& name, const std::string& value) const {
        const KeyStore::Pair pair(key(name), value);
        return spec_.store->set({&pair, 1});
    }
    Result<std::string> hear(const std::string& name) const {
        const std::string key_of = key(name);
        auto values = spec_.store->get({&key_of, 1}, spec_.timeout);
        if (!values) return std::unexpected(values.error());
        return std::move(values->front());
    }
    Result<std::vector<std::string>> hear_all() const {
        std::vector<std::string> keys;
        for (std::uint32_t place = 1; place < sharers_.places; ++place)
            keys.push_back(key(std::to_string(place)));
        return spec_.store->get(keys, spec_.timeout);
    }

private:
    std::string key(const std::string& name) const {
        return fmt::format("{}{}/{}", spec_.prefix, sharers_.name, name);
    }
    const GroupSpec& spec_;
    const Sharers& sharers_;
};

constexpr std::string_view kYes = "yes";

Error refusal(const std::string& why) {
    return {Errc::not_found, why};
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

SharedMemory::~SharedMemory() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<SharedMemory> SharedMemory::map(int fd, std::size_t bytes) {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return fail(Errc::not_found, "mmap: {}", std::strerror(errno));
    return SharedMemory(static_cast<std::byte*>(data), bytes);
}

/// \param where  "PID FD PLACE NONCE" of the first rank
Result<SharedMemory> SharedMemory::open(const std::string& where, std::size_t bytes) {
    const auto words = split(where, ' ');
    if (words.size() != 4) return fail(Errc::not_found, "{}", where);
    if (words[2] != place_of_process())
        return fail(Errc::not_found, "the ranks do not see each other's processes");
    const std::string path = fmt::format("/proc/{}/fd/{}", words[0], words[1]);
    const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) return fail(Errc::not_found, "{}: {}", path, std::strerror(errno));
    struct stat is {};
    if (::fstat(fd.get(), &is) != 0 || static_cast<std::size_t>(is.st_size) != bytes)
        return fail(Errc::not_found, "{} is something else", path);
    auto memory = map(fd.get(), bytes);
    if (memory && std::memcmp(memory->data(), words[3].data(), words[3].size()) != 0)
        return fail(Errc::not_found, "{} is somebody else's", path);
    return memory;
}

Result<SharedMemory> SharedMemory::meet(const GroupSpec& spec, const Sharers& sharers,
                                        std::size_t bytes) {
    const Meeting meeting(spec, sharers);
    Result<SharedMemory> memory = std::unexpected(refusal("DTRUN_SHARED_MEMORY is no"));
    Fd fd;  // open until all others have opened it
    if (sharers.place != 0) {
        const auto where = meeting.hear("at");
        if (!where) return std::unexpected(where.error());
        if (!is_unwanted()) memory = open(*where, bytes);
        const auto said = meeting.say(std::to_string(sharers.place),
                                      memory ? std::string(kYes) : memory.error().message);
        if (!said) return std::unexpected(said.error());
    } else {
        if (!is_unwanted()) {
            fd = Fd(::memfd_create("dtrun", MFD_CLOEXEC));
            if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
                memory = fail(Errc::not_found, "memfd: {}", std::strerror(errno));
            else
                memory = map(fd.get(), bytes);
        }
        std::array<std::uint8_t, 16> random{};
        random_bytes(random);
        const std::string nonce = hex(random);
        if (memory) std::memcpy(memory->data(), nonce.data(), nonce.size());
        const auto said = meeting.say(
            "at", memory
                      ? fmt::format("{} {} {} {}", ::getpid(), fd.get(), place_of_process(), nonce)
                      : memory.error().message);
        if (!said) return std::unexpected(said.error());
        const auto others = meeting.hear_all();
        if (!others) return std::unexpected(others.error());
        std::string verdict = memory ? std::string(kYes) : memory.error().message;
        for (const std::string& one : *others)
            if (verdict == kYes) verdict = one;
        if (auto told = meeting.say("verdict", verdict); !told)
            return std::unexpected(told.error());
    }
    const auto verdict = meeting.hear("verdict");
    if (!verdict) return std::unexpected(verdict.error());
    if (*verdict != kYes) return std::unexpected(refusal(*verdict));
    return memory;
}

}  // namespace dtrun::collectives
