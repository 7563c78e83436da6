#include "worker/client/connect/munge.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>
#include <cstdlib>
#include <new>

namespace dtrun::embedded {
namespace {

// Of <munge.h>, which is not needed to build this: values are part of libmunge.so.2's ABI.
constexpr int kSuccess = 0;
constexpr int kBadCredential = 8;  // and the numbers behind it: it is the credential's fault
constexpr int kExpired = 15;
constexpr int kRewound = 16;
constexpr int kReplayed = 17;
constexpr int kOptionSocket = 8;
constexpr int kOptionUidRestriction = 9;

constexpr const char* kLibrary = "libmunge.so.2";

using Context = void*;

}  // namespace

struct Munge::Library {
    void* handle = nullptr;
    Context (*create)() = nullptr;
    void (*destroy)(Context) = nullptr;
    const char* (*describe)(Context) = nullptr;
    int (*set)(Context, int option, ...) = nullptr;
    int (*encode)(char** credential, Context, const void* payload, int bytes) = nullptr;
    int (*decode)(const char* credential, Context, void** payload, int* bytes, uid_t*,
                  gid_t*) = nullptr;

    template <class Function>
    bool find(const char* name, Function& function) {
        function = reinterpret_cast<Function>(::dlsym(handle, name));
        return function != nullptr;
    }
    bool load() {
        handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
        return handle != nullptr && find("munge_ctx_create", create) &&
               find("munge_ctx_destroy", destroy) && find("munge_ctx_strerror", describe) &&
               find("munge_ctx_set", set) && find("munge_encode", encode) &&
               find("munge_decode", decode);
    }
    Library() = default;
    ~Library() {
        if (handle != nullptr) ::dlclose(handle);
    }
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    auto context(const std::string& socket) const {
        std::unique_ptr<void, void (*)(Context)> made(create(), destroy);
        if (!made) throw std::bad_alloc();
        if (!socket.empty()) set(made.get(), kOptionSocket, socket.c_str());
        return made;
    }
};

Outcome<Munge> Munge::open(const std::string& socket) {
    auto library = std::make_shared<Library>();
    if (!library->load()) {
        const char* why = ::dlerror();
        return failure(DTRUN_NO_LAUNCHER, "MUNGE: {}", why != nullptr ? why : kLibrary);
    }
    Munge munge(std::move(library), socket);
    if (const auto tried = munge.encode(""); !tried) return std::unexpected(tried.error());
    return munge;
}

Outcome<std::string> Munge::encode(std::string_view payload) const {
    const auto context = library_->context(socket_);
    library_->set(context.get(), kOptionUidRestriction, ::geteuid());
    char* text = nullptr;
    const int error =
        library_->encode(&text, context.get(), payload.data(), static_cast<int>(payload.size()));
    const std::unique_ptr<char, decltype(&std::free)> owner(text, std::free);
    if (error != kSuccess || text == nullptr)
        return failure(DTRUN_CLOSED, "MUNGE: {}", library_->describe(context.get()));
    return std::string(text);
}

Outcome<std::string> Munge::decode(const std::string& credential) const {
    const auto context = library_->context(socket_);
    void* bytes = nullptr;
    int size = 0;
    uid_t user = 0;
    gid_t group = 0;
    const int error =
        library_->decode(credential.c_str(), context.get(), &bytes, &size, &user, &group);
    const std::unique_ptr<void, decltype(&std::free)> owner(bytes, std::free);
    std::string payload;
    if (bytes != nullptr && size > 0) {
        payload.assign(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
        ::explicit_bzero(bytes, payload.size());
    }
    if (error != kSuccess && error != kExpired && error != kRewound && error != kReplayed)
        return failure(error < kBadCredential ? DTRUN_CLOSED : DTRUN_REFUSED, "MUNGE: {}",
                       library_->describe(context.get()));
    if (user != ::geteuid())
        return failure(DTRUN_REFUSED, "it belongs to user {}, not to us", user);
    return payload;
}

}  // namespace dtrun::embedded
